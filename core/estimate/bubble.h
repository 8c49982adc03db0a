/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_BUBBLE_H
#define TT_BUBBLE_H
#include "exec/exec.h"

/* Idle share of all ranks' time in the micro-batches of a step. */
typedef struct tt_bubble {
    double planned;  /* with the durations the plan was ordered by */
    double replayed; /* the same programs in virtual time, with what parts took: free of what ranks
                        on the same cores take from each other */
    double measured; /* what the ranks did not compute, on the clock */
} tt_bubble;

/* Of the step that e traced last, over the ranks of d. [collective] */
tt_status tt_bubble_measure(const tt_exec *e, const tt_plan *p, const tt_dist *d, tt_bubble *out,
                            tt_error *err);

/* What it is made of: times of a rank's items in ns, and over ranks the longest but for `busy`,
 * which is their sum. */
typedef struct tt_part_times {
    int64_t part[TT_MAX_STAGES][TT_N_ACTIONS]; /* median of the micro-batches; 0 = another rank's */
    int64_t message, span;                     /* fastest receive; first item to last */
    int64_t busy;                              /* not in messages */
} tt_part_times;
tt_status tt_part_times_of(const tt_item_time *t, int n, tt_part_times *out, tt_error *err);
/* out->replayed and out->measured. */
tt_status tt_bubble_of(const tt_programs *p, int n_buffers, const tt_part_times *all, int world,
                       tt_bubble *out, tt_error *err);

#endif
