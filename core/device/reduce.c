/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include <string.h>
#include <ttrun/comm.h>
#include <ttrun/narrow.h>

/* Reductions work in blocks that stay in the cache while the members are added up. The inner loops
 * have a fixed length, which -O2 vectorizes. Every element is summed by itself, in member order, so
 * the instruction set does not change the bits. */

#if defined(__GNUC__) && !defined(__clang__)
#define EACH_ALONE _Pragma("GCC ivdep")
#else
#define EACH_ALONE
#endif
#define BLOCK 4096
#define LANES 32

/* out[i] = a[i] op b[i]; out may be a or b. A maximum with a NaN is NaN, whichever member has it.
 * is_nan: a macro of one element. */
#define IS_NAN(x) ((x) != (x))
#define NEVER_NAN(x) 0
#define DEFINE_PAIR(name, type, is_nan)                                                            \
    TT_CLONES static void name(type *out, const type *a, const type *b, int64_t n, tt_reduce op)   \
    {                                                                                              \
        int64_t i = 0;                                                                             \
        for (; op == TT_SUM && i + LANES <= n; i += LANES) {                                       \
            EACH_ALONE                                                                             \
            for (int k = 0; k < LANES; k++)                                                        \
                out[i + k] = a[i + k] + b[i + k];                                                  \
        }                                                                                          \
        for (; op == TT_SUM && i < n; i++)                                                         \
            out[i] = a[i] + b[i];                                                                  \
        for (; i + LANES <= n; i += LANES) {                                                       \
            EACH_ALONE                                                                             \
            for (int k = 0; k < LANES; k++)                                                        \
                out[i + k] = a[i + k] > b[i + k] || is_nan(a[i + k]) ? a[i + k] : b[i + k];        \
        }                                                                                          \
        for (; i < n; i++)                                                                         \
            out[i] = a[i] > b[i] || is_nan(a[i]) ? a[i] : b[i];                                    \
    }

DEFINE_PAIR(pair_f32, float, IS_NAN)
DEFINE_PAIR(pair_f64, double, IS_NAN)
DEFINE_PAIR(pair_i32, int32_t, NEVER_NAN)
DEFINE_PAIR(pair_i64, int64_t, NEVER_NAN)

/* bf16 and f16 are added up in f32 and rounded once. */
static void widen_halves(float *y, const uint16_t *h, int64_t n, tt_dtype dtype)
{
    for (int64_t i = 0; i < n && dtype == TT_BF16; i++)
        y[i] = tt_from_bf16(h[i]);
    for (int64_t i = 0; i < n && dtype == TT_F16; i++)
        y[i] = tt_from_f16(h[i]);
}

static void reduce_half(uint16_t *out, const void *const *xs, int n_members, int64_t at, int64_t n,
                        tt_dtype dtype, tt_reduce op)
{
    float sum[BLOCK], x[BLOCK];
    for (int m = 0; m < n_members; m++) {
        const uint16_t *h = (const uint16_t *)xs[m] + at;
        widen_halves(m ? x : sum, h, n, dtype);
        if (m)
            pair_f32(sum, sum, x, n, op);
    }
    for (int64_t i = 0; i < n && dtype == TT_BF16; i++)
        out[at + i] = tt_to_bf16(sum[i]);
    for (int64_t i = 0; i < n && dtype == TT_F16; i++)
        out[at + i] = tt_to_f16(sum[i]);
}

static void reduce_block(char *out, const void *const *xs, int n_members, int64_t at, int64_t n,
                         tt_dtype dtype, tt_reduce op)
{
    const size_t size = tt_dtype_size(dtype);
    void *to = out + (size_t)at * size;
    const void *a = (const char *)xs[0] + (size_t)at * size;
    if (n_members == 1 && a != to)
        memcpy(to, a, (size_t)n * size);
    for (int m = 1; m < n_members; m++, a = to) {
        const void *b = (const char *)xs[m] + (size_t)at * size;
        if (dtype == TT_F32)
            pair_f32(to, a, b, n, op);
        else if (dtype == TT_F64)
            pair_f64(to, a, b, n, op);
        else if (dtype == TT_I32)
            pair_i32(to, a, b, n, op);
        else
            pair_i64(to, a, b, n, op);
    }
}

tt_status tt_reduce_members(void *out, const void *const *xs, int n_members, int64_t n,
                            tt_dtype dtype, tt_reduce op, tt_error *err)
{
    if (dtype != TT_F32 && dtype != TT_F64 && dtype != TT_I32 && dtype != TT_I64 &&
        dtype != TT_BF16 && dtype != TT_F16)
        return TT_FAIL(err, TT_EUNSUPPORTED, "cannot reduce %s", tt_dtype_name(dtype));
    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t k = TT_MIN(n - at, (int64_t)BLOCK);
        if (dtype == TT_BF16 || dtype == TT_F16)
            reduce_half(out, xs, n_members, at, k, dtype, op);
        else
            reduce_block(out, xs, n_members, at, k, dtype, op);
    }
    return TT_OK;
}
