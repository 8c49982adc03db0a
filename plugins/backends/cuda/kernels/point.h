/* SPDX-License-Identifier: Apache-2.0 */
/* Pointwise arithmetic: the functions of point_ops.h, dtypes and registers. A register of f32, bf16, f16, u8 or bool is a
 * float, and one of f64, i32 or i64 a double; it holds the value after it was rounded to its dtype. A step whose registers
 * are all floats computes in f32, any other in f64. Where op and dtype are constants, the compiler drops all the rest. */
#pragma once
#include "dialect.h"
#include "point_shape.h"

#define POINT_BOTH(name, f, d)                                                                     \
    TT_DEV float name(float x)                                                                     \
    {                                                                                              \
        return f(x);                                                                               \
    }                                                                                              \
    TT_DEV double name(double x)                                                                   \
    {                                                                                              \
        return d(x);                                                                               \
    }
POINT_BOTH(point_exp, expf, exp)
POINT_BOTH(point_log, logf, log)
POINT_BOTH(point_log1p, log1pf, log1p)
POINT_BOTH(point_sqrt, sqrtf, sqrt)
POINT_BOTH(point_abs, fabsf, fabs)
POINT_BOTH(point_rint, rintf, rint)
POINT_BOTH(point_tanh, tanhf, tanh)
POINT_BOTH(point_erf, erff, erf)
POINT_BOTH(point_erfc, erfcf, erfc)
POINT_BOTH(point_sin, sinf, sin)
POINT_BOTH(point_cos, cosf, cos)
TT_DEV float point_pow(float x, float y)
{
    return powf(x, y);
}
TT_DEV double point_pow(double x, double y)
{
    return pow(x, y);
}
template <class T> TT_DEV T point_sigmoid(T x)
{
    return T(1) / (T(1) + point_exp(-x));
}
template <class T> TT_DEV T point_normal_cdf(T x)
{
    return T(0.5) * point_erfc(-x * T(0.70710678118654752440));
}
template <class T> TT_DEV T point_gelu_inner(T x) /* twice the argument of tanh */
{
    return T(1.59576912160573071176) * (x + T(0.044715) * x * x * x);
}
template <class T> TT_DEV T point_gelu_tanh_slope(T x)
{
    const T s = point_sigmoid(point_gelu_inner(x)), t = point_sigmoid(-point_gelu_inner(x));
    return s + x * s * t * T(1.59576912160573071176) * (T(1) + T(0.134145) * x * x);
}
/* PyTorch's formulas (c10/util/generic_math.h): the quotient is that of x without its remainder. */
TT_DEV double point_mod(double x, double y)
{
    const double r = fmod(x, y);
    return r != 0.0 && (r < 0.0) != (y < 0.0) ? r + y : r;
}
TT_DEV double point_floor_div(double x, double y)
{
    const double r = fmod(x, y);
    if (y == 0.0)
        return x / y;
    double q = (x - r) / y;
    if (r != 0.0 && (r < 0.0) != (y < 0.0))
        q -= 1.0;
    return q != 0.0 ? rint(q) : copysign(0.0, x / y);
}

/* ---- one step ---- */
template <class T> TT_DEV T point_apply(int op, T x, T y, T z, double imm)
{
    switch (op) {
#define POINT_ROW(id, name, n, expression)                                                         \
    case POINT_##id:                                                                               \
        return expression;
        POINT_OPS(POINT_ROW)
#undef POINT_ROW
    }
    return x;
}
/* The two arithmetics, with operands of any of the two kinds of registers. */
template <class X, class Y, class Z>
TT_DEV float point_f32(int op, X x, Y y, Z z, double imm)
{
    return point_apply<float>(op, (float)x, (float)y, (float)z, imm);
}
template <class X, class Y, class Z>
TT_DEV double point_f64(int op, X x, Y y, Z z, double imm)
{
    return point_apply<double>(op, (double)x, (double)y, (double)z, imm);
}

