/* SPDX-License-Identifier: Apache-2.0 */
#include "attention.h"
#include <math.h>
#include <string.h>

/* attention_bwd. A task is (kv head, part), where a part is a run of blocks of keys. The task
 * computes dk and dv of its keys, and dq of the queries that see them, one query head after
 * another. It works on its own contiguous copies; those of the queries form a ring. If parts share
 * queries, each part adds into an array of its own, and the arrays are summed at the end, in order.
 * The parts depend on shape, positions and segments only. The derivative of a bias is likewise
 * added up per part, in f64. q [Tq,h*hd], k [Tk,kv*hd], v [Tk,kv*dv],
 * out [Tq,h*dv], lse [Tq,h], dout [Tq,h*dv] -> dq, dk, dv, shaped as q, k, v. Naive twin:
 * ref_attention_bwd in backends/reference/attention.c. */
/* The number of tasks aimed at. Kv heads times parts does not exceed the larger of it and the
 * number of kv heads. */
#define TASKS 16
#define LOG2E 1.44269504088896341f

typedef struct backward {
    cpu_attn_shape s;
    const tt_tensor *q, *out, *lse, *dout;
    tt_tensor *dq, *dk, *dv, *dbias;
    bool with_dbias;        /* is dbias an output? */
    double *sums;           /* of dbias: [n_parts][heads][n_bias] */
    int32_t *extremes;      /* [tq_pad / lanes][4] */
    int32_t *pos_q, *seg_q; /* [tq_pad] */
    int32_t *token_index;   /* [tq_pad], with dropout */
    /* [blocks of keys]: the range of blocks of queries that may see the block; and the block of
     * queries before which no later block of keys of the part is seen */
    int64_t (*seen_by)[3];
    /* [n_parts]: the range of blocks of keys, the range of blocks of queries, and how many of
     * these are in use at a time */
    int64_t (*part)[5];
    float *shared; /* dq per part: [n_parts][heads][blocks][hd_pad][Q] */
    float *local;  /* a thread's copies, see take_local */
    /* n_q, n_k: number of blocks of queries and keys */
    int64_t local_size, tq_pad, n_parts, n_q, n_k;
} backward;

/* A task's own arrays; those of queries hold one head. */
typedef struct task {
    float *k, *v, *dk, *dv;       /* [tk_pad][d_pad] */
    float *q, *dout;              /* [tq_pad][d_pad] */
    float *q_col, *dout_col, *dq; /* [blocks][d][Q]; dq's d is hd_pad */
    float *lse, *delta;           /* [tq_pad] */
    float *work;                  /* [2][CPU_KEYS][Q] */
} task;

static task take_local(const backward *w, char **p)
{
    const cpu_attn *a = &w->s.a;
    task t;
    t.k = cpu_take(p, a->tk_pad * a->hd_pad);
    t.v = cpu_take(p, a->tk_pad * a->dv_pad);
    t.dk = cpu_take(p, a->tk_pad * a->hd_pad);
    t.dv = cpu_take(p, a->tk_pad * a->dv_pad);
    t.q = cpu_take(p, w->tq_pad * a->hd_pad);
    t.dout = cpu_take(p, w->tq_pad * a->dv_pad);
    t.q_col = cpu_take(p, w->tq_pad * a->hd);
    t.dout_col = cpu_take(p, w->tq_pad * a->dv);
    t.dq = cpu_take(p, w->tq_pad * a->hd_pad);
    t.lse = cpu_take(p, w->tq_pad);
    t.delta = cpu_take(p, w->tq_pad);
    t.work = cpu_take(p, 2 * CPU_KEYS * CPU_QUERIES);
    return t;
}

