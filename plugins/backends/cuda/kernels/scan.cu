/* SPDX-License-Identifier: Apache-2.0 */
#include "rows.h"

/* cumsum, and linear recurrences along tokens. */

/* ---- cumsum: x, y [outer, n, inner], sums in f64; y may be x ---- */
struct tt_cumsum {
    i64 outer, n, inner;
    int reverse, exclusive;
};

/* inner = 1: a group of G threads per row, G elements at a time. */
template <class T, int G> TT_DEV void cumsum_row(const tt_cumsum &a, const T *x, T *y)
{
    const i64 r = tt_group_row<G>(a.outer);
    const int lane = (int)threadIdx.x % G, warp = (int)threadIdx.x / 32;
    double *const room = (double *)(void *)tt_shared; /* [G / 32] */
    double before = 0.0;
    if (r < 0)
        return;
    for (i64 k = 0; k < a.n; k += G) {
        const i64 i = k + lane, at = r * a.n + (a.reverse ? a.n - 1 - i : i);
        const double v = i < a.n ? (double)tt_load(x + at) : 0.0;
        double sum = v, total = v; /* sum: up to this lane; total: of 2 o lanes */
        for (int o = 1; o < 32; o <<= 1) {
            const double other = tt_shuffle_xor(total, o);
            if (lane & o)
                sum += other;
            total += other;
        }
        if (G > 32) {
            tt_sync();
            if (lane % 32 == 0)
                room[warp] = total;
            tt_sync();
            total = 0.0;
            for (int w = 0; w < G / 32; w++) {
                if (w == warp)
                    sum += total;
                total += room[w];
            }
        }
        if (i < a.n)
            tt_store(y + at, (float)(before + (a.exclusive ? sum - v : sum)));
        before += total;
    }
}

/* A thread per column and piece of n. parts [outer, pieces, inner] hold first the sums of pieces
 * (y = NULL), then what comes before each. */
template <class T>
TT_DEV void cumsum_column(const tt_cumsum &a, const T *x, T *y, double *parts, i64 piece)
{
    const i64 pieces = (a.n + piece - 1) / piece, g = (i64)blockIdx.x * 256 + threadIdx.x;
    if (g >= a.outer * pieces * a.inner)
        return;
    const i64 i = g % a.inner, p = g / a.inner % pieces, o = g / a.inner / pieces;
    const i64 end = (p + 1) * piece < a.n ? (p + 1) * piece : a.n;
    double sum = y && parts ? parts[g] : 0.0;
    TT_UNROLL(4)
    for (i64 k = p * piece; k < end; k++) {
        const i64 at = (o * a.n + (a.reverse ? a.n - 1 - k : k)) * a.inner + i;
        const double v = (double)tt_load(x + at);
        if (y)
            tt_store(y + at, (float)(a.exclusive ? sum : sum + v));
        sum += v;
    }
    if (!y)
        parts[g] = sum;
}
TT_KERNEL(256, cumsum_parts, double *parts, i64 outer, i64 pieces, i64 inner)
{
    const i64 g = (i64)blockIdx.x * 256 + threadIdx.x;
    double sum = 0.0;
    for (i64 p = 0; p < pieces && g < outer * inner; p++) {
        double *const at = parts + (g / inner * pieces + p) * inner + g % inner;
        const double v = *at;
        *at = sum;
        sum += v;
    }
}

