/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/graph.h"
#include "graph/ops/internal.h"
#include <math.h>
#include <ttrun/random.h>

/* attention: q [T,H*hd], k [S,K*hd], v [S,K*dv], pos_q, seg_q [T], pos_k, seg_k [S][, sinks [H]][, bias [H,N]]
 * [, token_index [T]] →
 * out [T,H*dv], lse f32 [T,H]. A query sees the keys of its segment that are not after it
 * (builder.h). Dao et al. 2022, arXiv:2205.14135. By the rule, t=(b q), queries may be cut inside
 * sequences. Keys must be whole inside a sequence; in a step of a ring they are the keys of another
 * rank (attention_ring.c). Heads and kv heads are cut together. bias [h,i] is added to the scores of
 * head h at distance i (ops.h), and dropout reads token_index [T]; these are the last operands, and attributes
 * tell whether they are there. */

#define RULE_IN "t=(b q) h=(k g), s=(b !p) k, s k"

tt_status tt_want_heads(const tt_shape_query *q, int i, const char *what, int64_t head_dim,
                        int64_t *n, tt_error *err)
{
    TT_TRY(tt_want_rank(q, i, what, 2, err));
    TT_TRY(tt_want_float(q, i, what, err));
    const tt_dim *d = &q->in[i]->dims[1];
    if (head_dim <= 0 || d->size % head_dim != 0 || d->size == 0)
        return tt_infer_fail(q, err, "%s's last dim must be a multiple of its head size %lld", what,
                             (long long)head_dim);
    if (d->unit != head_dim)
        return tt_infer_fail(
            q, err,
            "%s's last dim must have its head size %lld as its unit, not %lld (TT_DIM_UNIT)", what,
            (long long)head_dim, (long long)d->unit);
    *n = d->size / head_dim;
    return TT_OK;
}

/* Checks q, k, v (inputs 0 to 2) and pos_q, seg_q, pos_k, seg_k (from input `at` on). *n_heads is the
 * number of query heads. */
static tt_status want_common(const tt_shape_query *q, int at, int64_t *n_heads, tt_error *err)
{
    const tt_attrs_attention *a = q->attrs;
    int64_t h = 0, k = 0, v = 0;
    TT_TRY(tt_want_heads(q, 0, "q", a->head_dim, &h, err));
    TT_TRY(tt_want_heads(q, 1, "k", a->head_dim, &k, err));
    TT_TRY(tt_want_heads(q, 2, "v", a->v_head_dim, &v, err));
    if (k != v)
        return tt_infer_fail(q, err, "k has %lld heads, v %lld", (long long)k, (long long)v);
    if (h % k != 0)
        return tt_infer_fail(q, err, "%lld kv heads must divide %lld heads", (long long)k,
                             (long long)h);
    TT_TRY(tt_want_equal(q, 1, 0, 2, 0, err));
    if (q->in[at + 2]->n_dims == 1 && q->in[at + 3]->n_dims == 1 &&
        (q->in[at + 2]->dims[0].size != q->in[1]->dims[0].size ||
         q->in[at + 3]->dims[0].size != q->in[1]->dims[0].size))
        return tt_infer_fail(q, err,
                             "k has %lld tokens, the keys' positions and segments are of %lld and "
                             "%lld; give pos_k and seg_k of k's tokens",
                             (long long)q->in[1]->dims[0].size,
                             (long long)q->in[at + 2]->dims[0].size,
                             (long long)q->in[at + 3]->dims[0].size);
    for (int i = 0; i < 4; i++) {
        TT_TRY(tt_want_rank(q, at + i, "pos and seg", 1, err));
        TT_TRY(tt_want_i32(q, at + i, "pos and seg", err));
        TT_TRY(tt_want_equal(q, at + i, 0, i < 2 ? 0 : 1, 0, err));
    }
    if (a->window < 0 || a->softcap < 0.0 || !isfinite(a->scale))
        return tt_infer_fail(q, err, "window %lld and softcap %g must not be negative",
                             (long long)a->window, a->softcap);
    if (!(a->dropout >= 0.0 && a->dropout < 1.0))
        return tt_infer_fail(q, err, "dropout %g must be at least 0 and below 1", a->dropout);
    *n_heads = h;
    return TT_OK;
}

