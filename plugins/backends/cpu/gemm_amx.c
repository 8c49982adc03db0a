/* SPDX-License-Identifier: Apache-2.0 */
#if defined(__x86_64__) && defined(__linux__)
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512")
#pragma GCC target("amx-tile,amx-bf16")
#define CPU_LEVEL 5
#include "vec.h"

/* Products of f32 matrices in AMX tiles: each operand is the sum of three bf16, exactly, and of the
 * nine products of such sums the six large ones are made. With x = x1 + x2 + x3, each the nearest
 * to what is left, |x2| <= 2^-8 |x| and |x3| <= 2^-17 |x|; so a2 b3, a3 b2 and a3 b3, which are not
 * made, are 2^-24 |a b| together at most, one rounding. A product of bf16 is exact in f32.
 * Source: Henry, Tang, Heinecke 2019, arXiv:1904.06376.
 *
 * Where a sum is not finite (an operand that is not, or rounds to infinity) the caller makes that
 * element by multiply-adds. What is below 2^-126 counts as zero: parts, products and sums.
 *
 * A panel of 32 rows (or columns) is a row of steps of 32 k, each its three parts, each two tiles
 * of 16 rows × 32 k (1 KiB). The order of k within a step is 0, 16, 1, 17, …: pairs of two vectors
 * need no shuffling, and both operands have the same. */
#define SIDE 32
#define STEP 32
#define TILE 512        /* elements */
#define PART (2 * TILE) /* of a step */
#define PARTS 3
#define K_SUM 128 /* a short sum; the instruction itself sums 32 terms before it adds them */
#define SUM (SIDE * SIDE) /* floats */

/* Parts 1, 2 and 3 of a vector of x as the even and of y as the odd elements. Nearest, halves away
 * from zero. An x that rounds to infinity, or is it or NaN, leaves NaN in part 2 or 3. */
INLINE void split(vf x, vf y, uint16_t *dst)
{
    const vi half = vseti(0x8000), high = vseti((int32_t)0xffff0000u);
#pragma GCC unroll 3
    for (int i = 0; i < PARTS; i++) {
        const bool last = i == PARTS - 1; /* has 8 bits at most */
        const vi a = last ? (vi)x : (vi)x + half, b = last ? (vi)y : (vi)y + half;
        const __m512i low = _mm512_srli_epi32((__m512i)a, 16);
        _mm512_store_si512(dst + i * PART, _mm512_mask_mov_epi16(low, 0xaaaaaaaau, (__m512i)b));
        x -= (vf)(a & high);
        y -= (vf)(b & high);
    }
}

/* 16 rows × 32 k; what is missing of them is zero. */
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
    if ((a.cs == 1) == left) { /* a vector of the tile lies together */
        const int64_t stride = left ? a.rs : a.cs, second = left ? 16 : 16 * a.cs;
        for (int i = 0; i < 16; i++)
            split(vload(a.p + i * stride), vload(a.p + i * stride + second), dst + i * STEP);
        return;
    }
    load_transposed(a.p, left ? a.cs : a.rs, 16, x);
    load_transposed(a.p + 16 * a.cs, left ? a.cs : a.rs, 16, y);
    for (int i = 0; i < 16; i++)
        split(x[i], y[i], dst + i * STEP);
}

/* In the order in which it lies in memory. */
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

/* C += A B of one part each, of R × S tiles in tile registers: 0 to 3 hold C, 4 and 5 A, 6 and 7 B.
 * NULL: as the last call left it there. */
INLINE void product(const int R, const int S, const uint16_t *a, const uint16_t *b)
{
    if (a)
        _tile_loadd(4, a, 64);
    if (b)
        _tile_loadd(6, b, 64);
    _tile_dpbf16ps(0, 4, 6);
    if (S > 1) {
        if (b)
            _tile_loadd(7, b + TILE, 64);
        _tile_dpbf16ps(1, 4, 7);
    }
    if (R > 1) {
        if (a)
            _tile_loadd(5, a + TILE, 64);
        _tile_dpbf16ps(2, 5, 6);
        if (S > 1)
            _tile_dpbf16ps(3, 5, 7);
    }
}

