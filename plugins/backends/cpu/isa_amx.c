/* SPDX-License-Identifier: Apache-2.0 */
#if defined(__x86_64__) && defined(__linux__)
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512")
#pragma GCC target("amx-tile,amx-bf16")
#define _GNU_SOURCE /* syscall */
#define CPU_LEVEL 5
#include "vec.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Products of bf16 matrices with AMX: C [32,32] of f32 in four tiles, 32 of k per step. A panel is
 * a row of steps, each two tiles of 16 rows (or columns) × 32 k, 1 KiB. The rows of a left tile
 * hold k in order; the rows of a right tile hold a pair of k of each column. Products are exact,
 * sums over k are in order in f32, and denormals are zero (Intel SDM, TDPBF16PS). */
#define SIDE 32
#define STEP 32
#define TILE 512 /* elements */

/* Rows k and k + 1 of 16 elements as pairs. */
INLINE vi pairs(const uint16_t *x, const uint16_t *y, int64_t n)
{
    vs a = {0}, b = {0};
    memcpy(&a, x, (size_t)n * sizeof *x);
    if (y)
        memcpy(&b, y, (size_t)n * sizeof *y);
    return __builtin_convertvector(a, vi) | __builtin_convertvector(b, vi) << 16;
}

/* Pairs p of 16 rows: v[p] lane r, from a matrix whose rows are interleaved (rs 1). */
INLINE void load_pairs(const uint16_t *p, int64_t cs, int64_t rows, int64_t k, vi *v)
{
    for (int i = 0; i < 16; i++)
        v[i] = 2 * i < k ? pairs(p + 2 * i * cs, 2 * i + 1 < k ? p + (2 * i + 1) * cs : NULL, rows)
                         : vseti(0);
}

/* v[r] lane p, from a matrix whose rows are contiguous (cs 1). */
INLINE void load_rows(const uint16_t *p, int64_t rs, int64_t rows, int64_t k, vi *v)
{
    for (int r = 0; r < 16; r++) {
        v[r] = vseti(0);
        if (r < rows)
            memcpy(&v[r], p + r * rs, (size_t)k * sizeof *p);
    }
}

/* 16 rows × 32 k. */
INLINE void pack_tile(const uint16_t *p, int64_t rs, int64_t cs, int64_t rows, int64_t k, bool left,
                      uint16_t *dst)
{
    vi v[16];
    if (cs == 1)
        load_rows(p, rs, rows, k, v);
    else
        load_pairs(p, cs, rows, k, v);
    if ((cs == 1) != left)
        transpose((vf *)v);
    memcpy(dst, v, sizeof v);
}

static void amx_pack(const uint16_t *p, int64_t rs, int64_t cs, int64_t rows, int64_t k, bool left,
                     void *to)
{
    uint16_t *dst = to;
    for (int64_t k0 = 0; k0 < k; k0 += STEP)
        for (int64_t r = 0; r < SIDE; r += 16, dst += TILE) {
            const int64_t n = cpu_max(0, cpu_min(16, rows - r));
            pack_tile(p + r * rs * (n > 0) + k0 * cs, rs, cs, n, cpu_min(STEP, k - k0), left, dst);
        }
}

static void amx_tile(int64_t k, const void *a, const void *b, float *c)
{
    const uint16_t *x = a, *y = b;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t k0 = 0; k0 < k; k0 += STEP, x += 2 * TILE, y += 2 * TILE) {
        _tile_loadd(4, x, 64);
        _tile_loadd(6, y, 64);
        _tile_loadd(7, y + TILE, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, x + TILE, 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, SIDE * 4);
    _tile_stored(1, c + 16, SIDE * 4);
    _tile_stored(2, c + 16 * SIDE, SIDE * 4);
    _tile_stored(3, c + 16 * SIDE + 16, SIDE * 4);
}

/* The tiles' shapes, 16 rows of 64 bytes each. Each thread configures its own, and releases them so
 * that a switch of threads stays cheap. The table is constant; gcc's intrinsic tells the compiler
 * only of its first bytes. */
static const struct shapes {
    uint8_t palette, start, zero[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} shapes = {
    .palette = 1,
    .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
    .rows = {16, 16, 16, 16, 16, 16, 16, 16}
};

void cpu_amx_begin(void)
{
    _tile_loadconfig(&shapes);
}

void cpu_amx_end(void)
{
    _tile_release();
}

static double amx_peak(double seconds)
{
    static const uint16_t zero[2 * TILE];
    float c[SIDE * SIDE];
    struct timespec a, b;
    double t = 0, flops = 0;
    cpu_amx_begin();
    clock_gettime(CLOCK_MONOTONIC, &a);
    while (t < seconds) {
        /* times the products alone, on whatever the last call left in the tiles */
        for (int i = 0; i < 4096; i++) {
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
        flops += 4096.0 * 4 * 16 * 16 * 32 * 2;
        clock_gettime(CLOCK_MONOTONIC, &b);
        t = (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
    }
    amx_tile(STEP, zero, zero, c);
    cpu_amx_end();
    return flops / t;
}

const cpu_half cpu_half_amx = {.mr = SIDE,
                               .nr = SIDE,
                               .kr = STEP,
                               .size = 2,
                               .pack = amx_pack,
                               .tile = amx_tile,
                               .begin = cpu_amx_begin,
                               .end = cpu_amx_end,
                               .peak = amx_peak};

/* Does the processor have AMX, and does the kernel let this process use it? Both are asked once. */
bool cpu_amx_open(void)
{
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return false;
    if (!(d >> 24 & 1) || !(d >> 22 & 1)) /* AMX-TILE, AMX-BF16 */
        return false;
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}
#else
#include "cpu.h"
bool cpu_amx_open(void)
{
    return false;
}
#endif
