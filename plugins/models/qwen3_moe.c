/* SPDX-License-Identifier: Apache-2.0 */
#include "decoder_moe_gguf.h"
#include "decoder_titan.h"

/* qwen3_moe: qwen3's block with a mixture of experts (moe.h) as the feed-forward layer, in all layers
 * or in those that decoder_sparse_step and mlp_only_layers say; the others have qwen3's layer. Source:
 * Yang et al. 2025, arXiv:2505.09388. */

static const tt_option options[] = {
    DECODER_OPTIONS("8", "8", "128", "1e-6", "1000000.0", "false"),
    DECODER_HIDDEN_OPTION("3072"),
    DECODER_ATTENTION_BIAS_OPTION,
    TT_OPTION(decoder, use_sliding_window, TT_OPT_BOOL, "false", 0, 0,
              "whether sliding_window is used"),
    TT_OPTION_MORE(decoder, sliding_window, TT_OPT_INT, "4096", 1, 2147483647.0, NULL,
                   TT_OPT_NULLABLE, NULL,
                   "a token sees this many, itself among them; null: all before it"),
    MOE_OPTIONS(decoder_moe, moe, "64", "8", "768"),
    MOE_NORM_OPTION(decoder_moe, moe, "true"),
    MOE_ROUTER_OPTIONS(decoder_moe, moe, "false"),
    TT_OPTION(decoder_moe, decoder_sparse_step, TT_OPT_INT, "1", 1, 65536,
              "of this many layers the last has experts, the others one feed-forward layer"),
    TT_OPTION_MORE(decoder_moe, mlp_only_layers, TT_OPT_JSON, "null", 0, 0, NULL, TT_OPT_NULLABLE,
                   NULL, "a list of the numbers of layers that have no experts in any case"),
    MOE_LOSS_OPTIONS(decoder_moe, moe),
};

/* debugmodel_moe is torchtitan's, of 316 million parameters. The released sizes share heads of 128, 8 choices and a vocabulary. */
#define FLAVOR(name, dim, layers, heads, kv, hidden, experts, width, theta)                        \
    {                                                                                              \
        name, "{\"dim\": " #dim ", \"n_layers\": " #layers ", \"n_heads\": " #heads                \
              ", \"n_kv_heads\": " #kv ", \"hidden_dim\": " #hidden ", \"num_experts\": " #experts \
              ", \"moe_intermediate_size\": " #width                                               \
              ", \"vocab_size\": 151936, \"rope_theta\": " #theta "}"                              \
    }

static const tt_flavor flavors[] = {
    {"debugmodel",
     "{\"dim\": 256, \"n_layers\": 4, \"n_heads\": 16, \"n_kv_heads\": 8, \"head_dim\": 32, "
     "\"hidden_dim\": 768, \"vocab_size\": 2048, \"num_experts\": 16, "
     "\"num_experts_per_tok\": 4, \"moe_intermediate_size\": 128}"            },
    {"debugmodel_moe", "{\"dim\": 256, \"n_layers\": 8, \"n_heads\": 16, \"n_kv_heads\": 8, "
                       "\"hidden_dim\": 3072, \"vocab_size\": 2048, \"num_experts\": 64, "
                       "\"moe_intermediate_size\": 768}"},
    FLAVOR("30B-A3B", 2048, 48, 32, 4, 6144, 128, 768, 1e6),
    FLAVOR("235B-A22B", 4096, 94, 64, 4, 12288, 128, 1536, 1e6),
    FLAVOR("235B-A22B-2507", 4096, 94, 64, 4, 12288, 128, 1536, 5e6),
    FLAVOR("Coder-30B-A3B", 2048, 48, 32, 4, 6144, 128, 768, 1e7),
    FLAVOR("Coder-480B-A35B", 6144, 62, 96, 8, 8192, 160, 2560, 1e7),
};

static const decoder_kind kind = {.qk_norm = DECODER_QK_HEADS,
                                  .init = decoder_init_normal,
                                  .feed_forward = decoder_moe_feed_forward};

static tt_status qwen3_moe_finish(void *cfg, tt_error *err)
{
    decoder_moe *c = cfg;
    TT_TRY(decoder_moe_finish_list(c, err));
    TT_TRY(moe_finish(&c->moe, err));
    return decoder_finish(&c->d, err); /* max_window_layers is 0: every layer has the window */
}

static void qwen3_moe_describe(const void *cfg, tt_builder *b)
{
    decoder_moe_describe(&kind, cfg, &moe_names_qwen, b);
}

