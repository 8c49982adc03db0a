/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PLAN_H
#define TT_PLAN_H
#include "graph/graph.h"
#include "plan/program.h"

/* core/plan: plans every byte before step 1 (R9). Static shapes give exact lifetimes. Offsets are
 * for the largest local box, so one plan serves every rank of a stage. It needs no processes, so it
 * can plan for a world of any size.
 *
 *   state   parameters, optimizer, accumulators, scalars, metrics: stable across programs
 *   offloaded  copies of forward values in pinned host memory
 *   slot    forward values that I reads (the whole backward where it is not split)
 *   keep    forward values that W reads
 *   wgrad   values that I makes and W reads, and received cotangents
 *   work    everything else, kernels' scratch included
 * A slot of slot, keep and wgrad holds the values of one micro-batch, at base[stage] + slot · bytes
 * + offset. A micro-batch has its slot from the receive (or the hand-over from a stage on the same
 * rank) to the last reader, in the order of the rank's program (P3). Without a pipeline these
 * values live in work, on one timeline of forward and backward.
 *
 * An output takes over the bytes of an operand if the backend's kernel allows it
 * (tt_kernel.in_place) and nothing reads the operand later: the gradient of the logits lies in the
 * logits' bytes.
 *
 * The plan is lowered to the program of a rank (program.h), which has the order of all
 * instructions. In the lists of nodes here, an async collective has its operands and scratch to
 * itself from its position in the list to its wait. tt_program_verify proves the program. */

/* So many messages of a directed pair of ranks are sent without waiting for the receiver
 * (comm.h). */
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

typedef struct tt_wait { /* for the end of an async collective */
    int before;          /* the item of the list that has to wait; n = the end of the list */
    const tt_node *node;
    bool implied; /* by the wait for a later copy of the same queue, before the same item */
} tt_wait;

typedef struct tt_nodes {
    tt_node **items;
    int n;
    tt_wait *waits; /* ascending */
    int n_waits;
} tt_nodes;

typedef struct tt_stage_plan {
    int stage;
    tt_nodes part[TT_N_PARTS];      /* this stage's nodes, in order */
    bool in_slots;                  /* values between the parts live in slots, not in work */
    int n_slots[TT_N_HOLDS];        /* slots of each class */
    int *slot[TT_N_HOLDS];          /* by micro-batch: its slot */
    int64_t slot_bytes[TT_N_HOLDS]; /* of one slot */
    int64_t slot_base[TT_N_HOLDS];  /* of slot 0, in the class's space */
    int64_t offloaded_bytes, offloaded_base; /* the same of the offloaded space */
    int first[2]; /* micro-batch that stores where others add: of forwards, of backwards */
} tt_stage_plan;

typedef struct tt_plan {
    const tt_graph *graph;
    const tt_schedule *schedule;
    const tt_programs *programs; /* of each pipeline rank, messages included */
    tt_costs costs;              /* that ordered the programs (slots.c) */
    int buffered_messages;       /* of a directed pair; at most TT_BUFFERED_SENDS */
    double bubble;               /* idle share of the ranks' time in the micro-batches of a step */
    int pp_rank;
    tt_loc *value;    /* by value id */
    int64_t *scratch; /* by node id: offset in work, -1 = none */
    int64_t *scratch_bytes;
    int8_t *in_place;      /* by node id: the operand whose bytes out[0] takes over, -1 = none */
    int64_t *state;        /* by state id: offset in the state space, -1 = not on this rank */
    tt_stage_plan *stages; /* of this rank, ascending */
    int n_stages;
    tt_nodes epilogue, update;     /* of all its stages, in graph order */
    int64_t bytes[TT_N_SPACES];    /* peak of each space on the fullest rank */
    int64_t written_end, read_end; /* as in tt_program */
    int64_t state_bytes_by_kind[8];
    double flops;        /* of one micro-batch, forward and backward, on one rank */
    uint64_t hash;       /* equal on all ranks, compared before step 1 */
    tt_program *program; /* of the rank at tt_plan_opts.coords */
} tt_plan;

