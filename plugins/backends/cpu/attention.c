/* SPDX-License-Identifier: Apache-2.0 */
#include "attention.h"
#include <string.h>

/* attention: rows of keys and values are laid side by side once a kv head, then each (head, some
 * blocks of queries) is one task. */
#define FWD_QUERIES 96

int64_t cpu_attn_kv_head(const cpu_attn_shape *s, int64_t head)
{
    return (s->head_begin + head) / s->group - s->kv_begin;
}

void cpu_attn_shape_of(const cpu_isa *isa, const tt_kernel_call *c, const tt_tensor *q,
                       const tt_tensor *k, const tt_tensor *v, cpu_attn_shape *out)
{
    const tt_attrs_attention *at = c->attrs;
    cpu_attn_shape s = {.isa = isa};
    cpu_attn *a = &s.a;
    a->hd = at->head_dim;
    a->dv = at->v_head_dim;
    a->tq = q->shape[0];
    a->tk = k->shape[0];
    a->tk_pad = cpu_round_up(a->tk, CPU_KEYS);
    /* Before open (planning), pad for the widest level. */
    a->hd_pad = cpu_round_up(a->hd, isa ? isa->lanes : 16);
    a->dv_pad = cpu_round_up(a->dv, isa ? isa->lanes : 16);
    a->window = at->window;
    a->scale = (float)at->scale;
    a->softcap = (float)at->softcap;
    a->causal = !at->bidirectional;
    s.heads = q->shape[1] / a->hd;
    s.kv_heads = k->shape[1] / a->hd;
    int64_t all = q->global[1] / a->hd, all_kv = k->global[1] / a->hd;
    s.head_begin = q->begin[1] / a->hd;
    s.kv_begin = k->begin[1] / a->hd;
    if (all <= 0 || all_kv <= 0) { /* a caller that does not cut */
        all = s.heads;
        all_kv = s.kv_heads;
    }
    s.group = all_kv > 0 ? cpu_max(1, all / all_kv) : 1;
    s.k = k;
    s.v = v;
    *out = s;
}

size_t cpu_attn_keys_bytes(const cpu_attn_shape *s)
{
    return 2 * cpu_align((size_t)s->a.tk_pad * sizeof(int32_t)) +
           cpu_align((size_t)s->a.tk_pad / CPU_SPAN * 4 * sizeof(int32_t));
}

/* Positions and segments of the keys, padded, and the extremes of each span. */
void cpu_attn_keys(cpu_attn_shape *s, const int32_t *pos, const int32_t *seg, char **scratch)
{
    cpu_attn *a = &s->a;
    int32_t *p = (int32_t *)(void *)cpu_take(scratch, a->tk_pad),
            *g = (int32_t *)(void *)cpu_take(scratch, a->tk_pad);
    int32_t *x = (int32_t *)(void *)cpu_take(scratch, a->tk_pad / CPU_SPAN * 4);
    for (int64_t j = 0; j < a->tk_pad; j++) {
        p[j] = j < a->tk ? pos[j] : INT32_MAX;
        g[j] = j < a->tk ? seg[j] : INT32_MIN;
    }
    for (int64_t j = 0; j < a->tk_pad; j += CPU_SPAN) {
        int32_t *e = x + j / CPU_SPAN * 4;
        e[0] = e[2] = INT32_MAX;
        e[1] = e[3] = INT32_MIN;
        for (int64_t i = j; i < j + CPU_SPAN; i++) {
            e[2] = g[i] < e[2] ? g[i] : e[2];
            e[3] = g[i] > e[3] ? g[i] : e[3];
            if (i >= a->tk)
                continue;
            e[0] = p[i] < e[0] ? p[i] : e[0];
            e[1] = p[i] > e[1] ? p[i] : e[1];
        }
    }
    a->pos_k = p;
    a->seg_k = g;
    a->spans = x;
}

/* Rows [j, j + n) of one head, padded to d_pad columns; rows past the end are zero. */
void cpu_attn_copy(const cpu_attn_shape *s, const tt_tensor *x, int64_t head, int64_t d,
                   int64_t d_pad, int64_t j, int64_t n, float *dst)
{
    const int64_t ld = x->shape[1], keep = cpu_max(0, cpu_min(n, x->shape[0] - j));
    s->isa->attn_rows(cpu_f32(x) + j * ld + head * d, ld, keep, d, 1.0f, dst, d_pad, d_pad);
    memset(dst + keep * d_pad, 0, (size_t)((n - keep) * d_pad) * sizeof(float));
}

