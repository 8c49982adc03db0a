/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_INFER_GENERATE_H
#define TT_INFER_GENERATE_H
#include "exec/exec.h"
#include "graph/graph.h"
#include "infer/sample.h"
#include <ttrun/tokenizer.h>

/* Generates several sequences with one program; each has a slot in the program's cache of keys and
 * values. A prompt is computed alone, in one or more calls. After that, one call computes one token
 * of every sequence. A sequence's text does not depend on the other sequences. */

/* Tokens of a prompt per call: many enough to read the weights rarely, few enough to keep the
 * attention scores small. Sequences at once: few enough for the matmul that reads weights in place
 * (plugins/backends/cpu/gemm.c), where other sequences do not change the bits of one. */
#define TT_GENERATE_PIECE 256
#define TT_GENERATE_AT_ONCE 16

typedef enum tt_finish {
    TT_FINISH_NONE,    /* not finished: `stop` ended the generation */
    TT_FINISH_STOP,    /* it generated an id that ends a text */
    TT_FINISH_LENGTH,  /* it has as many tokens as requested */
    TT_FINISH_CONTEXT, /* it has as many tokens as the context of the model holds */
} tt_finish;

typedef struct tt_sequence {
    const int32_t *prompt; /* at least one token */
    int64_t n_prompt;
    /* So many of its first tokens were the last that the cache's first slot computed, in an earlier call for one
     * sequence alone; less than n_prompt. */
    int64_t n_cached;
    uint64_t stream; /* the random numbers depend on the seed, this number and the position */
    tt_ids ids;      /* the generated ids, without the id that ended the text */
    tt_finish finish;
} tt_sequence;

typedef struct tt_generate_stats {
    int64_t prompt_tokens, new_tokens, calls; /* calls: how often the program was run */
    double prompt_seconds, new_seconds;
} tt_generate_stats;

typedef struct tt_generate_opts {
    tt_exec *exec; /* compiled with TT_MODE_DECODE */
    const tt_graph *graph;
    int64_t vocab;   /* ids in [0, vocab) may be sampled */
    int64_t max_new; /* tokens per sequence */
    const int32_t *stop_ids;
    size_t n_stop_ids;
    tt_sampling sampling;
    int (*stop)(void); /* not 0: end the generation; may be NULL */
    void (*on_token)(void *user, size_t sequence, int32_t id); /* may be NULL */
    void (*on_end)(void *user, size_t sequence);               /* may be NULL */
    void *user;
} tt_generate_opts;

/* How many tokens of the sequence, prompt and ids, the cache has after it: those that n_cached of a longer prompt may
 * count. */
int64_t tt_generate_cached(const tt_sequence *s);
/* Fails before anything is computed if a prompt is longer than graph->length. The caller frees the
 * sequences' ids. */
tt_status tt_generate(const tt_generate_opts *o, tt_sequence *s, size_t n, tt_generate_stats *stats,
                      tt_error *err);

#endif
