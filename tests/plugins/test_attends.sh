#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Models whose attention has a bias by distance (ALiBi's, T5's), a prefix, or keys of other tokens train alike on every mesh.
. "$(dirname "$0")/../run/lib.sh"
cd "$dir" || exit 1
mkdir more
cc -std=c11 -Wall -Wextra -Werror -O1 -fPIC -shared "-I$SRC/include" "$SRC/tests/plugins/attends.c" -o more/attends.so "-L$BUILD" -lttrun >out 2>&1
ok models_build
"$TTRUN" plugins check more/attends.so --plugin-dir "$PLUGINS" >out 2>err && grep -q '^ok    gradients' out && grep -q '^ok    two ranks .*FSDP 2' out
ok plugins_check_passes_it
sed -i 's/"flavor": "debugmodel",/"name": "attends", "flavor": "debugmodel" },/; /"args"/d; s/"local_batch_size": 4/"global_batch_size": 8/; s/"steps": 10/"steps": 4/' job.json

# mesh NAME RANKS LOCAL OPTION...: the losses of one rank, to rounding; the graph stays in NAME.graph
mesh() {
    name=$which.$1 ranks=$2 batch=$3
    shift 3
    train "$name" --plugin-dir more --model.args "$args" --training.local_batch_size "$batch" --comm.backend local --nproc "$ranks" --debug.dump_graph "$name.graph" "$@"
    [ "$rc" -eq 0 ] && losses "$name/metrics.jsonl" | paste -d' ' - "$which.wanted" |
        awk '{d = $2 - $4; n++; if (d < 0) d = -d; if ($1 != $3 || d > 1e-4) bad = 1} END {exit bad || n != 4}'
    ok "$name"
}
p=--parallelism.
ring="${p}context_parallel_rotate_method ring"
for which in alibi t5 prefix pooled; do
    args='{ "form": "'$which'" }'
    train $which --plugin-dir more --model.args "$args" --training.local_batch_size 8
    [ "$rc" -eq 0 ] && losses $which/metrics.jsonl >$which.wanted && [ "$(wc -l <$which.wanted)" -eq 4 ]
    ok ${which}_trains_on_one_rank
    mesh reference 1 8 --backend.name reference
    mesh fsdp 2 4
    mesh tp 2 8 ${p}tensor_parallel_degree 2
    grep -q '= attention .*@ {},{tp}' $which.tp.graph/01-place.txt
    ok ${which}_is_cut_by_heads
    # a batch of one sample, so that context parallelism cuts inside sequences
    mesh cp 2 1 ${p}context_parallel_degree 2
    # shellcheck disable=SC2086 # two words
    mesh cp_ring 2 1 ${p}context_parallel_degree 2 $ring
    # shellcheck disable=SC2086
    mesh cp_ring_of_4 4 1 ${p}context_parallel_degree 4 $ring ${p}context_parallel_load_balancer none
    mesh ulysses 2 1 ${p}context_parallel_degree 2 ${p}context_parallel_rotate_method ulysses
    # shellcheck disable=SC2086
    mesh tp_cp 4 1 ${p}context_parallel_degree 2 ${p}tensor_parallel_degree 2 $ring
    if [ $which = pooled ]; then # keys of another number of tokens are gathered
        ! grep -q '= attention_merge ' pooled.cp_ring.graph/01-place.txt
    else
        [ "$(grep -c '= attention_merge .*layers.0' $which.cp_ring_of_4.graph/01-place.txt)" -eq 3 ]
    fi
    ok ${which}_goes_round_a_ring_or_is_gathered
    mesh pp 2 8 ${p}pipeline_parallel_degree 2
    [ $which = pooled ] && continue # needs an even number of tokens
    ttrun generate --checkpoint $which --plugin-dir more --prompt "line 3" --max-tokens 20 --temperature 0 >text 2>err
    [ $? -eq 0 ] && case $which in
        alibi | t5) ! grep -q 'computes its whole context' err ;;
        prefix) grep -q 'keys have positions of their own.*computes its whole context' err ;;
    esac
    ok ${which}_generates
done
exit $failed
