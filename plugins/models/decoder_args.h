/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_MODELS_DECODER_ARGS_H
#define TT_MODELS_DECODER_ARGS_H
#include "rope_scaling.h"

/* The arguments of the models of decoder.h, the values derived from them, and the checks.
 * decoder_options.h has the rows of the option tables. */

/* The arguments of all these models. A model's option table says which it has; the others stay
 * 0. */
typedef struct {
    int64_t dim, n_layers, n_heads, n_kv_heads, head_dim, hidden_dim, vocab_size;
    int64_t
        mtp_blocks; /* that predict tokens further ahead (mtp.h); 0 in models without the option */
    double norm_eps, rope_theta, attention_dropout;
    const char *rope_scaling;
    bool tie_embeddings;
    int64_t multiple_of; /* llama3: the factors of the rule for hidden_dim */
    double ffn_dim_multiplier;
    bool use_sliding_window; /* qwen2, qwen3; mistral has sliding_window alone */
    int64_t sliding_window, max_window_layers;
    int64_t sliding_window_pattern; /* gemma2, gemma3, olmo3; 0: max_window_layers counts */
    const char *layer_types;
    bool attention_bias, mlp_bias;
    double partial_rotary_factor;   /* 0: 1 */
    double rope_local_base_freq;    /* of the layers that slide; 0: as the others */
    int64_t query_pre_attn_scalar;  /* 0: head_dim */
    double attn_logit_softcapping;  /* 0 or NaN: none */
    double final_logit_softcapping; /* 0 or NaN: none */
    int64_t no_rope_layer_interval; /* 0: every layer rotates */
    const char *no_rope_layers;
    /* set by decoder_finish() */
    tt_rope_opts rope; /* without LongRoPE's divisors; see decoder_rope() */
    rope_factors factors;
    int64_t window; /* of the layers that slide; 0: no layer does */
} decoder;

/* 2^24: a product of two sizes is far below the limit of int64 */
#define DECODER_MAX_DIM 16777216.0

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
 * list. Items that are 0 or 1 are themselves the text. */
static inline const char *decoder_item(const char *list, int64_t i)
{
    const char *p = list + strspn(list, " \t\r\n");
    if (*p++ != '[')
        return NULL;
    for (int64_t k = 0;; k++) {
        p += strspn(p, " \t\r\n");
        const bool digit = *p == '0' || *p == '1';
        const char *end = *p == '"' ? strpbrk(p + 1, "\"\\") : NULL;
        if (!digit && (!end || *end != '"'))
            return NULL;
        if (k == i)
            return digit ? p : p + 1;
        p = (digit ? p : end) + 1;
        p += strspn(p, " \t\r\n");
        if (*p++ != ',')
            return NULL;
    }
}

/* The window of a layer; 0: it sees all tokens. */
static inline int64_t decoder_window(const decoder *c, int64_t layer)
{
    if (!decoder_said(c->layer_types) && c->sliding_window_pattern > 0)
        return (layer + 1) % c->sliding_window_pattern != 0 ? c->window : 0;
    if (!decoder_said(c->layer_types))
        return layer >= c->max_window_layers ? c->window : 0;
    const char *type = decoder_item(c->layer_types, layer);
    return type && strncmp(type, "sliding", 7) == 0 ? c->window : 0;
}

/* Whether a layer rotates queries and keys. */
static inline bool decoder_rotates(const decoder *c, int64_t layer)
{
    if (decoder_said(c->no_rope_layers)) {
        const char *item = decoder_item(c->no_rope_layers, layer);
        return !item || *item != '0';
    }
    return c->no_rope_layer_interval == 0 || (layer + 1) % c->no_rope_layer_interval != 0;
}

static inline tt_status decoder_check_no_rope(const decoder *c, tt_error *err)
{
    for (int64_t i = 0; i < c->n_layers; i++) {
        const char *item = decoder_item(c->no_rope_layers, i);
        if (!item || !strchr("01", *item))
            return TT_FAIL(
                err, TT_EINVAL,
                "model.args.no_rope_layers: layer %lld is neither 0 nor 1; wanted a list "
                "of these, one for each of %lld layers",
                (long long)i, (long long)c->n_layers);
    }
    return TT_OK;
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
    if (decoder_said(c->no_rope_layers))
        TT_TRY(decoder_check_no_rope(c, err));
    const double part = c->partial_rotary_factor > 0.0 ? c->partial_rotary_factor : 1.0;
    const int64_t rotated = (int64_t)((double)c->head_dim * part);
    if (rotated < 2 || rotated % 2 != 0)
        return TT_FAIL(
            err, TT_EINVAL,
            "model.args.partial_rotary_factor: %g of a head of %lld is %lld elements, and "
            "pairs of them are rotated; it must be even and not 0",
            part, (long long)c->head_dim, (long long)rotated);
    c->rope =
        (tt_rope_opts){.head_dim = c->head_dim, .rotary_dim = rotated, .theta = c->rope_theta};
    return decoder_said(c->rope_scaling)
               ? rope_read_scaling(c->rope_scaling, &c->rope, &c->factors, err)
               : TT_OK;
}

/* The rotary positions of a layer, for sequences of up to `length` tokens. */
static inline tt_rope_opts decoder_rope(const decoder *c, int64_t layer, int64_t length)
{
    tt_rope_opts r = c->rope;
    if (c->rope_local_base_freq > 0.0 && decoder_window(c, layer) > 0)
        return (tt_rope_opts){
            .head_dim = r.head_dim, .rotary_dim = r.rotary_dim, .theta = c->rope_local_base_freq};
    if (r.scaling == TT_ROPE_LONGROPE)
        r.divisors = (double)length > r.original_max_position ? c->factors.long_factor
                                                              : c->factors.short_factor;
    return r;
}

/* x, rotated by r for the longest texts. LongRoPE has other divisors for a text that is no longer than the original
 * context, and texts of both kinds are generated together. */
static inline tt_value *decoder_rotate(tt_builder *b, const decoder *c, tt_value *x,
                                       const tt_rope_opts *r)
{
    tt_value *pos = tt_input(b, "pos"), *rotated = tt_rope(b, x, pos, r);
    if (tt_builder_mode(b) != TT_BUILD_GENERATE || r->scaling != TT_ROPE_LONGROPE ||
        r->divisors != c->factors.long_factor)
        return rotated;
    char name[64];
    tt_rope_opts few = *r;
    tt_dim dims[TT_MAX_DIMS] = {0};
    few.divisors = c->factors.short_factor;
    snprintf(name, sizeof name, "longer_than.%lld", (long long)r->original_max_position);
    tt_value *is = tt_less(b, tt_const(b, 0.0, TT_F32), tt_cast(b, tt_input(b, name), TT_F32));
    const tt_type *t = tt_value_type(x);
    for (int d = 0; d < t->n_dims; d++)
        dims[d] = d ? TT_DIM(1, NULL) : t->dims[0];
    return tt_select(b, tt_reshape(b, is, dims, t->n_dims), rotated, tt_rope(b, x, pos, &few));
}

static inline int64_t decoder_vocab_size(const void *cfg)
{
    return ((const decoder *)cfg)->vocab_size;
}

static inline int64_t decoder_attention_width(const void *cfg)
{
    const decoder *c = cfg;
    return (c->n_layers + c->mtp_blocks) * c->n_heads * (c->head_dim + c->head_dim);
}

#endif
