/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_JOB_CORE_H
#define TT_JOB_CORE_H
#include "config/config.h"

/* The core's own sections, typed. Names and defaults: core_options.c, docs/reference.md. */

typedef struct tt_training_config {
    int64_t local_batch_size, global_batch_size, seq_len, steps, seed;
    double max_norm;
    const char *dtype, *mixed_precision_param, *mixed_precision_reduce;
} tt_training_config;

typedef struct tt_parallelism_config {
    int64_t data_parallel_replicate_degree, data_parallel_shard_degree, tensor_parallel_degree;
    int64_t context_parallel_degree, pipeline_parallel_degree, expert_parallel_degree;
    const char *context_parallel_load_balancer, *context_parallel_rotate_method;
    const char *pipeline_parallel_schedule;
    const char *pipeline_parallel_schedule_csv;                                 /* "" = none */
    int64_t pipeline_parallel_microbatches, pipeline_parallel_layers_per_stage; /* INT64_MIN */
    tt_strings pipeline_parallel_split_points;
    const char *module_fqns_per_model_part; /* JSON, NULL = none */
    const char *fsdp_reshard_after_forward;
    bool enable_sequence_parallel;
    bool enable_async_tensor_parallel;
} tt_parallelism_config;

typedef struct tt_checkpoint_config {
    bool enable, initial_load_in_hf, last_save_model_only, last_save_in_hf;
    const char *folder, *async_mode, *initial_load_path;
    int64_t interval, keep_latest_k, load_step;
} tt_checkpoint_config;

typedef struct tt_validation_config {
    bool enable;
    int64_t freq, steps;
} tt_validation_config;

typedef struct tt_metrics_config {
    int64_t log_freq;
    bool enable_tensorboard;
} tt_metrics_config;

typedef struct tt_profiling_config {
    bool enable;
    int64_t freq;
    const char *save_traces_folder;
} tt_profiling_config;

typedef struct tt_comm_config {
    const char *backend; /* auto | local | shm | a comm plugin */
    int64_t train_timeout_seconds, init_timeout_seconds;
    const char *overlap; /* auto | on | off */
} tt_comm_config;

typedef struct tt_backend_section {
    const char *name;   /* auto | reference | cpu | … any backend plugin */
    int64_t threads;    /* 0 = cores ÷ ranks of this machine */
    tt_strings kernels; /* plugins of kind kernels that go before the backend's own */
} tt_backend_section;

typedef struct tt_debug_config {
    bool detect_nan;        /* unfused, checked after every op: names op, step, rank and value */
    const char *dump_graph; /* folder, NULL = none */
    bool poison;            /* NaN into freed bytes, canaries */
    bool disable_fusion;
} tt_debug_config;

typedef struct tt_activation_checkpoint_config {
    const char *mode;        /* none | selective | full (budget: not yet) */
    const char *store_dtype; /* float32 | bfloat16 */
} tt_activation_checkpoint_config;

typedef struct tt_core_config {
    const char *spec, *dump_folder;
    const char *flavor, *hf_assets_path; /* model.* */
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
} tt_core_config;

/* Parse and cross-check the core's sections. Component sections (tokenizer, dataloader, loss,
 * optimizer, lr_scheduler, backend, model.args, converters, hooks, validation's dataloader) are
 * parsed by whoever has their tables. */
tt_status tt_core_config_parse(tt_job *job, tt_core_config *out, tt_error *err);
/* The section `backend`. ignore: keys of the backend plugin's own table, NULL-terminated, or NULL.
 */
tt_status tt_backend_section_parse(tt_job *job, const char *const *ignore, tt_backend_section *out,
                                   tt_error *err);
/* Tables of the core's sections, for schema, explain and reference. */
const tt_section_doc *tt_core_config_docs(size_t *n);

#endif
