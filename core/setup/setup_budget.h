/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SETUP_BUDGET_H
#define TT_SETUP_BUDGET_H
#include "setup/setup_impl.h"

/* Shared by setup_recompute.c and setup_budget.c. */

typedef struct tt_recompute_cost { /* by pipeline rank */
    double *bytes;                 /* of the training program, by its plan */
    double *time;                  /* of a micro-batch, with communication that nothing hides */
    double *host;                  /* bytes of pinned host memory that its activations take */
    int *n_levels;                 /* of mode CUT */
    tt_graph *graph;
} tt_recompute_cost;

tt_recompute_cost tt_recompute_cost_new(const tt_setup *s, tt_arena *a);
/* Compiles and plans one way to recompute, in a. */
tt_status tt_setup_evaluate(tt_setup *s, const tt_recompute_opts *o, tt_arena *a,
                            tt_recompute_cost *out, tt_error *err);
/* The options of mode CUT at these levels, which stay the caller's, as `way` is; NULL: at this part of the
 * levels. */
void tt_setup_recompute_cut(tt_setup *s, const int *level, const int *way, double part,
                            tt_recompute_opts *out);
/* setup_budget.c: sets s->recompute_choice. */
tt_status tt_setup_choose_recompute(tt_setup *s, tt_error *err);

#endif
