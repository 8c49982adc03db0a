/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_INFER_ADJUST_H
#define TT_INFER_ADJUST_H
#include "base/base.h"

/* What a request changes of the logits before a token is sampled. Logprobs are those of the model all the same. */

typedef struct tt_logit_bias {
    int32_t id;
    float bias; /* it is added */
} tt_logit_bias;

typedef struct tt_adjust_opts { /* zeros: nothing */
    /* Of ids that the prompt or the text has: a logit above 0 is divided by it, another multiplied (Keskar et al. 2019,
     * CTRL). 0 or 1: none. */
    double repetition;
    double presence, frequency; /* of ids that the new text has: subtracted once; for each time */
    const tt_logit_bias *bias;  /* [n_bias] */
    size_t n_bias;
    int64_t min_new; /* so many tokens must come before one that ends the text */
} tt_adjust_opts;

/* What a text has had. Zero-initialised: nothing. */
typedef struct tt_adjust {
    tt_adjust_opts o;
    int32_t *counts; /* [vocab] of the new text; NULL: no penalty */
    bool *in_prompt; /* [vocab] */
} tt_adjust;

/* prompt [n]. Owner: the caller, by tt_adjust_free. TT_ENOMEM. */
tt_status tt_adjust_init(tt_adjust *a, const tt_adjust_opts *o, int64_t vocab,
                         const int32_t *prompt, int64_t n, tt_error *err);
void tt_adjust_free(tt_adjust *a);
bool tt_adjust_is_needed(const tt_adjust *a, int64_t n_new);
/* Changes logits [vocab] before new token n_new. ends: the ids that end the text. */
void tt_adjust_logits(const tt_adjust *a, float *logits, int64_t vocab, int64_t n_new,
                      const int32_t *ends, size_t n_ends);
void tt_adjust_took(tt_adjust *a, int32_t id); /* the new token */

#endif
