/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_MODELS_DECODER_OLMO_H
#define TT_MODELS_DECODER_OLMO_H
#include "decoder.h"
#include "decoder_gguf.h"

/* What OLMo 2 and 3 share: norms only after attention and the feed-forward layer, and a norm of all
 * queries and of all keys before the rotary positions. */

static const decoder_norms olmo_norms = {NULL, "post_attention_layernorm", NULL,
                                         "post_feedforward_layernorm"};

static const decoder_kind olmo_kind = {
    .qk_norm = DECODER_QK_ALL, .norms = &olmo_norms, .init = decoder_init_flat};

/* The values of keys that a config.json leaves out; more: further members, with a comma first. */
#define OLMO_DEFAULTS(theta, more)                                                                 \
    "{\"hidden_size\": 4096, \"intermediate_size\": 11008, \"num_hidden_layers\": 32, "            \
    "\"num_attention_heads\": 32, \"num_key_value_heads\": null, \"head_dim\": null, "             \
    "\"vocab_size\": 50304, \"rms_norm_eps\": 1e-5, \"rope_theta\": " theta more                   \
    ", \"tie_word_embeddings\": false}"
#define OLMO_FIXED                                                                                 \
    "{\"hidden_act\": \"silu\", \"attention_bias\": false, \"partial_rotary_factor\": 1.0, "       \
    "\"clip_qkv\": null, \"quantization_config\": null}"

static const tt_tensor_name olmo_gguf_names[] = {
    DECODER_GGUF_SHARED(0),
    DECODER_GGUF_NORMS_AFTER,
    DECODER_GGUF_QK_NORMS,
};

/* The keys of llama.cpp's "olmo2", which OLMo 3 is, too. */
static inline tt_status olmo_gguf_keys(const void *cfg, char *json, size_t size, tt_error *err)
{
    const decoder *c = cfg;
    char more[64];
    json_text t = {more, sizeof more, 0};
    TT_TRY(decoder_check_gguf_head(c, err));
    TT_TRY(decoder_check_gguf_width(c, err));
    if (c->window)
        TT_TRY(decoder_add_gguf_window(&t, c, 4, err));
    return decoder_gguf_keys(c, 0, t.n ? more : "", json, size, err);
}

static const tt_model_gguf olmo_gguf = DECODER_GGUF("olmo2", olmo_gguf_names, olmo_gguf_keys, NULL);

#endif
