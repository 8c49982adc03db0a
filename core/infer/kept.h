/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_INFER_KEPT_H
#define TT_INFER_KEPT_H
#include "exec/exec.h"
#include "graph/graph.h"
#include <ttrun/tokenizer.h>

/* Which tokens each slot of a cache has, also after its request is over, so that a prompt that begins with them need
 * not compute them again. There is no memory but the slots': the text that was used least recently gives way. */

typedef struct tt_kept {
    tt_exec *exec;
    const tt_graph *graph;
    bool on;
    bool whole;     /* a memory cannot go back: a text is of use only where all of it is */
    tt_ids *text;   /* [graph->slots] */
    uint64_t *used; /* [graph->slots] when its request began */
    uint64_t now;
} tt_kept;

/* off: nothing is kept. */
void tt_kept_open(tt_kept *k, tt_exec *exec, const tt_graph *graph, bool off, tt_arena *a);
void tt_kept_close(tt_kept *k);
/* The slot, of those where free[slot], for a prompt: that of a text that it goes on with; else the one whose text is worth
 * least. */
int64_t tt_kept_choose(const tt_kept *k, const bool *free, const int32_t *prompt, int64_t n);
/* Puts as many first tokens of the prompt as any slot has, but not the last one, into this slot, and tells how many. */
tt_status tt_kept_take(tt_kept *k, int64_t slot, const int32_t *prompt, int64_t n,
                       int64_t *n_cached, tt_error *err);
/* The slot has computed one token more. */
tt_status tt_kept_add(tt_kept *k, int64_t slot, int32_t id, tt_error *err);
void tt_kept_forget(tt_kept *k, int64_t slot);

#endif
