/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_JOB_CORE_H
#define TT_JOB_CORE_H
#include "config/choices.h"
#include "config/config.h"
#include "config/job_outputs.h"

/* The core's own sections as structs. core_options.c and docs/reference.md have names and
 * defaults. */

typedef struct tt_training_config {
    int64_t local_batch_size, global_batch_size, seq_len, seed;
    int64_t intra_layer_micro_batch;
    int64_t steps;           /* INT64_MIN = null */
    double num_train_epochs; /* NaN = null */
    double max_norm, loss_scale;
    const char *clip_norm_type; /* JSON: a number or "inf" */
    double clip_norm_order;     /* what it says; not an option of its own */
    bool skip_nonfinite;
    double max_grad_norm_skip;
    int64_t loss_scale_window;
    tt_dtype dtype, mixed_precision_param, mixed_precision_reduce;
    bool enable_cpu_offload; /* optimizer states lie in host memory */
    tt_strings trainable;    /* patterns of parameters; none: all are trained */
    double ema_decay;        /* NaN = null */
    bool ema_evaluate;
} tt_training_config;

typedef struct tt_parallelism_config {
    int64_t data_parallel_replicate_degree, data_parallel_shard_degree, tensor_parallel_degree;
    int64_t context_parallel_degree, pipeline_parallel_degree, expert_parallel_degree;
    tt_load_balancer context_parallel_load_balancer;
    tt_rotate_method context_parallel_rotate_method;
    const char *pipeline_parallel_schedule;
    const char *pipeline_parallel_schedule_csv;                                 /* "" = none */
    int64_t pipeline_parallel_microbatches, pipeline_parallel_layers_per_stage; /* INT64_MIN */
    tt_strings pipeline_parallel_split_points;
    const char *module_fqns_per_model_part; /* JSON, NULL = none */
    tt_reshard fsdp_reshard_after_forward;
    bool enable_sequence_parallel;
    bool enable_async_tensor_parallel;
    double expert_buffer_factor; /* NaN: null */
    int64_t expert_replicas;     /* -1: by the cost model */
    double expert_replicas_gb, expert_replicas_skew;
} tt_parallelism_config;

typedef struct tt_checkpoint_config {
    bool enable, initial_load_in_hf, last_save_model_only, last_save_in_hf;
    bool enable_first_step_checkpoint, load_only, initial_load_model_only, create_seed_checkpoint;
    bool initial_load_strict, save_frozen, accept_changed_frozen;
    tt_strings exclude_from_loading, initial_load_rename;
    const char *folder, *initial_load_path;
    const char *initial_load_command, *after_save; /* NULL: none */
    tt_async_mode async_mode;
    tt_export_dtype export_dtype;
    tt_interval interval_type;
    tt_on_error on_error;
    int64_t interval; /* -1: only the last step is saved; INT64_MIN (null): none is */
    int64_t keep_latest_k, keep_every, snapshot_interval, load_step, hf_interval, hf_keep;
    int64_t save_timeout_seconds;
    int64_t peer_copy_interval;
    double keep_gb; /* GB of 10^9 bytes */
} tt_checkpoint_config;

typedef struct tt_validation_config {
    bool enable, at_start;
    int64_t freq, steps;
    int64_t local_batch_size, seq_len; /* INT64_MIN = null */
    int64_t early_stopping_patience;
    double early_stopping_threshold;
} tt_validation_config;

typedef struct tt_dataloader_config { /* the options that every dataloader has */
    bool infinite, shuffle;
    int64_t seed; /* INT64_MIN = null */
} tt_dataloader_config;

typedef struct tt_converter_config { /* the options that every converter has */
    tt_strings filter, roles;
    int64_t from_step, to_step;
} tt_converter_config;

typedef struct tt_optimizer_config { /* likewise every optimizer */
    int state_dtype;                 /* of float32, bfloat16, float8_e4m3fn */
    bool early_step_in_backward;
    double qk_clip; /* NaN: null */
} tt_optimizer_config;

typedef struct tt_lr_scheduler_config { /* likewise every scheduler */
    int64_t total_steps, warmup_tokens; /* INT64_MIN: null */
    int64_t rewarm_steps;
} tt_lr_scheduler_config;