/* ---- dtypes ---- */
TT_DEV bool point_is_f64(int dtype) /* its registers are doubles */
{
    return dtype == POINT_F64 || dtype == POINT_I32 || dtype == POINT_I64;
}
TT_DEV u64 point_bits(double v)
{
    union {
        double v;
        u64 bits;
    } both;
    both.v = v;
    return both.bits;
}
TT_DEV double point_number(u64 bits)
{
    union {
        double v;
        u64 bits;
    } both;
    both.bits = bits;
    return both.v;
}
/* f16: to nearest, ties to even. */
TT_DEV u16 point_to_f16(double v)
{
    const u64 bits = point_bits(v), a = bits & 0x7fffffffffffffffull;
    const u32 sign = (u32)(bits >> 48) & 0x8000u;
    const int e = (int)(a >> 52) - 1023;
    if (a > 0x7ff0000000000000ull)
        return (u16)(sign | 0x7e00u);
    if (e > 15)
        return (u16)(sign | 0x7c00u);
    if (e < -25)
        return (u16)sign;
    const int cut = e >= -14 ? 42 : 28 - e;
    const u64 m = (a & 0xfffffffffffffull) | 0x10000000000000ull;
    const u64 rest = m & ((1ull << cut) - 1), tie = 1ull << (cut - 1);
    u32 half = (u32)(m >> cut);
    half += rest > tie || (rest == tie && (half & 1u)) ? 1u : 0u;
    return (u16)(sign | (half + (e >= -14 ? (u32)(e + 14) << 10 : 0u)));
}
TT_DEV float point_from_f16(u16 h)
{
    const u32 sign = (u32)(h & 0x8000u) << 16, e = h >> 10 & 31u, m = h & 1023u;
    if (e == 0)
        return sign ? -((float)m * 0x1p-24f) : (float)m * 0x1p-24f;
    return tt_bits_float(sign | (e == 31 ? 0xffu : e + 112u) << 23 | m << 13);
}
/* A result rounded to its dtype: to a register that is a float, or a double. */
TT_DEV float point_round_f32(int dtype, float v)
{
    switch (dtype) {
    case POINT_BF16:
        return tt_f32(tt_bf16(v));
    case POINT_F16:
        return point_from_f16(point_to_f16((double)v));
    case POINT_U8:
        return v >= 255.0f ? 255.0f : v > 0.0f ? (float)(int)v : 0.0f;
    case POINT_BOOL:
        return v != 0.0f ? 1.0f : 0.0f;
    default:
        return v;
    }
}
TT_DEV float point_round_f32(int dtype, double v)
{
    switch (dtype) {
    case POINT_F16:
        return point_from_f16(point_to_f16(v));
    case POINT_U8:
        return v >= 255.0 ? 255.0f : v > 0.0 ? (float)(int)v : 0.0f;
    case POINT_BOOL:
        return v != 0.0 ? 1.0f : 0.0f;
    default:
        return point_round_f32(dtype, (float)v);
    }
}
TT_DEV double point_round_f64(int dtype, double v)
{
    switch (dtype) {
    case POINT_I32:
        return v != v                 ? 0.0
               : v >= 2147483647.0    ? 2147483647.0
               : v <= -2147483648.0   ? -2147483648.0
                                      : (double)(int)v;
    case POINT_I64:
        return v != v                             ? 0.0
               : v >= 9223372036854775808.0       ? 9223372036854775808.0
               : v <= -9223372036854775808.0      ? -9223372036854775808.0
                                                  : (double)(i64)v;
    default:
        return v;
    }
}

/* ---- memory, element by element ---- */
TT_DEV float point_read_f32(int dtype, const void *p, i64 i)
{
    switch (dtype) {
    case POINT_F32:
        return ((const float *)p)[i];
    case POINT_BF16:
        return tt_f32(((const bf16 *)p)[i]);
    case POINT_F16:
        return point_from_f16(((const u16 *)p)[i]);
    default:
        return (float)((const u8 *)p)[i];
    }
}
TT_DEV double point_read_f64(int dtype, const void *p, i64 i)
{
    switch (dtype) {
    case POINT_F64:
        return ((const double *)p)[i];
    case POINT_I32:
        return (double)((const int *)p)[i];
    default:
        return (double)((const i64 *)p)[i];
    }
}
TT_DEV i64 point_to_i64(double v) /* of a register of i64: 2^63 is the largest number */
{
    return v >= 9223372036854775808.0 ? 0x7fffffffffffffffll : (i64)v;
}
TT_DEV void point_write(int dtype, void *p, i64 i, float v)
{
    switch (dtype) {
    case POINT_F32:
        ((float *)p)[i] = v;
        break;
    case POINT_BF16:
        ((bf16 *)p)[i] = tt_bf16(v);
        break;
    case POINT_F16:
        ((u16 *)p)[i] = point_to_f16((double)v);
        break;
    default:
        ((u8 *)p)[i] = (u8)v;
        break;
    }
}
TT_DEV void point_write(int dtype, void *p, i64 i, double v)
{
    switch (dtype) {
    case POINT_F64:
        ((double *)p)[i] = v;
        break;
    case POINT_I32:
        ((int *)p)[i] = (int)v;
        break;
    default:
        ((i64 *)p)[i] = point_to_i64(v);
        break;
    }
}

