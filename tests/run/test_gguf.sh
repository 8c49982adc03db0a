#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ttrun ckpt export --to gguf of the families with experts: every tensor's name, dims and bytes, and the keys, by tables;
# tests/peers/llama_cpp_peer.py runs such files in llama.cpp.
. "$(dirname "$0")/lib.sh"
tool="$BUILD/tests/run/tensor_tool"

# made SPEC ARGS: a run of one step and its GGUF file
made() {
    spec=$1 step=$dir/$1/checkpoint/step-1
    train "$dir/$1" --spec "$1" --training.steps 1 --model.args "$2"
    [ $rc -eq 0 ] && ttrun ckpt export --to gguf "$dir/$1" "$dir/$1.gguf" >"$dir/out" 2>"$dir/err" &&
        "$tool" "$dir/$1.gguf" >"$dir/there" && "$tool" "$dir/$1.gguf" keys >"$dir/keys" && "$tool" "$step" >"$dir/here"
    ok "${spec}_is_exported"
}
# same HOW < TABLE: rows "ours theirs": theirs has the bytes of ours, changed by tensor_tool's words HOW; each is struck out
same() {
    wrong= && "$tool" "$step" "$@" >"$dir/changed"
    while read -r ours theirs; do
        a=$(awk -v n="model.layers.$ours" '$1 == n {print $3}' "$dir/changed")
        b=$(awk -v n="blk.$theirs" '$1 == n {print $3}' "$dir/there")
        [ -n "$a" ] && [ "$a" = "$b" ] || wrong="$wrong $theirs"
        sed -i "/^blk\.$theirs /d" "$dir/there"
    done
    [ -z "$wrong" ] || echo "other bytes:$wrong"
    [ -z "$wrong" ]
}
# dims NAME D,D,D: as the file has them, the innermost first
dims() { grep -q "^$1 $2 " "$dir/there"; }
# keys ARCHITECTURE < TABLE: each line is one of the file's keys
keys() {
    missing=
    while read -r line; do
        grep -qxF "$1.$line" "$dir/keys" || missing="$missing; $line"
    done
    [ -z "$missing" ] || { echo "missing$missing" && grep "^$1" "$dir/keys"; }
    [ -z "$missing" ]
}

size='"dim":32,"n_layers":2,"n_heads":4,"hidden_dim":48,"vocab_size":262,"num_experts":4,"num_experts_per_tok":2'

# ---- experts in one tensor each ----
made mixtral "{$size,\"n_kv_heads\":2}"
dims blk.1.ffn_down_exps.weight 48,32,4 && dims blk.1.ffn_gate_inp.weight 32,4 && same <<'ROWS'
0.block_sparse_moe.gate.weight 0.ffn_gate_inp.weight
0.block_sparse_moe.experts.w1.weight 0.ffn_gate_exps.weight
1.block_sparse_moe.experts.w3.weight 1.ffn_up_exps.weight
1.block_sparse_moe.experts.w2.weight 1.ffn_down_exps.weight
0.self_attn.v_proj.weight 0.attn_v.weight
0.input_layernorm.weight 0.attn_norm.weight
1.post_attention_layernorm.weight 1.ffn_norm.weight
ROWS
ok mixtral_tensors
[ "$(grep -c . "$dir/keys")" -gt 10 ] && grep -qx 'general.architecture llama' "$dir/keys" && keys llama <<'KEYS'
block_count 2
context_length 32
expert_count 4
expert_used_count 2
feed_forward_length 48
attention.head_count_kv 2
KEYS
ok mixtral_keys
grep -qx 'tokenizer.ggml.model no_vocab' "$dir/keys" && grep -q "the model has no tokenizer's file, so the GGUF file has no tokens" "$dir/err"
ok no_tokenizer_is_said
[ "$("$tool" "$dir/mixtral.gguf" | awk '$1 == "blk.0.attn_q.weight" {print $3}')" != \
    "$(awk '$1 == "model.layers.0.self_attn.q_proj.weight" {print $3}' "$dir/here")" ]
ok mixtral_rotates_pairs_of_neighbours

made qwen3_moe "{$size,\"n_kv_heads\":2,\"head_dim\":16,\"moe_intermediate_size\":24}"
dims blk.0.ffn_up_exps.weight 32,24,4 && same <<'ROWS'
1.mlp.gate.weight 1.ffn_gate_inp.weight
1.mlp.experts.gate_proj.weight 1.ffn_gate_exps.weight
0.mlp.experts.up_proj.weight 0.ffn_up_exps.weight
0.mlp.experts.down_proj.weight 0.ffn_down_exps.weight
0.self_attn.q_norm.weight 0.attn_q_norm.weight
1.self_attn.k_proj.weight 1.attn_k.weight
ROWS
ok qwen3_moe_tensors
keys qwen3moe <<'KEYS'
expert_count 4
expert_used_count 2
expert_feed_forward_length 24
attention.key_length 16
KEYS
ok qwen3_moe_keys

