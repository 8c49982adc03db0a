/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_EARLY_H
#define TT_EARLY_H
#include "base/base.h"

typedef struct tt_loop tt_loop;

typedef struct tt_early {                  /* early.c */
    double best;                           /* validation loss */
    int64_t best_step, worse, validations; /* worse: since then, in a row */
    bool stops;   /* the validation of this step was the last one that the run waits for */
    tt_str lines; /* rank 0: of early_stopping.txt */
} tt_early;

/* early.c: what the validations of a resumed run say. After tt_loop_length. [collective] */
tt_status tt_loop_open_early(tt_loop *l, tt_error *err);
/* A validation of this step has ended. [collective] */
tt_status tt_loop_note_early(tt_loop *l, double loss, tt_error *err);

#endif
