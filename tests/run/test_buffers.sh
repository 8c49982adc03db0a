#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Buffers, a model's state that is not a parameter: equal on every mesh, saved in checkpoints, restored on the same mesh and on
# another one.
. "$(dirname "$0")/lib.sh"
mkdir "$dir/plugins"
tensor=$BUILD/tests/run/tensor_tool
plugin() { # SOURCE NAME
    cc -std=c11 -w -O1 -fPIC -shared -fvisibility=hidden "-I$SRC/include" "$1" "-L$BUILD" -lttrun -lm -o "$dir/plugins/$2.so" 2>"$dir/err"
}
plugin "$SRC/tests/run/buffers.c" buffered
ok plugin_with_buffers_builds
sed 's|"model": {.*|"model": { "name": "buffered" }, "comm": { "backend": "local" },|; /"args": {/d; s|"steps": 10|"steps": 6|; s|"interval": 5|"interval": 3|' \
    "$dir/job.json" >"$dir/buffers.json"
job=$dir/buffers.json
go() { # NAME OPTION...: losses to $dir/NAME.loss
    name=$1
    shift
    train "$dir/$name" --plugin-dir "$dir/plugins" "$@"
    [ "$rc" -eq 0 ] && losses "$dir/$name/metrics.jsonl" >"$dir/$name.loss" && [ "$(wc -l <"$dir/$name.loss")" -eq 6 ]
}
same() { # A B: to 1e-5 of the loss
    awk 'NR == FNR {a[$1] = $2; next} {d = $2 - a[$1]; if (d < 0) d = -d; if (!($1 in a) || d > 1e-5 * $2) bad = 1; n++} END {exit bad || n != 6}' \
        "$dir/$1.loss" "$dir/$2.loss"
}
p=--parallelism
go one
ok buffers_on_one_rank
while read -r name options; do
    go "$name" $options && same one "$name"
    ok "$name"
done <<MESHES
fsdp2 --training.local_batch_size 2 $p.data_parallel_shard_degree 2
tp2 $p.tensor_parallel_degree 2
cp2 $p.context_parallel_degree 2
fsdp2_tp2 --training.local_batch_size 2 $p.data_parallel_shard_degree 2 $p.tensor_parallel_degree 2
accumulated --training.local_batch_size 1 --training.global_batch_size 4
pp2 $p.pipeline_parallel_degree 2
pp2_zbv $p.pipeline_parallel_degree 2 $p.pipeline_parallel_schedule ZBVZeroBubble
pp2_tp2 $p.pipeline_parallel_degree 2 $p.tensor_parallel_degree 2
recomputed --activation_checkpoint.mode full
overlapped --training.local_batch_size 2 $p.data_parallel_shard_degree 2 --comm.overlap on
poisoned --debug.poison true
MESHES

# a sum is exact: 128 tokens of 2^24 + 1 each, of which 2^20 are taken away again and again
for run in one accumulated fsdp2 pp2_zbv; do
    f=$(grep -l '"units"' "$dir/$run/checkpoint"/step-6/*.safetensors | head -n 1) n=$(od -An -t u8 -N 8 "$f" | tr -d ' ')
    at=$(head -c $((8 + n)) "$f" | tail -c "$n" | sed 's|.*"units":{[^}]*"data_offsets":\[\([0-9]*\),.*|\1|')
    [ "$(od -An -t f4 -j $((8 + n + at)) -N 4 "$f" | tr -d ' ')" = 128 ]
    ok "sum_of_a_buffer_is_exact_$run"
done

# in the checkpoint, as they are at each step
ttrun ckpt verify "$dir/one/checkpoint" >"$dir/out" 2>"$dir/err" && for i in 3 6; do "$tensor" "$dir/one/checkpoint/step-$i"/*.safetensors | grep '^layers.2.mean \|^shared \|^steps ' | sort >"$dir/at$i" || break; done &&
    [ "$(wc -l <"$dir/at6")" -eq 3 ] && [ "$(sort "$dir/at3" "$dir/at6" | uniq -d | wc -l)" -eq 0 ]
ok buffers_are_in_the_checkpoint
# a resumed run goes on as if it had not stopped, bit for bit; on another mesh to rounding
rm -rf "$dir/half" && train "$dir/half" --plugin-dir "$dir/plugins" --training.steps 3 && go half &&
    grep -q "resumed from" "$dir/err" &&
    losses "$dir/half/metrics.jsonl" | cmp -s - "$dir/one.loss" && [ "$(hash_of "$dir/half/checkpoint/step-6")" = "$(hash_of "$dir/one/checkpoint/step-6")" ]
ok resume_of_buffers_is_bitwise
rm -rf "$dir/moved" && train "$dir/moved" --plugin-dir "$dir/plugins" --training.steps 3 && go moved --training.local_batch_size 2 $p.data_parallel_shard_degree 2 && same one moved
ok resume_of_buffers_on_another_mesh
# validation and eval read the run's buffers: one number
go valid --validation.enable true --validation.freq 6 --validation.dataloader.path "$dir/text.txt"
[ "$rc" -eq 0 ] && sed -n '/"step":[1-6],.*"grad_norm"/p' "$dir/valid/metrics.jsonl" | losses /dev/stdin | cmp -s - "$dir/one.loss"
ok validation_does_not_change_buffers
ttrun eval --checkpoint "$dir/one" --plugin-dir "$dir/plugins" --dataloader.path "$dir/text.txt" --json >"$dir/out" 2>"$dir/err" &&
    near "$(value "$dir/out" loss)" "$(grep validat "$dir/valid/metrics.jsonl" | sed 's/.*"loss":\([0-9.]*\).*/\1/')" 0.02
ok eval_reads_buffers
ttrun generate --checkpoint "$dir/one" --plugin-dir "$dir/plugins" --prompt line --max-tokens 4 >"$dir/out" 2>"$dir/err"
ok generate_reads_buffers

# what is refused
sed 's|"shared", &D, 1|"embed_tokens.weight", \&D, 1|' "$SRC/tests/run/buffers.c" >"$dir/named.c" && plugin "$dir/named.c" buffered && go named
[ "$rc" -eq 2 ] && grep -q 'buffer embed_tokens.weight: a parameter has that name' "$dir/err"
ok buffer_with_the_name_of_a_parameter_is_refused
sed 's|tt_mean(b, x, 0, 0), running|x, running|' "$SRC/tests/run/buffers.c" >"$dir/tokens.c" && plugin "$dir/tokens.c" buffered && go tokens
[ "$rc" -eq 2 ] && grep -q 'the statistic has a token dim; reduce it first' "$dir/err"
ok statistic_per_token_is_refused
sed 's|return tt_add(b, buffer, stat);|return tt_input(b, "ids");|' "$SRC/tests/run/buffers.c" >"$dir/dims.c" && plugin "$dir/dims.c" buffered && go dims
[ "$rc" -eq 2 ] && grep -q 'the new value of buffer steps has other dims' "$dir/err"
ok value_with_other_dims_is_refused
exit $failed
