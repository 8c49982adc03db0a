/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan_impl.h"
#include <string.h>

/* A rank's program against its slots: each part finds them free, or holding its own micro-batch. */

typedef struct holder {
    const tt_plan *p;
    int *held[TT_MAX_STAGES][TT_N_HOLDS]; /* by slot: its micro-batch, -1 = free */
    const char *bad;
} holder;

static int *slot_of(holder *h, int stage, tt_hold hold, int micro)
{
    const tt_stage_plan *s = tt_plan_stage(h->p, stage);
    const int k = s ? s->slot[hold][micro] : -1;
    if (s && (k < 0 || k >= s->n_slots[hold])) {
        h->bad = "a stage has no such slot";
        return NULL;
    }
    return s ? &h->held[stage][hold][k] : NULL;
}

static void take(holder *h, int stage, tt_hold hold, int micro)
{
    int *at = slot_of(h, stage, hold, micro);
    if (at && *at >= 0)
        h->bad = "a slot is reused before its last reader";
    if (at)
        *at = micro;
}

static void use(holder *h, int stage, tt_hold hold, int micro, bool release)
{
    int *at = slot_of(h, stage, hold, micro);
    if (at && *at != micro)
        h->bad = "a slot holds another micro-batch than its reader's";
    if (at && release)
        *at = -1;
}

/* What a message, or a neighbour on this rank, brings to a stage. */
static void arrive(holder *h, tt_action_kind kind, int stage, int micro)
{
    if (kind != TT_ACTION_F) {
        take(h, stage, TT_HOLD_WGRAD, micro);
        return;
    }
    take(h, stage, TT_HOLD_SLOT, micro);
    if (tt_plan_stage(h->p, stage)->n_slots[TT_HOLD_KEEP]) /* not of forwards alone */
        take(h, stage, TT_HOLD_KEEP, micro);
}

static void run_action(holder *h, const tt_action *a)
{
    const tt_schedule *sc = h->p->schedule;
    const int s = a->stage, m = a->micro, last = sc->n_stages - 1;
    const bool backward = tt_plan_stage(h->p, s)->n_slots[TT_HOLD_KEEP] > 0;
    if (a->kind == TT_ACTION_F && s == 0)
        arrive(h, TT_ACTION_F, s, m);
    if ((a->kind == TT_ACTION_I || a->kind == TT_ACTION_B) && s == last)
        arrive(h, TT_ACTION_I, s, m);
    if (a->kind != TT_ACTION_W)
        use(h, s, TT_HOLD_SLOT, m, a->kind != TT_ACTION_F || !backward);
    const int to = a->kind == TT_ACTION_F ? s + 1 : s - 1;
    if (a->kind == TT_ACTION_F) {
        if (to <= last && tt_plan_here(h->p, to))
            arrive(h, TT_ACTION_F, to, m);
        return;
    }
    use(h, s, TT_HOLD_KEEP, m, a->kind != TT_ACTION_I);
    use(h, s, TT_HOLD_WGRAD, m, a->kind != TT_ACTION_I);
    if (a->kind != TT_ACTION_W && to >= 0 && tt_plan_here(h->p, to))
        arrive(h, TT_ACTION_I, to, m);
}

const char *tt_plan_check_slots(const tt_plan *p)
{
    tt_arena *a = tt_arena_new();
    holder h = {.p = p};
    for (int i = 0; i < p->n_stages; i++)
        for (int k = 0; k < TT_N_HOLDS; k++) {
            const size_t n = (size_t)p->stages[i].n_slots[k] + 1;
            h.held[p->stages[i].stage][k] = tt_arena_array(a, n, sizeof(int));
            memset(h.held[p->stages[i].stage][k], 0xff, n * sizeof(int));
        }
    for (int i = 0; !h.bad && i < p->programs->n_items[p->pp_rank]; i++) {
        const tt_item *x = &p->programs->items[p->pp_rank][i];
        if (x->kind == TT_ITEM_RECV)
            arrive(&h, x->action.kind, x->action.stage + (x->action.kind == TT_ACTION_F ? 1 : -1),
                   x->action.micro);
        else if (x->kind == TT_ITEM_RUN && p->graph->n_stages > 1)
            run_action(&h, &x->action);
    }
    tt_arena_free(a);
    return h.bad;
}
