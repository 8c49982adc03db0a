/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/builder_impl.h"
#include "graph/ops/internal.h"
#include <math.h>

/* Attention whose keys and values are products of one vector per token (multi-head latent attention,
 * DeepSeek-AI 2024, arXiv:2405.04434). T tokens, H heads, n and r widths of the parts of a key that are a
 * head's own and that all heads share, v width of a value, R width of the latent vector. Rows
 * h (n + v) … of the weight make head h's n elements of the key, then its v of the value.
 *
 * tt_latent_attention() describes attention with a key and a value for each head. Where a program decodes and
 * keeps latent vectors (builder_opts.h), it is the op attention_latent, whose incremental form keeps R + r numbers
 * per token: since q·(W_k c) = (W_kᵀ q)·c and Σ p (W_v c) = W_v Σ p c, the weights move from the keys and values
 * of all tokens to the queries and results of the new ones (linear_heads), and attention runs on latent
 * vectors (latent_cached). Sums are in another order, so bits differ from those of the whole context. */

typedef struct widths {
    int64_t heads, n, r, v, latent;
} widths;

static widths widths_of(const tt_attrs_attention *a, const tt_type *q, const tt_type *latent,
                        const tt_type *key)
{
    widths w = {.r = key->dims[1].size, .v = a->v_head_dim, .latent = latent->dims[1].size};
    w.heads = q->dims[1].size / a->head_dim;
    w.n = a->head_dim - w.r;
    return w;
}

static tt_value *apart(tt_builder *b, tt_value *x, tt_dim heads, int64_t width)
{
    const tt_dim dims[3] = {tt_value_type(x)->dims[0], heads, TT_DIM(width, NULL)};
    return tt_reshape(b, x, dims, 3);
}

static tt_value *joined(tt_builder *b, tt_value *x, tt_dim heads, int64_t width)
{
    const tt_dim dims[2] = {tt_value_type(x)->dims[0],
                            TT_DIM_UNIT(heads.size * width, heads.label, width)};
    return tt_reshape(b, x, dims, 2);
}

/* Keys [T,H*(n+r)] and values [T,H*v] of each head, from kv [T,H*(n+v)] and the shared part of the key. */
static void of_heads(tt_builder *b, const widths *w, tt_dim heads, tt_value *kv, tt_value *key,
                     tt_value **k, tt_value **v)
{
    const tt_dim tokens = tt_value_type(key)->dims[0],
                 one[3] = {tokens, TT_DIM(1, NULL), TT_DIM(w->r, NULL)},
                 all[3] = {tokens, heads, TT_DIM(w->r, NULL)};
    kv = apart(b, kv, heads, w->n + w->v);
    tt_value *parts[2] = {tt_slice(b, kv, 2, 0, w->n),
                          tt_broadcast_to(b, tt_reshape(b, key, one, 3), all, 3)};
    *k = joined(b, tt_concat(b, parts, 2, 2), heads, w->n + w->r);
    *v = joined(b, tt_slice(b, kv, 2, w->n, w->n + w->v), heads, w->v);
}

static tt_status infer_latent(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    const tt_attrs_attention *a = q->attrs;
    int64_t h = 0;
    TT_TRY(tt_want_inputs(q, 6, 7, err));
    TT_TRY(tt_want_heads(q, 0, "q", a->head_dim, &h, err));
    for (int i = 1; i < 4; i++) {
        TT_TRY(tt_want_rank(q, i, i < 3 ? "the latent vector and the key" : "the weight", 2, err));
        TT_TRY(tt_want_float(q, i, "the latent vector, the key or the weight", err));
    }
    const widths w = widths_of(a, q->in[0], q->in[1], q->in[2]);
    if (w.n < 1 || w.v < 1 || q->in[3]->dims[0].size != h * (w.n + w.v) ||
        q->in[3]->dims[0].unit != w.n + w.v || q->in[3]->dims[1].size != w.latent)
        return tt_infer_fail(q, err,
                             "the weight must be [%lld heads * (%lld + %lld), %lld] with a head's "
                             "rows as its unit, and a head of q wider than the shared key",
                             (long long)h, (long long)w.n, (long long)w.v, (long long)w.latent);
    for (int i = 4; i < 6; i++) {
        TT_TRY(tt_want_rank(q, i, "pos and seg", 1, err));
        TT_TRY(tt_want_i32(q, i, "pos and seg", err));
    }
    for (int i = 1; i < 6; i++)
        if (i != 3)
            TT_TRY(tt_want_equal(q, 0, 0, i, 0, err));
    TT_TRY(tt_want_sinks_and_bias(q, 6, true, h, err));
    const tt_dim d[2] = {q->in[0]->dims[0], TT_DIM_UNIT(h * w.v, q->in[0]->dims[1].label, w.v)};
    out[0] = tt_type_make(q->in[0]->dtype, d, 2);
    return TT_OK;
}

