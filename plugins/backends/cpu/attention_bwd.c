/* SPDX-License-Identifier: Apache-2.0 */
#include "attention.h"
#include <string.h>

/* attention_bwd. A task is (kv head, every n_parts-th block of keys): it makes dk and dv of its
 * blocks and adds dq into its own part, so that nothing is shared; the parts are summed at the end
 * in order. n_parts depends on the shape only. */
#define TASKS                                                                                      \
    16 /* aimed at; kv heads times parts does not exceed it, nor the kv heads where they are more  \
        */
#define LOG2E 1.44269504088896341f

typedef struct backward {
    cpu_attn_shape s;
    const tt_tensor *q, *out, *lse, *dout;
    tt_tensor *dq, *dk, *dv;
    float *kt, *vt, *kr; /* [kv heads][tk_pad * d] */
    float *qr, *dor;     /* [heads][tq_pad * d_pad] */
    float *lse2, *delta; /* [heads][tq_pad] */
    int32_t *extremes;   /* [query blocks][4] */
    float *parts;        /* [n_parts][heads][tq_pad * hd_pad] */
    float *local;        /* a thread's: dk, dv, work */
    int64_t local_size, tq_pad, n_parts;
} backward;

static void take_scratch(backward *w, char **p, int n_threads)
{
    const cpu_attn *a = &w->s.a;
    w->tq_pad = cpu_round_up(a->tq, CPU_QUERIES);
    int64_t blocks = a->tk_pad / CPU_KEYS, kv = w->s.kv_heads, h = w->s.heads;
    w->n_parts = kv > 0 ? cpu_max(1, cpu_min(TASKS / kv, blocks)) : 1;
    w->local_size = CPU_KEYS * (a->hd_pad + a->dv_pad) + 2 * CPU_QUERIES * CPU_KEYS;
    w->kt = cpu_take(p, kv * a->tk_pad * a->hd);
    w->vt = cpu_take(p, kv * a->tk_pad * a->dv);
    w->kr = cpu_take(p, kv * a->tk_pad * a->hd_pad);
    w->qr = cpu_take(p, h * w->tq_pad * a->hd_pad);
    w->dor = cpu_take(p, h * w->tq_pad * a->dv_pad);
    w->lse2 = cpu_take(p, h * w->tq_pad);
    w->delta = cpu_take(p, h * w->tq_pad);
    w->extremes = (int32_t *)(void *)cpu_take(p, w->tq_pad / CPU_QUERIES * 4);
    /* Room for any smaller number of heads too: they come in more parts. */
    int64_t most = kv > 0 ? (h + kv - 1) / kv * cpu_max(kv, cpu_min(TASKS, kv * blocks)) : h;
    w->parts = cpu_take(p, most * w->tq_pad * a->hd_pad);
    w->local = cpu_take(p, n_threads * w->local_size);
}

static size_t backward_scratch(const tt_kernel_call *c, int n_threads)
{
    backward w = {0};
    cpu_attn_shape_of(NULL, c, &c->in[0], &c->in[1], &c->in[2], &w.s);
    char *const base = (char *)(uintptr_t)64, *p = base; /* only measured */
    take_scratch(&w, &p, n_threads);
    return (size_t)(p - base) + cpu_attn_keys_bytes(&w.s);
}

static void pack_keys(void *arg, int64_t begin, int64_t end, int thread)
{
    const backward *w = arg;
    const cpu_attn *a = &w->s.a;
    const int64_t blocks = a->tk_pad / CPU_KEYS;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t h = i / blocks, j = i % blocks * CPU_KEYS;
        cpu_attn_panels(&w->s, w->s.k, h, a->hd, j, w->kt + h * a->tk_pad * a->hd);
        cpu_attn_panels(&w->s, w->s.v, h, a->dv, j, w->vt + h * a->tk_pad * a->dv);
        cpu_attn_rows(w->s.k, h, a->hd, a->hd_pad, j, CPU_KEYS, w->kr + h * a->tk_pad * a->hd_pad);
    }
}

static void pack_queries(void *arg, int64_t begin, int64_t end, int thread)
{
    const backward *w = arg;
    const cpu_attn *a = &w->s.a;
    const int64_t blocks = w->tq_pad / CPU_QUERIES;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t h = i / blocks, t = i % blocks * CPU_QUERIES;
        cpu_attn_rows(w->q, h, a->hd, a->hd_pad, t, CPU_QUERIES, w->qr + h * w->tq_pad * a->hd_pad);
        cpu_attn_rows(w->dout, h, a->dv, a->dv_pad, t, CPU_QUERIES,
                      w->dor + h * w->tq_pad * a->dv_pad);
        for (int64_t r = t; r < cpu_min(a->tq, t + CPU_QUERIES); r++) {
            int64_t at = (r * w->s.heads + h) * a->dv;
            w->lse2[h * w->tq_pad + r] = cpu_f32(w->lse)[r * w->s.heads + h] * LOG2E;
            w->delta[h * w->tq_pad + r] =
                w->s.isa->dot(a->dv, cpu_f32(w->out) + at, cpu_f32(w->dout) + at);
        }
    }
}