# ---- shared experts, a bias for the choice, blocks of multi-token prediction, which llama.cpp counts ----
shared='"moe_intermediate_size":24,"first_k_dense_replace":1,"n_shared_experts":2,"num_nextn_predict_layers":1,"routed_scaling_factor":2.5'
made glm4_moe "{$size,\"n_kv_heads\":2,$shared}"
dims blk.1.ffn_up_shexp.weight 32,48 && same <<'ROWS'
0.mlp.up_proj.weight 0.ffn_up.weight
1.mlp.gate.e_score_correction_bias 1.exp_probs_b.bias
1.mlp.shared_experts.gate_proj.weight 1.ffn_gate_shexp.weight
1.mlp.shared_experts.up_proj.weight 1.ffn_up_shexp.weight
1.mlp.shared_experts.down_proj.weight 1.ffn_down_shexp.weight
1.mlp.experts.gate_proj.weight 1.ffn_gate_exps.weight
1.post_attention_layernorm.weight 1.post_attention_norm.weight
0.self_attn.q_proj.bias 0.attn_q.bias
2.enorm.weight 2.nextn.enorm.weight
2.hnorm.weight 2.nextn.hnorm.weight
2.eh_proj.weight 2.nextn.eh_proj.weight
2.shared_head.norm.weight 2.nextn.shared_head_norm.weight
2.mlp.experts.up_proj.weight 2.ffn_up_exps.weight
ROWS
ok glm4_moe_tensors
keys glm4moe <<'KEYS'
block_count 3
nextn_predict_layers 1
expert_shared_count 2
leading_dense_block_count 1
expert_gating_func 2
expert_weights_norm 1
expert_weights_scale 2.5
rope.dimension_count 4
KEYS
ok glm4_moe_keys

# ---- parts of a tensor: keys and values of heads; the blocks after the model's own are left out ----
made deepseek_v3 "{$size,$shared,\"n_kv_heads\":null,\"q_lora_rank\":16,\"kv_lora_rank\":20,\"qk_nope_head_dim\":10,\"qk_rope_head_dim\":6,\"v_head_dim\":12,
    \"n_group\":2,\"topk_group\":1,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,\"mscale\":0.5,\"mscale_all_dim\":0.5,
    \"original_max_position_embeddings\":16}}"
grep -q 'multi-token prediction are left out' "$dir/err" && ! grep -q '^blk\.2\.' "$dir/there"
ok deepseek_v3_leaves_out_later_blocks
dims blk.0.attn_k_b.weight 10,20,4 && dims blk.0.attn_v_b.weight 20,12,4 && echo 0.self_attn.kv_b_proj.weight 0.attn_k_b.weight | same rows 22 0 10 swap &&
    echo 1.self_attn.kv_b_proj.weight 1.attn_v_b.weight | same rows 22 10 12 && same <<'ROWS'
0.self_attn.q_a_proj.weight 0.attn_q_a.weight
0.self_attn.q_a_layernorm.weight 0.attn_q_a_norm.weight
0.self_attn.q_b_proj.weight 0.attn_q_b.weight
0.self_attn.kv_a_proj_with_mqa.weight 0.attn_kv_a_mqa.weight
1.self_attn.kv_a_layernorm.weight 1.attn_kv_a_norm.weight
1.mlp.experts.down_proj.weight 1.ffn_down_exps.weight
ROWS
ok deepseek_v3_tensors
keys deepseek2 <<'KEYS'
block_count 2
context_length 64
attention.head_count 4
attention.head_count_kv 1
attention.q_lora_rank 16
attention.kv_lora_rank 20
attention.key_length 26
attention.value_length 20
attention.key_length_mla 16
attention.value_length_mla 12
rope.dimension_count 6
rope.scaling.type yarn
rope.scaling.original_context_length 16
rope.scaling.yarn_log_multiplier 0.05
expert_group_count 2
expert_group_used_count 1
expert_weights_norm 0
KEYS
ok deepseek_v3_keys

# ---- parts of a tensor: every second element, swapped ----
made gpt_oss "{$size,\"n_kv_heads\":2,\"head_dim\":8,\"sliding_window\":9}"
dims blk.0.ffn_gate_exps.weight 32,48,4 && dims blk.0.ffn_up_exps.bias 48,4 && same <<'ROWS' &&
0.self_attn.sinks 0.attn_sinks.weight
0.mlp.router.weight 0.ffn_gate_inp.weight
0.mlp.router.bias 0.ffn_gate_inp.bias
1.mlp.experts.down_proj_bias 1.ffn_down_exps.bias
1.self_attn.o_proj.bias 1.attn_output.bias
1.post_attention_layernorm.weight 1.post_attention_norm.weight
ROWS
    echo 0.mlp.experts.gate_up_proj 0.ffn_gate_exps.weight | same every 2 0 swap && echo 1.mlp.experts.gate_up_proj 1.ffn_up_exps.weight | same every 2 1 swap &&
    echo 0.mlp.experts.gate_up_proj_bias 0.ffn_gate_exps.bias | same every 2 0 && echo 0.mlp.experts.gate_up_proj_bias 0.ffn_up_exps.bias | same every 2 1 &&
    echo 1.mlp.experts.down_proj 1.ffn_down_exps.weight | same swap