/* A step's six products, small ones first, in an order in which one operand stays. */
INLINE void step(const int R, const int S, const uint16_t *a, const uint16_t *b)
{
    product(R, S, a + 2 * PART, b);
    product(R, S, a + PART, NULL);
    product(R, S, NULL, b + PART);
    product(R, S, a, NULL);
    product(R, S, NULL, b + 2 * PART);
    product(R, S, NULL, b);
}

/* t [32,32] = A B over a short sum. */
INLINE void short_sum(const int R, const int S, int64_t steps, const uint16_t *a, const uint16_t *b,
                      float *t)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t i = 0; i < steps; i++)
        step(R, S, a + i * PARTS * PART, b + i * PARTS * PART);
    _tile_stored(0, t, SIDE * 4);
    _tile_stored(1, t + 16, SIDE * 4);
    _tile_stored(2, t + 16 * SIDE, SIDE * 4);
    _tile_stored(3, t + 16 * SIDE + 16, SIDE * 4);
}

/* A row of C (+)= n short sums, but for elements of which the sum is not finite: these are
 * returned. */
INLINE uint32_t store_row(const float *t, int n, float *c, int64_t cols, bool add)
{
    enum { NOT_FINITE = 0x99 };
    uint32_t bad = 0;
    for (int j = 0; j < SIDE && j < cols; j += VW, t += VW, c += VW) {
        vf sum = vload(t);
        for (int i = 1; i < n; i++)
            sum += vload(t + i * SUM);
        const __mmask16 wrong = _mm512_fpclass_ps_mask((__m512)sum, NOT_FINITE);
        const __mmask16 here = (__mmask16)(cols - j >= VW ? 0xffff : (1 << (cols - j)) - 1);
        if (add)
            sum += (vf)_mm512_maskz_loadu_ps(here, c);
        _mm512_mask_storeu_ps(c, here & (__mmask16)~wrong, (__m512)sum);
        bad |= (uint32_t)(wrong & here) << j;
    }
    return bad;
}

/* Prefetching for it, as gemm_tile does, measured 5 to 15 % slower: tiles are loaded through the
 * same few line buffers. */
static bool split_tile(int64_t k, const void *left, const void *right, float *c, int64_t ldc,
                       int64_t rows, int64_t cols, bool add, cpu_fetch *next, uint32_t *bad)
{
    float t[CPU_K_BLOCK / K_SUM * SUM] __attribute__((aligned(64)));
    uint32_t any = 0;
    int n = 0;
    (void)next;
    for (int64_t k0 = 0; k0 < k; k0 += K_SUM, n++) {
        const int64_t steps = (cpu_min(K_SUM, k - k0) + STEP - 1) / STEP, at = k0 * SIDE * PARTS;
        const uint16_t *a = (const uint16_t *)left + at, *b = (const uint16_t *)right + at;
        if (rows > 16 && cols > 16)
            short_sum(2, 2, steps, a, b, t + n * SUM);
        else if (rows > 16)
            short_sum(2, 1, steps, a, b, t + n * SUM);
        else if (cols > 16)
            short_sum(1, 2, steps, a, b, t + n * SUM);
        else
            short_sum(1, 1, steps, a, b, t + n * SUM);
    }
    for (int64_t r = 0; r < rows; r++)
        any |= bad[r] = store_row(t + r * SIDE, n, c + r * ldc, cols, add);
    return any != 0;
}

static double split_peak(double seconds)
{
    return cpu_half_amx.peak(seconds) / 6;
}

const cpu_tiles cpu_tiles_bf16x6 = {.mr = SIDE,
                                    .nr = SIDE,
                                    .k_unit = STEP,
                                    .size = PARTS * sizeof(uint16_t),
                                    .m_task = 512,
                                    .strip = 128,
                                    .tasks = 1,
                                    .pack = split_pack,
                                    .tile = split_tile,
                                    .begin = cpu_amx_begin,
                                    .end = cpu_amx_end,
                                    .peak = split_peak};
#else
typedef int cpu_no_amx; /* another architecture */
#endif
