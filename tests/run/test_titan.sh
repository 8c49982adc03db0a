#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ttrun ckpt export --to torchtitan and import --from torchtitan of mixtures of experts: torchtitan's names and shapes, weights, optimizer and step
# come back to the bit, and the run goes on. tests/peers/titan_peer.py compares values with PyTorch, transformers and torchtitan itself.
. "$(dirname "$0")/lib.sh"
tool="$BUILD/tests/run/tensor_tool"
ckpt() { ttrun ckpt "$@" >"$dir/out" 2>"$dir/err"; rc=$?; }
refused() { # NAME WORDS: of the command before
    [ $rc -eq 2 ] && one_line "$dir/err" && grep -qF -- "$2" "$dir/err"
    ok "$1"
}
# The names in a folder are text in its .metadata: has FOLDER NAME...; lacks FOLDER WORD
has() {
    folder=$1
    shift
    for name in "$@"; do
        grep -aqF "$name" "$folder/.metadata" || { echo "no $name" >"$dir/err" && return 1; }
    done
}
# same THEIRS OURS [swap]: a tensor of the export, in $dir/theirs, and one of the step, in $dir/ours, whose last two dims may be swapped; the
# model's number of the block, and of one of multi-token prediction, are in both
same() {
    a=$(awk -v n="$1" '$1 == n {print $2, $3}' "$dir/theirs")
    b=$(awk -v n="model.$2" '$1 == n {print $2, $3}' "$dir/ours${3-}")
    [ -n "$a" ] && [ "$a" = "$b" ] || { echo "$1 ($a) is not $2 ($b)" >"$dir/err" && return 1; }
}
lists() { "$tool" "$out" >"$dir/theirs" && "$tool" "$step" >"$dir/ours" && "$tool" "$step" swap >"$dir/oursswap"; }
lacks() { ! grep -aqF "$2" "$1/.metadata"; }

base='"dim": 20, "n_layers": 3, "n_heads": 6, "vocab_size": 262, "num_experts": 5, "num_experts_per_tok": 2'
mla='"hidden_dim": 27, "moe_intermediate_size": 11, "kv_lora_rank": 7, "qk_nope_head_dim": 5, "qk_rope_head_dim": 6, "v_head_dim": 3, "n_shared_experts": 3'
# model NAME SPEC ARGS [LOSS]: a run of 5 steps, the export after 3, the import of that, and the run from there
model() {
    sed "s/\"spec\": \"llama3\"/\"spec\": \"$2\"/; s/\"args\": {.*} },/\"args\": { $3 } },/; 1s/{/{ ${4-}/" "$dir/job.json" >"$dir/$1.json"
    job=$dir/$1.json
    train "$dir/$1" --training.steps 5 --checkpoint.interval 3 --lr_scheduler.warmup_steps 3
    step=$dir/$1/checkpoint/step-3 out=$dir/$1.titan
    [ $rc -eq 0 ] && ckpt export --to torchtitan "$step" "$out" && ckpt import --from torchtitan "$out" "$dir/$1.in/checkpoint" "$job" &&
        [ $rc -eq 0 ] && ! grep -q 'ignored\| W ' "$dir/err" && ckpt diff "$dir/$1.in" "$step" && [ $rc -eq 0 ] && grep -q ' tensors, all equal$' "$dir/out"
    ok "round_trip_of_$1"
    train "$dir/$1.in" --training.steps 5 --lr_scheduler.warmup_steps 3
    [ $rc -eq 0 ] && [ "$(losses "$dir/$1.in/metrics.jsonl")" = "$(losses "$dir/$1/metrics.jsonl" | tail -n 2)" ]
    ok "the_run_of_$1_goes_on"
}

model v3 deepseek_v3 "$base, $mla, \"q_lora_rank\": 9, \"bias_update_rate\": 0.03, \"num_nextn_predict_layers\": 2" '"loss": { "mtp_weight": 0.3 },'
moe=moe.routed_experts.inner_experts
has "$out" tok_embeddings.weight lm_head.weight layers.0.feed_forward.w1.weight layers.0.attention.wq_a.weight layers.1.attention.q_norm.weight \
    layers.2.attention.wkv_a.weight layers.1.$moe.w1_EFD layers.2.$moe.w2_EDF layers.1.moe.router.gate.weight layers.1.moe.expert_bias_E \
    layers.1.moe.shared_experts.w3.weight mtp_layers.0.eh_proj.weight mtp_layers.1.mtp_norm.weight mtp_layers.1.$moe.w3_EFD \
    optimizer.state.layers.1.$moe.w1_EFD.exp_avg_sq optimizer.param_groups.mtp_layers.0.$moe.w1_EFD.betas optimizer.state.layers.1.$moe.w1_EFD.step &&
    lacks "$out" model.layers && lacks "$out" state.layers.0.moe && lacks "$out" .layers.3. && lacks "$out" e_score && lacks "$out" expert_bias_E.exp_avg
