#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The compositions of Megatron-LM's issue 7452, which are wrong there without an error: here each has the losses, the norms and the
# gradients of one rank. Prints a Markdown table (docs/parallel.md). The numbers are the issue's; TEST_LONG=1: more meshes.
. "$(dirname "$0")/deviations.sh"
mkdir -p "$dir/more"
for plugin in run/compositions plugins/gla; do
    cc -std=c11 -Wall -Wextra -Werror -O1 -fPIC -shared "-I$SRC/include" "$SRC/tests/$plugin.c" -o "$dir/more/${plugin##*/}.so" "-L$BUILD" -lttrun -lm \
        >"$dir/out" 2>"$dir/err"
    ok "builds_${plugin##*/}"
done
job=$dir/compositions.json
cat >"$job" <<JOB
{ "spec": "llama3", "model": { "args": {} }, "dataloader": { "name": "uneven", "shuffle": false },
  "optimizer": { "lr": 0.002 }, "lr_scheduler": { "name": "constant", "warmup_steps": 0 },
  "training": { "local_batch_size": 8, "global_batch_size": 8, "seq_len": 21, "steps": 5, "seed": 7, "max_norm": 0.3 },
  "metrics": { "log_freq": 1, "enable_tensorboard": false },
  "checkpoint": { "interval": 5, "enable_first_step_checkpoint": true, "keep_latest_k": 0 },
  "comm": { "backend": "local" }, "backend": { "threads": 1 } }
JOB
a=--model.args
sizes="$a.dim 24 $a.n_layers 4 $a.n_heads 4 $a.vocab_size 263"
llama="--spec llama3 $sizes $a.n_kv_heads 2 $a.hidden_dim 31"
losses="$a.sequence_balance_loss_coef 0.1 $a.router_z_loss_coef 0.01"
qwen="--spec qwen3_moe $sizes $a.n_kv_heads 2 $a.head_dim 6 $a.hidden_dim 31 $a.num_experts 8 $a.num_experts_per_tok 2 $a.moe_intermediate_size 13 $losses"
deepseek="--spec deepseek_v3 $sizes $a.hidden_dim 31 $a.num_experts 6 $a.num_experts_per_tok 2 $a.moe_intermediate_size 13 $a.kv_lora_rank 10
    $a.qk_nope_head_dim 6 $a.qk_rope_head_dim 4 $a.v_head_dim 6 $a.rope_scaling null"
experts="$a.n_kv_heads 2 $a.num_experts 6 $a.moe_intermediate_size 13 $a.hidden_dim 31"
glm="--spec glm4_moe $sizes $experts $a.num_experts_per_tok 2 $a.head_dim 8 $a.n_group 3 $a.topk_group 2 $a.rope_scaling null"
kimi="$deepseek $a.q_lora_rank 9 $a.n_group 1 $a.topk_group 1 $a.routed_scaling_factor 2.827 $a.first_k_dense_replace 1"
llama4="--spec llama4 $sizes $experts $a.num_experts_per_tok 2 $a.head_dim 6 $a.attention_chunk_size 5 $a.floor_scale 3 $a.interleave_moe_layer_step 2"
next="--spec qwen3_next $sizes $experts $a.num_experts_per_tok 2 $a.head_dim 8 $a.full_attention_interval 2 $a.linear_num_key_heads 4
    $a.linear_num_value_heads 8 $a.linear_key_head_dim 5 $a.linear_value_head_dim 3 $a.shared_expert_intermediate_size 7"
gpt_oss="--spec gpt_oss $sizes $a.n_kv_heads 2 $a.head_dim 6 $a.hidden_dim 13 $a.num_experts 6 $a.num_experts_per_tok 2"
# The layers of MTP are those of the plugin that has the option.
mtp=$("$TTRUN" config --explain model.args --spec deepseek_v3 --plugin-dir "$PLUGINS" 2>/dev/null | sed -n 's/^model\.args\.\(num_nextn_predict_layers\) .*/\1/p')

