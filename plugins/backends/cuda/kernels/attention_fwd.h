/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
#include "attention_tile.h"

/* attention in bf16 on tensor cores: a block has BM queries of one head and walks over tiles of BN keys that they may see.
 * While scores are computed, the tile of values arrives; while these are mixed, the next tile of keys. Softmax in f32, in
 * units of log2. Dao 2023, arXiv:2307.08691. Results: out, lse. A head size has a file of its own, attention_fwd_<size>.cu; the launcher (attention.c) has the same
 * sizes. */

/* Scores that are more than scale * q·k, and masks: x becomes -inf where the pair is not seen. tok_q: of the warp's first
 * row; tok_k: of the tile; keys: how many of the tile's keys there are. */
template <int MR, int BM, int BN>
TT_DEV void finish_scores(const attention_args &a, float (*s)[BN / 8][4], const int *tok_q,
                          const int *tok_k, i64 keys, int head, int whole)
{
    const int lane = (int)threadIdx.x % 32, in = keys < BN ? (int)keys : BN;
    const float *bias = a.bias ? a.bias + (i64)head * a.n_bias : 0;
    int pos[MR][2], seg[MR][2];
#pragma unroll
    for (int m = 0; m < MR; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            pos[m][half] = tok_q[m * 16 + half * 8 + lane / 4];
            seg[m][half] = tok_q[BM + m * 16 + half * 8 + lane / 4];
        }
#pragma unroll
    for (int n = 0; n < BN / 8; n++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const int k = n * 8 + lane % 4 * 2 + e, pos_k = tok_k[k], seg_k = tok_k[BN + k];
#pragma unroll
            for (int m = 0; m < MR; m++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    float *x = &s[m][n][2 * half + e], slope;
                    const int back = pos[m][half] - pos_k;
                    if (!a.raw)
                        *x = attn_score(a, *x, &slope);
                    if (bias)
                        *x += bias[attn_bias_at(a, back)] * LOG2E;
                    if (!whole && !(k < in && attn_sees(a, back, seg[m][half], seg_k)))
                        *x = -INF;
                }
        }
}

/* The softmax of one tile's scores: s becomes weights, relative to the rows' new tops; sums and acc follow. */
template <int MR, int BN, int DV>
TT_DEV void online_softmax(float (*s)[BN / 8][4], float (*acc)[DV / 8][4], float (*top)[2],
                           float (*sum)[2], float unit)
{
#pragma unroll
    for (int m = 0; m < MR; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float t = top[m][half];
#pragma unroll
            for (int n = 0; n < BN / 8; n++)
                t = fmaxf(t, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
            t = fmaxf(t, tt_shuffle_xor(t, 1));
            t = fmaxf(t, tt_shuffle_xor(t, 2));
            const float at = t == -INF ? 0.0f : t * unit,
                        f = attn_exp2(fmaf(top[m][half], unit, -at));
            top[m][half] = t;
            float add = 0.0f;
#pragma unroll
            for (int n = 0; n < BN / 8; n++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    float *x = &s[m][n][2 * half + e];
                    *x = attn_exp2(fmaf(*x, unit, -at));
                    add += *x;
                }
            sum[m][half] = sum[m][half] * f + add;
            if (tt_ballot(f != 1.0f) == 0) /* the tops of these 8 rows stay, as they mostly do */
                continue;
#pragma unroll
            for (int n = 0; n < DV / 8; n++) {
                acc[m][n][2 * half] *= f;
                acc[m][n][2 * half + 1] *= f;
            }
        }
}

/* lse of the rows, and what acc is multiplied by. */
template <int MR>
TT_DEV void finish_rows(const attention_args &a, float (*top)[2], float (*sum)[2], float unit,
                        i64 row, int head)
{
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < MR; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const i64 r = row + m * 16 + half * 8 + lane / 4;
            float l = sum[m][half], t = top[m][half] * unit, f = 1.0f;
            l += tt_shuffle_xor(l, 1);
            l += tt_shuffle_xor(l, 2);
            if (a.sinks) {
                const float sink = attn_load(a.sinks, head, a.halves & ATTN_SINKS) * LOG2E,
                            up = fmaxf(t, sink);
                if (up != -INF) {
                    f = attn_exp2(t - up);
                    l = l * f + attn_exp2(sink - up);
                    t = up;
                }
            }
            sum[m][half] = l == 0.0f ? 0.0f : f / l;
            if (lane % 4 == 0 && r < a.n_q)
                a.lse[r * a.heads + head] = l == 0.0f ? -INF : (t + log2f(l)) * LN2;
        }
}

