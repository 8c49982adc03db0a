/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_DICE_H
#define TT_TESTS_DICE_H
#include "base/base.h"

/* Numbers of a random job: the same for the same key. */

typedef struct dice {
    tt_rng_key key;
    uint64_t n;
} dice;

/* In [lo, hi]. */
static inline int64_t roll(dice *d, int64_t lo, int64_t hi)
{
    return lo + (int64_t)(tt_rng_uniform(d->key, d->n++) * (double)(hi - lo + 1));
}

static inline int roll_int(dice *d, int lo, int hi)
{
    return (int)roll(d, lo, hi);
}

#endif
