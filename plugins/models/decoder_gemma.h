/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_MODELS_DECODER_GEMMA_H
#define TT_MODELS_DECODER_GEMMA_H
#include "decoder.h"
#include "decoder_gguf.h"

/* What Gemma 2 and 3 share besides decoder.h: norms on both sides of attention and the feed-forward
 * layer, and their keys in config.json. */

static const decoder_norms gemma_norms_around = {"input_layernorm", "post_attention_layernorm",
                                                 "pre_feedforward_layernorm",
                                                 "post_feedforward_layernorm"};

#define GEMMA_ACTIVATION "\"hidden_activation\": \"gelu_pytorch_tanh\""
/* The keys that have one value. */
#define GEMMA_FIXED                                                                                \
    "\"attention_bias\": false, \"partial_rotary_factor\": 1.0, "                                  \
    "\"use_bidirectional_attention\": [false, null], \"quantization_config\": null"

/* A member that may be null. */
static inline void gemma_add_cap(json_text *t, const char *key, double cap)
{
    json_add(t, ",\n  ");
    if (cap > 0.0)
        json_add_real(t, key, cap);
    else
        json_add(t, "\"%s\": null", key);
}

static inline void gemma_add_windows(json_text *t, const decoder *c)
{
    json_add(t, ",\n  \"sliding_window\": %lld", (long long)c->window);
    decoder_add_layer_types(t, c);
}

/* tt_model_vt.finish */
static inline tt_status gemma_finish_windows(void *cfg, tt_error *err)
{
    decoder *c = cfg;
    c->use_sliding_window = true; /* layer_types or sliding_window_pattern says in which layers */
    return decoder_finish(c, err);
}

#endif