/* Store rows of a block of dk or dv, times factor. */
static void write_rows(const float *src, int64_t d_pad, float factor, tt_tensor *to, int64_t head,
                       int64_t d, int64_t j, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float *y = (float *)to->data + (j + i) * to->shape[1] + head * d;
        for (int64_t e = 0; e < d; e++)
            y[e] = src[i * d_pad + e] * factor;
    }
}

static void key_tasks(void *arg, int64_t begin, int64_t end, int thread)
{
    const backward *w = arg;
    const cpu_attn *a = &w->s.a;
    float *dk = w->local + thread * w->local_size, *dv = dk + CPU_KEYS * a->hd_pad;
    for (int64_t i = begin; i < end; i++) {
        const int64_t g = i / w->n_parts, part = i % w->n_parts;
        cpu_attn_bwd b = {.a = *a,
                          .dk = dk,
                          .dv = dv,
                          .work = dv + CPU_KEYS * a->dv_pad,
                          .extremes = w->extremes};
        b.kt = w->kt + g * a->tk_pad * a->hd;
        b.vt = w->vt + g * a->tk_pad * a->dv;
        b.kr = w->kr + g * a->tk_pad * a->hd_pad;
        float *dq = w->parts + part * w->s.heads * w->tq_pad * a->hd_pad;
        for (int64_t h = 0; h < w->s.heads; h++)
            if (cpu_attn_kv_head(&w->s, h) == g)
                memset(dq + h * w->tq_pad * a->hd_pad, 0,
                       (size_t)(w->tq_pad * a->hd_pad) * sizeof(float));
        for (int64_t k0 = part * CPU_KEYS; k0 < a->tk_pad; k0 += w->n_parts * CPU_KEYS) {
            memset(dk, 0, (size_t)(CPU_KEYS * (a->hd_pad + a->dv_pad)) * sizeof(float));
            for (int64_t h = 0; h < w->s.heads; h++) {
                if (cpu_attn_kv_head(&w->s, h) != g)
                    continue;
                b.q = w->qr + h * w->tq_pad * a->hd_pad;
                b.dout = w->dor + h * w->tq_pad * a->dv_pad;
                b.lse = w->lse2 + h * w->tq_pad;
                b.delta = w->delta + h * w->tq_pad;
                b.dq = dq + h * w->tq_pad * a->hd_pad;
                w->s.isa->attn_bwd(&b, k0);
            }
            int64_t n = cpu_min(CPU_KEYS, a->tk - k0);
            write_rows(dk, a->hd_pad, a->scale, w->dk, g, a->hd, k0, n);
            write_rows(dv, a->dv_pad, 1.0f, w->dv, g, a->dv, k0, n);
        }
    }
}

static void sum_queries(void *arg, int64_t begin, int64_t end, int thread)
{
    const backward *w = arg;
    const cpu_attn *a = &w->s.a;
    const int64_t stride = w->s.heads * w->tq_pad * a->hd_pad;
    (void)thread;
    for (int64_t t = begin; t < end; t++)
        for (int64_t h = 0; h < w->s.heads; h++) {
            float *y = (float *)w->dq->data + (t * w->s.heads + h) * a->hd;
            const float *x = w->parts + (h * w->tq_pad + t) * a->hd_pad;
            for (int64_t d = 0; d < a->hd; d++) {
                float s = x[d];
                for (int64_t i = 1; i < w->n_parts; i++)
                    s += x[i * stride + d];
                y[d] = s * a->scale;
            }
        }
}

static tt_status attention_bwd(void *self, const tt_kernel_call *c, tt_error *err)
{
    backward w = {.q = &c->in[0], .out = &c->in[3], .lse = &c->in[4], .dout = &c->in[5]};
    cpu_attn_shape_of(((const cpu_backend *)self)->isa, c, &c->in[0], &c->in[1], &c->in[2], &w.s);
    TT_TRY(cpu_attn_check(&w.s, err));
    cpu_attn *a = &w.s.a;
    char *p = c->scratch;
    w.dq = &c->out[0];
    w.dk = &c->out[1];
    w.dv = &c->out[2];
    cpu_attn_keys(&w.s, cpu_i32(&c->in[8]), cpu_i32(&c->in[9]), &p);
    take_scratch(&w, &p, tt_pool_threads(c->pool));
    a->pos_q = cpu_i32(&c->in[6]);
    a->seg_q = cpu_i32(&c->in[7]);
    for (int64_t t = 0; t < a->tq; t += CPU_QUERIES)
        cpu_attn_extremes(a->pos_q + t, a->seg_q + t, cpu_min(CPU_QUERIES, a->tq - t),
                          w.extremes + t / CPU_QUERIES * 4);
    tt_parallel_for(c->pool, w.s.kv_heads * (a->tk_pad / CPU_KEYS), 4, pack_keys, &w);
    tt_parallel_for(c->pool, w.s.heads * (w.tq_pad / CPU_QUERIES), 4, pack_queries, &w);
    tt_parallel_for(c->pool, w.s.kv_heads * w.n_parts, 1, key_tasks, &w);
    tt_parallel_for(c->pool, a->tq, 64, sum_queries, &w);
    return TT_OK;
}

const cpu_kernel cpu_kernels_attention_bwd[] = {
    CPU_KERNEL("attention_bwd", attention_bwd, backward_scratch, 0, 0),
    CPU_KERNEL_END,
};
