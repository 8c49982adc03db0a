/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_INFER_ENGINE_H
#define TT_INFER_ENGINE_H
#include "infer/calls.h"
#include "infer/generate.h"

/* Computes requests that come and go, on one program: each has a slot in its cache of keys and values; a step
 * computes a piece of one prompt, then one token of every request whose prompt is done ("continuous batching", Yu et
 * al. 2022, Orca). What a request gets does not depend on the others. Tokens that a prompt begins with and a slot still
 * has, of a request that runs or is over, are not computed again (kept.h). For one thread. */

typedef struct tt_engine tt_engine;

enum { TT_ENGINE_MOST_TOP = 20 };

typedef struct tt_scored {
    int32_t id;
    double logprob;
} tt_scored;
/* A token with its natural logarithm of the probability under the model, at temperature 1. The same id has the same
 * number in top, to the bit. */
typedef struct tt_token {
    int32_t id;
    bool of_prompt;
    bool has_logprob; /* not of a prompt's first token, nor if the request asks for none */
    double logprob;
    tt_scored top[TT_ENGINE_MOST_TOP]; /* the most likely tokens, the first one first */
    int n_top;
} tt_token;

typedef struct tt_request {
    const int32_t *prompt; /* at least one token; it must live as long as the request */
    int64_t n_prompt;
    int64_t max_new; /* 0: only the prompt is scored */
    tt_sampling sampling;
    uint64_t stream; /* with the seed: of the random numbers */
    const int32_t *stop_ids;
    size_t n_stop_ids;
    int64_t *n_cached; /* gets how many tokens of the prompt the cache had; may be NULL */
    bool scored;       /* logprobs are computed */
    int n_top;         /* 0 … TT_ENGINE_MOST_TOP */
    bool of_prompt;    /* on_token gets the prompt's tokens, too, before the new ones */
    /* Called by tt_engine_step; neither may call a function of the engine. False: it ends here, TT_FINISH_STOP. An id
     * that ends the text is not told. */
    bool (*on_token)(void *user, const tt_token *t);
    /* error: NULL, or why it failed: its logits are not finite. The request may be freed. */
    void (*on_end)(void *user, tt_finish finish, const char *error);
    void *user;
} tt_request;

typedef struct tt_engine_stats {
    int64_t prompt_tokens, cached_tokens, new_tokens; /* cached: of those of prompts */
    int64_t running;                                  /* requests */
} tt_engine_stats;

/* The program must have a cache (graph->slots > 0). vocab: ids in [0, vocab) may be sampled. forgets: each prompt is
 * computed whole. */
tt_status tt_engine_open(tt_exec *exec, const tt_graph *graph, int64_t vocab, bool forgets,
                         tt_engine **out, tt_error *err);
tt_engine_stats tt_engine_count(const tt_engine *e);
void tt_engine_close(tt_engine *e); /* NULL is fine; requests end without on_end */
/* Can the prompt be computed? TT_EINVAL says why not. */
tt_status tt_engine_check(const tt_engine *e, const int32_t *prompt, int64_t n, tt_error *err);
bool tt_engine_has_room(const tt_engine *e);
bool tt_engine_is_busy(const tt_engine *e);
/* There must be room, and the prompt must have passed the check. */
tt_status tt_engine_add(tt_engine *e, const tt_request *r, tt_error *err);
/* Forgets the request of `user` without on_end, if it is there. */
void tt_engine_drop(tt_engine *e, const void *user);
/* An error is the program's or the device's: the engine can be closed only. */
tt_status tt_engine_step(tt_engine *e, tt_error *err);

#endif
