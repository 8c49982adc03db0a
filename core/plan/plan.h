/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PLAN_H
#define TT_PLAN_H
#include "graph/graph.h"
#include "pipeline/schedule.h"
#include <ttrun/backend.h>

/* core/plan: every byte before step 1 (R9). Static shapes give exact lifetimes; offsets hold for
 * the largest local box, so one plan serves every rank of a stage. Answers for any world without
 * processes.
 *
 *   state   parameters, optimizer, accumulators, scalars, metrics: stable across programs
 *   slot    forward values the backward of the same micro-batch reads; one slot a micro-batch in
 * flight work    everything else, kernels' scratch included With one micro-batch in flight and one
 * stage on the rank slot values live in work, on one timeline of forward and backward.
 *
 * Happens-before: a rank has one queue, the interpreter's, and its order is the order of the lists
 * here; kernels, collectives and copies are done when their instruction is (sends copy, receives
 * return filled). So the last reader of a byte comes before its next writer if and only if it
 * stands before it, which tt_plan_verify runs through. With more queues (a communication queue, a
 * device's streams) a reuse across queues needs an event, and the check the partial order. */

typedef enum tt_space {
    TT_SPACE_NONE,
    TT_SPACE_STATE,
    TT_SPACE_SLOT,
    TT_SPACE_WORK,
    TT_N_SPACES
} tt_space;

typedef struct tt_loc {
    tt_space space;
    int64_t offset;        /* in its space; slots: within one slot */
    const tt_state *state; /* STATE: the member's offset in the stack depends on the rank's box */
    int member;            /* -1 = the whole stack */
} tt_loc;

typedef struct tt_stage_plan {
    int stage;
    tt_node **forward, **backward, **epilogue, **update; /* this stage's nodes in order */
    int n_forward, n_backward, n_epilogue, n_update;
    int n_slots;        /* micro-batches in flight */
    bool in_slots;      /* what the backward reads of the forward is in slots, not in work */
    int64_t slot_bytes; /* of one slot */
    int64_t slot_base;  /* of slot 0, in the slot space of a rank */
} tt_stage_plan;

typedef struct tt_plan {
    const tt_graph *graph;
    const tt_schedule *schedule;
    tt_loc *value;    /* by value id */
    int64_t *scratch; /* by node id: offset in work, -1 = none */
    int64_t *scratch_bytes;
    int64_t *state; /* by state id: offset in the state space, -1 = not on this rank */
    tt_stage_plan *stages;
    int n_stages;
    int64_t bytes[TT_N_SPACES]; /* peak of each space on the fullest rank */
    int64_t state_bytes_by_kind[8];
    double flops;  /* a micro-batch, forward and backward, one rank */
    uint64_t hash; /* equal on all ranks, compared before step 1 */
} tt_plan;

typedef struct tt_plan_opts {
    const tt_schedule *schedule;
    /* Scratch bytes a kernel asks for; NULL = none. */
    size_t (*scratch)(void *user, const tt_kernel_call *c);
    void *user;
    int pp_rank; /* plan for the stages of this pipeline rank */
} tt_plan_opts;

tt_status tt_plan_make(const tt_graph *g, const tt_plan_opts *o, tt_arena *a, tt_plan **out,
                       tt_error *err);
/* No two values that are alive at once share a byte; every reader finds what was written: checked
 * by abstract run. */
tt_status tt_plan_verify(const tt_plan *p, tt_error *err);
/* The value whose memory v's is (views, states, aliases). */
const tt_value *tt_plan_alias(const tt_value *v);
/* Does v's first dim run over the tokens the chunk loop cuts? Such operands of loop nodes have
 * chunk_rows rows at a time. */
bool tt_plan_per_token(const tt_graph *g, const tt_value *v);
/* Bytes of v's own memory on the fullest rank; a chunk's rows where only these exist. */
int64_t tt_plan_value_bytes(const tt_graph *g, const tt_value *v);
/* The kernel that adds to an accumulator where its producer cannot. */
const char *tt_accumulate_kernel(const tt_state *s);
/* The local tensor type of v on a rank, data NULL. coords NULL: largest box, begin 0. */
void tt_plan_tensor(const tt_graph *g, const tt_value *v, const int32_t *coords, tt_tensor *out);

#endif
