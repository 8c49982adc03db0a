/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SETUP_H
#define TT_SETUP_H
#include "config/job_core.h"
#include "cost/cost.h"
#include "passes/compile.h"
#include "plan/kernels.h"
#include "plan/plan.h"
#include "plugin/registry.h"
#include "setup/setup_parts.h"
#include <ttrun/dataloader.h>
#include <ttrun/hook.h>
#include <ttrun/lr_scheduler.h>
#include <ttrun/metrics.h>
#include <ttrun/model.h>
#include <ttrun/optimizer.h>
#include <ttrun/train_spec.h>

/* core/setup: what happens before step 1. setup.c makes components, setup_graph.c mesh, graph and plan. */

#define TT_MAX_KERNEL_PARTS 32

/* setup_recompute.c: what mode budget chose, by pipeline rank. */
typedef struct tt_recompute_choice {
    int n, n_plans;              /* pipeline ranks; plans that were made to choose */
    int *level, *n_levels, *way; /* as in tt_recompute_cut */
    double *budget, *bytes;      /* of the training program: allowed, and taken by its plan */
    double *none, *full;         /* … in these modes */
} tt_recompute_choice;

typedef struct tt_setup { /* equal on all ranks, and not changed after it is made */
    tt_arena *arena;
    tt_registry *registry;
    tt_job *job;
    const struct tt_foreign *foreign; /* foreign.h; NULL: the program has none */
    tt_core_config core;
    const tt_train_spec_vt *spec;
    tt_part model, loss, optimizer, lr_scheduler, tokenizer, dataloader, backend;
    tt_validation_set validation[TT_MAX_PARTS];
    int n_validation;
    tt_part metrics[TT_MAX_PARTS], hooks[TT_MAX_PARTS], converters[TT_MAX_PARTS];
    int n_metrics, n_hooks, n_converters;
    bool has_console; /* logged steps have a line */
    tt_console_config console;
    const struct tt_setup_opts *opts; /* it was made with these */
    struct tt_converting *converting; /* [n_converters]: filter, roles and steps of each */
    int64_t converters_at; /* completed steps: the graphs have the converters of this time */
    /* setup_kernels.c: kernels of plugins; the first n_kernels_named are backend.kernels */
    tt_part kernel_parts[TT_MAX_KERNEL_PARTS];
    int n_kernel_parts, n_kernels_named;
    tt_kernels kernels;
    /* what tt_backend_vt.target made: it answers before the backend is opened; NULL: none is needed */
    void *target;
    struct tt_map *kernels_asked; /* by op: its kernel, once it is chosen */
    tt_error kernels_error;       /* the first error while kernels were chosen */
    bool backend_alone;      /* do not use kernels of plugins; for comparison (plugins check) */
    tt_part comm;            /* of host memory; component NULL: no comm plugin is used */
    bool data_comm_if_works; /* "auto": it is taken if it works on all ranks */
    tt_part data_comm;       /* of a device's memory; likewise */
    const char *host_comm;   /* comm.backend, or comm.host beside data_comm */
    tt_inputs inputs;        /* the dataloader's, in addition to ids, labels, pos and seg */
    bool has_inputs;         /* there is a dataloader */
    bool open_inputs; /* what the loss reads besides becomes an input, a number for each token */
    bool has_tokenizer, has_validation;
    bool finite;              /* dataloader.infinite is false */
    const char *loss_weights; /* the input with the weights of tokens; NULL: the loss has none */
    bool has_reference; /* it has reference(), whose values are the input number reference_input */
    int reference_input;
    bool refers_to_sets; /* a copy for the graph of reference() of validation's samples */
    tt_order data_order; /* n_samples is set when the loader is open */
    tt_group *groups;    /* [0] the default group, then param_groups in order */
    int n_groups;
    struct tt_param_match *matches;   /* [n_groups - 1] */
    struct tt_param_match *trainable; /* [n_trainable]; 0: training.trainable is null */
    int n_trainable;
    tt_dtype state_dtype; /* of optimizer states */
    bool early_step;      /* optimizer.early_step_in_backward */
    double qk_clip;       /* optimizer.qk_clip; 0: none */
    tt_lr_scheduler_config rate;
    int64_t threads, helpers;  /* per rank: threads, and those that help it besides (base/pool.h) */
    int ranks_here;            /* number of ranks on this machine */
    bool overlap;              /* communication runs concurrently with computation */
    bool async_tp;             /* asynchronous tensor parallelism */
    bool apart;                /* outputs never reuse an operand's bytes; for comparison in tests */
    const tt_machine *machine; /* the machine to plan for; NULL = this one */
    tt_model_shape shape;
    /* the mesh */
    tt_mesh mesh;
    tt_label_table labels;
    int world, data_world;
    /* samples per micro-batch and data rank; micro-batches, program calls and samples per step */
    int64_t local, micro_batches, calls, global_batch;
    /* of validation: samples per forward, and per batch, of a data rank; tokens per sample */
    int64_t eval_local, eval_batch, eval_seq_len;
    int pipeline_ranks, n_stages;
    tt_schedule *schedule;
    const int *stage_begin; /* by stage: its first block, if the job sets it; NULL = by cost */
    /* the graphs, shared by rank-threads */
    tt_op_table ops;
    tt_graph *graph, *eval_graph;
    /* of the loss's reference(): for training's samples, and for those of validation; NULL: it has none */
    tt_graph *reference_graph, *eval_reference_graph;
    tt_recompute_choice *recompute_choice; /* NULL: the mode is not budget */
    tt_recompute_found recomputed;         /* of graph: its blocks */
    const tt_machine *recompute_machine;   /* by whose speeds mode budget chooses */
    tt_schedule *eval_schedule;
    tt_token_order *token_order; /* NULL: no sequence is cut */
    tt_model_size size;
    char model_fingerprint[33];
    tt_decode_opts decode;
} tt_setup;

