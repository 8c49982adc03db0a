#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# QK-clip: one rank's numbers on every mesh, the same bits after a resume, copies of parameters, layers that are left alone, and what is refused.
# The values are those of PyTorch in tests/oracle/test_qk_clip.c.
. "$(dirname "$0")/lib.sh"
p=--parallelism
base="--backend.blas own --comm.backend local --optimizer.eps 1e-4 --metrics.attention_max_logits true"
none="--checkpoint.enable false --resume never"
# numbers FOLDER: step, loss, heads that were clipped, largest logits
numbers() { sed -n 's|^{"step":\([0-9]*\),.*"loss":\([^,]*\),.*"qk_clip_heads":\([^,]*\),.*"attention_max_logits":{\([^}]*\)}.*|\1 \2 \3 \4|p' "$1/metrics.jsonl" | sed 's/"[^"]*"://g; s/,/ /g'; }
# alike FILE FILE: as many numbers, within 1e-4 of each other, the heads equal
alike() {
    [ -s "$1" ] && paste -d ' ' "$1" "$2" | awk 'NF != 10 { exit 1 } { for (i = 1; i <= 5; i++) { d = $i - $(i + 5); m = $i < 0 ? -$i : $i; if (d < 0) d = -d; if (d > (i == 3 ? 0 : 1e-4 * m)) exit 1 } }'
}
# largest FOLDER STEP: the largest logit of the first layer
largest() { sed -n "s|^{\"step\":$2,.*\"attention_max_logits\":{\"model.layers.0\":\([^,]*\),.*|\1|p" "$1/metrics.jsonl"; }
clip="--optimizer.qk_clip 0.06"
# shellcheck disable=SC2086
train "$dir/one" $base $none $clip
numbers "$dir/one" >"$dir/want"
[ "$rc" -eq 0 ] && [ "$(wc -l <"$dir/want")" -eq 10 ] && awk '$3 > 0 && $3 < 8 { some = 1 } $3 == 8 { all = 1 } END { exit !(some && all) }' "$dir/want"
ok heads_are_clipped
# shellcheck disable=SC2086
train "$dir/free" $base $none
[ "$rc" -eq 0 ] && awk -v a="$(largest "$dir/one" 10)" -v b="$(largest "$dir/free" 10)" 'BEGIN { exit !(a > 0 && 2 * a < b) }' &&
    ! grep -q qk_clip_heads "$dir/free/metrics.jsonl"
ok logits_stay_small
while read -r name options; do
    # shellcheck disable=SC2086
    train "$dir/$name" $base $none $clip $options
    numbers "$dir/$name" >"$dir/got"
    [ "$rc" -eq 0 ] && alike "$dir/want" "$dir/got"
    ok "one_ranks_numbers_$name"
done <<LIST
accumulation --training.local_batch_size 1 --training.global_batch_size 4
hsdp $p.data_parallel_replicate_degree 2 $p.data_parallel_shard_degree 2 --training.local_batch_size 1
tp_over_kv_heads $p.tensor_parallel_degree 4
ring $p.context_parallel_degree 2 $p.context_parallel_rotate_method alltoall
ulysses $p.context_parallel_degree 2 $p.context_parallel_rotate_method ulysses
gathered $p.context_parallel_degree 2 $p.context_parallel_rotate_method allgather
pp_and_tp $p.pipeline_parallel_degree 2 $p.tensor_parallel_degree 2
zbv $p.pipeline_parallel_degree 2 $p.pipeline_parallel_schedule ZBVZeroBubble $p.pipeline_parallel_microbatches 2
recomputed --activation_checkpoint.mode full
poisoned --debug.poison true
offloaded --training.enable_cpu_offload true
LIST
# shellcheck disable=SC2086
train "$dir/processes" $base $none $clip --comm.backend auto --nproc 2 --training.local_batch_size 2
numbers "$dir/processes" >"$dir/got"
[ "$rc" -eq 0 ] && alike "$dir/want" "$dir/got"
ok one_ranks_numbers_processes

# ---- a resume, on FSDP and TP ----
mesh="$p.data_parallel_shard_degree 2 $p.tensor_parallel_degree 2 --training.local_batch_size 2 --checkpoint.interval 5"
# shellcheck disable=SC2086
train "$dir/whole" $base $clip $mesh && numbers "$dir/whole" >"$dir/a"
# shellcheck disable=SC2086
train "$dir/parts" $base $clip $mesh --training.steps 5 && train "$dir/parts" $base $clip $mesh && numbers "$dir/parts" >"$dir/b"
[ "$rc" -eq 0 ] && cmp -s "$dir/a" "$dir/b" && [ "$(wc -l <"$dir/b")" -eq 10 ] &&
    ttrun ckpt diff "$dir/whole/checkpoint/step-10" "$dir/parts/checkpoint/step-10" >"$dir/out" 2>"$dir/err"
ok a_resume_has_the_same_bits

# ---- optimizers, dtypes ----
for options in "--optimizer.name muon" "--optimizer.name schedule_free" "--optimizer.name lion --optimizer.lr 0.002" "--training.dtype bfloat16" "--optimizer.state_dtype bfloat16" '--converters [{"name":"float8"}]' "--training.ema_decay 0.9"; do
    eps=--optimizer.eps\ 1e-4
    case $options in *lion*) eps= ;; esac
    # shellcheck disable=SC2086
    train "$dir/other" --metrics.attention_max_logits true $eps $none --optimizer.qk_clip 0.04 $options
    [ "$rc" -eq 0 ] && awk -v n="$(value "$dir/other/metrics.jsonl" qk_clip_heads 10)" 'BEGIN { exit !(n > 0) }'
    ok "clips_with_$(echo "$options" | tr -dc 'a-z0-9_')"
