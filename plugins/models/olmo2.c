/* SPDX-License-Identifier: Apache-2.0 */
#include "decoder_olmo.h"

/* olmo2: the decoder of decoder_olmo.h. Source: OLMo Team 2024, arXiv:2501.00656; initial values as
 * there. */

static const tt_option options[] = {
    DECODER_OPTIONS("6", "4", "null", "1e-6", "500000.0", "false"),
    DECODER_HIDDEN_OPTION("768"),
};

#define FLAVOR(name, dim, layers, heads, kv_heads, hidden)                                         \
    {                                                                                              \
        name, "{\"dim\": " #dim ", \"n_layers\": " #layers ", \"n_heads\": " #heads                \
              ", \"n_kv_heads\": " #kv_heads ", \"hidden_dim\": " #hidden                          \
              ", \"vocab_size\": 100352}"                                                          \
    }

static const tt_flavor flavors[] = {
    {"debugmodel", "{\"dim\": 256, \"vocab_size\": 2048, \"n_layers\": 6, \"n_heads\": 16, "
                   "\"n_kv_heads\": 4, \"hidden_dim\": 768}"},
    FLAVOR("1B", 2048, 16, 16, 16, 8192),
    FLAVOR("7B", 4096, 32, 32, 32, 11008),
    FLAVOR("13B", 5120, 40, 40, 40, 13824),
    FLAVOR("32B", 5120, 64, 40, 8, 27648),
};

static void olmo2_describe(const void *cfg, tt_builder *b)
{
    decoder_describe(&olmo_kind, cfg, b);
}

static tt_status olmo2_config_json(const void *cfg, char *json, size_t size, tt_error *err)
{
    return decoder_config_json(cfg, "Olmo2ForCausalLM", "olmo2",
                               DECODER_SILU ",\n  \"attention_bias\": false", json, size, err);
}

static const tt_model_hf hf = {sizeof hf,  "olmo2",           OLMO_DEFAULTS("10000.0", ""),
                               OLMO_FIXED, olmo2_config_json, "model."};

static const void *olmo2_extension(const char *id)
{
    return decoder_extension(id, &hf, &olmo_gguf, NULL);
}

static const tt_model_vt vt = DECODER_VT(flavors, decoder_finish, olmo2_describe);

static const tt_component components[] = {
    TT_COMPONENT_EXT(TT_KIND_MODEL, "olmo2",
                     "OLMo 2: norms after attention and the feed-forward layer, and of q and k",
                     decoder, options, &vt, olmo2_extension),
};

TT_PLUGIN("olmo2", "1.0", components);