tt_status tt_want_sinks_and_bias(const tt_shape_query *q, int at, bool may_sink, int64_t n_heads,
                                 tt_error *err)
{
    const tt_attrs_attention *a = q->attrs;
    const int biased = a->bias ? 1 : 0, drops = tt_attention_drops(a), more = biased + drops;
    TT_TRY(tt_want_inputs(q, at + more, at + more + (may_sink ? 1 : 0), err));
    if (drops) {
        TT_TRY(tt_want_rank(q, q->n_in - 1, "token_index", 1, err));
        TT_TRY(tt_want_i32(q, q->n_in - 1, "token_index", err));
        TT_TRY(tt_want_equal(q, q->n_in - 1, 0, 0, 0, err));
    }
    if (q->n_in - more > at) {
        TT_TRY(tt_want_rank(q, at, "sinks", 1, err));
        if (q->in[at]->dims[0].size != n_heads)
            return tt_infer_fail(q, err, "sinks must have %lld elements, one per head",
                                 (long long)n_heads);
    }
    if (!biased)
        return TT_OK;
    const int last = q->n_in - 1 - drops;
    const tt_dtype dtype = tt_dtype_accumulate(q->in[0]->dtype);
    TT_TRY(tt_want_rank(q, last, "bias", 2, err));
    const tt_dim *d = q->in[last]->dims;
    if (d[0].size != n_heads || d[1].size < 1 || d[1].size > INT32_MAX)
        return tt_infer_fail(q, err,
                             "bias must be [%lld heads, distances] with at least one distance, not "
                             "[%lld, %lld]",
                             (long long)n_heads, (long long)d[0].size, (long long)d[1].size);
    if (q->in[last]->dtype != dtype)
        return tt_infer_fail(q, err, "bias must be %s, not %s", tt_dtype_name(dtype),
                             tt_dtype_name(q->in[last]->dtype));
    return TT_OK;
}

tt_status tt_attention_infer(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    const tt_attrs_attention *a = q->attrs;
    int64_t h = 0;
    TT_TRY(tt_want_inputs(q, 7, 10, err));
    TT_TRY(want_common(q, 3, &h, err));
    TT_TRY(tt_want_sinks_and_bias(q, 7, true, h, err));
    const tt_type *x = q->in[0];
    tt_dim d[2] = {x->dims[0], TT_DIM_UNIT(h * a->v_head_dim, x->dims[1].label, a->v_head_dim)};
    out[0] = tt_type_make(x->dtype, d, 2);
    d[1] = TT_DIM(h, x->dims[1].label);
    out[1] = tt_type_make(tt_dtype_accumulate(x->dtype), d, 2);
    return TT_OK;
}

tt_status tt_attention_infer_bwd(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    int64_t h = 0;
    TT_TRY(tt_want_inputs(q, 10, 12, err));
    TT_TRY(want_common(q, 6, &h, err));
    TT_TRY(tt_want_same(q, 3, 5, err));
    TT_TRY(tt_want_sinks_and_bias(q, 10, false, h, err));
    for (int i = 0; i < 3; i++)
        out[i] = *q->in[i];
    return TT_OK;
}

tt_status tt_attention_infer_bias_bwd(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 11, 12, err));
    TT_TRY(tt_attention_infer_bwd(q, out, err));
    out[3] = *q->in[10];
    return TT_OK;
}

const char *tt_attention_rule_sinks_and_bias(const tt_shape_query *q, int at)
{
    const tt_attrs_attention *a = q->attrs;
    static const char *const texts[2][2][2] = {
        {{"", ", t"},       {", h !n", ", h !n, t"}      },
        {{", h", ", h, t"}, {", h, h !n", ", h, h !n, t"}}
    };
    const int drops = tt_attention_drops(a), biased = a->bias ? 1 : 0;
    return texts[q->n_in - biased - drops > at][biased][drops];
}

void tt_attention_rule(const tt_shape_query *q, char *rule, size_t size)
{
    const tt_attrs_attention *a = q->attrs;
    const char *more = tt_attention_rule_sinks_and_bias(q, 7);
    const int i = (int)a->ring_step;
    if (a->ring)
        snprintf(rule, size, "t=(b q) h=(k g), t+%d k, t+%d k, t, t, t+%d, t+%d%s -> t h, t h", i,
                 i, i, i, more);
    else
        snprintf(rule, size, RULE_IN ", t, t, s, s%s -> t h, t h", more);
}

