/* SPDX-License-Identifier: Apache-2.0 */
#include "decoder_moe_gguf.h"

/* mixtral: mistral's block with a mixture of experts (moe.h) as the feed-forward layer: softmax of all
 * experts' scores, the weights of the chosen ones divided by their sum. Source: Jiang et al. 2024,
 * arXiv:2401.04088. */

static const tt_option options[] = {
    DECODER_OPTIONS("6", "4", "null", "1e-5", "1000000.0", "false"),
    TT_OPTION_MORE(decoder, hidden_dim, TT_OPT_INT, "768", 1, DECODER_MAX_DIM, NULL, 0,
                   "intermediate_size|moe_intermediate_size", "hidden width of an expert"),
    TT_OPTION_MORE(decoder, sliding_window, TT_OPT_INT, "null", 1, 2147483647.0, NULL,
                   TT_OPT_NULLABLE, NULL,
                   "a token sees this many, itself among them; null: all before it"),
    MOE_COUNT_OPTIONS(decoder_moe, moe, "8", "2"),
    MOE_NORM_OPTION(decoder_moe, moe, "true"),
    MOE_ROUTER_OPTIONS(decoder_moe, moe, "false"),
    MOE_LOSS_OPTIONS(decoder_moe, moe),
};

/* All flavors have 8 key/value heads, 8 experts and 2 choices. */
#define FLAVOR(name, dim, layers, heads, hidden, vocab)                                            \
    {                                                                                              \
        name, "{\"dim\": " #dim ", \"n_layers\": " #layers ", \"n_heads\": " #heads                \
              ", \"n_kv_heads\": 8, \"hidden_dim\": " #hidden ", \"vocab_size\": " #vocab "}"      \
    }

static const tt_flavor flavors[] = {
    {"debugmodel", "{\"dim\": 256, \"n_layers\": 6, \"n_heads\": 16, \"n_kv_heads\": 4, "
                   "\"hidden_dim\": 768, \"vocab_size\": 2048}"},
    FLAVOR("8x7B", 4096, 32, 32, 14336, 32000),
    FLAVOR("8x22B", 6144, 56, 48, 16384, 32000),
    FLAVOR("8x22B-v0.3", 6144, 56, 48, 16384, 32768),
};

static const moe_names names = {"block_sparse_moe", "gate", "w1", "w3", "w2", NULL};

static const decoder_kind kind = {.init = decoder_init_normal,
                                  .feed_forward = decoder_moe_feed_forward};

static tt_status mixtral_finish(void *cfg, tt_error *err)
{
    decoder_moe *c = cfg;
    c->moe.hidden_dim = c->d.hidden_dim;
    c->d.use_sliding_window = true; /* max_window_layers stays 0: every layer slides */
    TT_TRY(moe_finish(&c->moe, err));
    return decoder_finish(&c->d, err);
}

static void mixtral_describe(const void *cfg, tt_builder *b)
{
    decoder_moe_describe(&kind, cfg, &names, b);
}

static tt_status mixtral_config_json(const void *cfg, char *json, size_t size, tt_error *err)
{
    const decoder_moe *c = cfg;
    const moe_config theirs = {.norm_topk_prob = true};
    char more[512];
    TT_TRY(moe_hf_router(&c->moe, &theirs, "Mixtral", err));
    json_text t = {more, sizeof more, 0};
    json_add(&t,
             c->d.window ? DECODER_SILU ",\n  \"sliding_window\": %lld"
                         : DECODER_SILU ",\n  \"sliding_window\": null",
             (long long)c->d.window);
    json_add(&t, ",\n  \"num_local_experts\": %lld,\n  \"router_jitter_noise\": 0.0",
             (long long)c->moe.experts);
    decoder_moe_json(&t, &c->moe);
    return decoder_config_json(&c->d, "MixtralForCausalLM", "mixtral", more, json, size, err);
}

static const tt_model_hf hf = {
    sizeof hf,
    "mixtral",
    "{\"hidden_size\": 4096, \"intermediate_size\": 14336, \"num_hidden_layers\": 32, "
    "\"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"head_dim\": null, "
    "\"vocab_size\": 32000, \"rms_norm_eps\": 1e-5, \"rope_theta\": 1000000.0, "
    "\"sliding_window\": null, \"tie_word_embeddings\": false, \"num_local_experts\": 8, "
    "\"num_experts_per_tok\": 2}",
    "{\"hidden_act\": \"silu\", \"attention_bias\": false, \"partial_rotary_factor\": 1.0, "
    "\"router_jitter_noise\": 0.0, \"quantization_config\": null}",
    mixtral_config_json,
    "model."};

static const tt_tensor_name gguf_names[] = {
    DECODER_GGUF_NAMES(1),
    DECODER_GGUF_EXPERTS("block_sparse_moe", "gate", "w1", "w3", "w2"),
};

static tt_status mixtral_gguf_keys(const void *cfg, char *json, size_t size, tt_error *err)
{
    return decoder_moe_softmax_gguf_keys(cfg, DECODER_GGUF_LLAMA3 | DECODER_GGUF_LONGROPE, json,
                                         size, err);
}

static const tt_model_gguf gguf = DECODER_GGUF_MORE(
    "llama", gguf_names, mixtral_gguf_keys, decoder_rope_factors, NULL, decoder_gguf_longrope);

static const void *mixtral_extension(const char *id)
{
    return decoder_extension(id, &hf, &gguf, NULL);
}

static const tt_model_vt vt = DECODER_VT(flavors, mixtral_finish, mixtral_describe);

static const tt_component components[] = {
    TT_COMPONENT_EXT(TT_KIND_MODEL, "mixtral",
                     "Mixtral: Mistral's block with routed feed-forward layers", decoder_moe,
                     options, &vt, mixtral_extension),
};

TT_PLUGIN("mixtral", "1.0", components);
