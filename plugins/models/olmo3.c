/* SPDX-License-Identifier: Apache-2.0 */
#include "decoder_olmo.h"

/* olmo3: OLMo 2 with a sliding window in three layers of four; rotary positions are scaled in the
 * others only. Source: OLMo Team 2025, arXiv:2512.13961; initial values as OLMo 2's. */

static const tt_option options[] = {
    DECODER_OPTIONS("8", "4", "null", "1e-6", "500000.0", "false"),
    DECODER_HIDDEN_OPTION("512"),
    DECODER_PATTERN_OPTIONS("4096", "4"),
};

#define FLAVOR(name, dim, layers, heads, kv_heads, hidden)                                         \
    {                                                                                              \
        name, "{\"dim\": " #dim ", \"n_layers\": " #layers ", \"n_heads\": " #heads                \
              ", \"n_kv_heads\": " #kv_heads ", \"hidden_dim\": " #hidden                          \
              ", \"vocab_size\": 100278}"                                                          \
    }

static const tt_flavor flavors[] = {
    {"debugmodel", "{\"dim\": 256, \"vocab_size\": 2048, \"n_layers\": 8, \"n_heads\": 16, "
                   "\"n_kv_heads\": 4, \"hidden_dim\": 512, \"sliding_window\": 128}"},
    FLAVOR("7B", 4096, 32, 32, 32, 11008),
    FLAVOR("32B", 5120, 64, 40, 8, 27648),
};

static tt_status olmo3_finish(void *cfg, tt_error *err)
{
    decoder *c = cfg;
    c->use_sliding_window = true; /* layer_types or sliding_window_pattern says in which layers */
    c->rope_local_base_freq = c->rope_theta;
    return decoder_finish(c, err);
}

static void olmo3_describe(const void *cfg, tt_builder *b)
{
    decoder_describe(&olmo_kind, cfg, b);
}

static tt_status olmo3_config_json(const void *cfg, char *json, size_t size, tt_error *err)
{
    const decoder *c = cfg;
    char more[8192];
    json_text t = {more, sizeof more, 0};
    json_add(&t, DECODER_SILU ",\n  \"attention_bias\": false,\n  \"sliding_window\": %lld",
             (long long)c->window);
    decoder_add_layer_types(&t, c);
    TT_TRY(decoder_text_fits(&t, err));
    return decoder_config_json(c, "Olmo3ForCausalLM", "olmo3", more, json, size, err);
}

static const tt_model_hf hf = {
    sizeof hf,  "olmo3",           OLMO_DEFAULTS("500000.0", ", \"sliding_window\": 4096"),
    OLMO_FIXED, olmo3_config_json, "model."};

static const void *olmo3_extension(const char *id)
{
    return decoder_extension(id, &hf, &olmo_gguf, NULL);
}

static const tt_model_vt vt = DECODER_VT(flavors, olmo3_finish, olmo3_describe);

static const tt_component components[] = {
    TT_COMPONENT_EXT(TT_KIND_MODEL, "olmo3",
                     "OLMo 3: OLMo 2 with a sliding window in three layers of four", decoder,
                     options, &vt, olmo3_extension),
};

TT_PLUGIN("olmo3", "1.0", components);
