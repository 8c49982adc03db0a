/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_MODELS_MLA_H
#define TT_MODELS_MLA_H
#include "decoder_block.h"

/* Multi-head latent attention: keys and values of all heads are products of one latent vector per
 * token, and all heads share the part of the key that is rotated. T tokens, D width, H heads, n and r
 * widths of the part of a head that is not and that is rotated, v width of a head's value, R and Q
 * widths of the latent vectors of keys and values and of queries. Sources: DeepSeek-AI 2024,
 * arXiv:2405.04434 and arXiv:2412.19437; names and epsilons as in transformers. */

#define MLA_EPS 1e-6 /* of the norms of latent vectors, whatever the other norms have */

typedef struct {
    int64_t q_lora_rank; /* Q; 0: queries are a product of x */
    int64_t kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim;
    bool rope_interleave; /* pairs of neighbours are rotated, not those of two halves */
} mla_config;

/* Rows of the option table of a config whose field `member` is a mla_config. */
#define MLA_OPTION(config_, member, field, default_, min_, flags_, doc_)                           \
    {                                                                                              \
#field, (doc_), TT_OPT_INT, offsetof(config_, member.field), (default_), (min_), 65536,    \
            NULL, (flags_), NULL                                                                   \
    }
#define MLA_OPTIONS(config_, member, q_rank, kv_rank, nope, rope, value)                           \
    MLA_OPTION(config_, member, q_lora_rank, q_rank, 1, TT_OPT_NULLABLE,                           \
               "width of the latent vector of queries; null: none"),                               \
        MLA_OPTION(config_, member, kv_lora_rank, kv_rank, 1, 0,                                   \
                   "width of the latent vector of keys and values"),                               \
        MLA_OPTION(config_, member, qk_nope_head_dim, nope, 1, 0,                                  \
                   "width of the part of a head that is not rotated"),                             \
        MLA_OPTION(config_, member, qk_rope_head_dim, rope, 2, 0,                                  \
                   "width of the part of a head that is rotated, even"),                           \
        MLA_OPTION(config_, member, v_head_dim, value, 1, 0, "width of a head's value"),           \
    {                                                                                              \
        "rope_interleave", "pairs of neighbours are rotated; false: element j with j + r/2",       \
            TT_OPT_BOOL, offsetof(config_, member.rope_interleave), "true", 0, 0, NULL, 0, NULL    \
    }

/* Before decoder_finish(): the decoder's head is the part that is rotated. */
static inline tt_status mla_finish(mla_config *m, decoder *c, tt_error *err)
{
    m->q_lora_rank = decoder_or(m->q_lora_rank, 0);
    c->n_kv_heads = decoder_or(c->n_kv_heads, c->n_heads);
    c->head_dim = m->qk_rope_head_dim; /* some files have other values, which nobody reads */
    c->factors.takes_mscale = true;
    if (c->n_kv_heads != c->n_heads)
        return TT_FAIL(err, TT_EINVAL,
                       "model.args.n_kv_heads: every head has a key and a value of its own, so it "
                       "must be n_heads %lld or null, not %lld",
                       (long long)c->n_heads, (long long)c->n_kv_heads);
    if (m->qk_rope_head_dim % 2 != 0)
        return TT_FAIL(
            err, TT_EINVAL,
            "model.args.qk_rope_head_dim: %lld is odd, and rotary positions rotate pairs",
            (long long)m->qk_rope_head_dim);
    return TT_OK;
}

/* tt_model_vt.attention_width */
static inline int64_t mla_attention_width(const mla_config *m, const decoder *c)
{
    return (c->n_layers + c->mtp_blocks) * c->n_heads *
           (m->qk_nope_head_dim + m->qk_rope_head_dim + m->v_head_dim);
}

/* YaRN's factor of the scores' temperature for a weight m of it. */
static inline double mla_mscale(double factor, double m)
{
    return factor > 1.0 ? 0.1 * m * log(factor) + 1.0 : 1.0;
}

/* Scores are multiplied by (n + r)^-1/2 and, with mscale_all_dim, the square of its factor. */
static inline double mla_scale(const mla_config *m, const decoder *c)
{
    const double s = 1.0 / sqrt((double)(m->qk_nope_head_dim + m->qk_rope_head_dim));
    const double t = c->factors.mscale_all_dim > 0.0
                         ? mla_mscale(c->rope.factor, c->factors.mscale_all_dim)
                         : 1.0;
    return s * t * t;
}

