#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Hugging Face folders of the models other than llama3 (test_hf.sh): written after the last step, read back bit for bit on every
# mesh; a config.json with settings that a model cannot do gives an error of one line. tests/peers/hf_peer.py compares with transformers.
. "$(dirname "$0")/lib.sh"
wide='"dim": 32, "n_layers": 2, "n_heads": 4, "vocab_size": 270'
# write_job MODEL ARGS
write_job() {
    sed 's/"spec": "llama3"/"spec": "'"$1"'"/; s/"args": {.*} }/"args": {'"$2"'} }/; s/"lr": 0.01/"lr": 0.05/' "$dir/job.json" >"$dir/$1.json"
    job=$dir/$1.json
}
# again MODEL FOLDER HF OPTION...: two steps that change nothing, from the weights and sizes of a Hugging Face folder
again() {
    sed 's/"flavor": "debugmodel"/"flavor": "hf", "hf_assets_path": "'"$(echo "$3" | sed 's|/|\\/|g')"'"/; s/"args": {.*} }/"args": {} }/' \
        "$dir/$1.json" >"$dir/again.json"
    where=$2 hf=$3
    shift 3
    ttrun "$dir/again.json" --dump_folder "$where" --optimizer.lr 0 --training.steps 2 --checkpoint.enable false \
        --checkpoint.initial_load_path "$hf" --checkpoint.initial_load_in_hf true --tokenizer.name byte "$@" >"$dir/out" 2>"$dir/err"
    rc=$?
}
same_losses() { # FOLDER FOLDER
    losses "$1/metrics.jsonl" >"$dir/l1"
    losses "$2/metrics.jsonl" >"$dir/l2"
    [ -s "$dir/l1" ] && cmp -s "$dir/l1" "$dir/l2"
}
has() { # MODEL NAME...: tensors in the exported file
    for name in $2; do grep -q "\"$name\"" "$dir/$1/hf/latest/model.safetensors" || return 1; done
}

# round_trip MODEL ARGS TENSORS
round_trip() {
    write_job "$1" "$2"
    train "$dir/$1" --checkpoint.last_save_in_hf true --training.steps 3
    type=$1
    case $1 in gemma3) type=gemma3_text ;; llama4) type=llama4_text ;; esac
    [ $rc -eq 0 ] && has "$1" "$3" && [ "$(value "$dir/$1/hf/latest/config.json" vocab_size)" = 270 ] &&
        [ "$(value "$dir/$1/hf/latest/config.json" model_type)" = "$type" ]
    ok "$1_is_written_as_hugging_face_has_it"
    for mesh in "" "--nproc 2 --comm.backend local --parallelism.tensor_parallel_degree 2" "--nproc 2 --comm.backend local --parallelism.data_parallel_shard_degree 2"; do
        name=$(echo "$mesh" | sed 's/.*\.\(.*\)_degree.*/_\1/')
        rm -rf "$dir/n" "$dir/h"
        # shellcheck disable=SC2086
        train "$dir/n" --optimizer.lr 0 --training.steps 2 --checkpoint.enable false \
            --checkpoint.initial_load_path "$dir/$1/checkpoint/step-3" $mesh
        # shellcheck disable=SC2086
        again "$1" "$dir/h" "$dir/$1/hf/latest" $mesh
        [ $rc -eq 0 ] && same_losses "$dir/n" "$dir/h" && ! grep -q ignored "$dir/err"
        ok "$1_weights_come_back_bitwise$name"
    done
}
layer=model.layers.1
round_trip qwen2 "$wide"', "n_kv_heads": 2, "hidden_dim": 48, "use_sliding_window": true, "sliding_window": 7, "max_window_layers": 1' \
    "$layer.self_attn.q_proj.bias $layer.self_attn.v_proj.bias model.norm.weight"
round_trip qwen3 "$wide"', "n_kv_heads": 2, "hidden_dim": 48, "head_dim": 12' "$layer.self_attn.q_norm.weight model.embed_tokens.weight"
round_trip mistral "$wide"', "n_kv_heads": 2, "hidden_dim": 48, "sliding_window": 5' "$layer.mlp.up_proj.weight lm_head.weight"
small="$wide"', "n_kv_heads": 2, "hidden_dim": 48'
round_trip gemma2 "$small"', "head_dim": 12, "sliding_window": 5, "query_pre_attn_scalar": 20' \
    "$layer.pre_feedforward_layernorm.weight $layer.post_feedforward_layernorm.weight"
round_trip gemma3 "$small"', "head_dim": 12, "sliding_window": 5, "query_pre_attn_scalar": 20, "rope_local_base_freq": 5000' \
    "$layer.self_attn.q_norm.weight $layer.post_attention_layernorm.weight"
