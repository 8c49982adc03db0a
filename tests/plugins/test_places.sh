#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Context parallelism permutes the tokens of a sequence only where no op of the model depends on a token's place in the
# token dim. places.c has a term per block in many forms: all train on two ranks as on one, and only those that depend on
# places keep the tokens in their order.
. "$(dirname "$0")/../run/lib.sh"
cd "$dir" || exit 1
mkdir more
cc -std=c11 -Wall -Wextra -Werror -O1 -fPIC -shared "-I$SRC/include" "$SRC/tests/plugins/places.c" -o more/places.so "-L$BUILD" -lttrun >out 2>&1
ok models_build
[ $failed -eq 0 ] || exit 1
sed -i 's/"flavor": "debugmodel",/"name": "places", "flavor": "debugmodel" },/; /"args"/d; s/"local_batch_size": 4/"local_batch_size": 3/; s/"seq_len": 32/"seq_len": 29/; s/"steps": 10/"steps": 3/' job.json
cp2="--comm.backend local --nproc 2 --parallelism.context_parallel_degree 2"

# both FORM KEPT: KEPT is 1 if the tokens must keep their order
both() {
    form=$1
    train "$form.one" --plugin-dir more --model.args.form "$form" && [ "$rc" -eq 0 ] && losses "$form.one/metrics.jsonl" >wanted && [ "$(wc -l <wanted)" -eq 3 ]
    ok "${form}_on_one_rank"
    # shellcheck disable=SC2086 # words
    train "$form.cp" --plugin-dir more --model.args.form "$form" $cp2
    [ "$rc" -eq 0 ] && losses "$form.cp/metrics.jsonl" | paste -d' ' - wanted |
        awk '{d = $2 - $4; n++; if (d < 0) d = -d; if ($1 != $3 || d > 1e-4) bad = 1} END {exit bad || n != 3}'
    ok "${form}_on_two_ranks"
    [ "$(grep -c 'tokens keep their order, because op' err)" -eq "$2" ]
    ok "${form}_keeps_the_order_$2"
}
for form in shift pad roll cumsum max iota constant reshape lines gather lookup pick largest transposed random_rows flat custom; do
    both $form 1
done
for form in heads broadcast sums pairs positions random; do
    both $form 0
done

# Every model of ttrun has its tokens from the head and the tail of a sequence, on every backend, in bf16 and on a ring.
for spec in gpt2 llama3 mistral qwen2 qwen3; do
    file=$SRC/tests/bits/llama3.json
    [ $spec = gpt2 ] && file=$SRC/tests/bits/gpt2.json
    for more in "--backend.name cpu" "--backend.name reference" "--training.mixed_precision_param bfloat16" \
        "--parallelism.context_parallel_rotate_method ring --parallelism.tensor_parallel_degree 2 --nproc 4"; do
        # shellcheck disable=SC2086 # words
        ttrun plan "$file" --spec $spec --nproc 2 --parallelism.context_parallel_degree 2 --training.local_batch_size 1 $more >out 2>err &&
            grep -q '^context .*(headtail;' out || break
    done
    ok "${spec}_is_balanced"
done
exit $failed
