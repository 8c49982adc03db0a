/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles of bf16 in shared memory, [ROWS][D + 8], which makes ldmatrix free of conflicts; and their products on tensor
 * cores, whose results lie in registers as tt_mma_bf16 says: c[MR][N / 8][4] are MR * 16 rows of a warp and N columns. */
#pragma once
#include "attention.h"

#define ATTN_LD(d) ((d) + 8)
struct alignas(16) attn_chunk {
    u32 w[4];
};

/* Rows [first, first + ROWS) of n, of one head: `from` has row stride ld and d columns; what is missing is zero. */
template <int ROWS, int D, int THREADS>
TT_DEV void attn_tile(bf16 *to, const bf16 *from, i64 ld, i64 first, i64 n, int d)
{
    /* threads of a row; rows at a time */
    constexpr int LANES = D > 128 ? 32 : D > 64 ? 16 : 8, STEP = THREADS / LANES;
    const int r = (int)threadIdx.x / LANES, c = (int)threadIdx.x % LANES * 8;
    const int left = c >= d ? 0 : n - first - r < ROWS ? (int)(n - first) - r : ROWS;
    if (c >= D)
        return;
    from += (first + r) * ld + c;
    to += r * ATTN_LD(D) + c;
#pragma unroll
    for (int i = 0; i < ROWS; i += STEP, from += STEP * ld)
        if (i < left)
            tt_copy16(to + i * ATTN_LD(D), from);
        else
            *(attn_chunk *)(to + i * ATTN_LD(D)) = attn_chunk{
                {0, 0, 0, 0}
            };
}

/* Positions, then segments, of tokens [first, first + N) of n: 2 * N ints. Of those past n nothing is known. */
template <int N> TT_DEV void attn_tokens(int *to, const int *pos, const int *seg, i64 first, i64 n)
{
    const int i = (int)threadIdx.x % (N / 4) * 4, is_seg = (int)threadIdx.x / (N / 4);
    if (is_seg > 1)
        return;
    const int *from = (is_seg ? seg : pos) + first;
    to += is_seg * N;
    if (first + i + 4 <= n)
        tt_copy16(to + i, from + i);
    else
        for (int e = i; e < i + 4; e++)
            to[e] = first + e < n ? from[e] : 0;
}

/* c[MR*16 rows][N] += a[rows][K] b[N][K]ᵀ; a: the warp's rows. */
template <int MR, int N, int K>
TT_DEV void attn_dots(float (*c)[N / 8][4], const bf16 *a, const bf16 *b)
{
    const int lane = (int)threadIdx.x % 32;
    a += lane % 16 * ATTN_LD(K) + lane / 16 * 8;
    b += (lane % 8 + lane / 16 * 8) * ATTN_LD(K) + lane / 8 % 2 * 8;
#pragma unroll
    for (int k = 0; k < K; k += 16) {
        u32 x[MR][4];
#pragma unroll
        for (int m = 0; m < MR; m++)
            tt_ldmatrix4(x[m], a + m * 16 * ATTN_LD(K) + k);
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
            u32 y[4];
            tt_ldmatrix4(y, b + n * 16 * ATTN_LD(K) + k);
#pragma unroll
            for (int m = 0; m < MR; m++) {
                tt_mma_bf16(c[m][2 * n], x[m], y);
                tt_mma_bf16(c[m][2 * n + 1], x[m], y + 2);
            }
        }
    }
}

/* c[MR*16 rows][N] += p[rows][K] b[K][N], where p is what attn_dots left in registers. */
template <int MR, int N, int K>
TT_DEV void attn_mix(float (*c)[N / 8][4], const float (*p)[K / 8][4], const bf16 *b)
{
    const int lane = (int)threadIdx.x % 32;
    b += lane % 16 * ATTN_LD(N) + lane / 16 * 8;
#pragma unroll
    for (int k = 0; k < K / 16; k++) {
        u32 x[MR][4];
#pragma unroll
        for (int m = 0; m < MR; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float *e = p[m][2 * k + i / 2] + i % 2 * 2;
                x[m][i] = tt_bf16x2(e[0], e[1]);
            }
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
            u32 y[4];
            tt_ldmatrix4_transposed(y, b + k * 16 * ATTN_LD(N) + n * 16);
#pragma unroll
            for (int m = 0; m < MR; m++) {
                tt_mma_bf16(c[m][2 * n], x[m], y);
                tt_mma_bf16(c[m][2 * n + 1], x[m], y + 2);
            }
        }
    }
}

/* Stores the warp's rows, times factor[m][half]; first: the global row of the warp's first, of n. */
template <int MR, int N>
TT_DEV void attn_give(bf16 *to, i64 ld, i64 first, i64 n, int d, const float (*c)[N / 8][4],
                      const float (*factor)[2])
{
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < MR; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const i64 r = first + m * 16 + half * 8 + lane / 4;
            if (r >= n)
                continue;
            const float f = factor[m][half];
#pragma unroll
            for (int i = 0; i < N / 8; i++)
                if (i * 8 < d)
                    *(u32 *)(to + r * ld + i * 8 + lane % 4 * 2) =
                        tt_bf16x2(c[m][i][2 * half] * f, c[m][i][2 * half + 1] * f);
        }
}
