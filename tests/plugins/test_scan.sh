#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A model of recurrences (gla.c) trains alike on every mesh, with several documents in a sequence, and generates the same
# text with a state per sequence as with the whole context.
. "$(dirname "$0")/../run/lib.sh"
cd "$dir" || exit 1
mkdir more whole
cc -std=c11 -Wall -Wextra -Werror -O1 -fPIC -shared "-I$SRC/include" "$SRC/tests/plugins/gla.c" -o more/gla.so "-L$BUILD" -lttrun -lm >out 2>&1 &&
    cc -std=c11 -Wall -Wextra -Werror -O1 -fPIC -shared -DWHOLE "-I$SRC/include" "$SRC/tests/plugins/gla.c" -o whole/gla.so "-L$BUILD" -lttrun -lm >out 2>&1
ok recurrences_build
"$TTRUN" plugins check more/gla.so --plugin-dir "$PLUGINS" >out 2>err && grep -q '^ok    gradients' out && grep -q '^ok    two ranks .*FSDP 2' out
ok plugins_check_passes_them

# documents of 12 to 30 tokens: sequences of 32 hold several, and some are cut
i=0
while [ $i -lt 300 ]; do
    echo "{\"text\": \"$i and $((i * i))$([ $((i % 3)) -eq 0 ] && echo ' a longer text')\"}"
    i=$((i + 1))
done >text.jsonl
sed -i 's/"flavor": "debugmodel",/"name": "gla", "flavor": "debugmodel" },/; /"args"/d; s/"name": "text", "path": \["text.txt"\]/"name": "jsonl", "path": ["text.jsonl"]/; s/"local_batch_size": 4/"global_batch_size": 8/; s/"steps": 10/"steps": 4/' job.json

train one --plugin-dir more --training.local_batch_size 8
[ "$rc" -eq 0 ] && losses one/metrics.jsonl >wanted && [ "$(wc -l <wanted)" -eq 4 ]
ok one_rank_trains

# same NAME: the losses are those of one rank, to rounding
same() {
    [ "$rc" -eq 0 ] && losses "$1/metrics.jsonl" | paste -d' ' - wanted |
        awk '{d = $2 - $4; n++; if (d < 0) d = -d; if ($1 != $3 || d > 1e-4) bad = 1} END {exit bad || n != 4}'
    ok "$1"
}
# mesh NAME RANKS LOCAL OPTION...: the graph stays in NAME.graph
mesh() {
    name=$1 ranks=$2 batch=$3
    shift 3
    train "$name" --plugin-dir more --training.local_batch_size "$batch" --comm.backend local --nproc "$ranks" --debug.dump_graph "$name.graph" "$@"
    same "$name"
}
# placed NAME OP PLACE: the op's nodes of the forward have that placement
placed() {
    grep -q "= $2 .*layers" "$1.graph/01-place.txt" && ! grep "= $2 .*layers" "$1.graph/01-place.txt" | grep -qvF "@ $3"
    ok "$1_computes_$2_on_its_part"
}
p=--parallelism.
mesh fsdp 2 4
placed fsdp scan '{dp_shard},{},{},{}'
mesh fsdp_small_batches 2 1
mesh tp 2 8 ${p}tensor_parallel_degree 2
placed tp scan '{},{tp},{},{}'
# one sequence a rank group: its tokens are gathered, or Ulysses exchanges them for heads; several stay where they are
mesh cp 2 1 ${p}context_parallel_degree 2
placed cp scan '{},{},{},{}'
mesh cp_of_several 2 8 ${p}context_parallel_degree 2
placed cp_of_several scan '{cp},{},{},{}'
mesh cp_fsdp 4 1 ${p}context_parallel_degree 2
ulysses="${p}context_parallel_degree 2 ${p}context_parallel_rotate_method ulysses"
mesh cp_ulysses 2 1 $ulysses
placed cp_ulysses scan '{},{cp},{},{}'
mesh tp_cp_ulysses 4 1 ${p}tensor_parallel_degree 2 $ulysses
placed tp_cp_ulysses scan '{},{tp,cp},{},{}'
mesh pp 2 4 ${p}pipeline_parallel_degree 2
mesh fsdp_tp_pp 8 2 ${p}tensor_parallel_degree 2 ${p}pipeline_parallel_degree 2
for mode in selective full; do
    train "recompute_$mode" --plugin-dir more --training.local_batch_size 4 --activation_checkpoint.mode $mode
    [ "$rc" -eq 0 ] && losses "recompute_$mode/metrics.jsonl" >"recompute_$mode.losses"
    ok "recompute_$mode"
done
train stored --plugin-dir more --training.local_batch_size 4
losses stored/metrics.jsonl >stored.losses
[ -s stored.losses ] && cmp -s stored.losses recompute_selective.losses && cmp -s stored.losses recompute_full.losses
ok recomputed_equals_stored_to_the_bit
train threads --plugin-dir more --training.local_batch_size 4 --backend.threads 3
[ "$rc" -eq 0 ] && losses threads/metrics.jsonl | cmp -s - stored.losses
ok threads_do_not_change_a_bit

# bf16 on one rank and on a mesh of each kind: near f32, and near each other
train half --plugin-dir more --training.local_batch_size 8 --training.mixed_precision_param bfloat16
[ "$rc" -eq 0 ] && losses half/metrics.jsonl | paste -d' ' - wanted | awk '{d = $2 - $4; n++; if (d < 0) d = -d; if (d > 3e-2) bad = 1} END {exit bad || n != 4}'
ok bf16_is_near_f32
losses half/metrics.jsonl >wanted
train half_mesh --plugin-dir more --training.local_batch_size 4 --training.mixed_precision_param bfloat16 --comm.backend local --nproc 4 ${p}tensor_parallel_degree 2
[ "$rc" -eq 0 ] && losses half_mesh/metrics.jsonl | paste -d' ' - wanted | awk '{d = $2 - $4; n++; if (d < 0) d = -d; if (d > 3e-2) bad = 1} END {exit bad || n != 4}'
ok bf16_on_a_mesh

train long --plugin-dir more --training.local_batch_size 8 --training.steps 60
printf '1 and\n0 and 0 a longer\n17\n200 and 40000 a\n' >prompts.txt
for how in more whole; do
    ttrun generate --checkpoint long --plugin-dir $how --prompts prompts.txt --max-tokens 24 --temperature 0 >"$how.text" 2>"$how.err"
done
! grep -q 'computes its whole context' more.err && grep -q 'op reshape (in "layers.0") gives no row for each token: every token computes its whole context' whole.err
ok only_the_model_that_looks_at_sequences_computes_the_context
[ "$(wc -c <more.text)" -gt 60 ] && cmp -s more.text whole.text
ok generation_with_states_is_generation_by_the_whole_context
exit $failed