round_trip phi3 "$small"', "partial_rotary_factor": 0.5, "sliding_window": 5, "rope_scaling": {"type": "su", "factor": 4, "original_max_position_embeddings": 16, "short_factor": [1, 2], "long_factor": [3, 4]}' \
    "$layer.self_attn.qkv_proj.weight $layer.mlp.gate_up_proj.weight"
round_trip olmo2 "$small" "$layer.self_attn.q_norm.weight $layer.post_feedforward_layernorm.weight"
round_trip olmo3 "$small"', "sliding_window": 5, "sliding_window_pattern": 2' "$layer.self_attn.k_norm.weight"
round_trip smollm3 "$small"', "no_rope_layer_interval": 2, "attention_bias": true, "mlp_bias": true' \
    "$layer.self_attn.o_proj.bias $layer.mlp.gate_proj.bias"
round_trip gemma "$wide"', "n_kv_heads": 1, "hidden_dim": 48, "head_dim": 12' "$layer.input_layernorm.weight"
round_trip mixtral "$small"', "num_experts": 3' "$layer.block_sparse_moe.experts.2.w3.weight $layer.block_sparse_moe.gate.weight"
round_trip qwen3_moe "$small"', "head_dim": 12, "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 20, "mlp_only_layers": [0]' \
    "$layer.mlp.experts.4.down_proj.weight $layer.mlp.gate.weight model.layers.0.mlp.up_proj.weight"
round_trip qwen3_next "$small"', "head_dim": 16, "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 20, "mlp_only_layers": [0], "full_attention_interval": 2, "linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 10, "linear_value_head_dim": 6, "shared_expert_intermediate_size": 14' \
    "model.layers.0.linear_attn.conv1d.weight model.layers.0.linear_attn.in_proj_qkvz.weight model.layers.0.linear_attn.A_log $layer.mlp.shared_expert_gate.weight"
round_trip llama4 "$small"', "head_dim": 12, "num_experts": 4, "moe_intermediate_size": 20, "no_rope_layer_interval": 2, "attention_chunk_size": 7, "interleave_moe_layer_step": 2, "floor_scale": 5' \
    "$layer.feed_forward.experts.gate_up_proj $layer.feed_forward.router.weight $layer.feed_forward.shared_expert.up_proj.weight model.layers.0.feed_forward.up_proj.weight"
deep='"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 20, "n_group": 3, "topk_group": 2'
round_trip glm4_moe "$small"', "head_dim": 12, '"$deep" \
    "$layer.mlp.experts.5.down_proj.weight $layer.mlp.gate.e_score_correction_bias $layer.self_attn.q_norm.weight $layer.mlp.shared_experts.up_proj.weight model.layers.0.mlp.up_proj.weight"
round_trip deepseek_v3 "$wide"', "hidden_dim": 48, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8, '"$deep" \
    "$layer.self_attn.kv_a_proj_with_mqa.weight $layer.mlp.gate.e_score_correction_bias"
sed 's/"model_type": "deepseek_v3"/"model_type": "kimi_k2"/' "$dir/deepseek_v3/hf/step-3/config.json" >"$dir/kimi.json"
cp -r "$dir/deepseek_v3/hf/step-3" "$dir/kimi" && cp "$dir/kimi.json" "$dir/kimi/config.json"
rm -rf "$dir/h" "$dir/n"
again deepseek_v3 "$dir/h" "$dir/kimi"
again deepseek_v3 "$dir/n" "$dir/deepseek_v3/hf/step-3"
[ $rc -eq 0 ] && same_losses "$dir/n" "$dir/h" && grep -q kimi_k2 "$dir/kimi/config.json"
ok kimi_k2_is_read_by_deepseek_v3
round_trip gpt2 "$wide"', "n_positions": 40' \
    "transformer.wpe.weight transformer.h.1.attn.c_attn.weight transformer.h.1.attn.c_attn.bias transformer.ln_f.bias"
[ "$(value "$dir/gpt2/hf/latest/config.json" n_positions)" = 40 ] && ! grep -q max_position "$dir/gpt2/hf/latest/config.json"
ok gpt2_config_json_has_n_positions

