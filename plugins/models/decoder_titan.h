/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_MODELS_DECODER_TITAN_H
#define TT_MODELS_DECODER_TITAN_H
#include <ttrun/model.h>

/* Names of tensors in torchtitan's checkpoints, as rows of a model's tt_model_titan. The first row of a tensor is the name of
 * torchtitan's main branch since June 2026, the others are those of its releases up to 0.2.2 and of the months between.
 * Source: github.com/pytorch/torchtitan, torchtitan/models/<model>/state_dict_adapter.py and the modules
 * it names. */

/* pairs: rotary positions rotate neighbours there; swapped: the last two dims are; zeros: see tt_titan_name. */
#define TITAN_PLACED(ours, theirs, pairs, swapped, zeros)                                          \
    {                                                                                              \
        {ours, theirs, pairs, 0}, swapped, zeros                                                   \
    }
#define TITAN_ROW(ours, theirs) TITAN_PLACED(ours, theirs, 0, 0, 0)
#define TITAN_LAYER(ours, theirs) TITAN_ROW("model.layers.*." ours, "layers.*." theirs)

/* What all models have. */
#define TITAN_COMMON                                                                               \
    TITAN_ROW("model.embed_tokens.weight", "tok_embeddings.weight"),                               \
        TITAN_ROW("model.norm.weight", "norm.weight"),                                             \
        TITAN_ROW("lm_head.weight", "lm_head.weight"),                                             \
        TITAN_ROW("lm_head.weight", "output.weight"),                                              \
        TITAN_LAYER("input_layernorm.weight", "attention_norm.weight"),                            \
        TITAN_LAYER("post_attention_layernorm.weight", "ffn_norm.weight"),                         \
        TITAN_LAYER("self_attn.o_proj.weight", "attention.wo.weight")

/* A dense feed-forward layer. */
#define TITAN_MLP                                                                                  \
    TITAN_LAYER("mlp.gate_proj.weight", "feed_forward.w1.weight"),                                 \
        TITAN_LAYER("mlp.down_proj.weight", "feed_forward.w2.weight"),                             \
        TITAN_LAYER("mlp.up_proj.weight", "feed_forward.w3.weight")

/* A projection of grouped-query attention: letter q, k or v, end "weight" or "bias". */
#define TITAN_QKV(letter, end, pairs)                                                              \
    TITAN_PLACED("model.layers.*.self_attn." letter "_proj." end,                                  \
                 "layers.*.attention.qkv_linear.w" letter "." end, pairs, 0, 0),                   \
        TITAN_PLACED("model.layers.*.self_attn." letter "_proj." end,                              \
                     "layers.*.attention.w" letter "." end, pairs, 0, 0)

/* The experts' weights [E,out,in] in one tensor. theirs: "w1"; dims: the letters of its shape in the name. */
#define TITAN_EXPERTS(ours, theirs, dims)                                                          \
    TITAN_LAYER(ours, "moe.routed_experts.inner_experts." theirs "_" dims),                        \
        TITAN_LAYER(ours, "moe.experts." theirs "_" dims),                                         \
        TITAN_LAYER(ours, "moe.experts." theirs)

/* The router, whose name here is `gate`, and the bias for the choice. A model without this bias gets one of zeros there, since
 * torchtitan's configs have it and its loader wants each tensor of its model. */
#define TITAN_ROUTER(gate)                                                                         \
    TITAN_LAYER(gate ".weight", "moe.router.gate.weight"),                                         \
        TITAN_LAYER(gate ".e_score_correction_bias", "moe.expert_bias_E"),                         \
        TITAN_LAYER(gate ".e_score_correction_bias", "moe.expert_bias"),                           \
        TITAN_PLACED("model.layers.*." gate ".weight", "layers.*.moe.expert_bias_E", 0, 0, 1),     \
        TITAN_PLACED("model.layers.*." gate ".weight", "layers.*.moe.expert_bias", 0, 0, 1)

/* A mixture with moe_names_qwen. */
#define TITAN_MOE                                                                                  \
    TITAN_ROUTER("mlp.gate"), TITAN_EXPERTS("mlp.experts.gate_proj.weight", "w1", "EFD"),          \
        TITAN_EXPERTS("mlp.experts.down_proj.weight", "w2", "EDF"),                                \
        TITAN_EXPERTS("mlp.experts.up_proj.weight", "w3", "EFD"),                                  \
        TITAN_LAYER("mlp.shared_experts.gate_proj.weight", "moe.shared_experts.w1.weight"),        \
        TITAN_LAYER("mlp.shared_experts.down_proj.weight", "moe.shared_experts.w2.weight"),        \
        TITAN_LAYER("mlp.shared_experts.up_proj.weight", "moe.shared_experts.w3.weight")

#define TITAN_TABLE(names) sizeof(tt_model_titan), (names), TT_COUNT(names), sizeof *(names)

#endif
