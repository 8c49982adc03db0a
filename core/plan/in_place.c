/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan_impl.h"

/* Finds outputs that take over an operand's bytes: the kernel allows it, nothing reads the
 * operand after the node, and both have the same size. Lifetimes must be known; offsets are
 * found afterwards. */

static int64_t numel(const planner *p, const tt_value *v)
{
    tt_tensor t;
    tt_plan_tensor(p->plan->graph, v, NULL, &t);
    return tt_tensor_numel(&t);
}

/* Is this the only operand of e in its memory? */
static bool alone(const tt_node *e, int i)
{
    for (int j = 0; j < e->n_in; j++)
        if (j != i && tt_plan_alias(e->in[j]) == tt_plan_alias(e->in[i]))
            return false;
    return true;
}

/* May out[0] of e, which runs at time t, take the bytes of operand i? */
static bool may_take(const planner *p, const tt_node *e, int i, int t, bool in_slots)
{
    const tt_value *in = tt_plan_alias(e->in[i]), *out = e->out[0];
    const tt_live *a = &p->live[in->id], *b = &p->live[out->id];
    if (!a->known || !b->known || !alone(e, i))
        return false; /* it is a state, on another rank, or read twice */
    if (a->first >= t || a->last != t || b->first != t || a->held >= t)
        return false; /* it is read later, sent, or read concurrently */
    if (in->node->op == &tt_op_input || a->received || in->node->when->per_step)
        return false; /* it is not computed anew each time the list runs */
    if (e->when->in_chunk_loop && (!in->chunked || !out->chunked))
        return false; /* the next chunk reads it again */
    if (in_slots && (tt_plan_space_of(a) != TT_SPACE_WORK || tt_plan_space_of(b) != TT_SPACE_WORK))
        return false;
    return e->in[i]->type.dtype == out->type.dtype && in->type.dtype == out->type.dtype &&
           a->bytes == b->bytes && numel(p, e->in[i]) == numel(p, out) &&
           numel(p, in) == numel(p, out);
}

/* Does a kernel of its own write the output of e? */
static bool writes_anew(const tt_node *e)
{
    return e->n_out && e->role != TT_NODE_EXPANDED && !e->async && !e->when->per_step &&
           !e->accumulate_into && !(e->assign_to && e->assign_to[0]) &&
           !(e->op->flags & TT_OP_VIEW);
}

void tt_plan_take_over(planner *p, const tt_nodes *l, int at, bool in_slots)
{
    for (int n = 0; p->o->in_place && n < l->n; n++) {
        const tt_node *e = l->items[n];
        const int may = writes_anew(e) && tt_plan_here(p->plan, e->when->stage)
                            ? p->o->in_place(p->o->user, e->op->name)
                            : 0;
        for (int i = 0; may && i < e->n_in; i++) {
            if (!(may >> i & 1) || !may_take(p, e, i, at + 1 + n, in_slots))
                continue;
            tt_live *a = &p->live[tt_plan_alias(e->in[i])->id], *b = &p->live[e->out[0]->id];
            b->host = a->host ? a->host : a;
            b->host->own_last = b->host->own_last ? b->host->own_last : b->host->last;
            b->host->last = b->last;
            p->plan->in_place[e->id] = (int8_t)i;
            break;
        }
    }
}

static void let_go(planner *p, tt_live *l)
{
    if (l->host)
        p->plan->in_place[l->value->node->id] = -1;
    l->host = NULL;
    l->last = l->own_last ? l->own_last : l->last;
}

int64_t tt_plan_color_in_place(planner *p, tt_live **lives, size_t n)
{
    tt_live **hosts = tt_arena_array(p->a, n + 1, sizeof *hosts);
    int64_t *offset = tt_arena_array(p->a, n + 1, sizeof *offset);
    int *last = tt_arena_array(p->a, n + 1, sizeof *last);
    size_t n_hosts = 0;
    for (size_t i = 0; i < n; i++)
        if (!lives[i]->host)
            hosts[n_hosts++] = lives[i];
    const int64_t least = tt_plan_most_alive(p->a, hosts, n_hosts),
                  peak = tt_plan_color(p->a, hosts, n_hosts);
    if (peak > least && n_hosts < n) { /* values that share bytes may leave larger gaps */
        for (size_t i = 0; i < n; i++) {
            offset[i] = lives[i]->offset;
            last[i] = lives[i]->last;
            lives[i]->last = lives[i]->own_last ? lives[i]->own_last : last[i];
        }
        tt_live **apart = tt_arena_array(p->a, n + 1, sizeof *apart);
        for (size_t i = 0; i < n; i++)
            apart[i] = lives[i];
        const int64_t alone = tt_plan_color(p->a, apart, n);
        for (size_t i = 0; i < n && alone < peak; i++)
            let_go(p, lives[i]);
        if (alone < peak)
            return alone;
        for (size_t i = 0; i < n; i++) {
            lives[i]->offset = offset[i];
            lives[i]->last = last[i];
        }
    }
    for (size_t i = 0; i < n; i++)
        if (lives[i]->host)
            lives[i]->offset = lives[i]->host->offset;
    return peak;
}
