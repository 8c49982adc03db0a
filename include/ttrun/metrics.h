/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_METRICS_H
#define TTRUN_METRICS_H
#include <ttrun/plugin.h>

/* A metrics sink: gets every logged step's numbers on rank 0. log() is called by a thread of its
 * own beside the steps, one call at a time and in order; open() and close() by another, before the
 * first and after the last. All records of a step are written before its checkpoint is. */

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tt_metric {
    const char *name; /* "loss", "grad_norm", "time/data", "validation/loss", … */
    double value;     /* NaN = null */
} tt_metric;

typedef struct tt_metrics_record {
    size_t struct_size;
    int64_t step;     /* 1-based */
    double wall_time; /* unix seconds */
    const tt_metric *metrics;
    size_t n_metrics;
    int validation; /* 1: a validation line, 0: a training line */
} tt_metrics_record;

typedef struct tt_metrics_env {
    size_t struct_size;
    const char *dump_folder; /* exists */
    int64_t resume_step;     /* 0 = a fresh run; lines after this step are to be dropped */
} tt_metrics_env;

typedef struct tt_metrics_vt {
    size_t struct_size;
    tt_status (*open)(const void *config, const tt_metrics_env *env, void **self, tt_error *err);
    tt_status (*log)(void *self, const tt_metrics_record *r, tt_error *err); /* flushed on return */
    void (*close)(void *self);
} tt_metrics_vt;

#ifdef __cplusplus
}
#endif
#endif