static void rule_latent(const tt_shape_query *q, char *rule, size_t size)
{
    snprintf(rule, size, "!t h, !t !r, !t !e, h !r, !t, !t%s -> t h", q->n_in > 6 ? ", h" : "");
}

static tt_cost cost_latent(const tt_shape_query *q, const tt_type *out)
{
    const tt_attrs_attention *a = q->attrs;
    const widths w = widths_of(a, q->in[0], q->in[1], q->in[2]);
    const double tokens = (double)q->in[0]->dims[0].size,
                 pairs = tokens * tokens / (double)q->in[0]->dims[0].lines / 2.0,
                 heads = (double)w.heads;
    return tt_cost_make(q, out, 1,
                        heads * (2.0 * tokens * (double)(w.latent * (w.n + w.v)) +
                                 pairs * (2.0 * (double)(a->head_dim + w.v) + 10.0)));
}

static void decompose_latent(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                             tt_value **outs)
{
    const tt_attrs_attention *a = q->attrs;
    const widths w = widths_of(a, q->in[0], q->in[1], q->in[2]);
    const tt_dim heads = TT_DIM(w.heads, q->in[0]->dims[1].label);
    tt_value *k, *v, *y[2];
    of_heads(b, &w, heads, tt_linear_w(b, in[1], in[3]), in[2], &k, &v);
    tt_value *ins[8] = {in[0], k, v, in[4], in[5], in[4], in[5]};
    if (q->n_in > 6)
        ins[7] = in[6];
    tt_op(b, "attention", ins, q->n_in + 1, a, y, 2);
    outs[0] = y[0];
}

static tt_status memory_latent(const tt_shape_query *q, int64_t slots, int64_t length, tt_type *out,
                               tt_error *err)
{
    const int64_t blocks = (length + TT_CACHE_BLOCK - 1) / TT_CACHE_BLOCK;
    const tt_dim dims[3] = {TT_DIM(slots, "slots"), TT_DIM(blocks * TT_CACHE_BLOCK, NULL),
                            TT_DIM(q->in[1]->dims[1].size + q->in[2]->dims[1].size, NULL)};
    (void)err;
    out[0] = tt_type_make(q->in[1]->dtype, dims, 3);
    return TT_OK;
}

static void incremental_latent(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                               tt_value *const *memory, tt_value **outs, tt_value **updated)
{
    const tt_attrs_attention *a = q->attrs;
    const widths w = widths_of(a, q->in[0], q->in[1], q->in[2]);
    const tt_dim heads = TT_DIM(w.heads, q->in[0]->dims[1].label), one = TT_DIM(1, NULL);
    const tt_attrs_heads into = {w.n + w.v, 0, w.n, 0}, out_of = {w.n + w.v, w.n, w.v, 1};
    tt_attrs_attention narrow = *a;
    narrow.head_dim = w.latent + w.r;
    narrow.v_head_dim = w.latent;
    tt_value *query = apart(b, in[0], heads, a->head_dim), *parts[2], *both[2] = {in[1], in[2]};
    parts[0] = joined(b, tt_slice(b, query, 2, 0, w.n), heads, w.n);
    parts[0] = apart(b, tt_emit2(b, "linear_heads", parts[0], in[3], &into), heads, w.latent);
    parts[1] = tt_slice(b, query, 2, w.n, a->head_dim);
    query = joined(b, tt_concat(b, parts, 2, 2), heads, narrow.head_dim);
    tt_value *ins[6] = {query, joined(b, tt_concat(b, both, 2, 1), one, narrow.head_dim), in[4],
                        in[5], memory[0]},
             *y[2];
    if (q->n_in > 6)
        ins[5] = in[6];
    tt_op(b, "latent_cached", ins, q->n_in - 1, &narrow, y, 2);
    outs[0] = tt_emit2(b, "linear_heads", y[0], in[3], &out_of);
    updated[0] = y[1];
}

