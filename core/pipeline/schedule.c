/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/schedule.h"
#include <stdlib.h>
#include <string.h>

static void push(tt_schedule *s, int rank, tt_action_kind kind, int micro)
{
    s->actions[rank][s->n_actions[rank]++] = (tt_action){kind, rank, micro};
}

/* All forwards, then all backwards (Huang et al. 2019, arXiv:1811.06965). Backwards ascend too
 * (P5). */
static void gpipe(tt_schedule *s)
{
    for (int r = 0; r < s->n_ranks; r++) {
        for (int m = 0; m < s->n_micro; m++)
            push(s, r, TT_ACTION_F, m);
        for (int m = 0; m < s->n_micro; m++)
            push(s, r, TT_ACTION_B, m);
    }
}

/* Warm-up forwards, then one forward one backward, then the rest (Narayanan et al. 2021,
 * arXiv:2104.04473). */
static void one_f_one_b(tt_schedule *s)
{
    for (int r = 0; r < s->n_ranks; r++) {
        const int warm = TT_MIN(s->n_ranks - 1 - r, s->n_micro);
        for (int m = 0; m < warm; m++)
            push(s, r, TT_ACTION_F, m);
        for (int m = warm; m < s->n_micro; m++) {
            push(s, r, TT_ACTION_F, m);
            push(s, r, TT_ACTION_B, m - warm);
        }
        for (int m = s->n_micro - warm; m < s->n_micro; m++)
            push(s, r, TT_ACTION_B, m);
    }
}

tt_status tt_schedule_make(const char *name, int n_ranks, int n_micro, tt_arena *a,
                           tt_schedule **out, tt_error *err)
{
    const bool g = !strcmp(name, "GPipe");
    if (!g && strcmp(name, "1F1B"))
        return TT_FAIL(
            err, TT_EINVAL,
            "parallelism.pipeline_parallel_schedule: unknown \"%s\" (known: 1F1B, GPipe)", name);
    if (n_ranks < 1 || n_micro < 1)
        return TT_FAIL(err, TT_EINVAL, "a schedule needs a rank and a micro-batch, got %d and %d",
                       n_ranks, n_micro);
    tt_schedule *s = tt_arena_alloc(a, sizeof *s);
    s->name = tt_arena_str(a, name);
    s->n_ranks = s->n_stages = n_ranks;
    s->n_micro = n_micro;
    s->actions = tt_arena_array(a, (size_t)n_ranks, sizeof *s->actions);
    s->n_actions = tt_arena_array(a, (size_t)n_ranks, sizeof *s->n_actions);
    s->stage_rank = tt_arena_array(a, (size_t)n_ranks, sizeof *s->stage_rank);
    for (int r = 0; r < n_ranks; r++) {
        s->actions[r] = tt_arena_array(a, 2 * (size_t)n_micro, sizeof **s->actions);
        s->stage_rank[r] = r;
    }
    if (g && n_ranks > 1)
        gpipe(s);
    else
        one_f_one_b(s);
    TT_TRY(tt_schedule_check(s, err));
    *out = s;
    return TT_OK;
}

/* Abstract run: time of each action's end; the caller's f and b durations. Returns false where no
 * rank can go on. */
static bool run(const tt_schedule *s, double f, double b, double *makespan, double *busy)
{
    const size_t n = (size_t)s->n_stages * (size_t)s->n_micro;
    double *end = calloc(2 * n + 1, sizeof *end); /* 0 = not yet */
    int *at = calloc((size_t)s->n_ranks, sizeof *at);
    double *now = calloc((size_t)s->n_ranks, sizeof *now);
    bool moved = true, all = true;
    while (moved) {
        moved = false;
        for (int r = 0; r < s->n_ranks; r++)
            while (at[r] < s->n_actions[r]) {
                const tt_action *x = &s->actions[r][at[r]];
                const size_t i = (size_t)x->stage * (size_t)s->n_micro + (size_t)x->micro;
                const bool fwd = x->kind == TT_ACTION_F;
                double ready = 0;
                if (fwd && x->stage > 0)
                    ready = end[i - (size_t)s->n_micro];
                if (!fwd && x->stage < s->n_stages - 1)
                    ready = end[n + i + (size_t)s->n_micro];
                const bool free_ = fwd ? x->stage == 0 : x->stage == s->n_stages - 1;
                if ((!free_ && ready <= 0) || (!fwd && end[i] <= 0))
                    break;
                now[r] = TT_MAXV(now[r], ready) + (fwd ? f : b);
                end[fwd ? i : n + i] = now[r];
                at[r]++;
                moved = true;
            }
    }
    *makespan = *busy = 0;
    for (int r = 0; r < s->n_ranks; r++) {
        all = all && at[r] == s->n_actions[r];
        *makespan = TT_MAXV(*makespan, now[r]);
        *busy = TT_MAXV(*busy, s->n_micro * (f + b));
    }
    free(end);
    free(at);
    free(now);
    return all;
}

