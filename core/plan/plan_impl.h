/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PLAN_IMPL_H
#define TT_PLAN_IMPL_H
#include "graph/rewrite.h"
#include "plan/plan.h"

/* Private to core/plan. */

typedef struct tt_live {
    bool known, placed, received;
    uint8_t parts;   /* bit a part: written or read there */
    int first, last; /* times, inclusive */
    int held;        /* the last time at which a concurrent collective uses it */
    int64_t bytes, offset;
    /* The life whose bytes it takes over, which then lasts to the end of both; NULL: none.
     * own_last: its last time without this. */
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
/* Equal on all ranks if their plans agree. */
uint64_t tt_program_hash(const tt_program *p, uint64_t seed);

/* Finds offsets for these lives; returns the peak. */
int64_t tt_plan_color(tt_arena *a, tt_live **lives, size_t n);
/* The most bytes alive at once: no placement has a lower peak. */
int64_t tt_plan_most_alive(tt_arena *a, tt_live *const *lives, size_t n);
int64_t tt_plan_bytes(const tt_graph *g, const tt_type *t, const tt_placement *p);
static inline int64_t tt_plan_round(const tt_graph *g, int64_t bytes)
{
    return (bytes + g->alignment - 1) / g->alignment * g->alignment;
}
bool tt_plan_here(const tt_plan *p, int stage);
/* Does this rank send or receive a value of this step-region node? */
bool tt_plan_takes_part(const tt_plan *p, const tt_node *n);
/* live.c: lifetimes of the values of a stage, and of the step regions, then offsets. */
void tt_plan_stage_lives(planner *p, tt_stage_plan *s);
void tt_plan_step_lives(planner *p);
/* lists.c: fills in the lists that a pipeline rank runs, and nothing else of the plan. */
void tt_plan_lists(const tt_graph *g, const tt_schedule *schedule, int pp_rank, tt_arena *a,
                   tt_plan *out);
/* values.c */
bool tt_plan_communicates(const tt_node *n); /* a collective that is more than a local copy */
/* The space of a value that lives across parts, or that a message fills before its part runs. */
tt_space tt_plan_space_of(const tt_live *l);
/* in_place.c: finds the outputs that take over an operand's bytes, in a list whose times begin
 * at `at`. in_slots: the stage's values between parts are in slots. */
void tt_plan_take_over(planner *p, const tt_nodes *l, int at, bool in_slots);
/* Finds offsets for n lives. Lives with a host lie in it, unless the peak is lower if each has
 * its own bytes: then none keeps its host. Returns the peak. */
int64_t tt_plan_color_in_place(planner *p, tt_live **lives, size_t n);
/* slots.c: programs of all ranks, and this rank's slots. */
tt_status tt_plan_programs(planner *p, tt_error *err);
/* verify_slots.c: does each section find its slots free, or with its own micro-batch? NULL: yes;
 * else the fault. */
const char *tt_program_check_slots(const tt_program *p);
/* … does each accumulation either store or add, in each situation? */
const char *tt_program_check_forms(const tt_program *p, const tt_instr **where);
/* verify_fresh.c: does a step store each such state before it reads it, and change no other if its
 * numbers are not finite? */
const char *tt_program_check_fresh(const tt_program *p, const tt_instr **where);

/* ---- messages.c: the messages and collectives of all ranks of a mesh in a step ----
 *
 * Ranks with one pipeline coordinate run one list. Only the number of iterations of its loops over
 * token chunks depends on further coordinates. Ranks that differ only in atoms on which it does
 * not depend are always at the same position of the same list. So if one of them arrives at a
 * collective over such atoms, all do, and one message represents those of all. It is enough to
 * simulate the ranks at coordinate 0 of these atoms; tests/plan/test_messages.c simulates every
 * rank. */

/* When async collectives run. */
typedef enum tt_concurrency {
    TT_CONCURRENT_QUEUES,   /* concurrently, on queues of their groups */
    TT_CONCURRENT_AT_BEGIN, /* where they begin, on a communicator of one thread */
    TT_CONCURRENT_AT_WAIT   /* where they are waited for: debug.poison */
} tt_concurrency;
typedef struct tt_messages_opts {
    const tt_programs *programs;
    const tt_program *outlines; /* of all pipeline ranks; NULL: made */
    tt_concurrency concurrency;
    bool all; /* simulate every rank */
} tt_messages_opts;
tt_status tt_plan_messages(const tt_graph *g, const tt_messages_opts *o, tt_arena *a,
                           tt_messages *out, tt_error *err);
/* loops.c */
/* How often the rank at these coordinates runs a loop; 1 if no instruction in it communicates. */
int64_t tt_loop_iterations(const tt_program *p, const tt_instr *loop, const int32_t *coords);
/* The atoms on which loops that communicate depend. */
uint16_t tt_loop_atoms(const tt_program *p);
/* Checks that all ranks of the graph's mesh reach the end of a step, for each tt_concurrency, with
 * TT_BUFFERED_SENDS messages per directed pair that do not wait for their receivers; and also with
 * rendezvous, for the programs `unbuffered` of the same order (NULL: not checked). */
tt_status tt_plan_check_ranks(const tt_graph *g, const tt_programs *p,
                              const tt_programs *unbuffered, const tt_program *outlines,
                              tt_error *err);
/* verify_sizes.c: members of a group agree on what each of them sends and receives. */
tt_status tt_plan_check_sizes(const tt_graph *g, tt_error *err);

#endif
