/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TRAIN_REFERENCE_H
#define TT_TRAIN_REFERENCE_H
#include "train/loop.h"

/* What the loss's reference() gives with the weights that the run began with, mapped: tt_loop.reference, of the
 * training's samples, then of those of each validation's set. */

/* reference.c: after the resume: from files of the run's folder, or computed now. [collective] */
tt_status tt_loop_open_references(tt_loop *l, tt_error *err);
void tt_loop_close_references(tt_loop *l);
/* Of the training (-1) or of a validation's set: f32 [samples][seq_len]; NULL: the loss has none. */
const float *tt_loop_reference(const tt_loop *l, int set);
/* resume.c: loads the weights that the run began with, whatever checkpoints there are. [collective] */
tt_status tt_loop_load_first(tt_loop *l, tt_error *err);

#endif