#define CUMSUM(T, t)                                                                               \
    TT_KERNEL(256, cumsum_warp_##t, tt_cumsum a, const T *x, T *y)                                 \
    {                                                                                              \
        cumsum_row<T, 32>(a, x, y);                                                                \
    }                                                                                              \
    TT_KERNEL(256, cumsum_block_##t, tt_cumsum a, const T *x, T *y)                                \
    {                                                                                              \
        cumsum_row<T, 256>(a, x, y);                                                               \
    }                                                                                              \
    TT_KERNEL(256, cumsum_columns_##t, tt_cumsum a, const T *x, T *y, double *parts, i64 piece)    \
    {                                                                                              \
        cumsum_column(a, x, y, parts, piece);                                                      \
    }
CUMSUM(float, f32)
CUMSUM(bf16, bf16)

/* ---- scan: h[t] = a[t] h[t-1] + x[t] within a segment ----
 * x, h [T, n * m], a [T or 1, n]: m states of a row share a decay. A thread has a column and a piece of
 * the tokens. Where there are several pieces, each is first computed from 0 (its end and the product
 * of its decays go to parts), then what enters each is found, and then each is computed. Backwards the
 * same, from the last token on: g[t] = dh[t] + a[t+1] g[t+1], dx = g. */
struct tt_scan {
    const void *a;
    const int *seg, *pos;
    i64 tokens, n, m, ld_a; /* ld_a: 0, if a has one row */
    i64 piece, pieces;
    int half_a;
};

TT_DEV float decay(const tt_scan &s, i64 t, i64 i)
{
    return tt_load_any(s.a, t * s.ld_a + i, s.half_a);
}
TT_DEV bool continues(const tt_scan &s, i64 t) /* token t the segment of token t - 1 */
{
    return t > 0 && t < s.tokens && s.seg[t - 1] == s.seg[t] && s.pos[t - 1] == s.pos[t] - 1;
}

/* The decay from the token that is computed before t to t; 0: nothing passes. */
template <bool BACK> TT_DEV float passes(const tt_scan &s, i64 t, i64 i)
{
    const i64 at = BACK ? t + 1 : t;
    return continues(s, at) ? decay(s, at, i) : 0.0f;
}

/* What the derivative computes besides dx = g. With m = 1, da; else g in f32, from which scan_da sums
 * it, if dx is in bf16. */
struct tt_scan_more {
    const void *h; /* as dx; NULL: not here */
    void *da;
    float *g; /* NULL: not needed */
    int half_da;
};

/* parts: f32 [2, pieces, width]: ends and products; y NULL: only these are found. */
template <class T, bool BACK>
TT_DEV void scan_piece(const tt_scan &s, const T *x, T *y, float *parts, const tt_scan_more &more)
{
    const int width = (int)(s.n * s.m), tiles = (width + 255) / 256;
    const int column = (int)blockIdx.x % tiles * 256 + (int)threadIdx.x, i = column / (int)s.m;
    const i64 p = (int)blockIdx.x / tiles, g = p * width + column;
    if (column >= width)
        return;
    const i64 end = (p + 1) * s.piece < s.tokens ? (p + 1) * s.piece : s.tokens;
    float h = y && parts ? parts[g] : 0.0f, product = 1.0f;
    TT_UNROLL(2)
    for (i64 k = p * s.piece; k < end; k++) {
        const i64 t = BACK ? s.tokens - 1 - k : k, at = t * width + column;
        const float v = tt_load(x + at), d = passes<BACK>(s, t, i);
        h = d != 0.0f ? fmaf(d, h, v) : v;
        product *= d;
        if (y)
            tt_store(y + at, h);
        if (BACK && y && more.g)
            more.g[at] = h;
        if (BACK && y && more.h)
            tt_store_any(more.da, at, more.half_da,
                         continues(s, t) ? h * tt_load((const T *)more.h + at - width) : 0.0f);
    }
    if (!y) {
        parts[g] = h;
        parts[s.pieces * width + g] = product;
    }
}
/* Ends become what enters each piece. */
TT_KERNEL(256, scan_parts, float *parts, i64 pieces, i64 width)
{
    const i64 column = (i64)blockIdx.x * 256 + threadIdx.x;
    float h = 0.0f;
    for (i64 p = 0; p < pieces && column < width; p++) {
        const i64 at = p * width + column;
        const float end = parts[at], product = parts[pieces * width + at];
        parts[at] = h;
        h = product != 0.0f ? fmaf(product, h, end) : end;
    }
}

/* da[t, i] = Σ g[t] h[t-1] over the m states that share a; 0 at the first token of a segment. A warp
 * per (t, i). */
template <class T>
TT_DEV void scan_da(const tt_scan &s, const T *h, const float *g, void *da, int half)
{
    const i64 row = tt_group_row<32>(s.tokens * s.n);
    const i64 t = row / s.n, at = row * s.m;
    float sum = 0.0f;
    if (row < 0)
        return;
    if (continues(s, t))
        for (i64 k = (int)threadIdx.x % 32; k < s.m; k += 32)
            sum += g[at + k] * tt_load(h + at - s.n * s.m + k);
    sum = tt_warp_sum(sum);
    if (threadIdx.x % 32 == 0)
        tt_store_any(da, row, half, sum);
}

/* Decoding: seg holds the slot of each token's sequence; a thread per column walks over the tokens. A
 * slot that the state has no room for is no sequence. */
template <class T>
TT_DEV void scan_cached(const tt_scan &s, const T *x, T *y, void *state, int half, i64 slots)
{
    const int width = (int)(s.n * s.m), column = (int)(blockIdx.x * 256 + threadIdx.x),
              i = column / (int)s.m;
    for (i64 t = 0; t < s.tokens && column < width; t++) {
        const i64 slot = s.seg[t], at = slot * width + column;
        const bool is = slot >= 0 && slot < slots && s.pos[t] >= 0;
        float h = is ? tt_load(x + t * width + column) : 0.0f;
        if (is && s.pos[t] > 0)
            h = fmaf(decay(s, t, i), tt_load_any(state, at, half), h);
        if (is)
            tt_store_any(state, at, half, h);
        tt_store(y + t * width + column, h);
    }
}

#define SCAN(T, t)                                                                                 \
    TT_KERNEL(256, scan_##t, tt_scan s, const T *x, T *y, float *parts, tt_scan_more more)         \
    {                                                                                              \
        scan_piece<T, false>(s, x, y, parts, more);                                                \
    }                                                                                              \
    TT_KERNEL(256, scan_bwd_##t, tt_scan s, const T *x, T *y, float *parts, tt_scan_more more)     \
    {                                                                                              \
        scan_piece<T, true>(s, x, y, parts, more);                                                 \
    }                                                                                              \
    TT_KERNEL(256, scan_da_##t, tt_scan s, const T *h, const float *g, void *da, int half)         \
    {                                                                                              \
        scan_da(s, h, g, da, half);                                                                \
    }                                                                                              \
    TT_KERNEL(256, scan_cached_##t, tt_scan s, const T *x, T *y, void *state, int half, i64 slots) \
    {                                                                                              \
        scan_cached(s, x, y, state, half, slots);                                                  \
    }
SCAN(float, f32)
SCAN(bf16, bf16)
