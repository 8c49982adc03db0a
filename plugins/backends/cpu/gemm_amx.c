/* SPDX-License-Identifier: Apache-2.0 */
#if defined(__x86_64__) && defined(__linux__)
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512")
#pragma GCC target("amx-tile,amx-bf16")
#define CPU_LEVEL 5
#include "vec.h"

#include "split_impl.h"

/* Products of f32 matrices in AMX tiles. Each operand is exactly the sum of three bf16. Of the nine
 * products of such sums the six largest are computed; the other three, a2 b3, a3 b2 and a3 b3,
 * together are at most 2^-24 |a b|, one rounding (split_impl.h). A product of two bf16 is exact in
 * f32. Source: Henry, Tang, Heinecke 2019, arXiv:1904.06376.
 *
 * If a sum is not finite (an operand is not finite, or rounds to infinity), the caller computes
 * that element by multiply-adds. Numbers below 2^-126 count as zero, whether parts, products or
 * sums.
 *
 * A panel of 32 rows (or columns) is a row of steps of 32 k; each step has its three parts, each
 * part two tiles of 16 rows × 32 k (1 KiB). Within a step the order of k is 0, 16, 1, 17, …: so
 * pairs of two vectors need no shuffling, and both operands have the same order. */
#define SIDE 32
#define STEP 32
#define TILE SPLIT_TILE
#define PART (2 * TILE) /* elements of one part of a step */
#define PARTS SPLIT_PARTS
/* terms of a short sum; the instruction itself sums 32 terms before it adds them */
#define K_SUM 128
#define SUM (SIDE * SIDE) /* in floats */

/* 16 rows × 32 k; missing elements are zero. */
INLINE void pack_tile(cpu_mat a, int64_t rows, int64_t k, bool left, uint16_t *dst)
{
    float edge[16 * STEP];
    if (rows < 16 || k < STEP) {
        memset(edge, 0, sizeof edge);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < k; c++)
                edge[r * STEP + c] = a.p[r * a.rs + c * a.cs];
        a = (cpu_mat){edge, STEP, 1};
    }
    vf x[16], y[16];
    if ((a.cs == 1) == left) { /* a vector of the tile is contiguous */
        const int64_t stride = left ? a.rs : a.cs, second = left ? 16 : 16 * a.cs;
        for (int i = 0; i < 16; i++)
            split_row(vload(a.p + i * stride), vload(a.p + i * stride + second), dst + i * STEP,
                      PART);
        return;
    }
    load_transposed(a.p, left ? a.cs : a.rs, 16, x);
    load_transposed(a.p + 16 * a.cs, left ? a.cs : a.rs, 16, y);
    for (int i = 0; i < 16; i++)
        split_row(x[i], y[i], dst + i * STEP, PART);
}

/* In the order of the matrix in memory. */
static void split_pack(cpu_mat a, int64_t rows, int64_t k, bool left, void *to)
{
    const int64_t panels = (rows + SIDE - 1) / SIDE, steps = (k + STEP - 1) / STEP;
    for (int64_t i = 0; i < panels * steps; i++) {
        const int64_t panel = a.cs == 1 ? i / steps : i % panels,
                      at = a.cs == 1 ? i % steps : i / panels;
        uint16_t *dst = (uint16_t *)to + (panel * steps + at) * PARTS * PART;
        for (int64_t h = 0; h < SIDE; h += 16, dst += TILE) {
            const int64_t r = panel * SIDE + h, n = cpu_max(0, cpu_min(16, rows - r));
            const cpu_mat part = {a.p + (n ? r * a.rs + at * STEP * a.cs : 0), a.rs, a.cs};
            pack_tile(part, n, cpu_min(STEP, k - at * STEP), left, dst);
        }
    }
}

/* A tile of C whose short sums are complete: its rows are added up and stored while the next tile
 * is multiplied. */
typedef struct unstored {
    const float *t; /* n_sums × [32,32] */
    int64_t n_sums;
    float *c; /* the row to add up next */
    int64_t ldc, rows;
    __mmask16 cols[2]; /* how many columns exist */
    bool add, any_bad;
    uint32_t *bad;
} unstored;

/* Row of C (+)= its short sums, except elements whose sum is not finite: their bits are set in
 * bad. */
INLINE void store_row(unstored *u)
{
    enum { NOT_FINITE = 0x99 };
    uint32_t bad = 0;
    if (u->rows == 0)
        return;
    for (int j = 0; j < 2; j++) {
        float *c = u->c + j * VW;
        vf sum = vload(u->t + j * VW);
        __builtin_prefetch(c + SIDE * u->ldc, 0, 2); /* the panel below */
        for (int64_t i = 1; i < u->n_sums; i++)
            sum += vload(u->t + i * SUM + j * VW);
        const __mmask16 wrong = _mm512_fpclass_ps_mask((__m512)sum, NOT_FINITE) & u->cols[j];
        if (u->add)
            sum += (vf)_mm512_maskz_loadu_ps(u->cols[j], c);
        _mm512_mask_storeu_ps(c, u->cols[j] & (__mmask16)~wrong, (__m512)sum);
        bad |= (uint32_t)wrong << (j * VW);
    }
    *u->bad++ = bad;
    u->any_bad |= bad != 0;
    u->t += SIDE;
    u->c += u->ldc;
    u->rows--;
}

/* The panels of one step. */
typedef struct pair {
    const uint16_t *a, *b;
} pair;

