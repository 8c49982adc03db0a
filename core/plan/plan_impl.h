/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PLAN_IMPL_H
#define TT_PLAN_IMPL_H
#include "plan/plan.h"

/* Inside of the planner. */

#define TT_PLAN_ALIGN 64

typedef struct tt_live {
    bool known, placed, in_forward, in_backward;
    int first, last; /* times, inclusive */
    int64_t bytes, offset;
    const tt_value *value;
    const tt_node *scratch_of;
} tt_live;

typedef struct planner {
    const tt_plan_opts *o;
    tt_arena *a;
    tt_plan *plan;
    tt_live *live; /* by value id */
    TT_VEC(tt_live) scratches;
} planner;

/* Offsets for these lives; returns the peak. Largest first, lowest free place. */
int64_t tt_plan_color(tt_arena *a, tt_live **lives, size_t n);
int64_t tt_plan_bytes(const tt_graph *g, const tt_type *t, const tt_placement *p);
static inline int64_t tt_plan_round(int64_t bytes)
{
    return (bytes + TT_PLAN_ALIGN - 1) / TT_PLAN_ALIGN * TT_PLAN_ALIGN;
}
bool tt_plan_here(const tt_plan *p, int stage);

#endif
