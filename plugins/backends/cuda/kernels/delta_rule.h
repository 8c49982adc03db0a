/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels of delta_rule share. A chunk is DELTA_CHUNK tokens from a multiple of it on, whatever segments these
 * are of; a token that begins a segment takes nothing from before it. With G[i] the sum of g from the segment's first
 * token (whose g does not count) or, if that is before the chunk, from the chunk's, L[i,j] = exp(G[i] - G[j]) for j <= i
 * of the same segment, else 0, S the state before the chunk and m = exp(G), 0 for tokens whose segment begins here:
 *   X = V - m K S    D = (1 + A)^-1 beta X    A = beta (K Kᵀ) L strictly below the diagonal
 *   O = m Q S + (Q Kᵀ L) D    S' = m[last] S + Kᵀ e D    e = L[last, :]
 * Source: Yang et al. 2024, arXiv:2406.06484 and arXiv:2412.06464. */
#pragma once
#include "delta_rule_args.h"
#include "rows.h"

constexpr int C = DELTA_CHUNK, STEP = 16, LD = C + 4;

/* For TT_KERNEL: registers for 2 blocks on a multiprocessor, where ptxas would rather spill a few. */
#ifdef __CUDACC__
#define DELTA_ROOMY DELTA_THREADS, 2
#else
#define DELTA_ROOMY DELTA_THREADS
#endif

/* The operands of a product, STEP of the summed elements at a time. */
struct delta_room {
    alignas(16) float a[STEP][LD], b[STEP][LD];
};

/* Which tokens and head. */
struct delta_chunk {
    i64 c, t, at; /* its number and first token; local head * chunks + c */
    int n, group, head;
};

TT_DEV delta_chunk delta_chunk_of(const delta_args &a, i64 c, i64 local)
{
    const i64 left = a.tokens - c * C;
    return delta_chunk{c,
                       c * C,
                       local * a.chunks + c,
                       (int)(left < C ? left : C),
                       a.first + (int)(local / a.heads),
                       (int)(local % a.heads)};
}

TT_DEV bool delta_continues(const delta_args &a, i64 t) /* token t the segment of token t - 1 */
{
    return t > 0 && t < a.tokens && a.seg[t - 1] == a.seg[t] && a.pos[t - 1] == a.pos[t] - 1;
}

/* ---- elements of a chunk; what is outside of it is zero ---- */
TT_DEV i64 delta_gate(const delta_args &a, const delta_chunk &c, int i)
{
    return ((c.t + i) * a.groups + c.group) * a.heads + c.head;
}
TT_DEV i64 delta_key(const delta_args &a, const delta_chunk &c, int i)
{
    return ((c.t + i) * a.groups + c.group) * a.dk_dim;
}
TT_DEV float delta_q(const delta_args &a, const delta_chunk &c, int i, int d)
{
    return i < c.n && d < a.dk_dim ? tt_load_any(a.q, delta_key(a, c, i) + d, a.halves & DELTA_Q)
                                   : 0.0f;
}
TT_DEV float delta_k(const delta_args &a, const delta_chunk &c, int i, int d)
{
    return i < c.n && d < a.dk_dim ? tt_load_any(a.k, delta_key(a, c, i) + d, a.halves & DELTA_K)
                                   : 0.0f;
}
TT_DEV float delta_v(const delta_args &a, const delta_chunk &c, int i, int e)
{
    return i < c.n && e < a.dv_dim
               ? tt_load_any(a.v, delta_gate(a, c, i) * a.dv_dim + e, a.halves & DELTA_V)
               : 0.0f;
}
TT_DEV float delta_dout(const delta_args &a, const delta_chunk &c, int i, int e)
{
    return i < c.n && e < a.dv_dim
               ? tt_load_any(a.dout, delta_gate(a, c, i) * a.dv_dim + e, a.halves & DELTA_OUT)
               : 0.0f;
}
TT_DEV float delta_beta(const delta_args &a, const delta_chunk &c, int i)
{
    return i < c.n ? tt_load_any(a.beta, delta_gate(a, c, i), a.halves & DELTA_BETA) : 0.0f;
}

/* ---- scratch ---- */
TT_DEV float *delta_qk(const delta_args &a, const delta_chunk &c) /* [C][C]: Q Kᵀ L */
{
    return a.inside + c.at * DELTA_INSIDE;
}
TT_DEV float *delta_inverse(const delta_args &a, const delta_chunk &c) /* [C][C] */
{
    return delta_qk(a, c) + C * C;
}
TT_DEV float *delta_tokens(const delta_args &a,
                           const delta_chunk &c) /* [4][C]: m, e, G, the begin of the segment */
{
    return delta_qk(a, c) + 2 * C * C;
}
TT_DEV float *delta_state(const delta_args &a, float *states, const delta_chunk &c) /* [dk][dv] */
{
    return states + c.at * a.dk_dim * a.dv_dim;
}
TT_DEV float *delta_rows(const delta_args &a, float *rows, const delta_chunk &c) /* [C][dv] */
{
    return rows + c.at * C * a.dv_dim;
}

