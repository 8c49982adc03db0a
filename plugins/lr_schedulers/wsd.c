/* SPDX-License-Identifier: Apache-2.0 */
#include "warmup.h"
#include <string.h>

/* wsd: warm-up, stable, decay, as torchtitan's lr_scheduler. With step i from 0, W warm-up steps, T
 * steps, D of decay (round(T*ratio), or all after the warm-up) and S = T+1-W-D stable ones:
 *   i < W        (i+1)/W; i/W with warmup_from_zero
 *   i < W+S      1
 *   otherwise    m + (1-m)*g(p), p = (i+1-W-S)/D, m = min_lr_factor
 *                g(p) = 1-p | 1-sqrt(p) | (1+cos(pi p))/2
 * The last step has p = (D-1)/D: a run never ends in a step of rate 0. */

typedef struct {
    WARMUP_MEMBERS;
    double decay_ratio;
    const char *decay_type;
    double min_lr_factor;
} config;

static const tt_option options[] = {
    WARMUP_OPTIONS(config, "200"),
    TT_OPTION_MORE(config, decay_ratio, TT_OPT_FLOAT, "null", 0, 1, NULL, TT_OPT_NULLABLE, NULL,
                   "decaying part of training.steps; null: all steps after the warm-up"),
    TT_OPTION_MORE(config, decay_type, TT_OPT_ENUM, "\"linear\"", 0, 0, "linear|sqrt|cosine", 0,
                   NULL, "shape of the decay"),
    TT_OPTION_MORE(config, min_lr_factor, TT_OPT_FLOAT, "0.0", 0, 1, NULL, 0, "lr_min",
                   "the decay ends at this part of the rate"),
};

static double decay(const char *type, double p)
{
    static const double pi = 3.14159265358979323846;
    if (strcmp(type, "sqrt") == 0)
        return 1.0 - sqrt(p);
    if (strcmp(type, "cosine") == 0)
        return 0.5 * (1.0 + cos(pi * p));
    return 1.0 - p;
}

static double factor(const void *cfg, int64_t step, int64_t total)
{
    const config *c = cfg;
    const int64_t warmup = warmup_length(c->warmup_steps, c->warmup_ratio, total);
    int64_t decay_steps = total - warmup;
    if (!isnan(c->decay_ratio)) {
        /* half to even, as Python's round; a warm-up that overlaps it wins */
        const double wanted = rint((double)total * c->decay_ratio);
        if (wanted < (double)decay_steps)
            decay_steps = (int64_t)wanted;
    }
    const int64_t flat_end = total + 1 - decay_steps; /* W + S */
    if (step < warmup)
        return warmup_factor(c->warmup_from_zero, step, warmup);
    if (step < flat_end || decay_steps <= 0)
        return 1.0;
    const double p = (double)(step + 1 - flat_end) / (double)decay_steps;
    return c->min_lr_factor + (1.0 - c->min_lr_factor) * decay(c->decay_type, p < 1.0 ? p : 1.0);
}

static const tt_lr_scheduler_vt vt = {sizeof vt, factor};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_LR_SCHEDULER, "wsd", "warm-up, stable, decay", config, options, &vt),
};

TT_PLUGIN("wsd", "1.0", components);
