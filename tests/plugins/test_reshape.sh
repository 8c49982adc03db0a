#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A model whose attention is written from ops, with tokens split into sequences and heads from head_dim, keeps each data
# rank's sequences and each tensor rank's heads, and trains alike on every mesh.
. "$(dirname "$0")/../run/lib.sh"
cd "$dir" || exit 1
mkdir more
cc -std=c11 -Wall -Wextra -Werror -O1 -fPIC -shared "-I$SRC/include" "$SRC/tests/plugins/retnet.c" -o more/retnet.so "-L$BUILD" -lttrun -lm >out 2>&1
ok retention_from_ops_builds
"$TTRUN" plugins check more/retnet.so --plugin-dir "$PLUGINS" >out 2>err && grep -q '^ok    gradients' out && grep -q '^ok    two ranks .*FSDP 2' out
ok plugins_check_passes_it
sed -i 's/"flavor": "debugmodel",/"name": "retnet", "flavor": "debugmodel" },/; /"args"/d; s/"local_batch_size": 4/"global_batch_size": 8/; s/"steps": 10/"steps": 3/' job.json

train one --plugin-dir more --training.local_batch_size 8
[ "$rc" -eq 0 ] && losses one/metrics.jsonl >wanted && [ "$(wc -l <wanted)" -eq 3 ]
ok one_rank_trains

# mesh NAME RANKS LOCAL OPTION...: the losses of one rank, to rounding; the graph stays in NAME.graph
mesh() {
    name=$1 ranks=$2 batch=$3
    shift 3
    train "$name" --plugin-dir more --training.local_batch_size "$batch" --comm.backend local --nproc "$ranks" --debug.dump_graph "$name.graph" "$@"
    [ "$rc" -eq 0 ] && losses "$name/metrics.jsonl" | paste -d' ' - wanted |
        awk '{d = $2 - $4; n++; if (d < 0) d = -d; if ($1 != $3 || d > 1e-4) bad = 1} END {exit bad || n != 3}'
    ok "$name"
}
# local_products NAME PLACE: both products of retention, forward, are cut so
local_products() {
    [ "$(grep -c '= matmul .*layers.0' "$1.graph/01-place.txt")" -eq 2 ] &&
        [ "$(grep "= matmul .*layers.0" "$1.graph/01-place.txt" | grep -c "@ $2 ")" -eq 2 ]
    ok "$1_computes_its_own_part"
}
p=--parallelism.
mesh fsdp 2 4
local_products fsdp '{dp_shard},{},{},{}'
mesh hsdp 4 2 ${p}data_parallel_replicate_degree 2 ${p}data_parallel_shard_degree 2
local_products hsdp '{dp_replicate,dp_shard},{},{},{}'
mesh fsdp_tp 4 4 ${p}tensor_parallel_degree 2
local_products fsdp_tp '{dp_shard},{tp},{},{}'
mesh cp 2 8 ${p}context_parallel_degree 2
local_products cp '{cp},{},{},{}'
mesh cp_of_one_sequence 4 1 ${p}context_parallel_degree 2
local_products cp_of_one_sequence '{dp_shard},{},{},{}' # positions are gathered
mesh fsdp_pp 4 2 ${p}pipeline_parallel_degree 2

# Decoding computes a token from its row and the memory of attention alone, so a model that sees sequences has no such form,
# whatever it calls them.
for label in sequences tokens; do
    sed "s/\"sequences\"/\"$label\"/" "$SRC/tests/plugins/retnet.c" >retnet.c
    cc -std=c11 -O1 -fPIC -shared "-I$SRC/include" retnet.c -o more/retnet.so "-L$BUILD" -lttrun -lm &&
        ttrun generate --checkpoint one --plugin-dir more --prompt "line 3" --max-tokens 12 --temperature 0 >"$label.text" 2>err &&
        grep -q 'op reshape (in "layers.0") gives no row for each token: every token computes its whole context' err &&
        cmp -s sequences.text "$label.text"
    ok "generate_computes_the_context_of_$label"
done
exit $failed
