/* SPDX-License-Identifier: Apache-2.0 */
#include "gemm_tiles.h"

/* Products of bf16 matrices by tensor cores, 16 of k at a time. A block reads STEP of k at a time; copies into shared
 * memory are STAGES - 1 steps ahead of the products. */
#define STEP 32
#define PAD 8 /* elements after each row in shared memory, so that ldmatrix meets no bank twice */
#define STAGES 3
#define ROOM_ROW 40 /* floats of a row in a warp's shared memory for results */

struct alignas(16) chunk { /* what one copy moves: 8 elements */
    u32 word[4];
};

/* Copies steps of one operand into shared memory: [SIDE][STEP + PAD] where k is its fast dim, else [STEP][SIDE + PAD].
 * What lies outside the operand is 0 there. Each thread copies N chunks of a step. */
template <int SIDE, bool K_FAST, int THREADS> struct loader {
    static constexpr int N = SIDE * STEP / 8 / THREADS;
    const bf16 *at[N];
    int width[N]; /* elements of a chunk inside the operand, as far as its side is concerned */
    i64 step, k;  /* elements of memory from step to step; elements of k that are left */
    bool aligned;
};

template <int SIDE, bool K_FAST> TT_DEV int chunk_row(int c)
{
    return c / ((K_FAST ? STEP : SIDE) / 8);
}
template <int SIDE, bool K_FAST> TT_DEV int chunk_column(int c)
{
    return c % ((K_FAST ? STEP : SIDE) / 8) * 8;
}

/* x: the operand's first element; rows or columns [first, end) of it are read. */
template <int SIDE, bool K_FAST, int THREADS>
TT_DEV void load_start(loader<SIDE, K_FAST, THREADS> &l, const bf16 *x, i64 ld, i64 first, i64 end,
                       i64 k)
{
    l.aligned = (u64)x % 16 == 0 && ld % 8 == 0;
    l.step = K_FAST ? STEP : STEP * ld;
    l.k = k;
    for (int i = 0; i < l.N; i++) {
        const int c = (int)threadIdx.x + i * THREADS;
        const int row = chunk_row<SIDE, K_FAST>(c), column = chunk_column<SIDE, K_FAST>(c);
        const i64 left = end - first - (K_FAST ? row : column);
        l.width[i] = left <= 0 ? 0 : K_FAST || left >= 8 ? 8 : (int)left;
        l.at[i] = K_FAST ? x + (first + row) * ld + column : x + row * ld + first + column;
    }
}

/* The first n of 8 elements, and zeros. */
TT_DEV chunk load_part(const bf16 *x, int n)
{
    chunk v;
    for (int j = 0; j < 4; j++) {
        const u32 lo = 2 * j < n ? x[2 * j].bits : 0u, hi = 2 * j + 1 < n ? x[2 * j + 1].bits : 0u;
        v.word[j] = lo | hi << 16;
    }
    return v;
}

/* Copies the next step. */
template <int SIDE, bool K_FAST, int THREADS>
TT_DEV void load_next(loader<SIDE, K_FAST, THREADS> &l, bf16 *to)
{
    for (int i = 0; i < l.N; i++) {
        const int c = (int)threadIdx.x + i * THREADS;
        const int row = chunk_row<SIDE, K_FAST>(c), column = chunk_column<SIDE, K_FAST>(c);
        const i64 left = l.k - (K_FAST ? column : row);
        const int n = left <= 0 ? 0 : K_FAST && left < l.width[i] ? (int)left : l.width[i];
        bf16 *s = to + row * ((K_FAST ? STEP : SIDE) + PAD) + column;
        if (l.aligned && n == 8)
            tt_copy16(s, l.at[i]);
        else
            *(chunk *)s = load_part(l.at[i], n);
        l.at[i] += l.step;
    }
    l.k -= STEP;
}

/* The 16 × 16 part of A at (m, k) as operand of tt_mma_bf16. */
template <int SIDE, bool TRANSPOSED> TT_DEV void load_a(u32 *r, const bf16 *s, int m, int k)
{
    const int i = threadIdx.x % 32;
    if (TRANSPOSED)
        tt_ldmatrix4_transposed(r, s + (k + i / 16 * 8 + i % 8) * (SIDE + PAD) + m + i / 8 % 2 * 8);
    else
        tt_ldmatrix4(r, s + (m + i % 16) * (STEP + PAD) + k + i / 16 * 8);
}
/* The 16 × 16 part of B at (k, n) as two operands: r[0], r[1] of columns n and on, r[2], r[3] of n + 8 and on. */
template <int SIDE, bool TRANSPOSED> TT_DEV void load_b(u32 *r, const bf16 *s, int k, int n)
{
    const int i = threadIdx.x % 32;
    if (TRANSPOSED)
        tt_ldmatrix4(r, s + (n + i % 8 + i / 16 * 8) * (STEP + PAD) + k + i / 8 % 2 * 8);
    else
        tt_ldmatrix4_transposed(r, s + (k + i / 8 % 2 * 8 + i % 8) * (SIDE + PAD) + n + i / 16 * 8);
}

/* Stores a warp's 16 × 32 part of a tile, whose first element is (row, column) of its product: through shared memory, so
 * that lanes store neighbours. */
