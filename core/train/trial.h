/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TRIAL_H
#define TT_TRIAL_H
#include "train/ctl.h"
#include <pthread.h>
#include <stdatomic.h>

/* trial.c: before all ranks make a program that `ttrun ctl` has asked for, rank 0 lets another process make
 * it (tt_run_opts.try_job), because a plugin that crashes there does not end the run. */

struct tt_loop;

#define TT_TRIALS_KEPT 8

typedef struct tt_trial {
    tt_ctl_command command; /* kind TT_CTL_NONE: none runs */
    tt_str job;             /* the job to try, as JSON */
    pthread_t thread;
    bool has_thread;
    _Atomic bool done, cancel;
    tt_status status;
    tt_error err;
    /* what was tried since the last reload and works: hashes of lists */
    uint64_t tried[TT_TRIALS_KEPT];
    int n_tried;
} tt_trial;

/* false: nothing needs to be tried. The command's list stays until the trial was taken or closed. */
bool tt_trial_begin(struct tt_loop *l, const tt_ctl_command *c);
bool tt_trial_runs(const struct tt_loop *l);
/* True once, when it has ended. */
bool tt_trial_take(struct tt_loop *l, tt_ctl_command *c, tt_status *status, tt_error *why);
void tt_trial_close(struct tt_loop *l);

#endif
