/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_BUBBLE_H
#define TT_BUBBLE_H
#include "exec/exec.h"
#include "plan/plan.h"

/* The idle share of all ranks' time during the micro-batches of a step. */
typedef struct tt_bubble {
    double planned;  /* simulated from the durations that the plan assumed */
    double replayed; /* simulated from measured per-section times, so ranks that share cores do not
                        distort it */
    double measured; /* the part of the measured time in which the ranks did not compute */
} tt_bubble;

/* Computes the bubble of the step that e traced last, over the ranks of d. [collective] */
tt_status tt_bubble_measure(const tt_exec *e, const tt_plan *p, const tt_dist *d, tt_bubble *out,
                            tt_error *err);

/* The times it is computed from, in ns. Over the ranks the maximum is taken, of `busy` the sum. */
typedef struct tt_part_times {
    int64_t part[TT_MAX_STAGES]
                [TT_N_ACTIONS]; /* median over the micro-batches; 0 = another rank's */
    int64_t message, span;      /* fastest receive; first item to last */
    int64_t busy;               /* time that was not spent in messages */
} tt_part_times;
tt_status tt_part_times_of(const tt_item_time *t, int n, tt_part_times *out, tt_error *err);
/* Sets out->replayed and out->measured. */
tt_status tt_bubble_of(const tt_programs *p, int n_buffers, const tt_part_times *all, int world,
                       tt_bubble *out, tt_error *err);

#endif