static void take_scratch(backward *w, char **p, int n_threads)
{
    const cpu_attn *a = &w->s.a;
    /* While planning the instruction set is unknown: the widest level's blocks and the narrowest
     * level's vectors. */
    const int64_t block = w->s.isa ? w->s.isa->attn_queries : CPU_QUERIES,
                  lanes = w->s.isa ? w->s.isa->lanes : 4;
    w->tq_pad = cpu_round_up(a->tq, block);
    w->n_q = w->tq_pad / block;
    w->n_k = a->tk_pad / CPU_KEYS;
    int64_t kv = w->s.kv_heads, h = w->s.heads;
    w->n_parts = kv > 0 ? cpu_max(1, cpu_min(TASKS / kv, w->n_k)) : 1;
    w->extremes = (int32_t *)(void *)cpu_take(p, w->tq_pad / lanes * 4);
    w->pos_q = (int32_t *)(void *)cpu_take(p, w->tq_pad);
    w->seg_q = (int32_t *)(void *)cpu_take(p, w->tq_pad);
    w->token_index = (int32_t *)(void *)cpu_take(p, a->kept > 0.0f ? w->tq_pad : 0);
    w->seen_by = (int64_t(*)[3])(void *)cpu_take(p, w->n_k * 6);
    w->part = (int64_t(*)[5])(void *)cpu_take(p, TASKS * 10);
    /* Enough for any smaller number of heads too, although fewer heads are cut into more parts. */
    int64_t most = kv > 0 ? (h + kv - 1) / kv * cpu_max(kv, cpu_min(TASKS, kv * w->n_k)) : h;
    w->shared = cpu_take(p, most * w->tq_pad * a->hd_pad);
    w->sums = (double *)(void *)cpu_take(p, w->with_dbias ? most * a->n_bias * 2 : 0);
    char *const begin = *p;
    (void)take_local(w, p);
    w->local = (float *)(void *)begin;
    w->local_size = (*p - begin) / (int64_t)sizeof(float);
    *p += (n_threads - 1) * (*p - begin);
}

static size_t backward_scratch(const tt_kernel_call *c, int n_threads)
{
    backward w = {.with_dbias = c->n_out == 4};
    cpu_attn_shape_of(NULL, c, &c->in[0], &c->in[1], &c->in[2], &w.s);
    char *const base = (char *)(uintptr_t)64, *p = base; /* only measured, not used */
    take_scratch(&w, &p, n_threads);
    return (size_t)(p - base) + cpu_attn_keys_bytes(&w.s);
}

/* Positions and segments of the queries, padded, and their minima and maxima. */
static void read_queries(backward *w, const int32_t *pos, const int32_t *seg)
{
    cpu_attn *a = &w->s.a;
    const int64_t lanes = w->s.isa->lanes;
    for (int64_t t = 0; t < w->tq_pad; t++) {
        w->pos_q[t] = t < a->tq ? pos[t] : 0;
        w->seg_q[t] = t < a->tq ? seg[t] : CPU_NO_SEGMENT;
        if (a->kept > 0.0f)
            w->token_index[t] = t < a->tq ? a->token_index[t] : 0;
    }
    for (int64_t t = 0; t < w->tq_pad; t += lanes)
        cpu_attn_extremes(w->pos_q + t, w->seg_q + t, cpu_min(lanes, a->tq - t),
                          w->extremes + t / lanes * 4);
    a->pos_q = w->pos_q;
    a->seg_q = w->seg_q;
    a->token_index = w->token_index;
}

/* The minima and maxima over n sets of them. */
static void widen(int32_t to[4], const int32_t *x, int64_t n)
{
    memcpy(to, x, 4 * sizeof *to);
    for (int64_t i = 4; i < 4 * n; i += 2) {
        to[i & 2] = (int32_t)cpu_min(to[i & 2], x[i]);
        to[(i & 2) + 1] = (int32_t)cpu_max(to[(i & 2) + 1], x[i + 1]);
    }
}

/* May any of n vectors of queries see any key of block j, judging by the minima and maxima q? */
static bool sees(const cpu_attn *a, const int32_t *q, int64_t n, int64_t j)
{
    const int64_t spans = CPU_KEYS / CPU_SPAN;
    const int32_t *k = a->spans + j * spans * 4;
    int32_t all_q[4], all_k[4];
    widen(all_q, q, n);
    widen(all_k, k, spans);
    if (!cpu_attn_visible(a, all_q, all_k))
        return false;
    for (int64_t i = 0; i < spans; i++)
        for (int64_t v = 0; v < n; v++)
            if (cpu_attn_visible(a, q + 4 * v, k + 4 * i))
                return true;
    return false;
}

/* Determines from minima and maxima which blocks of queries may see a block of keys, and cuts the
 * parts: runs of blocks of keys with about the same number of such pairs each. */
