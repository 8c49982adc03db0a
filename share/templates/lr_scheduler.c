/* SPDX-License-Identifier: Apache-2.0 */
/* @NAME@: linear warm-up, then one over the square root of the step. */
#include <math.h>
#include <ttrun/lr_scheduler.h>

typedef struct {
    int64_t warmup;
} config;

static const tt_option options[] = {
    {"warmup_steps", "linear", TT_OPT_INT, offsetof(config, warmup), "100", 1, 1e15, NULL, 0, NULL},
};

/* The factor that multiplies the optimizer's lr; step counts from 0. It is a pure function, so
 * there is no state to save. */
static double factor(const void *cfg, int64_t step, int64_t total)
{
    const double warmup = (double)((const config *)cfg)->warmup, t = (double)(step + 1);
    (void)total;
    return t < warmup ? t / warmup : sqrt(warmup / t);
}

static const tt_lr_scheduler_vt vt = {sizeof(vt), factor};
static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_LR_SCHEDULER, "@NAME@", "inverse square root", config, options, &vt),
};
TT_PLUGIN("@NAME@", "0.1", components);
