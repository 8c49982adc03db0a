/* SPDX-License-Identifier: Apache-2.0 */
#include "train/bubble.h"
#include <stdlib.h>

/* The idle share of a pipeline three ways. What ranks share is reduced over all of them, so this
 * works for threads, processes and machines alike. */

typedef struct shared_times { /* ns; what is reduced by MAX, then what is summed */
    int64_t part[TT_MAX_STAGES][TT_N_ACTIONS];
    int64_t message, span;
    int64_t busy;
} shared_times;

static int ascending(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The median of what the micro-batches took: a preempted one does not count for the others. */
static int64_t median_of(const tt_item_time *t, int n, int stage, tt_action_kind kind,
                         int64_t *room)
{
    int found = 0;
    for (int i = 0; i < n; i++)
        if (t[i].item->kind == TT_ITEM_RUN && t[i].item->action.stage == stage &&
            t[i].item->action.kind == kind)
            room[found++] = t[i].cpu_ns;
    qsort(room, (size_t)found, sizeof *room, ascending);
    return found ? room[found / 2] : 0;
}

static void own_times(const tt_rank *r, const tt_item_time *t, int n, shared_times *out)
{
    int64_t *room = malloc(((size_t)n + 1) * sizeof *room), fastest = 0;
    for (int i = 0; room && i < r->plan->n_stages; i++)
        for (int k = 0; k < TT_N_ACTIONS; k++)
            out->part[r->plan->stages[i].stage][k] =
                median_of(t, n, r->plan->stages[i].stage, (tt_action_kind)k, room);
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
}

tt_status tt_bubble_measure(const tt_rank *r, tt_bubble *out, tt_error *err)
{
    int n;
    const tt_item_time *t = tt_exec_item_times(r->exec, &n);
    shared_times s = {0};
    tt_stage_cost cost[TT_MAX_STAGES];
    own_times(r, t, n, &s);
    if (r->dist.vt) {
        const int64_t most = TT_MAX_STAGES * TT_N_ACTIONS + 2;
        TT_TRY(r->dist.vt->all_reduce(r->dist.all, &s, most, TT_I64, TT_MAX, err));
        TT_TRY(r->dist.vt->all_reduce(r->dist.all, &s.busy, 1, TT_I64, TT_SUM, err));
    }
    for (int i = 0; i < r->plan->schedule->n_stages; i++) {
        const int64_t *k = s.part[i];
        cost[i].f = 1e-9 * (double)k[TT_ACTION_F];
        cost[i].i = 1e-9 * (double)(k[TT_ACTION_I] ? k[TT_ACTION_I] : k[TT_ACTION_B]);
        cost[i].w = 1e-9 * (double)k[TT_ACTION_W];
    }
    const tt_costs costs = {cost, 1e-9 * (double)s.message};
    out->planned = r->plan->bubble;
    out->measured =
        s.span > 0 ? 1 - (double)s.busy / ((double)s.span * TT_MAXV(r->dist.world, 1)) : 0;
    tt_arena *a = tt_arena_new();
    const tt_status st = tt_programs_bubble(r->plan->programs, &costs, r->plan->buffered_messages,
                                            a, &out->replayed, err);
    tt_arena_free(a);
    return st;
}
