/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_RECOMPUTE_IMPL_H
#define TT_RECOMPUTE_IMPL_H
#include "passes/passes.h"

/* Shared by recompute.c, recompute_cut.c and recompute_levels.c. */

/* Whether a node of the forward may be computed again for the backward. */
bool tt_recompute_can(const tt_node *n);

/* A way to run the backward of a block: which nodes of its forward are computed again. */
typedef struct tt_recipe {
    bool *redo;    /* by node of the problem */
    int64_t bytes; /* kept from the forward to the backward, per micro-batch */
    double cost;   /* of the nodes that are computed again, in the machine's unit */
    int64_t *kept; /* [n_kept]: the bytes of each value that is kept, the largest first */
    int n_kept;
} tt_recipe;

/* What a block computes again and what it offloads. */
typedef struct tt_block_state {
    int recipe;
    tt_offload_share share;
    double bytes; /* that it takes of the device's memory from the forward to the backward */
    double cost;  /* of recomputing, and of copies that nothing hides */
} tt_block_state;

/* What the backward of one block needs of its forward. */
typedef struct tt_block_cut {
    int block, stage;
    int n_nodes, n_values, n_links;
    const tt_node **node; /* of the forward, in order */
    /* The following arrays are equal for blocks that are alike. */
    int64_t
        *keep; /* by value: the bytes it takes to keep it; 0: it is kept anyway; -1: it never is: a
                      view, which has no bytes of its own, or free */
    double *again;  /* by node: the time it takes to compute it again */
    int *maker;     /* by value: its node; -1: none that could be computed again */
    bool *needed;   /* by value: the backward reads it */
    int (*link)[2]; /* node, value: the node reads the value */
    /* From keeping all to keeping least, each with less bytes and more cost than the one before it, and
     * with falling returns: the lower convex hull of all choices. */
    tt_recipe *recipes;
    int n_recipes;
    uint64_t hash;
    double forward, backward; /* the time of its nodes */
    int64_t room;             /* bytes of host memory that it may take; only for JOINT */
    tt_block_state *states;   /* recompute_states.c: what its levels go through */
    int n_states;
} tt_block_cut;

/* recompute_cut.c: the problems of all blocks, in ascending order, with their recipes. no_cost: by node id, what
 * is computed again in every recipe and costs nothing. */
void tt_block_cuts_find(tt_graph *g, const tt_machine *m, const bool *no_cost, tt_block_cut **out,
                        int *n);

/* recompute_states.c: finds the states of the blocks of a pipeline rank. */
void tt_block_states_find(tt_arena *a, const tt_recompute_opts *o, int rank, tt_block_cut *all,
                          int n);

/* recompute_levels.c: by node id, whether it is computed again at the levels of o->cut. Writes the numbers of levels to o->found, and what
 * is offloaded to o->shares. */
bool *tt_recompute_levels(tt_graph *g, const tt_recompute_opts *o, const bool *no_cost);
/* Describes each block of a graph after the pass. */
void tt_recompute_describe(tt_graph *g, const tt_recompute_opts *o);

#endif