ok gpt_oss_tensors
keys gpt-oss <<'KEYS'
attention.sliding_window 9
expert_count 4
expert_used_count 2
expert_feed_forward_length 48
KEYS
ok gpt_oss_keys
ttrun ckpt export --to gguf --type q8_0 "$dir/gpt_oss" "$dir/q8.gguf" >"$dir/out" 2>"$dir/err" && [ "$(wc -c <"$dir/q8.gguf")" -lt "$(wc -c <"$dir/gpt_oss.gguf")" ]
ok parts_in_q8_0

# ---- norms that multiply by 1 + weight: llama.cpp's weight has the one; no other tensor has ----
for gemma in gemma gemma2 gemma3; do
    case $gemma in
        gemma) late= more= ;;
        *) late='0.post_feedforward_layernorm.weight 0.post_ffw_norm.weight' more=',"query_pre_attn_scalar":8' ;;
    esac
    made $gemma "{\"dim\":32,\"n_layers\":2,\"n_heads\":4,\"hidden_dim\":48,\"vocab_size\":262,\"n_kv_heads\":2,\"head_dim\":8$more}"
    [ -z "$late" ] || echo "$late" | same plus 1 && echo 1.input_layernorm.weight 1.attn_norm.weight | same plus 1 && same <<'ROWS'
0.self_attn.v_proj.weight 0.attn_v.weight
1.mlp.down_proj.weight 1.ffn_down.weight
ROWS
    ok ${gemma}_norms_have_the_one
done

# ---- context_length is max_position_embeddings of the config.json that the model came with, not seq_len or a scaling's length ----
ttrun ckpt export --to hf "$dir/mixtral" "$dir/hf" >"$dir/out" 2>"$dir/err" && sed -i 's/"max_position_embeddings": [0-9]*/"max_position_embeddings": 5000/' "$dir/hf/config.json" &&
    ttrun ckpt export --to gguf "$dir/hf" "$dir/hf.gguf" >"$dir/out" 2>"$dir/err" && "$tool" "$dir/hf.gguf" keys | grep -qx 'llama.context_length 5000'
ok context_length_of_a_hugging_face_folder
sed 's|"spec".*|"model": {"hf": "hf"},|; /"model": { "flavor"/,/} },/d' "$job" >"$dir/tune.json"
job=$dir/tune.json train "$dir/tuned" --training.steps 1 --tokenizer.name byte
[ $rc -eq 0 ] && rm -r "$dir/hf" && ttrun ckpt export --to gguf "$dir/tuned" "$dir/tuned.gguf" >"$dir/out" 2>"$dir/err" &&
    "$tool" "$dir/tuned.gguf" keys | grep -qx 'llama.context_length 5000'
ok context_length_of_a_tuned_model

# ---- what llama.cpp's architectures are not ----
# refused NAME WORDS SPEC ARGS
refused() {
    name=$1 words=$2
    train "$dir/r" --spec "$3" --training.steps 1 --model.args "$4" --checkpoint.keep_latest_k 0
    [ $rc -eq 0 ] && ! ttrun ckpt export --to gguf "$dir/r" "$dir/r.gguf" >"$dir/out" 2>"$dir/err" && one_line "$dir/err" && grep -qF -- "$words" "$dir/err" &&
        [ ! -e "$dir/r.gguf" ]
    ok "refused_$name"
    rm -rf "$dir/r"
}
refused a_router_of_other_weights 'model.args.norm_topk_prob: llama.cpp has no such router' qwen3_moe "{$size,\"norm_topk_prob\":false}"
refused a_layer_without_experts 'model.args.mlp_only_layers: layer 1 has no experts' qwen3_moe "{$size,\"mlp_only_layers\":[1]}"
refused groups_by_their_best_expert 'model.args.group_score' deepseek_v3 "{$size,\"n_kv_heads\":null,\"topk_method\":\"group_limited_greedy\",\"n_group\":2,\"topk_group\":1,\"q_lora_rank\":16}"
refused queries_without_a_latent_vector 'model.args.q_lora_rank' deepseek_v3 "{$size,\"n_kv_heads\":null,\"q_lora_rank\":null}"
refused an_output_layer_that_is_the_embedding 'model.args.tie_embeddings: llama.cpp wants' olmo3 '{"dim":32,"n_layers":4,"n_heads":4,"vocab_size":262,"tie_embeddings":true}'
refused heads_of_another_width 'model.args.head_dim: llama.cpp has' olmo2 '{"dim":32,"n_layers":1,"n_heads":4,"head_dim":16,"vocab_size":262}'
refused windows_in_other_layers 'model.args.layer_types: layer 0' olmo3 '{"dim":32,"n_layers":2,"n_heads":4,"vocab_size":262,"sliding_window":9,"layer_types":["full_attention","sliding_attention"]}'
refused longrope_elsewhere 'llama.cpp does not scale as "longrope" in this architecture' qwen3 '{"dim":32,"n_layers":1,"n_heads":4,"head_dim":4,"vocab_size":262,"rope_scaling":{"rope_type":"longrope","factor":2,"original_max_position_embeddings":16,"short_factor":[1,1],"long_factor":[1,2]}}'
exit $failed
