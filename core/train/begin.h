/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_BEGIN_H
#define TT_BEGIN_H
#include "train/train.h"

/* The weights that a run starts from (checkpoint.initial_load_path and its like). With checkpoint.save_frozen false the
 * run's checkpoints leave out the frozen parameters, which these weights have. */

/* A run folder stands for its newest step. */
const char *tt_begin_newest(tt_arena *a, const char *path);
bool tt_begin_is_hf(const tt_setup *s, const char *path);
/* Does the job ask for what this folder cannot give? */
tt_status tt_begin_check(const tt_setup *s, const char *path, tt_error *err);
/* Weights of a step folder, of Hugging Face or of PEFT. */
tt_status tt_begin_load(tt_rank *r, const char *path, bool report, tt_error *err);
/* All parameters of a step, and with the optimizer its states: frozen ones that it lacks come from st->frozen_from, or from
 * where the job says, if these are the weights that they were (tt_ckpt_identity). */
tt_status tt_begin_load_step(tt_rank *r, const char *step_folder, const tt_trainer_state *st,
                             const tt_load_opts *o, tt_error *err);

typedef struct tt_loop tt_loop;
/* The run has begun with the weights of this folder, so its checkpoints may leave out what stays frozen. */
tt_status tt_loop_leave_frozen(tt_loop *l, const char *path, tt_error *err);
/* The run has continued from a step. [collective] */
tt_status tt_loop_resume_frozen(tt_loop *l, const tt_trainer_state *st, tt_error *err);
/* Checkpoints are whole from here on. */
void tt_loop_save_frozen(tt_loop *l, const char *why);

#endif