/* ---- products ---- */

/* A thread has rows DELTA_ROW + 0…3 and columns DELTA_COL + 0…3 of a product of C rows and C columns. */
#define DELTA_ROW ((int)threadIdx.x / 16 * 4)
#define DELTA_COL ((int)threadIdx.x % 16 * 4)

/* acc += a b, summed over n elements: a(row, k), b(k, column). ACROSS_A: neighbours in memory are rows of a, else its
 * columns; ACROSS_B: they are rows of b. Begins with a barrier; all threads have read the operands when it ends. */
template <bool ACROSS_A, bool ACROSS_B, class A, class B>
TT_DEV void delta_product(float (*acc)[4], delta_room *room, int n, const A &a, const B &b)
{
    const int row = DELTA_ROW, col = DELTA_COL;
    for (int k0 = 0; k0 < n; k0 += STEP) {
        tt_sync(); /* nobody reads the room any more */
        for (int i = (int)threadIdx.x; i < STEP * C; i += DELTA_THREADS) {
            const int r = ACROSS_A ? i % C : i / STEP, k = ACROSS_A ? i / C : i % STEP;
            room->a[k][r] = k0 + k < n ? a(r, k0 + k) : 0.0f;
        }
        for (int i = (int)threadIdx.x; i < STEP * C; i += DELTA_THREADS) {
            const int r = ACROSS_B ? i / STEP : i % C, k = ACROSS_B ? i % STEP : i / C;
            room->b[k][r] = k0 + k < n ? b(k0 + k, r) : 0.0f;
        }
        tt_sync(); /* they are here */
#pragma unroll 4
        for (int k = 0; k < STEP; k++) {
            float x[4], y[4];
            tt_load_unit<4>(x, &room->a[k][row]);
            tt_load_unit<4>(y, &room->b[k][col]);
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    acc[i][j] = fmaf(x[i], y[j], acc[i][j]);
        }
    }
}
TT_DEV void delta_clear(float (*acc)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            acc[i][j] = 0.0f;
}
/* Over the 16 threads that have the same rows. */
TT_DEV float delta_row_sum(float v)
{
    for (int o = 8; o > 0; o >>= 1)
        v += tt_shuffle_xor(v, o);
    return v;
}

/* ---- along the chunks: C columns of the states, from column e0 on ---- */

/* Rows of a state, from element [0][0] of a tile on. */
struct delta_tile {
    float *at;
    int ld;
};

TT_DEV delta_tile delta_tile_of(const delta_args &a, float *states, const delta_chunk &c, int e0)
{
    return delta_tile{delta_state(a, states, c) + e0, a.dv_dim};
}

/* Elements of a tile: 0, or those of `from`. */
TT_DEV void delta_copy_tile(const delta_args &a, delta_tile to, const delta_tile *from, int e0)
{
    for (int i = (int)threadIdx.x; i < a.dk_dim * C; i += DELTA_THREADS)
        if (e0 + i % C < a.dv_dim)
            to.at[(i64)(i / C) * to.ld + i % C] =
                from ? from->at[(i64)(i / C) * from->ld + i % C] : 0.0f;
}

/* m, e and beta of the chunk's tokens, to a room that has them; ends with a barrier. */
template <class R> TT_DEV void delta_load_gates(const delta_args &a, const delta_chunk &c, R *r)
{
    const int i = (int)threadIdx.x;
    if (i < C) {
        r->m[i] = delta_tokens(a, c)[i];
        r->e[i] = delta_tokens(a, c)[C + i];
        r->beta[i] = delta_beta(a, c, i);
    }
    tt_sync();
}

/* acc += x s, where x(token, d) are rows of the chunk. */
template <class X>
TT_DEV void delta_times_tile(float (*acc)[4], delta_room *room, const delta_args &a, const X &x,
                             delta_tile s, int e0)
{
    delta_product<false, false>(acc, room, a.dk_dim, x, [&](int d, int e) {
        return e0 + e < a.dv_dim ? s.at[(i64)d * s.ld + e] : 0.0f;
    });
}

/* Rows of `to` from d0 on: decay s + acc. */
TT_DEV void delta_pass_on(const delta_args &a, const float (*acc)[4], float decay, delta_tile s,
                          delta_tile to, int d0, int e0)
{
    const int row = DELTA_ROW, col = DELTA_COL;
    for (int i = 0; i < 4 && d0 + row + i < a.dk_dim; i++)
        for (int j = 0; j < 4 && e0 + col + j < a.dv_dim; j++) {
            const i64 d = d0 + row + i;
            to.at[d * to.ld + col + j] = fmaf(decay, s.at[d * s.ld + col + j], acc[i][j]);
        }
}
