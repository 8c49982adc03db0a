/* SPDX-License-Identifier: Apache-2.0 */
#include "reference.h"
#include <math.h>
#include <ttrun/random.h>

/* rope, attention and conv1d: the ops that depend on positions and segments. T tokens, h query
 * heads, kv key and value heads, hd and dv elements of a head. */

size_t ref_rope_scratch(const tt_kernel_call *c, int n_threads)
{
    (void)n_threads;
    return (size_t)(((const tt_attrs_rope *)c->attrs)->opts.rotary_dim / 2) * sizeof(double);
}

tt_status ref_rope(void *backend, const tt_kernel_call *c, tt_error *err) /* x [T,h*hd], pos [T] */
{
    const tt_attrs_rope *a = c->attrs;
    const tt_tensor *x = &c->in[0];
    int64_t hd = a->opts.head_dim, half = a->opts.rotary_dim / 2, width = x->shape[1];
    double *inv = c->scratch, factor = tt_rope_frequencies(&a->opts, inv, half);
    (void)backend, (void)err;
    for (int64_t t = 0; t < x->shape[0]; t++)
        for (int64_t at = t * width; at < (t + 1) * width; at += hd) {
            for (int64_t j = 0; j < half; j++) {
                int64_t p = at + (a->opts.interleaved ? 2 * j : j),
                        q = a->opts.interleaved ? p + 1 : p + half;
                double angle = (double)ref_index(&c->in[1], t) * inv[j];
                double co = (double)(float)(cos(angle) * factor),
                       si = (double)(float)(sin(angle) * factor);
                double u = ref_load(x, p), v = ref_load(x, q);
                if (a->inverse)
                    si = -si;
                ref_store(&c->out[0], p, u * co - v * si);
                ref_store(&c->out[0], q, v * co + u * si);
            }
            for (int64_t j = 2 * half; j < hd; j++)
                ref_store(&c->out[0], at + j, ref_load(x, at + j));
        }
    return TT_OK;
}

/* ---- attention ---- */

typedef struct heads {
    const tt_attrs_attention *a;
    const tt_tensor *q, *k, *v, *pos_q, *seg_q, *pos_k, *seg_k;
    const tt_tensor *bias;  /* [h, n]; NULL: none */
    const tt_tensor *index; /* token_index of the queries; NULL: no dropout */
    uint64_t key;           /* of dropout's numbers */
    int64_t n_q, n_k;       /* tokens */
    int64_t h, kv;          /* heads on this rank */
    int64_t h0, kv0, group; /* global index of the first head; query heads per kv head */
} heads;

static heads heads_of(const tt_kernel_call *c, int at)
{
    heads s = {.a = c->attrs,
               .q = &c->in[0],
               .k = &c->in[1],
               .v = &c->in[2],
               .pos_q = &c->in[at],
               .seg_q = &c->in[at + 1],
               .pos_k = &c->in[at + 2],
               .seg_k = &c->in[at + 3]};
    int64_t hd = s.a->head_dim;
    const int drops = tt_attention_drops(s.a);
    s.bias = s.a->bias ? &c->in[c->n_in - 1 - drops] : NULL;
    s.index = drops ? &c->in[c->n_in - 1] : NULL;
    s.key = tt_dropout_key(tt_call_seed(c), tt_call_step(c), s.a->stream);
    s.n_q = s.q->shape[0];
    s.n_k = s.k->shape[0];
    s.h = s.q->shape[1] / hd;
    s.kv = s.k->shape[1] / hd;
    s.h0 = s.q->begin[1] / hd;
    s.kv0 = s.k->begin[1] / hd;
    s.group = s.q->global[1] / s.k->global[1];
    return s;
}

static int64_t kv_head(const heads *s, int64_t h) /* local kv head of local query head h */
{
    return (s->h0 + h) / s->group - s->kv0;
}

static bool sees(const heads *s, int64_t t, int64_t i)
{
    int64_t back = ref_index(s->pos_q, t) - ref_index(s->pos_k, i);
    if (ref_index(s->seg_q, t) != ref_index(s->seg_k, i))
        return false;
    if (back < 0 && !s->a->bidirectional)
        return false;
    return s->a->window == 0 || back < s->a->window;
}

