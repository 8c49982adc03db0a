/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_LAUNCH_TRY_JOB_H
#define TT_LAUNCH_TRY_JOB_H
#include "launch/start.h"
#include <stdatomic.h>

typedef struct tt_try_opts {
    const tt_start_opts *start; /* its plugin folders and spec */
    int world;                  /* ranks of the job */
    double limit_s;             /* the other process is killed after this */
} tt_try_opts;

/* tt_run_opts.try_job: a process of its own plans the job, as `ttrun plan` does. Its error, or how it
 * ended, is the error. opts: a tt_try_opts. [any-thread] */
tt_status tt_try_job(const void *opts, const char *job, _Atomic bool *cancel, tt_error *err);

#endif
