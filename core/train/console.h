/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TRAIN_CONSOLE_H
#define TT_TRAIN_CONSOLE_H
#include "base/base.h"
#include <pthread.h>
#include <ttrun/metrics.h>

/* The console output of a run: the line of a logged step, and the progress bar. */

/* Appends the line of a training record, without a newline:
 *   step:  1  loss:  8.04910  grad_norm:  1.9000  memory:  0.41GiB  tps: 12,345  tflops: 0.88  mfu: 41.2%  lr: 8.00e-04
 * and then what the model and the loss log (tt_metric_of_model), such as "  rewards/margin: 0.25".
 * From the metrics loss, grad_norm, mem_gib, tps, tflops, mfu (a fraction; NaN or absent: N/A), lr.
 * Cannot fail. [any-thread] */
void tt_console_step(const tt_metrics_record *r, tt_str *out);
/* The same numbers and the learning rate on a terminal of so many columns. If they do not fit,
 * shorter names are used, and then memory, communication, MFU, gradient norm, learning rate and
 * what the model logs are left out, in this order. tflops only if MFU is not known. ranks: there are several, so tps is
 * called tps/rank where there is room, and the share of exposed communication is shown.
 *   step:  840  loss:  2.3457  norm:  1.900  lr: 8.0e-04  tps:  12,345  mfu: 41.2% */
void tt_console_step_fit(const tt_metrics_record *r, int width, bool ranks, tt_str *out);
/* The same line as tt_console_step() for a validation record, with the losses of its data sets if they
 * have names; memory only if the record has it:
 *   validate step:  1  loss:  8.0491  memory:  0.41GiB */
void tt_console_validation(const tt_metrics_record *r, tt_str *out);

/* A bar on the last line of a terminal, as wide as the window is:
 *   train   42% [######......]  840/2,000  loss 2.3456  12,345 tps  1:02 left
 * Redrawn at most 10 times per second and around log lines. If stderr is no terminal, or one that
 * understands no escape sequences (TERM=dumb), plain lines
 * are written instead: at most one per 10 s, none in the first two seconds, and none at all with
 * `quiet` (tt_progress_init), for a caller that logs its progress itself. */
typedef struct tt_progress {
    char title[24];
    int64_t total, done;        /* in the caller's unit; total 0 = unknown */
    double loss, rate;          /* NaN = not shown */
    const char *unit;           /* of the rate; NULL: "tok/s" */
    int64_t begin_ns, drawn_ns; /* drawn_ns 0 = never */
    int64_t begin_done;         /* of a resumed run: units that were done before this run */
    bool tty, quiet, finished;
    int fd, width; /* columns */
    pthread_mutex_t lock;
} tt_progress;
/* done: units that are done already. quiet: no plain lines. Draws nothing yet. [setup] */
void tt_progress_init(tt_progress *p, const char *title, int64_t done, int64_t total, bool quiet);
/* loss, rate: NaN = none. One thread updates; log lines may come from any. */
void tt_progress_update(tt_progress *p, int64_t done, double loss, double rate);
/* Clears the bar. Must be called once after each init; a second call does nothing. */
void tt_progress_finish(tt_progress *p);
/* Formats the bar's text for a given time and `width` columns, without a newline. */
void tt_progress_format(const tt_progress *p, int64_t now_ns, char *buf, size_t size);

#endif