one() { # OPTION...: what the rows below are compared with
    common=$*
    rm -rf "$dir/one"
    train "$dir/one" --plugin-dir "$dir/more" "$@"
    [ "$rc" -eq 0 ] && [ "$(key_of "$dir/one" loss | wc -l)" -eq 5 ]
    ok "one_rank_of_finding_$number"
}
row() { # MESH OPTION...
    mesh=$1
    shift
    # shellcheck disable=SC2086
    train "$dir/mesh" --plugin-dir "$dir/more" $common "$@"
    loss=nan norm=nan gradient=nan bias=-
    if [ "$rc" -eq 0 ]; then
        loss=$(farthest "$dir/mesh" loss) norm=$(farthest "$dir/mesh" grad_norm) gradient=$(gradients "$dir/mesh")
        case $common in *deepseek* | *glm*)
            bias=$("$gap" "$dir/one/checkpoint/step-5" "$dir/mesh/checkpoint/step-5" e_score_correction_bias) bias=${bias%% *} ;;
        esac
    fi
    echo "| $number | $what | $mesh | $loss | $norm | $gradient | $bias |"
    within "$loss" 1e-5 && within "$norm" 1e-5 && within "$gradient" 1e-3 && { [ "$bias" = - ] || within "$bias" 0; }
    ok "finding_${number}_$mesh"
    rm -rf "$dir/mesh"
}
finding() { # NUMBER WHAT OPTION...
    number=$1 what=$2
    shift 2
    one "$@"
}
echo "| finding | composition | mesh | loss | grad_norm | gradients of step 1 | bias of the choice |"
echo "|---|---|---|---|---|---|---|"
half="--training.local_batch_size 4" quarter="--training.local_batch_size 2"
# shellcheck disable=SC2086
{
    finding 1 "label smoothing, vocabulary cut" $llama --loss.name smoothed
    is_long && row tp2 $tp 2
    row tp4 $tp 4
    row tp2×cp2 $tp 2 $cp 2
    is_long && row fsdp2×tp2 $half $fsdp 2 $tp 2
    is_long && row tp2×pp2 $tp 2 $pp 2
    finding 2 "cross-entropy, vocabulary cut" $llama
    is_long && row tp2 $tp 2
    row tp2,plain $tp 2 $p.enable_sequence_parallel false
    row tp2×pp2 $tp 2 $pp 2
    is_long && row tp4 $tp 4
    is_long && row tp4×fsdp2 $half $tp 4 $fsdp 2
    if [ -n "$mtp" ]; then
        finding 3 "MTP, labels of ranks unequal" $deepseek "$a.$mtp" 1
        is_long && row fsdp2 $half $fsdp 2
        is_long && row cp2 $cp 2
        row fsdp2×cp2,accumulated --training.local_batch_size 1 $fsdp 2 $cp 2
        finding 4 "MTP, full recomputation" $deepseek "$a.$mtp" 1 --activation_checkpoint.mode full
        is_long && row tp2 $tp 2
        row tp2×fsdp2 $half $tp 2 $fsdp 2
        row tp2×pp2 $tp 2 $pp 2
    fi
    finding 3 "MTP of GLM-4.5, labels of ranks unequal" $glm $a.num_nextn_predict_layers 1
    row fsdp2×cp2,accumulated --training.local_batch_size 1 $fsdp 2 $cp 2
    row tp2×pp2,recomputed $tp 2 $pp 2 --activation_checkpoint.mode full
    is_long && row tp2×fsdp2,ep2 $half $tp 2 $fsdp 2 $ep 2
    finding 5 "experts, 21 tokens of a sequence over tp: padding" $qwen
    is_long && row tp2 $tp 2
    row tp2×pp2 $tp 2 $pp 2
    row tp4,ep2 $tp 4 $ep 2
    is_long && row tp2×cp2,ep4 $tp 2 $cp 2 $ep 4
    finding 5 "Llama 4: chunks, scaled inputs of experts" $llama4
    row tp2×cp2 $tp 2 $cp 2
    row fsdp2×pp2,ep2 $half $fsdp 2 $pp 2 $ep 2
    is_long && row tp2,plain $tp 2 $p.enable_sequence_parallel false
    is_long && row tp4,ep2 $tp 4 $ep 2
    finding 7 "embeddings scattered over tp" --spec gpt2 $sizes
    row tp2×fsdp2 $half $tp 2 $fsdp 2
    row tp2×cp2 $tp 2 $cp 2
    is_long && row tp4×hsdp2 $half $tp 4 $hsdp 2
    finding 8 "sinks of attention in the clipped norm" $gpt_oss
    is_long && row tp2 $tp 2
    row tp4 $tp 4
    row tp2×fsdp2,ep2 $half $tp 2 $fsdp 2 $ep 2
    finding 9 "labels of ranks unequal" $llama
    is_long && row cp2 $cp 2
    is_long && row fsdp4 $quarter $fsdp 4
    row fsdp2×cp2,accumulated --training.local_batch_size 1 $fsdp 2 $cp 2
    row pp2×cp2 $pp 2 $cp 2
    is_long && row hsdp2×fsdp2 $quarter $hsdp 2 $fsdp 2
    finding 10 "router counts, labels masked" $deepseek
    is_long && row tp2 $tp 2
    row tp2,plain $tp 2 $p.enable_sequence_parallel false
    row cp2×fsdp2,ep2 $half $cp 2 $fsdp 2 $ep 2
    row tp2×pp2,recomputed $tp 2 $pp 2 --activation_checkpoint.mode full
    row fsdp2,ep2,accumulated --training.local_batch_size 1 $fsdp 2 $ep 2
    finding 10 "router counts of Kimi-K2, labels masked" $kimi
    row tp2×fsdp2,ep2 $half $tp 2 $fsdp 2 $ep 2
    is_long && row cp2×pp2,accumulated --training.local_batch_size 4 $cp 2 $pp 2
    is_long && row fsdp2,ep2,accumulated --training.local_batch_size 1 $fsdp 2 $ep 2
    finding 11 "norms that heads share" --spec qwen3 $sizes $a.n_kv_heads 2 $a.head_dim 6 $a.hidden_dim 31
    is_long && row tp2 $tp 2
    row tp4×fsdp2 $half $tp 4 $fsdp 2
    finding 11 "gated delta nets" $next
    is_long && row tp2 $tp 2
    row tp4×fsdp2 $half $tp 4 $fsdp 2
    row tp2×cp2,ep2 $tp 2 $cp 2 $ep 2
    is_long && row tp2,plain $tp 2 $p.enable_sequence_parallel false
    is_long && row fsdp2×pp2,accumulated --training.local_batch_size 2 $fsdp 2 $pp 2
    finding 11 "gated linear attention" --model.name gla
    is_long && row tp2 $tp 2
    row tp2×fsdp2 $half $tp 2 $fsdp 2
}
exit $failed
