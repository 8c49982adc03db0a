/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers by their bits: f16 and float8 to and from wider floats, and powers of 2. */
#pragma once
#include "dialect.h"
#include "point_shape.h"

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
/* tt_code8_value and tt_code8 of <ttrun/codes.h>. */
TT_DEV float point_decode8(int byte, bool positive)
{
    const bool negative = !positive && byte > 128;
    const int place = negative ? 256 - byte : byte, bits = positive ? 1 : 0;
    const int k = place - 1 + (1 << bits);
    int i = 0;
    if (place <= 0 || place >= (positive ? 255 : 128))
        return place <= 0 ? 0.0f : 1.0f;
    while (k >> (i + bits + 1))
        i++;
    const double decade = i == 0   ? 1e-6
                          : i == 1 ? 1e-5
                          : i == 2 ? 1e-4
                          : i == 3 ? 1e-3
                          : i == 4 ? 1e-2
                          : i == 5 ? 1e-1
                                   : 1.0;
    const int parts = 1 << (i + bits);
    const double middle = ((double)(k - parts) + 0.5) / (double)parts;
    const float value = (float)(decade * (0.1 + 0.9 * middle));
    return negative ? -value : value;
}
TT_DEV float point_encode8(float x, bool positive)
{
    const int zero = positive ? 0 : 127;
    int at = 0;
    for (int step = 128; step; step /= 2)
        if (x >= point_decode8((at + step - zero) & 255, positive))
            at += step;
    if (at < 255) {
        const float down = point_decode8((at - zero) & 255, positive);
        const float up = point_decode8((at + 1 - zero) & 255, positive);
        at += x - down >= (up - down) * 0.5f ? 1 : 0;
    }
    return (float)((at - zero) & 255);
}
