/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CHECKPOINT_H
#define TT_CHECKPOINT_H
#include "checkpoint/formats/safetensors.h"
#include "mesh/mesh.h"

/* core/checkpoint: step-N folders of safetensors shards + trainer.json. A folder step-N is complete
 * or does not exist. Any mesh loads what any other wrote: a reader plans by intersection of boxes
 * and checks that they cover. state.c has the layout of trainer.json. */

/* One piece of a named global tensor that this rank holds. */
typedef struct tt_ckpt_piece {
    const char *name; /* "model.layers.0.mlp.up_proj.weight", "optimizer.state.<param>.exp_avg" */
    tt_dtype dtype;
    int n_dims;
    int64_t global[TT_MAX_DIMS];
    tt_box box; /* of this rank; may be empty */
    void *data; /* contiguous box */
    bool owner; /* false: a replica, another rank writes it */
    bool exact; /* no weight: tt_ckpt_cast leaves its dtype */
    /* To load, NULL: into data. Else data is NULL, and runs of the box's rows are given to take. */
    tt_status (*take)(void *taker, const struct tt_ckpt_piece *rows, tt_error *err);
    void *taker;
} tt_ckpt_piece;

/* rows.c: loads the rows of a piece that has `take`, a run at a time: load fills its data. */
typedef tt_status (*tt_ckpt_rows_fn)(void *user, const tt_ckpt_piece *rows, tt_error *err);
tt_status tt_ckpt_by_rows(const tt_ckpt_piece *p, tt_ckpt_rows_fn load, void *user, tt_error *err);

/* How many of the pieces to load at once: until they have `most` bytes, and at least one. Those with `take` have none. */
size_t tt_ckpt_at_once(const tt_ckpt_piece *p, size_t n, size_t most);

/* Sums of the numbers since the last line of metrics, so that the next one does not depend on a restart. */
typedef struct tt_log_sums {
    double loss, weight; /* the mean loss is loss / weight */
    double norm;         /* of the steps whose norm is finite */
    int64_t norms;       /* their number */
    int64_t skipped;     /* steps that updated nothing, since the begin of the run */
    bool any_skipped;
} tt_log_sums;

/* Losses of the steps that were logged, ascending; the newest so many. */
#define TT_MOST_LOSSES 16384
typedef struct tt_step_loss {
    int64_t step;
    double loss, loss_max;
} tt_step_loss;

/* What trainer.json holds besides file hashes. */
typedef struct tt_trainer_state {
    int64_t step, tokens_seen;
    int64_t samples_seen;          /* loader state: the next global sample */
    const char *job_json;          /* resolved job that wrote it */
    const char *model_fingerprint; /* names and shapes; another is an error on resume */
    const char *tokenizer_fingerprint;
    double last_loss;
    int world;
    bool validation_due; /* the step is saved before the validation that follows it has ended */
    bool has_lr; /* `ttrun ctl` has set the learning rate: to lr, where the job says lr_of_job */
    double lr, lr_of_job;
    /* `ttrun ctl` has set these converters where the job says converters_of_job: JSON lists; NULL: it has
     * not */
    const char *converters, *converters_of_job;
    /* Steps done when the optimizer's states, and the schedule of the learning rate, began anew (checkpoint.
     * exclude_from_loading). Below 0: they began before step 0 of this run. */
    int64_t optimizer_from, schedule_from;
    tt_log_sums since;
    const tt_step_loss *losses;
    size_t n_losses;
    double train_seconds; /* of all starts of the run together, since its first step */
    bool snapshot;        /* the next snapshot takes its place (tt_ckpt_purge) */
    const char
        *averaged; /* the optimizer's state that has the weights to evaluate, "ema"; NULL: none */
    /* Where the frozen parameters are that a step leaves out (checkpoint.save_frozen): a step folder, or one of
     * Hugging Face; NULL: all are in the step. */
    const char *frozen_from;
    /* tt_ckpt_identity of the weights that the run began with, where something is still taken from them: frozen
     * parameters, the numbers that a loss compares with. NULL: nothing, or the step is of an older ttrun. */
    const char *initial_identity;
} tt_trainer_state;

/* A folder of steps that was set aside outside of its run's folder has this file: the real path of the before-N that it
 * belongs to, and a newline. */