typedef struct forward {
    cpu_attn_shape s;
    const tt_tensor *q;
    tt_tensor *out, *lse;
    const float *sinks;
    float *k, *v;   /* of all kv heads */
    int64_t blocks; /* of queries, or of keys while copying */
} forward;

static void copy_keys(void *arg, int64_t begin, int64_t end, int thread)
{
    const forward *w = arg;
    const cpu_attn *a = &w->s.a;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t h = i / w->blocks, j = i % w->blocks * CPU_KEYS;
        cpu_attn_copy(&w->s, w->s.k, h, a->hd, a->hd_pad, j, CPU_KEYS,
                      w->k + (h * a->tk_pad + j) * a->hd_pad);
        cpu_attn_copy(&w->s, w->s.v, h, a->dv, a->dv_pad, j, CPU_KEYS,
                      w->v + (h * a->tk_pad + j) * a->dv_pad);
    }
}

static void query_blocks(void *arg, int64_t begin, int64_t end, int thread)
{
    const forward *w = arg;
    const cpu_attn *a = &w->s.a;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        /* Late blocks first: causal ones see the most keys. */
        int64_t h = i / w->blocks, t = (w->blocks - 1 - i % w->blocks) * FWD_QUERIES,
                g = cpu_attn_kv_head(&w->s, h);
        w->s.isa->attn_fwd(a, w->k + g * a->tk_pad * a->hd_pad, w->v + g * a->tk_pad * a->dv_pad,
                           cpu_f32(w->q) + h * a->hd, (float *)w->out->data + h * a->dv,
                           (float *)w->lse->data + h, w->s.heads, w->sinks ? w->sinks + h : NULL, t,
                           cpu_min(a->tq, t + FWD_QUERIES));
    }
}

static size_t attention_scratch(const tt_kernel_call *c, int n_threads)
{
    cpu_attn_shape s;
    (void)n_threads;
    cpu_attn_shape_of(NULL, c, &c->in[0], &c->in[1], &c->in[2], &s);
    size_t k = (size_t)(s.kv_heads * s.a.tk_pad * s.a.hd_pad) * sizeof(float);
    size_t v = (size_t)(s.kv_heads * s.a.tk_pad * s.a.dv_pad) * sizeof(float);
    return cpu_attn_keys_bytes(&s) + cpu_align(k) + cpu_align(v);
}

tt_status cpu_attn_check(const cpu_attn_shape *s, tt_error *err)
{
    if (s->a.hd > CPU_MAX_HEAD_DIM || s->a.dv > CPU_MAX_HEAD_DIM)
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "attention: head_dim %lld is above %d; use more heads or another backend",
                       (long long)cpu_max(s->a.hd, s->a.dv), CPU_MAX_HEAD_DIM);
    return TT_OK;
}

static tt_status attention(void *self, const tt_kernel_call *c, tt_error *err)
{
    forward w = {.q = &c->in[0],
                 .out = &c->out[0],
                 .lse = &c->out[1],
                 .sinks = c->n_in > 7 ? cpu_f32(&c->in[7]) : NULL};
    cpu_attn_shape_of(((const cpu_backend *)self)->isa, c, &c->in[0], &c->in[1], &c->in[2], &w.s);
    TT_TRY(cpu_attn_check(&w.s, err));
    cpu_attn *a = &w.s.a;
    char *p = c->scratch;
    cpu_attn_keys(&w.s, cpu_i32(&c->in[5]), cpu_i32(&c->in[6]), &p);
    w.k = cpu_take(&p, w.s.kv_heads * a->tk_pad * a->hd_pad);
    w.v = cpu_take(&p, w.s.kv_heads * a->tk_pad * a->dv_pad);
    a->pos_q = cpu_i32(&c->in[3]);
    a->seg_q = cpu_i32(&c->in[4]);
    a->ldq = w.s.heads * a->hd;
    a->ldo = w.s.heads * a->dv;
    w.blocks = a->tk_pad / CPU_KEYS;
    tt_parallel_for(c->pool, w.s.kv_heads * w.blocks, 4, copy_keys, &w);
    w.blocks = (a->tq + FWD_QUERIES - 1) / FWD_QUERIES;
    tt_parallel_for(c->pool, w.s.heads * w.blocks, 1, query_blocks, &w);
    return TT_OK;
}

const cpu_kernel cpu_kernels_attention[] = {
    CPU_KERNEL("attention", attention, attention_scratch, 0, 0),
    CPU_KERNEL_END,
};
