/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_ATTENTION_TWIN_H
#define TT_TESTS_ATTENTION_TWIN_H
#include "cpu_harness.h"
#include <stdbool.h>
#include <ttrun/random.h>

/* attention and attention_bwd as plain loops in double. */

typedef struct problem {
    int64_t tq, tk, heads, kv, hd, dv, window;
    double softcap, scale;
    int bidirectional, sinks, lines,
        first_head; /* lines: segments; first_head: begin of the query heads in the whole */
    int64_t all_heads;
    int64_t distances; /* of the bias; 0: none */
    double dropout;
} problem;

#define ATTRS(p)                                                                                   \
    {                                                                                              \
        .head_dim = (p)->hd, .v_head_dim = (p)->dv, .window = (p)->window,                         \
        .softcap = (p)->softcap, .scale = (p)->scale, .bidirectional = (p)->bidirectional,         \
        .bias = (p)->distances > 0, .dropout = (p)->dropout, .stream = 99                          \
    }

typedef struct data {
    tt_tensor q, k, v, pos_q, seg_q, pos_k, seg_k, sinks, out, lse, dout, dq, dk, dv, bias, dbias;
    tt_tensor token_index;
} data;

static double *doubles(const tt_tensor *t)
{
    int64_t n = tt_tensor_numel(t);
    double *d = malloc((size_t)(n + 1) * sizeof *d);
    for (int64_t i = 0; i < n; i++)
        d[i] = (double)fp(t)[i];
    return d;
}

static data make(const problem *p)
{
    data d;
    d.q = filled(F32(p->tq, p->heads * p->hd));
    d.k = filled(F32(p->tk, p->kv * p->hd));
    d.v = filled(F32(p->tk, p->kv * p->dv));
    d.pos_q = I32(p->tq);
    d.seg_q = I32(p->tq);
    d.pos_k = I32(p->tk);
    d.seg_k = I32(p->tk);
    d.sinks = filled(F32(p->heads));
    d.out = F32(p->tq, p->heads * p->dv);
    d.lse = F32(p->tq, p->heads);
    d.dout = filled(F32(p->tq, p->heads * p->dv));
    d.dq = F32(p->tq, p->heads * p->hd);
    d.dk = F32(p->tk, p->kv * p->hd);
    d.dv = F32(p->tk, p->kv * p->dv);
    d.bias = filled(F32(p->heads, p->distances));
    d.dbias = F32(p->heads, p->distances);
    d.q.begin[1] = p->first_head * p->hd;
    if (p->all_heads)
        d.q.global[1] = p->all_heads * p->hd;
    int64_t line = p->tk > 0 ? (p->tk + p->lines - 1) / p->lines : 1,
            skip = p->tk - p->tq; /* queries are the last tokens */
    for (int64_t i = 0; i < p->tk; i++) {
        ip(&d.pos_k)[i] = (int32_t)(i % line);
        ip(&d.seg_k)[i] = (int32_t)(i / line);
    }
    for (int64_t i = 0; i < p->tq; i++) {
        int64_t at = skip > 0 ? i + skip : i;
        ip(&d.pos_q)[i] = (int32_t)(at % line);
        ip(&d.seg_q)[i] = (int32_t)(at / line);
    }
    d.token_index = I32(p->tq);
    for (int64_t i = 0; i < p->tq; i++) /* in any order, from 2^31 on negative as i32 */
        ip(&d.token_index)[i] = (int32_t)(uint32_t)(i * 2654435761u + 5u);
    if (p->lines > 2 && p->tq > 3)
        ip(&d.seg_q)[3] = 77; /* sees nothing */
    return d;
}

static void release(data *d)
{
    tt_tensor all[] = {d->q,     d->k,     d->v,    d->pos_q, d->seg_q,      d->pos_k,
                       d->seg_k, d->sinks, d->out,  d->lse,   d->dout,       d->dq,
                       d->dk,    d->dv,    d->bias, d->dbias, d->token_index};
    drop(all, (int)TT_COUNT(all));
}

static int visible(const problem *p, const data *d, int64_t t, int64_t s)
{
    int32_t pq = ip(&d->pos_q)[t], pk = ip(&d->pos_k)[s];
    return ip(&d->seg_q)[t] == ip(&d->seg_k)[s] && (p->bidirectional || pk <= pq) &&
           (!p->window || pq - pk < p->window);
}

/* where the bias of head h, query t and key s is */
static int64_t bias_of(const problem *p, const data *d, int64_t h, int64_t t, int64_t s)
{
    int64_t i = ip(&d->pos_q)[t] - ip(&d->pos_k)[s] + (p->bidirectional ? p->distances / 2 : 0);
    i = i < p->distances ? i : p->distances - 1;
    return h * p->distances + (i > 0 ? i : 0);
}

static int64_t kv_of(const problem *p, int64_t h)
{
    int64_t all = p->all_heads ? p->all_heads : p->heads;
    return (p->first_head + h) / (all / p->kv);
}

