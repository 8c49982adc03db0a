/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SAVES_H
#define TT_SAVES_H
#include "train/train.h"

/* When and what the loop saves, and its exports to Hugging Face; saver.h has the thread that writes. */

typedef struct tt_loop tt_loop;
/* save.c: with async_mode "disabled" tt_loop_save returns when the step is published */
const char *tt_loop_step_folders(const tt_loop *l, tt_arena *a);
double tt_loop_job_lr(const tt_loop *l);
bool tt_loop_has_own_lr(const tt_loop *l); /* `ttrun ctl` has set another one than the job's */
bool tt_loop_has_own_converters(const tt_loop *l); /* likewise */
tt_status tt_loop_open_saver(tt_loop *l, tt_error *err);
tt_status tt_loop_follow_saver(tt_loop *l, tt_error *err); /* to another program, between saves */
tt_status tt_loop_save(tt_loop *l, bool model_only, bool snapshot, tt_error *err);
void tt_loop_wait_staged(tt_loop *l); /* before the states that a save copies are written */
tt_status tt_loop_save_progress(tt_loop *l, int32_t all, tt_error *err); /* of tt_saver_poll() */
/* Between the batches of a validation: a save that all ranks have written is published. [collective] */
tt_status tt_loop_save_meanwhile(tt_loop *l, tt_error *err);
tt_status tt_loop_finish_save(tt_loop *l, tt_error *err);
/* Also with checkpoint.on_error "continue" the last save of a run must succeed. */
tt_status tt_loop_finish_last_save(tt_loop *l, tt_error *err);
bool tt_loop_save_due(const tt_loop *l, bool *snapshot); /* by the number of this step */
bool tt_loop_save_time(const tt_loop *l);                /* by this rank's clock */
/* export.c: rank 0 writes the last step, which is saved, to hf/step-N, if the job asks for it.
 * replace: also if that folder exists and is newer than the step. */
tt_status tt_loop_save_last_hf(tt_loop *l, bool replace, tt_error *err);
/* The same for a step that was just saved, if checkpoint.hf_interval says so. A failure is a line of the log.
 * loop: tt_loop. [thread of the saver] */
void tt_loop_save_hf(void *loop, int64_t step);

#endif
