/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_JOB_OUTPUTS_H
#define TT_JOB_OUTPUTS_H
#include "config/choices.h"

/* The sections metrics, profiling and comm as structs; the first part of job_core.h. */

typedef struct tt_metrics_config {
    int64_t log_freq, lag, norms_freq;
    tt_norms norms;
    bool attention_max_logits, log_experts;
    bool enable_tensorboard, enable_progress_bar, save_for_all_ranks;
    const char *save_tb_folder;
    tt_on_error on_error;
} tt_metrics_config;

typedef struct tt_console_config { /* of the sink "console" */
    int64_t freq;                  /* INT64_MIN: of every logged step */
} tt_console_config;

typedef struct tt_profiling_config {
    bool enable;
    int64_t freq, active, skip_first, repeat;
    const char *save_traces_folder, *ranks;
    bool enable_memory_snapshot;
    int64_t memory_snapshot_freq, memory_snapshot_max_entries;
    const char *save_memory_snapshot_folder;
} tt_profiling_config;

typedef struct tt_comm_config {
    const char *backend; /* auto | local | shm | a comm plugin */
    const char *host;    /* likewise; beside a backend of devices */
    int64_t train_timeout_seconds, init_timeout_seconds;
    tt_overlap overlap;
    int64_t trace_buf_size;
    const char *save_traces_folder, *save_traces_file_prefix;
} tt_comm_config;

#endif
