/* SPDX-License-Identifier: Apache-2.0 */
#include "dist/reduce.h"
#include <string.h>

#define REDUCE(type)                                                                               \
    do {                                                                                           \
        type *a = acc;                                                                             \
        const type *b = x;                                                                         \
        if (op == TT_SUM)                                                                          \
            for (int64_t i = 0; i < n; i++)                                                        \
                a[i] += b[i];                                                                      \
        else                                                                                       \
            for (int64_t i = 0; i < n; i++)                                                        \
                a[i] = a[i] > b[i] ? a[i] : b[i];                                                  \
        return TT_OK;                                                                              \
    } while (0)

static float from_bf16(uint16_t h)
{
    const uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static uint16_t to_bf16(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16); /* round to nearest even */
}

tt_status tt_reduce_into(void *acc, const void *x, int64_t n, tt_dtype dtype, tt_reduce op,
                         tt_error *err)
{
    switch (dtype) {
    case TT_F32:
        REDUCE(float);
    case TT_F64:
        REDUCE(double);
    case TT_I32:
        REDUCE(int32_t);
    case TT_I64:
        REDUCE(int64_t);
    case TT_BF16: {
        uint16_t *a = acc;
        const uint16_t *b = x;
        for (int64_t i = 0; i < n; i++) {
            const float p = from_bf16(a[i]), q = from_bf16(b[i]);
            a[i] = to_bf16(op == TT_SUM ? p + q : p > q ? p : q);
        }
        return TT_OK;
    }
    default:
        return TT_FAIL(err, TT_EUNSUPPORTED, "cannot reduce %s", tt_dtype_name(dtype));
    }
}