typedef struct tt_plan_opts {
    const tt_schedule *schedule;
    /* Scratch bytes that a kernel needs; NULL = none. */
    size_t (*scratch)(void *user, const tt_kernel_call *c);
    /* Operands whose memory the first output of an op's kernel may take over, a bit each; NULL =
     * none. */
    int (*in_place)(void *user, const char *op);
    void *user;
    int pp_rank;           /* plan for the stages of this pipeline rank */
    const int32_t *coords; /* of the rank that the program is of; NULL: the first of these stages */
    /* Another rank's plan of this graph and schedule: the parts that all ranks share are taken from
     * it. NULL: they are made and checked. */
    const tt_plan *like;
    bool replays; /* the epilogue and the update may run twice (tt_program.kept) */
} tt_plan_opts;

tt_status tt_plan_make(const tt_graph *g, const tt_plan_opts *o, tt_arena *a, tt_plan **out,
                       tt_error *err);
/* The programs of every pipeline rank without places and boxes: the computation and
 * communication of all ranks. Needs no plan. */
tt_program *tt_program_outlines(const tt_graph *g, const tt_schedule *schedule, tt_arena *a);
/* waits.c: finds where each async collective of a list is waited for: before the first item that
 * reads its output or writes its operands, or at the end of the list. `open` (NULL: none)
 * carries collectives that are not over from one list to the next. */
typedef struct tt_under_way {
    const tt_node **items;
    int n;
} tt_under_way;
void tt_plan_find_waits(tt_arena *a, tt_nodes *l, tt_under_way *open, bool last);
/* Does a stage's backward follow its forward directly, micro-batch by micro-batch? Then a
 * collective may begin in the forward and be waited for in the backward. */
bool tt_plan_one_timeline(const tt_graph *g);
/* The value in whose memory v lies: v itself, or the value of which v is a view, alias or part
 * (within). */
const tt_value *tt_plan_alias(const tt_value *v);
/* The value whose node writes the bytes that a reader of v reads: v, or the value of which v is
 * a view or slice. It may be a piece of its alias. */
const tt_value *tt_plan_source(const tt_value *v);
/* waits.c: the state whose memory a value is; NULL: it has other memory. */
const tt_state *tt_plan_state(const tt_value *v);
/* waits.c: the i-th state that n writes; NULL after the last one. */
const tt_state *tt_plan_written(const tt_node *n, int i);
/* Bytes from the begin of the alias to the begin of v, on the rank at these coordinates; NULL:
 * all 0. */
int64_t tt_plan_skip(const tt_graph *g, const tt_value *v, const int32_t *coords);
/* Is its output its first operand in another shape, so that nothing runs? */
bool tt_plan_is_view(const tt_node *n);
bool tt_plan_runs(const tt_node *n); /* it is no parameter, state or view */
/* Is it a slice of a value in memory, where its reader reads it? */
bool tt_plan_is_slice(const tt_node *n);
/* Bytes of v's own memory on the fullest rank; of one chunk if only a chunk's rows exist. */
int64_t tt_plan_value_bytes(const tt_graph *g, const tt_value *v);
/* The kernel that adds to an accumulator where its producer cannot. */
tt_space tt_plan_state_space(const tt_state *s);
/* How long a micro-batch has its slot of the offloaded space. */
static inline tt_hold tt_plan_offloaded_hold(const tt_schedule *s)
{
    return s->splits ? TT_HOLD_KEEP : TT_HOLD_SLOT;
}
const char *tt_accumulate_kernel(const tt_state *s);
/* The local tensor type of v on a rank, data NULL. coords NULL: largest box, begin 0. */
void tt_plan_tensor(const tt_graph *g, const tt_value *v, const int32_t *coords, tt_tensor *out);

#endif
