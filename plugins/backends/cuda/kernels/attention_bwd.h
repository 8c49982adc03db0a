/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
#include "attention_tile.h"

/* attention_bwd in bf16 on tensor cores. Of a block are BM outer rows: queries, whose dq it computes, or keys, whose dk and
 * dv. It walks over tiles of BN inner rows, for keys those of one query head after another. Scores are computed anew in
 * either case, so no sum needs a second block, and the order of all sums is fixed.
 *   X1, X2: outer rows of q and dout (k and v);  Y1, Y2: inner rows of k and v (q and dout)
 *   s = X1 Y1ᵀ, p = exp(s - lse), dp = X2 Y2ᵀ, ds = p (dp - delta);  dq or dk = ds Y1, dv = p Y2
 * A head size has a file of its own, attention_bwd_<size>.cu; the launcher (attention_bwd.c) has the same sizes. */

/* What a kernel computes; dk and dv of large heads do not fit into registers together. */
#define DQ 1
#define DK 2
#define DV_ 4

/* s becomes p, d becomes ds (before the scale). tok_x: of the warp's first outer row; stats_x: of the thread's outer rows,
 * stats_y: of inner rows, whichever are queries. */
template <int MR, int BM, int BN, int WHAT>
TT_DEV void weigh(const attention_args &a, float (*s)[BN / 8][4], float (*d)[BN / 8][4],
                  const int *tok_x, const int *tok_y, const float (*stats_x)[2][2],
                  const float *stats_y, i64 inner, int head, int whole)
{
    const int lane = (int)threadIdx.x % 32, in = inner < BN ? (int)inner : BN;
    const bool more = !a.raw || a.bias || !whole;
    const float unit = a.scale * LOG2E, *bias = a.bias ? a.bias + (i64)head * a.n_bias : 0;
#pragma unroll
    for (int n = 0; n < BN / 8; n++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const int y = n * 8 + lane % 4 * 2 + e;
#pragma unroll
            for (int m = 0; m < MR; m++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    float *p = &s[m][n][2 * half + e], *ds = &d[m][n][2 * half + e], slope = 1.0f;
                    const float *stats = WHAT == DQ ? stats_x[m][half] : stats_y + 2 * y;
                    if (!more)
                        *p = attn_exp2(fmaf(*p, unit, -stats[0]));
                    else {
                        const int *x = tok_x + m * 16 + half * 8 + lane / 4;
                        const int back = WHAT == DQ ? x[0] - tok_y[y] : tok_y[y] - x[0];
                        float z = attn_score(a, *p, &slope);
                        if (bias)
                            z += bias[attn_bias_at(a, back)] * LOG2E;
                        *p = attn_exp2(z - stats[0]);
                        if (!whole && !(y < in && attn_sees(a, back, x[BM], tok_y[BN + y])))
                            *p = 0.0f;
                    }
                    if (WHAT != DV_)
                        *ds = *p * (*ds - stats[1]) * slope;
                }
        }
}

/* The tile of inner rows that a block works on: it is one of a query head. */
typedef struct step {
    int head, tile, whole;
} step;

template <bool KEYS, int BM, int BN>
TT_DEV bool next_step(step *s, attn_walk *w, const attention_args &a, int n_heads, int end)
{
    for (;;) {
        s->tile = attn_walk_next<KEYS, BM, BN>(w, a, blockIdx.x, n_heads, &s->whole);
        if (s->tile >= 0 || !KEYS || s->head + 1 >= end)
            return s->tile >= 0;
        s->head++;
        attn_walk_begin(w, attn_place_of<KEYS, BM, BN>(a, attn_again(blockIdx.x), n_heads).begin);
    }
}

/* One tile of inner rows, with what belongs to them: [Y1 | Y2 | stats of queries | positions, segments]. */
template <int HD, int DV, int BN> struct inner_tile {
    bf16 y1[BN * ATTN_LD(HD)], y2[BN * ATTN_LD(DV)];
    float stats[BN * 2];
    int tok[BN * 2];
};

template <int HD, int DV, int BN, int THREADS, bool KEYS>
TT_DEV void load_inner(inner_tile<HD, DV, BN> *to, const attention_args &a, step s, int kv)
{
    const i64 first = (i64)s.tile * BN, n = KEYS ? a.n_q : a.n_k;
    const int n_heads = KEYS ? a.heads : a.kv_heads, head = KEYS ? s.head : kv;
    attn_tile<BN, HD, THREADS>(to->y1, (const bf16 *)(KEYS ? a.q : a.k) + (i64)head * a.hd,
                               (i64)n_heads * a.hd, first, n, a.hd);
    attn_tile<BN, DV, THREADS>(to->y2, (const bf16 *)(KEYS ? a.dout : a.v) + (i64)head * a.dv_dim,
                               (i64)n_heads * a.dv_dim, first, n, a.dv_dim);
    attn_tokens<BN>(to->tok, KEYS ? a.pos_q : a.pos_k, KEYS ? a.seg_q : a.seg_k, first, n);
    if (KEYS && threadIdx.x < BN / 2)
        tt_copy16(to->stats + threadIdx.x * 4,
                  a.stats + ((i64)head * a.rows + first) * 2 + threadIdx.x * 4);
}