void tt_attention_rule_bwd(const tt_shape_query *q, const char *dbias, char *rule, size_t size)
{
    const tt_attrs_attention *a = q->attrs;
    const char *bias = tt_attention_rule_sinks_and_bias(q, 10);
    const int i = (int)a->ring_step;
    if (a->ring)
        snprintf(rule, size,
                 "t=(b q) h=(k g), t+%d k, t+%d k, t h, t h, t h, t, t, t+%d, t+%d%s -> t h, "
                 "t+%d k, t+%d k%s",
                 i, i, i, i, bias, i, i, dbias);
    else
        snprintf(rule, size, RULE_IN ", t h, t h, t h, t, t, s, s%s -> t h, s k, s k%s", bias,
                 dbias);
}

static void rule_for_bwd(const tt_shape_query *q, char *rule, size_t size)
{
    tt_attention_rule_bwd(q, "", rule, size);
}

static void rule_for_bias_bwd(const tt_shape_query *q, char *rule, size_t size)
{
    tt_attention_rule_bwd(q, ", h n", rule, size);
}

/* Per head Σ_t -exp(sink - lse) (out·dout): lse includes the sinks, so exp(sink - lse) is their share of
 * the softmax. */
static tt_value *sinks_gradient(tt_builder *b, tt_vjp *c)
{
    const tt_attrs_attention *a = c->attrs;
    const tt_type *lse = tt_value_type(c->out[1]);
    tt_dim dims[3] = {lse->dims[0], lse->dims[1], TT_DIM(a->v_head_dim, NULL)};
    tt_value *p = tt_mul(b, tt_cast_up(b, c->out[0]), tt_cast_up(b, c->dout[0]));
    tt_value *dot = tt_sum(b, tt_reshape(b, p, dims, 3), -1, 0);
    tt_value *share = tt_exp(b, tt_sub(b, tt_cast_up(b, c->in[7]), c->out[1]));
    return tt_neg(b, tt_sum(b, tt_mul(b, share, dot), 0, 0));
}

void tt_attention_vjp(tt_builder *b, tt_vjp *c, const char *bwd, const char *bias_bwd)
{
    const tt_attrs_attention *a = c->attrs;
    const int drops = tt_attention_drops(a), last = c->n_in - 1 - drops, biased = a->bias ? 1 : 0;
    const bool want_bias = biased && c->want[last];
    tt_value *outs[4] = {NULL, NULL, NULL, NULL};
    if (c->dout[1] != NULL) {
        tt_builder_fail(
            b, TT_EUNSUPPORTED,
            "attention: its lse output has no derivative; put tt_stop_gradient around it");
        return;
    }
    tt_value *ins[12] = {c->in[0], c->in[1], c->in[2], c->out[0], c->out[1],  c->dout[0],
                         c->in[3], c->in[4], c->in[5], c->in[6],  c->in[last]};
    const int n = 10 + biased + drops;
    if (drops)
        ins[n - 1] = c->in[c->n_in - 1];
    if (want_bias)
        tt_op(b, bias_bwd, ins, n, c->attrs, outs, 4);
    else if (c->want[0] || c->want[1] || c->want[2])
        tt_op(b, bwd, ins, n, c->attrs, outs, 3);
    for (int i = 0; i < 3; i++)
        if (c->want[i])
            c->din[i] = outs[i];
    if (want_bias)
        c->din[last] = outs[3];
    if (c->n_in - biased - drops == 8 && c->want[7])
        c->din[7] = sinks_gradient(b, c);
}

static void vjp_attention(tt_builder *b, tt_vjp *c)
{
    tt_attention_vjp(b, c, "attention_bwd", "attention_bias_bwd");
}

/* The number of pairs (query, key): half of all if causal, and at most the window per query. It is an
 * upper bound if segments are shorter than a sequence. */
static double pairs(const tt_shape_query *q)
{
    const tt_attrs_attention *a = q->attrs;
    double t = (double)q->in[0]->dims[0].size, s = (double)q->in[1]->dims[0].size,
           sequences = (double)q->in[1]->dims[0].lines;
    double keys = (sequences > 1.0 ? s / sequences : s) * (a->bidirectional ? 1.0 : 0.5);
    if (a->chunk > 0 && 0.5 * (double)a->chunk < keys)
        keys = 0.5 * (double)a->chunk;
    return t * (a->window > 0 && (double)a->window < keys ? (double)a->window : keys);
}