int64_t ref_bias_at(const tt_attrs_attention *a, const tt_tensor *bias, int64_t distance)
{
    const int64_t n = bias->shape[1], i = distance + (a->bidirectional ? n / 2 : 0);
    return i < 0 ? 0 : i < n ? i : n - 1;
}

/* What dropout multiplies the weight of query t, local head h and key i by. */
static double factor(const heads *s, int64_t t, int64_t h, int64_t i)
{
    if (!s->index)
        return 1.0;
    const int keeps =
        tt_dropout_keeps(s->key, tt_dropout_limit(s->a->dropout), (uint32_t)ref_index(s->index, t),
                         (uint32_t)(s->h0 + h), (uint32_t)ref_index(s->pos_k, i));
    return keeps ? 1.0 / (1.0 - s->a->dropout) : 0.0;
}

/* the element of bias that the score of query t and key i gets, in a row of bias */
static int64_t bias_at(const heads *s, int64_t t, int64_t i)
{
    return ref_bias_at(s->a, s->bias, ref_index(s->pos_q, t) - ref_index(s->pos_k, i));
}

/* The score of query t and key i; *slope is its derivative with respect to scale * q·k. */
static double score(const heads *s, int64_t t, int64_t h, int64_t i, double *slope)
{
    int64_t hd = s->a->head_dim, qa = (t * s->h + h) * hd, ka = (i * s->kv + kv_head(s, h)) * hd;
    double dot = 0.0;
    for (int64_t d = 0; d < hd; d++)
        dot += ref_load(s->q, qa + d) * ref_load(s->k, ka + d);
    dot *= s->a->scale;
    *slope = 1.0;
    if (s->a->softcap > 0.0) {
        double r = tanh(dot / s->a->softcap);
        *slope = 1.0 - r * r;
        dot = s->a->softcap * r;
    }
    if (s->bias)
        dot += ref_load(s->bias, h * s->bias->shape[1] + bias_at(s, t, i));
    return dot;
}

size_t ref_attention_scratch(const tt_kernel_call *c, int n_threads)
{
    const tt_attrs_attention *a = c->attrs;
    const int64_t dims = a->head_dim + a->v_head_dim,
                  bias = a->bias ? c->in[c->n_in - 1 - tt_attention_drops(a)].shape[1] : 0;
    (void)n_threads;
    return (size_t)(dims > bias ? dims : bias) * sizeof(double);
}

static bool has_sinks(const tt_kernel_call *c)
{
    const tt_attrs_attention *a = c->attrs;
    return c->n_in - (a->bias ? 1 : 0) - tt_attention_drops(a) == 8;
}

static void one_query(const heads *s, const tt_kernel_call *c, int64_t t, int64_t h, double *acc)
{
    int64_t dv = s->a->v_head_dim;
    double m = has_sinks(c) ? ref_load(&c->in[7], h) : (double)-INFINITY, sum = 0.0, slope;
    double sink = m;
    for (int64_t i = 0; i < s->n_k; i++)
        if (sees(s, t, i))
            m = fmax(m, score(s, t, h, i, &slope));
    for (int64_t d = 0; d < dv; d++)
        acc[d] = 0.0;
    for (int64_t i = 0; i < s->n_k; i++) {
        if (!sees(s, t, i))
            continue;
        double p = exp(score(s, t, h, i, &slope) - m);
        sum += p;
        p *= factor(s, t, h, i);
        for (int64_t d = 0; d < dv; d++)
            acc[d] += p * ref_load(s->v, (i * s->kv + kv_head(s, h)) * dv + d);
    }
    if (has_sinks(c))
        sum += exp(sink - m);
    for (int64_t d = 0; d < dv; d++)
        ref_store(&c->out[0], (t * s->h + h) * dv + d, sum > 0.0 ? acc[d] / sum : 0.0);
    ref_store(&c->out[1], t * s->h + h, sum > 0.0 ? m + log(sum) : (double)-INFINITY);
}

