/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_INFER_ENGINE_H
#define TT_INFER_ENGINE_H
#include "infer/adjust.h"
#include "infer/calls.h"
#include "infer/sample.h"
#include "infer/scores.h"

/* Computes requests that come and go, on one program: each has a slot in its cache of keys and values; a step
 * computes a piece of one prompt, then one token of every request whose prompt is done ("continuous batching", Yu et
 * al. 2022, Orca). What a request gets does not depend on the others. Tokens that a prompt begins with and a slot still
 * has, of a request that runs or is over, are not computed again, if their logprobs are known where the request wants them
 * (kept.h). Without a cache there is one request at a time, and each token computes its whole context again. For one
 * thread. */

typedef struct tt_engine tt_engine;

/* Tokens of a prompt per call: many enough to read the weights rarely, few enough to keep the attention scores small.
 * Sequences at once: few enough for the matmul that reads weights in place (plugins/backends/cpu/gemm.c), where other
 * sequences do not change the bits of one. Bytes of the logits of a call, at most, unless each slot's need more. */
#define TT_ENGINE_PIECE 256
#define TT_ENGINE_AT_ONCE 16
#define TT_ENGINE_LOGITS_BYTES (INT64_C(64) << 20)

typedef enum tt_finish {
    TT_FINISH_NONE,    /* not finished */
    TT_FINISH_STOP,    /* it generated an id that ends a text */
    TT_FINISH_LENGTH,  /* it has as many tokens as requested */
    TT_FINISH_CONTEXT, /* it has as many tokens as the context of the model holds */
} tt_finish;

typedef struct tt_request {
    const int32_t *prompt; /* at least one token; it must live as long as the request */
    int64_t n_prompt;
    const char *
        salt; /* tokens of requests with another one are computed again; NULL: none. It lives as long, too */
    int64_t max_new; /* 0: only the prompt is scored */
    tt_sampling sampling;
    tt_adjust_opts adjust; /* its bias lives as long as the request */
    uint64_t stream;       /* with the seed: of the random numbers */
    const int32_t *stop_ids;
    size_t n_stop_ids;
    /* NULL: any id may come. Else asked before each new token; bit i of word i / 64: id i may. None: the text fails. */
    const uint64_t *(*allowed)(void *user);
    int64_t *n_cached; /* gets how many tokens of the prompt the cache had; may be NULL */
    bool scored;       /* logprobs are computed */
    int n_top;         /* 0 … TT_MOST_TOP */
    bool of_prompt;    /* on_token gets the prompt's tokens, too, before the new ones */
    /* Called by tt_engine_step; neither may call a function of the engine. False: it ends here, TT_FINISH_STOP. The
     * id that ends the text is told last, with tt_token.ends set. */
    bool (*on_token)(void *user, const tt_token *t);
    /* error: NULL, or why it failed: its logits are not finite. The request may be freed. */
    void (*on_end)(void *user, tt_finish finish, const char *error);
    void *user;
} tt_request;

typedef struct tt_engine_stats {
    int64_t prompt_tokens, cached_tokens, new_tokens; /* cached: of those of prompts */
    int64_t running;                                  /* requests */
    double prompt_seconds, new_seconds;
} tt_engine_stats;

typedef struct tt_engine_opts {
    tt_exec *exec; /* compiled with TT_MODE_DECODE */
    const tt_graph *graph;
    tt_pool *pool; /* scores the tokens of prompts; NULL: the caller does it alone */
    int64_t
        vocab; /* ids in [0, vocab) may be sampled; probabilities are over all rows of the head */
    bool forgets; /* each prompt is computed whole */
    /* A step computes a piece of a prompt or, if there is none to compute, one token of every request: most tokens per
     * second. */
    bool prompts_first;
} tt_engine_opts;

tt_status tt_engine_open(const tt_engine_opts *o, tt_engine **out, tt_error *err);
/* How many rows of a call with `rows` rows may have logits (tt_decode_opts.picked), so that a prompt's logprobs take few
 * calls and not too much memory. */
int64_t tt_engine_picked(int64_t rows, int64_t slots, int64_t vocab);
tt_engine_stats tt_engine_count(const tt_engine *e);
void tt_engine_close(tt_engine *e); /* NULL is fine; requests end without on_end */
/* Can the prompt be computed? TT_EINVAL says why not; name: "the prompt". */
tt_status tt_engine_check(const tt_engine *e, const char *name, const int32_t *prompt, int64_t n,
                          tt_error *err);
bool tt_engine_has_room(const tt_engine *e);
bool tt_engine_is_busy(const tt_engine *e);
/* There must be room, and the prompt must have passed the check. */
tt_status tt_engine_add(tt_engine *e, const tt_request *r, tt_error *err);
/* Forgets the request of `user` without on_end, if it is there. */
void tt_engine_drop(tt_engine *e, const void *user);
/* The cache's tokens are of no use to later prompts. */
void tt_engine_forget(tt_engine *e);
/* An error is the program's or the device's: the engine can be closed only. */
tt_status tt_engine_step(tt_engine *e, tt_error *err);

#endif
