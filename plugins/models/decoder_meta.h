/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_MODELS_DECODER_META_H
#define TT_MODELS_DECODER_META_H
#include <ttrun/model.h>

/* The tensor names of Meta's releases of Llama, which Mistral's releases and torchtitan use too;
 * rotary positions rotate pairs (2 j, 2 j + 1) there. */
static const tt_tensor_name meta_names[] = {
    {"model.embed_tokens.weight",                      "tok_embeddings.weight",           0, 0},
    {"model.norm.weight",                              "norm.weight",                     0, 0},
    {"lm_head.weight",                                 "output.weight",                   0, 0},
    {"model.layers.*.input_layernorm.weight",          "layers.*.attention_norm.weight",  0, 0},
    {"model.layers.*.self_attn.q_proj.weight",         "layers.*.attention.wq.weight",    1, 0},
    {"model.layers.*.self_attn.k_proj.weight",         "layers.*.attention.wk.weight",    1, 0},
    {"model.layers.*.self_attn.v_proj.weight",         "layers.*.attention.wv.weight",    0, 0},
    {"model.layers.*.self_attn.o_proj.weight",         "layers.*.attention.wo.weight",    0, 0},
    {"model.layers.*.post_attention_layernorm.weight", "layers.*.ffn_norm.weight",        0, 0},
    {"model.layers.*.mlp.gate_proj.weight",            "layers.*.feed_forward.w1.weight", 0, 0},
    {"model.layers.*.mlp.up_proj.weight",              "layers.*.feed_forward.w3.weight", 0, 0},
    {"model.layers.*.mlp.down_proj.weight",            "layers.*.feed_forward.w2.weight", 0, 0},
};

static const tt_model_meta meta = {sizeof meta, meta_names, TT_COUNT(meta_names),
                                   sizeof meta_names[0]};

#endif