# The hub's gpt2 has no "transformer." before its names, and masks as tensors. As many bytes stand for them.
cp -r "$dir/gpt2/hf/step-3" "$dir/hub"
sed -i 's/"transformer\.\([^"]*\)"/"\1"            /g' "$dir/hub/model.safetensors"
rm -rf "$dir/h" "$dir/n"
again gpt2 "$dir/h" "$dir/hub"
again gpt2 "$dir/n" "$dir/gpt2/hf/latest"
[ $rc -eq 0 ] && same_losses "$dir/n" "$dir/h" && ! grep -q '"transformer' "$dir/hub/model.safetensors"
ok tensor_names_without_the_prefix_are_found
sed 's/"resid_pdrop": 0.0/"resid_pdrop": 0.1/' "$dir/gpt2/hf/latest/config.json" >"$dir/hub/config.json"
again gpt2 "$dir/h" "$dir/hub" --training.steps 1
[ $rc -eq 0 ] && grep -q 'dropout: resid_pdrop 0.1; a rate of 0 in model.args is none' "$dir/err"
ok dropout_of_the_config_is_logged
again gpt2 "$dir/h" "$dir/hub" --training.steps 1 --model.args.resid_pdrop 0
[ $rc -eq 0 ] && ! grep -q 'dropout: ' "$dir/err"
ok dropout_set_to_0_is_not_logged
sed 's/"resid_pdrop": 0.0/"summary_first_dropout": 0.1, "token_dropout": 0.2/' "$dir/gpt2/hf/latest/config.json" >"$dir/hub/config.json"
again gpt2 "$dir/h" "$dir/hub" --training.steps 1
[ $rc -eq 0 ] && grep -q 'dropout: resid_pdrop 0.1;' "$dir/err" && grep -q 'token_dropout 0.2 is not applied: model gpt2 has no such dropout' "$dir/err" &&
    ! grep -q summary_first "$dir/err"
ok missing_dropout_is_the_config_class_default
sed 's/"gelu_new"/"gelu_pytorch_tanh"/' "$dir/gpt2/hf/latest/config.json" >"$dir/hub/config.json"
again gpt2 "$dir/h" "$dir/hub" --training.steps 1
[ $rc -eq 0 ]
ok another_name_of_the_same_activation

