/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_OFFLOAD_IMPL_H
#define TT_OFFLOAD_IMPL_H
#include "passes/passes.h"
#include "plan/plan.h"

/* Private to offload_values.c and its two helpers: one stage, and which of its values can be in host
 * memory between forward and backward. */

enum { OFFLOAD_F, OFFLOAD_I, OFFLOAD_W, OFFLOAD_LISTS }; /* as tt_stage_part */

/* The nodes of a stage that a rank runs as one list. */
typedef struct tt_offload_list {
    int *at; /* [n]: positions in the graph's list */
    int n;
    int *block, *begin; /* [n_blocks]: in the order of the list; begin: an index in at */
    int n_blocks;
    double *time; /* [n + 1]: seconds before each node on the machine; not for ALL */
} tt_offload_list;

typedef struct tt_offload_value {
    tt_value *value;
    int64_t bytes;
    int copied,
        freed; /* indices in F: the node after which it is copied, the one before which the copy
                          is waited for (n: the end of the list) */
    int block; /* of the node at `copied` */
    /* Of I and W: the first node that names it (n: none), the first that reads its bytes, and the node
     * before which it is fetched. */
    int named[OFFLOAD_LISTS], read[OFFLOAD_LISTS], fetched[OFFLOAD_LISTS];
    bool chosen;
} tt_offload_value;

typedef struct tt_offload_stage {
    tt_graph *g;
    const tt_offload_opts *o;
    int stage;
    tt_arena *a; /* of the pass */
    tt_offload_list list[OFFLOAD_LISTS];
    tt_offload_value *values; /* that can be offloaded, in the order in which they are copied */
    int n;
} tt_offload_stage;

/* offload_find.c: g, o, stage and a are set. */
void tt_offload_find(tt_offload_stage *s);
/* offload_choose.c: sets `chosen`. */
void tt_offload_choose(tt_offload_stage *s);

#endif
