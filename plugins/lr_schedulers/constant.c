/* SPDX-License-Identifier: Apache-2.0 */
#include "warmup.h"

/* constant: the optimizer's lr at every step, after an optional linear warm-up. */

typedef struct {
    WARMUP_MEMBERS;
} config;

static const tt_option options[] = {
    WARMUP_OPTIONS(config, "0"),
};

static double factor(const void *cfg, int64_t step, int64_t total)
{
    const config *c = cfg;
    const int64_t warmup = warmup_length(c->warmup_steps, c->warmup_ratio, total);
    return step < warmup ? warmup_factor(c->warmup_from_zero, step, warmup) : 1.0;
}

static const tt_lr_scheduler_vt vt = {sizeof vt, factor};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_LR_SCHEDULER, "constant", "one rate, after an optional warm-up", config,
                 options, &vt),
};

TT_PLUGIN("constant", "1.0", components);
