/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_MODELS_DECODER_OPTIONS_H
#define TT_MODELS_DECODER_OPTIONS_H
#include "decoder_args.h"

/* The rows of the option tables of the models of decoder.h. */

/* The options that all these models have; defaults as JSON text. */
#define DECODER_OPTIONS(layers, kv_heads, head_width, eps, theta, tied)                            \
    TT_OPTION_MORE(decoder, dim, TT_OPT_INT, "256", 1, DECODER_MAX_DIM, NULL, 0, "hidden_size",    \
                   "width of the residual stream"),                                                \
        TT_OPTION_MORE(decoder, n_layers, TT_OPT_INT, layers, 1, 65536, NULL, 0,                   \
                       "num_hidden_layers", "number of blocks"),                                   \
        TT_OPTION_MORE(decoder, n_heads, TT_OPT_INT, "16", 1, 65536, NULL, 0,                      \
                       "num_attention_heads", "query heads"),                                      \
        TT_OPTION_MORE(decoder, n_kv_heads, TT_OPT_INT, kv_heads, 1, 65536, NULL, TT_OPT_NULLABLE, \
                       "num_key_value_heads",                                                      \
                       "key and value heads, a divisor of n_heads; null: n_heads"),                \
        TT_OPTION_MORE(decoder, head_dim, TT_OPT_INT, head_width, 2, 65536, NULL, TT_OPT_NULLABLE, \
                       NULL, "width of a head, even; null: dim/n_heads"),                          \
        TT_OPTION(decoder, vocab_size, TT_OPT_INT, "2048", 1, 2147483647.0,                        \
                  "rows of the embedding, at least the tokenizer's"),                              \
        TT_OPTION(decoder, attention_dropout, TT_OPT_FLOAT, "0", 0, 1,                             \
                  "in training, the share of the attention weights that is set to 0"),             \
        TT_OPTION_MORE(decoder, norm_eps, TT_OPT_FLOAT, eps, 1e-30, 1, NULL, 0, "rms_norm_eps",    \
                       "epsilon of the norms"),                                                    \
        TT_OPTION(decoder, rope_theta, TT_OPT_FLOAT, theta, 1, 1e18,                               \
                  "base of the rotary frequencies"),                                               \
        TT_OPTION_MORE(                                                                            \
            decoder, rope_scaling, TT_OPT_JSON, "null", 0, 0, NULL, TT_OPT_NULLABLE, NULL,         \
            "null, or as in Hugging Face's config.json: {\"rope_type\": \"llama3\", "              \
            "\"factor\": 8, \"low_freq_factor\": 1, \"high_freq_factor\": 4, "                     \
            "\"original_max_position_embeddings\": 8192}; also linear, yarn and longrope"),        \
        TT_OPTION_MORE(decoder, tie_embeddings, TT_OPT_BOOL, tied, 0, 0, NULL, 0,                  \
                       "tie_word_embeddings", "the output layer is the embedding")

#define DECODER_HIDDEN_OPTION(hidden)                                                              \
    TT_OPTION_MORE(decoder, hidden_dim, TT_OPT_INT, hidden, 1, DECODER_MAX_DIM, NULL, 0,           \
                   "intermediate_size", "width of the feed-forward layer")

/* rule: which layers slide if layer_types is null */
#define DECODER_LAYER_TYPES_OPTION(rule)                                                           \
    TT_OPTION_MORE(decoder, layer_types, TT_OPT_JSON, "null", 0, 0, NULL, TT_OPT_NULLABLE, NULL,   \
                   "for each layer \"full_attention\" or \"sliding_attention\"; null: by " rule)

/* Of models in which `pattern - 1` layers slide and then one sees all; pattern: its default. */
#define DECODER_PATTERN_OPTIONS(window, pattern)                                                   \
    TT_OPTION(decoder, sliding_window, TT_OPT_INT, window, 1, 2147483647.0,                        \
              "a token sees this many, itself among them, in the layers that slide"),              \
        TT_OPTION(decoder, sliding_window_pattern, TT_OPT_INT, pattern, 1, 65536,                  \
                  "of this many layers the last sees all tokens, the others the window"),          \
        DECODER_LAYER_TYPES_OPTION("sliding_window_pattern")

#define DECODER_ATTENTION_BIAS_OPTION                                                              \
    TT_OPTION(decoder, attention_bias, TT_OPT_BOOL, "false", 0, 0,                                 \
              "q_proj, k_proj, v_proj and o_proj have biases")

#define DECODER_MLP_BIAS_OPTION                                                                    \
    TT_OPTION(decoder, mlp_bias, TT_OPT_BOOL, "false", 0, 0,                                       \
              "gate_proj, up_proj and down_proj have biases")

#define DECODER_PARTIAL_OPTION                                                                     \
    TT_OPTION(decoder, partial_rotary_factor, TT_OPT_FLOAT, "1.0", 1e-3, 1,                        \
              "the part of each head that is rotated")

#define DECODER_LOCAL_ROPE_OPTION(theta)                                                           \
    TT_OPTION(decoder, rope_local_base_freq, TT_OPT_FLOAT, theta, 1, 1e18,                         \
              "base of the rotary frequencies in the layers that slide, which are not scaled")

#define DECODER_SCORE_OPTION(scalar)                                                               \
    TT_OPTION(decoder, query_pre_attn_scalar, TT_OPT_INT, scalar, 1, DECODER_MAX_DIM,              \
              "attention scores are divided by the root of this")

#define DECODER_ATTENTION_CAP_OPTION(cap)                                                          \
    TT_OPTION_MORE(decoder, attn_logit_softcapping, TT_OPT_FLOAT, cap, 1e-6, 1e12, NULL,           \
                   TT_OPT_NULLABLE, NULL,                                                          \
                   "attention scores s become cap tanh(s / cap); null: they stay")

#define DECODER_LOGIT_CAP_OPTION(cap)                                                              \
    TT_OPTION_MORE(decoder, final_logit_softcapping, TT_OPT_FLOAT, cap, 1e-6, 1e12, NULL,          \
                   TT_OPT_NULLABLE, NULL, "logits x become cap tanh(x / cap); null: they stay")

#define DECODER_NO_ROPE_OPTIONS(interval)                                                          \
    TT_OPTION(decoder, no_rope_layer_interval, TT_OPT_INT, interval, 1, 65536,                     \
              "of this many layers the last has no rotary positions"),                             \
        TT_OPTION_MORE(decoder, no_rope_layers, TT_OPT_JSON, "null", 0, 0, NULL, TT_OPT_NULLABLE,  \
                       NULL,                                                                       \
                       "for each layer 1, or 0 if it has no rotary positions; null: by "           \
                       "no_rope_layer_interval")

#define DECODER_WINDOW_OPTIONS                                                                     \
    TT_OPTION(decoder, use_sliding_window, TT_OPT_BOOL, "false", 0, 0,                             \
              "whether sliding_window is used"),                                                   \
        TT_OPTION_MORE(decoder, sliding_window, TT_OPT_INT, "4096", 1, 2147483647.0, NULL,         \
                       TT_OPT_NULLABLE, NULL,                                                      \
                       "a token sees this many, itself among them, in the layers that "            \
                       "layer_types or max_window_layers say; null: all"),                         \
        TT_OPTION(decoder, max_window_layers, TT_OPT_INT, "28", 0, 65536,                          \
                  "this many layers from the first see all, the others the window"),               \
        DECODER_LAYER_TYPES_OPTION("max_window_layers")

#endif
