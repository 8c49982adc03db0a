/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_NARROW_H
#define TTRUN_NARROW_H
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* bf16, f16 and float8 as bits, to and from f32 and f64, for kernels, loaders and metrics. Numbers are
 * rounded once, to nearest, ties to even; a NaN stays a NaN. All [any-thread], without a library. */

static inline float tt_f32_of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t tt_bits_of_f32(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* x as the f32 towards zero, its last bit set if that is not x. Rounding this f32 to any format below
 * gives what rounding x itself does: the bit says that x lies between two f32. */
static inline float tt_f32_towards_odd(double x)
{
    const float near = (float)x;
    const double back = (double)near;
    uint32_t bits = tt_bits_of_f32(near);
    if (x != x || back == x)
        return near;
    bits -= (x < 0 ? back < x : back > x) ? 1u : 0u;
    return tt_f32_of_bits(bits | 1u);
}

/* ---- bf16: the upper half of an f32 ---- */

static inline float tt_from_bf16(uint16_t h)
{
    return tt_f32_of_bits((uint32_t)h << 16);
}

static inline uint16_t tt_to_bf16(float f)
{
    const uint32_t u = tt_bits_of_f32(f);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

/* ---- f16: IEEE binary16, 5 bits of exponent with a bias of 15, 10 of mantissa ---- */

static inline float tt_from_f16(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = h >> 10 & 31u;
    const uint32_t mantissa = h & 0x3ffu;
    if (exponent == 31)
        return tt_f32_of_bits(sign | 0x7f800000u | mantissa << 13);
    if (exponent > 0)
        return tt_f32_of_bits(sign | (exponent + 112u) << 23 | mantissa << 13);
    const float small = (float)mantissa * 0x1p-24f; /* subnormal or zero: exact */
    return tt_f32_of_bits(sign | tt_bits_of_f32(small));
}

/* 65520 and above become infinite. */
static inline uint16_t tt_to_f16(float f)
{
    const uint32_t u = tt_bits_of_f32(f), sign = u >> 16 & 0x8000u, size = u & 0x7fffffffu;
    if (size > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (size >> 13 & 0x3ffu));
    if (size >= 0x477ff000u)
        return (uint16_t)(sign | 0x7c00u);
    if (size >= 0x38800000u) /* 2^-14: normal */
        return (uint16_t)(sign | ((size - 0x38000000u + 0xfffu + (size >> 13 & 1u)) >> 13));
    /* subnormal: adding 0.5 lets the FPU round at 2^-24, its mantissa's last place */
    return (uint16_t)(sign | (tt_bits_of_f32(tt_f32_of_bits(size) + 0.5f) - 0x3f000000u));
}

/* ---- float8: OCP's e4m3fn (bias 7, largest 448, no infinity, NaN 0x7f) and e5m2 (bias 15, largest
 * 57344, infinity 0x7c, NaN from 0x7d on) ---- */

/* What is too large becomes the largest number. */
static inline uint8_t tt_to_float8(float x, int e5m2)
{
    const int mantissa = e5m2 ? 2 : 3, bias = e5m2 ? 15 : 7, cut = 23 - mantissa;
    const uint32_t top = e5m2 ? 0x7bu : 0x7eu;
    const float least = e5m2 ? 0x1p-16f : 0x1p-9f; /* the least number above 0 */
    const uint32_t u = tt_bits_of_f32(x), sign = u >> 24 & 0x80u, size = u & 0x7fffffffu;
    const float a = tt_f32_of_bits(size);
    uint32_t code;
    if (size > 0x7f800000u)
        return (uint8_t)(sign | 0x7fu);
    if (a < least * (float)(1 << mantissa)) { /* adding 2^23 least lets the FPU round to least */
        const float magic = least * 0x1p23f;
        code = tt_bits_of_f32(a + magic) - tt_bits_of_f32(magic);
    } else
        code = ((size + ((1u << (cut - 1)) - 1u) + (size >> cut & 1u)) >> cut) -
               ((uint32_t)(127 - bias) << mantissa);
    return (uint8_t)(sign | (code < top ? code : top));
}

static inline float tt_from_float8(uint8_t byte, int e5m2)
{
    const uint32_t mantissa = e5m2 ? 2u : 3u, bias = e5m2 ? 15u : 7u, code = byte & 0x7fu;
    const uint32_t sign = (uint32_t)(byte & 0x80u) << 24;
    if (code > (e5m2 ? 0x7bu : 0x7eu))
        return tt_f32_of_bits(sign | 0x7f800000u | (code == 0x7cu ? 0u : 0x400000u));
    if (code >> mantissa)
        return tt_f32_of_bits(sign | ((code << (23u - mantissa)) + ((127u - bias) << 23)));
    const float small = (float)code * (e5m2 ? 0x1p-16f : 0x1p-9f);
    return tt_f32_of_bits(sign | tt_bits_of_f32(small));
}

#ifdef __cplusplus
}
#endif
#endif