/* Whether comm.backend is one of the core's names, not a plugin's. */
bool tt_comm_is_core(const char *backend);
/* setup_comm.c: the key of the job that names the host's communicator: comm.backend or comm.host. */
const char *tt_setup_host_key(const tt_setup *s);
/* mixture.c makes dataloader.mixture an ordinary component; its loader is a tt_mixture
 * (data/mixture.h). */
bool tt_part_is_mixture(const tt_part *p);
const tt_part *tt_mixture_part(const tt_part *mixture, int i);
int tt_mixture_size(const tt_part *mixture);
/* Whether the run's length is a number of epochs, whose last steps have the samples that are left. */
bool tt_setup_by_epoch(const tt_setup *s);
/* The loader promises samples of one segment (tt_dataloader_vt.one_segment). */
bool tt_setup_one_segment(const tt_part *data);
/* What a loader reports about its data; -1: it does not report this number. */
tt_dataloader_info tt_loader_info(const tt_dataloader_vt *vt, void *self);

typedef struct tt_setup_opts {
    const char *spec; /* --spec, or NULL */
    int nproc;        /* --nproc, 0 = not given */
    int ranks_here;   /* rank processes on this machine; 0: all ranks are threads of this process */
    int rank;         /* rank of this process; only rank 0 writes graphs */
    tt_mode mode;     /* TRAIN also compiles the graph of validation, if it is enabled */
    bool compile;     /* false: make the parts only (ttrun config) */
    bool data;        /* the dataloader is needed */
    bool quiet;       /* compile without saying what the converters do, and write no graphs */
    const tt_machine *machine; /* the machine to plan for; NULL = this one */
    tt_decode_opts decode;
    double expert_skew; /* tt_graph.expert_skew of skewed routing, for estimates; 0: none */
} tt_setup_opts;
/* The caller has loaded the job. arena, registry and job must outlive the setup. [setup] */
tt_status tt_setup_make(const tt_setup_opts *o, tt_registry *r, tt_job *job, tt_arena *a,
                        tt_setup *out, tt_error *err);
/* Make the graphs after a setup with compile = false; _train also logs what is odd about the data. */
tt_status tt_setup_compile(tt_setup *s, const tt_setup_opts *o, tt_error *err);
tt_status tt_setup_train(tt_setup *s, tt_error *err);
/* Whether this machine has what the backend needs: TT_OK for host memory, else what target says of the
 * chip that is here. TT_ENOTFOUND: there is none. [setup] */
tt_status tt_setup_backend_is_here(const tt_backend_vt *vt, const char *name, const void *config,
                                   tt_error *err);
/* How the model is stored in Hugging Face folders; NULL: the plugin does not say. */
const tt_model_hf *tt_setup_model_hf(const tt_component *c);
bool tt_is_dropout(const char *option); /* by the name of a model's option, or of a config's key */
const tt_model_meta *tt_setup_model_meta(const tt_component *c);   /* NULL: no names of Meta's */
const tt_model_titan *tt_setup_model_titan(const tt_component *c); /* NULL: none of torchtitan's */
/* Whether the files of the loaders exist, for a run that is not to begin. */
tt_status tt_setup_find_data(const tt_setup *s, tt_error *err);
/* Logs what was taken in another trainer's spelling or changes nothing, and a warm-up that is as long
 * as the run. */
void tt_setup_notices(const tt_setup *s);
/* Every option table that a job may use, for the schema, --explain and the reference. The core's
 * tables come first, with component NULL. */
tt_status tt_setup_docs(tt_registry *r, tt_arena *a, tt_section_doc **out, size_t *n,
                        tt_error *err);
/* Makes the memory plan of one pipeline rank. It asks the backend only questions that need no
 * memory or threads. */
tt_status tt_setup_plan(const tt_setup *s, const tt_graph *g, const tt_schedule *schedule,
                        int pp_rank, tt_arena *a, tt_plan **out, tt_error *err);
