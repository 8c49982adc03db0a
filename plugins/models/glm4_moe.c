/* SPDX-License-Identifier: Apache-2.0 */
#include "decoder_moe_gguf.h"

/* glm4_moe: GLM-4.5, 4.5-Air and 4.6: heads that are rotated in part and, in the large ones, normalised,
 * and DeepSeek-V3's feed-forward layers: dense ones first, then mixtures of experts (moe.h) with shared
 * experts, sigmoid routers, a bias for the choice and blocks of multi-token prediction (mtp.h). Source:
 * GLM-4.5 Team 2025, arXiv:2508.06471; names as in transformers. */

typedef struct {
    decoder_moe m; /* first: the functions of decoder.h take this struct */
    bool attention_bias, use_qk_norm;
} glm;

static const tt_option options[] = {
    DECODER_OPTIONS("6", "4", "null", "1e-5", "1000000.0", "false"),
    DECODER_HIDDEN_OPTION("512"),
    TT_OPTION(decoder, partial_rotary_factor, TT_OPT_FLOAT, "0.5", 1e-3, 1,
              "the part of each head that is rotated"),
    TT_OPTION(glm, attention_bias, TT_OPT_BOOL, "true", 0, 0,
              "q_proj, k_proj and v_proj have biases"),
    TT_OPTION(glm, use_qk_norm, TT_OPT_BOOL, "true", 0, 0,
              "each head of queries and keys is normalised before it is rotated"),
    MOE_OPTIONS(glm, m.moe, "8", "3", "128"),
    DECODER_MOE_DENSE_FIRST_OPTIONS(glm, m, "1"),
    MOE_NORM_OPTION(glm, m.moe, "true"),
    MOE_BIAS_OPTIONS(glm, m.moe),
    MOE_BALANCE_OPTIONS(glm, m.moe),
};

/* GLM-4.6 has 4.5's sizes. Their releases: https://huggingface.co/zai-org/GLM-4.5/blob/main/config.json,
 * GLM-4.5-Air and GLM-4.6 likewise. All have one block of multi-token prediction, which is trained if
 * num_nextn_predict_layers is 1. */
#define LARGE                                                                                      \
    "{\"dim\": 5120, \"n_layers\": 92, \"n_heads\": 96, \"n_kv_heads\": 8, \"head_dim\": 128, "    \
    "\"hidden_dim\": 12288, \"vocab_size\": 151552, \"first_k_dense_replace\": 3, "                \
    "\"num_experts\": 160, \"num_experts_per_tok\": 8, \"moe_intermediate_size\": 1536, "          \
    "\"routed_scaling_factor\": 2.5}"

static const tt_flavor flavors[] = {
    {"debugmodel", "{\"dim\": 256, \"n_layers\": 6, \"n_heads\": 16, \"n_kv_heads\": 4, "
                   "\"hidden_dim\": 512, \"vocab_size\": 2048}"          },
    {"4.5-Air",
     "{\"dim\": 4096, \"n_layers\": 46, \"n_heads\": 96, \"n_kv_heads\": 8, \"head_dim\": 128, "
     "\"hidden_dim\": 10944, \"vocab_size\": 151552, \"num_experts\": 128, "
     "\"num_experts_per_tok\": 8, \"moe_intermediate_size\": 1408, \"use_qk_norm\": false}"},
    {"4.5",        LARGE                                                                   },
    {"4.6",        LARGE                                                                   },
};

static tt_status glm_finish(void *cfg, tt_error *err)
{
    glm *c = cfg;
    c->m.moe.score = MOE_SIGMOID;
    c->m.moe.choice_bias = true;
    TT_TRY(decoder_moe_finish_dense_first(&c->m, err));
    return decoder_finish(&c->m.d, err);
}

static void glm_describe(const void *cfg, tt_builder *b)
{
    const glm *c = cfg;
    const decoder_kind kind = {.qkv_bias = c->attention_bias,
                               .qk_norm = c->use_qk_norm ? DECODER_QK_HEADS : DECODER_QK_NOT,
                               .init = decoder_init_normal,
                               .feed_forward = decoder_moe_feed_forward};
    decoder_moe_describe(&kind, &c->m, &moe_names_qwen, b);
}

