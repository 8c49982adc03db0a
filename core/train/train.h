/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TRAIN_H
#define TT_TRAIN_H
#include "checkpoint/checkpoint.h"
#include "checkpoint/gguf.h"
#include "config/job_core.h"
#include "data/data.h"
#include "exec/exec.h"
#include "passes/compile.h"
#include "plan/kernels.h"
#include "plan/machine.h"
#include "plugin/registry.h"
#include <ttrun/dataloader.h>
#include <ttrun/hook.h>
#include <ttrun/lr_scheduler.h>
#include <ttrun/metrics.h>
#include <ttrun/train_spec.h>

/* core/train: a job made real, and the loop. setup.c turns the job into parts, world.c makes the
 * ranks, run.c is the loop of one rank, step.c is one step and reads like the paragraph in
 * architecture.md. */

#define TT_MAX_PARTS 16
#define TT_MAX_KERNEL_PARTS 32

typedef struct tt_decode_opts { /* TT_MODE_DECODE: what a program is made for */
    int64_t rows;               /* tokens a call, at most */
    int64_t slots;              /* sequences at once */
    int64_t length;             /* tokens of one, at most */
} tt_decode_opts;

/* token_order.c: where a line is cut over ranks, which token of a data rank's micro-batch stands
 * where in the graph. */
typedef struct tt_token_order {
    const int32_t *from;           /* [local * seq_len]; NULL: as they come */
    double busiest, busiest_plain; /* keys the busiest rank's queries may see, over the mean */
} tt_token_order;

typedef struct tt_setup { /* equal on all ranks, read-only once made */
    tt_arena *arena;
    tt_registry *registry;
    tt_job *job;
    tt_core_config core;
    const tt_train_spec_vt *spec;
    tt_part model, loss, optimizer, lr_scheduler, tokenizer, dataloader, validation_data, backend;
    tt_part metrics[TT_MAX_PARTS], hooks[TT_MAX_PARTS], converters[TT_MAX_PARTS];
    int n_metrics, n_hooks, n_converters;
    /* setup_kernels.c: kernels of plugins; the first n_kernels_named are backend.kernels */
    tt_part kernel_parts[TT_MAX_KERNEL_PARTS];
    int n_kernel_parts, n_kernels_named;
    tt_kernels kernels;
    struct tt_map *kernels_asked; /* ops whose kernel is decided */
    tt_error kernels_error;       /* the first of deciding */
    bool backend_alone;           /* without kernels of plugins: to compare with */
    bool has_tokenizer, has_validation;
    tt_order data_order, validation_order; /* n_samples: of the loader, once it is open */
    tt_group *groups;                      /* [0] the default, then param_groups in order */
    int n_groups;
    struct tt_group_match *matches; /* [n_groups - 1] */
    int64_t threads;                /* per rank */
    int ranks_here;                 /* on this machine */
    bool overlap;                   /* communication beside computation */
    bool pieces;                    /* asynchronous tensor parallelism */
    bool apart;                     /* no output takes over an operand's bytes: to compare with */
    const tt_machine *machine;      /* that is planned for; NULL = this one */
    /* the mesh */
    tt_mesh mesh;
    tt_label_table labels;
    int world, data_world;
    int64_t local, micro_batches,
        global_batch; /* samples a micro-batch and data rank; per data rank; per step */
    int pipeline_ranks, n_stages;
    tt_schedule *schedule;
    const int *stage_begin; /* by stage: its first block, as the job says; NULL = by cost */
    /* the graphs, shared by rank-threads */
    tt_op_table ops;
    tt_graph *graph, *eval_graph;
    tt_schedule *eval_schedule;
    tt_token_order *token_order; /* NULL: no line is cut */
    tt_model_size size;
    char model_fingerprint[33];
    tt_decode_opts decode;
} tt_setup;

/* dataloader.mixture as a part like any other; its loader is a tt_mixture (data/mixture.h). */
bool tt_part_is_mixture(const tt_part *p);
const tt_part *tt_mixture_part(const tt_part *mixture, int i);
/* What a loader says of itself; -1: not known. */
tt_dataloader_info tt_loader_info(const tt_dataloader_vt *vt, void *self);

