/* SPDX-License-Identifier: Apache-2.0 */
#include "decoder.h"
#include "decoder_gguf.h"
#include "decoder_meta.h"

/* mistral: the decoder of decoder.h; if sliding_window is set, every layer has the window. Source:
 * Jiang et al. 2023, arXiv:2310.06825; initial values as qwen3's. */

static const tt_option options[] = {
    DECODER_OPTIONS("6", "4", "null", "1e-5", "1000000.0", "false"),
    DECODER_HIDDEN_OPTION("768"),
    TT_OPTION_MORE(decoder, sliding_window, TT_OPT_INT, "null", 1, 2147483647.0, NULL,
                   TT_OPT_NULLABLE, NULL,
                   "a token sees this many, itself among them; null: all before it"),
};

/* All flavors have 8 key/value heads. */
#define FLAVOR(name, dim, layers, heads, head_dim, hidden, vocab, theta, window)                   \
    {                                                                                              \
        name, "{\"dim\": " #dim ", \"n_layers\": " #layers ", \"n_heads\": " #heads                \
              ", \"n_kv_heads\": 8, \"head_dim\": " #head_dim ", \"hidden_dim\": " #hidden         \
              ", \"vocab_size\": " #vocab ", \"rope_theta\": " #theta                              \
              ", \"sliding_window\": " #window "}"                                                 \
    }

static const tt_flavor flavors[] = {
    {"debugmodel", "{\"dim\": 256, \"n_layers\": 6, \"n_heads\": 16, \"n_kv_heads\": 4, "
                   "\"hidden_dim\": 768, \"vocab_size\": 2048}"},
    FLAVOR("7B-v0.1", 4096, 32, 32, 128, 14336, 32000, 1e4, 4096),
    FLAVOR("7B-v0.2", 4096, 32, 32, 128, 14336, 32000, 1e6, null),
    FLAVOR("7B-v0.3", 4096, 32, 32, 128, 14336, 32768, 1e6, null),
    FLAVOR("Nemo", 5120, 40, 32, 128, 14336, 131072, 1e6, null),
    FLAVOR("Small-24B", 5120, 40, 32, 128, 32768, 131072, 1e8, null),
};

static tt_status mistral_finish(void *cfg, tt_error *err)
{
    decoder *c = cfg;
    c->use_sliding_window = true; /* max_window_layers stays 0: every layer slides */
    return decoder_finish(c, err);
}

static const decoder_kind kind = {.init = decoder_init_normal};

static void mistral_describe(const void *cfg, tt_builder *b)
{
    decoder_describe(&kind, cfg, b);
}

static tt_status mistral_config_json(const void *cfg, char *json, size_t size, tt_error *err)
{
    const decoder *c = cfg;
    char window[96];
    snprintf(window, sizeof window,
             c->window ? DECODER_SILU ",\n  \"sliding_window\": %lld"
                       : DECODER_SILU ",\n  \"sliding_window\": null",
             (long long)c->window);
    return decoder_config_json(c, "MistralForCausalLM", "mistral", window, json, size, err);
}

static const tt_model_hf hf = {
    sizeof hf,
    "mistral",
    "{\"hidden_size\": 4096, \"intermediate_size\": 14336, \"num_hidden_layers\": 32, "
    "\"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"head_dim\": null, "
    "\"vocab_size\": 32000, \"rms_norm_eps\": 1e-6, \"rope_theta\": 10000.0, "
    "\"sliding_window\": 4096, \"tie_word_embeddings\": false}",
    "{\"hidden_act\": \"silu\", \"attention_bias\": false, \"layer_types\": null, "
    "\"partial_rotary_factor\": 1.0, \"quantization_config\": null}",
    mistral_config_json,
    "model."};

static const tt_tensor_name gguf_names[] = {
    DECODER_GGUF_NAMES(1),
};

static const tt_model_gguf gguf =
    DECODER_GGUF_MORE("llama", gguf_names, decoder_gguf_keys_llama, decoder_rope_factors, NULL,
                      decoder_gguf_longrope);

static const void *mistral_extension(const char *id)
{
    return decoder_extension(id, &hf, &gguf, &meta);
}

static const tt_model_vt vt = DECODER_VT(flavors, mistral_finish, mistral_describe);

static const tt_component components[] = {
    TT_COMPONENT_EXT(TT_KIND_MODEL, "mistral",
                     "Mistral: Llama's block, with an optional sliding window", decoder, options,
                     &vt, mistral_extension),
};

TT_PLUGIN("mistral", "1.0", components);
