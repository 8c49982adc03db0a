/* SPDX-License-Identifier: Apache-2.0 */
#include "attention.h"
#include <math.h>

/* attention_max: scores are computed tile by tile as in attention.c, and only their maxima are kept. q [Tq,h*hd],
 * k [Tk,kv*hd], positions and segments of queries [Tq] and keys [Tk] -> [h]. */
#define MAX_QUERIES 96

typedef struct tops {
    cpu_attn_shape s;
    const tt_tensor *q;
    int64_t kv, first, blocks; /* kv head, its first query head; blocks of queries */
    float *k;                  /* its keys, [tk_pad, hd_pad] */
    float *most;               /* [query heads of the kv head][blocks] */
} tops;

static void copy_key_blocks(void *arg, int64_t begin, int64_t end, int thread)
{
    const tops *w = arg;
    const cpu_attn *a = &w->s.a;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        cpu_attn_copy(&w->s, w->s.k, w->kv, a->hd, a->hd_pad, i * CPU_KEYS, CPU_KEYS,
                      w->k + i * CPU_KEYS * a->hd_pad);
}

static void max_blocks(void *arg, int64_t begin, int64_t end, int thread)
{
    const tops *w = arg;
    const cpu_attn *a = &w->s.a;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const int64_t h = w->first + i / w->blocks, t = i % w->blocks * MAX_QUERIES;
        w->most[i] = w->s.isa->attn_top(a, w->k, cpu_f32(w->q) + h * a->hd, t,
                                        cpu_min(a->tq, t + MAX_QUERIES));
    }
}

static int64_t max_blocks_of(const cpu_attn_shape *s)
{
    return (s->a.tq + MAX_QUERIES - 1) / MAX_QUERIES;
}

static size_t max_scratch(const tt_kernel_call *c, int n_threads)
{
    cpu_attn_shape s;
    (void)n_threads;
    cpu_attn_shape_of(NULL, c, &c->in[0], &c->in[1], &c->in[1], &s);
    return cpu_attn_keys_bytes(&s) + cpu_align((size_t)(s.a.tk_pad * s.a.hd_pad) * sizeof(float)) +
           cpu_align((size_t)(s.group * max_blocks_of(&s)) * sizeof(float));
}

static tt_status attention_max(void *self, const tt_kernel_call *c, tt_error *err)
{
    tops w = {.q = &c->in[0]};
    float *out = c->out[0].data;
    char *p = c->scratch;
    cpu_attn_shape_of(((const cpu_backend *)self)->isa, c, &c->in[0], &c->in[1], &c->in[1], &w.s);
    TT_TRY(cpu_attn_check(&w.s, err));
    cpu_attn *a = &w.s.a;
    cpu_attn_keys(&w.s, cpu_i32(&c->in[4]), cpu_i32(&c->in[5]), &p);
    w.k = cpu_take(&p, a->tk_pad * a->hd_pad);
    w.most = cpu_take(&p, w.s.group * max_blocks_of(&w.s));
    w.blocks = max_blocks_of(&w.s);
    a->pos_q = cpu_i32(&c->in[2]);
    a->seg_q = cpu_i32(&c->in[3]);
    a->ldq = w.s.heads * a->hd;
    for (int64_t h = 0; h < w.s.heads;) {
        int64_t n = 0;
        w.kv = cpu_attn_kv_head(&w.s, w.first = h);
        while (h + n < w.s.heads && cpu_attn_kv_head(&w.s, h + n) == w.kv)
            out[h + n++] = -INFINITY;
        tt_parallel_for(c->pool, a->tk_pad / CPU_KEYS, 4, copy_key_blocks, &w);
        tt_parallel_for(c->pool, n * w.blocks, 1, max_blocks, &w);
        for (int64_t i = 0; i < n * w.blocks; i++)
            if (w.most[i] > out[h + i / w.blocks] || isnan(w.most[i]))
                out[h + i / w.blocks] = w.most[i];
        h += n;
    }
    return TT_OK;
}

const cpu_kernel cpu_kernels_attention_max[] = {
    CPU_KERNEL("attention_max", attention_max, max_scratch, 0, 0),
    CPU_KERNEL_END,
};
