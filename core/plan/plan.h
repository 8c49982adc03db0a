/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PLAN_H
#define TT_PLAN_H
#include "graph/graph.h"
#include "plan/program.h"

/* core/plan: every byte before step 1 (R9). Static shapes give exact lifetimes; offsets hold for
 * the largest local box, so one plan serves every rank of a stage. Answers for any world without
 * processes.
 *
 *   state   parameters, optimizer, accumulators, scalars, metrics: stable across programs
 *   slot    forward values that I reads (the whole backward where it is not split)
 *   keep    forward values that W reads
 *   wgrad   values of I that W reads, and received cotangents
 *   work    everything else, kernels' scratch included
 * Slot, keep and wgrad hold one micro-batch each time: base[stage] + slot · bytes + offset, slots
 * coloured by the rank's program from the receive (or a local neighbour's hand-over) to the last
 * reader (P3). Without a pipeline these values live in work, on one timeline of forward and
 * backward.
 *
 * An output lies on an operand where the backend's kernel says it may (tt_kernel.in_place) and
 * nobody reads the operand any more: the loss's gradient in the logits' bytes.
 *
 * A plan ends in the program of a rank (program.h), which says what happens before what. The lists
 * of nodes here are what it is lowered from: a collective that is marked async has its operands and
 * scratch to itself from its place in the list to its wait. tt_program_verify proves the program. */

/* Messages of a directed pair that do not wait for their receiver (comm.h). */
#define TT_BUFFERED_SENDS 2

static inline tt_stage_part tt_node_part(const tt_node *n)
{
    return n->when->region == TT_FORWARD ? TT_PART_F
           : n->when->is_weight_grad     ? TT_PART_W
                                         : TT_PART_I;
}

typedef struct tt_loc {
    tt_space space;
    int64_t offset;        /* in its space; slots: within one slot */
    const tt_state *state; /* STATE: the member's offset in the stack depends on the rank's box */
    int member;            /* -1 = the whole stack */
} tt_loc;

typedef struct tt_wait { /* until an async collective is over */
    int before;          /* the item of the list that may not run earlier; n = none, the end */
    const tt_node *node;
} tt_wait;

typedef struct tt_nodes {
    tt_node **items;
    int n;
    tt_wait *waits; /* ascending */
    int n_waits;
} tt_nodes;

typedef struct tt_stage_plan {
    int stage;
    tt_nodes part[TT_N_PARTS];      /* this stage's nodes in order */
    bool in_slots;                  /* what lives between the parts is in slots, not in work */
    int n_slots[TT_N_HOLDS];        /* slots of each class */
    int *slot[TT_N_HOLDS];          /* by micro-batch: its slot */
    int64_t slot_bytes[TT_N_HOLDS]; /* of one slot */
    int64_t slot_base[TT_N_HOLDS];  /* of slot 0, in the class's space */
    int first[2]; /* micro-batch that stores where others add: of forwards, of backwards */
} tt_stage_plan;

typedef struct tt_plan {
    const tt_graph *graph;
    const tt_schedule *schedule;
    const tt_programs *programs; /* what each pipeline rank does, messages included */
    tt_costs costs;              /* they were ordered by: in FLOPs, sort of */
    int buffered_messages;       /* of a directed pair that do not wait for their receiver */
    double bubble;               /* idle share of the ranks' time in the micro-batches of a step */
    int pp_rank;
    tt_loc *value;    /* by value id */
    int64_t *scratch; /* by node id: offset in work, -1 = none */
    int64_t *scratch_bytes;
    int8_t *in_place;      /* by node id: the operand whose bytes out[0] takes over, -1 = none */
    int64_t *state;        /* by state id: offset in the state space, -1 = not on this rank */
    tt_stage_plan *stages; /* of this rank, ascending */
    int n_stages;
    tt_nodes epilogue, update;  /* of all its stages, in graph order */
    int64_t bytes[TT_N_SPACES]; /* peak of each space on the fullest rank */
    int64_t state_bytes_by_kind[8];
    double flops;        /* a micro-batch, forward and backward, one rank */
    uint64_t hash;       /* equal on all ranks, compared before step 1 */
    tt_program *program; /* what it all comes to, of the rank at tt_plan_opts.coords */
} tt_plan;

typedef struct tt_plan_opts {
    const tt_schedule *schedule;
    /* Scratch bytes a kernel asks for; NULL = none. */
    size_t (*scratch)(void *user, const tt_kernel_call *c);
    /* Operands whose memory a kernel's first output may be, a bit each; NULL = none. */
    int (*in_place)(void *user, const char *op);
    void *user;
    int pp_rank;           /* plan for the stages of this pipeline rank */
    const int32_t *coords; /* of the rank that the program is of; NULL: the first of these stages */
    /* Another rank's plan of this graph and schedule: what all ranks share is taken from it. NULL:
     * made, and checked. */
    const tt_plan *like;
} tt_plan_opts;

tt_status tt_plan_make(const tt_graph *g, const tt_plan_opts *o, tt_arena *a, tt_plan **out,
                       tt_error *err);
/* What each stage takes for F, I and W, and a message: the order of all ranks' programs follows
 * from it, so it is a function of the graph alone: on tt_machine_order (P2). */
void tt_plan_costs(const tt_graph *g, tt_arena *a, tt_costs *out);
tt_stage_plan *tt_plan_stage(const tt_plan *p, int stage); /* NULL: on another rank */
/* The programs of every pipeline rank without places and boxes: what ranks compute and say to each
 * other. Needs no plan. */
tt_program *tt_program_outlines(const tt_graph *g, const tt_schedule *schedule, tt_arena *a);
/* waits.c: where what is under way in a list is waited for: before the first item that reads what
 * it writes, or writes what it reads, and at the end of the list; `open` (NULL: none) carries it to
 * and from lists that follow each other. */
typedef struct tt_under_way {
    const tt_node **items;
    int n;
} tt_under_way;
void tt_plan_find_waits(tt_arena *a, tt_nodes *l, tt_under_way *open, bool last);
/* Is this node's work to be over before e begins? */
bool tt_plan_waits_for(const tt_node *e, const tt_node *under_way);
/* Do a stage's forward and backward follow each other, micro-batch by micro-batch? Then what the
 * one begins the other may wait for. */
bool tt_plan_one_timeline(const tt_graph *g);
/* The value whose memory v's is (views, states, aliases), or is a part of (within). */
const tt_value *tt_plan_alias(const tt_value *v);
/* The value whose node writes what a reader of v reads: views and slices looked through. It may be
 * a piece of its alias. */
const tt_value *tt_plan_source(const tt_value *v);
/* Bytes from the alias's first to v's, on the rank at these coordinates; NULL: all 0. */
int64_t tt_plan_skip(const tt_graph *g, const tt_value *v, const int32_t *coords);
/* Its output is its first operand in another shape, and nothing runs. */
bool tt_plan_is_view(const tt_node *n);
/* A slice of what is in memory: its reader reads it there. */
bool tt_plan_is_slice(const tt_node *n);
/* Bytes of v's own memory on the fullest rank; a chunk's rows where only these exist. */
int64_t tt_plan_value_bytes(const tt_graph *g, const tt_value *v);
/* The kernel that adds to an accumulator where its producer cannot. */
const char *tt_accumulate_kernel(const tt_state *s);
/* The local tensor type of v on a rank, data NULL. coords NULL: largest box, begin 0. */
void tt_plan_tensor(const tt_graph *g, const tt_value *v, const int32_t *coords, tt_tensor *out);

#endif