static void cut_parts(backward *w)
{
    const cpu_attn *a = &w->s.a;
    const int64_t vecs = w->s.isa->attn_queries / w->s.isa->lanes;
    int64_t pairs = 0, sum = 0; /* (block of keys, block of queries) */
    for (int64_t j = 0; j < w->n_k; j++) {
        int64_t lo = w->n_q, hi = 0;
        for (int64_t i = 0; i < w->n_q; i++)
            if (sees(a, w->extremes + i * vecs * 4, vecs, j)) {
                lo = cpu_min(lo, i);
                hi = i + 1;
            }
        w->seen_by[j][0] = cpu_min(lo, hi);
        w->seen_by[j][1] = hi;
        pairs += hi - w->seen_by[j][0];
    }
    for (int64_t j = 0, i = 0; i < w->n_parts; i++) {
        int64_t *part = w->part[i];
        part[0] = j;
        part[2] = w->n_q;
        part[3] = 0;
        for (; j < w->n_k && (i + 1 == w->n_parts || sum * w->n_parts < (i + 1) * pairs); j++) {
            sum += w->seen_by[j][1] - w->seen_by[j][0];
            if (w->seen_by[j][0] == w->seen_by[j][1])
                continue;
            part[2] = cpu_min(part[2], w->seen_by[j][0]);
            part[3] = cpu_max(part[3], w->seen_by[j][1]);
        }
        part[1] = j;
        part[2] = cpu_min(part[2], part[3]);
        for (int64_t k = j - 1, first = part[3]; k >= part[0]; k--) {
            w->seen_by[k][2] = first;
            if (w->seen_by[k][0] < w->seen_by[k][1])
                first = cpu_min(first, w->seen_by[k][0]);
        }
        part[4] = 1;
        for (int64_t k = part[0], given = part[2], have = given; k < j; k++) {
            have = cpu_max(have, w->seen_by[k][1]);
            part[4] = cpu_max(part[4], have - given);
            given = cpu_max(given, cpu_min(have, w->seen_by[k][2]));
        }
    }
}

/* How many parts need a block of queries; *only becomes one of them. */
static int64_t parts_of(const backward *w, int64_t block, int64_t *only)
{
    int64_t n = 0;
    for (int64_t i = 0; i < w->n_parts; i++)
        if (block >= w->part[i][2] && block < w->part[i][3]) {
            *only = i;
            n++;
        }
    return n;
}

/* Copies blocks [begin, end) of one head's queries into the ring. */
static void copy_queries(const backward *w, const cpu_attn_bwd *b, const task *x, int64_t h,
                         int64_t begin, int64_t end)
{
    const cpu_attn *a = &w->s.a;
    const cpu_isa *isa = w->s.isa;
    const int64_t block = isa->attn_queries, heads = w->s.heads;
    const float factor = a->softcap > 0.0f ? a->scale : a->scale * LOG2E;
    for (int64_t i = begin; i < end; i++) {
        const int64_t t = i * block, at = i % b->ring * block;
        float *q = x->q + at * a->hd_pad, *dout = x->dout + at * a->dv_pad;
        cpu_attn_copy(&w->s, w->q, h, a->hd, a->hd_pad, t, block, q);
        cpu_attn_copy(&w->s, w->dout, h, a->dv, a->dv_pad, t, block, dout);
        isa->attn_columns(q, a->hd_pad, block, a->hd, factor, x->q_col + at * a->hd);
        isa->attn_columns(dout, a->dv_pad, block, a->dv, 1.0f, x->dout_col + at * a->dv);
        memset(x->dq + at * a->hd_pad, 0, (size_t)(block * a->hd_pad) * sizeof(float));
        for (int64_t r = 0; r < block; r++) {
            const bool in = t + r < a->tq;
            const int64_t of = (t + r) * heads + h;
            x->lse[at + r] = in ? cpu_f32(w->lse)[of] * LOG2E : INFINITY;
            x->delta[at + r] =
                in ? isa->dot(a->dv, cpu_f32(w->out) + of * a->dv, dout + r * a->dv_pad) : 0.0f;
        }
    }
}

/* Stores dq of blocks [begin, end): those that only this part needs are complete, the others wait
 * for sum_queries. */
