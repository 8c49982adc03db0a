/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_MEASURE_H
#define TT_MEASURE_H
#include "train/train.h"
#include "train/writer.h"

/* The numbers of measured steps (the pass measure): norms of gradients, weights and updates, attention's largest
 * logits, and what a check of weights and gradients counts. One per loop and program. */

typedef struct tt_loop tt_loop;
typedef struct tt_measures tt_measures;
/* NULL if the program measures nothing. [setup] */
tt_measures *tt_measures_new(const tt_setup *s);
void tt_measures_free(tt_measures *m);
size_t tt_measures_most(const tt_setup *s); /* metrics that a record may have because of it */
/* Takes the numbers of the step that has just run: adds up those of all ranks. updated: the parameters were
 * changed. loss_scale: of the gradients. [collective] */
tt_status tt_measures_take(tt_measures *m, const tt_rank *r, int64_t step, bool updated,
                           double loss_scale, tt_error *err);
int64_t tt_measures_step(const tt_measures *m); /* the step whose numbers it has */
/* They are appended to out; returns how many. */
size_t tt_measures_metrics(const tt_measures *m, tt_metric *out);
/* What the check finds, as a sentence. True: NaN, Inf or saturated elements. */
bool tt_measures_check(const tt_measures *m, tt_str *out);

/* measured.c: is this step measured? All ranks say the same. */
bool tt_loop_measures(const tt_loop *l, int64_t step);
bool tt_loop_shows_measures(const tt_loop *l, int64_t step); /* has its record the numbers? */
void tt_loop_open_measures(tt_loop *l);                      /* of the program that runs now */
/* Takes the numbers of the step in flight if it is measured, and checks them if a check is due. [collective] */
tt_status tt_loop_take_measures(tt_loop *l, tt_error *err);

#endif