tt_status ref_attention_max(void *backend, const tt_kernel_call *c, tt_error *err)
{
    heads s = heads_of(c, 2);
    tt_attrs_attention a = *s.a;
    double slope;
    a.softcap = 0.0;
    s.a = &a;
    s.bias = NULL;
    (void)backend, (void)err;
    for (int64_t h = 0; h < s.h; h++) {
        double m = (double)-INFINITY;
        for (int64_t t = 0; t < s.n_q; t++)
            for (int64_t i = 0; i < s.n_k; i++)
                if (sees(&s, t, i))
                    m = fmax(m, score(&s, t, h, i, &slope));
        ref_store(&c->out[0], h, m);
    }
    return TT_OK;
}

tt_status ref_attention(void *backend, const tt_kernel_call *c, tt_error *err)
{
    heads s = heads_of(c, 3);
    (void)backend, (void)err;
    for (int64_t t = 0; t < s.n_q; t++)
        for (int64_t h = 0; h < s.h; h++)
            one_query(&s, c, t, h, c->scratch);
    return TT_OK;
}

/* the weight of (t, h, i) in out, and the derivatives of the loss with respect to q·k and to the
 * score */
static double share(const heads *s, const tt_kernel_call *c, int64_t t, int64_t h, int64_t i,
                    double *ds, double *dscore)
{
    const tt_tensor *out = &c->in[3], *lse = &c->in[4], *dout = &c->in[5];
    int64_t dv = s->a->v_head_dim, at = (t * s->h + h) * dv;
    double slope, p = exp(score(s, t, h, i, &slope) - ref_load(lse, t * s->h + h)), dp = 0.0,
                  delta = 0.0, kept = factor(s, t, h, i);
    for (int64_t d = 0; d < dv; d++) {
        dp += ref_load(dout, at + d) * ref_load(s->v, (i * s->kv + kv_head(s, h)) * dv + d);
        delta += ref_load(dout, at + d) * ref_load(out, at + d);
    }
    *ds = p * (kept * dp - delta) * slope * s->a->scale;
    *dscore = p * (kept * dp - delta);
    return p * kept;
}

static void bwd_query(const heads *s, const tt_kernel_call *c, int64_t t, int64_t h, double *acc)
{
    int64_t hd = s->a->head_dim;
    double ds, dscore;
    for (int64_t d = 0; d < hd; d++)
        acc[d] = 0.0;
    for (int64_t i = 0; i < s->n_k; i++) {
        if (!sees(s, t, i))
            continue;
        share(s, c, t, h, i, &ds, &dscore);
        for (int64_t d = 0; d < hd; d++)
            acc[d] += ds * ref_load(s->k, (i * s->kv + kv_head(s, h)) * hd + d);
    }
    for (int64_t d = 0; d < hd; d++)
        ref_store(&c->out[0], (t * s->h + h) * hd + d, acc[d]);
}

static void bwd_key(const heads *s, const tt_kernel_call *c, int64_t i, int64_t kv, double *dk)
{
    int64_t hd = s->a->head_dim, dv = s->a->v_head_dim;
    double ds, dscore, *dvalue = dk + hd;
    for (int64_t d = 0; d < hd + dv; d++)
        dk[d] = 0.0;
    for (int64_t t = 0; t < s->n_q; t++)
        for (int64_t h = 0; h < s->h; h++) {
            if (kv_head(s, h) != kv || !sees(s, t, i))
                continue;
            double p = share(s, c, t, h, i, &ds, &dscore);
            for (int64_t d = 0; d < hd; d++)
                dk[d] += ds * ref_load(s->q, (t * s->h + h) * hd + d);
            for (int64_t d = 0; d < dv; d++)
                dvalue[d] += p * ref_load(&c->in[5], (t * s->h + h) * dv + d);
        }
    for (int64_t d = 0; d < hd; d++)
        ref_store(&c->out[1], (i * s->kv + kv) * hd + d, dk[d]);
    for (int64_t d = 0; d < dv; d++)
        ref_store(&c->out[2], (i * s->kv + kv) * dv + d, dvalue[d]);
}

static void bwd_bias(const heads *s, const tt_kernel_call *c, int64_t h, double *acc)
{
    const int64_t n = s->bias->shape[1];
    double ds, dscore;
    for (int64_t i = 0; i < n; i++)
        acc[i] = 0.0;
    for (int64_t t = 0; t < s->n_q; t++)
        for (int64_t i = 0; i < s->n_k; i++)
            if (sees(s, t, i)) {
                share(s, c, t, h, i, &ds, &dscore);
                acc[bias_at(s, t, i)] += dscore;
            }
    for (int64_t i = 0; i < n; i++)
        ref_store(&c->out[3], h * n + i, acc[i]);
}