static void give_queries(const backward *w, const cpu_attn_bwd *b, int64_t h, int64_t part,
                         int64_t begin, int64_t end)
{
    const cpu_attn *a = &w->s.a;
    const int64_t block = w->s.isa->attn_queries, size = block * a->hd_pad;
    for (int64_t i = begin; i < end; i++) {
        const float *from = b->dq + i % b->ring * size;
        int64_t only;
        if (parts_of(w, i, &only) == 1)
            w->s.isa->attn_give(&from, 1, a->scale, cpu_min(block, a->tq - i * block), a->hd,
                                (float *)w->dq->data + (i * block * w->s.heads + h) * a->hd,
                                w->s.heads * a->hd);
        else
            memcpy(w->shared + ((part * w->s.heads + h) * w->n_q + i) * size, from,
                   (size_t)size * sizeof(float));
    }
}

/* Copies block j of a kv head's keys and values and clears its dk and dv. */
static void copy_keys(const backward *w, const cpu_attn_bwd *b, int64_t g, int64_t j)
{
    const cpu_attn *a = &w->s.a;
    cpu_attn_copy(&w->s, w->s.k, g, a->hd, a->hd_pad, j * CPU_KEYS, CPU_KEYS, (float *)b->k);
    cpu_attn_copy(&w->s, w->s.v, g, a->dv, a->dv_pad, j * CPU_KEYS, CPU_KEYS, (float *)b->v);
    memset(b->dk, 0, (size_t)(CPU_KEYS * a->hd_pad) * sizeof(float));
    memset(b->dv, 0, (size_t)(CPU_KEYS * a->dv_pad) * sizeof(float));
}

static void give_keys(const backward *w, const cpu_attn_bwd *b, int64_t g, int64_t j)
{
    const cpu_attn *a = &w->s.a;
    const int64_t to = j * CPU_KEYS * w->s.kv_heads + g,
                  rows = cpu_min(CPU_KEYS, a->tk - j * CPU_KEYS);
    w->s.isa->attn_rows(b->dk, a->hd_pad, rows, a->hd, a->scale, (float *)w->dk->data + to * a->hd,
                        w->s.kv_heads * a->hd, a->hd);
    w->s.isa->attn_rows(b->dv, a->dv_pad, rows, a->dv, 1.0f, (float *)w->dv->data + to * a->dv,
                        w->s.kv_heads * a->dv, a->dv);
}

static void use_bias(const backward *w, cpu_attn_bwd *b, int64_t h, int64_t part)
{
    const int64_t n = w->s.a.n_bias;
    b->a = cpu_attn_of_head(&w->s, h);
    if (!w->with_dbias)
        return;
    b->dbias = w->sums + (part * w->s.heads + h) * n;
    memset(b->dbias, 0, (size_t)n * sizeof(double));
}

static void key_task(const backward *w, const task *x, int64_t g, int64_t part)
{
    const int64_t k0 = w->part[part][0], k1 = w->part[part][1], q0 = w->part[part][2];
    int64_t h0 = 0, h1 = w->s.heads; /* the query heads of this kv head */
    while (h0 < h1 && cpu_attn_kv_head(&w->s, h0) != g)
        h0++;
    while (h1 > h0 && cpu_attn_kv_head(&w->s, h1 - 1) != g)
        h1--;
    cpu_attn_bwd b = {.a = w->s.a,
                      .extremes = w->extremes,
                      .ring = w->part[part][4],
                      .q = x->q,
                      .dout = x->dout,
                      .q_col = x->q_col,
                      .dout_col = x->dout_col,
                      .lse = x->lse,
                      .delta = x->delta,
                      .dq = x->dq,
                      .work = x->work};
    /* without query heads: dk and dv become zero */
    for (int64_t h = h0; h < cpu_max(h1, h0 + 1); h++) {
        if (h < h1)
            use_bias(w, &b, h, part);
        int64_t have = q0, given = q0;
        for (int64_t j = k0; j < k1; j++) {
            const int64_t *seen = w->seen_by[j], at = h1 - h0 > 1 ? (j - k0) * CPU_KEYS : 0,
                          done = h < h1 ? cpu_min(seen[2], cpu_max(have, seen[1])) : given;
            b.k = x->k + at * w->s.a.hd_pad;
            b.v = x->v + at * w->s.a.dv_pad;
            b.dk = x->dk + at * w->s.a.hd_pad;
            b.dv = x->dv + at * w->s.a.dv_pad;
            if (h == h0)
                copy_keys(w, &b, g, j);
            /* Queries enter the ring when first seen and leave when last seen, so it holds about
             * one document's, in cache. */
            if (h < h1 && seen[1] > have) {
                copy_queries(w, &b, x, h, have, seen[1]);
                have = seen[1];
            }
            if (h < h1 && seen[0] < seen[1])
                w->s.isa->attn_bwd(&b, j * CPU_KEYS, seen[0], seen[1]);
            if (done > given) {
                give_queries(w, &b, h, part, given, done);
                given = done;
            }
            if (h + 1 >= h1)
                give_keys(w, &b, g, j);
        }
    }
}

