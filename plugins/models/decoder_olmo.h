/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_MODELS_DECODER_OLMO_H
#define TT_MODELS_DECODER_OLMO_H
#include "decoder.h"

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

#endif
