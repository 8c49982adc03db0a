/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_EXPERT_REPLICAS_H
#define TT_EXPERT_REPLICAS_H
#include "graph/graph.h"

/* ---- expert_replicas: of a described graph's layers with experts; before expert_passes ---- */

#define TT_REPLICAS_AUTO (-1)
typedef struct tt_replica_opts {
    int64_t n;             /* replicas per layer: TT_REPLICAS_AUTO, or 0: none */
    int64_t ranks;         /* of ep */
    int64_t parts;         /* AUTO: ranks that have a part of the tokens of their own */
    int64_t stages;        /* ranks of pp, which share the layers */
    int64_t micro_batches; /* of a step; 1: also where gradients cannot wait for the epilogue */
    int64_t most_bytes;    /* of the replicas' weights and gradients on a rank; 0: no bound */
    double skew; /* AUTO: the rows of the busiest rank over the mean that are expected without */
    bool again;  /* the weights are brought again for the backward, and not kept */
    tt_dtype compute; /* of weights in products */
} tt_replica_opts;

/* o->n, or for AUTO the number that costs least by tt_machine_order with routing of o->skew, within
 * o->most_bytes. out->of: the experts of the layer that has most. out->per_step: with several micro-batches,
 * where weights and gradients of all layers fit o->most_bytes. */
tt_status tt_replicas_choose(const tt_graph *g, const tt_replica_opts *o, tt_expert_replicas *out,
                             tt_error *err);
#define TT_EXPERT_LOAD "expert_load" /* the buffer of a layer, which checkpoints have */
tt_status tt_pass_expert_replicas(tt_builder *b, const tt_replica_opts *o, tt_error *err);

/* ---- expert_gradients: gradients of replicas that were summed over the step's micro-batches; for update ---- */

/* autodiff: dout, of the output of the replica_weight node n, is added to a sum of its own. */
void tt_replica_gradient_keep(tt_builder *b, const tt_node *n, tt_value *dout);
/* The epilogue: the sums are reduced, one collective per layer, and added to the gradients of the experts. */
void tt_replica_gradients_add(tt_builder *b);

#endif