static void key_tasks(void *arg, int64_t begin, int64_t end, int thread)
{
    const backward *w = arg;
    char *local = (char *)(w->local + thread * w->local_size);
    const task x = take_local(w, &local);
    for (int64_t i = begin; i < end; i++)
        key_task(w, &x, i / w->n_parts, i % w->n_parts);
}

/* dq of the queries that several parts need, or none. */
static void sum_queries(void *arg, int64_t begin, int64_t end, int thread)
{
    const backward *w = arg;
    const cpu_attn *a = &w->s.a;
    const int64_t block = w->s.isa->attn_queries, size = block * a->hd_pad;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t only;
        if (parts_of(w, i, &only) == 1)
            continue;
        for (int64_t h = 0; h < w->s.heads; h++) {
            const float *from[TASKS];
            int64_t n = 0;
            for (int64_t part = 0; part < w->n_parts; part++)
                if (i >= w->part[part][2] && i < w->part[part][3])
                    from[n++] = w->shared + ((part * w->s.heads + h) * w->n_q + i) * size;
            w->s.isa->attn_give(from, n, a->scale, cpu_min(block, a->tq - i * block), a->hd,
                                (float *)w->dq->data + (i * block * w->s.heads + h) * a->hd,
                                w->s.heads * a->hd);
        }
    }
}

static void sum_bias(void *arg, int64_t begin, int64_t end, int thread)
{
    const backward *w = arg;
    const int64_t n = w->s.heads * w->s.a.n_bias;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        double sum = 0.0;
        for (int64_t part = 0; part < w->n_parts; part++)
            sum += w->sums[part * n + i];
        ((float *)w->dbias->data)[i] = (float)sum;
    }
}

/* attention_bwd, and with a fourth output attention_bias_bwd */
static tt_status attention_bwd(void *self, const tt_kernel_call *c, tt_error *err)
{
    backward w = {.q = &c->in[0],
                  .out = &c->in[3],
                  .lse = &c->in[4],
                  .dout = &c->in[5],
                  .with_dbias = c->n_out == 4};
    cpu_attn_shape_of(((const cpu_backend *)self)->isa, c, &c->in[0], &c->in[1], &c->in[2], &w.s);
    TT_TRY(cpu_attn_check(&w.s, err));
    char *p = c->scratch;
    w.dq = &c->out[0];
    w.dk = &c->out[1];
    w.dv = &c->out[2];
    w.dbias = w.with_dbias ? &c->out[3] : NULL;
    cpu_attn_keys(&w.s, cpu_i32(&c->in[8]), cpu_i32(&c->in[9]), &p);
    take_scratch(&w, &p, tt_pool_threads(c->pool));
    read_queries(&w, cpu_i32(&c->in[6]), cpu_i32(&c->in[7]));
    cut_parts(&w);
    tt_parallel_for(c->pool, w.s.kv_heads * w.n_parts, 1, key_tasks, &w);
    tt_parallel_for(c->pool, w.n_q, 1, sum_queries, &w);
    if (w.with_dbias)
        tt_parallel_for(c->pool, w.s.heads * w.s.a.n_bias, 1024, sum_bias, &w);
    return TT_OK;
}

const cpu_kernel cpu_kernels_attention_bwd[] = {
    CPU_KERNEL("attention_bwd", attention_bwd, backward_scratch, 0, 0),
    CPU_KERNEL("attention_bias_bwd", attention_bwd, backward_scratch, 0, 0),
    CPU_KERNEL_END,
};