/* ---- memory, in words of 4 bytes: 2, or a multiple of 4 of them, aligned to 8 or 16 bytes ---- */
struct alignas(8) point_words2 {
    u32 x, y;
};
struct alignas(16) point_words4 {
    u32 x, y, z, w;
};
template <int N> TT_DEV void point_fetch(u32 *to, const void *p, i64 byte)
{
    const char *from = (const char *)p + byte;
    if (N == 2) {
        const point_words2 v = *(const point_words2 *)from;
        to[0] = v.x;
        to[1] = v.y;
    }
    for (int i = 0; i + 4 <= N; i += 4) {
        const point_words4 v = ((const point_words4 *)from)[i / 4];
        to[i] = v.x;
        to[i + 1] = v.y;
        to[i + 2] = v.z;
        to[i + 3] = v.w;
    }
}
template <int N> TT_DEV void point_put(const u32 *v, void *p, i64 byte)
{
    char *to = (char *)p + byte;
    if (N == 2)
        *(point_words2 *)to = {v[0], v[1]};
    for (int i = 0; i + 4 <= N; i += 4)
        ((point_words4 *)to)[i / 4] = {v[i], v[i + 1], v[i + 2], v[i + 3]};
}
/* Element k of them. */
TT_DEV float point_word_f32(int dtype, const u32 *w, int k)
{
    switch (dtype) {
    case POINT_F32:
        return tt_bits_float(w[k]);
    case POINT_BF16:
        return tt_bits_float(k % 2 ? w[k / 2] & 0xffff0000u : w[k / 2] << 16);
    case POINT_F16:
        return point_from_f16((u16)(w[k / 2] >> 16 * (k % 2)));
    default:
        return (float)(w[k / 4] >> 8 * (k % 4) & 255u);
    }
}
TT_DEV double point_word_f64(int dtype, const u32 *w, int k)
{
    if (dtype == POINT_I32)
        return (double)(int)w[k];
    const u64 bits = (u64)w[2 * k + 1] << 32 | w[2 * k];
    return dtype == POINT_F64 ? point_number(bits) : (double)(i64)bits;
}
/* The words are zero before the first element is set. */
TT_DEV void point_set_word(int dtype, u32 *w, int k, float v)
{
    switch (dtype) {
    case POINT_F32:
        w[k] = tt_float_bits(v);
        break;
    case POINT_BF16:
        w[k / 2] |= (u32)tt_bf16(v).bits << 16 * (k % 2);
        break;
    case POINT_F16:
        w[k / 2] |= (u32)point_to_f16((double)v) << 16 * (k % 2);
        break;
    default:
        w[k / 4] |= (u32)v << 8 * (k % 4);
        break;
    }
}
TT_DEV void point_set_word(int dtype, u32 *w, int k, double v)
{
    if (dtype == POINT_I32) {
        w[k] = (u32)(int)v;
        return;
    }
    const u64 bits = dtype == POINT_F64 ? point_bits(v) : (u64)point_to_i64(v);
    w[2 * k] = (u32)bits;
    w[2 * k + 1] = (u32)(bits >> 32);
}

/* ---- indices ---- */
TT_DEV i64 point_first(void)
{
    return (i64)blockIdx.x * blockDim.x + threadIdx.x;
}
TT_DEV i64 point_all(void)
{
    return (i64)gridDim.x * blockDim.x;
}
#ifdef __CUDACC__
#define POINT_UNROLL _Pragma("unroll")
#else
#define POINT_UNROLL
#endif
