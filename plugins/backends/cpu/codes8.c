/* SPDX-License-Identifier: Apache-2.0 */
#include "codes8.h"
#include "cpu.h"
#include <math.h>
#include <pthread.h>
#include <ttrun/codes.h>

static cpu_codes8 tables[2];
static pthread_once_t made = PTHREAD_ONCE_INIT;

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Floats in their order: 0 for -infinity's bits and so on. */
static float ordered(uint32_t i)
{
    return float_of(i < 0x80000000u ? ~i : i ^ 0x80000000u);
}

static int codes8_place(float x, int positive, int zero)
{
    return (tt_code8(x, positive) + zero) & 255;
}

/* The least float in [-1, 1] whose place is at least i. */
static float least_of(int i, int positive, int zero)
{
    uint32_t low = 0x407fffffu, high = 0xbf800000u; /* -1 and 1 in that order */
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (codes8_place(ordered(middle), positive, zero) >= i)
            high = middle;
        else
            low = middle + 1;
    }
    return ordered(low);
}

static void codes8_make(void)
{
    for (int positive = 0; positive < 2; positive++) {
        cpu_codes8 *t = &tables[positive];
        t->zero = positive ? 0 : 127;
        for (int i = 0; i < 256; i++)
            t->value[i] = tt_code8_value(i, positive);
        t->from[0] = -INFINITY;
        t->from[256] = NAN; /* no number is at least that */
        for (int i = 1; i < 256; i++)
            t->from[i] = least_of(i, positive, t->zero);
        for (uint32_t k = 0; k < CODES8_BUCKETS; k++) {
            const uint32_t bits = k ? (k + CODES8_LEAST) << 16 : 0;
            const uint32_t last = ((k + CODES8_LEAST) << 16 | 0xffffu) | 0x80000000u;
            t->first[0][k] = (uint8_t)codes8_place(float_of(bits), positive, t->zero);
            t->first[1][k] = (uint8_t)codes8_place(float_of(last), positive, t->zero);
        }
    }
}

const cpu_codes8 *cpu_codes8_tables(int positive)
{
    pthread_once(&made, codes8_make);
    return &tables[positive];
}

double cpu_encode8(float x, int positive)
{
    return cpu_codes8_byte(cpu_codes8_tables(positive), x);
}

double cpu_decode8(float x, int positive)
{
    return (double)cpu_codes8_tables(positive)->value[cpu_codes8_index(x)];
}