TT_DEV void store_part(const product &p, const tile &t, float sum[4][4], float *room, i64 row,
                       i64 column)
{
    const int i = threadIdx.x % 32;
    tt_sync_warp();
    for (int y = 0; y < 4; y++)
        for (int e = 0; e < 4; e++)
            room[(i / 4 + e / 2 * 8) * ROOM_ROW + 8 * y + i % 4 * 2 + e % 2] = sum[y][e];
    tt_sync_warp();
    const i64 rows = column + i >= p.n ? 0 : t.m - row < 16 ? t.m - row : 16;
#pragma unroll 1
    for (int r = 0; r < rows; r++)
        tile_store(p, t.c + (row + r) * p.n + column + i, room[r * ROOM_ROW + i]);
}

/* Each warp has 32 columns and SIDE / 2 rows of the tile. */
template <int SIDE, bool A_T, bool B_T> TT_DEV void multiply(const product &p, const tile &t)
{
    constexpr int ROWS = SIDE / 2, PARTS = ROWS / 16, THREADS = 2 * SIDE;
    constexpr int ROOM = SIDE * (STEP + PAD); /* at least STEP * (SIDE + PAD) */
    bf16 *as = (bf16 *)tt_shared, *bs = as + STAGES * ROOM;
    const int warp = threadIdx.x / 32, wm = warp % 2 * ROWS, wn = warp / 2 * 32;
    const i64 steps = (t.k + STEP - 1) / STEP;
    float sum[PARTS][4][4] = {};
    loader<SIDE, !A_T, THREADS> a;
    loader<SIDE, B_T, THREADS> b;
    load_start(a, (const bf16 *)p.a + t.a, A_T ? p.m : t.k, t.m0, t.m, t.k);
    load_start(b, (const bf16 *)p.b + t.b, B_T ? t.k : p.n, t.n0, p.n, t.k);
#pragma unroll 1
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps) {
            load_next(a, as + s * ROOM);
            load_next(b, bs + s * ROOM);
        }
        tt_copy_commit();
    }
    for (i64 s = 0; s < steps; s++) {
        const int now = (int)(s % STAGES), then = (int)((s + STAGES - 1) % STAGES);
        tt_copy_wait<STAGES - 2>();
        tt_sync(); /* step s is here, and nobody reads the one before it any more */
        if (s + STAGES - 1 < steps) {
            load_next(a, as + then * ROOM);
            load_next(b, bs + then * ROOM);
        }
        tt_copy_commit();
        for (int k = 0; k < STEP; k += 16) {
            u32 ra[PARTS][4], rb[2][4];
            for (int x = 0; x < PARTS; x++)
                load_a<SIDE, A_T>(ra[x], as + now * ROOM, wm + 16 * x, k);
            for (int y = 0; y < 2; y++)
                load_b<SIDE, B_T>(rb[y], bs + now * ROOM, k, wn + 16 * y);
            for (int x = 0; x < PARTS; x++)
                for (int y = 0; y < 4; y++)
                    tt_mma_bf16(sum[x][y], ra[x], rb[y / 2] + y % 2 * 2);
        }
    }
    tt_sync(); /* nobody reads operands any more */
#pragma unroll
    for (int x = 0; x < PARTS; x++)
        store_part(p, t, sum[x], (float *)tt_shared + warp * 16 * ROOM_ROW, t.m0 + wm + 16 * x,
                   t.n0 + wn);
}

#define GEMM(side, name, a_t, b_t)                                                                 \
    TT_KERNEL(2 * side, name, const void *a, const void *b, void *c, i64 m, i64 n, i64 k,          \
              i64 batch, int half_out, int add, int mode, const i64 *groups)                       \
    {                                                                                              \
        const product p = {a, b, c, m, n, k, batch, half_out, add, mode, groups};                  \
        const i64 tiles = tile_count<side>(p);                                                     \
        for (i64 at = blockIdx.x; at < tiles; at += gridDim.x) {                                   \
            tile t;                                                                                \
            tt_sync(); /* nobody reads the last tile's operands any more */                        \
            if (tile_find<side>(p, at, &t))                                                        \
                multiply<side, a_t, b_t>(p, t);                                                    \
        }                                                                                          \
    }
GEMM(64, gemm_64_nn, false, false)
GEMM(64, gemm_64_nt, false, true)
GEMM(64, gemm_64_tn, true, false)
GEMM(64, gemm_64_tt, true, true)
GEMM(128, gemm_128_nn, false, false)
GEMM(128, gemm_128_nt, false, true)
GEMM(128, gemm_128_tn, true, false)
GEMM(128, gemm_128_tt, true, true)

/* counts [experts] → groups [2][experts + 2], for tiles of `side` rows. A count below 0 counts as 0, and rows from `rows`
 * on do not exist. One block; shared memory for 256 ints. */
TT_KERNEL(256, gemm_groups, const int *counts, i64 experts, i64 rows, i64 side, i64 *groups)
{
    int *part = (int *)tt_shared;
    i64 row = 0, tiles = 0;
    for (i64 first = 0; first < experts; first += 256) {
        const i64 mine = first + threadIdx.x;
        tt_sync();
        part[threadIdx.x] = mine < experts ? counts[mine] : 0;
        tt_sync();
        for (i64 e = first; e < experts && e < first + 256;
             e++) { /* each thread adds all and writes its own */
            if (e == mine) {
                groups[e] = row;
                groups[experts + 2 + e] = tiles;
            }
            const i64 n = part[e - first] < 0            ? 0
                          : part[e - first] < rows - row ? part[e - first]
                                                         : rows - row;
            row += n;
            tiles += (n + side - 1) / side;
        }
    }
    if (threadIdx.x == 0) {
        groups[experts] = row;
        groups[experts + 1] = rows;
        groups[2 * experts + 2] = tiles;
        groups[2 * experts + 3] = tiles + (rows - row + side - 1) / side;
    }
}
