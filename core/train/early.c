/* SPDX-License-Identifier: Apache-2.0 */
#include "train/loop.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Early stopping: a run ends when its validation loss has not become lower for
 * validation.early_stopping_patience validations in a row. early_stopping.txt in dump_folder has a line per
 * validation, step and loss, so that a resumed run goes on counting. It is apart from the checkpoints, since a
 * step is saved before it is validated. */

static const char *early_path(const tt_loop *l)
{
    return tt_path_join(l->rank.arena, l->s->core.dump_folder, "early_stopping.txt");
}

static void early_note(tt_loop *l, int64_t step, double loss)
{
    tt_early *e = &l->early;
    const bool first = !e->validations++;
    if (first || loss < e->best - l->s->core.validation.early_stopping_threshold) {
        e->best = isnan(loss) ? (double)INFINITY : loss;
        e->best_step = step;
        e->worse = 0;
        return;
    }
    e->worse++;
}

static bool early_over(const tt_loop *l)
{
    const int64_t patience = l->s->core.validation.early_stopping_patience;
    return patience > 0 && l->early.worse >= patience;
}

/* The lines of steps before `end`. */
static void early_read(tt_loop *l, int64_t end)
{
    char *text = NULL, *save = NULL;
    size_t n;
    if (tt_read_file(early_path(l), 64 << 20, &text, &n, NULL) != TT_OK)
        return;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *rest = line, *after = NULL;
        const long long step = strtoll(line, &rest, 10);
        const double loss = strtod(rest, &after);
        if (rest == line || after == rest || step >= end)
            continue;
        early_note(l, step, loss);
        tt_str_printf(&l->early.lines, "%lld %.17g\n", step, loss);
    }
    free(text);
}

/* Rank 0's counts, on all ranks. [collective] */
static tt_status early_share(tt_loop *l, tt_error *err)
{
    tt_early *e = &l->early;
    const double none = -(double)INFINITY;
    double v[4] = {e->best, (double)e->best_step, (double)e->worse, (double)e->validations};
    for (size_t i = 0; !l->main && i < TT_COUNT(v); i++)
        v[i] = none;
    TT_TRY(tt_dist_reduce(&l->rank.dist, v, TT_COUNT(v), TT_F64, TT_MAX, err));
    e->best = v[0];
    e->best_step = (int64_t)v[1];
    e->worse = (int64_t)v[2];
    e->validations = (int64_t)v[3];
    return TT_OK;
}

static void early_say(const tt_loop *l, int64_t step)
{
    if (l->main)
        tt_log(TT_INFO, "train",
               "early stopping after step %lld: since step %lld, whose validation loss was %.5f, "
               "none was lower%s (validation.early_stopping_patience %lld)",
               (long long)step, (long long)l->early.best_step, l->early.best,
               l->s->core.validation.early_stopping_threshold > 0 ? " by the threshold" : "",
               (long long)l->s->core.validation.early_stopping_patience);
}

tt_status tt_loop_open_early(tt_loop *l, tt_error *err)
{
    if (l->s->core.validation.early_stopping_patience <= 0)
        return TT_OK;
    if (l->main && l->step)
        early_read(l, l->step + !l->validation_due);
    TT_TRY(early_share(l, err));
    if (!early_over(l))
        return TT_OK;
    early_say(l, l->step);
    l->steps = l->step;
    return TT_OK;
}

tt_status tt_loop_note_early(tt_loop *l, double loss, tt_error *err)
{
    tt_status s = TT_OK;
    if (l->s->core.validation.early_stopping_patience <= 0)
        return TT_OK;
    if (l->main) {
        early_note(l, l->step, loss);
        tt_str_printf(&l->early.lines, "%lld %.17g\n", (long long)l->step, loss);
        s = tt_write_file_atomic(early_path(l), tt_str_get(&l->early.lines), l->early.lines.n, err);
    }
    TT_TRY(tt_agree(&l->rank.dist, s, err));
    TT_TRY(early_share(l, err));
    l->early.stops = early_over(l);
    if (l->early.stops && l->step < l->steps)
        early_say(l, l->step);
    return TT_OK;
}
