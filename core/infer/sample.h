/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_INFER_SAMPLE_H
#define TT_INFER_SAMPLE_H
#include "base/base.h"

/* Picking the next token from logits. */

typedef struct tt_sampling {
    double temperature; /* 0 = greedy: the largest logit, ties to the lower id */
    int64_t top_k;      /* the k most likely; 0 = all */
    double top_p;       /* 1 = all; of these the fewest most likely ones with at least this mass */
    uint64_t seed;
} tt_sampling;

typedef struct tt_candidate {
    double weight; /* exp((logit - the largest) / temperature) */
    int32_t id;
} tt_candidate;

typedef struct tt_sampler {
    tt_sampling o;
    int64_t n; /* ids */
    tt_candidate *heap;
} tt_sampler;
/* n ids; temperature 0 takes no memory. */
tt_status tt_sampler_init(tt_sampler *s, const tt_sampling *o, int64_t n, tt_error *err);
void tt_sampler_release(tt_sampler *s);
/* One of the n ids. stream and position key the random number, so a text does not depend on what
 * else is written with it. -1: a logit is NaN, or none is finite. */
int32_t tt_sample_token(tt_sampler *s, const float *logits, uint64_t stream, uint64_t position);

#endif
