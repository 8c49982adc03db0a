/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_LR_SCHEDULER_H
#define TTRUN_LR_SCHEDULER_H
#include <ttrun/plugin.h>

/* A learning-rate schedule: the factor on the optimizer's lr for a step. A pure function: nothing
 * to save. [any-thread] */

#ifdef __cplusplus
extern "C" {
#endif
typedef struct tt_lr_scheduler_vt {
    size_t struct_size;
    double (*factor)(const void *config, int64_t step,
                     int64_t total); /* step from 0, total = training.steps */
} tt_lr_scheduler_vt;
#ifdef __cplusplus
}
#endif
#endif
