/* SPDX-License-Identifier: Apache-2.0 */
#include <ttrun/lr_scheduler.h>

/* constant: the optimizer's lr at every step, after an optional linear warm-up. */

typedef struct {
    int64_t warmup_steps;
} config;

static const tt_option options[] = {
    TT_OPTION(config, warmup_steps, TT_OPT_INT, "0", 0, 1e15,
              "steps of linear warm-up, cut to training.steps"),
};

static double factor(const void *cfg, int64_t step, int64_t total)
{
    const config *c = cfg;
    const int64_t warmup = c->warmup_steps < total ? c->warmup_steps : total;
    return step < warmup ? (double)(step + 1) / (double)warmup : 1.0;
}

static const tt_lr_scheduler_vt vt = {sizeof vt, factor};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_LR_SCHEDULER, "constant", "one rate, after an optional warm-up", config,
                 options, &vt),
};

TT_PLUGIN("constant", "1.0", components);