/* FLOPs per pair of a random number. */
static double draws(const tt_attrs_attention *a)
{
    return tt_attention_drops(a) ? 15.0 : 0.0;
}

tt_cost tt_attention_cost(const tt_shape_query *q, const tt_type *out)
{
    const tt_attrs_attention *a = q->attrs;
    double heads = (double)(q->in[0]->dims[1].size / a->head_dim);
    return tt_cost_make(q, out, 2,
                        pairs(q) * heads *
                            (2.0 * (double)(a->head_dim + a->v_head_dim) + 10.0 + draws(a)));
}

tt_cost tt_attention_cost_bwd(const tt_shape_query *q, const tt_type *out)
{ /* five products instead of two of the forward */
    const tt_attrs_attention *a = q->attrs;
    double heads = (double)(q->in[0]->dims[1].size / a->head_dim);
    return tt_cost_make(
        q, out, 3,
        pairs(q) * heads *
            (6.0 * (double)a->head_dim + 4.0 * (double)a->v_head_dim + 15.0 + draws(a)));
}

/* Decoding: the keys and values of all sequences, in the layout of attention_cached. */
static tt_status memory(const tt_shape_query *q, int64_t slots, int64_t length, tt_type *out,
                        tt_error *err)
{
    const tt_attrs_attention *a = q->attrs;
    const int64_t n = q->in[1]->dims[1].size / a->head_dim;
    if (a->chunk > 0 && a->chunk < length) { /* each chunk is a sequence of its own */
        slots *= (length + a->chunk - 1) / a->chunk;
        length = a->chunk;
    }
    const int64_t blocks = (length + TT_CACHE_BLOCK - 1) / TT_CACHE_BLOCK;
    if (a->bidirectional)
        return TT_FAIL(err, TT_EUNSUPPORTED, "tokens see later ones");
    if (a->own_keys)
        return TT_FAIL(err, TT_EUNSUPPORTED, "keys have positions of their own");
    const tt_dim S = TT_DIM(slots, "slots"), K = TT_DIM(n, q->in[1]->dims[1].label);
    const tt_dim keys[5] = {S, K, TT_DIM(blocks, NULL), TT_DIM(a->head_dim, NULL),
                            TT_DIM(TT_CACHE_BLOCK, NULL)};
    const tt_dim values[4] = {S, K, TT_DIM(blocks * TT_CACHE_BLOCK, NULL),
                              TT_DIM(a->v_head_dim, NULL)};
    out[0] = tt_type_make(q->in[1]->dtype, keys, 5);
    out[1] = tt_type_make(q->in[2]->dtype, values, 4);
    return TT_OK;
}

static void incremental(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                        tt_value *const *memory, tt_value **outs, tt_value **updated)
{
    tt_value *ins[9] = {in[0], in[1], in[2], in[3], in[4], memory[0], memory[1]}, *y[3];
    for (int i = 7; i < q->n_in; i++) /* sinks, bias */
        ins[i] = in[i];
    tt_op(b, "attention_cached", ins, q->n_in, q->attrs, y, 3);
    outs[0] = y[0];
    updated[0] = y[1];
    updated[1] = y[2];
}