done
# A rate of 0 and the same batch in each step: the first layer's largest logit is brought to the value, and stays there.
head -c 127 "$dir/text.txt" >"$dir/short.txt"
# So it is with an optimizer that keeps copies of the parameter and computes it from them.
for optimizer in adamw schedule_free; do
    # shellcheck disable=SC2086
    train "$dir/still_$optimizer" $base $none --optimizer.name $optimizer --optimizer.qk_clip 0.03 --optimizer.lr 0 --dataloader.shuffle false --dataloader.path "[\"$dir/short.txt\"]" --model.args.n_kv_heads 4
    [ "$rc" -eq 0 ] && awk -v a="$(largest "$dir/still_$optimizer" 1)" 'BEGIN { exit !(a > 0.03) }' && near "$(largest "$dir/still_$optimizer" 2)" 0.03 1e-7 && near "$(largest "$dir/still_$optimizer" 3)" 0.03 1e-7 && near "$(largest "$dir/still_$optimizer" 10)" 0.03 1e-7
    ok "a_logit_is_brought_to_the_value_with_$optimizer"
done

# ---- a plugin's model, whose queries, keys and values are rows of one weight and bias ----
mkdir "$dir/own" && cc -std=c11 -Wall -Wextra -Werror -O1 -fPIC -shared "-I$SRC/include" "$SRC/tests/plugins/fused_qkv.c" -o "$dir/own/fused_qkv.so" "-L$BUILD" -lttrun >"$dir/out" 2>&1
ok a_model_with_one_weight_compiles
sed 's|"spec": "llama3",|"spec": "llama3", "plugin_dirs": ["own"],|; s|"flavor": "debugmodel",|"name": "fused_qkv",|; s|"args": {[^}]*}|"args": {}|' "$dir/job.json" >"$dir/own.json"
job=$dir/own.json
for by_head in false true; do
    # shellcheck disable=SC2086
    train "$dir/fused_$by_head" $base $none --model.args.by_head $by_head --optimizer.qk_clip 0.01 --optimizer.lr 0 --dataloader.shuffle false --dataloader.path "[\"$dir/short.txt\"]"
    first=$(sed -n 's|^{"step":1,.*"attention_max_logits":{"layers.0":\([^,]*\),.*|\1|p' "$dir/fused_$by_head/metrics.jsonl")
    second=$(sed -n 's|^{"step":2,.*"attention_max_logits":{"layers.0":\([^,]*\),.*|\1|p' "$dir/fused_$by_head/metrics.jsonl")
    [ "$rc" -eq 0 ] && awk -v a="$first" 'BEGIN { exit !(a > 0.012) }' && near "$second" 0.01 1e-7
    ok "one_weight_by_head_$by_head"
    # shellcheck disable=SC2086
    train "$dir/one_$by_head" $base $none --model.args.by_head $by_head --optimizer.qk_clip 0.03 && numbers "$dir/one_$by_head" >"$dir/a_numbers"
    # shellcheck disable=SC2086
    train "$dir/mesh_$by_head" $base $none --model.args.by_head $by_head --optimizer.qk_clip 0.03 $p.data_parallel_shard_degree 2 $p.tensor_parallel_degree 2 --training.local_batch_size 2 && numbers "$dir/mesh_$by_head" >"$dir/b_numbers"
    [ "$rc" -eq 0 ] && alike "$dir/a_numbers" "$dir/b_numbers"
    ok "one_weight_on_a_mesh_by_head_$by_head"
done
job=$dir/job.json

# ---- layers that are left alone, and what is refused ----
# shellcheck disable=SC2086
sed 's/"n_layers": 2/"n_layers": 4, "no_rope_layer_interval": 2/; s/"spec": "llama3"/"spec": "llama4"/' "$job" >"$dir/llama4.json"
ttrun "$dir/llama4.json" --dump_folder "$dir/llama4" $none --optimizer.qk_clip 0.001 --training.steps 2 >"$dir/out" 2>"$dir/err"
rc=$?
[ "$rc" -eq 0 ] && [ "$(grep -c 'qk_clip: 2 of 4 attention layers normalize their queries' "$dir/err")" -eq 1 ] && [ "$(value "$dir/llama4/metrics.jsonl" qk_clip_heads)" -le 8 ]
ok normalized_layers_are_left_alone
refused() { # NAME PATTERN OPTION...
    name=$1 pattern=$2
    shift 2
    # shellcheck disable=SC2086
    train "$dir/bad" $none "$@"
    [ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q "$pattern" "$dir/err"
    ok "refused_$name"
}
sed 's/"spec": "llama3"/"spec": "qwen3"/' "$job" >"$dir/qwen3.json"
job=$dir/qwen3.json
refused qk_norm 'qk_clip: no attention layer can be clipped, because of their queries: they are normalized by op rms_norm' --optimizer.qk_clip 100
job=$dir/job.json
refused frozen 'qk_clip: .*q_proj.weight is frozen' --optimizer.qk_clip 100 --training.trainable '["mlp"]'
refused lora 'qk_clip: .* is frozen' --optimizer.qk_clip 100 --converters '[{"name":"lora"}]'
refused early 'early_step_in_backward: optimizer.qk_clip' --optimizer.qk_clip 100 --optimizer.early_step_in_backward true --training.max_norm 0
refused zero 'qk_clip: expected 1e-30 or more, got 0' --optimizer.qk_clip 0
refused negative 'qk_clip: expected 1e-30 or more, got -1' --optimizer.qk_clip -1
refused word 'qk_clip: expected a number' --optimizer.qk_clip often
exit $failed
