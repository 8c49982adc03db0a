/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TRAIN_H
#define TT_TRAIN_H
#include "checkpoint/match.h"
#include "exec/exec.h"
#include "setup/setup.h"
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

/* The parts of one rank, for training, evaluation and generation. */
typedef struct tt_rank {
    const tt_setup *s;
    tt_arena *arena;
    tt_dist dist;
    tt_pool *pool;
    void *backend;
    tt_device device;   /* the backend's memory */
    tt_arena *programs; /* of the two plans */
    tt_plan *plan, *eval_plan;
    tt_exec *exec, *eval;
    int pp, data_rank;
    bool failed; /* other ranks may have ended: nothing waits for them at the end */
    bool late;   /* metrics.lag has an effect: the next step begins before a step's numbers come */
    bool counts; /* this rank counts tokens for its replicas over cp, tp and pp */
} tt_rank;
tt_status tt_rank_open(const tt_setup *s, const tt_dist *d, bool with_eval, tt_rank *out,
                       tt_error *err);
void tt_rank_close(tt_rank *r);
/* A program of one forward beside the rank's own, whose parameters it reads. Its plan lies in a. Close it with
 * tt_exec_free. */
tt_status tt_rank_open_beside(const tt_rank *r, tt_dist *d, const tt_graph *g, tt_arena *a,
                              tt_exec **out, tt_error *err);
/* Another program for a rank, beside the one that it runs (swap.c). plan: makes *out, which shares everything
 * with r but s, arena `programs` and plans; on any thread. prepare: its memory and kernels, on the same thread;
 * it does nothing where that needs communication or a device. start: compares the plans of all ranks, and
 * makes what prepare did not. [collective] programs_close: of r or of such a copy. */
tt_status tt_rank_plan(const tt_rank *r, const tt_setup *s, bool with_eval, tt_rank *out,
                       tt_error *err);
tt_status tt_rank_prepare(tt_rank *next, tt_rank *beside, tt_error *err);
tt_status tt_rank_start(tt_rank *next, const tt_rank *beside, tt_dist *d, tt_error *err);
void tt_rank_programs_close(tt_rank *r);

/* ---- initial.c: values of the parameters, of the optimizer's states none: they are zero ---- */
tt_status tt_rank_init_params(tt_rank *r, tt_error *err);
tt_status tt_rank_init_buffers(tt_rank *r, tt_error *err); /* done by tt_rank_open() */
/* Of parameter i of the program, which lies in t. */
tt_status tt_rank_init_param(const tt_rank *r, int i, const tt_tensor *t, tt_error *err);
/* copies.c: gives states of the optimizer that start as their parameters these values, but for those that are
 * there already: the keys of has, by tt_rank_state_name(); NULL: none is. */
tt_status tt_rank_start_copies(const tt_rank *r, const tt_map *has, tt_error *err);
/* keep.c: the states of a program that takes over: those of the old one by name, initial values for others.
 * Nothing else runs. [collective] */
typedef struct tt_kept {
    int kept, added, dropped; /* parameters and buffers */
    const char *added_first, *dropped_first;
} tt_kept;
tt_status tt_rank_keep_states(const tt_rank *next, const tt_rank *old, tt_kept *out, tt_error *err);
/* What they compute on the host, for t.begin and t.global; a backend may have it as an op (device.h). */
tt_attrs_initial tt_initial_attrs(uint64_t seed, const char *name, const tt_init *init);
void tt_initial_values(tt_pool *pool, const tt_attrs_initial *a, const tt_tensor *t);
/* The same for some rows of a weight that is not stored as it is (codes.c, magnitudes.c). */
void tt_rank_initial_rows(const tt_rank *r, const struct tt_param_info *w,
                          const tt_ckpt_piece *rows);

/* ---- weights.c: parameters and optimizer as checkpoint pieces ---- */
/* What a save writes; without the optimizer, averages in place of the weights that they stand for. Returns how
 * many. */
size_t tt_rank_pieces(const tt_rank *r, tt_arena *a, bool optimizer, tt_ckpt_piece **out);
/* The same with the optimizer, without frozen parameters (checkpoint.save_frozen). */
size_t tt_rank_trained_pieces(const tt_rank *r, tt_arena *a, tt_ckpt_piece **out);
const char *tt_rank_state_name(tt_arena *a, const char *param, const char *suffix);
typedef struct tt_load_opts {
    bool optimizer; /* its states, too */
    bool report;    /* log the tensors of the folder that belong to no parameter of the model */
    /* Not NULL: this rank checks the hashes of its share of the files, and what the error says to do is this. */
    const char *advice;
    int writers; /* how many ranks the step is of */
} tt_load_opts;
tt_status tt_rank_load(tt_rank *r, const char *step_folder, const tt_load_opts *o, tt_error *err);
/* The same with the optimizer from a reader, which has this name in errors. */
tt_status tt_rank_load_from(tt_rank *r, tt_ckpt_reader *reader, const char *name, tt_error *err);
/* Whether the run has optimizer states and the step has none: it was saved by checkpoint.last_save_model_only. */
tt_status tt_rank_lacks_states(const tt_rank *r, const char *step_folder, bool *lacks,
                               tt_error *err);
/* The same of a step that may lack frozen parameters, which keep the values that they have; does it? */
tt_status tt_rank_load_trained(tt_rank *r, const char *step_folder, const tt_load_opts *o,
                               tt_error *err);
tt_status tt_rank_lacks_frozen(const tt_rank *r, const char *step_folder, bool *lacks,
                               tt_error *err);
/* The weights that a run starts from: an adapter that the step does not have keeps its initial
 * value. */
tt_status tt_rank_load_initial(tt_rank *r, const char *step_folder, const tt_ckpt_matching *how,
                               tt_error *err);
/* Loads parameters from a Hugging Face folder, all but adapters. */
tt_status tt_rank_load_hf(tt_rank *r, const char *folder, const tt_ckpt_matching *how,
                          tt_error *err);

/* Loads the adapters alone, from a folder of PEFT's. */
tt_status tt_rank_load_adapter(tt_rank *r, const char *folder, bool report, tt_error *err);

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