void tt_attention_print(const void *attrs, char *text, size_t size)
{
    const tt_attrs_attention *a = attrs;
    int n = snprintf(text, size, "head_dim=%lld scale=%.6g", (long long)a->head_dim, a->scale);
    if (a->v_head_dim != a->head_dim && n > 0 && (size_t)n < size)
        n += snprintf(text + n, size - (size_t)n, " v_head_dim=%lld", (long long)a->v_head_dim);
    if (a->window > 0 && n > 0 && (size_t)n < size)
        n += snprintf(text + n, size - (size_t)n, " window=%lld", (long long)a->window);
    if (a->chunk > 0 && n > 0 && (size_t)n < size)
        n += snprintf(text + n, size - (size_t)n, " chunk=%d", (int)a->chunk);
    if (a->softcap > 0.0 && n > 0 && (size_t)n < size)
        n += snprintf(text + n, size - (size_t)n, " softcap=%g", a->softcap);
    if (a->bidirectional && n > 0 && (size_t)n < size)
        n += snprintf(text + n, size - (size_t)n, " bidirectional");
    if (a->bias && n > 0 && (size_t)n < size)
        n += snprintf(text + n, size - (size_t)n, " bias");
    if (a->line && n > 0 && (size_t)n < size)
        n += snprintf(text + n, size - (size_t)n, " line=%lld", (long long)a->line);
    if (a->dropout > 0.0 && n > 0 && (size_t)n < size)
        n += snprintf(text + n, size - (size_t)n, " dropout=%g", a->dropout);
    if (a->ring && n > 0 && (size_t)n < size)
        snprintf(text + n, size - (size_t)n, " step=%d/%d", (int)a->ring_step, (int)a->ring);
}

const tt_op_def tt_op_attention = {
    .struct_size = sizeof(tt_op_def),
    .name = "attention",
    .operands = "q [T,H*hd], k [S,K*hd], v [S,K*dv], pos_q i[T], seg_q i[T], "
                "pos_k i[S], seg_k i[S][, sinks f[H]]"
                "[, bias f[H,N]][, token_index i[T]] → out [T,H*dv], lse f[T,H]",
    .attributes = "tt_attrs_attention",
    .doc = "softmax(scale q kᵀ) v for each head; a query sees the keys of its segment that are not "
           "after it, by the attributes also those after it or those of a window only; lse is the "
           "log of the sum of exponentials; a query that sees no key has out 0 and, without sinks, "
           "lse -inf",
    .flags = TT_OP_MIXES_TOKENS | TT_OP_HEAVY | TT_OP_MAY_BE_INFINITE,
    .attrs_size = sizeof(tt_attrs_attention),
    .n_out = 2,
    .infer = tt_attention_infer,
    .rule_for = tt_attention_rule,
    .vjp = vjp_attention,
    .cost = tt_attention_cost,
    .print_attrs = tt_attention_print,
    .n_memory = 2,
    .memory = memory,
    .incremental = incremental,
    .cls = TT_CLASS_ATTENTION,
    .ring_form = "attention_ring"};
const tt_op_def tt_op_attention_bwd = {.struct_size = sizeof(tt_op_def),
                                       .name = "attention_bwd",
                                       .operands =
                                           "q, k, v, out, lse, dout, "
                                           "pos_q, seg_q, pos_k, seg_k[, bias][, token_index] "
                                           "(as in attention) "
                                           "→ dq, dk, dv",
                                       .attributes = "tt_attrs_attention",
                                       .doc = "derivative of attention's out to q, k and v",
                                       .flags = TT_OP_MIXES_TOKENS,
                                       .attrs_size = sizeof(tt_attrs_attention),
                                       .n_out = 3,
                                       .infer = tt_attention_infer_bwd,
                                       .rule_for = rule_for_bwd,
                                       .cost = tt_attention_cost_bwd,
                                       .print_attrs = tt_attention_print,
                                       .cls = TT_CLASS_ATTENTION_BACKWARD};
const tt_op_def tt_op_attention_bias_bwd = {
    .struct_size = sizeof(tt_op_def),
    .name = "attention_bias_bwd",
    .operands = "as attention_bwd, bias f[H,N] "
                "→ dq, dk, dv, dbias f[H,N]",
    .attributes = "tt_attrs_attention",
    .doc = "derivative of attention's out to q, k, v and the bias",
    .flags = TT_OP_MIXES_TOKENS,
    .attrs_size = sizeof(tt_attrs_attention),
    .n_out = 4,
    .infer = tt_attention_infer_bias_bwd,
    .rule_for = rule_for_bias_bwd,
    .cost = tt_attention_cost_bwd,
    .print_attrs = tt_attention_print,
    .cls = TT_CLASS_ATTENTION_BACKWARD};

/* Positions of keys for a prefix-LM: those of the prefix count as first, so every query of the segment is
 * at or after them. */