# The text model of a folder that reads pictures too: its config is text_config, its tensors have one of two prefixes.
# with_pictures SED: renames the tensors of gemma3's folder, adds a tensor of the vision tower
with_pictures() {
    rm -rf "$dir/pictures" && mkdir "$dir/pictures" && from=$dir/gemma3/hf/step-3/model.safetensors
    n=$(od -An -t u8 -N 8 "$from" | tr -d ' ') bytes=$(($(wc -c <"$from") - 8 - n))
    header=$(head -c $((8 + n)) "$from" | tail -c "$n" | sed "$1"'; s/} *$/,"vision_tower.post_layernorm.weight":{"dtype":"F32","shape":[1],"data_offsets":['"$bytes,$((bytes + 4))"']}}/')
    m=${#header}
    # shellcheck disable=SC2059
    { printf "$(printf '\\%03o' $((m % 256)) $((m / 256 % 256)) $((m / 65536)) 0 0 0 0 0)" && printf '%s' "$header" && tail -c "$bytes" "$from" && printf 'abcd'; } >"$dir/pictures/model.safetensors"
    { printf '{"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "mm_tokens_per_image": 256, "vision_config": {"hidden_size": 8},\n "text_config": ' &&
        sed '/"architectures"/d' "$dir/gemma3/hf/step-3/config.json" && echo '}'; } >"$dir/pictures/config.json"
}
again gemma3 "$dir/n" "$dir/gemma3/hf/step-3"
for names in 's/"model\./"language_model.model./g' 's/"model\./"model.language_model./g'; do
    with_pictures "$names"
    rm -rf "$dir/h"
    again gemma3 "$dir/h" "$dir/pictures"
    [ $rc -eq 0 ] && same_losses "$dir/n" "$dir/h" && [ "$(grep -c ignored "$dir/err")" -eq 1 ] &&
        grep -q '1 tensor not of this model ignored: vision_tower.post_layernorm.weight' "$dir/err"
    ok "gemma3_text_model_of_a_larger_one_$(echo "$names" | cut -c 12-20)"
done
ttrun "$dir/pictures" --dump_folder "$dir/tuned" --training.steps 1 --training.seq_len 32 --training.local_batch_size 2 --dataloader.path "$dir/text.txt" \
    --tokenizer.name byte --backend.threads 1 >"$dir/out" 2>"$dir/err" && ttrun ckpt export --to hf "$dir/tuned" "$dir/text_only" >"$dir/out" 2>"$dir/err"
rc=$?
[ $rc -eq 0 ] && grep -q 'the text model of .*pictures is exported, as model_type gemma3_text without the other parts of gemma3' "$dir/err" &&
    [ "$(value "$dir/text_only/config.json" architectures.0)" = Gemma3ForCausalLM ] && [ "$(value "$dir/text_only/config.json" model_type)" = gemma3_text ] &&
    grep -q '"model.layers.1.self_attn.q_norm.weight"' "$dir/text_only/model.safetensors" && ! grep -q 'vision\|language_model' "$dir/text_only/model.safetensors" "$dir/text_only/config.json" &&
    [ "$(value "$dir/text_only/config.json" sliding_window)" = 5 ]
ok gemma3_text_model_of_a_larger_one_is_exported_alone
again gemma3 "$dir/h" "$dir/text_only"
[ $rc -eq 0 ] && ! grep -q ignored "$dir/err"
ok and_read_again
ttrun ckpt import --from hf "$dir/pictures" "$dir/imported" >"$dir/out" 2>"$dir/err"
ok gemma3_of_a_larger_one_is_imported

# A checkpoint of such a run has all sizes in it.
cp -r "$dir/mistral/hf/step-3" "$dir/start"
again mistral "$dir/moved" "$dir/start" --checkpoint.enable true
rm -rf "$dir/start"
ttrun generate --checkpoint "$dir/moved" --prompt line --max-tokens 4 --temperature 0 >"$dir/text1" 2>"$dir/err" &&
    ttrun generate --checkpoint "$dir/mistral" --prompt line --max-tokens 4 --temperature 0 >"$dir/text2" 2>>"$dir/err" && cmp -s "$dir/text1" "$dir/text2"
ok a_resumed_run_does_not_need_the_folder

# ---- what a config.json may not say ----
# refused MODEL NAME WORDS SED
refused() {
    rm -rf "$dir/bad"
    cp -r "$dir/$1/hf/step-3" "$dir/bad"
    sed -i "$4" "$dir/bad/config.json"
    again "$1" "$dir/x" "$dir/bad"
    [ $rc -eq 2 ] && one_line "$dir/err" && grep -qF -- "$3" "$dir/err" && ! cmp -s "$dir/bad/config.json" "$dir/$1/hf/step-3/config.json"
    ok "$1_$2"
}
more() { echo "s/\"model_type\"/$1, \"model_type\"/"; }
refused gpt2 inverse_layer_scale 'scale_attn_by_inverse_layer_idx: model gpt2 supports only false, but this is true' \
    "$(more '"scale_attn_by_inverse_layer_idx": true')"
refused gpt2 unscaled_attention 'scale_attn_weights: model gpt2 supports only true' "$(more '"scale_attn_weights": false')"
refused gpt2 upcast_attention 'reorder_and_upcast_attn: model gpt2' "$(more '"reorder_and_upcast_attn": true')"
refused gpt2 cross_attention 'add_cross_attention: model gpt2' "$(more '"add_cross_attention": true')"
refused gpt2 exact_gelu 'activation_function: model gpt2 supports only ["gelu_new","gelu_pytorch_tanh","gelu_fast"], but this is "gelu"' 's/gelu_new/gelu/'
refused gpt2 heads_that_do_not_divide '5 does not divide dim 32' 's/"n_head": 4/"n_head": 5/'
refused gpt2 too_few_positions 'only 31 positions' 's/"n_positions": 40/"n_positions": 31/'
refused gpt2 positions_of_another_table "parameter 'transformer.wpe.weight'" 's/"n_positions": 40/"n_positions": 41/'
refused gpt2 a_llama 'this is a llama model: add --spec llama3' 's/"model_type": "gpt2"/"model_type": "llama"/'
refused gpt2 scaled_positions 'rope_scaling: model gpt2 has no RoPE scaling' "$(more '"rope_scaling": {"rope_type": "yarn", "factor": 2}')"
refused gpt2 untied_head_without_a_tensor "parameter 'lm_head.weight'" 's/"tie_word_embeddings": true/"tie_word_embeddings": false/'
refused qwen2 mrope 'use_mrope: model qwen2' "$(more '"use_mrope": true')"
refused qwen2 sliding_layers_without_a_window 'there is no window' 's/"use_sliding_window": true/"use_sliding_window": false, "layer_types": ["sliding_attention", "full_attention"]/'
refused qwen2 layer_types_too_few 'layer 1 is neither' "$(more '"layer_types": ["full_attention"]')"
refused qwen2 layer_types_unknown 'layer 1 is neither' "$(more '"layer_types": ["full_attention", "linear_attention"]')"
refused qwen2 window_of_zero 'sliding_window: expected 1 to' 's/"sliding_window": 7/"sliding_window": 0/'
refused qwen2 partial_rotary 'rope_scaling.partial_rotary_factor: model qwen2 rotates whole heads only' \
    's/"rope_scaling": null/"rope_scaling": {"rope_type": "default", "partial_rotary_factor": 0.5}/'
refused qwen2 dynamic_rope '"dynamic" is not built' 's/"rope_scaling": null/"rope_scaling": {"rope_type": "dynamic", "factor": 2}/'
refused qwen2 yarn_without_a_factor 'yarn needs a factor' 's/"rope_scaling": null/"rope_scaling": {"type": "yarn"}/'
refused qwen2 yarn_mscale 'mscale: unknown key' 's/"rope_scaling": null/"rope_scaling": {"type": "yarn", "factor": 2, "mscale": 1}/'
refused qwen3 biases_without_tensors "parameter 'model.layers.0.self_attn.q_proj.bias'" 's/"attention_bias": false/"attention_bias": true/'
refused gemma2 exact_gelu 'hidden_activation: model gemma2 supports only "gelu_pytorch_tanh"' 's/gelu_pytorch_tanh/gelu/'
refused gemma2 bidirectional 'use_bidirectional_attention: model gemma2' "$(more '"use_bidirectional_attention": true')"
refused gemma2 cap_of_zero 'final_logit_softcapping: expected' 's/"final_logit_softcapping": 30.0/"final_logit_softcapping": 0/'
refused gemma3 a_cap_that_transformers_ignores 'attn_logit_softcapping: model gemma3' "$(more '"attn_logit_softcapping": 50.0')"
refused gemma3 another_type 'does not read model_type "gemma3"' 's/"model_type": "gemma3_text"/"model_type": "gemma3"/'
refused gemma3 scaled_local_positions 'sliding_attention: model gemma3 reads only the rope_type "default"' \
    "$(more '"rope_parameters": {"full_attention": {"rope_type": "default"}, "sliding_attention": {"rope_type": "linear", "factor": 2}}')"
refused olmo3 two_bases 'model olmo3 has one base for all layers' \
    "$(more '"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 5e5}, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}')"
