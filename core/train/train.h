/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TRAIN_H
#define TT_TRAIN_H
#include "rank/rank.h"
#include <stdatomic.h>

/* core/train: the training loop, and only that. run.c starts the ranks and holds the loop of one
 * rank; step.c is one step and reads like the paragraph in docs/design/architecture.md. */

/* ---- running ---- */
/* A start by a supervisor: `number` of `of` restarts, and how the start before it ended. */
typedef struct tt_restart {
    int number, of;
    const char *cause;
    int *copies; /* by rank of this machine: its memory for copies of the states (peer.h) */
    int n_copies;
    int *
        before; /* memories with copies of another mesh that nothing is written to; by rank of that mesh */
    int n_before;
} tt_restart;
typedef struct tt_run_opts {
    bool resume; /* --resume auto */
    int verbose; /* -q: < 0 */
    bool dry_run;
    bool progress;
    int (*stop)(void);         /* the stop signal that was received, or 0; NULL = never */
    bool (*save)(void);        /* whether a save was asked for since the last call; NULL = never */
    tt_dist *dist;             /* this process is one rank of many; NULL: it runs all ranks */
    const tt_restart *restart; /* NULL: nobody restarts this run */
    /* Rank 0: `step` is done, or the run goes on from there. Not of each step; NULL = nobody asks. */
    void (*stepped)(int64_t step);
    /* Whether another process can make the programs of this job (JSON): plugins that it names may crash
     * or never return. cancel: gives up. NULL: nothing is tried. [any-thread] */
    tt_status (*try_job)(const void *user, const char *job, _Atomic bool *cancel, tt_error *err);
    const void *try_user;
} tt_run_opts;
/* Trains to the end of the job. TT_ESIGNAL: a signal stopped the run, after a save; TT_ENUMERIC: a
 * NaN or infinity did. */
/* With training.seed null it sets s's seed. */
tt_status tt_train(tt_setup *s, const tt_run_opts *o, tt_error *err);

/* The length of the file:line:column with which an error's text begins; 0 = there is none. */
size_t tt_error_place(const char *text);

/* ---- batch.c: micro-batches into the graph's inputs ---- */
typedef struct tt_feed {
    const tt_batch *micro;
    int64_t offset; /* the first token of this data rank in a micro-batch */
    const tt_token_order *order;
    int interleaved; /* micro-batches per call of the program; 0: one */
} tt_feed;
tt_status tt_feed_fill(void *feed, const char *input, int micro, int64_t begin, int64_t end,
                       int32_t *dst, tt_error *err);

/* ---- folder.c: the run's folder ---- */
typedef struct tt_run_record tt_run_record; /* what run.json says (record.c) */
typedef struct tt_run_folder {
    int lock_fd, ranks_fd, saves_fd; /* -1: none */
    const char *path, *checkpoints, *lock_path, *saves_path;
    /* what this start has made: the lock files, and of the paths of the folders what follows these bytes */
    bool made_lock, made_saves;
    size_t kept_path, kept_saves;
    double started;            /* unix time */
    const tt_restart *restart; /* as in tt_run_opts */
    tt_run_record *record;     /* of the process of rank 0; else NULL */
} tt_run_folder;
tt_status tt_run_folder_open(const tt_setup *s, const tt_run_opts *o, tt_arena *a,
                             tt_run_folder *out, tt_error *err); /* waits 5 s for another holder */
/* Checks that the folders are still those that this run locked. Called before something is written
 * or purged there. */
tt_status tt_run_folder_check(const tt_run_folder *f, tt_error *err);
/* For the other processes of the run: the folder stays locked until all of them have ended. */
/* seed.c: with training.seed null draws one on rank 0, or keeps that of the run in the folder if resume, and
 * writes it into the setup and its job. d NULL: all ranks are in this process. [collective] */
tt_status tt_train_seed(tt_setup *s, const tt_run_folder *f, bool resume, tt_dist *d,
                        tt_error *err);
tt_status tt_run_folder_join(const tt_setup *s, tt_arena *a, tt_run_folder *out, tt_error *err);
/* failed: if the start was refused (there is no run.json), it removes the lock files that it has made, and of the folders that
 * it has made those that are empty then. Waits 5 s at most for other ranks to end. */
void tt_run_folder_close(tt_run_folder *f, bool failed);
/* ---- record.c: run.json ---- */
tt_run_record *tt_run_record_new(void); /* NULL: no memory */
void tt_run_record_free(tt_run_record *r);
/* Writes run.json. backend: the backend's description of itself; changes: what `ttrun ctl` has changed,
 * as JSON, or NULL. */
tt_status tt_run_folder_describe(const tt_run_folder *f, const tt_setup *s, const char *backend,
                                 const char *changes, tt_error *err);
/* Writes run.json again, with the checkpoints and exports that are there now. [any-thread] */
tt_status tt_run_folder_list(const tt_run_folder *f, tt_error *err);
/* The list of starts: this one begins after `step`, before the record is first described; and has ended. */
void tt_run_folder_begin(const tt_run_folder *f, const tt_setup *s, int64_t step);
tt_status tt_run_folder_end(const tt_run_folder *f, int64_t step, const char *status,
                            tt_error *err);
/* ---- history.c: the text of that list ---- */
/* From its "[" to the members of this start, whose "}]" are missing. Reads the run.json of the time before. */
void tt_history_begin(const tt_run_folder *f, const tt_setup *s, int64_t step, tt_str *o);
void tt_history_end(int64_t step, const char *status, tt_str *o); /* more members */
/* The git commit of a folder, read from its .git or a parent's; git is not run. NULL: not in a repository. */
const char *tt_git_commit(tt_arena *a, const char *folder);

#endif
