/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PLAN_IMPL_H
#define TT_PLAN_IMPL_H
#include "plan/plan.h"

/* Inside of the planner. */

#define TT_PLAN_ALIGN 64

typedef struct tt_live {
    bool known, placed, received;
    uint8_t parts;   /* bit a part: written or read there */
    int first, last; /* times, inclusive */
    int held;        /* the last one at which a collective beside the program has it */
    int64_t bytes, offset;
    /* Whose bytes it takes over, that then live to the end of both; NULL: none. own_last: without.
     */
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
/* verify_slots.c: the programs of all ranks run to their end; each part finds its slots free, or
 * holding its micro-batch. */
tt_status tt_plan_check_messages(const tt_plan *p, tt_error *err);
const char *tt_plan_check_slots(const tt_plan *p);

#endif
