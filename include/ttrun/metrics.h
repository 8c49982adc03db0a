/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_METRICS_H
#define TTRUN_METRICS_H
#include <ttrun/plugin.h>

/* A metrics sink receives the numbers of every logged step, on rank 0 only unless it asks for all ranks.
 * A thread of its own
 * calls log() concurrently with the steps, one call at a time and in order; another thread calls
 * open() before the first log() and close() after the last. All records of a step are written
 * before that step's checkpoint. */

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
    int validation; /* 1: the numbers of a validation, 0: of a training step */
} tt_metrics_record;

typedef struct tt_metrics_env {
    size_t struct_size;
    const char *dump_folder; /* the run folder, which exists */
    int64_t resume_step;     /* 0 = a new run; else drop records of steps after this one */
    /* 1: the validation after resume_step is done again, so drop its record, where there is one */
    int validates_again;
    int rank, world; /* the rank whose numbers it gets, of how many */
} tt_metrics_env;

typedef struct tt_metrics_vt {
    size_t struct_size;
    /* *self is the sink's own state, which close frees. [setup] */
    tt_status (*open)(const void *config, const tt_metrics_env *env, void **self, tt_error *err);
    /* r is valid during the call; what was written is flushed when log returns. A record that could not be written
     * leaves nothing behind, because log is called with it again (metrics.on_error "continue"). */
    tt_status (*log)(void *self, const tt_metrics_record *r, tt_error *err);
    void (*close)(void *self);
    /* (optional) Nonzero: a sink is opened on each rank, for that rank's numbers; validations are those
     * of all ranks together, and rank 0 alone has them. [setup] */
    int (*all_ranks)(const void *config);
} tt_metrics_vt;

#ifdef __cplusplus
}
#endif
#endif
