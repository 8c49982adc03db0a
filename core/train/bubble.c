/* SPDX-License-Identifier: Apache-2.0 */
#include "train/bubble.h"
#include <stdlib.h>

/* The idle share of a pipeline, determined in three ways. The ranks' times are combined by
 * collectives, so this works for threads, processes and machines alike. */

static int ascending(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The median of the micro-batches' times (the lower of the two middle ones): a micro-batch that was
 * preempted does not distort it. */
static int64_t median_of(const tt_item_time *t, int n, int stage, tt_action_kind kind,
                         int64_t *room)
{
    int found = 0;
    for (int i = 0; i < n; i++)
        if (t[i].item->kind == TT_ITEM_RUN && t[i].item->action.stage == stage &&
            t[i].item->action.kind == kind)
            room[found++] = t[i].cpu_ns;
    qsort(room, (size_t)found, sizeof *room, ascending);
    return found ? room[(found - 1) / 2] : 0;
}

tt_status tt_part_times_of(const tt_item_time *t, int n, tt_part_times *out, tt_error *err)
{
    int64_t *room = malloc(((size_t)n + 1) * sizeof *room), fastest = 0;
    *out = (tt_part_times){0};
    if (!room)
        return TT_FAIL(err, TT_ENOMEM, "no memory for the times of %d actions", n);
    for (int s = 0; s < TT_MAX_STAGES; s++)
        for (int k = 0; k < TT_N_ACTIONS; k++)
            out->part[s][k] = median_of(t, n, s, (tt_action_kind)k, room);
    free(room);
    for (int i = 0; i < n; i++) {
        if (t[i].item->kind == TT_ITEM_RUN)
            out->busy += t[i].end_ns - t[i].begin_ns - t[i].message_ns;
        if (t[i].item->kind == TT_ITEM_RECV && (!fastest || t[i].cpu_ns < fastest))
            fastest = t[i].cpu_ns;
    }
    out->message = fastest;
    if (n)
        out->span = t[n - 1].end_ns - t[0].begin_ns;
    return TT_OK;
}

tt_status tt_bubble_of(const tt_programs *p, int n_buffers, const tt_part_times *all, int world,
                       tt_bubble *out, tt_error *err)
{
    tt_stage_cost cost[TT_MAX_STAGES];
    for (int i = 0; i < p->schedule->n_stages; i++) {
        const int64_t *k = all->part[i];
        cost[i].f = 1e-9 * (double)k[TT_ACTION_F];
        cost[i].i = 1e-9 * (double)(k[TT_ACTION_I] ? k[TT_ACTION_I] : k[TT_ACTION_B]);
        cost[i].w = 1e-9 * (double)k[TT_ACTION_W];
    }
    const tt_costs costs = {cost, 1e-9 * (double)all->message};
    out->measured = all->span > 0 ? 1 - (double)all->busy / ((double)all->span * world) : 0;
    tt_arena *a = tt_arena_new();
    const tt_status st = tt_programs_bubble(p, &costs, n_buffers, a, &out->replayed, err);
    tt_arena_free(a);
    return st;
}

tt_status tt_bubble_measure(const tt_exec *e, const tt_plan *p, const tt_dist *d, tt_bubble *out,
                            tt_error *err)
{
    const tt_trace *t = tt_exec_traced(e);
    tt_part_times s;
    TT_TRY(tt_part_times_of(t->items, t->n_items, &s, err));
    if (d->vt) {
        const int64_t longest = TT_MAX_STAGES * TT_N_ACTIONS + 2;
        TT_TRY(d->vt->all_reduce(d->all, &s, longest, TT_I64, TT_MAX, err));
        TT_TRY(d->vt->all_reduce(d->all, &s.busy, 1, TT_I64, TT_SUM, err));
    }
    out->planned = p->bubble;
    return tt_bubble_of(p->programs, p->buffered_messages, &s, TT_MAXV(d->world, 1), out, err);
}
