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
    const int32_t *panel;         /* [tk_pad / panel keys][4]: min pos, max pos, min seg, max seg */
} cpu_attn;

typedef struct cpu_attn_bwd {
    cpu_attn a;
    const float *kt, *vt;     /* transposed panels of this kv head */
    const float *kr;          /* [tk_pad, hd_pad] */
    const float *q, *dout;    /* of one query head: [tq_pad, hd_pad], [tq_pad, dv_pad] */
    const float *lse, *delta; /* of one query head, [tq_pad]; lse times log2(e) */
    float *dq;                /* [tq_pad, hd_pad], added to */
    float *dk, *dv; /* of one block of keys: [CPU_KEYS, hd_pad], [CPU_KEYS, dv_pad], added to */
    const int32_t *extremes; /* of each CPU_QUERIES queries: min pos, max pos, min seg, max seg */
    float *work;             /* 2 * CPU_QUERIES * CPU_KEYS */
} cpu_attn_bwd;
/* attention_cached: new tokens of one sequence and the query heads of one kv head. A row is a token
 * and one of these heads: token row / group, head row % group. */
typedef struct cpu_attn_cached {
    cpu_attn a;             /* ldq, ldo; pos_k counts up from 0, seg_k is 0 */
    int64_t group;          /* query heads */
    const int32_t *pos;     /* of each token, ascending */
    const float *q, *sinks; /* of the first of the heads; sinks NULL: none */
    float *out;
    const float *keys, *values; /* [B][hd][CPU_PANEL], [B * CPU_PANEL][dv] */
} cpu_attn_cached;

/* Extremes of positions and segments of n >= 1 queries: min pos, max pos, min seg, max seg. */
static inline void cpu_attn_extremes(const int32_t *pos, const int32_t *seg, int64_t n,
                                     int32_t x[4])
{
    x[0] = x[1] = pos[0];
    x[2] = x[3] = seg[0];
    for (int64_t i = 1; i < n; i++) {
        x[0] = pos[i] < x[0] ? pos[i] : x[0];
        x[1] = pos[i] > x[1] ? pos[i] : x[1];
        x[2] = seg[i] < x[2] ? seg[i] : x[2];
        x[3] = seg[i] > x[3] ? seg[i] : x[3];
    }
}
#define CPU_KEYS                                                                                   \
    96 /* keys and queries of a block of attention_bwd: multiples of all tile heights and widths   \
        */
#define CPU_QUERIES 48
#define CPU_PANEL 32 /* keys whose positions are summed up together */

#endif
