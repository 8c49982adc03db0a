/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_RANDOM_TEST_H
#define TT_TESTS_RANDOM_TEST_H
#include "base/base.h"

/* Random numbers for random jobs; equal keys give equal numbers. */

typedef struct test_rng {
    tt_rng_key key;
    uint64_t n;
} test_rng;

/* Returns a random integer in [lo, hi]. */
static inline int64_t random_between(test_rng *d, int64_t lo, int64_t hi)
{
    return lo + (int64_t)(tt_rng_uniform(d->key, d->n++) * (double)(hi - lo + 1));
}

static inline int random_int(test_rng *d, int lo, int hi)
{
    return (int)random_between(d, lo, hi);
}

#endif
