/* SPDX-License-Identifier: Apache-2.0 */
#include "attention.h"
#include <string.h>

/* attention_cached: first the new keys and values are written to the cache, one task per (sequence,
 * kv head); then each (sequence, kv head, block of rows) is one task. A row is a (token, query
 * head), so a cache is read once for all heads that share it. Shapes, and the naive twin, in
 * backends/reference/attention_cached.c. */
#define CACHED_ROWS 96

_Static_assert(TT_CACHE_BLOCK == CPU_PANEL, "a block of the cache is a panel of keys");

typedef struct sequence {         /* tokens [first, first + n) of a call */
    int64_t slot, first, n, task; /* task: the index of the sequence's first task */
} sequence;

typedef struct cached {
    const tt_kernel_call *c;
    const cpu_isa *isa;
    cpu_attn a;
    const tt_tensor *bias;                                /* as in cpu_attn_shape */
    const float *sinks;                                   /* [heads]; NULL: none */
    int64_t heads, kv_heads, head_begin, kv_begin, group; /* as in cpu_attn_shape */
    sequence *seq;
    int64_t n_seq, n_tasks;
} cached;

/* This rank's query heads [*begin, *end) that share a kv head. */
static void heads_of(const cached *w, int64_t kv, int64_t *begin, int64_t *end)
{
    const int64_t first = (w->kv_begin + kv) * w->group - w->head_begin;
    *begin = cpu_max(first, 0);
    *end = cpu_min(first + w->group, w->heads);
}

static void write_cache(void *arg, int64_t begin, int64_t end, int thread)
{
    const cached *w = arg;
    const int64_t hd = w->a.hd, dv = w->a.dv, blocks = w->c->out[1].shape[2];
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const sequence *s = &w->seq[i / w->kv_heads];
        const int64_t g = i % w->kv_heads, at = s->slot * w->kv_heads + g;
        float *keys = (float *)w->c->out[1].data + at * blocks * hd * CPU_PANEL,
              *values = (float *)w->c->out[2].data + at * blocks * CPU_PANEL * dv;
        for (int64_t t = s->first; t < s->first + s->n; t++) {
            const int64_t pos = cpu_i32(&w->c->in[3])[t];
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
    return (s->n * w->group + CACHED_ROWS - 1) / CACHED_ROWS;
}

static void attend(void *arg, int64_t begin, int64_t end, int thread)
{
    const cached *w = arg;
    const int64_t hd = w->a.hd, dv = w->a.dv, blocks = w->c->out[1].shape[2];
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const sequence *s = sequence_of(w, i);
        const int64_t n = blocks_of(w, s), g = (i - s->task) / n,
                      row = (i - s->task) % n * CACHED_ROWS;
        const int64_t at = s->slot * w->kv_heads + g;
        int64_t h0, h1;
        heads_of(w, g, &h0, &h1);
        cpu_attn_cached c = {.a = w->a,
                             .group = h1 - h0,
                             .pos = cpu_i32(&w->c->in[3]) + s->first,
                             .q = cpu_f32(&w->c->in[0]) + s->first * w->a.ldq + h0 * hd,
                             .sinks = w->sinks ? w->sinks + h0 : NULL,
                             .out = (float *)w->c->out[0].data + s->first * w->a.ldo + h0 * dv,
                             .keys = cpu_f32(&w->c->out[1]) + at * blocks * hd * CPU_PANEL,
                             .values = cpu_f32(&w->c->out[2]) + at * blocks * CPU_PANEL * dv};
        if (w->bias)
            c.a.bias = cpu_f32(w->bias) + h0 * c.a.n_bias;
        w->isa->attn_cached(&c, row, cpu_min(row + CACHED_ROWS, s->n * c.group));
    }
}

static size_t cached_scratch(const tt_kernel_call *c, int n_threads)
{
    (void)n_threads;
    return cpu_align((size_t)c->out[2].shape[2] * sizeof(int32_t)) +
           cpu_align((size_t)c->in[0].shape[0] * sizeof(sequence));
}

static tt_status find_sequences(cached *w, tt_error *err)
{
    const int32_t *pos = cpu_i32(&w->c->in[3]), *slot = cpu_i32(&w->c->in[4]);
    const int64_t n = w->c->in[0].shape[0], most = w->c->out[2].shape[2];
    for (int64_t t = 0; t < n; t++) {
        sequence *last = w->n_seq ? &w->seq[w->n_seq - 1] : NULL;
        if (slot[t] < 0) {
            memset((float *)w->c->out[0].data + t * w->a.ldo, 0, (size_t)w->a.ldo * sizeof(float));
            continue;
        }
        if (slot[t] >= w->c->out[1].shape[0] || pos[t] < 0 || pos[t] >= most)
            return TT_FAIL(err, TT_EINVAL,
                           "attention_cached: token %lld is number %d of sequence %d, there is "
                           "room for %lld of %lld",
                           (long long)t, (int)pos[t], (int)slot[t], (long long)most,
                           (long long)w->c->out[1].shape[0]);
        if (last && last->slot == slot[t] && last->first + last->n == t && pos[t] > pos[t - 1])
            last->n++;
        else
            w->seq[w->n_seq++] = (sequence){slot[t], t, 1, 0};
    }
    for (int64_t i = 0; i < w->n_seq; i++) {
        w->seq[i].task = w->n_tasks;
        w->n_tasks += blocks_of(w, &w->seq[i]) * w->kv_heads;
    }
    return TT_OK;
}

static tt_status attention_cached(void *self, const tt_kernel_call *c, tt_error *err)
{
    cpu_attn_shape s;
    cpu_attn_shape_of(((const cpu_backend *)self)->isa, c, &c->in[0], &c->in[1], &c->in[2], &s);
    TT_TRY(cpu_attn_check(&s, err));
    cached w = {.c = c,
                .isa = s.isa,
                .a = s.a,
                .bias = s.bias,
                .sinks = cpu_attn_sinks(c),
                .heads = s.heads,
                .kv_heads = s.kv_heads,
                .head_begin = s.head_begin,
                .kv_begin = s.kv_begin,
                .group = s.group};
    const int64_t length = c->out[2].shape[2];
    char *p = c->scratch;
    int32_t *pos = (int32_t *)(void *)cpu_take(&p, length);
    for (int64_t i = 0; i < length; i++)
        pos[i] = (int32_t)i;
    w.a.pos_k = pos;
    w.a.ldq = w.heads * w.a.hd;
    w.a.ldo = w.heads * w.a.dv;
    w.seq = (sequence *)(void *)p;
    TT_TRY(find_sequences(&w, err));
    for (int i = 1; i < 3; i++)
        if (c->out[i].data != c->in[4 + i].data)
            memcpy(c->out[i].data, c->in[4 + i].data,
                   (size_t)tt_tensor_numel(&c->out[i]) * sizeof(float));
    tt_parallel_for(c->pool, w.n_seq * w.kv_heads, 1, write_cache, &w);
    tt_parallel_for(c->pool, w.n_tasks, 1, attend, &w);
    return TT_OK;
}

const cpu_kernel cpu_kernels_attention_cached[] = {
    CPU_KERNEL("attention_cached", attention_cached, cached_scratch, 0, 0),
    CPU_KERNEL_END,
};