const tt_op_def tt_op_attention_latent = {
    .struct_size = sizeof(tt_op_def),
    .name = "attention_latent",
    .operands = "q f[T,H*(n+r)], latent f[T,R], key f[T,r], w f[H*(n+v),R], pos i[T], seg i[T]"
                "[, sinks f[H]] → out [T,H*v]",
    .attributes = "tt_attrs_attention",
    .doc = "attention whose keys and values are w times a latent vector per token, and a part of "
           "the key that all heads share; decoding keeps latent vectors",
    .flags = TT_OP_MIXES_TOKENS | TT_OP_LOCAL,
    .attrs_size = sizeof(tt_attrs_attention),
    .n_out = 1,
    .infer = infer_latent,
    .rule_for = rule_latent,
    .decompose = decompose_latent,
    .cost = cost_latent,
    .print_attrs = tt_attention_print,
    .n_memory = 1,
    .memory = memory_latent,
    .incremental = incremental_latent,
    .cls = TT_CLASS_ATTENTION};

/* ---- latent_cached: q [T,H*d], kv [T,d], pos, slot [T], cache [S,P,d][, sinks [H]][, bias [H,N]] → out
 * [T,H*dv], cache with the new tokens' kv. All heads share the key kv, and its first dv elements are
 * the value. A token sees its sequence up to itself. ---- */

static tt_status infer_latent_cached(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    const tt_attrs_attention *a = q->attrs;
    int64_t h = 0, one = 0;
    TT_TRY(tt_want_inputs(q, 5, 7, err));
    TT_TRY(tt_want_heads(q, 0, "q", a->head_dim, &h, err));
    TT_TRY(tt_want_heads(q, 1, "kv", a->head_dim, &one, err));
    for (int i = 2; i < 4; i++) {
        TT_TRY(tt_want_rank(q, i, "pos and slot", 1, err));
        TT_TRY(tt_want_i32(q, i, "pos and slot", err));
    }
    for (int i = 1; i < 4; i++)
        TT_TRY(tt_want_equal(q, 0, 0, i, 0, err));
    TT_TRY(tt_want_rank(q, 4, "the cache", 3, err));
    if (one != 1 || q->in[4]->dims[2].size != a->head_dim ||
        q->in[4]->dims[1].size % TT_CACHE_BLOCK || q->in[4]->dtype != q->in[1]->dtype)
        return tt_infer_fail(q, err,
                             "kv must be one head, and the cache [slots, blocks * %d, %lld] of its "
                             "dtype",
                             TT_CACHE_BLOCK, (long long)a->head_dim);
    if (a->v_head_dim < 1 || a->v_head_dim > a->head_dim || a->bidirectional)
        return tt_infer_fail(q, err,
                             "a value is the first %lld of a key's %lld elements, and a token sees "
                             "no later ones",
                             (long long)a->v_head_dim, (long long)a->head_dim);
    TT_TRY(tt_want_sinks_and_bias(q, 5, true, h, err));
    const tt_dim d[2] = {q->in[0]->dims[0],
                         TT_DIM_UNIT(h * a->v_head_dim, q->in[0]->dims[1].label, a->v_head_dim)};
    out[0] = tt_type_make(q->in[0]->dtype, d, 2);
    out[1] = *q->in[4];
    return TT_OK;
}

static void rule_latent_cached(const tt_shape_query *q, char *rule, size_t size)
{
    snprintf(rule, size, "!t h, !t !g, !t, !t, !s !p !d%s -> t h, s p d",
             tt_attention_rule_sinks_and_bias(q, 5));
}

static tt_cost cost_latent_cached(const tt_shape_query *q, const tt_type *out)
{ /* an upper bound: every token sees its whole sequence */
    const tt_attrs_attention *a = q->attrs;
    const double seen = (double)q->in[4]->dims[1].size, tokens = (double)q->in[0]->dims[0].size,
                 heads = (double)(q->in[0]->dims[1].size / a->head_dim),
                 wide = (double)(a->head_dim + a->v_head_dim);
    return (tt_cost){tokens * seen * heads * (2.0 * wide + 10.0),
                     tokens * seen * (double)a->head_dim * (double)tt_dtype_size(out[1].dtype)};
}

