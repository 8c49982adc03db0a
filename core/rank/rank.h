/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_RANK_H
#define TT_RANK_H
#include "checkpoint/match.h"
#include "exec/exec.h"
#include "setup/setup.h"

/* core/rank: what one rank computes with and what it holds: its programs, parameters and states. */

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
/* Does p update parameters, after the backward or in it? */
bool tt_rank_trains(const tt_setup *s, const tt_plan *p);

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

#endif
