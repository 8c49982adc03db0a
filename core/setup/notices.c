/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/setup.h"

/* What a user should know about the job before it runs. */

/* The warm-up of a scheduler that has the option warmup_steps; 0 = none. */
static int64_t warmup_of(const tt_part *scheduler)
{
    const int64_t *steps =
        scheduler->component
            ? tt_part_value(scheduler->component, scheduler->config, "warmup_steps", TT_OPT_INT)
            : NULL;
    return steps ? *steps : 0;
}

void tt_setup_notices(const tt_setup *s)
{
    size_t n;
    const char *const *lines = tt_job_notices(s->job, &n);
    const int64_t warmup = warmup_of(&s->lr_scheduler), steps = s->core.training.steps;
    for (size_t i = 0; i < n; i++)
        tt_log(TT_INFO, "job", "%s", lines[i]);
    if (warmup >= steps && steps > 1)
        tt_log(TT_WARN, "job",
               "lr_scheduler.warmup_steps %lld: the learning rate rises during all %lld steps of "
               "the run; set fewer",
               (long long)warmup, (long long)steps);
}
