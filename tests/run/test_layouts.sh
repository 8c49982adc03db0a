#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One curve on the 18 layouts of torchtitan's issue 3029, where step 1 alone differs by 0.4 %: a model with latent attention and 8
# experts, 8 samples a step. Prints a Markdown table (docs/parallel.md). TEST_LONG=1: other families too, and 100 steps, with the
# learned router and with experts in turn. Rounding grows by then, on one rank as well: the limit is what other matrix products and accumulation do
# to one rank.
. "$(dirname "$0")/deviations.sh"
job=$dir/layouts.json
cat >"$job" <<JOB
{ "spec": "deepseek_v3", "model": { "args": {} },
  "dataloader": { "path": ["text.txt"] }, "optimizer": { "lr": 0.002 }, "lr_scheduler": { "name": "constant", "warmup_steps": 0 },
  "training": { "local_batch_size": 8, "global_batch_size": 8, "seq_len": 32, "steps": 10, "seed": 42 },
  "metrics": { "log_freq": 1, "enable_tensorboard": false },
  "checkpoint": { "interval": 100000, "enable_first_step_checkpoint": true, "keep_latest_k": 0 },
  "comm": { "backend": "local" }, "backend": { "threads": 1 } }
JOB
steps=10
a=--model.args
sizes="$a.dim 32 $a.n_layers 8 $a.n_heads 4 $a.hidden_dim 64 $a.vocab_size 262 $a.num_experts 8 $a.num_experts_per_tok 3 $a.moe_intermediate_size 24 $a.sequence_balance_loss_coef 0.01"
latent="--spec deepseek_v3 $sizes $a.n_shared_experts 1 $a.kv_lora_rank 16 $a.qk_nope_head_dim 8 $a.qk_rope_head_dim 4 $a.v_head_dim 8 $a.rope_scaling null"
heads="$sizes $a.n_kv_heads 4 $a.head_dim 8"
model=$latent
# The name, how many samples a data rank has at a time, and the mesh. A pipeline cuts them into micro-batches.
cat >"$dir/list" <<LIST
fsdp2 1 $fsdp 2
pp2 8 $pp 2
cp2 1 $cp 2
tp2 1 $tp 2
fsdp2×tp2×pp2 4 $fsdp 2 $tp 2 $pp 2
fsdp2×tp2×cp2 1 $fsdp 2 $tp 2 $cp 2
tp2×pp2×cp2 8 $tp 2 $pp 2 $cp 2
fsdp2×pp2×cp2 4 $fsdp 2 $pp 2 $cp 2
ep2×fsdp2 1 $ep 2 $fsdp 2
ep2×fsdp2×tp2×pp2 4 $ep 2 $fsdp 2 $tp 2 $pp 2
ep2×fsdp2×tp2×cp2 1 $ep 2 $fsdp 2 $tp 2 $cp 2
ep2×fsdp2×pp2×cp2 4 $ep 2 $fsdp 2 $pp 2 $cp 2
ep8×fsdp8 1 $ep 8 $fsdp 8
pp4 8 $pp 4
pp8 8 $pp 8
tp4 1 $tp 4
cp4 1 $cp 4
LIST

at() { key_of "$1" loss | sed -n "s/^$2 //p" | cut -c1-9; }
row() { # NAME LOSS_LIMIT OPTION...: a row of the table; the run in $dir/$name is compared with $dir/one
    name=$1 allowed=$2
    shift 2
    # shellcheck disable=SC2086
    train "$dir/$name" $model --training.steps $steps "$@"
    loss=nan gradient=nan
    [ "$rc" -eq 0 ] && loss=$(farthest "$dir/$name" loss) && gradient=$(gradients "$dir/$name")
    echo "| $name | $(at "$dir/$name" 1) | $(at "$dir/$name" 5) | $(at "$dir/$name" $steps) | $loss | $gradient |"
    within "$loss" "$allowed" && within "$gradient" 1e-3
}
table() { # LOSS_LIMIT OPTION...
    limit=$1
    shift
    echo "| layout | loss at step 1 | step 5 | step $steps | loss: largest relative deviation | gradients of step 1 |"
    echo "|---|---|---|---|---|---|"
    row one 0 "$@"
    ok "table_has_one_rank"
    while read -r layout samples options; do
        # shellcheck disable=SC2086
        row "$layout" "$limit" "$@" --training.local_batch_size "$samples" $options
        ok "curve_of_$layout"
        rm -rf "${dir:?}/$layout"
    done <"$dir/list"
}
table 1e-5

# One rank with other rounding: the largest deviation is in $most.
rounding() { # OPTION...
    most=0
    row one 0 "$@"
    while read -r layout options; do
        # shellcheck disable=SC2086
        row "one_rank_$layout" 1 "$@" $options
        ok "rounding_of_one_rank_$layout"
        most=$(awk -v a="$most" -v b="$loss" 'BEGIN {print (a + 0 > b + 0 ? a : b)}')
        rm -rf "${dir:?}/one_rank_$layout"
    done <<LIST
accumulation --training.local_batch_size 1
own_products --backend.blas own
fma --backend.blas own --backend.f32_products fma
LIST
    rm -rf "$dir/one"
}
if is_long; then
    while read -r family options; do
        echo "$family"
        model=$options
        rm -rf "$dir/one"
        table 1e-5
    done <<LIST
Kimi-K2 $latent $a.q_lora_rank 12 $a.n_group 1 $a.topk_group 1 $a.routed_scaling_factor 2.827 $a.first_k_dense_replace 1
GLM-4.5 --spec glm4_moe $heads $a.n_group 4 $a.topk_group 2 $a.rope_scaling null
Llama-4 --spec llama4 $heads $a.attention_chunk_size 7 $a.floor_scale 5 $a.interleave_moe_layer_step 2 $a.rope_scaling null
Qwen3-Next --spec qwen3_next $heads $a.linear_num_key_heads 4 $a.linear_num_value_heads 8 $a.linear_key_head_dim 5 $a.linear_value_head_dim 3 $a.shared_expert_intermediate_size 24
LIST
    model=$latent steps=100
    for turn in false true; do
        rm -rf "$dir/one"
        rounding --debug.moe_force_load_balance $turn
        table "$(awk -v m="$most" 'BEGIN {print 5 * m}')" --debug.moe_force_load_balance $turn
    done
fi
exit $failed
