/* SPDX-License-Identifier: Apache-2.0 */
#include "decoder.h"
#include "decoder_gguf.h"

/* gemma (the first): the decoder of decoder.h with GeGLU, embeddings multiplied by the root of their
 * width, and norms that multiply by 1 + weight. Source: Gemma Team 2024, arXiv:2403.08295; initial
 * values as transformers'. */

static const tt_option options[] = {
    DECODER_OPTIONS("6", "1", "64", "1e-6", "10000.0", "true"),
    DECODER_HIDDEN_OPTION("896"),
};

#define FLAVOR(name, dim, layers, heads, kv_heads, hidden)                                         \
    {                                                                                              \
        name, "{\"dim\": " #dim ", \"n_layers\": " #layers ", \"n_heads\": " #heads                \
              ", \"n_kv_heads\": " #kv_heads ", \"hidden_dim\": " #hidden                          \
              ", \"head_dim\": 256, \"vocab_size\": 256000}"                                       \
    }

static const tt_flavor flavors[] = {
    {"debugmodel", "{\"dim\": 256, \"vocab_size\": 2048, \"n_layers\": 6, \"n_heads\": 4, "
                   "\"n_kv_heads\": 1, \"head_dim\": 64, \"hidden_dim\": 896}"},
    FLAVOR("2B", 2048, 18, 8, 1, 16384),
    FLAVOR("7B", 3072, 28, 16, 16, 24576),
};

static const decoder_kind kind = {.norms_from_one = true,
                                  .scaled_embedding = true,
                                  .activation = tt_gelu_tanh,
                                  .init = decoder_init_flat};

static void gemma_describe(const void *cfg, tt_builder *b)
{
    decoder_describe(&kind, cfg, b);
}

static tt_status gemma_config_json(const void *cfg, char *json, size_t size, tt_error *err)
{
    return decoder_config_json(cfg, "GemmaForCausalLM", "gemma",
                               "\"hidden_act\": \"gelu_pytorch_tanh\",\n  "
                               "\"hidden_activation\": \"gelu_pytorch_tanh\",\n  "
                               "\"attention_bias\": false",
                               json, size, err);
}

/* transformers takes "gelu" for the tanh approximation here. */
static const tt_model_hf hf = {
    sizeof hf,
    "gemma",
    "{\"hidden_size\": 3072, \"intermediate_size\": 24576, \"num_hidden_layers\": 28, "
    "\"num_attention_heads\": 16, \"num_key_value_heads\": 16, \"head_dim\": 256, "
    "\"vocab_size\": 256000, \"rms_norm_eps\": 1e-6, \"rope_theta\": 10000.0, "
    "\"tie_word_embeddings\": true}",
    "{\"hidden_act\": [\"gelu_pytorch_tanh\", \"gelu\"], "
    "\"hidden_activation\": [\"gelu_pytorch_tanh\", null], \"attention_bias\": false, "
    "\"use_bidirectional_attention\": [false, null], \"partial_rotary_factor\": 1.0, "
    "\"quantization_config\": null}",
    gemma_config_json,
    "model."};

static const tt_tensor_name gguf_names[] = {
    DECODER_GGUF_NAMES(0),
};

static const tt_model_gguf gguf =
    DECODER_GGUF_MORE("gemma", gguf_names, decoder_gguf_keys_qwen, NULL, "norm.weight", NULL);

static const void *gemma_extension(const char *id)
{
    return decoder_extension(id, &hf, &gguf, NULL);
}

static const tt_model_vt vt = DECODER_VT(flavors, decoder_finish, gemma_describe);

static const tt_component components[] = {
    TT_COMPONENT_EXT(TT_KIND_MODEL, "gemma", "Gemma: GeGLU, scaled embeddings, norms by 1 + weight",
                     decoder, options, &vt, gemma_extension),
};

TT_PLUGIN("gemma", "1.0", components);
