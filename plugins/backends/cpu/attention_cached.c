/* SPDX-License-Identifier: Apache-2.0 */
#include "attention.h"
#include <string.h>

/* attention_cached: first the new keys and values are written to the cache, one task per (sequence,
 * kv head); then each (sequence, kv head, block of rows) is one task. A row is a (token, query
 * head), so a cache is read once for all heads that share it. latent_cached is the same with one kv head,
 * whose cache has a row per token; its rows are cut so that every thread has some. Shapes, and the naive
 * twins, in backends/reference/attention_cached.c. */
#define CACHED_ROWS 96
#define LATENT_ROWS 4 /* at least, per task */

_Static_assert(TT_CACHE_BLOCK == CPU_PANEL, "a block of the cache is a panel of keys");

typedef struct sequence {         /* tokens [first, first + n) of a call */
    int64_t slot, first, n, task; /* task: the index of the sequence's first task */
} sequence;

typedef struct cached {
    const tt_kernel_call *c;
    const cpu_isa *isa;
    cpu_attn a;
    bool latent;
    const int32_t *pos, *slot;                            /* [tokens] */
    const tt_tensor *keys, *values;                       /* caches */
    const tt_tensor *bias;                                /* as in cpu_attn_shape */
    const float *sinks;                                   /* [heads]; NULL: none */
    int64_t heads, kv_heads, head_begin, kv_begin, group; /* as in cpu_attn_shape */
    sequence *seq;
    int64_t n_seq, n_tasks, rows; /* rows of a task */
} cached;

/* This rank's query heads [*begin, *end) that share a kv head. */
static void heads_of(const cached *w, int64_t kv, int64_t *begin, int64_t *end)
{
    const int64_t first = (w->kv_begin + kv) * w->group - w->head_begin;
    *begin = cpu_max(first, 0);
    *end = cpu_min(first + w->group, w->heads);
}

static void write_latents(void *arg, int64_t begin, int64_t end, int thread)
{
    const cached *w = arg;
    const int64_t hd = w->a.hd, length = w->keys->shape[1];
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        for (int64_t t = w->seq[i].first; t < w->seq[i].first + w->seq[i].n; t++)
            memcpy((float *)w->keys->data + (w->seq[i].slot * length + w->pos[t]) * hd,
                   cpu_f32(&w->c->in[1]) + t * hd, (size_t)hd * sizeof(float));
}

static void write_cache(void *arg, int64_t begin, int64_t end, int thread)
{
    const cached *w = arg;
    const int64_t hd = w->a.hd, dv = w->a.dv, length = w->values->shape[2];
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const sequence *s = &w->seq[i / w->kv_heads];
        const int64_t g = i % w->kv_heads, at = s->slot * w->kv_heads + g;
        float *keys = (float *)w->keys->data + at * length * hd,
              *values = (float *)w->values->data + at * length * dv;
        for (int64_t t = s->first; t < s->first + s->n; t++) {
            const int64_t pos = w->pos[t];
            const float *k = cpu_f32(&w->c->in[1]) + (t * w->kv_heads + g) * hd;
            float *to = keys + pos / CPU_PANEL * hd * CPU_PANEL + pos % CPU_PANEL;
            for (int64_t d = 0; d < hd; d++)
                to[d * CPU_PANEL] = k[d];
            memcpy(values + pos * dv, cpu_f32(&w->c->in[2]) + (t * w->kv_heads + g) * dv,
                   (size_t)dv * sizeof(float));
        }
    }
}

static const sequence *sequence_of(const cached *w, int64_t task)
{
    int64_t lo = 0, hi = w->n_seq;
    while (hi - lo > 1) {
        const int64_t mid = (lo + hi) / 2;
        if (w->seq[mid].task <= task)
            lo = mid;
        else
            hi = mid;
    }
    return &w->seq[lo];
}

static int64_t blocks_of(const cached *w, const sequence *s) /* blocks of rows per kv head */
{
    return (s->n * w->group + w->rows - 1) / w->rows;
}

static void attend(void *arg, int64_t begin, int64_t end, int thread)
{
    const cached *w = arg;
    const int64_t hd = w->a.hd, dv = w->a.dv, length = w->values->shape[w->latent ? 1 : 2],
                  ld = w->latent ? hd : dv;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const sequence *s = sequence_of(w, i);
        const int64_t n = blocks_of(w, s), g = (i - s->task) / n, row = (i - s->task) % n * w->rows;
        const int64_t at = s->slot * w->kv_heads + g;
        int64_t h0, h1;
        heads_of(w, g, &h0, &h1);
        cpu_attn_cached c = {.a = w->a,
                             .group = h1 - h0,
                             .pos = w->pos + s->first,
                             .q = cpu_f32(&w->c->in[0]) + s->first * w->a.ldq + h0 * hd,
                             .sinks = w->sinks ? w->sinks + h0 : NULL,
                             .out = (float *)w->c->out[0].data + s->first * w->a.ldo + h0 * dv,
                             .keys = cpu_f32(w->keys) + at * length * hd,
                             .values = cpu_f32(w->values) + at * length * ld,
                             .ld_values = ld,
                             .latent = w->latent};
        if (w->bias)
            c.a.bias = cpu_f32(w->bias) + h0 * c.a.n_bias;
        w->isa->attn_cached(&c, row, cpu_min(row + w->rows, s->n * c.group));
    }
}

static size_t cache_scratch(int64_t length, int64_t tokens)
{
    return cpu_align((size_t)length * sizeof(int32_t)) +
           cpu_align((size_t)tokens * sizeof(sequence));
}

