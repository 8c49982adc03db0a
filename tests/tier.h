// SPDX-License-Identifier: Apache-2.0
/* The tiers of the tests (tests/README.md). */
#ifndef TESTS_TIER_H
#define TESTS_TIER_H

#include <stdbool.h>
#include <stdlib.h>

/* True in the long tier (make test-long sets TEST_LONG): every seed, mesh, recipe and chip, where `make test` takes some. */
static inline bool is_long(void)
{
    return getenv("TEST_LONG") != NULL;
}

#endif
