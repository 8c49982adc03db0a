/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PLAN_IMPL_H
#define TT_PLAN_IMPL_H
#include "graph/rewrite.h"
#include "plan/plan.h"

/* Inside of the planner. */

#define TT_PLAN_ALIGN 64

typedef struct tt_live {
    bool known, placed, received;
    uint8_t parts;   /* bit a part: written or read there */
    int first, last; /* times, inclusive */
    int held;        /* the last one at which a concurrent collective has it */
    int64_t bytes, offset;
    /* Whose bytes it takes over, that then live to the end of both; NULL: none. own_last: without. */
    struct tt_live *host;
    int own_last;
    const tt_value *value;
    const tt_node *scratch_of;
} tt_live;

typedef struct planner {
    const tt_plan_opts *o;
    tt_arena *a;
    tt_plan *plan;
    tt_live *live;             /* by value id */
    TT_VEC(tt_live) scratches; /* without an offset yet */
} planner;

/* lower.c: the program of the rank at these coordinates (NULL: 0 everywhere). */
void tt_program_make(const tt_plan *p, const int32_t *coords, tt_arena *a, tt_program *out);
/* Equal on all ranks that plan the same. */
uint64_t tt_program_hash(const tt_program *p, uint64_t seed);

/* Offsets for these lives; returns the peak. Largest first, lowest free place. */
int64_t tt_plan_color(tt_arena *a, tt_live **lives, size_t n);
/* The most bytes alive at once: no placement has a lower peak. */
int64_t tt_plan_most_alive(tt_arena *a, tt_live *const *lives, size_t n);
int64_t tt_plan_bytes(const tt_graph *g, const tt_type *t, const tt_placement *p);
static inline int64_t tt_plan_round(int64_t bytes)
{
    return (bytes + TT_PLAN_ALIGN - 1) / TT_PLAN_ALIGN * TT_PLAN_ALIGN;
}
bool tt_plan_here(const tt_plan *p, int stage);
/* Does this rank give or take a value of this step-region node? */
bool tt_plan_takes_part(const tt_plan *p, const tt_node *n);
/* live.c: lifetimes of a stage's values, and of the step regions', then offsets. */
void tt_plan_stage_lives(planner *p, tt_stage_plan *s);
void tt_plan_step_lives(planner *p);
/* lists.c: what a pipeline rank runs; of a plan no more than that. */
void tt_plan_lists(const tt_graph *g, const tt_schedule *schedule, int pp_rank, tt_arena *a,
                   tt_plan *out);
/* values.c */
bool tt_plan_runs(const tt_node *n);         /* it is no parameter, state or view */
bool tt_plan_communicates(const tt_node *n); /* a collective that is more than a local copy */
/* Where a value lives that crosses parts, or that a message fills before its part runs. */
tt_space tt_plan_space_of(const tt_live *l);
/* in_place.c: of a list at times from `at`, the outputs that take over an operand's bytes.
 * in_slots: of a stage whose values between parts are in slots. */
void tt_plan_take_over(planner *p, const tt_nodes *l, int at, bool in_slots);
/* Offsets for n lives, of which those with a host follow it, if the peak is not lower with each for
 * itself: then none has a host. Returns the peak. */
int64_t tt_plan_color_in_place(planner *p, tt_live **lives, size_t n);
/* slots.c: programs of all ranks, and this rank's slots. */
tt_status tt_plan_programs(planner *p, tt_error *err);
/* verify_slots.c: each section finds its slots free, or holding its micro-batch; else what is
 * wrong. */
const char *tt_program_check_slots(const tt_program *p);

/* ---- messages.c: the messages and collectives of all ranks of a mesh in a step ----
 *
 * Ranks of one pipeline coordinate run one list; only the iterations of its loops over token chunks
 * depend on more of a rank's coordinates. Along every atom that they do not depend on, all ranks
 * are at the same place of the same list when each of them is walked in turn, so a collective over such atoms
 * alone is met when one of them meets it, and a message stands for those of all. So the ranks at
 * coordinate 0 of these atoms stand for all, which is proved of every rank's list in the tests. */

/* How collectives that are begun early are carried out. */
typedef enum tt_concurrency {
    TT_CONCURRENT_QUEUES,   /* concurrently, on queues of their groups */
    TT_CONCURRENT_AT_BEGIN, /* where they are begun, by a communicator of one thread */
    TT_CONCURRENT_AT_WAIT   /* where they are waited for: debug.poison */
} tt_concurrency;
typedef struct tt_messages_opts {
    const tt_programs *programs;
    const tt_program *outlines; /* of all pipeline ranks; NULL: made */
    tt_concurrency concurrency;
    bool all; /* every rank, none stands for others */
} tt_messages_opts;
tt_status tt_plan_messages(const tt_graph *g, const tt_messages_opts *o, tt_arena *a,
                           tt_messages *out, tt_error *err);
/* loops.c */
/* How often the rank at these coordinates runs a loop; 1 where nothing in it is said to others. */
int64_t tt_loop_iterations(const tt_program *p, const tt_instr *loop, const int32_t *coords);
/* That loops in which something is said depend on. */
uint16_t tt_loop_atoms(const tt_program *p);
/* All ranks of the graph's mesh reach the end of a step, whatever carries out its collectives, with
 * TT_BUFFERED_SENDS of a directed pair that do not wait for their receivers; and by rendezvous with
 * programs of the same order that are made for it (NULL: not asked). */
tt_status tt_plan_check_ranks(const tt_graph *g, const tt_programs *p,
                              const tt_programs *unbuffered, const tt_program *outlines,
                              tt_error *err);
/* verify_sizes.c: members of a group agree on what each gives and gets. */
tt_status tt_plan_check_sizes(const tt_graph *g, tt_error *err);

#endif
