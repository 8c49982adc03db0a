/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_INFER_GENERATE_H
#define TT_INFER_GENERATE_H
#include "exec/exec.h"
#include "graph/graph.h"
#include "infer/sample.h"
#include <ttrun/tokenizer.h>

/* Generation: several sequences through one program, each in a slot of its cache. A prompt goes
 * through in pieces, alone; then every sequence takes one token a step, all in one call. What a
 * sequence becomes does not depend on the others. */

typedef enum tt_finish {
    TT_FINISH_NONE,    /* not finished: stopped from outside */
    TT_FINISH_STOP,    /* an id that ends a text */
    TT_FINISH_LENGTH,  /* as many tokens as asked for */
    TT_FINISH_CONTEXT, /* as many as the model's context holds */
} tt_finish;

typedef struct tt_sequence {
    const int32_t *prompt; /* at least one token */
    int64_t n_prompt;
    uint64_t stream; /* with the position it keys the random numbers */
    tt_ids ids;      /* what was generated; the id that ended it is not in it */
    tt_finish finish;
} tt_sequence;

typedef struct tt_generate_stats {
    int64_t prompt_tokens, new_tokens, calls; /* calls: steps of all sequences together */
    double prompt_seconds, new_seconds;
} tt_generate_stats;

typedef struct tt_generate_opts {
    tt_exec *exec; /* a program of TT_MODE_DECODE */
    const tt_graph *graph;
    int64_t vocab;   /* ids that may be sampled: [0, vocab) */
    int64_t max_new; /* tokens a sequence */
    const int32_t *stop_ids;
    size_t n_stop_ids;
    tt_sampling sampling;
    int (*stop)(void);                                         /* not 0: end now; may be NULL */
    void (*on_token)(void *user, size_t sequence, int32_t id); /* may be NULL */
    void (*on_end)(void *user, size_t sequence);               /* may be NULL */
    void *user;
} tt_generate_opts;

/* Prompts longer than graph->length are an error before anything is computed. The caller frees the
 * sequences' ids. */
tt_status tt_generate(const tt_generate_opts *o, tt_sequence *s, size_t n, tt_generate_stats *stats,
                      tt_error *err);

#endif
