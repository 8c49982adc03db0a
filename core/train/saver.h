/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SAVER_H
#define TT_SAVER_H
#include "train/train.h"

/* Asynchronous saving, one saver per rank. A save has four phases: begin (rank 0 makes the folder)
 * · stage (each rank's saver thread copies its pieces) · write (the same thread) · commit (rank 0's
 * thread, once every rank has written). Training goes on meanwhile. Only the update writes what a
 * checkpoint holds, so only the next update waits, until this rank's pieces are staged. At most one
 * save is in flight; the next one waits for it. The ranks agree through the reduction that the loop
 * makes after every step, so the saver threads need no communicator. With async_mode "disabled" the
 * caller waits until the step is published; then nothing is staged but the memory of a device.
 * After a step is published, rank 0's thread runs the command after_save, calls `published` and then removes
 * older steps, so no folder goes while one of them reads it. */

typedef struct tt_saver tt_saver;

typedef enum tt_saved_part {
    TT_SAVE_WHOLE,
    TT_SAVE_WEIGHTS, /* parameters alone */
    TT_SAVE_TRAINED, /* without the frozen parameters */
    TT_N_SAVED_PARTS
} tt_saved_part;

typedef struct tt_saver_opts {
    tt_rank *rank;
    const char *folder;        /* holds the step folders */
    const tt_run_folder *held; /* checked before a save and a purge; NULL: no check */
    tt_trainer_state state;    /* constant fields: job, fingerprints, world; strings are copied */
    tt_ckpt_keep keep;
    const char *after_save; /* command; NULL: none */
    /* After a step is published, on the thread of rank 0 that saves, before older steps go; NULL: none. What
     * fails is a line of its own. */
    void (*published)(void *user, int64_t step);
    /* After the save has ended well, on the caller's thread of every rank, at the same step; NULL: none. What
     * fails is an error of the call in which it ended. */
    tt_status (*ended)(void *user, int64_t step, bool model_only, bool snapshot, tt_error *err);
    void *user;
    bool goes_on;        /* a failed save is no error, see tt_saver_failure() */
    bool background;     /* asynchronous; else the caller waits with tt_saver_finish() */
    tt_dtype weights_as; /* dtype of the weights that are saved alone; TT_N_DTYPES: their own */
    double limit_s;      /* for a save that does not get on, and for after_save; 0: none */
} tt_saver_opts;

/* Maps the staging buffer, which nothing touches before the first save, and starts the thread. */
tt_status tt_saver_new(const tt_saver_opts *o, tt_saver **out, tt_error *err);
/* The same saver for another program of the rank. Nothing is in flight; the buffer stays if the pieces have
 * as many bytes. */
tt_status tt_saver_follow(tt_saver *s, const tt_saver_opts *o, tt_error *err);
/* Waits for the thread's current work and ends it. A save that lacks other ranks' parts stays
 * unpublished. NULL is allowed. false: the thread does not get on, as an error has said (limit_s). Then nothing
 * that it may read or write is freed, and the caller frees nothing of the rank. */
bool tt_saver_free(tt_saver *s);
/* Waits for the save in flight, so that the one of `step` can be started. *ready false (goes_on): it takes too
 * long, and a line has said so. [collective] */
tt_status tt_saver_await(tt_saver *s, int64_t step, bool *ready, tt_error *err);
/* Starts a save of step st->step; first waits for a save in flight. [collective] */
tt_status tt_saver_start(tt_saver *s, const tt_trainer_state *st, tt_saved_part part,
                         tt_error *err);
/* Waits until the save in flight has copied this rank's pieces. Before they are written: by the
 * update. */
void tt_saver_wait_staged(tt_saver *s);
/* Rank 0: the validation after this step has ended. Its checkpoint says so, now or once it is published; it may
 * be one that the run has resumed from, and may be gone. */
void tt_saver_validated(tt_saver *s, int64_t step);
int64_t tt_saver_step(const tt_saver *s); /* of the save that was started last */
/* Why the save that was started last failed, equal on all ranks; NULL: it did not, or is in flight.
 * Only with goes_on. */
const char *tt_saver_failure(const tt_saver *s);
/* This rank's value for the max-reduction after a step: 0 nothing in flight, 1 its part is written,
 * 2 still writing, 3 failed. */
int32_t tt_saver_poll(tt_saver *s);
/* Is a save in flight? The same on all ranks. */
bool tt_saver_in_flight(tt_saver *s);
/* Takes the maximum of the ranks' values: commits when all have written, fails if one has failed.
 * [collective] */
tt_status tt_saver_advance(tt_saver *s, int32_t all, tt_error *err);
/* Waits until the save in flight is published. TT_ETIMEOUT: it does not get on (limit_s). [collective] */
tt_status tt_saver_finish(tt_saver *s, tt_error *err);

struct tt_loop;
/* save.c: the loop's part of a state after this step, without strings and losses. */
tt_trainer_state tt_loop_trainer_state(const struct tt_loop *l);
/* ---- saved.c: what follows a save; a failure is a line of the log ---- */
/* after_save, `published`, the steps that do not stay, run.json. */
void tt_saved_follow(const tt_saver_opts *o, int64_t step);
/* The checkpoint says that the validation after its step has ended. */
void tt_saved_validated(const tt_saver_opts *o, int64_t step);

#endif
