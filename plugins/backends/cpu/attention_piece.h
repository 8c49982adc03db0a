/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CPU_ATTENTION_PIECE_H
#define TT_CPU_ATTENTION_PIECE_H
#include <stdbool.h>
#include <stdint.h>

/* What the attention loops of an instruction set are given. */

/* One piece of attention: all arrays of one head. See attention.c. */
typedef struct cpu_attn {
    int64_t tq, tk, tk_pad, hd, dv, hd_pad,
        dv_pad;       /* *_pad: rounded up to whole vectors, tk_pad to key blocks */
    int64_t ldq, ldo; /* row strides of q and out, in elements */
    int64_t window;
    float scale, softcap;
    bool causal;
    const int32_t *pos_q, *seg_q;
    const int32_t *pos_k, *seg_k; /* [tk_pad]; padding has seg INT32_MIN */
    const int32_t *spans;         /* [tk_pad / CPU_SPAN][4]: min pos, max pos, min seg, max seg */
} cpu_attn;

/* The forward in AMX tiles: what packs CPU_PANEL rows of keys or values, ld apart, of which `rows`
 * are there, and the forward itself over such panels of one kv head (arguments as cpu_isa.attn_fwd
 * has them). false: a row of the block is not finite, let multiply-adds make the block again. */
typedef struct cpu_attn_tiles {
    void (*pack_keys)(const float *k, int64_t ld, int64_t rows, int64_t hd, void *to);
    void (*pack_values)(const float *v, int64_t ld, int64_t rows, int64_t dv, void *to);
    bool (*fwd)(const cpu_attn *a, const void *k, const void *v, const float *q, float *out,
                float *lse, int64_t ld_lse, const float *sink, int64_t begin, int64_t end);
} cpu_attn_tiles;

/* A block of keys of one head, and blocks of queries of one head, each of Q = the instruction set's
 * cpu_isa.attn_queries; block i lies in place i % ring of the arrays of queries. */
typedef struct cpu_attn_bwd {
    cpu_attn a;              /* pos_q, seg_q are [tq_pad]: padding has CPU_NO_SEGMENT */
    const int32_t *extremes; /* of each vector of queries, as spans have them */
    int64_t ring;
    const float *k, *v;            /* rows: [CPU_KEYS, hd_pad], [CPU_KEYS, dv_pad] */
    const float *q, *dout;         /* rows: [ring * Q, hd_pad], [ring * Q, dv_pad] */
    const float *q_col, *dout_col; /* columns: [ring][hd][Q], times the scale of scores;
                                      [ring][dv][Q] */
    const float *lse, *delta;      /* [ring * Q]; lse times log2(e), +inf where there is none */
    float *dq;                     /* [ring][hd_pad][Q], added to */
    float *dk, *dv;                /* [CPU_KEYS, hd_pad], [CPU_KEYS, dv_pad], added to */
    float *work;                   /* [2][CPU_KEYS][Q] */
} cpu_attn_bwd;
/* attention_cached: new tokens of one sequence and the query heads of one kv head. A row is a token
 * and one of these heads: token row / group, head row % group. */
typedef struct cpu_attn_cached {
    cpu_attn a;             /* ldq, ldo; pos_k counts up from 0; one segment */
    int64_t group;          /* query heads */
    const int32_t *pos;     /* of each token, ascending */
    const float *q, *sinks; /* of the first of the heads; sinks NULL: none */
    float *out;
    const float *keys, *values; /* [B][hd][CPU_PANEL], [B * CPU_PANEL][dv] */
} cpu_attn_cached;

/* Extremes of positions and segments of n queries: min pos, max pos, min seg, max seg; of none,
 * such that no key is visible and that they widen no other's. */
static inline void cpu_attn_extremes(const int32_t *pos, const int32_t *seg, int64_t n,
                                     int32_t x[4])
{
    x[0] = x[2] = INT32_MAX;
    x[1] = x[3] = INT32_MIN;
    for (int64_t i = 0; i < n; i++) {
        x[0] = pos[i] < x[0] ? pos[i] : x[0];
        x[1] = pos[i] > x[1] ? pos[i] : x[1];
        x[2] = seg[i] < x[2] ? seg[i] : x[2];
        x[3] = seg[i] > x[3] ? seg[i] : x[3];
    }
}
/* May any of the queries with extremes q see any key of a span with extremes k? */
static inline bool cpu_attn_visible(const cpu_attn *a, const int32_t *q, const int32_t *k)
{
    return k[3] >= q[2] && k[2] <= q[3] && (!a->causal || k[0] <= q[1]) &&
           (!a->window || (int64_t)q[0] - k[1] < a->window);
}
/* Elements of 16 bits of a packed panel: three parts of each, or side by side in two; below the
 * size of as many f32 rows never, so either fits where these do. */
static inline int64_t cpu_attn_six_keys(int64_t hd)
{
    return (hd / 32 * 3 + (hd % 32 > 16 ? 3 : hd % 32 > 0 ? 2 : 0)) * 32 * 32;
}
static inline int64_t cpu_attn_six_values(int64_t dv)
{
    return (dv + 15) / 16 * 3 * 16 * 32;
}
#define CPU_KEYS 96    /* keys of a block of attention_bwd; both multiples of CPU_SPAN */
#define CPU_SPAN 16    /* keys whose positions are summed up together */
#define CPU_QUERIES 48 /* the widest level's Q, a multiple of all others' */
#define CPU_PANEL 32   /* keys of a panel of attention_cached and of AMX tiles */
/* The segment of queries that pad a block; that of keys is INT32_MIN. */
#define CPU_NO_SEGMENT (INT32_MIN + 1)
#endif
