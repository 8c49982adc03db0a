/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions of a row or of columns. A row is cut into blocks of ROW_BLOCK elements. Each block is
 * summed in four vector accumulators; the blocks' sums are added pairwise, by vsum: a fixed
 * tree. */
#define ROW_BLOCK 4096
#include <time.h>

#define ROW_REDUCE(expr)                                                                           \
    double total = 0;                                                                              \
    for (int64_t lo = 0; lo < n; lo += ROW_BLOCK) {                                                \
        int64_t hi = lo + ROW_BLOCK < n ? lo + ROW_BLOCK : n, i = lo;                              \
        vf s0 = vset(0.0f), s1 = s0, s2 = s0, s3 = s0;                                             \
        for (; i + 4 * VW <= hi; i += 4 * VW) {                                                    \
            s0 += expr(i, VW);                                                                     \
            s1 += expr(i + VW, VW);                                                                \
            s2 += expr(i + 2 * VW, VW);                                                            \
            s3 += expr(i + 3 * VW, VW);                                                            \
        }                                                                                          \
        for (; i + VW <= hi; i += VW)                                                              \
            s0 += expr(i, VW);                                                                     \
        if (i < hi)                                                                                \
            s1 += expr(i, hi - i);                                                                 \
        total += (double)vsum((s0 + s1) + (s2 + s3));                                              \
    }

static float row_sum(int64_t n, const float *x)
{
#define X(i, m) operand(x, (i), (m), false, 0.0f)
    ROW_REDUCE(X)
#undef X
    return (float)total;
}

static float row_dot(int64_t n, const float *a, const float *b)
{
#define X(i, m) (operand(a, (i), (m), false, 0.0f) * operand(b, (i), (m), false, 0.0f))
    ROW_REDUCE(X)
#undef X
    return (float)total;
}

/* Prefetches the row that follows, which is usually read next, while this one is computed. */
#define NEXT_ROW (1 << 17) /* elements; longer rows do not stay in the second-level cache */
INLINE vf ahead(const float *x, int64_t i, int64_t n, vf v)
{
    if (n <= NEXT_ROW)
        __builtin_prefetch(x + n + i, 0, 2);
    return v;
}
static float row_sum_exp(int64_t n, const float *x, float m_)
{
    const vf shift = vset(m_);
#define X(i, m) ahead(x, (i), n, vexp(operand(x, (i), (m), false, -INFINITY) - shift))
    ROW_REDUCE(X)
#undef X
    return (float)total;
}

/* Sums two halves at once, because a single stream does not use all of memory's bandwidth. */
/* elements; the gradients this is used for are in memory, not in cache */
#define SQUARES_AHEAD 1024
static double row_sum_squares(int64_t n, const float *x)
{
    const int64_t half = n / (2 * VW) * VW;
    const float *y = x + half;
    vd s0 = {0}, s1 = {0}, t0 = {0}, t1 = {0};
    for (int64_t i = 0; i < half; i += VW) {
        const vf u = vload(x + i), v = vload(y + i);
        __builtin_prefetch(x + i + SQUARES_AHEAD, 0, 2);
        __builtin_prefetch(y + i + SQUARES_AHEAD, 0, 2);
        s0 = vadd_square(s0, vlow(u));
        s1 = vadd_square(s1, vhigh(u));
        t0 = vadd_square(t0, vlow(v));
        t1 = vadd_square(t1, vhigh(v));
    }
    for (int64_t i = 2 * half; i < n; i += VW) {
        const vf v = operand(x, i, n - i < VW ? n - i : VW, false, 0.0f);
        t0 = vadd_square(t0, vlow(v));
        t1 = vadd_square(t1, vhigh(v));
    }
    s0 = (s0 + s1) + (t0 + t1);
    double total = 0;
    for (int i = 0; i < VW / 2; i++)
        total += s0[i];
    return total;
}

/* NaN if any element is NaN. */
static float row_max(int64_t n, const float *x)
{
    vf m[4] = {vset(-INFINITY), vset(-INFINITY), vset(-INFINITY), vset(-INFINITY)};
    vi nan = vseti(0);
    int64_t i = 0;
    for (; i + 4 * VW <= n; i += 4 * VW)
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) {
            const vf v = vload(x + i + k * VW);
            nan |= v != v;
            m[k] = vmax(m[k], v);
        }
    for (; i < n; i += VW) {
        const vf v = operand(x, i, n - i < VW ? n - i : VW, false, -INFINITY);
        nan |= v != v;
        m[0] = vmax(m[0], v);
    }
    float any = vsum((vf)(nan & (vi)vset(1.0f)));
    return any > 0.0f ? NAN : vmax_all(vmax(vmax(m[0], m[1]), vmax(m[2], m[3])));
}

