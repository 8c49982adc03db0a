/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_TIER_H
#define TT_TESTS_TIER_H
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

/* The tiers of the tests (tests/README.md). */

/* True in the long tier (make test-long sets TEST_LONG): every seed, mesh, recipe and chip, where `make test` takes some. */
static inline bool is_long(void)
{
    return getenv("TEST_LONG") != NULL;
}

/* Of all pairs of row i and column j one in n, all in the long tier: those of diagonals, so that each row and each column has some. */
static inline bool in_tier(size_t i, size_t j, size_t n)
{
    return is_long() || (i + j) % n == 0;
}

#endif
