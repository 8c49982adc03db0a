/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_WHEN_H
#define TT_WHEN_H
#include "base/base.h"

/* When, and how often, a node runs (R24): one object, interned per graph. Two nodes of a graph run
 * at the same times if and only if their `when` pointers are equal. So a pass that merges nodes, or
 * moves them together, compares two pointers, and a field that is added here counts in all passes.
 *
 * An object is never written to: nodes share it. A pass that changes when a node runs copies the
 * object, changes the copy and asks for the interned one:
 *
 *     tt_when w = *n->when;
 *     w.region = TT_FORWARD;
 *     n->when = tt_when_intern(g, w); */
typedef enum tt_region {
    TT_FORWARD,    /* per micro-batch and stage */
    TT_BACKWARD,   /* per micro-batch and stage */
    TT_EPILOGUE,   /* once per step: gradients are reduced, the norm is computed */
    TT_UPDATE,     /* once per step: the optimizer */
    TT_POST_UPDATE /* once per step, after the update: buffers */
} tt_region;

typedef struct tt_when {
    tt_region region;
    int stage;
    bool is_weight_grad; /* of a split backward the part W: the stage's input cotangent does not
                            need it */
    bool in_chunk_loop;  /* it runs once per chunk of tokens (R17) */
    bool per_step;       /* it runs with the stage's first forward of a step only (hoist) */
    bool measured;       /* it runs in measured steps only (pass measure); no other node reads it */
    bool early_update;   /* it updates a parameter before the backward is over, or only serves such
                            a node (pass early) */
    bool recomputed;     /* a clone of a node of the forward, which the recompute pass made for the
                            backward: it runs again what the forward ran */
    /* Stages, a bit each, whose nodes do the same to the same state (a tied parameter, a buffer): a
     * rank that has one of these stages, too, does not run the node a second time. */
    uint64_t replicated_stages;
} tt_when;

struct tt_graph;
/* The object of g with these fields. */
const tt_when *tt_when_intern(struct tt_graph *g, tt_when w);
/* Is w an object of g? */
bool tt_when_is_interned(const struct tt_graph *g, const tt_when *w);

/* Are both in one stage's forward, in one stage's backward and the same part (I or W) of it, or in
 * the same region of a stage's step? Whether they are in the loop over token chunks, how often they
 * run and whether they were recomputed is not compared. */
static inline bool tt_when_same_part(const tt_when *a, const tt_when *b)
{
    return a->region == b->region && a->stage == b->stage && a->is_weight_grad == b->is_weight_grad;
}

/* Do both run at the same times? Of equal fields all but `recomputed` count: it says what for. */
bool tt_when_same_times(const tt_when *a, const tt_when *b);

/* ---- inside of when.c ---- */
#define TT_WHEN_LISTS 16
typedef struct tt_when_table { /* of a graph */
    struct tt_when_entry *list[TT_WHEN_LISTS];
} tt_when_table;

#endif
