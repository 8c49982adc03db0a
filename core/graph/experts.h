/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_GRAPH_EXPERTS_H
#define TT_GRAPH_EXPERTS_H
#include <ttrun/builder.h>

/* How many slots of a layer each of its experts has (core/graph/expert_counts.c). The pass expert_loads fills
 * in what follows `name`. */
typedef struct tt_expert_load {
    tt_value *assign, *counts; /* i32 [T,k]; f64 [E], of one micro-batch */
    const char *name;          /* of the layer, in logs; NULL: not logged */
    tt_value *whole;           /* f64 [layers, E]: the sums of a step for this layer and others */
    int row;                   /* of `whole` */
    const char *metric;        /* the state that has `whole` for the host of rank 0; NULL: none */
    bool
        overflow; /* counts is f64 [1] instead: the slots of the layer that its first pass left over */
} tt_expert_load;

/* In how many passes `members` ranks of ep compute a layer whose first pass has room for `room` times the rows
 * of balanced routing; room 0: for all. The passes after the first share what that may leave over. */
#define TT_MAX_EXPERT_PASSES 4
int tt_expert_passes(double room, int64_t members);

/* Logs the load of a layer's experts, if the builder's options say so. */
void tt_builder_log_experts(tt_builder *b, tt_value *assign, int64_t n_experts);

#endif
