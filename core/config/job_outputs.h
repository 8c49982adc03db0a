/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_JOB_OUTPUTS_H
#define TT_JOB_OUTPUTS_H
#include <stdbool.h>
#include <stdint.h>

/* The sections metrics, profiling and comm as structs; the first part of job_core.h. */

/* An option that is one of a few words is an enum. A list X(enumerator, word) defines both, and
 * TT_CHOICES of the list is the option's `choices`. A word with ~ is known but not implemented. */
#define TT_ENUMERATOR(enumerator, word) enumerator,
#define TT_CHOICE_WORD(enumerator, word) "|" word
#define TT_CHOICES(list) (&list(TT_CHOICE_WORD)[1])

#define TT_ON_ERRORS(X)                                                                            \
    X(TT_ON_ERROR_STOP, "stop")                                                                    \
    X(TT_ON_ERROR_CONTINUE, "continue")
typedef enum tt_on_error { TT_ON_ERRORS(TT_ENUMERATOR) } tt_on_error;

#define TT_OVERLAPS(X)                                                                             \
    X(TT_OVERLAP_AUTO, "auto")                                                                     \
    X(TT_OVERLAP_ON, "on")                                                                         \
    X(TT_OVERLAP_OFF, "off")
typedef enum tt_overlap { TT_OVERLAPS(TT_ENUMERATOR) } tt_overlap;

typedef struct tt_metrics_config {
    int64_t log_freq, lag;
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
