/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan_impl.h"

/* Finds where async collectives and copies are waited for. */

bool tt_plan_one_timeline(const tt_graph *g)
{
    return g->n_stages == 1;
}

const tt_state *tt_plan_state(const tt_value *v)
{
    const tt_node *n = tt_plan_alias(v)->node;
    return n->op == &tt_op_state ? n->state : n->op == &tt_op_param ? n->param->stack->param : NULL;
}

const tt_state *tt_plan_written(const tt_node *n, int i)
{
    if (n->op == &tt_op_accumulate || n->op == &tt_op_assign)
        return i ? NULL : n->state;
    if (i == 0 && n->accumulate_into)
        return n->accumulate_into;
    for (int o = 0, k = n->accumulate_into != NULL; n->assign_to && o < n->n_out; o++)
        if (n->assign_to[o] && k++ == i)
            return n->assign_to[o];
    return NULL;
}

static bool reads_state(const tt_node *n, const tt_state *s)
{
    for (int i = 0; i < n->n_in; i++)
        if (tt_plan_state(n->in[i]) == s)
            return true;
    return false;
}

static bool writes_state(const tt_node *n, const tt_state *s)
{
    const tt_state *w;
    for (int i = 0; (w = tt_plan_written(n, i)); i++)
        if (w == s)
            return true;
    return false;
}

/* Does e copy to host memory, too, but states of other members? Then what was copied before is over: its
 * device memory is free again. */
static bool next_store(const tt_node *e, const tt_node *under_way)
{
    return e->async && e->op == &tt_op_assign && under_way->op == &tt_op_assign &&
           (e->state->stack != under_way->state->stack ||
            e->state->first != under_way->state->first);
}

/* A value that is copied to host memory has its device memory until the copy is waited for: for the
 * time of one further block, so that the copy is over by then. */
static bool frees_offloaded(const tt_node *e, const tt_node *under_way)
{
    return under_way->op == &tt_op_offload && e->block >= 0 &&
           !e->param && /* which may stand in another block */
           (e->when->region == TT_BACKWARD || e->block > under_way->block + 1);
}

/* Must this collective or copy be over before e begins? */
static bool waits_for(const tt_node *e, const tt_node *under_way)
{
    const tt_state *s;
    if (!tt_plan_runs(e))
        return false;
    if (next_store(e, under_way) || frees_offloaded(e, under_way))
        return true;
    for (int i = 0; i < e->n_in; i++)
        if (tt_plan_source(e->in[i])->node == under_way)
            return true;
    if (e->counts && tt_plan_source(e->counts)->node == under_way)
        return true;
    for (int i = 0; (s = tt_plan_written(under_way, i)); i++)
        if (reads_state(e, s) || writes_state(e, s))
            return true;
    for (int i = 0; (s = tt_plan_written(e, i)); i++)
        if (reads_state(under_way, s))
            return true;
    return false;
}

static void add(tt_nodes *l, int before, const tt_node *n)
{
    l->waits[l->n_waits++] = (tt_wait){before, n, false};
}

/* The item that begins w; < 0: it began in an earlier list. */
static int begin_of(const tt_nodes *l, const tt_wait *w)
{
    int i = l->n;
    while (--i >= 0 && l->items[i] != w->node)
        ;
    return i;
}

/* Copies in one direction are done one after the other, so who has waited for one of them has waited
 * for those that began before it. Waits at one place are in the order in which the copies began. */
static void find_implied(tt_nodes *l)
{
    static const tt_op_def *const copies[] = {&tt_op_offload, &tt_op_reload};
    for (size_t c = 0; c < TT_COUNT(copies); c++)
        for (int i = 0, last = -2; i < l->n_waits; i++) {
            const int begin = l->waits[i].node->op == copies[c] ? begin_of(l, &l->waits[i]) : -3;
            if (begin == -3)
                continue;
            l->waits[i].implied = begin < last;
            last = TT_MAXV(last, begin);
            for (int k = i + 1; k < l->n_waits && l->waits[k].before == l->waits[i].before; k++)
                l->waits[i].implied |= l->waits[k].node->op == copies[c];
        }
}

void tt_plan_find_waits(tt_arena *a, tt_nodes *l, tt_under_way *open, bool last)
{
    const tt_node **now = tt_arena_array(a, (size_t)(l->n + open->n) + 1, sizeof *now);
    int n = 0, loop = -1;
    l->waits = tt_arena_array(a, (size_t)(l->n + open->n) + 1, sizeof *l->waits);
    for (; n < open->n; n++)
        now[n] = open->items[n];
    for (int i = 0; i < l->n; i++) {
        const tt_node *e = l->items[i];
        loop = !e->when->in_chunk_loop ? -1
               : loop < 0              ? i
                                       : loop; /* it runs several times: wait before the loop */
        int kept = 0;
        for (int k = 0; k < n; k++) {
            if (waits_for(e, now[k]))
                add(l, e->when->in_chunk_loop ? loop : i, now[k]);
            else
                now[kept++] = now[k];
        }
        n = kept;
        if (e->async)
            now[n++] = e;
    }
    for (int k = 0; last && k < n; k++)
        add(l, l->n, now[k]);
    find_implied(l);
    *open = (tt_under_way){now, last ? 0 : n};
}
