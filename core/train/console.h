/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TRAIN_CONSOLE_H
#define TT_TRAIN_CONSOLE_H
#include "base/base.h"
#include <pthread.h>
#include <ttrun/metrics.h>

/* What a person watching sees: the line of a logged step, and the progress bar. */

/* Append the line of a training record, no newline:
 *   step:  1  loss:  8.04910  grad_norm:  1.9000  memory:  0.41GiB  tps: 12,345  tflops: 0.88  mfu: 41.2%
 * From the metrics loss, grad_norm, mem_gib, tps, tflops, mfu (a fraction; NaN or absent: N/A).
 * Cannot fail. [any-thread] */
void tt_console_step(const tt_metrics_record *r, tt_str *out);
/* The same of a validation record, the last two where the record has them:
 *   validate step:  1  loss:  8.0491  memory:  0.41GiB  tps: 12,345 */
void tt_console_validation(const tt_metrics_record *r, tt_str *out);

/* A bar on the last line of a terminal:
 *   train   42% [######......]  840/2,000  loss 2.3456  12,345 tok/s  1:02 left
 * Redrawn at most 10 times per second and around log lines. Where stderr is no
 * terminal it writes plain lines instead: at most one in 10 s, none in the first two
 * (tt_progress_init, quiet: none at all, where a log says as much). */
typedef struct tt_progress {
    char title[24];
    int64_t total, done;        /* in units of the caller's; total 0 = unknown */
    double loss, rate;          /* NaN = not shown; rate in tokens/s */
    int64_t begin_ns, drawn_ns; /* drawn_ns 0 = never */
    int64_t begin_done;         /* of a resumed run: what was done before this one */
    bool tty, quiet, finished;
    int fd, width; /* columns */
    pthread_mutex_t lock;
} tt_progress;
/* done: where it stands now. quiet: no plain lines. Draws nothing yet. [setup] */
void tt_progress_init(tt_progress *p, const char *title, int64_t done, int64_t total, bool quiet);
/* loss, rate: NaN = none. One thread updates; log lines may come from any. */
void tt_progress_update(tt_progress *p, int64_t done, double loss, double rate);
/* Clears the bar and gives the last line back. Needed once after each init; a second call does
 * nothing. */
void tt_progress_finish(tt_progress *p);
/* The bar's text at a time, for one line of `width` columns, no newline. */
void tt_progress_format(const tt_progress *p, int64_t now_ns, char *buf, size_t size);

#endif