ok names_of_deepseek_v3
# each of two tensors of one shape has its own name
lists && same tok_embeddings.weight embed_tokens.weight && same norm.weight norm.weight && same layers.0.feed_forward.w1.weight layers.0.mlp.gate_proj.weight &&
    same layers.0.feed_forward.w3.weight layers.0.mlp.up_proj.weight && same layers.0.feed_forward.w2.weight layers.0.mlp.down_proj.weight &&
    same layers.1.attention_norm.weight layers.1.input_layernorm.weight && same layers.1.ffn_norm.weight layers.1.post_attention_layernorm.weight &&
    same layers.2.attention.wkv_b.weight layers.2.self_attn.kv_b_proj.weight && same layers.2.attention.wq_b.weight layers.2.self_attn.q_b_proj.weight &&
    same layers.2.$moe.w1_EFD layers.2.mlp.experts.gate_proj.weight && same layers.2.$moe.w3_EFD layers.2.mlp.experts.up_proj.weight &&
    same layers.2.$moe.w2_EDF layers.2.mlp.experts.down_proj.weight && same layers.2.moe.expert_bias_E layers.2.mlp.gate.e_score_correction_bias &&
    same layers.1.moe.shared_experts.w1.weight layers.1.mlp.shared_experts.gate_proj.weight &&
    same layers.1.moe.shared_experts.w3.weight layers.1.mlp.shared_experts.up_proj.weight &&
    same mtp_layers.0.enorm.weight layers.3.enorm.weight && same mtp_layers.1.hnorm.weight layers.4.hnorm.weight &&
    same mtp_layers.1.mtp_norm.weight layers.4.shared_head.norm.weight && same mtp_layers.1.$moe.w3_EFD layers.4.mlp.experts.up_proj.weight &&
    [ "$(awk '$1 == "optimizer.state.mtp_layers.1.'$moe'.w3_EFD.exp_avg" {print $3}' "$dir/theirs")" = "$(awk '$1 == "optimizer.state.model.layers.4.mlp.experts.up_proj.weight.exp_avg" {print $3}' "$dir/ours")" ]
ok values_of_deepseek_v3
ckpt import --from dcp "$out" "$dir/found/checkpoint" "$job"
[ $rc -eq 0 ] && ckpt diff "$dir/found" "$step" && [ $rc -eq 0 ]
ok import_from_dcp_finds_the_names
ckpt import --from torchtitan --spec deepseek_v3 "$out" "$dir/x" --model.args "{ $base, $mla, \"num_nextn_predict_layers\": 2 }"
refused other_sizes_are_named "no tensor 'layers.0.attention.wq.weight'"

model v2 deepseek_v3 "$base, $mla, \"first_k_dense_replace\": 2, \"topk_method\": \"greedy\""
has "$out" layers.1.attention.wq.weight layers.1.feed_forward.w2.weight layers.2.moe.expert_bias_E && lacks "$out" layers.1.moe && lacks "$out" mtp_layers
ok a_model_without_the_bias_gets_zeros_there
ckpt import --from torchtitan "$dir/v2.titan" "$dir/biased/checkpoint" "$job" --model.args.topk_method noaux_tc
[ $rc -eq 0 ] && ckpt export --to torchtitan "$dir/biased" "$dir/biased.titan" && [ $rc -eq 0 ]
ok a_model_with_the_bias_takes_them

model qwen3 qwen3_moe "$base, \"n_kv_heads\": 2, \"head_dim\": 4, \"hidden_dim\": 35, \"moe_intermediate_size\": 11, \"mlp_only_layers\": [1], \"choice_bias\": true, \"bias_update_rate\": 0.03"
has "$out" layers.0.attention.qkv_linear.wq.weight layers.0.attention.k_norm.weight layers.1.feed_forward.w2.weight layers.2.$moe.w1_EFD layers.2.moe.expert_bias_E &&
    lacks "$out" layers.1.moe
