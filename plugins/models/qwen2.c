/* SPDX-License-Identifier: Apache-2.0 */
#include "decoder.h"
#include "decoder_gguf.h"

/* qwen2: the decoder of decoder.h with biases in q, k and v, and optional sliding windows in its
 * later layers. For Qwen 2 and 2.5; the flavors are the base models of 2.5. Source: Yang et al.
 * 2024, arXiv:2407.10671 and arXiv:2412.15115; initial values as qwen3's. */

static const tt_option options[] = {
    DECODER_OPTIONS("6", "4", "null", "1e-6", "1000000.0", "true"),
    DECODER_HIDDEN_OPTION("768"),
    DECODER_WINDOW_OPTIONS,
};

#define FLAVOR(name, dim, layers, heads, kv_heads, hidden, vocab, eps, tied)                       \
    {                                                                                              \
        name,                                                                                      \
            "{\"dim\": " #dim ", \"n_layers\": " #layers ", \"n_heads\": " #heads                  \
            ", \"n_kv_heads\": " #kv_heads ", \"hidden_dim\": " #hidden                            \
            ", \"vocab_size\": " #vocab ", \"norm_eps\": " #eps ", \"tie_embeddings\": " #tied "}" \
    }

static const tt_flavor flavors[] = {
    {"debugmodel", "{\"dim\": 256, \"n_layers\": 6, \"n_heads\": 16, \"n_kv_heads\": 4, "
                   "\"hidden_dim\": 768, \"vocab_size\": 2048}"},
    FLAVOR("0.5B", 896, 24, 14, 2, 4864, 151936, 1e-6, true),
    FLAVOR("1.5B", 1536, 28, 12, 2, 8960, 151936, 1e-6, true),
    FLAVOR("3B", 2048, 36, 16, 2, 11008, 151936, 1e-6, true),
    FLAVOR("7B", 3584, 28, 28, 4, 18944, 152064, 1e-6, false),
    FLAVOR("14B", 5120, 48, 40, 8, 13824, 152064, 1e-5, false),
    FLAVOR("32B", 5120, 64, 40, 8, 27648, 152064, 1e-5, false),
    FLAVOR("72B", 8192, 80, 64, 8, 29568, 152064, 1e-5, false),
};

static const decoder_kind kind = {.qkv_bias = true, .init = decoder_init_normal};

static void qwen2_describe(const void *cfg, tt_builder *b)
{
    decoder_describe(&kind, cfg, b);
}

static tt_status qwen2_config_json(const void *cfg, char *json, size_t size, tt_error *err)
{
    return decoder_config_json_windows(cfg, "Qwen2ForCausalLM", "qwen2", "", json, size, err);
}

static const tt_model_hf hf = {
    sizeof hf,
    "qwen2",
    DECODER_QWEN_DEFAULTS("null"),
    "{\"hidden_act\": \"silu\", \"use_mrope\": false, \"partial_rotary_factor\": 1.0, "
    "\"quantization_config\": null}",
    qwen2_config_json,
    "model."};

static const tt_tensor_name gguf_names[] = {
    DECODER_GGUF_NAMES(0),
    DECODER_GGUF_QKV_BIASES(0),
};

static const tt_model_gguf gguf = DECODER_GGUF("qwen2", gguf_names, decoder_gguf_keys_qwen, NULL);

static const void *qwen2_extension(const char *id)
{
    return decoder_extension(id, &hf, &gguf, NULL);
}

static const tt_model_vt vt = DECODER_VT(flavors, decoder_finish, qwen2_describe);

static const tt_component components[] = {
    TT_COMPONENT_EXT(TT_KIND_MODEL, "qwen2",
                     "Qwen 2 and 2.5: Llama's block with biases of q, k and v", decoder, options,
                     &vt, qwen2_extension),
};

TT_PLUGIN("qwen2", "1.0", components);