/* Tile registers 0 to 3 hold C, 4 and 5 hold A, 6 and 7 hold B. */
INLINE void load_first(pair p)
{
    _tile_loadd(4, p.a + 2 * PART, 64);
    _tile_loadd(6, p.b, 64);
    _tile_loadd(5, p.a + 2 * PART + TILE, 64);
    _tile_loadd(7, p.b + TILE, 64);
}

/* C += A B for one part each; then loads the next part of A, or of B: each tile is loaded as soon
 * as its last product has been issued. tall, wide: more than 16 rows, columns. */
INLINE void product_then_a(bool tall, bool wide, const uint16_t *a)
{
    _tile_dpbf16ps(0, 4, 6);
    if (wide)
        _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(4, a, 64);
    if (tall)
        _tile_dpbf16ps(2, 5, 6);
    if (tall && wide)
        _tile_dpbf16ps(3, 5, 7);
    _tile_loadd(5, a + TILE, 64);
}

INLINE void product_then_b(bool tall, bool wide, const uint16_t *b)
{
    _tile_dpbf16ps(0, 4, 6);
    if (tall)
        _tile_dpbf16ps(2, 5, 6);
    _tile_loadd(6, b, 64);
    if (wide)
        _tile_dpbf16ps(1, 4, 7);
    if (tall && wide)
        _tile_dpbf16ps(3, 5, 7);
    _tile_loadd(7, b + TILE, 64);
}

/* The six products of a step, small ones first, in an order in which one operand stays loaded. The
 * first operands are loaded already; then: the next step, whose first operands this loads. */
INLINE void step(bool tall, bool wide, pair p, pair then, unstored *u)
{
    store_row(u);
    product_then_a(tall, wide, p.a + PART);
    product_then_b(tall, wide, p.b + PART);
    store_row(u);
    product_then_a(tall, wide, p.a);
    product_then_b(tall, wide, p.b + 2 * PART);
    store_row(u);
    product_then_b(tall, wide, p.b);
    _tile_dpbf16ps(0, 4, 6);
    if (wide)
        _tile_dpbf16ps(1, 4, 7);
    if (tall)
        _tile_dpbf16ps(2, 5, 6);
    if (tall && wide)
        _tile_dpbf16ps(3, 5, 7);
    load_first(then);
}

/* t [32,32] = A B over one short sum. */
INLINE void short_sum(bool tall, bool wide, int64_t steps, pair p, pair then, float *t, unstored *u)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (; steps > 1; steps--) {
        const pair next = {p.a + PARTS * PART, p.b + PARTS * PART};
        step(tall, wide, p, next, u);
        p = next;
    }
    step(tall, wide, p, then, u);
    _tile_stored(0, t, SIDE * 4);
    _tile_stored(1, t + 16, SIDE * 4);
    _tile_stored(2, t + 16 * SIDE, SIDE * 4);
    _tile_stored(3, t + 16 * SIDE + 16, SIDE * 4);
}

/* The short sums of one tile; then: the first step of the next tile. */
INLINE int64_t tile_sums(int64_t rows, int64_t cols, int64_t k, pair p, pair then, float *t,
                         unstored *u)
{
    int64_t n = 0;
    for (int64_t k0 = 0; k0 < k; k0 += K_SUM, n++) {
        const int64_t steps = (cpu_min(K_SUM, k - k0) + STEP - 1) / STEP;
        const pair next = {p.a + steps * PARTS * PART, p.b + steps * PARTS * PART};
        short_sum(rows > 16, cols > 16, steps, p, k - k0 > K_SUM ? next : then, t + n * SUM, u);
        p = next;
    }
    return n;
}

static bool split_block(int64_t k, const void *left, const void *right, float *c, int64_t ldc,
                        int64_t rows, int64_t cols, bool add, uint32_t *bad)
{
    float t[2][CPU_K_BLOCK / K_SUM * SUM] __attribute__((aligned(64)));
    const int64_t panel = (k + STEP - 1) / STEP * PARTS * PART, across = (cols + SIDE - 1) / SIDE,
                  n = (rows + SIDE - 1) / SIDE * across;
    pair p = {left, right};
    unstored u = {0};
    load_first(p);
    for (int64_t i = 0; i < n; i++, bad += SIDE) {
        const int64_t r = i / across * SIDE, j = i % across * SIDE, at = (i + 1) % n;
        const pair then = {(const uint16_t *)left + at / across * panel,
                           (const uint16_t *)right + at % across * panel};
        const int64_t sums = tile_sums(rows - r, cols - j, k, p, then, t[i & 1], &u);
        while (u.rows)
            store_row(&u);
        u = (unstored){
            .t = t[i & 1],
            .n_sums = sums,
            .c = c + r * ldc + j,
            .ldc = ldc,
            .rows = cpu_min(SIDE, rows - r),
            .cols = {vmask(cols - j), vmask(cols - j - VW)},
            .add = add,
            .any_bad = u.any_bad,
            .bad = bad
        };
        p = then;
    }
    while (u.rows)
        store_row(&u);
    return u.any_bad;
}

static double split_peak(double seconds)
{
    return cpu_half_amx.peak(seconds) / 6;
}

const cpu_tiles cpu_tiles_bf16x6 = {.mr = SIDE,
                                    .nr = SIDE,
                                    .k_unit = STEP,
                                    .k_cut = K_SUM,
                                    .size = PARTS * sizeof(uint16_t),
                                    .m_task = CPU_BLOCK_ROWS,
                                    .strip = CPU_BLOCK_COLS,
                                    .tasks = 1,
                                    .pack = split_pack,
                                    .block = split_block,
                                    .begin = cpu_amx_begin,
                                    .end = cpu_amx_end,
                                    .peak = split_peak};
#else
typedef int cpu_no_amx; /* another architecture */
#endif