tt_status tt_schedule_check(const tt_schedule *s, tt_error *err)
{
    int *next = calloc(2 * (size_t)s->n_stages, sizeof *next);
    const char *bad = NULL;
    for (int r = 0; !bad && r < s->n_ranks; r++)
        for (int i = 0; !bad && i < s->n_actions[r]; i++) {
            const tt_action *x = &s->actions[r][i];
            if (s->stage_rank[x->stage] != r)
                bad = "an action stands on another rank than its stage";
            if (!bad && next[2 * x->stage + (int)x->kind]++ != x->micro)
                bad = "micro-batches of a stage do not ascend";
        }
    for (int i = 0; !bad && i < 2 * s->n_stages; i++)
        if (next[i] != s->n_micro)
            bad = "an action is missing";
    double span, busy;
    if (!bad && !run(s, 1, 2, &span, &busy))
        bad = "it deadlocks";
    free(next);
    return bad ? TT_FAIL(err, TT_EINVAL, "schedule %s: %s", s->name, bad) : TT_OK;
}

/* ---- blocking messages ---- */

typedef struct edge { /* messages of one stage in one direction */
    int64_t sent, received;
} edge;

typedef struct walker { /* a rank in the middle of an action */
    int at, received, sent;
} walker;

/* The edge an action's messages come from (or go to), NULL = none: first or last stage, or a
 * neighbour on the same rank. */
static edge *edge_of(const tt_schedule *s, edge *e, const tt_action *a, bool incoming)
{
    const bool forward = a->kind == TT_ACTION_F;
    const int other = a->stage + (forward == incoming ? -1 : 1);
    if (other < 0 || other >= s->n_stages || s->stage_rank[other] == s->stage_rank[a->stage])
        return NULL;
    return &e[2 * (incoming ? other : a->stage) + (forward ? 0 : 1)];
}

/* Go on with a rank's action until it waits; true if anything moved. */
static bool advance(const tt_schedule *s, int rank, walker *w, edge *edges, int n_messages,
                    int n_buffers)
{
    bool moved = false;
    while (w->at < s->n_actions[rank]) {
        const tt_action *a = &s->actions[rank][w->at];
        edge *in = edge_of(s, edges, a, true), *out = edge_of(s, edges, a, false);
        for (; in && w->received < n_messages && in->received < in->sent;
             w->received++, moved = true)
            in->received++;
        if (in && w->received < n_messages)
            return moved;
        for (; out && w->sent < n_messages && out->sent - out->received <= n_buffers;
             w->sent++, moved = true)
            out->sent++;
        if (out && (w->sent < n_messages || out->sent - out->received > n_buffers))
            return moved;
        *w = (walker){w->at + 1, 0, 0};
        moved = true;
    }
    return moved;
}

bool tt_schedule_runs(const tt_schedule *s, int n_messages, int n_buffers)
{
    walker *w = calloc((size_t)s->n_ranks, sizeof *w);
    edge *edges = calloc(2 * (size_t)s->n_stages, sizeof *edges);
    bool moved = w && edges, done = moved;
    while (moved) {
        moved = false;
        for (int r = 0; r < s->n_ranks; r++)
            moved = advance(s, r, &w[r], edges, n_messages, n_buffers) || moved;
    }
    for (int r = 0; done && r < s->n_ranks; r++)
        done = w[r].at == s->n_actions[r];
    free(w);
    free(edges);
    return done;
}

int tt_schedule_in_flight(const tt_schedule *s, int stage)
{
    const int r = s->stage_rank[stage];
    int now = 0, most = 0;
    for (int i = 0; i < s->n_actions[r]; i++) {
        if (s->actions[r][i].stage != stage)
            continue;
        now += s->actions[r][i].kind == TT_ACTION_F ? 1 : -1;
        most = TT_MAXV(most, now);
    }
    return most;
}

double tt_schedule_bubble(const tt_schedule *s, double f, double b)
{
    double span, busy;
    if (!run(s, f, b, &span, &busy) || span <= 0)
        return 0;
    return 1 - busy / span;
}

void tt_schedule_draw(const tt_schedule *s, tt_str *out)
{
    for (int r = 0; r < s->n_ranks; r++) {
        tt_str_printf(out, "rank %d:", r);
        for (int i = 0; i < s->n_actions[r]; i++)
            tt_str_printf(out, " %d%c%d", s->actions[r][i].stage,
                          s->actions[r][i].kind == TT_ACTION_F ? 'F' : 'B', s->actions[r][i].micro);
        tt_str_addc(out, '\n');
    }
}