#define TT_ASIDE_MARK ".set-aside"
/* Takes away what an interrupted save, purge or export left in a folder of step-N. */
tt_status tt_ckpt_clear(const char *folder, tt_error *err);
/* Save is in three calls so that ranks may be threads or processes:
 *   begin (rank 0: makes step-N.tmp, removes stale ones) · write (every rank its shard-files, synced
 * and sampled for what reads back, may run on a thread over staged copies) · commit (rank 0, after
 * all: trainer.json with every file's hash, sizes and coverage checked, fsync, one rename). */
tt_status tt_ckpt_begin(const char *folder, int64_t step, tt_error *err);
tt_status tt_ckpt_write(const char *folder, int64_t step, int rank, const tt_ckpt_piece *pieces,
                        size_t n, tt_error *err);
/* Where a copy of the pieces lies in one block of memory, so that tt_ckpt_write need not copy it again:
 * in the order of the files. staged[i] is pieces[i] with its data there; memory begins at a multiple of
 * 4 KiB. Returns the bytes needed; memory NULL: only these. Pieces of other owners take none. */
size_t tt_ckpt_stage(const tt_ckpt_piece *pieces, size_t n, tt_ckpt_piece *staged, void *memory);
/* The same with weights of floating point as `dtype`, rounded to nearest even; their data is read if there is
 * memory for the copies. */
size_t tt_ckpt_cast(const tt_ckpt_piece *pieces, size_t n, tt_dtype dtype, tt_ckpt_piece *cast,
                    void *memory);
tt_status tt_ckpt_commit(const char *folder, int64_t step, const tt_trainer_state *state,
                         tt_error *err);

/* A rank's second disjoint box of one tensor goes to its second file. Only one save at a time in a
 * folder: begin removes what an interrupted one left. */

/* Which steps of a folder stay. Always: the one just saved, the newest snapshot, and the multiples of `every`,
 * which do not count among the latest, nor do snapshots. */
typedef struct tt_ckpt_keep {
    int64_t latest; /* the newest so many; 0: all */
    int64_t every;  /* 0: no such steps */
    int64_t bytes;  /* the oldest go until all files together have at most so many; 0: no limit */
    bool snapshots; /* the run makes some */
} tt_ckpt_keep;
/* Removes the steps that do not stay; a line for each. */
tt_status tt_ckpt_purge(const char *folder, int64_t just_saved, const tt_ckpt_keep *keep,
                        tt_error *err);
/* Of all files of a folder, not of folders in it; what cannot be read counts 0. */
int64_t tt_folder_bytes(const char *folder);

/* Steps present, ascending; incomplete folders are not listed (a warning says so). An absent folder
 * has none. */
tt_status tt_ckpt_list(const char *folder, tt_arena *a, int64_t **steps, size_t *n, tt_error *err);
/* Names in a folder, sorted, "." and ".." left out; filter may be NULL. */
tt_status tt_folder_names(tt_arena *a, const char *folder, bool (*filter)(const char *name),
                          const char ***names, size_t *n, tt_error *err);
/* "step-12" → 12; rest (may be NULL) gets what follows the digits. -1 = not such a name. */
int64_t tt_step_of_name(const char *name, const char **rest);
/* trainer.json of a step folder. */
tt_status tt_ckpt_read_state(const char *step_folder, tt_arena *a, tt_trainer_state *out,
                             tt_error *err);
/* Writes trainer.json again: the validation after this step has ended. */
tt_status tt_ckpt_set_validated(const char *step_folder, tt_error *err);
/* Refuses counts that a run could not add to. */
tt_status tt_ckpt_check_counts(const char *step_folder, const tt_trainer_state *s, tt_error *err);
/* Fill every piece from the folder's shards (step-N of ours, safetensors as torch.distributed.checkpoint's
 * HuggingFaceStorageWriter leaves them, or another format of this program: reader.h). Errors name the tensor and the uncovered range; shape
 * differences are errors; extra tensors are ignored. F32/BF16/F16/F64 convert. */