/* Makes the plan of one rank of the world, with the program of that rank. backend: the rank's own
 * object, which is asked if the backend's answers need a chip; NULL: it is not open. */
tt_status tt_setup_rank_plan(const tt_setup *s, const tt_graph *g, const tt_schedule *schedule,
                             int rank, void *backend, tt_arena *a, tt_plan **out, tt_error *err);
/* Makes the plans of all pipeline ranks. */
tt_status tt_setup_plan_all(const tt_setup *s, tt_arena *a, tt_plan ***out, tt_error *err);
/* Plans the training graph g on a pipeline rank; writes no file. like: the plan of another rank of g. */
tt_status tt_setup_try_plan(const tt_setup *s, const tt_graph *g, int pp_rank, const tt_plan *like,
                            tt_arena *a, tt_plan **out, tt_error *err);
/* ---- setup_recompute.c: one way to keep and recompute activations, compiled and planned ---- */
typedef struct tt_recompute_try {
    tt_recompute_mode mode; /* CUT: with `part` of each rank's levels, 0 … 1 */
    double part;
    const int *level, *way; /* CUT: by rank, as in tt_recompute_cut; NULL: part */
    /* found: */
    tt_graph *graph;
    double bytes; /* of the training program on the fullest pipeline rank */
    /* of a micro-batch on the slowest pipeline rank, in the unit of tt_setup.recompute_machine */
    double time;
} tt_recompute_try;
/* s: a copy of a setup after tt_setup_compile. The graph lies in a. */
tt_status tt_setup_try_recompute(tt_setup *s, tt_recompute_try *t, tt_arena *a, tt_error *err);
/* Bytes that the training program of a rank takes by its plan, of the device if the backend has one. */
double tt_setup_program_bytes(const tt_setup *s, const tt_plan *p);
/* setup_convert.c: p, with the defaults of the keys that every converter has, is the only converter; NULL:
 * there is none. For `plugins check`, before the graphs are compiled. */
void tt_setup_only_converter(tt_setup *s, const tt_part *p);
/* setup_again.c: the setup of the same job, with another list of converters (JSON; NULL: the same list) and with
 * those that are active after `at` steps. Of the old one it uses the registry. [setup; also beside a run] */
tt_status tt_setup_again(const tt_setup *old, const char *converters, int64_t at, tt_arena *a,
                         tt_setup *out, tt_error *err);
/* setup_again.c: the setup after `at` steps of the job's own schedule of converters, and the plans of its
 * pipeline ranks. They lie in a. [setup] */
tt_status tt_setup_plan_change(const tt_setup *s, int64_t at, tt_arena *a, tt_setup **out,
                               tt_plan ***plans, tt_error *err);
/* setup_convert.c: the first number of steps above `after` at which other converters are active; -1: there is
 * none within the job's steps. */
int64_t tt_converters_change(const tt_setup *s, int64_t after);
/* Whether the converters that are active after a and after b steps are the same. */
bool tt_converters_equal(const tt_setup *s, int64_t a, int64_t b);
/* setup_convert.c: does the job use converter i after so many completed steps? [any-thread] */
bool tt_converter_active(const tt_setup *s, int i, int64_t steps_done);
/* groups.c: pattern matching of param_groups: "tag:norm" or a regular expression on names (POSIX
 * extended). */
int tt_group_of(void *setup, const tt_param_info *p);
tt_status tt_groups_make(tt_setup *s, tt_error *err);
tt_status tt_groups_check(const tt_setup *s, tt_error *err); /* a group needs a parameter */
/* trainable.c: training.trainable. tt_freeze() freezes parameters of a described graph; checked:
 * it fails if a pattern matches none. */
tt_status tt_trainable_make(tt_setup *s, tt_error *err);
tt_status tt_freeze(void *setup, const tt_graph *described, bool checked, tt_error *err);
/* rate.c: the scheduler and the options that every one has; warmup_tokens in steps, once the batch is known. */
tt_status tt_setup_lr_scheduler(tt_setup *s, tt_error *err);
tt_status tt_setup_warmup_tokens(tt_setup *s, tt_error *err);
/* The schedule's factor at a step, from 0, of a run of `total` steps. [any-thread] */
double tt_setup_lr_factor(const tt_setup *s, int64_t step, int64_t total);
/* The learning rate in the optimizer's config. */
const double *tt_optimizer_rate(const tt_component *c, const void *config);
/* The name of the option with the model's number of blocks; NULL: it has none. */
const char *tt_model_blocks_option(const tt_component *c);
/* Raises a part's error. If the text begins with a key of the section ("model.args.n_heads: …", or
 * "dataloader.path: …" for validation.dataloader), the error is at that key, otherwise at the
 * section. */
tt_status tt_setup_fail(const tt_job *job, const char *section, const char *text, tt_error *err);

#endif
