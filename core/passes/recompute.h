/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PASSES_RECOMPUTE_H
#define TT_PASSES_RECOMPUTE_H
#include "cost/cost.h"
#include "graph/graph.h"

/* recompute: the backward computes forward values that it reads again, by mode; in every mode those
 * that it computes inside of a pointwise program from what it reads there anyway. */

typedef enum tt_recompute_mode {
    TT_RECOMPUTE_NONE,
    TT_RECOMPUTE_SELECTIVE, /* but not the results of some ops */
    TT_RECOMPUTE_FULL,
    TT_RECOMPUTE_CUT /* per pipeline rank, as tt_recompute_cut says */
} tt_recompute_mode;

/* What a level means for activations that are kept: whether they are copied to a device's host memory
 * between forward and backward. */
typedef enum tt_cut_way {
    TT_CUT_STAYS,  /* none is */
    TT_CUT_HIDDEN, /* those whose copies hide behind computation */
    TT_CUT_JOINT, /* the levels choose this, too: each gives a block its next pair of what it computes
                      again and of what it offloads. FULL and SELECTIVE: as HIDDEN */
    TT_CUT_MOVED /* all are, but for the last block of a stage */
} tt_cut_way;

/* How much of a block is offloaded; found by the pass, for offload_values. */
typedef struct tt_offload_share {
    int64_t bytes; /* at most; 0: nothing */
    bool late;     /* copies need not hide behind computation */
} tt_offload_share;
typedef struct tt_offload_shares {
    tt_offload_share *of; /* by block */
    int n;                /* 0: nothing is offloaded */
} tt_offload_shares;

/* How much the stages of each pipeline rank compute again. Level 0 keeps all; each level more computes
 * one part of one block again, in the order of the least time per byte that it frees, and of blocks that
 * are alike the oldest first, whose values would be kept longest. */
#define TT_CUT_FULL -1 /* instead of a level: as the mode FULL, or SELECTIVE */
#define TT_CUT_SELECTIVE -2
typedef struct tt_recompute_cut {
    int n_ranks;
    const int *stage_rank; /* by stage: its pipeline rank */
    const int *in_flight;  /* by stage: the most micro-batches that are kept at a time */
    const int *level;      /* by rank; NULL: `part` of its levels */
    double part;           /* 0 … 1 */
    const int *way;        /* by rank: a tt_cut_way; NULL: STAYS */
    int64_t most_bytes;    /* as in tt_offload_opts */
    int ahead;
} tt_recompute_cut;

typedef struct tt_recomputed_block { /* of one micro-batch, on the rank with the largest boxes */
    int block, stage;
    const char *name; /* "model.layers.3" */
    int64_t kept,
        made;      /* bytes of its forward's values that are kept for its backward, on the device
                            if there is one; that the backward makes again */
    int64_t moved; /* … that wait in host memory */
    double copy;   /* the time of their copies to host memory; those back take as long */
    double flops, cost; /* of what is computed again; cost in the unit of the machine */
    const char *again;  /* the ops, as "2 rms_norm, silu"; "" = none */
} tt_recomputed_block;
typedef struct tt_recompute_found {
    int *n_levels;               /* CUT: by rank: the levels are 0 … n_levels */
    tt_recomputed_block *blocks; /* ascending */
    int n_blocks;
} tt_recompute_found;

typedef struct tt_recompute_opts {
    tt_recompute_mode mode;
    bool fetches; /* reshard after forward: gathered parameters are fetched again */
    int every;    /* > 0: only every n-th block computes again, from the first one on */
    /* SELECTIVE: the ops whose results are kept; 0 = those that are dear to compute (TT_OP_HEAVY), and
     * sums over ranks */
    const tt_op_def *const *keep;
    size_t n_keep;
    const tt_recompute_cut *cut; /* for CUT */
    const tt_machine *machine;   /* on which nodes take their time; for CUT and `found` */
    tt_recompute_found *found;   /* if not NULL, it is filled; in the graph's arena */
    tt_offload_shares *shares;   /* CUT: is filled, unless NULL; in the graph's arena */
} tt_recompute_opts;
tt_status tt_pass_recompute(tt_graph *g, const tt_recompute_opts *o, tt_error *err);

#endif
