/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PASSES_NORM_H
#define TT_PASSES_NORM_H
#include "graph/graph.h"
#include "passes/passes.h"
#include "pipeline/schedule.h"

/* The norm of all gradients, of any order, for the pass update. The builder's region is the epilogue. */

typedef struct tt_norm {
    double order; /* 2, 1, INFINITY (the largest element), or any above 0 */
    tt_value
        *stages[TT_MAX_STAGES]; /* of each stage with gradients: its part, whole on its ranks */
    tt_value
        *largest[TT_MAX_STAGES]; /* by stage, of all gradients; NULL: the order does not need it */
    int n;                       /* stages with gradients */
} tt_norm;

/* Describes the stages' parts. grads: the reduced gradients, by stack; NULL: the stack has none. Those of groups
 * that are not clipped are not counted, but make the norm NaN if one of them is not finite. */
void tt_norm_stages(tt_builder *b, tt_value *const *grads, const tt_update_opts *o, tt_norm *out);
/* The norm of all stages, at the stage of the builder. */
tt_value *tt_norm_whole(tt_builder *b, const tt_norm *n, int stage);
int tt_stage_of_stack(const tt_stack *s); /* its first one */

#endif
