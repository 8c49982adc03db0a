/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_BUBBLE_H
#define TT_BUBBLE_H
#include "train/train.h"

/* Idle share of all ranks' time in the micro-batches of a step. */
typedef struct tt_bubble {
    double planned;  /* with the durations the plan was ordered by */
    double replayed; /* the same programs in virtual time, with what parts took: free of what ranks
                        on the same cores take from each other */
    double measured; /* what the ranks did not compute, on the clock */
} tt_bubble;

/* Of the step that was traced last. [collective] */
tt_status tt_bubble_measure(const tt_rank *r, tt_bubble *out, tt_error *err);

#endif
