/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_MODELS_DECODER_ARGS_H
#define TT_MODELS_DECODER_ARGS_H
#include "rope_scaling.h"

/* The arguments of the models of decoder.h: their options, the values derived from them, and the
 * checks. */

/* The arguments of all these models. A model's option table says which it has; the others stay
 * 0. */
typedef struct {
    int64_t dim, n_layers, n_heads, n_kv_heads, head_dim, hidden_dim, vocab_size;
    double norm_eps, rope_theta, attention_dropout;
    const char *rope_scaling;
    bool tie_embeddings;
    int64_t multiple_of; /* llama3: the factors of the rule for hidden_dim */
    double ffn_dim_multiplier;
    bool use_sliding_window; /* qwen2, qwen3; mistral has sliding_window alone */
    int64_t sliding_window, max_window_layers;
    const char *layer_types;
    /* set by decoder_finish() */
    tt_rope_opts rope;
    int64_t window; /* of the layers that slide; 0: no layer does */
} decoder;

/* 2^24: a product of two sizes is far below the limit of int64 */
#define DECODER_MAX_DIM 16777216.0

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
        TT_OPTION_MORE(decoder, rope_scaling, TT_OPT_JSON, "null", 0, 0, NULL, TT_OPT_NULLABLE,    \
                       NULL,                                                                       \
                       "null, or as in Hugging Face's config.json: {\"rope_type\": \"llama3\", "   \
                       "\"factor\": 8, \"low_freq_factor\": 1, \"high_freq_factor\": 4, "          \
                       "\"original_max_position_embeddings\": 8192}; also linear and yarn"),       \
        TT_OPTION_MORE(decoder, tie_embeddings, TT_OPT_BOOL, tied, 0, 0, NULL, 0,                  \
                       "tie_word_embeddings", "the output layer is the embedding")

#define DECODER_HIDDEN_OPTION(hidden)                                                              \
    TT_OPTION_MORE(decoder, hidden_dim, TT_OPT_INT, hidden, 1, DECODER_MAX_DIM, NULL, 0,           \
                   "intermediate_size", "width of the feed-forward layer")

#define DECODER_WINDOW_OPTIONS                                                                     \
    TT_OPTION(decoder, use_sliding_window, TT_OPT_BOOL, "false", 0, 0,                             \
              "whether sliding_window is used"),                                                   \
        TT_OPTION_MORE(decoder, sliding_window, TT_OPT_INT, "4096", 1, 2147483647.0, NULL,         \
                       TT_OPT_NULLABLE, NULL,                                                      \
                       "a token sees this many, itself among them, in the layers that "            \
                       "layer_types or max_window_layers say; null: all"),                         \
        TT_OPTION(decoder, max_window_layers, TT_OPT_INT, "28", 0, 65536,                          \
                  "this many layers from the first see all, the others the window"),               \
        TT_OPTION_MORE(decoder, layer_types, TT_OPT_JSON, "null", 0, 0, NULL, TT_OPT_NULLABLE,     \
                       NULL,                                                                       \
                       "for each layer \"full_attention\" or \"sliding_attention\"; null: by "     \
                       "max_window_layers")

/* ---- sizes ---- */

static inline bool decoder_said(const char *json) /* is it a TT_OPT_JSON value that is not null? */
{
    return json && strcmp(json, "null") != 0;
}

/* as the maximum of TT_OPT_NULLABLE */
static inline int64_t decoder_or(int64_t value, int64_t other)
{
    return value == INT64_MIN ? other : value;
}

/* The text of item i of a list of strings, up to its quote; NULL: the list is shorter, or is not a
 * list. */
static inline const char *decoder_item(const char *list, int64_t i)
{
    const char *p = list + strspn(list, " \t\r\n");
    if (*p++ != '[')
        return NULL;
    for (int64_t k = 0;; k++) {
        p += strspn(p, " \t\r\n");
        const char *end = *p == '"' ? strpbrk(p + 1, "\"\\") : NULL;
        if (!end || *end != '"')
            return NULL;
        if (k == i)
            return p + 1;
        p = end + 1;
        p += strspn(p, " \t\r\n");
        if (*p++ != ',')
            return NULL;
    }
}

/* The window of a layer; 0: it sees all tokens. */
static inline int64_t decoder_window(const decoder *c, int64_t layer)
{
    if (!decoder_said(c->layer_types))
        return layer >= c->max_window_layers ? c->window : 0;
    const char *type = decoder_item(c->layer_types, layer);
    return type && strncmp(type, "sliding", 7) == 0 ? c->window : 0;
}

static inline tt_status decoder_check_layer_types(const decoder *c, tt_error *err)
{
    for (int64_t i = 0; i < c->n_layers; i++) {
        const char *type = decoder_item(c->layer_types, i);
        const bool slides = type && strncmp(type, "sliding_attention\"", 18) == 0;
        if (!slides && (!type || strncmp(type, "full_attention\"", 15) != 0))
            return TT_FAIL(err, TT_EINVAL,
                           "model.args.layer_types: layer %lld is neither \"full_attention\" nor "
                           "\"sliding_attention\"; wanted a list of these, one for each of %lld "
                           "layers",
                           (long long)i, (long long)c->n_layers);
        if (slides && c->window == 0)
            return TT_FAIL(err, TT_EINVAL,
                           "model.args.layer_types: layer %lld slides, but there is no window; set "
                           "use_sliding_window and sliding_window",
                           (long long)i);
    }
    if (decoder_item(c->layer_types, c->n_layers))
        return TT_FAIL(err, TT_EINVAL,
                       "model.args.layer_types: more than the %lld layers there are",
                       (long long)c->n_layers);
    return TT_OK;
}

/* tt_model_vt.finish: derives values and rejects those that do not fit together. hidden_dim is left
 * to the model. */
static inline tt_status decoder_finish(void *cfg, tt_error *err)
{
    decoder *c = cfg;
    c->n_kv_heads = decoder_or(c->n_kv_heads, c->n_heads);
    if (c->n_heads % c->n_kv_heads != 0)
        return TT_FAIL(err, TT_EINVAL, "model.args.n_kv_heads: %lld does not divide n_heads %lld",
                       (long long)c->n_kv_heads, (long long)c->n_heads);
    if (c->head_dim == INT64_MIN && c->dim % c->n_heads != 0)
        return TT_FAIL(
            err, TT_EINVAL,
            "model.args.dim: %lld is not a multiple of n_heads %lld; change one or set head_dim",
            (long long)c->dim, (long long)c->n_heads);
    c->head_dim = decoder_or(c->head_dim, c->dim / c->n_heads);
    if (c->head_dim % 2 != 0)
        return TT_FAIL(err, TT_EINVAL,
                       "model.args.head_dim: %lld is odd, and rotary positions rotate pairs; make "
                       "dim/n_heads even or set head_dim",
                       (long long)c->head_dim);
    c->window = c->use_sliding_window ? decoder_or(c->sliding_window, 0) : 0;
    if (decoder_said(c->layer_types))
        TT_TRY(decoder_check_layer_types(c, err));
    c->rope = (tt_rope_opts){.head_dim = c->head_dim, .theta = c->rope_theta};
    return decoder_said(c->rope_scaling) ? rope_read_scaling(c->rope_scaling, &c->rope, err)
                                         : TT_OK;
}

static inline int64_t decoder_vocab_size(const void *cfg)
{
    return ((const decoder *)cfg)->vocab_size;
}

static inline int64_t decoder_attention_width(const void *cfg)
{
    const decoder *c = cfg;
    return c->n_layers * c->n_heads * (c->head_dim + c->head_dim);
}

#endif
