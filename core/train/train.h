/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TRAIN_H
#define TT_TRAIN_H
#include "checkpoint/checkpoint.h"
#include "exec/exec.h"
#include "setup/setup.h"

/* core/train: the loop, and only the loop. run.c makes the ranks and is the loop of one rank,
 * step.c is one step and reads like the paragraph in docs/design/architecture.md. */

/* ---- running ---- */
typedef struct tt_run_opts {
    bool resume; /* --resume auto */
    int verbose; /* -q: < 0 */
    bool dry_run;
    bool progress;
    int (*stop)(void);  /* 0, or the signal that asks to stop; NULL = never */
    bool (*save)(void); /* a save was asked for since the last call; NULL = never */
    tt_dist *dist;      /* this process is one rank of many; NULL: it is all ranks */
} tt_run_opts;
/* Train to the end of the job. Status TT_ESIGNAL: stopped by a signal after saving; TT_ENUMERIC: by
 * a numerical policy. */
tt_status tt_train(const tt_setup *s, const tt_run_opts *o, tt_error *err);

/* Length of the file:line:column an error's text begins with; 0 = it names no place in a file. */
size_t tt_error_place(const char *text);

/* One rank's things, for the loop and for who evaluates or generates. */
typedef struct tt_rank {
    const tt_setup *s;
    tt_arena *arena;
    tt_dist dist;
    tt_pool *pool;
    void *backend;
    tt_plan *plan, *eval_plan;
    tt_exec *exec, *eval;
    int pp, data_rank;
    bool counts; /* the one of its replicas over cp, tp, pp that counts tokens */
} tt_rank;
tt_status tt_rank_open(const tt_setup *s, const tt_dist *d, bool with_eval, tt_rank *out,
                       tt_error *err);
void tt_rank_close(tt_rank *r);

/* ---- weights.c: parameters and optimizer as checkpoint pieces ---- */
tt_status tt_rank_pieces(const tt_rank *r, tt_arena *a, bool optimizer, tt_ckpt_piece **out,
                         size_t *n, tt_error *err);
tt_status tt_rank_load(tt_rank *r, const char *step_folder, bool optimizer, tt_error *err);
/* Parameters from a Hugging Face folder; report: log the tensors there that are not used. */
tt_status tt_rank_load_hf(tt_rank *r, const char *folder, bool report, tt_error *err);

/* ---- batch.c: micro-batches into the graph's inputs ---- */
typedef struct tt_feed {
    const tt_batch *micro;
    int64_t offset; /* first token of this data rank in a micro-batch */
    const tt_token_order *order;
} tt_feed;
tt_status tt_feed_fill(void *feed, const char *input, int micro, int64_t begin, int64_t end,
                       int32_t *dst, tt_error *err);

/* ---- folder.c: the run's folder ---- */
typedef struct tt_run_folder {
    int lock_fd, ranks_fd; /* -1: none */
    const char *path, *checkpoints;
} tt_run_folder;
tt_status tt_run_folder_open(const tt_setup *s, const tt_run_opts *o, tt_arena *a,
                             tt_run_folder *out, tt_error *err); /* waits 5 s for a live holder */
/* Another process of the run that holds the folder: it stays held until all have ended. */
tt_status tt_run_folder_join(const tt_setup *s, tt_arena *a, tt_run_folder *out, tt_error *err);
void tt_run_folder_close(tt_run_folder *f);
/* run.json; backend: what it says of itself. */
tt_status tt_run_folder_describe(const tt_run_folder *f, const tt_setup *s, const char *backend,
                                 tt_error *err);

#endif
