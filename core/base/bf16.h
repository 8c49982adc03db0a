/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_BF16_H
#define TT_BF16_H
#include <stdint.h>
#include <string.h>

/* Conversion between bf16, which is the upper half of an f32, and f32. */

static inline float tt_from_bf16(uint16_t h)
{
    const uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* Rounds to nearest, ties to even; a NaN stays a NaN. */
static inline uint16_t tt_to_bf16(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

#endif
