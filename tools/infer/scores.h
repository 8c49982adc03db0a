/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_INFER_SCORES_H
#define TT_INFER_SCORES_H
#include "base/base.h"

/* Log-probabilities of tokens, and a list with those of each token of a text. */

enum { TT_MOST_TOP = 20 };

typedef struct tt_scored {
    int32_t id;
    double logprob;
} tt_scored;
/* A token with its natural logarithm of the probability under the model, at temperature 1. The same id has the same
 * number in top, to the bit. */
typedef struct tt_token {
    int32_t id;
    bool of_prompt;
    bool ends;        /* it ends the text, which does not have it */
    bool has_logprob; /* not of a prompt's first token, nor if the request asks for none */
    double logprob;
    tt_scored top
        [TT_MOST_TOP]; /* the most likely tokens, the first one first; of equal ones the lower id */
    int n_top;
} tt_token;

/* Fills in the logprob of t->id and the n_top most likely ids, by the logits of [0, vocab): all rows of the model's head,
 * also those that are never sampled. */
void tt_token_score(tt_token *t, const float *logits, int64_t vocab, int n_top);

typedef struct tt_scores {
    tt_scored *all; /* of each token: itself, then its top; nothing: its logprob is not known */
    size_t *ends;   /* [n] where a token's part of `all` ends */
    size_t n, cap, n_all, cap_all;
} tt_scores;

void tt_scores_free(tt_scores *s);
void tt_scores_cut(tt_scores *s, size_t n); /* forgets those of token n and later */
/* Token number `at`; what is known of later ones is forgotten. */
tt_status tt_scores_set(tt_scores *s, size_t at, const tt_token *t, tt_error *err);
/* False: its logprob is not known, or fewer than n_top. The id and of_prompt stay as they are; t NULL: only asks. */
bool tt_scores_get(const tt_scores *s, size_t at, int n_top, tt_token *t);
tt_status tt_scores_copy(tt_scores *to, const tt_scores *from, size_t n, tt_error *err);

#endif
