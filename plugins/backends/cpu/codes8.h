/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CPU_CODES8_H
#define CPU_CODES8_H
#include <stdint.h>
#include <string.h>

/* Dynamic codes of 8 bits (<ttrun/codes.h>) by tables. Floats of one sign, exponent and 7 leading bits of the
 * fraction are a bucket, from 2^-27 to 1; no bucket has more than one place where the code changes. */

#define CODES8_LEAST 12800 /* bits of 2^-27, without the 16 last ones */
#define CODES8_BUCKETS (16256 - CODES8_LEAST + 1)

typedef struct cpu_codes8 {
    float value[256]; /* of each byte */
    float from[257];  /* the least float whose place in the sorted map is at least i; [256]: NaN */
    uint8_t first[2][CODES8_BUCKETS]; /* [negative]: the place of a bucket's least float */
    int zero;                         /* the place of 0 */
} cpu_codes8;

/* Made by the first call. [any-thread] */
const cpu_codes8 *cpu_codes8_tables(int positive);

static inline uint8_t cpu_codes8_byte(const cpu_codes8 *t, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    int32_t bucket = (int32_t)(bits >> 16 & 0x7fff) - CODES8_LEAST;
    bucket = bucket < 0 ? 0 : bucket >= CODES8_BUCKETS ? CODES8_BUCKETS - 1 : bucket;
    int at = t->first[bits >> 31][bucket];
    at += x >= t->from[at + 1];
    at = x != x ? 0 : at;
    return (uint8_t)(at - t->zero);
}

/* The byte that x holds. */
static inline int cpu_codes8_index(float x)
{
    return x >= 255.0f ? 255 : x > 0.0f ? (int)x : 0;
}

#endif
