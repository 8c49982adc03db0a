/* SPDX-License-Identifier: Apache-2.0 */
/* Pointwise arithmetic: the functions of point_ops.h, dtypes and registers. A register of f32, bf16, f16, float8, u8 or bool is a
 * float, and one of f64, i32 or i64 a double; it holds the value after it was rounded to its dtype. A step whose registers
 * are all floats computes in f32, any other in f64. Where op and dtype are constants, the compiler drops all the rest. */
#pragma once
#include "point_narrow.h"

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

/* tt_keyed_uniform and tt_stochastic_rounded (core/graph/ops/stochastic.c). */
TT_DEV float point_keyed_uniform(float a, float b)
{
    u32 x = tt_float_bits(a) + tt_float_bits(b);
    x = (x ^ x >> 16) * 0x21f0aaadu;
    x = (x ^ x >> 15) * 0xd35a2d97u;
    return (float)(int)((x ^ x >> 15) >> 16) * 0x1p-16f;
}
TT_DEV float point_stochastic_round(float x, float u)
{
    const u32 bits = tt_float_bits(x), size = bits & 0x7fffffffu;
    u32 up = (size + (u32)(int)(u * 65536.0f)) & 0xffff0000u;
    if (size >= 0x7f800000u) /* infinity and NaN stay */
        up = size > 0x7f800000u ? (size | 0x400000u) & 0xffff0000u : size;
    else if (up >= 0x7f800000u) /* no finite bf16 is larger */
        up = 0x7f7f0000u;
    return tt_bits_float((bits & 0x80000000u) | up);
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
template <class X, class Y, class Z> TT_DEV float point_f32(int op, X x, Y y, Z z, double imm)
{
    return point_apply<float>(op, (float)x, (float)y, (float)z, imm);
}
template <class X, class Y, class Z> TT_DEV double point_f64(int op, X x, Y y, Z z, double imm)
{
    return point_apply<double>(op, (double)x, (double)y, (double)z, imm);
}

/* ---- dtypes ---- */
TT_DEV bool point_is_f64(int dtype) /* its registers are doubles */
{
    return dtype == POINT_F64 || dtype == POINT_I32 || dtype == POINT_I64;
}
/* A result rounded to its dtype: to a register that is a float, or a double. */
TT_DEV float point_round_f32(int dtype, float v)
{
    switch (dtype) {
    case POINT_BF16:
        return tt_f32(tt_bf16(v));
    case POINT_F16:
        return point_from_f16(point_to_f16((double)v));
    case POINT_F8E4M3:
    case POINT_F8E5M2:
        return point_from_f8(dtype, point_to_f8(dtype, (double)v));
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
    case POINT_F8E4M3:
    case POINT_F8E5M2:
        return point_from_f8(dtype, point_to_f8(dtype, v));
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
        return v != v               ? 0.0
               : v >= 2147483647.0  ? 2147483647.0
               : v <= -2147483648.0 ? -2147483648.0
                                    : (double)(int)v;
    case POINT_I64:
        return v != v                        ? 0.0
               : v >= 9223372036854775808.0  ? 9223372036854775808.0
               : v <= -9223372036854775808.0 ? -9223372036854775808.0
                                             : (double)(i64)v;
    default:
        return v;
    }
}