template <int HD, int DV, int MR, int WARPS, int BN, int STAGES, int WHAT>
TT_DEV void backward(const attention_args &a)
{
    enum {
        BM = 16 * MR * WARPS,
        THREADS = 32 * WARPS,
        N1 = WHAT == DV_ ? 8 : HD,
        N2 = WHAT & DV_ ? DV : 8
    };
    constexpr bool KEYS = WHAT != DQ;
    typedef inner_tile<HD, DV, BN> inner;
    bf16 *x1 = (bf16 *)tt_shared, *x2 = x1 + BM * ATTN_LD(HD);
    inner *y = (inner *)(x2 + BM * ATTN_LD(DV));
    int *tok_x = (int *)(y + STAGES);
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32,
              n_heads = KEYS ? a.kv_heads : a.heads;
    const attn_place at = attn_place_of<KEYS, BM, BN>(a, blockIdx.x, n_heads);
    const i64 n = KEYS ? a.n_k : a.n_q, first = at.first;
    const int outer_head = at.head;
    const int kv = KEYS ? outer_head : attn_kv_head(a, outer_head);
    float acc1[MR][N1 / 8][4] = {}, acc2[MR][N2 / 8][4] = {}, stats[MR][2][2], factor[MR][2];
    int end = outer_head + 1, stage = 0;
    step now = {outer_head, 0, 0};
    attn_walk w;
    if (KEYS)
        attn_heads_of(a, kv, &now.head, &end);
    attn_walk_begin(&w, at.begin);
    attn_tile<BM, HD, THREADS>(x1, (const bf16 *)(KEYS ? a.k : a.q) + (i64)outer_head * a.hd,
                               (i64)n_heads * a.hd, first, n, a.hd);
    attn_tile<BM, DV, THREADS>(x2, (const bf16 *)(KEYS ? a.v : a.dout) + (i64)outer_head * a.dv_dim,
                               (i64)n_heads * a.dv_dim, first, n, a.dv_dim);
    attn_tokens<BM>(tok_x, KEYS ? a.pos_k : a.pos_q, KEYS ? a.seg_k : a.seg_q, first, n);
#pragma unroll
    for (int m = 0; m < MR; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const i64 row = first + warp * 16 * MR + m * 16 + half * 8 + lane / 4;
            stats[m][half][0] = KEYS ? 0.0f : a.stats[((i64)outer_head * a.rows + row) * 2];
            stats[m][half][1] = KEYS ? 0.0f : a.stats[((i64)outer_head * a.rows + row) * 2 + 1];
        }
    bool go = now.head < end && next_step<KEYS, BM, BN>(&now, &w, a, n_heads, end);
    if (go)
        load_inner<HD, DV, BN, THREADS, KEYS>(y, a, now, kv);
    tt_copy_commit();
    while (go) {
        float s[MR][BN / 8][4] = {}, d[MR][BN / 8][4] = {};
        step next = now;
        const bool more = next_step<KEYS, BM, BN>(&next, &w, a, n_heads, end);
        if (STAGES > 1 && more)
            load_inner<HD, DV, BN, THREADS, KEYS>(y + 1 - stage, a, next, kv);
        if (STAGES > 1)
            tt_copy_commit();
        tt_copy_wait<STAGES - 1>();
        tt_sync(); /* the tile is here */
        const inner *t = y + stage;
        attn_dots<MR, BN, HD>(s, x1 + warp * 16 * MR * ATTN_LD(HD), t->y1);
        if (WHAT != DV_)
            attn_dots<MR, BN, DV>(d, x2 + warp * 16 * MR * ATTN_LD(DV), t->y2);
        weigh<MR, BM, BN, WHAT>(a, s, d, tok_x + warp * 16 * MR, t->tok, stats, t->stats,
                                (KEYS ? a.n_q : a.n_k) - (i64)now.tile * BN, now.head, now.whole);
        if (WHAT & DV_)
            attn_mix<MR, N2, BN>(acc2, s, t->y2);
        if (WHAT != DV_)
            attn_mix<MR, N1, BN>(acc1, d, t->y1);
        tt_sync(); /* nobody reads the tile any more */
        if (STAGES == 1) {
            if (more)
                load_inner<HD, DV, BN, THREADS, KEYS>(y, a, next, kv);
            tt_copy_commit();
        } else
            stage = 1 - stage;
        now = next;
        go = more;
    }
    const attn_place again = attn_place_of<KEYS, BM, BN>(a, attn_again(blockIdx.x), n_heads);
    const i64 row = again.first + (int)(attn_again(threadIdx.x) / 32) * 16 * MR;
    const int head = again.head;
    for (int i = 0; i < 2 * MR; i++)
        factor[i / 2][i % 2] = a.scale;
    if (WHAT != DV_)
        attn_give<MR, N1>((bf16 *)(KEYS ? a.dk : a.dq) + (i64)head * a.hd, (i64)n_heads * a.hd, row,
                          n, a.hd, acc1, factor);
    for (int i = 0; i < 2 * MR; i++)
        factor[i / 2][i % 2] = 1.0f;
    if (WHAT & DV_)
        attn_give<MR, N2>((bf16 *)a.dv + (i64)head * a.dv_dim, (i64)n_heads * a.dv_dim, row, n,
                          a.dv_dim, acc2, factor);
}
