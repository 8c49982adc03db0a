/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/setup.h"
#include <math.h>
#include <stdlib.h>

/* The learning rate's schedule: the plugin's factor, and what every schedule has besides. */

/* Weights that are trained already need less warm-up than a scheduler's own default, which is made for pre-training and
 * may be longer than the whole run. */
#define FINE_TUNING_WARMUP "0.03"

static void *value_of(const tt_part *p, const char *option, tt_option_type type)
{
    return p->component ? (void *)(uintptr_t)tt_part_value(p->component, p->config, option, type)
                        : NULL;
}

static tt_status shorten_default(tt_setup *s, tt_error *err)
{
    static const char *const said[] = {"lr_scheduler.warmup_steps", "lr_scheduler.warmup_ratio",
                                       "lr_scheduler.warmup_tokens"};
    const char *weights = s->core.checkpoint.initial_load_path;
    const int64_t *steps = value_of(&s->lr_scheduler, "warmup_steps", TT_OPT_INT);
    double *ratio = value_of(&s->lr_scheduler, "warmup_ratio", TT_OPT_FLOAT);
    for (size_t i = 0; i < TT_COUNT(said); i++)
        if (tt_job_has(s->job, said[i]))
            return TT_OK;
    if (!weights || !*weights || !steps || *steps < 1 || !ratio || !isnan(*ratio))
        return TT_OK;
    *ratio = strtod(FINE_TUNING_WARMUP, NULL);
    return tt_job_derive(s->job, "lr_scheduler.warmup_ratio", FINE_TUNING_WARMUP,
                         "checkpoint.initial_load_path", err);
}

int64_t tt_setup_warmup(const tt_setup *s, int64_t total)
{
    const int64_t *steps = value_of(&s->lr_scheduler, "warmup_steps", TT_OPT_INT);
    const double *ratio = value_of(&s->lr_scheduler, "warmup_ratio", TT_OPT_FLOAT);
    if (ratio && !isnan(*ratio))
        return TT_MIN((int64_t)ceil(*ratio * (double)total), total);
    return steps ? TT_MIN(*steps, total) : 0;
}

tt_status tt_setup_lr_scheduler(tt_setup *s, tt_error *err)
{
    static const char *const of_core[] = {"total_steps", "warmup_tokens", "rewarm_steps", NULL};
    TT_TRY(tt_registry_part(s->registry, s->job, TT_KIND_LR_SCHEDULER, "lr_scheduler",
                            s->spec->lr_scheduler, of_core, s->arena, &s->lr_scheduler, err));
    const tt_component *c = s->lr_scheduler.component;
    const char **own = tt_arena_array(s->arena, c->n_options + 1, sizeof *own);
    for (size_t k = 0; k < c->n_options; k++)
        own[k] = tt_component_option(c, k)->name;
    TT_TRY(tt_lr_scheduler_config_parse(s->job, own, &s->rate, err));
    return shorten_default(s, err);
}

tt_status tt_setup_warmup_tokens(tt_setup *s, tt_error *err)
{
    const tt_part *p = &s->lr_scheduler;
    const int64_t tokens = s->rate.warmup_tokens, each = s->global_batch * s->core.training.seq_len;
    if (tokens < 0 || !p->component)
        return TT_OK;
    int64_t *steps = value_of(p, "warmup_steps", TT_OPT_INT);
    if (!steps)
        return tt_job_fail(s->job, "lr_scheduler.warmup_tokens", err,
                           "%s has no warmup_steps that it could set", p->name);
    if (tt_job_has(s->job, "lr_scheduler.warmup_steps"))
        return tt_job_fail(s->job, "lr_scheduler.warmup_tokens", err,
                           "lr_scheduler.warmup_steps is set, too: keep one of them");
    *steps = tokens / each + (tokens % each != 0);
    return TT_OK;
}

double tt_setup_lr_factor(const tt_setup *s, int64_t step, int64_t total)
{
    const tt_lr_scheduler_vt *vt = s->lr_scheduler.component->vtable;
    if (s->rate.total_steps > 0)
        total = s->rate.total_steps;
    return vt->factor(s->lr_scheduler.config, step < total ? step : total, total);
}