typedef struct tt_ckpt_reader tt_ckpt_reader;
/* Does the folder have this weight as codes alone? It is read as numbers. */
bool tt_ckpt_is_coded(const tt_ckpt_reader *r, const char *name);
tt_status tt_ckpt_open(const char *step_folder, tt_ckpt_reader **out, tt_error *err);
/* average.c: the same, for who evaluates or exports: the name of a parameter is that of its average, where the
 * run says that it is to be evaluated. */
tt_status tt_ckpt_open_weights(const char *step_folder, tt_ckpt_reader **out, tt_error *err);
/* memory.c: the same of pieces in memory, which outlive the reader. Each tensor has to be whole; of replicas one is
 * read. name: of all of them, in errors. */
tt_status tt_ckpt_open_pieces(const char *name, const tt_ckpt_piece *pieces, size_t n,
                              tt_ckpt_reader **out, tt_error *err);
typedef struct tt_ckpt_tensor {
    const char *name;
    const char *dtype_name;
    int n_dims;
    int64_t shape[TT_MAX_DIMS]; /* global */
    bool
        vocab; /* wanted: its rows are tokens; of another vocabulary those that both have are taken */
} tt_ckpt_tensor;
tt_status tt_ckpt_load(tt_ckpt_reader *r, const tt_ckpt_piece *pieces, size_t n, tt_error *err);
/* Orders pieces as they lie in the files, for who loads some of them at a time. */
void tt_ckpt_sort(const tt_ckpt_reader *r, tt_ckpt_piece *pieces, size_t n);
/* The number of the tensors there that are none of `used` (name → anything not NULL), but for those that skip, which may
 * be NULL, says are nothing to name. names: theirs, for a line. */
size_t tt_ckpt_others(const tt_ckpt_reader *r, const tt_map *used, bool (*skip)(const char *),
                      tt_arena *a, const char **names);
/* The line, if there are any. */
void tt_ckpt_log_others(const tt_ckpt_reader *r, const tt_map *used, bool (*skip)(const char *));
/* The names of all tensors, i from 0 to n - 1. */
size_t tt_ckpt_n_tensors(const tt_ckpt_reader *r);
tt_ckpt_tensor tt_ckpt_tensor_at(const tt_ckpt_reader *r, size_t i);
bool tt_ckpt_has(const tt_ckpt_reader *r, const char *name);
/* Have loads of this reader copied as many elements as the tensor has? */
bool tt_ckpt_was_read(const tt_ckpt_reader *r, const char *name);
int64_t tt_ckpt_rows(const tt_ckpt_reader *r, const char *name); /* of dim 0; -1 = no such tensor */
tt_dtype tt_ckpt_dtype(const tt_ckpt_reader *r, const char *name); /* TT_N_DTYPES = likewise */
/* A short text that is another one for other weights, made of few of their bytes. States of an optimizer do not count. */
void tt_ckpt_identity(const tt_ckpt_reader *r, char hex[17]);
void tt_ckpt_close(tt_ckpt_reader *r);
/* Lines of what differs between two folders of tensors, ours, PyTorch's or Hugging Face's: absent
 * tensors, shapes, values. *n_tensors in either, *n_differ of them. */
tt_status tt_ckpt_diff(const char *a, const char *b, tt_str *out, size_t *n_tensors,
                       size_t *n_differ, tt_error *err);
/* A step-N folder of ours again, all of its tensors in n_files files, as out_folder/step-N. */
tt_status tt_ckpt_reshard(const char *step_folder, const char *out_folder, int n_files,
                          tt_error *err);
/* Every file's hash against trainer.json, every tensor's boxes against its shape. One line per
 * fault into out; TT_EFORMAT with their number where there are any. */
tt_status tt_ckpt_verify(const char *step_folder, tt_str *out, tt_error *err);
/* The same without the hashes: reads no tensor. */
tt_status tt_ckpt_check_written(const char *step_folder, tt_str *out, tt_error *err);
/* The hashes as a part of the load, each file's by one of the ranks: by the one that wrote it, where the checkpoint is of
 * as many ranks (writers), else by bytes in the order of the files. From here on loads of this reader hash what they read
 * of this rank's files; check_rest reads what no load has, and compares. A folder without trainer.json has no hashes. */
void tt_ckpt_check_share(tt_ckpt_reader *r, int writers, int rank, int world);
tt_status tt_ckpt_check_rest(tt_ckpt_reader *r, tt_error *err);

#endif
