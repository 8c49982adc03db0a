/* SPDX-License-Identifier: Apache-2.0 */
#include "reference.h"
#include <math.h>
#include <string.h>

/* Reads and writes elements of any dtype as f64, and walks over shapes. Roundings are written down from
 * their definitions, not taken from <ttrun/narrow.h>: other backends are compared with this one. */

static float bits_float(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static uint32_t float_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static uint16_t to_bf16(float f) /* rounds to nearest, ties to even; a NaN stays a NaN */
{
    uint32_t u = float_bits(f);
    if (isnan(f))
        return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

static double from_f16(uint16_t h)
{
    int e = h >> 10 & 31, m = h & 1023;
    double v = e == 31 ? (double)(m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return h & 0x8000 ? -v : v;
}

static uint16_t to_f16(double v)
{
    uint16_t sign = signbit(v) ? 0x8000 : 0;
    double a = fabs(v);
    int e = 0;
    if (isnan(v))
        return (uint16_t)(sign | 0x7e00);
    if (a >= 65520.0)
        return (uint16_t)(sign | 0x7c00);
    if (a < ldexp(1.0, -14))
        return (uint16_t)(sign | (uint16_t)rint(ldexp(a, 24)));
    double m = frexp(a, &e);                /* a = m 2^e, m in [1/2, 1) */
    int mantissa = (int)rint(ldexp(m, 11)); /* 1024 .. 2048 */
    return (uint16_t)(sign | (uint16_t)(((e + 13) << 10) + mantissa));
}

/* float8: codes 0 … top are the finite numbers from 0 up, e5m2 has an infinity, then come NaNs. */
typedef struct float8 {
    int mantissa, bias, top, infinite;
} float8;
static const float8 e4m3 = {3, 7, 0x7e, -1}, e5m2 = {2, 15, 0x7b, 0x7c};

static double power_of_two(int e)
{
    const uint64_t bits = (uint64_t)(e + 1023) << 52;
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static double float8_number(const float8 *f, int code)
{
    const int e = code >> f->mantissa, m = code & ((1 << f->mantissa) - 1);
    return (e ? m + (1 << f->mantissa) : m) * power_of_two((e ? e : 1) - f->bias - f->mantissa);
}

static double from_float8(const float8 *f, uint8_t byte)
{
    const int code = byte & 0x7f;
    const double v = code <= f->top        ? float8_number(f, code)
                     : code == f->infinite ? (double)INFINITY
                                           : (double)NAN;
    return byte & 0x80 ? -v : v;
}

/* The code whose number is the nearest: of two the even one, and the largest for what is beyond. */
static uint8_t to_float8(const float8 *f, double v)
{
    const int sign = signbit(v) ? 0x80 : 0;
    int low = 0, high = f->top;
    if (isnan(v))
        return (uint8_t)(sign | 0x7f);
    v = fabs(v);
    while (low < high) { /* the largest number not above v */
        const int middle = (low + high + 1) / 2;
        if (float8_number(f, middle) <= v)
            low = middle;
        else
            high = middle - 1;
    }
    if (low < f->top) {
        const double below = v - float8_number(f, low), above = float8_number(f, low + 1) - v;
        low += below > above || (below == above && low % 2);
    }
    return (uint8_t)(sign | low);
}

double ref_load_any(const tt_tensor *t, int64_t i)
{
    switch (t->dtype) {
    case TT_F32:
        return (double)((const float *)t->data)[i];
    case TT_BF16:
        return (double)bits_float((uint32_t)((const uint16_t *)t->data)[i] << 16);
    case TT_F16:
        return from_f16(((const uint16_t *)t->data)[i]);
    case TT_F64:
        return ((const double *)t->data)[i];
    case TT_I32:
        return (double)((const int32_t *)t->data)[i];
    case TT_I64:
        return (double)((const int64_t *)t->data)[i];
    case TT_U8:
    case TT_BOOL:
        return (double)((const uint8_t *)t->data)[i];
    case TT_F8E4M3:
        return from_float8(&e4m3, ((const uint8_t *)t->data)[i]);
    case TT_F8E5M2:
        return from_float8(&e5m2, ((const uint8_t *)t->data)[i]);
    case TT_N_DTYPES:
        break;
    }
    return (double)NAN;
}

void ref_store_any(const tt_tensor *t, int64_t i, double v)
{
    switch (t->dtype) {
    case TT_F32:
        ((float *)t->data)[i] = (float)v;
        break;
    case TT_BF16:
        ((uint16_t *)t->data)[i] = to_bf16((float)v);
        break;
    case TT_F16:
        ((uint16_t *)t->data)[i] = to_f16(v);
        break;
    case TT_F64:
        ((double *)t->data)[i] = v;
        break;
    case TT_I32:
        ((int32_t *)t->data)[i] = v != v               ? 0
                                  : v >= 2147483647.0  ? INT32_MAX
                                  : v <= -2147483648.0 ? INT32_MIN
                                                       : (int32_t)v;
        break;
    case TT_I64:
        ((int64_t *)t->data)[i] = v != v                        ? 0
                                  : v >= 9.2233720368547748e18  ? INT64_MAX
                                  : v <= -9.2233720368547758e18 ? INT64_MIN
                                                                : (int64_t)v;
        break;
    case TT_U8:
        ((uint8_t *)t->data)[i] = v >= 255.0 ? 255 : v > 0.0 ? (uint8_t)v : 0;
        break;
    case TT_BOOL:
        ((uint8_t *)t->data)[i] = v != 0.0;
        break;
    case TT_F8E4M3:
        ((uint8_t *)t->data)[i] = to_float8(&e4m3, v);
        break;
    case TT_F8E5M2:
        ((uint8_t *)t->data)[i] = to_float8(&e5m2, v);
        break;
    case TT_N_DTYPES:
        break;
    }
}

double ref_round_any(double v, tt_dtype dtype)
{
    double room = 0.0;
    tt_tensor t = {.data = &room, .dtype = dtype};
    ref_store(&t, 0, v);
    return ref_load(&t, 0);
}

int64_t ref_index(const tt_tensor *t, int64_t i)
{
    return t->dtype == TT_I64 ? ((const int64_t *)t->data)[i] : ((const int32_t *)t->data)[i];
}

void ref_clear(const tt_tensor *t)
{
    size_t n = (size_t)tt_tensor_numel(t) * tt_dtype_size(t->dtype);
    if (n > 0)
        memset(t->data, 0, n);
}

void ref_strides(const tt_tensor *in, const tt_tensor *out, int64_t stride[TT_MAX_DIMS])
{
    int64_t s = 1;
    for (int d = 0; d < TT_MAX_DIMS; d++)
        stride[d] = 0;
    for (int d = in->n_dims - 1; d >= 0; d--) {
        int at = out->n_dims - in->n_dims + d;
        stride[at] = in->shape[d] == 1 ? 0 : s;
        s *= in->shape[d];
    }
}

void ref_step(const tt_tensor *out, int64_t index[TT_MAX_DIMS], int n,
              int64_t (*strides)[TT_MAX_DIMS], int64_t *offsets)
{
    for (int d = out->n_dims - 1; d >= 0; d--) {
        for (int k = 0; k < n; k++)
            offsets[k] += strides[k][d];
        if (++index[d] < out->shape[d])
            return;
        for (int k = 0; k < n; k++)
            offsets[k] -= strides[k][d] * out->shape[d];
        index[d] = 0;
    }
}

void ref_split(const tt_tensor *t, int dim, int64_t *outer, int64_t *n, int64_t *inner)
{
    *outer = *inner = 1;
    for (int d = 0; d < dim; d++)
        *outer *= t->shape[d];
    for (int d = dim + 1; d < t->n_dims; d++)
        *inner *= t->shape[d];
    *n = t->shape[dim];
}

int ref_dim(const tt_tensor *t, int dim)
{
    return dim < 0 ? dim + t->n_dims : dim;
}
