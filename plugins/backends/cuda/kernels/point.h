/* SPDX-License-Identifier: Apache-2.0 */
/* Pointwise arithmetic: the functions of point_ops.h, dtypes and registers. A register of f32, bf16, f16, float8, u8 or bool is a
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

TT_DEV double point_floor_pow2(double x);
TT_DEV float point_floor_pow2(float x);

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
/* float8 (POINT_F8E4M3, POINT_F8E5M2): to nearest, ties to even; saturates, a NaN stays. */
TT_DEV u32 point_to_f8(int dtype, double v)
{
    const int mantissa = dtype == POINT_F8E4M3 ? 3 : 2, least = dtype == POINT_F8E4M3 ? -9 : -16;
    const u32 top = dtype == POINT_F8E4M3 ? 0x7eu : 0x7bu;
    const u64 bits = point_bits(v), a = bits & 0x7fffffffffffffffull;
    const u32 sign = (u32)(bits >> 56) & 0x80u;
    const int e = (int)(a >> 52) - 1023;
    if (a > 0x7ff0000000000000ull)
        return sign | 0x7fu;
    if (e > 16)
        return sign | top;
    if (e < least - 1)
        return sign;
    const bool normal = e >= least + mantissa;
    const int cut = normal ? 52 - mantissa : 52 + least - e;
    const u64 m = (a & 0xfffffffffffffull) | 0x10000000000000ull;
    const u64 rest = m & ((1ull << cut) - 1), tie = 1ull << (cut - 1);
    u32 code = (u32)(m >> cut);
    code += rest > tie || (rest == tie && (code & 1u)) ? 1u : 0u;
    code += normal ? (u32)(e - least - mantissa) << mantissa : 0u;
    return sign | (code < top ? code : top);
}
TT_DEV float point_from_f8(int dtype, u32 byte)
{
    const bool e4m3 = dtype == POINT_F8E4M3;
    const u32 mantissa = e4m3 ? 3u : 2u, code = byte & 0x7fu, sign = (byte & 0x80u) << 24;
    if (code > (e4m3 ? 0x7eu : 0x7bu))
        return tt_bits_float(sign | 0x7f800000u | (code == 0x7cu ? 0u : 0x400000u));
    if (code >> mantissa)
        return tt_bits_float(sign | ((code << (23u - mantissa)) + ((e4m3 ? 120u : 112u) << 23)));
    const float small = (float)(int)code * (e4m3 ? 0x1p-9f : 0x1p-16f);
    return sign ? -small : small;
}
/* The largest power of 2 not above |x|; 0, infinity and NaN stay. */
TT_DEV double point_floor_pow2(double x)
{
    const u64 a = point_bits(x) & 0x7fffffffffffffffull;
    if (a > 0x7ff0000000000000ull)
        return x;
    if (a >> 52)
        return point_number(a & 0x7ff0000000000000ull);
    return point_number(point_bits(point_number(a) * 0x1p54) & 0x7ff0000000000000ull) * 0x1p-54;
}
TT_DEV float point_floor_pow2(float x)
{
    return (float)point_floor_pow2((double)x);
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
