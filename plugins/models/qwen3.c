/* SPDX-License-Identifier: Apache-2.0 */
#include "decoder.h"
#include "decoder_gguf.h"

/* qwen3 (dense): the decoder of decoder.h; each query and key head is normalized before the rotary
 * positions, and the width of heads is independent of the model's width. Source: Yang et al. 2025,
 * arXiv:2505.09388; initial values as torchtitan's. */

static const tt_option options[] = {
    DECODER_OPTIONS("8", "8", "128", "1e-6", "1000000.0", "true"),
    DECODER_HIDDEN_OPTION("3072"),
    DECODER_WINDOW_OPTIONS,
    DECODER_ATTENTION_BIAS_OPTION,
};

/* All flavors share 8 key/value heads of 128 and a vocabulary. */
#define FLAVOR(name, dim, layers, heads, hidden, tied)                                             \
    {                                                                                              \
        name, "{\"dim\": " #dim ", \"n_layers\": " #layers ", \"n_heads\": " #heads                \
              ", \"n_kv_heads\": 8, \"hidden_dim\": " #hidden                                      \
              ", \"vocab_size\": 151936, \"tie_embeddings\": " #tied "}"                           \
    }

static const tt_flavor flavors[] = {
    {"debugmodel", "{\"dim\": 256, \"n_layers\": 8, \"n_heads\": 16, \"n_kv_heads\": 8, "
                   "\"hidden_dim\": 3072, \"vocab_size\": 2048}"},
    FLAVOR("0.6B", 1024, 28, 16, 3072, true),
    FLAVOR("1.7B", 2048, 28, 16, 6144, true),
    FLAVOR("4B", 2560, 36, 32, 9728, true),
    FLAVOR("8B", 4096, 36, 32, 12288, false),
    FLAVOR("14B", 5120, 40, 40, 17408, false),
    FLAVOR("32B", 5120, 64, 64, 25600, false),
};

static const decoder_kind kind = {.qk_norm = DECODER_QK_HEADS, .init = decoder_init_normal};

static void qwen3_describe(const void *cfg, tt_builder *b)
{
    decoder_describe(&kind, cfg, b);
}

static tt_status qwen3_config_json(const void *cfg, char *json, size_t size, tt_error *err)
{
    const decoder *c = cfg;
    const char *bias =
        c->attention_bias ? "\"attention_bias\": true,\n  " : "\"attention_bias\": false,\n  ";
    return decoder_config_json_windows(c, "Qwen3ForCausalLM", "qwen3", bias, json, size, err);
}

static const tt_model_hf hf = {sizeof hf,
                               "qwen3",
                               DECODER_QWEN_DEFAULTS("128"),
                               "{\"hidden_act\": \"silu\", \"partial_rotary_factor\": 1.0, "
                               "\"quantization_config\": null}",
                               qwen3_config_json,
                               "model."};

static const tt_tensor_name gguf_names[] = {
    DECODER_GGUF_NAMES(0),
    DECODER_GGUF_QK_NORMS,
};

static const tt_model_gguf gguf = DECODER_GGUF("qwen3", gguf_names, decoder_gguf_keys_qwen, NULL);

static const void *qwen3_extension(const char *id)
{
    return decoder_extension(id, &hf, &gguf, NULL);
}

static const tt_model_vt vt = DECODER_VT(flavors, decoder_finish, qwen3_describe);

static const tt_component components[] = {
    TT_COMPONENT_EXT(TT_KIND_MODEL, "qwen3",
                     "Qwen 3, dense: Llama's block with normed query and key heads", decoder,
                     options, &vt, qwen3_extension),
};

TT_PLUGIN("qwen3", "1.0", components);