typedef struct tt_setup_opts {
    const char *spec; /* --spec, or NULL */
    int nproc;        /* --nproc, 0 = not given */
    int ranks_here; /* processes of this machine that are ranks; 0: all ranks are threads of this */
    int rank;       /* of this process: rank 0 alone prints graphs */
    tt_mode mode;   /* TRAIN also compiles validation where it is on */
    bool compile;   /* false: parts only (ttrun config) */
    bool data;      /* a dataloader is needed */
    const tt_machine *machine; /* to plan for; NULL = this one */
    tt_decode_opts decode;
} tt_setup_opts;
/* job loaded by the caller; arena, registry and job must outlive the setup. [setup] */
tt_status tt_setup_make(const tt_setup_opts *o, tt_registry *r, tt_job *job, tt_arena *a,
                        tt_setup *out, tt_error *err);
/* The graphs alone, after a setup without them: generation knows its lengths when it has the
 * tokenizer. */
tt_status tt_setup_compile(tt_setup *s, const tt_setup_opts *o, tt_error *err);
/* The model's form at Hugging Face; NULL: it has none. */
const tt_model_hf *tt_setup_model_hf(const tt_component *c);
/* Every table the job may use, for schema, explain, reference; component NULL parts of the core
 * first. */
tt_status tt_setup_docs(tt_registry *r, tt_arena *a, tt_section_doc **out, size_t *n,
                        tt_error *err);
/* The memory plan of one pipeline rank. Static questions to the backend only. */
tt_status tt_setup_plan(const tt_setup *s, const tt_graph *g, const tt_schedule *schedule,
                        int pp_rank, tt_arena *a, tt_plan **out, tt_error *err);
/* Those of all pipeline ranks. */
tt_status tt_setup_plan_all(const tt_setup *s, tt_arena *a, tt_plan ***out, tt_error *err);
/* What the fullest of them needs; the plans are made and checked, but not kept. */
tt_status tt_setup_plan_bytes(const tt_setup *s, tt_arena *a, double *out, tt_error *err);
/* The tokenizer, opened. Close by info->vt->close. */
tt_status tt_setup_tokenizer(const tt_setup *s, void **self, tt_tokenizer_info *info,
                             tt_error *err);
/* groups.c: pattern matching of param_groups: "tag:norm" or a regular expression on names (POSIX
 * extended). */
int tt_group_of(void *setup, const tt_param_info *p);
tt_status tt_groups_make(tt_setup *s, tt_error *err);
tt_status tt_groups_check(const tt_setup *s, tt_error *err); /* an empty match is an error */

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
/* hf.c: parameters from a Hugging Face folder; report: log the tensors there that are not used. */
tt_status tt_rank_load_hf(tt_rank *r, const char *folder, bool report, tt_error *err);

/* What the graph's parameters are in files, and the folder of the tokenizer's (NULL: the job names
 * none). */
struct tt_hf_param *tt_setup_hf_params(const tt_setup *s, tt_arena *a, size_t *n);
const char *tt_setup_assets(const tt_setup *s, tt_arena *a);
/* The weights of a step folder as a Hugging Face folder, config.json and tokenizer with them;
 * replaces what is in `folder`. tokenizer: NULL = none. */
tt_status tt_setup_write_hf(const tt_setup *s, const tt_tokenizer_info *tokenizer,
                            const char *step_folder, const char *folder, tt_error *err);
/* gguf.c: the same as a GGUF file, matrices in `type`. */
tt_status tt_setup_write_gguf(const tt_setup *s, const tt_tokenizer_info *tokenizer,
                              const char *step_folder, tt_gguf_type type, const char *path,
                              tt_error *err);

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

/* ---- summary.c: what a run will cost, as text or JSON ---- */
double
tt_memory_here(void); /* bytes of this machine or container, swap included; INFINITY = not known */
tt_status tt_memory_check(const tt_setup *s, const tt_plan *p,
                          tt_error *err); /* all ranks being here */
/* machine NULL: no times, and memory is this machine's, which all ranks share. */
void tt_plan_report(const tt_setup *s, tt_plan *const *plans, int n, const tt_machine *machine,
                    bool json, tt_str *out);

/* ---- machine.c, step_time.c: the time of a step on a machine that need not be here ---- */
tt_status tt_machine_load(const char *name, tt_arena *a, const tt_machine **out,
                          tt_error *err); /* a known one, or FILE.json */
typedef struct tt_step_time {
    double step; /* seconds */
    double comm,
        exposed;   /* of the rank that waits longest: all of it, what computing does not hide */
    double bubble; /* idle share of the pipeline */
    double peak;   /* FLOP/s of a device in the dtype that computes most */
    double mfu, tokens_per_second;
} tt_step_time;
void tt_step_time_of(const tt_setup *s, const tt_machine *m, tt_step_time *out);

#endif
