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
    int64_t bytes, offset;
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
/* slots.c: programs of all ranks, and this rank's slots. */
tt_status tt_plan_programs(planner *p, tt_error *err);
/* verify_slots.c: the programs of all ranks run to their end; each part finds its slots free, or
 * holding its micro-batch. */
tt_status tt_plan_check_messages(const tt_plan *p, tt_error *err);
const char *tt_plan_check_slots(const tt_plan *p);

#endif
