/* SPDX-License-Identifier: Apache-2.0 */
#include "gemm_tiles.h"

/* Products of f32 matrices, or of an f32 and a bf16 matrix, by one fmaf per term; the result is f32. A block of 256 threads reads STEP of k at
 * a time, into registers while it multiplies the step before, then into the other half of its shared memory. */
#define STEP 16
#define THREADS 256
#define PAD 4 /* elements after each row in shared memory; rows stay aligned to 16 bytes */

struct alignas(16) four {
    float x[4];
};

/* A step of one operand: element (side, k) lies at first + side * by_side + k * by_k; what lies outside is 0. Reads along
 * the dim whose elements are neighbours. */
template <int SIDE, class T> struct loader {
    static constexpr int N = SIDE * STEP / THREADS;
    const T *x;
    i64 by_side, by_k, side_left, k_left;
    float value[N];
};

template <int SIDE, class T> TT_DEV void place(const loader<SIDE, T> &l, int i, int *side, int *k)
{
    const int c = (int)threadIdx.x + i * THREADS;
    *side = l.by_k == 1 ? c / STEP : c % SIDE;
    *k = l.by_k == 1 ? c % STEP : c / SIDE;
}

template <int SIDE, class T> TT_DEV void load_next(loader<SIDE, T> &l)
{
    for (int i = 0; i < l.N; i++) {
        int side, k;
        place(l, i, &side, &k);
        l.value[i] = side < l.side_left && k < l.k_left
                         ? tt_load(l.x + side * l.by_side + k * l.by_k)
                         : 0.0f;
    }
    l.x += STEP * l.by_k;
    l.k_left -= STEP;
}

template <int SIDE, class T>
TT_DEV void put(const loader<SIDE, T> &l, float *to) /* [STEP][SIDE + PAD] */
{
    for (int i = 0; i < l.N; i++) {
        int side, k;
        place(l, i, &side, &k);
        to[k * (SIDE + PAD) + side] = l.value[i];
    }
}

/* Thread (y, x) of 16 × 16 has rows y * 4 to y * 4 + 3 of each 64 rows, and columns likewise. */
template <int SIDE>
TT_DEV void multiply_step(const float *as, const float *bs, float sum[SIDE / 16][SIDE / 16])
{
    constexpr int EACH = SIDE / 16;
    const int y = threadIdx.x / 16 * 4, x = threadIdx.x % 16 * 4;
#pragma unroll 4
    for (int k = 0; k < STEP; k++) {
        four a[EACH / 4], b[EACH / 4];
        for (int i = 0; i < EACH / 4; i++) {
            a[i] = *(const four *)(as + k * (SIDE + PAD) + 64 * i + y);
            b[i] = *(const four *)(bs + k * (SIDE + PAD) + 64 * i + x);
        }
        for (int i = 0; i < EACH; i++)
            for (int j = 0; j < EACH; j++)
                sum[i][j] = fmaf(a[i / 4].x[i % 4], b[j / 4].x[j % 4], sum[i][j]);
    }
}

template <int SIDE, class A, class B>
TT_DEV void multiply(const product &p, const tile &t, bool a_t, bool b_t)
{
    constexpr int EACH = SIDE / 16, ROOM = STEP * (SIDE + PAD);
    float *shared = (float *)tt_shared;
    float sum[EACH][EACH] = {};
    loader<SIDE, A> a = {(const A *)p.a + t.a + t.m0 * (a_t ? 1 : t.k),
                         a_t ? 1 : t.k,
                         a_t ? p.m : 1,
                         t.m - t.m0,
                         t.k,
                         {}};
    loader<SIDE, B> b = {(const B *)p.b + t.b + t.n0 * (b_t ? t.k : 1),
                         b_t ? t.k : 1,
                         b_t ? 1 : p.n,
                         p.n - t.n0,
                         t.k,
                         {}};
    for (i64 k = 0, half = 0; k < t.k; k += STEP, half ^= 1) {
        float *as = shared + half * 2 * ROOM, *bs = as + ROOM;
        if (k == 0) {
            load_next(a);
            load_next(b);
        }
        put(a, as);
        put(b, bs);
        tt_sync(); /* the other half, too, is read by nobody any more */
        if (k + STEP < t.k) {
            load_next(a);
            load_next(b);
        }
        multiply_step<SIDE>(as, bs, sum);
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const i64 row = t.m0 + i / 4 * 64 + threadIdx.x / 16 * 4 + i % 4;
            const i64 column = t.n0 + j / 4 * 64 + threadIdx.x % 16 * 4 + j % 4;
            float *c = (float *)p.c + t.c + row * p.n + column;
            if (row < t.m && column < p.n)
                *c = p.add ? *c + sum[i][j] : sum[i][j];
        }
}

#define GEMM(side, name, A, B)                                                                     \
    TT_KERNEL(THREADS, name, const void *a, const void *b, void *c, i64 m, i64 n, i64 k,           \
              i64 batch, int add, int mode, const i64 *groups, int a_t, int b_t)                   \
    {                                                                                              \
        const product p = {a, b, c, m, n, k, batch, 0, add, mode, groups};                         \
        const i64 tiles = tile_count<side>(p);                                                     \
        for (i64 at = blockIdx.x; at < tiles; at += gridDim.x) {                                   \
            tile t;                                                                                \
            tt_sync(); /* nobody reads the last tile's operands any more */                        \
            if (tile_find<side>(p, at, &t))                                                        \
                multiply<side, A, B>(p, t, a_t != 0, b_t != 0);                                    \
        }                                                                                          \
    }
GEMM(64, gemm_64_ff, float, float)
GEMM(64, gemm_64_fh, float, bf16)
GEMM(64, gemm_64_hf, bf16, float)
GEMM(128, gemm_128_ff, float, float)
