/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_INFER_CALLS_H
#define TT_INFER_CALLS_H
#include "exec/exec.h"
#include "graph/graph.h"

/* Calls of a program of mode DECODE: some rows, a token each, and the logits of the rows that were picked. A program without a
 * cache (graph->slots is 0) has one sequence, a row per position, and computes all rows in each call: those of earlier calls
 * stay as they are. */

typedef struct tt_calls {
    tt_exec *exec;
    const tt_graph *graph;
    int32_t *ids, *pos, *slot, *longer; /* [graph->tokens] */
    int32_t *pick;                      /* [most_pick] */
    int64_t n, n_pick;                  /* of the next call */
    int64_t most_pick;
    int64_t n_calls;
    tt_tensor logits; /* [picked at most, vocabulary] */
} tt_calls;

tt_status tt_calls_open(tt_calls *c, tt_exec *exec, const tt_graph *graph, tt_arena *a,
                        tt_error *err);
void tt_calls_clear(tt_calls *c);
/* longer: the input "longer_than.N". */
void tt_calls_add(tt_calls *c, int32_t id, int64_t pos, int64_t slot, bool longer);
void tt_calls_pick(tt_calls *c); /* the row that was added last */
tt_status tt_calls_run(tt_calls *c, tt_error *err);
/* The logits of n picked rows, which without a cache must be neighbours, on the host until they are given back. */
tt_status tt_calls_map(const tt_calls *c, int64_t row, int64_t n, tt_tensor *t,
                       const float **logits, tt_error *err);
tt_status tt_calls_unmap(const tt_calls *c, const tt_tensor *t, const float *logits, tt_error *err);

#endif
