/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan_impl.h"

/* Finds what a pipeline rank runs: its nodes in lists, and where each list waits. */

/* NULL: the stage is on another rank. */
static tt_stage_plan *plan_stage(const tt_plan *p, int stage)
{
    for (int i = 0; i < p->n_stages; i++)
        if (p->stages[i].stage == stage)
            return &p->stages[i];
    return NULL;
}

bool tt_plan_here(const tt_plan *p, int stage)
{
    return plan_stage(p, stage) != NULL;
}

/* Does the rank that has the node's stage compute it as the node of another one of its stages? */
static bool is_replica(const tt_plan *p, const tt_node *n)
{
    const int *rank_of = p->schedule->stage_rank;
    bool any = false;
    for (uint64_t left = n->when->replicated_stages; left; left &= left - 1)
        any = any || rank_of[__builtin_ctzll(left)] == rank_of[n->when->stage];
    return any;
}

bool tt_plan_takes_part(const tt_plan *p, const tt_node *n)
{
    if (is_replica(p, n)) /* then nobody sends a value to it, either */
        return false;
    if (n->op == &tt_op_transfer && tt_plan_here(p, n->in[0]->node->when->stage))
        return true; /* this rank sends it */
    return tt_plan_here(p, n->when->stage);
}

/* The list that node n is in; NULL: it is another rank's. */
static tt_nodes *list_of(tt_plan *plan, const tt_node *n)
{
    tt_stage_plan *s = plan_stage(plan, n->when->stage);
    if (n->when->region <= TT_BACKWARD)
        return s ? &s->part[tt_node_part(n)] : NULL;
    if (!tt_plan_takes_part(plan, n))
        return NULL;
    return n->when->region == TT_EPILOGUE ? &plan->epilogue : &plan->update;
}

/* Fills the lists: of each stage by part, of the step regions in graph order. Counts first, then
 * fills. */
static void collect(tt_plan *plan, tt_arena *a)
{
    const tt_graph *g = plan->graph;
    tt_arena *own = tt_arena_new();
    tt_nodes **of = tt_arena_array(own, g->nodes.n + 1, sizeof *of);
    for (size_t i = 0; i < g->nodes.n; i++) {
        of[i] = list_of(plan, g->nodes.items[i]);
        if (of[i])
            of[i]->n++;
    }
    for (size_t i = 0; i < g->nodes.n; i++) {
        tt_nodes *l = of[i];
        if (!l)
            continue;
        if (!l->items) {
            l->items = tt_arena_array(a, (size_t)l->n + 1, sizeof *l->items);
            l->n = 0;
        }
        l->items[l->n++] = g->nodes.items[i];
    }
    tt_arena_free(own);
}

static void find_waits(tt_plan *plan, tt_arena *a)
{
    tt_under_way none = {0};
    for (int s = 0; s < plan->n_stages; s++)
        for (int k = 0; k < TT_N_PARTS; k++)
            tt_plan_find_waits(a, &plan->stages[s].part[k], &none,
                               k != TT_PART_F || !tt_plan_one_timeline(plan->graph));
    tt_plan_find_waits(a, &plan->epilogue, &none, true);
    tt_plan_find_waits(a, &plan->update, &none, true);
}

/* Finds the micro-batches that store where later ones add: the first of the forwards, and the
 * first of the parts that accumulate gradients. */
static void find_first(tt_stage_plan *s, const tt_schedule *sc)
{
    const int rank = sc->stage_rank[s->stage];
    s->first[0] = s->first[1] = -1;
    for (int i = 0; i < sc->n_actions[rank]; i++) {
        const tt_action *x = &sc->actions[rank][i];
        int *first = &s->first[x->kind != TT_ACTION_F];
        if (x->stage == s->stage && x->kind != TT_ACTION_I && *first < 0)
            *first = x->micro;
    }
}

void tt_plan_lists(const tt_graph *g, const tt_schedule *schedule, int pp_rank, tt_arena *a,
                   tt_plan *out)
{
    *out = (tt_plan){.graph = g, .schedule = schedule, .pp_rank = pp_rank};
    out->stages = tt_arena_array(a, (size_t)g->n_stages, sizeof *out->stages);
    for (int s = 0; s < g->n_stages; s++)
        if (schedule->stage_rank[s] == pp_rank) {
            out->stages[out->n_stages].stage = s;
            find_first(&out->stages[out->n_stages++], schedule);
        }
    collect(out, a);
    find_waits(out, a);
}
