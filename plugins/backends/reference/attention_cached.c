/* SPDX-License-Identifier: Apache-2.0 */
#include "reference.h"
#include <math.h>
#include <string.h>

/* attention_cached: q [T,h*hd], k [T,kv*hd], v [T,kv*dv], pos, slot [T], keys [S,kv,B,hd,32],
 * values [S,kv,B*32,dv][, sinks [h]][, bias [h,n]] → out [T,h*dv], keys, values.
 * latent_cached: q [T,h*hd], kv [T,hd], pos, slot [T], cache [S,P,hd][, sinks [h]][, bias [h,n]] → out
 * [T,h*dv], cache: all heads have the key kv, whose first dv elements are the value. */

typedef struct cache {
    const tt_attrs_attention *a;
    const tt_tensor *q, *keys, *values;         /* values NULL: in keys */
    const tt_tensor *pos, *slot, *sinks, *bias; /* sinks, bias: NULL: none */
    /* heads on this rank, the global index of the first ones, query heads per kv head */
    int64_t h, kv, h0, kv0, group;
} cache;

static int64_t key_at(const cache *s, int64_t slot, int64_t kv, int64_t i, int64_t d)
{
    const int64_t *n = s->keys->shape;
    if (!s->values)
        return (slot * n[1] + i) * n[2] + d;
    return (((slot * n[1] + kv) * n[2] + i / n[4]) * n[3] + d) * n[4] + i % n[4];
}

static int64_t value_at(const cache *s, int64_t slot, int64_t kv, int64_t i, int64_t d)
{
    if (!s->values)
        return key_at(s, slot, kv, i, d);
    const int64_t *n = s->values->shape;
    return ((slot * n[1] + kv) * n[2] + i) * n[3] + d;
}

static void write_token(const cache *s, const tt_kernel_call *c, int64_t t)
{
    const int64_t hd = s->a->head_dim, dv = s->a->v_head_dim, pos = ref_index(s->pos, t),
                  slot = ref_index(s->slot, t);
    for (int64_t g = 0; g < s->kv; g++) {
        for (int64_t d = 0; d < hd; d++)
            ref_store(s->keys, key_at(s, slot, g, pos, d),
                      ref_load(&c->in[1], (t * s->kv + g) * hd + d));
        for (int64_t d = 0; s->values && d < dv; d++)
            ref_store(s->values, value_at(s, slot, g, pos, d),
                      ref_load(&c->in[2], (t * s->kv + g) * dv + d));
    }
}

static double score(const cache *s, int64_t t, int64_t h, int64_t slot, int64_t i)
{
    const int64_t hd = s->a->head_dim, kv = (s->h0 + h) / s->group - s->kv0;
    double dot = 0.0;
    for (int64_t d = 0; d < hd; d++)
        dot +=
            ref_load(s->q, (t * s->h + h) * hd + d) * ref_load(s->keys, key_at(s, slot, kv, i, d));
    dot *= s->a->scale;
    if (s->a->softcap > 0.0)
        dot = s->a->softcap * tanh(dot / s->a->softcap);
    if (s->bias)
        dot += ref_load(s->bias, h * s->bias->shape[1] +
                                     ref_bias_at(s->a, s->bias, ref_index(s->pos, t) - i));
    return dot;
}

static void one_query(const cache *s, const tt_kernel_call *c, int64_t t, int64_t h)
{
    const int64_t dv = s->a->v_head_dim, pos = ref_index(s->pos, t), slot = ref_index(s->slot, t),
                  kv = (s->h0 + h) / s->group - s->kv0;
    const int64_t first = s->a->window > 0 && pos >= s->a->window ? pos - s->a->window + 1 : 0;
    const double sink = s->sinks ? ref_load(s->sinks, h) : (double)-INFINITY;
    double *acc = c->scratch, top = sink, sum = 0.0;
    memset(acc, 0, (size_t)dv * sizeof *acc);
    for (int64_t i = first; slot >= 0 && i <= pos; i++)
        top = fmax(top, score(s, t, h, slot, i));
    for (int64_t i = first; slot >= 0 && i <= pos; i++) {
        const double p = exp(score(s, t, h, slot, i) - top);
        sum += p;
        for (int64_t d = 0; d < dv; d++)
            acc[d] += p * ref_load(s->values ? s->values : s->keys, value_at(s, slot, kv, i, d));
    }
    if (s->sinks && slot >= 0)
        sum += exp(sink - top);
    for (int64_t d = 0; d < dv; d++)
        ref_store(&c->out[0], (t * s->h + h) * dv + d, sum > 0.0 ? acc[d] / sum : 0.0);
}

/* Adds the new tokens to caches of `length` positions, then lets them attend. */
static tt_status run_cached(cache *s, const tt_kernel_call *c, int64_t length, tt_error *err)
{
    s->a = c->attrs;
    s->q = &c->in[0];
    s->bias = s->a->bias ? &c->in[c->n_in - 1] : NULL;
    s->h = s->q->shape[1] / s->a->head_dim;
    s->kv = c->in[1].shape[1] / s->a->head_dim;
    s->h0 = s->q->begin[1] / s->a->head_dim;
    s->kv0 = c->in[1].begin[1] / s->a->head_dim;
    s->group = s->kv ? s->q->global[1] / c->in[1].global[1] : 1;
    for (int64_t t = 0; t < s->q->shape[0]; t++) {
        const int64_t slot = ref_index(s->slot, t), pos = ref_index(s->pos, t);
        if (slot >= s->keys->shape[0] || (slot >= 0 && (pos < 0 || pos >= length)))
            return TT_FAIL(err, TT_EINVAL,
                           "%s: token %lld is number %lld of sequence %lld, there is room for %lld "
                           "of %lld",
                           c->op, (long long)t, (long long)pos, (long long)slot, (long long)length,
                           (long long)s->keys->shape[0]);
        if (slot >= 0)
            write_token(s, c, t);
    }
    for (int64_t t = 0; t < s->q->shape[0]; t++)
        for (int64_t h = 0; h < s->h; h++)
            one_query(s, c, t, h);
    return TT_OK;
}

static void copy_cache(const tt_tensor *from, const tt_tensor *to)
{
    if (to->data != from->data)
        memcpy(to->data, from->data, (size_t)tt_tensor_numel(to) * tt_dtype_size(to->dtype));
}

tt_status ref_attention_cached(void *backend, const tt_kernel_call *c, tt_error *err)
{
    cache s = {.keys = &c->out[1], .values = &c->out[2], .pos = &c->in[3], .slot = &c->in[4]};
    (void)backend;
    if (c->n_in - !!((const tt_attrs_attention *)c->attrs)->bias == 8)
        s.sinks = &c->in[7];
    copy_cache(&c->in[5], &c->out[1]);
    copy_cache(&c->in[6], &c->out[2]);
    return run_cached(&s, c, c->out[2].shape[2], err);
}

tt_status ref_latent_cached(void *backend, const tt_kernel_call *c, tt_error *err)
{
    cache s = {.keys = &c->out[1], .pos = &c->in[2], .slot = &c->in[3]};
    (void)backend;
    if (c->n_in - !!((const tt_attrs_attention *)c->attrs)->bias == 6)
        s.sinks = &c->in[5];
    copy_cache(&c->in[4], &c->out[1]);
    return run_cached(&s, c, c->out[1].shape[1], err);
}
