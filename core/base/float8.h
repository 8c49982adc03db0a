/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_FLOAT8_H
#define TT_FLOAT8_H
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* OCP FP8 to and from f32: e4m3fn (bias 7, largest 448, no infinity, NaN 0x7f) and e5m2 (bias 15,
 * largest 57344, infinity 0x7c). */

/* Rounds to nearest, ties to even; what is too large becomes the largest number, a NaN a NaN. */
static inline uint8_t tt_to_float8(float x, bool e5m2)
{
    const int mantissa = e5m2 ? 2 : 3, bias = e5m2 ? 15 : 7, cut = 23 - mantissa;
    const uint32_t top = e5m2 ? 0x7b : 0x7e;
    const float least = e5m2 ? 0x1p-16f : 0x1p-9f; /* the least number above 0 */
    uint32_t bits, code;
    memcpy(&bits, &x, sizeof bits);
    const uint8_t sign = (uint8_t)(bits >> 24 & 0x80);
    bits &= 0x7fffffff;
    if (bits > 0x7f800000)
        return sign | 0x7f;
    float a;
    memcpy(&a, &bits, sizeof a);
    if (a < least * (float)(1 << mantissa)) { /* adding 2^23 least lets the FPU round to least */
        const float magic = least * 0x1p23f, sum = a + magic;
        uint32_t from, to;
        memcpy(&from, &magic, sizeof from);
        memcpy(&to, &sum, sizeof to);
        code = to - from;
    } else
        code = ((bits + ((1u << (cut - 1)) - 1) + (bits >> cut & 1)) >> cut) -
               ((uint32_t)(127 - bias) << mantissa);
    return (uint8_t)(sign | (code < top ? code : top));
}

static inline float tt_from_float8(uint8_t byte, bool e5m2)
{
    const uint32_t mantissa = e5m2 ? 2 : 3, bias = e5m2 ? 15 : 7, code = byte & 0x7f;
    const uint32_t sign = (uint32_t)(byte & 0x80) << 24;
    uint32_t bits;
    if (code > (e5m2 ? 0x7bu : 0x7eu))
        bits = 0x7f800000 | (code == 0x7c ? 0 : 0x400000);
    else if (code >> mantissa)
        bits = (code << (23 - mantissa)) + ((127 - bias) << 23);
    else {
        const float small = (float)code * (e5m2 ? 0x1p-16f : 0x1p-9f);
        memcpy(&bits, &small, sizeof bits);
    }
    bits |= sign;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
#endif