static size_t cached_scratch(const tt_kernel_call *c, int n_threads)
{
    (void)n_threads;
    return cache_scratch(c->out[2].shape[2], c->in[0].shape[0]);
}

static size_t latent_scratch(const tt_kernel_call *c, int n_threads)
{
    (void)n_threads;
    return cache_scratch(c->out[1].shape[1], c->in[0].shape[0]);
}

static tt_status find_sequences(cached *w, int64_t most, tt_error *err)
{
    const int32_t *pos = w->pos, *slot = w->slot;
    const int64_t n = w->c->in[0].shape[0];
    for (int64_t t = 0; t < n; t++) {
        sequence *last = w->n_seq ? &w->seq[w->n_seq - 1] : NULL;
        if (slot[t] < 0) {
            memset((float *)w->c->out[0].data + t * w->a.ldo, 0, (size_t)w->a.ldo * sizeof(float));
            continue;
        }
        if (slot[t] >= w->keys->shape[0] || pos[t] < 0 || pos[t] >= most)
            return TT_FAIL(err, TT_EINVAL,
                           "%s: token %lld is number %d of sequence %d, there is room for %lld of "
                           "%lld",
                           w->c->op, (long long)t, (int)pos[t], (int)slot[t], (long long)most,
                           (long long)w->keys->shape[0]);
        if (last && last->slot == slot[t] && last->first + last->n == t && pos[t] > pos[t - 1])
            last->n++;
        else
            w->seq[w->n_seq++] = (sequence){slot[t], t, 1, 0};
    }
    return TT_OK;
}

static void count_tasks(cached *w)
{
    for (int64_t i = 0; i < w->n_seq; i++) {
        w->seq[i].task = w->n_tasks;
        w->n_tasks += blocks_of(w, &w->seq[i]) * w->kv_heads;
    }
}

/* What both ops have: s is of the call, length the positions of a sequence. */
static tt_status begin_call(const tt_kernel_call *c, const cpu_attn_shape *s, int64_t length,
                            cached *w, tt_error *err)
{
    char *p = c->scratch;
    int32_t *pos = (int32_t *)(void *)cpu_take(&p, length);
    for (int64_t i = 0; i < length; i++)
        pos[i] = (int32_t)i;
    w->c = c;
    w->isa = s->isa;
    w->a = s->a;
    w->bias = s->bias;
    w->heads = s->heads;
    w->kv_heads = s->kv_heads;
    w->head_begin = s->head_begin;
    w->kv_begin = s->kv_begin;
    w->group = s->group;
    w->rows = CACHED_ROWS;
    w->a.pos_k = pos;
    w->a.ldq = w->heads * w->a.hd;
    w->a.ldo = w->heads * w->a.dv;
    w->seq = (sequence *)(void *)p;
    return find_sequences(w, length, err);
}

static void copy_cache(const tt_tensor *from, const tt_tensor *to)
{
    if (to->data != from->data)
        memcpy(to->data, from->data, (size_t)tt_tensor_numel(to) * sizeof(float));
}

static tt_status attention_cached(void *self, const tt_kernel_call *c, tt_error *err)
{
    cpu_attn_shape s;
    cpu_attn_shape_of(((const cpu_backend *)self)->isa, c, &c->in[0], &c->in[1], &c->in[2], &s);
    TT_TRY(cpu_attn_check(&s, err));
    cached w = {.pos = cpu_i32(&c->in[3]),
                .slot = cpu_i32(&c->in[4]),
                .keys = &c->out[1],
                .values = &c->out[2],
                .sinks = cpu_attn_sinks(c)};
    TT_TRY(begin_call(c, &s, c->out[2].shape[2], &w, err));
    count_tasks(&w);
    copy_cache(&c->in[5], &c->out[1]);
    copy_cache(&c->in[6], &c->out[2]);
    tt_parallel_for(c->pool, w.n_seq * w.kv_heads, 1, write_cache, &w);
    tt_parallel_for(c->pool, w.n_tasks, 1, attend, &w);
    return TT_OK;
}

static tt_status latent_cached(void *self, const tt_kernel_call *c, tt_error *err)
{
    cpu_attn_shape s;
    cpu_attn_shape_of(((const cpu_backend *)self)->isa, c, &c->in[0], &c->in[1], &c->in[1], &s);
    if (s.a.hd > CPU_MAX_CACHED_DIM)
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "%s: a token's latent vector and key have %lld numbers, above %d; generate "
                       "with --cache heads",
                       c->op, (long long)s.a.hd, CPU_MAX_CACHED_DIM);
    cached w = {.latent = true,
                .pos = cpu_i32(&c->in[2]),
                .slot = cpu_i32(&c->in[3]),
                .keys = &c->out[1],
                .values = &c->out[1]};
    if (c->n_in - (s.bias ? 1 : 0) > 5)
        w.sinks = cpu_f32(&c->in[5]);
    TT_TRY(begin_call(c, &s, c->out[1].shape[1], &w, err));
    const int64_t all = c->in[0].shape[0] * w.group, n = tt_pool_threads(c->pool);
    w.rows = cpu_max(LATENT_ROWS, cpu_min(CACHED_ROWS, (all + n - 1) / n));
    count_tasks(&w);
    copy_cache(&c->in[4], &c->out[1]);
    tt_parallel_for(c->pool, w.n_seq, 1, write_latents, &w);
    tt_parallel_for(c->pool, w.n_tasks, 1, attend, &w);
    return TT_OK;
}

const cpu_kernel cpu_kernels_attention_cached[] = {
    CPU_KERNEL("attention_cached", attention_cached, cached_scratch, 0, 0),
    CPU_KERNEL("latent_cached", latent_cached, latent_scratch, 0, 0),
    CPU_KERNEL_END,
};
