/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/schedule_impl.h"
#include <stdlib.h>
#include <string.h>

/* The abstract run: simulates a schedule in virtual time. The order in which its actions end is the
 * global order that the ranks' programs are projections of (P1), so all ranks must compute the same
 * one (P2). */

double tt_action_cost(const tt_costs *c, const tt_action *a)
{
    const tt_stage_cost one = {1, 1, 1}, *s = c->stage ? &c->stage[a->stage] : &one;
    switch (a->kind) {
    case TT_ACTION_F:
        return s->f;
    case TT_ACTION_I:
        return s->i;
    case TT_ACTION_W:
        return s->w;
    default:
        return s->i + s->w;
    }
}

static int by_end(const void *x, const void *y)
{
    const tt_event *a = x, *b = y;
    if (a->end < b->end || a->end > b->end)
        return a->end < b->end ? -1 : 1;
    if (a->rank != b->rank)
        return a->rank - b->rank;
    return a->at - b->at;
}

/* Whether the rank's next action has its inputs and, if so, when it could start. */
static bool ready(const tt_schedule *s, const tt_costs *c, const double *end, const tt_action *a,
                  double *start)
{
    tt_action need[2];
    const int n = tt_action_needs(s, a, need);
    for (int i = 0; i < n; i++) {
        const double e = end[tt_action_key(s, &need[i])];
        if (e < 0)
            return false;
        const bool far = s->stage_rank[need[i].stage] != s->stage_rank[a->stage];
        *start = TT_MAXV(*start, e + (far ? c->comm : 0));
    }
    return true;
}

static tt_status stuck(const tt_schedule *s, const int *at, tt_error *err)
{
    for (int r = 0; r < s->n_ranks; r++)
        if (at[r] < s->n_actions[r]) {
            const tt_action *a = &s->actions[r][at[r]];
            return TT_FAIL(err, TT_EINVAL,
                           "schedule %s: deadlock: rank %d waits at %d%c%d for ever", s->name, r,
                           a->stage, TT_ACTION_LETTERS[a->kind], a->micro);
        }
    return TT_OK;
}

/* If out->order is NULL, only the times are computed. */
static tt_status play(const tt_schedule *s, const tt_costs *c, tt_arena *a, tt_run *out,
                      tt_error *err)
{
    const size_t keys = 3 * (size_t)s->n_stages * (size_t)s->n_micro;
    double *end = tt_arena_array(a, keys + 1, sizeof *end);
    double *now = tt_arena_array(a, (size_t)s->n_ranks, sizeof *now);
    int *at = tt_arena_array(a, (size_t)s->n_ranks, sizeof *at);
    out->busy = tt_arena_array(a, (size_t)s->n_ranks, sizeof *out->busy);
    for (size_t k = 0; k < keys; k++)
        end[k] = -1;
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < s->n_ranks; r++)
            while (at[r] < s->n_actions[r]) {
                const tt_action *x = &s->actions[r][at[r]];
                double start = now[r];
                if (!ready(s, c, end, x, &start))
                    break;
                const double takes = tt_action_cost(c, x);
                now[r] = start + takes;
                out->busy[r] += takes;
                end[tt_action_key(s, x)] = now[r];
                if (out->order)
                    out->order[out->n++] = (tt_event){start, now[r], r, at[r], *x};
                at[r]++;
                moved = true;
            }
    }
    TT_TRY(stuck(s, at, err));
    for (int r = 0; r < s->n_ranks; r++)
        out->makespan = TT_MAXV(out->makespan, now[r]);
    return TT_OK;
}

tt_status tt_schedule_run(const tt_schedule *s, const tt_costs *c, tt_arena *a, tt_run *out,
                          tt_error *err)
{
    size_t total = 0;
    for (int r = 0; r < s->n_ranks; r++)
        total += (size_t)s->n_actions[r];
    *out = (tt_run){.order = tt_arena_array(a, total + 1, sizeof *out->order)};
    TT_TRY(play(s, c, a, out, err));
    qsort(out->order, (size_t)out->n, sizeof *out->order, by_end);
    return TT_OK;
}

tt_status tt_schedule_time(const tt_schedule *s, const tt_costs *c, double *makespan,
                           double *bubble, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_run run = {0};
    double busy = 0;
    const tt_status st = play(s, c, a, &run, err);
    for (int r = 0; r < s->n_ranks; r++)
        busy += run.busy[r];
    tt_arena_free(a);
    if (st != TT_OK)
        return st;
    *makespan = run.makespan;
    *bubble = run.makespan > 0 ? 1 - busy / (run.makespan * s->n_ranks) : 0;
    return TT_OK;
}

double tt_schedule_bubble(const tt_schedule *s, const tt_costs *c)
{
    double makespan, bubble;
    return tt_schedule_time(s, c, &makespan, &bubble, NULL) == TT_OK ? bubble : 0;
}

int tt_schedule_in_flight(const tt_schedule *s, int stage, tt_hold hold)
{
    const int r = s->stage_rank[stage];
    int now = 0, most = 0;
    for (int i = 0; i < s->n_actions[r]; i++) {
        const tt_action *a = &s->actions[r][i];
        if (a->stage != stage)
            continue;
        const bool takes = a->kind == (hold == TT_HOLD_WGRAD ? TT_ACTION_I : TT_ACTION_F);
        const bool gives = hold == TT_HOLD_SLOT   ? a->kind == TT_ACTION_B || a->kind == TT_ACTION_I
                           : hold == TT_HOLD_KEEP ? a->kind == TT_ACTION_B || a->kind == TT_ACTION_W
                                                  : a->kind == TT_ACTION_W;
        now += takes - gives;
        most = TT_MAXV(most, now);
    }
    return most;
}
