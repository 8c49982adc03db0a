#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A model may read an input with an op that needs the whole of it, on every mesh: each data rank provides its own sequences.
. "$(dirname "$0")/lib.sh"
cd "$dir" || exit 1
mkdir more
"$TTRUN" plugins new model whole >/dev/null
# the mean position of each two tokens is added to both: pairs are made by a reshape, which needs all tokens
sed -i 's|^    for (int64_t i = 0; i < c->layers|    tt_value *pos = tt_input(b, "pos");\
    const tt_dim T = tt_value_type(pos)->dims[0], one[2] = {T, TT_DIM(1, "")};\
    const tt_dim two[2] = {TT_DIM(T.size / 2, "pairs"), TT_DIM(2, "pair")};\
    tt_value *pairs = tt_cast(b, tt_reshape(b, pos, two, 2), TT_F32);\
    pairs = tt_add(b, pairs, tt_scale(b, tt_sum(b, pairs, 1, 1), 0.5));\
    x = tt_add(b, x, tt_scale(b, tt_reshape(b, pairs, one, 2), 0.01));\
&|' whole/whole.c
cc -std=c11 -Wall -Wextra -Werror -O1 -fPIC -shared "-I$SRC/include" whole/whole.c "-L$BUILD" -lttrun -o more/whole.so >out 2>&1
ok plugin_that_reads_whole_positions_builds
"$TTRUN" plugins check more/whole.so --plugin-dir "$PLUGINS" >out 2>err && grep -q '^ok    two ranks .*FSDP 2' out
ok plugins_check_accepts_it

cat >whole.json <<'JOB'
{ "extends": "job.json", "model": { "name": "whole", "flavor": "debugmodel", "args": {} }, "training": { "global_batch_size": 4, "steps": 3 } }
JOB
sed -i '/"args"/d; s/"debugmodel",/"debugmodel" },/' job.json
job=$dir/whole.json
train one --plugin-dir more --training.local_batch_size 4
[ "$rc" -eq 0 ] && losses one/metrics.jsonl >wanted && [ "$(wc -l <wanted)" -eq 3 ]
ok one_rank_trains

# mesh NAME RANKS OPTION...: the losses of one rank, to rounding
mesh() {
    name=$1 ranks=$2
    shift 2
    train "$name" --plugin-dir more --training.local_batch_size 1 --comm.backend local --nproc "$ranks" "$@"
    [ "$rc" -eq 0 ] && losses "$name/metrics.jsonl" | paste -d' ' - wanted |
        awk '{d = $2 - $4; n++; if (d < 0) d = -d; if ($1 != $3 || d > 1e-3) bad = 1} END {exit bad || n != 3}'
    ok "$name"
}
p=--parallelism.
mesh fsdp 2
mesh ddp 2 ${p}data_parallel_replicate_degree 2
mesh hsdp 4 ${p}data_parallel_replicate_degree 2 ${p}data_parallel_shard_degree 2
mesh fsdp_tp 4 ${p}tensor_parallel_degree 2
mesh fsdp_cp 4 ${p}context_parallel_degree 2
mesh fsdp_pp 4 ${p}pipeline_parallel_degree 2
exit $failed
