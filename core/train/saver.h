/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SAVER_H
#define TT_SAVER_H
#include "train/train.h"

/* Saving beside training. One saver a rank; a save is begin (rank 0 makes the folder) · stage (copy
 * this rank's pieces) · write (the saver's thread) · commit (rank 0's thread, once every rank has
 * written). The copy is all a step waits for. One save is in flight: the next one waits for it. The
 * ranks agree through the reduction the loop makes after every step, so their threads never talk to
 * each other. With async_mode "disabled" nothing is staged and the caller waits. */

typedef struct tt_saver tt_saver;

typedef struct tt_saver_opts {
    tt_rank *rank;
    const char *folder;        /* of the step folders */
    const tt_run_folder *held; /* checked before a save and a purge; NULL: not */
    tt_trainer_state state; /* what stays the same: job, fingerprints, world; strings are copied */
    int64_t keep_latest_k;
    bool background; /* stage; else the caller waits before the pieces change (tt_saver_finish) */
} tt_saver_opts;

/* Maps the staging buffer and starts the thread. */
tt_status tt_saver_new(const tt_saver_opts *o, tt_saver **out, tt_error *err);
/* Joins the thread after what it is at; a save that lacks other ranks' parts is left unpublished.
 * NULL is fine. */
void tt_saver_free(tt_saver *s);
/* Start a save of step st->step; waits for the one in flight. [collective] */
tt_status tt_saver_start(tt_saver *s, const tt_trainer_state *st, bool model_only, tt_error *err);
/* This rank's word for the reduction (max) after a step: 0 nothing in flight, 1 done with its part,
 * 2 still writing, 3 failed. */
int32_t tt_saver_poll(tt_saver *s);
/* What the ranks' words came to: commits when all are done, fails where one failed. [collective] */
tt_status tt_saver_advance(tt_saver *s, int32_t all, tt_error *err);
/* Wait until the save in flight is published. [collective] */
tt_status tt_saver_finish(tt_saver *s, tt_error *err);

#endif