typedef struct tt_backend_section {
    const char *name;   /* auto | reference | cpu | … any backend plugin */
    int64_t threads;    /* 0 = cores ÷ ranks of this machine */
    tt_strings kernels; /* plugins of kind kernels that go before the backend's own */
} tt_backend_section;

typedef struct tt_debug_config {
    bool moe_force_load_balance;
    bool detect_nan; /* unfused, checked after every op: names op, step, rank and value */
    const char *dump_graph, *dump_program; /* folders, NULL = none */
    const char *save_config_file;
    bool poison; /* NaN into freed bytes, canaries */
    bool disable_fusion;
    tt_capture capture; /* sections of the program as graphs of the device */
    bool sync;          /* wait for the device after each op */
    int64_t health_check_freq;
    tt_health health_check_policy;
    int64_t replay_interval; /* 0: never */
    tt_replay_on replay_on;
    tt_check_products check_products;
} tt_debug_config;

typedef struct tt_activation_checkpoint_config {
    tt_checkpoint_mode mode;
    const char *selective_ac_option;  /* "op", or "n": every n-th layer */
    tt_strings save_ops;              /* of SELECTIVE */
    double memory_budget, memory_gib; /* of BUDGET; memory_gib 0 = memory_budget decides */
    tt_dtype store_dtype;
    tt_activations offload; /* forward values wait for the backward in host memory */
    double offload_budget_gb;
    int64_t offload_prefetch_n_layers;
    const char *offload_hardware;
} tt_activation_checkpoint_config;

typedef struct tt_core_config {
    const char *spec, *dump_folder, *description;
    tt_strings plugin_dirs;
    const char *hf, *flavor, *hf_assets_path; /* model.* */
    bool vocab_from_tokenizer;
    tt_training_config training;
    tt_parallelism_config parallelism;
    tt_activation_checkpoint_config activation_checkpoint;
    tt_checkpoint_config checkpoint;
    tt_validation_config validation;
    tt_metrics_config metrics;
    tt_profiling_config profiling;
    tt_comm_config comm;
    tt_debug_config debug;
    const char *log_ranks;
    bool log_files;
} tt_core_config;

/* Parses the core's sections and checks them against each other. The sections of components
 * (tokenizer, dataloader, loss, optimizer, lr_scheduler, backend, model.args, converters, hooks,
 * validation's dataloader) are parsed by the code that has the component's table. */
tt_status tt_core_config_parse(tt_job *job, tt_core_config *out, tt_error *err);
/* The section `backend`. ignore: keys of the backend plugin's own table, NULL-terminated, or NULL.
 */
/* The key plugin_dirs, which is needed before the other keys are parsed. */
tt_status tt_job_plugin_dirs(tt_job *job, tt_strings *out, tt_error *err);
tt_status tt_backend_section_parse(tt_job *job, const char *const *ignore, tt_backend_section *out,
                                   tt_error *err);
/* The keys that every converter has, at key ("converters[0]"). own: the names of the plugin's own
 * options, NULL-terminated; a key among them is the plugin's. */
/* The key that says that nothing is saved, and its value; NULL: something is. */
const char *tt_checkpoint_off(const tt_checkpoint_config *c);
tt_status tt_converter_config_parse(tt_job *job, const char *key, const char *const *own,
                                    tt_converter_config *out, tt_error *err);
/* The options of the sink "console" at key ("metrics.sinks[1]"). */
tt_status tt_console_config_parse(tt_job *job, const char *key, tt_console_config *out,
                                  tt_error *err);
/* The options of a section with a dataloader that every dataloader has. */
tt_status tt_dataloader_config_parse(tt_job *job, const char *section, const char *const *own,
                                     tt_dataloader_config *out, tt_error *err);
/* The options of the section optimizer that every optimizer has. */
tt_status tt_lr_scheduler_config_parse(tt_job *job, const char *const *own,
                                       tt_lr_scheduler_config *out, tt_error *err);
tt_status tt_optimizer_config_parse(tt_job *job, const char *const *own, tt_optimizer_config *out,
                                    tt_error *err);
/* Tables of the core's sections, for schema, explain and reference. */
const tt_section_doc *tt_core_config_docs(size_t *n);
/* The options of the sink "console", which no plugin has. */
const tt_section_doc *tt_console_doc(void);

#endif
