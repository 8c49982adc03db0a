/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CPU_ATTENTION_PIECE_H
#define TT_CPU_ATTENTION_PIECE_H
#include <stdbool.h>
#include <stdint.h>

/* The arguments of the attention functions of cpu_isa. */

/* One head's forward: all arrays are of one head. See attention.c. */
typedef struct cpu_attn {
    int64_t tq, tk, tk_pad, hd, dv, hd_pad,
        dv_pad;       /* *_pad: rounded up to whole vectors; tk_pad: to blocks of keys */
    int64_t ldq, ldo; /* row strides of q and out, in elements */
    int64_t window;
    float scale, softcap;
    bool causal;
    /* [n_bias], of the head; NULL: none. The element at distance pos_q - pos_k is at that index plus
     * bias_zero, at least 0 and at most n_bias - 1. */
    const float *bias;
    int32_t n_bias, bias_zero;
    const int32_t *pos_q, *seg_q;
    const int32_t *pos_k, *seg_k; /* [tk_pad]; padding has seg INT32_MIN */
    const int32_t *spans;         /* [tk_pad / CPU_SPAN][4]: min pos, max pos, min seg, max seg */
    /* dropout, see ttrun/random.h: token_index [tq], in the backward [tq_pad]. head: over all ranks; kept:
     * 1 / (1 - p), 0 without dropout */
    const int32_t *token_index;
    uint64_t drop_key;
    uint32_t drop_limit, head;
    float kept;
} cpu_attn;

/* The forward in AMX tiles: functions that pack CPU_PANEL rows of keys or values (ld apart; `rows`
 * of them exist), and the forward over such panels of one kv head (arguments as in
 * cpu_isa.attn_fwd). fwd returns false if a row of the block is not finite: then multiply-adds have
 * to compute the block. */
typedef struct cpu_attn_tiles {
    void (*pack_keys)(const float *k, int64_t ld, int64_t rows, int64_t hd, void *to);
    void (*pack_values)(const float *v, int64_t ld, int64_t rows, int64_t dv, void *to);
    bool (*fwd)(const cpu_attn *a, const void *k, const void *v, const float *q, float *out,
                float *lse, int64_t ld_lse, const float *sink, int64_t begin, int64_t end);
} cpu_attn_tiles;

/* A block of keys of one head, and blocks of queries of one head, each of Q = cpu_isa.attn_queries
 * queries; block i is at place i % ring of the arrays of queries. */
typedef struct cpu_attn_bwd {
    cpu_attn a;              /* pos_q, seg_q are [tq_pad]; padding has CPU_NO_SEGMENT */
    const int32_t *extremes; /* per vector of queries; layout as a span's */
    int64_t ring;
    const float *k, *v;    /* rows: [CPU_KEYS, hd_pad], [CPU_KEYS, dv_pad] */
    const float *q, *dout; /* rows: [ring * Q, hd_pad], [ring * Q, dv_pad] */
    /* columns: [ring][hd][Q], multiplied by the scale of scores; [ring][dv][Q] */
    const float *q_col, *dout_col;
    /* [ring * Q]; lse times log2(e), +inf for a query without keys */
    const float *lse, *delta;
    float *dq;      /* [ring][hd_pad][Q], added to */
    float *dk, *dv; /* [CPU_KEYS, hd_pad], [CPU_KEYS, dv_pad], added to */
    float *work;    /* [2][CPU_KEYS][Q] */
    double *dbias;  /* [n_bias], added to; NULL: not wanted */
} cpu_attn_bwd;
#define CPU_MAX_CACHED_DIM 1024 /* of a head's key or value, as below */
/* attention_cached, latent_cached: new tokens of one sequence, and the query heads of one kv head.
 * Row r is token r / group and head r % group. */
typedef struct cpu_attn_cached {
    /* uses ldq, ldo; pos_k counts up from 0; one segment; bias is of the first head */
    cpu_attn a;
    int64_t group;          /* query heads per kv head */
    const int32_t *pos;     /* per token, ascending */
    const float *q, *sinks; /* of the first head; sinks NULL: none */
    float *out;
    const float *keys, *values; /* [B][hd][CPU_PANEL], [B * CPU_PANEL][ld_values] */
    int64_t ld_values;
    bool latent; /* keys are [B * CPU_PANEL][hd], and values are their first dv elements */
} cpu_attn_cached;

/* Minima and maxima of positions and segments of n queries: min pos, max pos, min seg, max seg. For
 * n = 0 they are such that no key is visible and that they widen no other range. */
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
/* May any of the queries with minima and maxima q see any key of a span with minima and maxima
 * k? */
static inline bool cpu_attn_visible(const cpu_attn *a, const int32_t *q, const int32_t *k)
{
    return k[3] >= q[2] && k[2] <= q[3] && (!a->causal || k[0] <= q[1]) &&
           (!a->window || (int64_t)q[0] - k[1] < a->window);
}
/* 16-bit elements in a packed panel: three parts of each f32, or two parts next to each other. It
 * never takes more room than the same panel in f32, so scratch sized for f32 fits either. */
static inline int64_t cpu_attn_six_keys(int64_t hd)
{
    return (hd / 32 * 3 + (hd % 32 > 16 ? 3 : hd % 32 > 0 ? 2 : 0)) * 32 * 32;
}
static inline int64_t cpu_attn_six_values(int64_t dv)
{
    return (dv + 15) / 16 * 3 * 16 * 32;
}
#define CPU_KEYS 96 /* keys per block of attention_bwd; both are multiples of CPU_SPAN */
#define CPU_SPAN 16 /* keys whose minimum and maximum positions are kept */
/* queries per block at the widest level, a multiple of every other level's */
#define CPU_QUERIES 48
#define CPU_PANEL 32 /* keys per panel of attention_cached and of AMX tiles */
/* The segment of queries that pad a block; that of padding keys is INT32_MIN. */
#define CPU_NO_SEGMENT (INT32_MIN + 1)
#endif
