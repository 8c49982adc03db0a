/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_INFER_GENERATE_H
#define TT_INFER_GENERATE_H
#include "infer/engine.h"
#include <ttrun/tokenizer.h>

/* Generates several sequences with an engine, as many at once as it has slots. A sequence's text does not depend on the
 * other sequences. */

typedef struct tt_sequence {
    const int32_t *prompt; /* at least one token */
    int64_t n_prompt;
    uint64_t stream;  /* the random numbers depend on the seed, this number and the position */
    int64_t n_cached; /* result: tokens of the prompt that the engine's cache had */
    tt_ids ids;       /* result: the generated ids, without the id that ended the text */
    tt_finish finish; /* result; TT_FINISH_NONE: `stop` ended the generation */
} tt_sequence;

typedef struct tt_generate_opts {
    tt_engine *engine; /* without requests */
    int64_t max_new;   /* tokens per sequence */
    const int32_t *stop_ids;
    size_t n_stop_ids;
    tt_sampling sampling;
    int (*stop)(void); /* not 0: end the generation; may be NULL */
    void (*on_token)(void *user, size_t sequence, int32_t id); /* may be NULL */
    void (*on_end)(void *user, size_t sequence);               /* may be NULL */
    void *user;
} tt_generate_opts;

/* Fails before anything is computed if a prompt is longer than the context. The caller frees the sequences' ids. */
tt_status tt_generate(const tt_generate_opts *o, tt_sequence *s, size_t n, tt_error *err);

#endif
