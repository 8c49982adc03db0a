/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_HOOK_H
#define TTRUN_HOOK_H
#include <ttrun/metrics.h>

/* A hook is called at fixed points of a run, on rank 0 or, with all_ranks, on every rank:
 *
 *   open · start · for each step: before_step, after_backward, after_step, then perhaps saved and
 *   validated · end · close
 *
 * All calls come from the rank's training thread, one at a time, so the time that a hook takes is
 * part of the step. A hook that fails ends the run with its error text. */

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tt_hook_env {
    size_t struct_size;
    const char *dump_folder; /* the run folder, which exists */
    int rank, world;
} tt_hook_env;

/* How far the run is. */
typedef struct tt_hook_progress {
    size_t struct_size;
    int64_t
        step; /* the newest whose numbers are known; 0: none. In after_backward: the one that runs */
    int64_t steps;  /* of the whole run */
    int64_t epoch;  /* that holds the newest sample; the first is 0 */
    double epochs;  /* of the whole run; 0: its length is given in steps */
    int64_t tokens; /* read up to this step by all ranks, earlier processes of the run included */
    int64_t samples;
    double loss, grad_norm, lr; /* of the newest step whose numbers are known; NaN: there is none */
} tt_hook_progress;

/* What saved() is told of. */
typedef enum tt_saved_kind {
    TT_SAVED_CHECKPOINT,   /* on every rank that has the hook, at the same step */
    TT_SAVED_HUGGING_FACE, /* a folder that transformers opens: on rank 0 alone, which writes it */
} tt_saved_kind;

typedef struct tt_hook_saved {
    size_t struct_size;
    tt_saved_kind kind;
    const char *folder; /* complete and renamed into place; later saves may remove it */
    int64_t step;       /* that it holds; the run may be some steps further (`at`) */
    int model_only;     /* 1: without the optimizer's states */
    int snapshot;       /* 1: of checkpoint.snapshot_interval, the next snapshot replaces it */
    const tt_hook_progress *at; /* when it was begun: at->step is `step` */
    int kept;                   /* 1: checkpoint.keep_every keeps it for good */
} tt_hook_saved;

typedef struct tt_hook_vt {
    size_t struct_size;
    int all_ranks; /* 1: every rank opens one; 0: rank 0 alone */
    /* *self is the hook's own state, which close frees. [setup] */
    tt_status (*open)(const void *config, const tt_hook_env *env, void **self, tt_error *err);
    /* (optional) step counts from 1. [step] */
    tt_status (*before_step)(void *self, int64_t step, tt_error *err);
    /* (optional) r is valid during the call. [step] */
    tt_status (*after_step)(void *self, const tt_metrics_record *r, tt_error *err);
    void (*close)(void *self);
    /* The rest is optional too; arguments are valid during the call. */
    /* Before the first step of this process: weights or a checkpoint are loaded. [step] */
    tt_status (*start)(void *self, const tt_hook_progress *at, tt_error *err);
    /* After the backward pass of the step's last micro-batch, before its gradients are clipped and the
     * parameters updated. [step] */
    tt_status (*after_backward)(void *self, const tt_hook_progress *at, tt_error *err);
    /* After a checkpoint or an export is complete. A save in the background is told of after a later
     * step; of one that a kill cuts off, or whose folder was complete just before it, nothing is told. [step] */
    tt_status (*saved)(void *self, const tt_hook_saved *what, tt_error *err);
    /* After a validation: r->validation is 1. On rank 0 alone, which has its numbers. [step] */
    tt_status (*validated)(void *self, const tt_metrics_record *r, tt_error *err);
    /* Once, after the last call of the others. status: TT_OK if all steps are done, TT_ESIGNAL if the run
     * was stopped, else why it failed; why: the error's text, empty with TT_OK. [step] */
    void (*end)(void *self, const tt_hook_progress *at, tt_status status, const char *why);
} tt_hook_vt;

#ifdef __cplusplus
}
#endif
#endif