static tt_value *prefix_positions(tt_builder *b, const tt_attention_opts *o, tt_value *pos)
{
    if (o->bias || o->window || o->bidirectional || o->pos_k || o->dropout > 0.0)
        return tt_builder_fail(
            b, TT_EUNSUPPORTED,
            "attention: prefix with bias, window, bidirectional, pos_k or dropout; distances "
            "to keys of a prefix are not known, take one of these alone");
    if (tt_value_type(o->prefix)->dtype != TT_I32)
        return tt_builder_fail(b, TT_EINVAL, "attention: prefix must be i32");
    return tt_select(b, tt_less(b, pos, o->prefix), tt_const(b, 0.0, TT_I32), pos);
}

/* A chunk is a segment, and positions begin anew in it: chunk j of the n of segment s is segment s * n + j. Segments
 * are not negative, but the slot of a row of no sequence is, and remains so. A graph for decoding has sequences in
 * place of segments, so its cache has n sequences of `chunk` positions for each (memory()). */
static void cut_chunks(tt_builder *b, const tt_attention_opts *o, tt_attrs_attention *a,
                       tt_value **pos, tt_value **seg)
{
    const int64_t length = tt_builder_length(b), chunk = o->chunk;
    const int64_t n = chunk > 0 ? (length + chunk - 1) / chunk : 1;
    if (chunk < 0 || (chunk > 0 && (a->own_keys || o->bidirectional || o->bias))) {
        tt_builder_fail(
            b, TT_EUNSUPPORTED,
            "attention: chunk %lld must not be negative, nor with prefix, pos_k, seg_k, "
            "bidirectional or bias",
            (long long)chunk);
        return;
    }
    if (n <= 1)
        return;
    if (n > INT32_MAX / tt_builder_graph(b)->tokens) {
        tt_builder_fail(b, TT_EINVAL,
                        "attention: chunks of %lld cut %lld tokens into too many segments; take "
                        "larger ones",
                        (long long)chunk, (long long)tt_builder_graph(b)->tokens);
        return;
    }
    tt_value *size = tt_const(b, (double)chunk, TT_I32);
    *seg = tt_add(b, tt_mul(b, *seg, tt_const(b, (double)n, TT_I32)), tt_floor_div(b, *pos, size));
    *pos = tt_mod(b, *pos, size);
    a->chunk = (int32_t)chunk;
    a->line = 0;
}

tt_value *tt_attention(tt_builder *b, tt_value *q, tt_value *k, tt_value *v, int64_t head_dim,
                       const tt_attention_opts *opts)
{
    tt_attention_opts o = {0};
    tt_value *pos = tt_input(b, "pos"), *seg = tt_input(b, "seg"), *outs[2] = {NULL, NULL};
    if (opts != NULL)
        o = *opts;
    tt_attrs_attention a = {.head_dim = head_dim,
                            .v_head_dim = o.v_head_dim ? o.v_head_dim : head_dim,
                            .window = o.window,
                            .softcap = o.softcap,
                            .scale = o.scale != 0.0 ? o.scale
                                     : head_dim > 0 ? 1.0 / sqrt((double)head_dim)
                                                    : 1.0,
                            .bidirectional = !!o.bidirectional,
                            .bias = o.bias != NULL,
                            .own_keys = o.pos_k || o.seg_k || o.prefix};
    a.line = a.own_keys ? 0 : tt_builder_graph(b)->line;
    cut_chunks(b, &o, &a, &pos, &seg);
    tt_value *pos_k = o.prefix ? prefix_positions(b, &o, pos) : o.pos_k ? o.pos_k : pos;
    tt_value *ins[10] = {q, k, v, pos, seg, pos_k, o.seg_k ? o.seg_k : seg};
    int n = 7;
    if (o.sinks != NULL)
        ins[n++] = o.sinks;
    if (o.bias != NULL)
        ins[n++] = tt_cast(b, o.bias, tt_dtype_accumulate(tt_value_type(q)->dtype));
    if (tt_builder_mode(b) == TT_BUILD_TRAIN &&
        o.dropout != 0.0) { /* infer refuses what is no rate */
        const char *name = o.dropout_name ? o.dropout_name : "attention";
        a.dropout = o.dropout;
        a.stream = tt_random_stream(tt_dropout_stream(b, name));
        if (tt_attention_drops(&a))
            ins[n++] = tt_input(b, "token_index");
    }
    tt_op(b, "attention", ins, n, &a, outs, 2);
    return outs[0];
}