/* Tile j of a kv head's keys or values, d wide. */
template <int BN, int D, int THREADS>
TT_DEV void load_heads(bf16 *to, const void *from, const attention_args &a, int kv, int d, int j)
{
    kv = (int)attn_again((u32)kv);
    attn_tile<BN, D, THREADS>(to, (const bf16 *)from + (i64)kv * d, (i64)a.kv_heads * d,
                              (i64)j * BN, a.n_k, d);
}

template <int HD, int DV, int MR, int WARPS, int BN> TT_DEV void forward(const attention_args &a)
{
    enum { BM = 16 * MR * WARPS, THREADS = 32 * WARPS };
    bf16 *q = (bf16 *)tt_shared, *k = q + BM * ATTN_LD(HD), *v = k + BN * ATTN_LD(HD);
    int *tok_q = (int *)(v + BN * ATTN_LD(DV)), *tok_k = tok_q + 2 * BM; /* tok_k: [2][2 * BN] */
    const attn_place at = attn_place_of<false, BM, BN>(a, blockIdx.x, a.heads);
    const i64 first = at.first;
    const int head = at.head;
    const int kv = attn_kv_head(a, head), warp = (int)threadIdx.x / 32;
    const bool more = !a.raw || a.bias;
    const float unit = a.raw ? a.scale * LOG2E : 1.0f; /* of scores and tops, in log2 */
    float acc[MR][DV / 8][4] = {}, top[MR][2], sum[MR][2];
    for (int m = 0; m < MR; m++)
        for (int half = 0; half < 2; half++) {
            top[m][half] = -INF;
            sum[m][half] = 0.0f;
        }
    attn_walk w;
    int whole, next_whole = 0, odd = 0;
    attn_walk_begin(&w, at.begin);
    attn_tile<BM, HD, THREADS>(q, (const bf16 *)a.q + (i64)head * a.hd, (i64)a.heads * a.hd, first,
                               a.n_q, a.hd);
    attn_tokens<BM>(tok_q, a.pos_q, a.seg_q, first, a.n_q);
    int j = attn_walk_next<false, BM, BN>(&w, a, blockIdx.x, a.heads, &whole);
    if (j >= 0) {
        load_heads<BN, HD, THREADS>(k, a.k, a, kv, a.hd, j);
        attn_tokens<BN>(tok_k, a.pos_k, a.seg_k, (i64)j * BN, a.n_k);
    }
    tt_copy_commit();
    while (j >= 0) {
        const int next = attn_walk_next<false, BM, BN>(&w, a, blockIdx.x, a.heads, &next_whole);
        float s[MR][BN / 8][4] = {};
        tt_copy_wait<0>();
        tt_sync(); /* keys j are here, and nobody reads values any more */
        load_heads<BN, DV, THREADS>(v, a.v, a, kv, a.dv_dim, j);
        tt_copy_commit();
        attn_dots<MR, BN, HD>(s, q + warp * 16 * MR * ATTN_LD(HD), k);
        tt_copy_wait<0>();
        tt_sync(); /* values j are here, and nobody reads keys any more, but their positions */
        if (next >= 0) {
            load_heads<BN, HD, THREADS>(k, a.k, a, kv, a.hd, next);
            attn_tokens<BN>(tok_k + (1 - odd) * 2 * BN, a.pos_k, a.seg_k, (i64)next * BN, a.n_k);
        }
        tt_copy_commit();
        if (more || !whole)
            finish_scores<MR, BM, BN>(a, s, tok_q + warp * 16 * MR, tok_k + odd * 2 * BN,
                                      a.n_k - (i64)j * BN,
                                      (int)(attn_again(blockIdx.x) % (u32)a.heads), whole);
        online_softmax<MR, BN, DV>(s, acc, top, sum, unit);
        attn_mix<MR, DV, BN>(acc, s, v);
        j = next;
        whole = next_whole;
        odd = 1 - odd;
    }
    const attn_place again = attn_place_of<false, BM, BN>(a, attn_again(blockIdx.x), a.heads);
    const i64 row = again.first + (int)(attn_again(threadIdx.x) / 32) * 16 * MR;
    finish_rows<MR>(a, top, sum, unit, row, again.head);
    attn_give<MR, DV>((bf16 *)a.out + (i64)again.head * a.dv_dim, (i64)a.heads * a.dv_dim, row,
                      a.n_q, a.dv_dim, acc, sum);
}