static tt_status glm_config_json(const void *cfg, char *json, size_t size, tt_error *err)
{
    const glm *c = cfg;
    char more[2048];
    json_text t = {more, sizeof more, 0};
    json_add(&t, DECODER_SILU ",\n  \"attention_bias\": %s,\n  \"use_qk_norm\": %s,\n  ",
             c->attention_bias ? "true" : "false", c->use_qk_norm ? "true" : "false");
    json_add_real(&t, "partial_rotary_factor",
                  (double)c->m.d.rope.rotary_dim / (double)c->m.d.rope.head_dim);
    decoder_moe_json_dense_first(&t, &c->m);
    TT_TRY(decoder_text_fits(&t, err));
    return decoder_config_json(&c->m.d, "Glm4MoeForCausalLM", "glm4_moe", more, json, size, err);
}

static const tt_model_hf hf = {
    sizeof hf,
    "glm4_moe",
    "{\"hidden_size\": 4096, \"intermediate_size\": 10944, \"moe_intermediate_size\": 1408, "
    "\"num_hidden_layers\": 46, \"num_attention_heads\": 96, \"num_key_value_heads\": 8, "
    "\"head_dim\": null, \"n_shared_experts\": 1, \"n_routed_experts\": 128, "
    "\"num_experts_per_tok\": 8, \"routed_scaling_factor\": 1.0, \"n_group\": 1, "
    "\"topk_group\": 1, \"first_k_dense_replace\": 1, \"norm_topk_prob\": true, "
    "\"use_qk_norm\": false, \"attention_bias\": false, \"partial_rotary_factor\": 0.5, "
    "\"vocab_size\": 151552, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0, "
    "\"tie_word_embeddings\": false}",
    "{\"hidden_act\": \"silu\", \"scoring_func\": \"sigmoid\", \"topk_method\": \"noaux_tc\", "
    "\"quantization_config\": null}",
    glm_config_json,
    "model."};

static const tt_tensor_name gguf_names[] = {
    DECODER_GGUF_SHARED(0),
    DECODER_GGUF_QKV_BIASES(0),
    DECODER_GGUF_QK_NORMS,
    DECODER_GGUF_EXPERTS("mlp", "gate", "gate_proj", "up_proj", "down_proj"),
    DECODER_GGUF_SHARED_EXPERTS,
    {"model.layers.*.input_layernorm.weight",          "blk.*.attn_norm.weight",              0, 0},
    {"model.layers.*.post_attention_layernorm.weight", "blk.*.post_attention_norm.weight",    0, 0},
    {"model.layers.*.enorm.weight",                    "blk.*.nextn.enorm.weight",            0, 0},
    {"model.layers.*.hnorm.weight",                    "blk.*.nextn.hnorm.weight",            0, 0},
    {"model.layers.*.eh_proj.weight",                  "blk.*.nextn.eh_proj.weight",          0, 0},
    {"model.layers.*.shared_head.norm.weight",         "blk.*.nextn.shared_head_norm.weight", 0, 0},
};

/* The blocks of multi-token prediction are counted among the model's. */
static tt_status glm_gguf_keys(const void *cfg, char *json, size_t size, tt_error *err)
{
    const glm *c = cfg;
    const moe_config *e = &c->m.moe, theirs = {.score = MOE_SIGMOID,
                                               .norm_topk_prob = e->norm_topk_prob,
                                               .route_scale = e->route_scale,
                                               .groups = e->groups,
                                               .group_score = MOE_GROUP_TOP2,
                                               .choice_bias = true};
    decoder d = c->m.d;
    char more[512];
    json_text t = {more, sizeof more, 0};
    TT_TRY(decoder_moe_gguf_router(e, &theirs, err));
    d.n_layers += d.mtp_blocks;
    decoder_moe_add_gguf_dense_first(&t, &c->m);
    json_add(&t, ", \"nextn_predict_layers\": %lld", (long long)d.mtp_blocks);
    return decoder_gguf_keys(&d, 0, more, json, size, err);
}

static const tt_model_gguf gguf = DECODER_GGUF("glm4moe", gguf_names, glm_gguf_keys, NULL);

static const void *glm_extension(const char *id)
{
    if (!strcmp(id, TT_MODEL_HF_IF))
        return &decoder_moe_mtp_if;
    return decoder_extension(id, &hf, &gguf, NULL);
}

static const tt_model_vt vt = DECODER_VT(flavors, glm_finish, glm_describe);

static const tt_component components[] = {
    TT_COMPONENT_EXT(TT_KIND_MODEL, "glm4_moe",
                     "GLM-4.5 and 4.6: heads rotated in part, routed and shared experts", glm,
                     options, &vt, glm_extension),
};

TT_PLUGIN("glm4_moe", "1.0", components);