refused phi3 too_few_factors 'they have 1 and 2' 's/"short_factor": \[1.0, 2.0\]/"short_factor": [1.0]/'
refused phi3 factor_of_zero 'short_factor: wanted a list' 's/"short_factor": \[1.0, 2.0\]/"short_factor": [1.0, 0]/'
refused phi3 odd_part 'it must be even and not 0' 's/"partial_rotary_factor": 0.5/"partial_rotary_factor": 0.4/'
refused glm4_moe softmax_router 'scoring_func: model glm4_moe supports only "sigmoid"' "$(more '"scoring_func": "softmax"')"
refused glm4_moe odd_part 'it must be even and not 0' 's/"partial_rotary_factor": 0.5/"partial_rotary_factor": 0.3/'
refused glm4_moe groups_that_do_not_divide '4 groups do not divide 6 experts' 's/"n_group": 3/"n_group": 4/'
refused llama4 jitter 'router_jitter_noise: model llama4 supports only 0' "$(more '"router_jitter_noise": 0.1')"
refused llama4 sliding_layers 'layer_types: wanted null or a list of "full_attention" and "chunked_attention"' 's/"chunked_attention", "full/"sliding_attention", "full/'
refused llama4 temperature_of_a_text 'attn_temperature_tuning: wanted true, false or a number' 's/"attn_temperature_tuning": true/"attn_temperature_tuning": "yes"/'
refused olmo2 clipped 'clip_qkv: model olmo2' "$(more '"clip_qkv": 8.0')"
refused smollm3 layers_too_few 'no_rope_layers: layer 1 is neither' 's/"no_rope_layers": \[1, 0\]/"no_rope_layers": [1]/'
refused qwen3 odd_heads 'head_dim: 13 is odd' 's/"head_dim": 12/"head_dim": 13/'
refused qwen3 partial_rotary 'partial_rotary_factor: model qwen3 supports only 1' "$(more '"partial_rotary_factor": 0.25')"
refused qwen3 a_mixture 'this is a qwen3_moe model: add --spec qwen3_moe' 's/"model_type": "qwen3"/"model_type": "qwen3_moe"/'
refused mistral layer_types 'layer_types: model mistral supports only null' "$(more '"layer_types": ["full_attention", "sliding_attention"]')"
refused mistral activation 'hidden_act: model mistral' 's/"silu"/"gelu"/'
refused mistral window_is_text 'sliding_window' 's/"sliding_window": 5/"sliding_window": "5"/'
refused mistral quantized 'quantization_config: model mistral' "$(more '"quantization_config": {"bits": 4}')"
exit $failed