static tt_status qwen3_moe_config_json(const void *cfg, char *json, size_t size, tt_error *err)
{
    const decoder_moe *c = cfg;
    const moe_config theirs = {.norm_topk_prob = c->moe.norm_topk_prob};
    char more[4096];
    TT_TRY(moe_hf_router(&c->moe, &theirs, "Qwen3Moe", err));
    json_text t = {more, sizeof more, 0};
    json_add(&t, DECODER_SILU ",\n  \"attention_bias\": %s,\n  \"use_sliding_window\": %s,\n  ",
             c->d.attention_bias ? "true" : "false", c->d.window ? "true" : "false");
    json_add(&t, c->d.window ? "\"sliding_window\": %lld" : "\"sliding_window\": null",
             (long long)c->d.window);
    json_add(&t, ",\n  \"num_experts\": %lld,\n  \"moe_intermediate_size\": %lld,\n  ",
             (long long)c->moe.experts, (long long)c->moe.hidden_dim);
    json_add(&t, "\"norm_topk_prob\": %s,\n  \"decoder_sparse_step\": %lld",
             c->moe.norm_topk_prob ? "true" : "false", (long long)c->decoder_sparse_step);
    json_add(&t, ",\n  \"mlp_only_layers\": %s", c->mlp_only_layers ? c->mlp_only_layers : "[]");
    decoder_moe_json(&t, &c->moe);
    TT_TRY(decoder_text_fits(&t, err));
    return decoder_config_json(&c->d, "Qwen3MoeForCausalLM", "qwen3_moe", more, json, size, err);
}

static const tt_model_hf hf = {
    sizeof hf,
    "qwen3_moe",
    "{\"hidden_size\": 2048, \"intermediate_size\": 6144, \"num_hidden_layers\": 24, "
    "\"num_attention_heads\": 32, \"num_key_value_heads\": 4, \"head_dim\": null, "
    "\"vocab_size\": 151936, \"rms_norm_eps\": 1e-6, \"rope_theta\": 10000.0, "
    "\"tie_word_embeddings\": false, \"num_experts\": 128, \"num_experts_per_tok\": 8, "
    "\"moe_intermediate_size\": 768, \"norm_topk_prob\": false}",
    "{\"hidden_act\": \"silu\", \"partial_rotary_factor\": 1.0, \"quantization_config\": null}",
    qwen3_moe_config_json,
    "model."};

static const tt_tensor_name gguf_names[] = {
    DECODER_GGUF_NAMES(0),
    DECODER_GGUF_QK_NORMS,
    DECODER_GGUF_EXPERTS("mlp", "gate", "gate_proj", "up_proj", "down_proj"),
};

static tt_status qwen3_moe_gguf_keys(const void *cfg, char *json, size_t size, tt_error *err)
{
    const decoder_moe *c = cfg;
    for (int64_t i = 0; i < c->d.n_layers; i++)
        if (!decoder_moe_has_experts(c, i))
            return TT_FAIL(err, TT_EUNSUPPORTED,
                           "model.args.%s: layer %lld has no experts; in llama.cpp every layer of "
                           "this architecture has some",
                           c->mlp_only_layers ? "mlp_only_layers" : "decoder_sparse_step",
                           (long long)i);
    return decoder_moe_softmax_gguf_keys(c, 0, json, size, err);
}

static const tt_model_gguf gguf = DECODER_GGUF("qwen3moe", gguf_names, qwen3_moe_gguf_keys, NULL);

static const tt_titan_name titan_names[] = {
    TITAN_COMMON,
    TITAN_MLP,
    TITAN_MOE,
    TITAN_QKV("q", "weight", 0),
    TITAN_QKV("k", "weight", 0),
    TITAN_QKV("v", "weight", 0),
    TITAN_LAYER("self_attn.q_norm.weight", "attention.q_norm.weight"),
    TITAN_LAYER("self_attn.k_norm.weight", "attention.k_norm.weight"),
};

static const tt_model_titan titan = {TITAN_TABLE(titan_names), NULL, NULL};

static const void *qwen3_moe_extension(const char *id)
{
    if (!strcmp(id, TT_MODEL_TITAN))
        return &titan;
    return decoder_extension(id, &hf, &gguf, NULL);
}

static const tt_model_vt vt = DECODER_VT(flavors, qwen3_moe_finish, qwen3_moe_describe);

static const tt_component components[] = {
    TT_COMPONENT_EXT(TT_KIND_MODEL, "qwen3_moe",
                     "Qwen 3, mixture of experts: qwen3's block with routed feed-forward layers",
                     decoder_moe, options, &vt, qwen3_moe_extension),
};

TT_PLUGIN("qwen3_moe", "1.0", components);
