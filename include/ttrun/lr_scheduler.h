/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_LR_SCHEDULER_H
#define TTRUN_LR_SCHEDULER_H
#include <ttrun/plugin.h>

/* A learning-rate scheduler gives the factor on the optimizer's learning rate for a step. It is a
 * pure function, so a checkpoint holds nothing of it. */

#ifdef __cplusplus
extern "C" {
#endif
typedef struct tt_lr_scheduler_vt {
    size_t struct_size;
    /* step counts from 0; total is training.steps, or lr_scheduler.total_steps. A run that is longer
     * stays at the factor of step `total`, the end of the schedule. [any-thread] */
    double (*factor)(const void *config, int64_t step, int64_t total);
} tt_lr_scheduler_vt;
#ifdef __cplusplus
}
#endif
#endif
