/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_F16_H
#define TT_F16_H
#include <stdint.h>
#include <string.h>

/* Conversion between f16 (IEEE binary16: 1 bit of sign, 5 of exponent with a bias of 15, 10 of
 * mantissa) and f32. */

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

static inline float tt_from_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = h >> 10 & 31u, mantissa = h & 0x3ffu;
    if (exponent == 31)
        return tt_f32_of_bits(sign | 0x7f800000u | mantissa << 13);
    if (exponent > 0)
        return tt_f32_of_bits(sign | (exponent + 112u) << 23 | mantissa << 13);
    float small = (float)mantissa * 0x1p-24f; /* subnormal or zero: exact */
    return tt_f32_of_bits(sign | tt_bits_of_f32(small));
}

/* Rounds to nearest, ties to even; 65520 and above become infinite; a NaN stays a NaN. */
static inline uint16_t tt_to_f16(float f)
{
    uint32_t u = tt_bits_of_f32(f), sign = u >> 16 & 0x8000u, size = u & 0x7fffffffu;
    if (size > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (size >> 13 & 0x3ffu));
    if (size >= 0x477ff000u)
        return (uint16_t)(sign | 0x7c00u);
    if (size >= 0x38800000u) /* 2^-14: normal */
        return (uint16_t)(sign | ((size - 0x38000000u + 0xfffu + (size >> 13 & 1u)) >> 13));
    /* subnormal: adding 0.5 lets the FPU round at 2^-24, its mantissa's last place */
    return (uint16_t)(sign | (tt_bits_of_f32(tt_f32_of_bits(size) + 0.5f) - 0x3f000000u));
}

#endif