static inline tt_rope_opts mla_rope(const mla_config *m, const decoder *c, int64_t layer,
                                    int64_t length)
{
    tt_rope_opts r = decoder_rope(c, layer, length);
    const double s = c->factors.mscale, all = c->factors.mscale_all_dim;
    r.interleaved = m->rope_interleave;
    if (r.scaling == TT_ROPE_YARN && !(r.attention_factor > 0.0) && s > 0.0 && all > 0.0)
        r.attention_factor = mla_mscale(r.factor, s) / mla_mscale(r.factor, all);
    return r;
}

/* What the functions below need. */
typedef struct {
    const mla_config *m;
    const decoder *c;
    tt_rope_opts rope;
    tt_dim tokens, heads;
} mla_layer;

/* x [T,H*width] → [T,H,width], and back */
static inline tt_value *mla_split(tt_builder *b, const mla_layer *l, tt_value *x, int64_t width)
{
    const tt_dim dims[] = {l->tokens, l->heads, TT_DIM(width, NULL)};
    return tt_reshape(b, x, dims, 3);
}

static inline tt_value *mla_join(tt_builder *b, const mla_layer *l, tt_value *x, int64_t width)
{
    const tt_dim dims[] = {l->tokens, TT_DIM_UNIT(l->heads.size * width, "heads", width)};
    return tt_reshape(b, x, dims, 2);
}

/* x [T,H*(n+r)], queries: rotates the last r elements of each head. */
static inline tt_value *mla_turn_queries(tt_builder *b, const mla_layer *l, tt_value *x)
{
    const int64_t n = l->m->qk_nope_head_dim, r = l->m->qk_rope_head_dim;
    tt_value *q = mla_split(b, l, x, n + r), *parts[2];
    parts[0] = tt_slice(b, q, 2, 0, n);
    parts[1] = mla_join(b, l, tt_slice(b, q, 2, n, n + r), r);
    parts[1] = mla_split(b, l, decoder_rotate(b, l->c, parts[1], &l->rope), r);
    return mla_join(b, l, tt_concat(b, parts, 2, 2), n + r);
}

static inline tt_value *mla_queries(tt_builder *b, const mla_layer *l, const decoder *c,
                                    const tt_linear_opts *plain, tt_value *x)
{
    const int64_t hd = l->m->qk_nope_head_dim + l->m->qk_rope_head_dim;
    const tt_linear_opts up = {.init = plain->init};
    const tt_dim H = TT_DIM_UNIT(c->n_heads * hd, "heads", hd);
    if (l->m->q_lora_rank == 0)
        return mla_turn_queries(b, l, tt_linear(b, x, "q_proj", H, &up));
    x = tt_linear(b, x, "q_a_proj", TT_DIM(l->m->q_lora_rank, NULL), plain);
    x = tt_rms_norm(b, x, "q_a_layernorm", MLA_EPS);
    return mla_turn_queries(b, l, tt_linear(b, x, "q_b_proj", H, &up));
}

/* The latent vector of keys and values, normalized, and the shared part of the key, rotated. */
static inline void mla_latent(tt_builder *b, const mla_layer *l, const tt_linear_opts *plain,
                              tt_value *x, tt_value **latent, tt_value **key)
{
    const int64_t R = l->m->kv_lora_rank, r = l->m->qk_rope_head_dim;
    x = tt_linear(b, x, "kv_a_proj_with_mqa", TT_DIM(R + r, NULL), plain);
    *latent = tt_rms_norm(b, tt_slice(b, x, 1, 0, R), "kv_a_layernorm", MLA_EPS); /* [T,R] */
    *key = decoder_rotate(b, l->c, tt_slice(b, x, 1, R, R + r), &l->rope);        /* [T,r] */
}

/* x [T,D] → [T,D]; decoder_kind.attention */
static inline tt_value *mla_attention(tt_builder *b, const mla_config *m, const decoder *c,
                                      const decoder_init *init, int64_t layer, tt_value *x)
{
    const tt_linear_opts plain = {.bias = c->attention_bias, .init = init->plain},
                         up = {.init = init->plain},
                         out = {.bias = c->attention_bias, .init = init->out};
    const tt_attention_opts opts = {
        .v_head_dim = m->v_head_dim, .scale = mla_scale(m, c), .dropout = c->attention_dropout};
    tt_value *latent, *key;
    tt_scope(b, "self_attn");
    const mla_layer l = {m, c, mla_rope(m, c, layer, tt_builder_length(b)),
                         tt_value_type(x)->dims[0], TT_DIM(c->n_heads, "heads")};
    tt_value *q = mla_queries(b, &l, c, &plain, x);
    mla_latent(b, &l, &plain, x, &latent, &key);
    tt_value *y = tt_latent_attention(b, q, latent, key, "kv_b_proj", &up, &opts);
    y = tt_linear(b, y, "o_proj", TT_DIM(c->dim, "embed"), &out);
    tt_scope_end(b);
    return y;
}

#endif