ok names_of_qwen3_moe
lists && same layers.0.attention.qkv_linear.wq.weight layers.0.self_attn.q_proj.weight && same layers.0.attention.qkv_linear.wk.weight layers.0.self_attn.k_proj.weight &&
    same layers.0.attention.qkv_linear.wv.weight layers.0.self_attn.v_proj.weight && same layers.2.attention.q_norm.weight layers.2.self_attn.q_norm.weight &&
    same layers.2.attention.k_norm.weight layers.2.self_attn.k_norm.weight && same layers.2.$moe.w1_EFD layers.2.mlp.experts.gate_proj.weight &&
    same layers.2.moe.router.gate.weight layers.2.mlp.gate.weight
ok values_of_qwen3_moe
ckpt import --from torchtitan "$out" "$dir/unbiased/checkpoint" "$job" --model.args.choice_bias false
[ $rc -eq 0 ] && [ "$(grep -c "layers.[02].moe.expert_bias_E' is not zero, and the model has no such tensor" "$dir/err")" -eq 2 ]
ok a_bias_that_the_model_lacks_is_told

model gpt_oss gpt_oss "$base, \"n_kv_heads\": 2, \"head_dim\": 4, \"hidden_dim\": 11, \"sliding_window\": 9"
has "$out" layers.0.attention.sinks layers.1.attention.wo.bias layers.1.attention.qkv_linear.wv.bias layers.2.moe.router.gate.bias layers.2.$moe.mlp1_weight_EGD \
    layers.2.$moe.mlp1_bias_EG layers.2.$moe.mlp2_weight_EDF layers.2.$moe.mlp2_bias_ED layers.2.moe.expert_bias_E
ok names_of_gpt_oss
lists && same layers.2.$moe.mlp1_weight_EGD layers.2.mlp.experts.gate_up_proj swap && same layers.2.$moe.mlp2_weight_EDF layers.2.mlp.experts.down_proj swap &&
    same layers.2.$moe.mlp1_bias_EG layers.2.mlp.experts.gate_up_proj_bias && same layers.2.$moe.mlp2_bias_ED layers.2.mlp.experts.down_proj_bias &&
    same layers.1.attention.sinks layers.1.self_attn.sinks && same layers.1.attention.qkv_linear.wk.bias layers.1.self_attn.k_proj.bias
ok values_of_gpt_oss

# ---- what is refused ----
half() { # NAME SPEC ARGS: a run of one step
    sed "s/\"spec\": \"llama3\"/\"spec\": \"$2\"/; s/\"args\": {.*} },/\"args\": { $3 } },/" "$dir/job.json" >"$dir/$1.json"
    job=$dir/$1.json
    train "$dir/$1" --training.steps 1
    [ $rc -eq 0 ] && ckpt export --to torchtitan "$dir/$1" "$dir/x"
}
half halves deepseek_v3 "$base, $mla, \"rope_interleave\": false"
refused halves_of_heads 'model.args.rope_interleave: torchtitan'
ckpt import --from torchtitan "$dir/v3.titan" "$dir/x" "$job"
refused import_into_halves_of_heads 'model.args.rope_interleave: torchtitan'
half plain gpt_oss "$base, \"n_kv_heads\": 2, \"head_dim\": 4, \"hidden_dim\": 11, \"attention_bias\": false"
refused gpt_oss_without_biases 'model.args.attention_bias: torchtitan'
half biases qwen3_moe "$base, \"n_kv_heads\": 2, \"head_dim\": 4, \"hidden_dim\": 35, \"moe_intermediate_size\": 11, \"attention_bias\": true"
refused biases_that_torchtitan_has_not "torchtitan has no name for 'model.layers.0.self_attn."
half llama4 llama4 "$base, \"n_kv_heads\": 2, \"head_dim\": 4, \"hidden_dim\": 35, \"moe_intermediate_size\": 11"
refused llama4_is_in_another_form 'gate_up_proj [E,in,2 out] in two tensors'
half mixtral mixtral "$base, \"n_kv_heads\": 2, \"head_dim\": 4, \"hidden_dim\": 11"
refused a_model_that_torchtitan_has_not "model mixtral has no names of torchtitan's; use --to dcp"
[ ! -e "$dir/x" ] && [ ! -e "$dir/x.tmp" ]
ok refused_commands_leave_nothing
exit $failed
