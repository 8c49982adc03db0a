/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_INFER_SAMPLE_H
#define TT_INFER_SAMPLE_H
#include "base/base.h"

/* Picking the next token from logits. */

typedef struct tt_sampling {
    double temperature; /* 0 = greedy: the largest logit, ties to the lower id */
    int64_t top_k;      /* 0 = all */
    double top_p; /* 1 = all; the smallest set of most likely tokens with at least this mass */
    uint64_t seed;
} tt_sampling;

/* One of n ids. `position` keys the random number, so a text does not depend on how it was batched.
 */
int32_t tt_sample_token(const tt_sampling *s, const float *logits, int64_t n, uint64_t position);

#endif
