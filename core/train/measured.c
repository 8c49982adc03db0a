/* SPDX-License-Identifier: Apache-2.0 */
#include "train/loop.h"
#include <math.h>

/* Measured steps of the loop: which they are, and what is done with their numbers (measure.c). */

static bool check_due(const tt_loop *l, int64_t step)
{
    const int64_t every = l->s->core.debug.health_check_freq;
    return every > 0 && (step == 1 || tt_loop_due(l, step, every));
}

bool tt_loop_shows_measures(const tt_loop *l, int64_t step)
{
    const tt_metrics_config *m = &l->s->core.metrics;
    const bool numbers = m->norms != TT_NORMS_OFF || m->attention_max_logits;
    return numbers && l->measures && tt_loop_logs(l, step) &&
           (step == 1 || tt_loop_due(l, step, m->norms_freq));
}

bool tt_loop_measures(const tt_loop *l, int64_t step)
{
    return (l->measures && check_due(l, step)) || tt_loop_shows_measures(l, step);
}

void tt_loop_open_measures(tt_loop *l)
{
    const size_t of_experts = 2 * l->s->graph->loads.n + 5;
    const size_t most = TT_MAX_METRICS + of_experts + tt_measures_most(l->s);
    tt_measures_free(l->measures);
    l->measures = tt_measures_new(l->s);
    if (!l->metrics) {
        l->n_metrics = 2 * most; /* converters may bring parameters later */
        l->metrics = tt_arena_array(l->rank.arena, l->n_metrics, sizeof *l->metrics);
    }
    if (most <= l->n_metrics)
        return;
    if (l->main)
        tt_log(TT_WARN, "train",
               "the converters have brought more parameters than a record has room for: norms are "
               "not logged until the next start");
    tt_measures_free(l->measures);
    l->measures = NULL;
}

static tt_status measured_check(const tt_loop *l, tt_error *err)
{
    const bool stops = l->s->core.debug.health_check_policy == TT_HEALTH_STOP;
    const long long step = l->flight.step;
    tt_str text = {0};
    tt_status s = TT_OK;
    const bool bad = tt_measures_check(l->measures, &text);
    if (bad && stops)
        s = TT_FAIL(err, TT_ENUMERIC,
                    "step %lld: %s (debug.health_check_policy stop); the last checkpoint has "
                    "weights from before",
                    step, tt_str_get(&text));
    else if (l->main)
        tt_log(bad ? TT_WARN : TT_INFO, "health", "step %lld: %s", step, tt_str_get(&text));
    tt_str_free(&text);
    return s;
}

tt_status tt_loop_take_measures(tt_loop *l, tt_error *err)
{
    tt_exec *x = l->rank.exec;
    if (!l->flight.measured)
        return TT_OK;
    TT_TRY(tt_measures_take(l->measures, &l->rank, l->flight.step,
                            tt_exec_metric(x, TT_METRIC_OK) > 0,
                            tt_exec_metric(x, TT_METRIC_LOSS_SCALE), err));
    return check_due(l, l->flight.step) ? measured_check(l, err) : TT_OK;
}
