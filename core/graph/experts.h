/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_GRAPH_EXPERTS_H
#define TT_GRAPH_EXPERTS_H
#include "graph/op.h"
#include <ttrun/builder.h>

typedef enum tt_load_of {
    TT_LOAD,          /* all slots */
    TT_LOAD_SENT,     /* those of experts without replicas */
    TT_LOAD_OVERFLOW, /* those that the layer's first pass left over; counts is f64 [1] */
} tt_load_of;

/* How many slots of a layer each of its experts has (core/graph/expert_counts.c). The pass expert_loads fills
 * in what follows `of`. */
typedef struct tt_expert_load {
    tt_value *assign, *counts; /* i32 [T,k]; f64 [E], of one micro-batch */
    tt_value
        *sent; /* assign, with -1 where the expert has replicas (expert_replicas); NULL: none has */
    const char *name; /* of the layer, in logs; NULL: not logged */
    tt_load_of of;
    tt_value *whole;    /* f64 [layers, E]: the sums of a step for this layer and others */
    int row;            /* of `whole` */
    const char *metric; /* the state that has `whole` for the host of rank 0; NULL: none */
} tt_expert_load;

/* In how many passes `members` ranks of ep compute a layer whose first pass has room for `room` times the rows
 * of balanced routing; room 0: for all. The passes after the first share what that may leave over. */
#define TT_MAX_EXPERT_PASSES 4
int tt_expert_passes(double room, int64_t members);

/* The gradient of the replicas of a weight, summed over the micro-batches of a step (autodiff); the epilogue
 * adds it to that of `param` (expert_gradients.c). */
struct tt_state;
struct tt_param_info;
typedef struct tt_replica_gradient {
    const struct tt_param_info *param;
    struct tt_state *sum; /* f32 [n,o,i] */
    tt_value *chosen;     /* i32 [n], of the forward */
    int stage, block;
} tt_replica_gradient;

/* Replicas of experts (the pass expert_replicas): each layer's `n` most loaded experts of `of`. n 0: none.
 * per_step: their weights are brought, and their gradients reduced, once per step, not per micro-batch. */
typedef struct tt_expert_replicas {
    int64_t n, of;
    bool per_step;
    TT_VEC(tt_replica_gradient) gradients;
} tt_expert_replicas;
#define TT_LABEL_REPLICAS "expert_replicas"  /* of the dim of experts, in what replicas compute */
#define TT_LABEL_REPLICA_ROWS "replica_rows" /* TT_LABEL_ROWS of replicas */
extern const tt_op_def tt_op_expert_rows, tt_op_expert_of_rows, tt_op_replica_weight;
/* Do these attributes of expert_route send slots to replicas? */
bool tt_routes_to_replicas(const tt_attrs_dims *route);
/* The shares of all slots, where the busiest of `ranks` ranks has `skew` times the mean of slots without
 * replicas. *hot: of the experts with replicas; *busiest: of experts without, on the busiest rank. The load is
 * that of a power law: expert i in the order of load has i^-a, and the busiest rank has the first expert and
 * else experts of the mean load. */
void tt_expert_shares(tt_expert_replicas r, double ranks, double skew, double *hot,
                      double *busiest);

/* Logs the load of a layer's experts, if the builder's options say so. */
void tt_builder_log_experts(tt_builder *b, tt_value *assign, int64_t n_experts);

#endif