/* What dropout multiplies a weight by. */
static double kept_of(const problem *p, const data *d, int64_t h, int64_t t, int64_t s)
{
    if (p->dropout <= 0)
        return 1;
    return tt_dropout_keeps(tt_dropout_key(7, 3, 99), tt_dropout_limit(p->dropout),
                            (uint32_t)ip(&d->token_index)[t], (uint32_t)(p->first_head + h),
                            (uint32_t)ip(&d->pos_k)[s])
               ? 1 / (1 - p->dropout)
               : 0;
}

/* Weights of query t of head h over all keys, the sink's share, and lse. raw: the derivative factor
 * of capped scores. */
static double weights(const problem *p, const data *d, const double *q, const double *k,
                      const double *sinks, int64_t h, int64_t t, double *w, double *factor)
{
    double top = -INFINITY, sum = 0;
    int64_t g = kv_of(p, h);
    int any = 0;
    for (int64_t s = 0; s < p->tk; s++) {
        double x = 0;
        for (int64_t e = 0; e < p->hd; e++)
            x += q[(t * p->heads + h) * p->hd + e] * k[(s * p->kv + g) * p->hd + e];
        x *= p->scale;
        factor[s] = 1;
        if (p->softcap > 0) {
            double th = tanh(x / p->softcap);
            x = th * p->softcap;
            factor[s] = 1 - th * th;
        }
        if (p->distances)
            x += (double)fp(&d->bias)[bias_of(p, d, h, t, s)];
        w[s] = visible(p, d, t, s) ? x : (double)-INFINITY;
        any |= visible(p, d, t, s);
        top = w[s] > top ? w[s] : top;
    }
    if (!any) {
        memset(w, 0, (size_t)p->tk * sizeof *w);
        return p->sinks ? sinks[h] : (double)-INFINITY;
    }
    if (p->sinks && sinks[h] > top)
        top = sinks[h];
    for (int64_t s = 0; s < p->tk; s++)
        sum += w[s] = exp(w[s] - top);
    if (p->sinks)
        sum += exp(sinks[h] - top);
    for (int64_t s = 0; s < p->tk; s++)
        w[s] /= sum;
    return top + log(sum);
}

static double forward(const problem *p, const data *d, const double *q, const double *k,
                      const double *v, const double *sinks, double *out, double *lse)
{
    double *w = malloc((size_t)(p->tk + 1) * sizeof *w),
           *f = malloc((size_t)(p->tk + 1) * sizeof *f), loss = 0;
    for (int64_t t = 0; t < p->tq; t++)
        for (int64_t h = 0; h < p->heads; h++) {
            lse[t * p->heads + h] = weights(p, d, q, k, sinks, h, t, w, f);
            for (int64_t e = 0; e < p->dv; e++) {
                double x = 0;
                for (int64_t s = 0; s < p->tk; s++)
                    x += w[s] * kept_of(p, d, h, t, s) * v[(s * p->kv + kv_of(p, h)) * p->dv + e];
                out[(t * p->heads + h) * p->dv + e] = x;
                loss += x * (double)fp(&d->dout)[(t * p->heads + h) * p->dv + e];
            }
        }
    free(w);
    free(f);
    return loss;
}

static void backward(const problem *p, const data *d, const double *q, const double *k,
                     const double *v, const double *sinks, double *dq, double *dk, double *dv,
                     double *ds, double *dbias)
{
    double *w = malloc((size_t)(p->tk + 1) * sizeof *w),
           *f = malloc((size_t)(p->tk + 1) * sizeof *f);
    for (int64_t h = 0; h < p->heads; h++) {
        int64_t g = kv_of(p, h);
        ds[h] = 0;
        for (int64_t t = 0; t < p->tq; t++) {
            double lse = weights(p, d, q, k, sinks, h, t, w, f), delta = 0;
            const float *dout = fp(&d->dout) + (t * p->heads + h) * p->dv;
            for (int pass = 0; pass < 2; pass++)
                for (int64_t s = 0; s < p->tk; s++) {
                    const double kept = kept_of(p, d, h, t, s);
                    double dw = 0;
                    for (int64_t e = 0; e < p->dv; e++)
                        dw += kept * (double)dout[e] * v[(s * p->kv + g) * p->dv + e];
                    if (!pass) {
                        delta += w[s] * dw;
                        continue;
                    }
                    double x = w[s] * (dw - delta) * f[s] * p->scale;
                    if (p->distances)
                        dbias[bias_of(p, d, h, t, s)] += w[s] * (dw - delta);
                    for (int64_t e = 0; e < p->dv; e++)
                        dv[(s * p->kv + g) * p->dv + e] += w[s] * kept * (double)dout[e];
                    for (int64_t e = 0; e < p->hd; e++) {
                        dq[(t * p->heads + h) * p->hd + e] += x * k[(s * p->kv + g) * p->hd + e];
                        dk[(s * p->kv + g) * p->hd + e] += x * q[(t * p->heads + h) * p->hd + e];
                    }
                }
            if (p->sinks && !isinf(lse))
                ds[h] -= exp(sinks[h] - lse) * delta;
        }
    }
    free(w);
    free(f);
}

static double *zeros(int64_t n)
{
    return calloc((size_t)n + 1, sizeof(double));
}

#endif