/* attention_bwd, and with a fourth output, dbias, attention_bias_bwd */
tt_status ref_attention_bwd(void *backend, const tt_kernel_call *c, tt_error *err)
{
    heads s = heads_of(c, 6);
    (void)backend, (void)err;
    for (int64_t t = 0; t < s.n_q; t++)
        for (int64_t h = 0; h < s.h; h++)
            bwd_query(&s, c, t, h, c->scratch);
    for (int64_t i = 0; i < s.n_k; i++)
        for (int64_t kv = 0; kv < s.kv; kv++)
            bwd_key(&s, c, i, kv, c->scratch);
    for (int64_t h = 0; c->n_out == 4 && h < s.h; h++)
        bwd_bias(&s, c, h, c->scratch);
    return TT_OK;
}

tt_status ref_attention_merge(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const int64_t n = tt_tensor_numel(&c->in[1]), dv = n ? tt_tensor_numel(&c->in[0]) / n : 0;
    (void)backend, (void)err;
    for (int64_t i = 0; i < n; i++) { /* i counts (token, head) */
        const double a = ref_load(&c->in[1], i), b = ref_load(&c->in[3], i), top = fmax(a, b);
        const double p = isinf(top) ? 0.0 : exp(a - top), q = isinf(top) ? 0.0 : exp(b - top);
        for (int64_t d = i * dv; d < (i + 1) * dv; d++)
            ref_store(&c->out[0], d,
                      isinf(top)
                          ? 0.0
                          : (ref_load(&c->in[0], d) * p + ref_load(&c->in[2], d) * q) / (p + q));
        ref_store(&c->out[1], i, isinf(top) ? top : top + log(p + q));
    }
    return TT_OK;
}

/* ---- conv1d: x [T,D], w [D,K], seg, pos [T] ---- */

static bool tap(const tt_kernel_call *c, int64_t t,
                /* Does tap j count for token t? Only if token t - j is in the same segment, j
                 * positions earlier. */
                int64_t j)
{
    const tt_tensor *seg = &c->in[2], *pos = &c->in[3];
    if (t - j < 0 || t >= seg->shape[0])
        return false;
    return ref_index(seg, t) == ref_index(seg, t - j) &&
           ref_index(pos, t - j) == ref_index(pos, t) - j;
}

tt_status ref_conv1d(void *backend, const tt_kernel_call *c, tt_error *err)
{
    int64_t n = c->in[0].shape[0], width = c->in[0].shape[1], k = c->in[1].shape[1];
    (void)backend, (void)err;
    for (int64_t t = 0; t < n; t++)
        for (int64_t d = 0; d < width; d++) {
            double sum = 0.0;
            for (int64_t j = 0; j < k; j++)
                if (tap(c, t, j))
                    sum += ref_load(&c->in[1], d * k + k - 1 - j) *
                           ref_load(&c->in[0], (t - j) * width + d);
            ref_store(&c->out[0], t * width + d, sum);
        }
    return TT_OK;
}

tt_status ref_conv1d_bwd(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const tt_tensor *x = &c->in[0], *w = &c->in[1], *dy = &c->in[4];
    int64_t n = x->shape[0], width = x->shape[1], k = w->shape[1];
    (void)backend, (void)err;
    for (int64_t t = 0; t < n; t++)
        for (int64_t d = 0; d < width; d++) {
            double sum = 0.0;
            for (int64_t j = 0; j < k; j++)
                if (tap(c, t + j, j))
                    sum += ref_load(w, d * k + k - 1 - j) * ref_load(dy, (t + j) * width + d);
            ref_store(&c->out[0], t * width + d, sum);
        }
    for (int64_t d = 0; d < width; d++)
        for (int64_t j = 0; j < k; j++) {
            double sum = 0.0;
            for (int64_t t = j; t < n; t++)
                if (tap(c, t, j))
                    sum += ref_load(dy, t * width + d) * ref_load(x, (t - j) * width + d);
            ref_store(&c->out[1], d * k + k - 1 - j, sum);
        }
    return TT_OK;
}
