/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include "base/bf16.h"
#include <string.h>
#include <ttrun/comm.h>

/* In blocks that stay in the cache while the members are added up; inner loops of a fixed length,
 * which -O2 vectorizes. */

#define BLOCK 4096
#define LANES 16

#define DEFINE_INTO(name, type)                                                                    \
    static void name(type *restrict a, const type *restrict b, int64_t n, tt_reduce op)            \
    {                                                                                              \
        int64_t i = 0;                                                                             \
        if (op == TT_SUM) {                                                                        \
            for (; i + LANES <= n; i += LANES)                                                     \
                for (int k = 0; k < LANES; k++)                                                    \
                    a[i + k] += b[i + k];                                                          \
            for (; i < n; i++)                                                                     \
                a[i] += b[i];                                                                      \
            return;                                                                                \
        }                                                                                          \
        for (; i < n; i++)                                                                         \
            a[i] = a[i] > b[i] ? a[i] : b[i];                                                      \
    }

DEFINE_INTO(into_f32, float)
DEFINE_INTO(into_f64, double)
DEFINE_INTO(into_i32, int32_t)
DEFINE_INTO(into_i64, int64_t)

static void reduce_bf16(uint16_t *out, const void *const *xs, int n_members, int64_t at, int64_t n,
                        tt_reduce op)
{
    float sum[BLOCK], x[BLOCK];
    for (int m = 0; m < n_members; m++) {
        const uint16_t *b = (const uint16_t *)xs[m] + at;
        for (int64_t i = 0; i < n; i++)
            (m ? x : sum)[i] = tt_from_bf16(b[i]);
        if (m)
            into_f32(sum, x, n, op);
    }
    for (int64_t i = 0; i < n; i++)
        out[at + i] = tt_to_bf16(sum[i]);
}

static void reduce_block(char *out, const void *const *xs, int n_members, int64_t at, int64_t n,
                         tt_dtype dtype, tt_reduce op)
{
    const size_t size = tt_dtype_size(dtype);
    void *a = out + (size_t)at * size;
    if (a != (const char *)xs[0] + (size_t)at * size)
        memcpy(a, (const char *)xs[0] + (size_t)at * size, (size_t)n * size);
    for (int m = 1; m < n_members; m++) {
        const void *b = (const char *)xs[m] + (size_t)at * size;
        if (dtype == TT_F32)
            into_f32(a, b, n, op);
        else if (dtype == TT_F64)
            into_f64(a, b, n, op);
        else if (dtype == TT_I32)
            into_i32(a, b, n, op);
        else
            into_i64(a, b, n, op);
    }
}

tt_status tt_reduce_members(void *out, const void *const *xs, int n_members, int64_t n,
                            tt_dtype dtype, tt_reduce op, tt_error *err)
{
    if (dtype != TT_F32 && dtype != TT_F64 && dtype != TT_I32 && dtype != TT_I64 &&
        dtype != TT_BF16)
        return TT_FAIL(err, TT_EUNSUPPORTED, "cannot reduce %s", tt_dtype_name(dtype));
    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t k = TT_MIN(n - at, (int64_t)BLOCK);
        if (dtype == TT_BF16)
            reduce_bf16(out, xs, n_members, at, k, op);
        else
            reduce_block(out, xs, n_members, at, k, dtype, op);
    }
    return TT_OK;
}
