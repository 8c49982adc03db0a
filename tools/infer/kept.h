/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_INFER_KEPT_H
#define TT_INFER_KEPT_H
#include "exec/exec.h"
#include "graph/graph.h"
#include "infer/scores.h"
#include <ttrun/tokenizer.h>

/* Which tokens each slot of a cache has, also after its request is over, so that a prompt that begins with them need
 * not compute them again. There is no memory but the slots': the text that was used least recently gives way. */

typedef struct tt_kept {
    tt_exec *exec;
    const tt_graph *graph;
    bool on;
    bool whole;        /* a memory cannot go back: a text is of use only where all of it is */
    int64_t n;         /* slots: 1 without a cache */
    tt_ids *text;      /* [n] */
    tt_scores *scores; /* [n] of the text's tokens, and of one more that may come next */
    char **salt;       /* [n] of the text; NULL: "" */
    bool *longer;      /* [n] the input "longer_than.N" of its tokens */
    uint64_t *used;    /* [n] when its request began */
    uint64_t now;
} tt_kept;

typedef struct tt_kept_prompt {
    const int32_t *ids;
    int64_t n;
    bool longer;      /* tokens that were computed otherwise are of no use */
    const char *salt; /* nor are those of a text with another one; NULL: "" */
    int n_top; /* most likely tokens that are wanted with the logprob of each token; -1: no logprobs */
} tt_kept_prompt;

/* off: nothing is kept. */
void tt_kept_open(tt_kept *k, tt_exec *exec, const tt_graph *graph, bool off, tt_arena *a);
void tt_kept_close(tt_kept *k);
/* The slot, of those where free[slot], for a prompt: that of a text that it goes on with; else the one whose text is worth
 * least. */
int64_t tt_kept_choose(const tt_kept *k, const bool *free, const tt_kept_prompt *p);
/* Puts as many first tokens of the prompt as any slot has into this slot, but not the one whose logits come next, and tells
 * how many. If logprobs are wanted, those of the tokens up to the one after them are known. */
tt_status tt_kept_take(tt_kept *k, int64_t slot, const tt_kept_prompt *p, int64_t *n_cached,
                       tt_error *err);
/* The slot has computed one token more. */
tt_status tt_kept_add(tt_kept *k, int64_t slot, int32_t id, tt_error *err);
/* Token `at` of the slot's text, which is computed or comes next, has this logprob. */
tt_status tt_kept_score(tt_kept *k, int64_t slot, int64_t at, const tt_token *t, tt_error *err);
void tt_kept_get_score(const tt_kept *k, int64_t slot, int64_t at, int n_top, tt_token *t);
void tt_kept_forget(tt_kept *k, int64_t slot);

#endif
