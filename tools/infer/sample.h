/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_INFER_SAMPLE_H
#define TT_INFER_SAMPLE_H
#include "base/base.h"

/* Samples the next token from logits. */

typedef struct tt_sampling {
    double temperature; /* 0 = greedy: the largest logit, ties to the lower id */
    double min_p;  /* keep those with at least this share of the most likely one's probability */
    int64_t top_k; /* then keep the k most likely tokens; 0 = all */
    double top_p;  /* then keep the most likely ones with at least this mass; 1 = all */
    uint64_t seed;
} tt_sampling;

typedef struct tt_candidate {
    double weight; /* exp((logit - the largest) / temperature) */
    int32_t id;
} tt_candidate;

typedef struct tt_sampler {
    tt_sampling o;
    int64_t n; /* number of ids */
    tt_candidate *heap;
} tt_sampler;
/* Makes a sampler for n ids; temperature 0 needs no memory. */
tt_status tt_sampler_init(tt_sampler *s, const tt_sampling *o, int64_t n, tt_error *err);
void tt_sampler_release(tt_sampler *s);
/* Samples one of the n ids. stream and position are the key of the random number, so a text does
 * not depend on the other texts of the batch. -1: a logit is NaN, or no logit is finite. */
int32_t tt_sample_token(tt_sampler *s, const float *logits, uint64_t stream, uint64_t position);

#endif