#define EXP_AHEAD 512 /* elements */
static void row_exp_sub(int64_t n, const float *x, float m_, float factor, float *y)
{
    const vf shift = vset(m_), f = vset(factor);
    for (int64_t i = 0; i < n; i += VW) {
        int64_t m = n - i < VW ? n - i : VW;
        __builtin_prefetch(x + i + EXP_AHEAD, 0, 3);
        __builtin_prefetch(y + i + EXP_AHEAD, 1, 3);
        vf v = vexp(operand(x, i, m, false, 0.0f) - shift) * f;
        if (m == VW)
            vstore(y + i, v);
        else
            vstore_part(y + i, v, m);
    }
}

static void softmax_bwd(int64_t n, const float *y, const float *dy, float *dx)
{
    const vf d = vset(row_dot(n, y, dy));
    for (int64_t i = 0; i < n; i += VW) {
        int64_t m = n - i < VW ? n - i : VW;
        vf v = operand(y, i, m, false, 0.0f) * (operand(dy, i, m, false, 0.0f) - d);
        if (m == VW)
            vstore(dx + i, v);
        else
            vstore_part(dx + i, v, m);
    }
}

/* y[j] (+)= sum over rows of x[r * ld + j]: blocks of 64 rows, then the blocks. */
#define COLUMN_VECTORS 8

/* Sums V vectors of columns: 64 rows at a time, then those sums in order. */
INLINE void column_sum_of(const int V, int64_t rows, int64_t ld, const float *x, vf *total)
{
    vf s[COLUMN_VECTORS];
#pragma GCC unroll 8
    for (int v = 0; v < V; v++)
        total[v] = vset(0.0f);
    for (int64_t lo = 0; lo < rows; lo += 64) {
        int64_t hi = lo + 64 < rows ? lo + 64 : rows;
#pragma GCC unroll 8
        for (int v = 0; v < V; v++)
            s[v] = vset(0.0f);
        for (int64_t r = lo; r < hi; r++)
#pragma GCC unroll 8
            for (int v = 0; v < V; v++)
                s[v] += vload(x + r * ld + v * VW);
#pragma GCC unroll 8
        for (int v = 0; v < V; v++)
            total[v] += s[v];
    }
}

/* Several vectors at once: they are contiguous in a row. */
static void column_sum(int64_t rows, int64_t n, int64_t ld, const float *x, float *y, bool add)
{
    int64_t j = 0;
    vf total[COLUMN_VECTORS];
    for (; j + COLUMN_VECTORS * VW <= n; j += COLUMN_VECTORS * VW) {
        column_sum_of(COLUMN_VECTORS, rows, ld, x + j, total);
        for (int v = 0; v < COLUMN_VECTORS; v++)
            vstore(y + j + v * VW, add ? vload(y + j + v * VW) + total[v] : total[v]);
    }
    for (; j + VW <= n; j += VW) {
        column_sum_of(1, rows, ld, x + j, total);
        vstore(y + j, add ? vload(y + j) + total[0] : total[0]);
    }
    for (; j < n; j++) { /* the last columns, one by one, in the same order */
        float sum = 0;
        for (int64_t lo = 0; lo < rows; lo += 64) {
            float s = 0;
            for (int64_t r = lo; r < cpu_min(lo + 64, rows); r++)
                s += x[r * ld + j];
            sum += s;
        }
        y[j] = add ? y[j] + sum : sum;
    }
}

static void column_max(int64_t rows, int64_t n, int64_t ld, const float *x, float *y)
{
    for (int64_t j = 0; j < n; j += VW) {
        int64_t m = n - j < VW ? n - j : VW;
        vf total = vset(-INFINITY);
        for (int64_t r = 0; r < rows; r++)
            total = vlarger(total, operand(x + r * ld, j, m, false, 0.0f));
        if (m == VW)
            vstore(y + j, total);
        else
            vstore_part(y + j, total, m);
    }
}