const tt_op_def tt_op_latent_cached = {
    .struct_size = sizeof(tt_op_def),
    .name = "latent_cached",
    .operands = "q f[T,H*d], kv f[T,d], pos i[T], slot i[T], cache f[S,P,d][, sinks f[H]]"
                "[, bias f[H,N]] → out [T,H*dv], cache",
    .attributes = "tt_attrs_attention",
    .doc = "writes kv of new tokens into the cache; each token then sees the cached tokens of its "
           "sequence up to itself, by keys kv that all heads share, and values that are the first "
           "dv elements of kv; a token with a negative slot has out 0",
    .flags = TT_OP_MIXES_TOKENS | TT_OP_NO_GRADIENT | TT_OP_UPDATES,
    .attrs_size = sizeof(tt_attrs_attention),
    .n_out = 2,
    .infer = infer_latent_cached,
    .rule_for = rule_latent_cached,
    .cost = cost_latent_cached,
    .print_attrs = tt_attention_print,
    .cls = TT_CLASS_ATTENTION};

/* ---- the builder's function ---- */

bool tt_builder_keeps_latents(const tt_builder *b)
{
    const tt_builder_opts *o = &b->opts;
    return o->latents && !o->convert_linear &&
           (!o->has_kernel || o->has_kernel(o->has_kernel_user, tt_op_latent_cached.name));
}

tt_value *tt_latent_attention(tt_builder *b, tt_value *q, tt_value *latent, tt_value *key,
                              const char *name, const tt_linear_opts *up,
                              const tt_attention_opts *opts)
{
    const tt_type *t = tt_value_type(q), *c = tt_value_type(latent), *s = tt_value_type(key);
    tt_attention_opts o = {0};
    if (opts)
        o = *opts;
    if (tt_builder_error(b) || tt_builder_lacks(b, q, "tt_latent_attention: q") ||
        tt_builder_lacks(b, latent, "tt_latent_attention: the latent vectors") ||
        tt_builder_lacks(b, key, "tt_latent_attention: the key") ||
        tt_builder_lacks(b, name, "tt_latent_attention: the name"))
        return tt_placeholder(b);
    tt_attrs_attention a = {.v_head_dim = o.v_head_dim, .window = o.window, .softcap = o.softcap};
    if (t->n_dims != 2 || c->n_dims != 2 || s->n_dims != 2 || t->dims[1].unit < 2 ||
        t->dims[1].unit <= s->dims[1].size || o.v_head_dim < 1)
        return tt_builder_fail(b, TT_EINVAL,
                               "latent attention %s: q must be [tokens, heads * width] with the "
                               "width as its unit, wider than key, and v_head_dim given",
                               name);
    a.head_dim = t->dims[1].unit;
    a.scale = o.scale != 0.0 ? o.scale : 1.0 / sqrt((double)a.head_dim);
    const widths w = widths_of(&a, t, c, s);
    const tt_dim heads = TT_DIM(w.heads, t->dims[1].label),
                 rows = TT_DIM_UNIT(w.heads * (w.n + w.v), heads.label, w.n + w.v);
    const bool plain =
        !(up && up->bias) && !o.bidirectional && !o.bias && !o.pos_k && !o.seg_k && !o.prefix;
    if (plain && tt_builder_keeps_latents(b)) {
        char param[256];
        if (snprintf(param, sizeof param, "%s.weight", name) >= (int)sizeof param)
            return tt_builder_fail(b, TT_EINVAL,
                                   "latent attention: the name \"%.60s…\" is too long", name);
        const tt_dim dims[2] = {rows, c->dims[1]};
        const tt_param_opts po = {.init = up ? up->init : (tt_init){0},
                                  .tags = up ? up->tags : NULL};
        tt_value *ins[7] = {q,
                            latent,
                            key,
                            tt_param(b, param, dims, 2, &po),
                            tt_input(b, "pos"),
                            tt_input(b, "seg"),
                            o.sinks},
                 *y = NULL;
        tt_op(b, "attention_latent", ins, o.sinks ? 7 : 6, &a, &y, 1);
        return y;
    }
    tt_value *k, *v;
    of_heads(b, &w, heads, tt_linear(b, latent, name, rows, up), key, &k, &v);
    return tt_attention(b, q, k, v, a.head_dim, &o);
}
