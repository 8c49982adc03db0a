/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/succeed.h"
#include <string.h>

/* A program that is made beside the one that it replaces, so that the loop need not stand still: what both
 * can use is not made again. All of it belongs to the old program until tt_exec_succeed. */

static bool same_state(const tt_program_state *a, const tt_program_state *b)
{
    bool same = a->offset == b->offset && a->space == b->space && a->for_host == b->for_host &&
                a->tensor.dtype == b->tensor.dtype && a->tensor.n_dims == b->tensor.n_dims &&
                !strcmp(a->name, b->name);
    for (int d = 0; same && d < a->tensor.n_dims; d++)
        same = a->tensor.shape[d] == b->tensor.shape[d] &&
               a->tensor.begin[d] == b->tensor.begin[d] &&
               a->tensor.global[d] == b->tensor.global[d];
    return same;
}

/* Whether every state of p that lasts from step to step is one of q at the same place. Both list them in
 * the order of the model. */
static bool same_states(const tt_program *p, const tt_program *q)
{
    int k = 0;
    for (int i = 0; i < p->n_states; i++) {
        if (p->states[i].fresh)
            continue;
        while (k < q->n_states && (q->states[k].fresh || !same_state(&p->states[i], &q->states[k])))
            k++;
        if (k++ == q->n_states)
            return false;
    }
    return p->read_end == q->read_end && p->written_end == q->written_end;
}

/* Behind the states nothing lasts from step to step. */
static bool shares(const tt_program *p, const tt_exec *from, tt_space space)
{
    if (!from || from->o.poison || (size_t)tt_program_space_bytes(p, space) > from->mapped[space])
        return false;
    return space > TT_SPACE_STATE || (space == TT_SPACE_STATE && same_states(p, from->p));
}

int64_t tt_exec_own_bytes(const tt_program *p, const tt_exec *from)
{
    int64_t bytes = 0;
    for (int s = TT_SPACE_STATE; s < TT_N_SPACES; s++)
        if (!shares(p, from, (tt_space)s))
            bytes += tt_program_space_bytes(p, (tt_space)s);
    return bytes;
}

bool tt_exec_keeps_states(const tt_exec *x)
{
    return x->o.from && x->borrowed >> TT_SPACE_STATE & 1;
}

bool tt_exec_borrow_space(tt_exec *x, tt_space space)
{
    if (!shares(x->p, x->o.from, space))
        return false;
    x->space[space] = x->o.from->space[space];
    x->mapped[space] = x->o.from->mapped[space];
    x->borrowed |= 1u << space;
    return true;
}

static void borrow(tt_exec *x, const tt_group_comm *g, uint16_t atoms)
{
    tt_group_comm copy = *g;
    copy.ranks = tt_arena_dup(x->arena, g->ranks, (size_t)g->n * sizeof *g->ranks);
    tt_vec_push(x->arena, &x->groups, copy);
    tt_vec_push(x->arena, &x->group_atoms, atoms);
}

tt_status tt_exec_borrow_group(tt_exec *x, uint16_t atoms, tt_group_comm *out, tt_error *err)
{
    const tt_exec *from = x->o.from;
    for (size_t i = 0; i < from->group_atoms.n; i++)
        if (from->group_atoms.items[i] == atoms) {
            borrow(x, &from->groups.items[i], atoms);
            *out = x->groups.items[x->groups.n - 1];
            return TT_OK;
        }
    return TT_FAIL(err, TT_EBUSY, "the running program has no such group of ranks");
}

tt_status tt_exec_borrow_queue(tt_exec *x, int queue, uint16_t atoms, tt_error *err)
{
    const tt_exec *from = x->o.from;
    const int most = x->p->queues[queue - 1].n_collectives + 1;
    for (int i = 1; i <= from->p->n_queues; i++) {
        const tt_queue *q = &from->queues[i];
        if (!q->opened || q->atoms != atoms || !q->async || tt_async_most(q->async) < most)
            continue;
        x->queues[queue] = *q;
        x->queues[queue].own = false;
        x->queues[queue].epoch = x->epoch;
        return TT_OK;
    }
    return TT_FAIL(err, TT_EBUSY, "the running program has no such queue of collectives");
}

/* A queue that the new program does not use ends with the old one. */
static void take_queues(tt_exec *x, tt_exec *from)
{
    for (int i = 1; i <= x->p->n_queues; i++)
        for (int k = 1; k <= from->p->n_queues && x->queues[i].async; k++)
            if (from->queues[k].own && from->queues[k].async == x->queues[i].async) {
                from->queues[k].own = false;
                x->queues[i].own = true;
            }
    for (int k = 1; k <= from->p->n_queues; k++)
        if (from->queues[k].own && from->queues[k].async) {
            from->queues[k].own = false;
            tt_async_free(from->queues[k].async);
        }
}

/* Also those that it does not use: the program after it may. */
static void take_groups(tt_exec *x, tt_exec *from)
{
    for (size_t i = 0; i < from->groups.n; i++) {
        bool has = false;
        for (size_t k = 0; k < x->group_atoms.n; k++)
            has = has || x->group_atoms.items[k] == from->group_atoms.items[i];
        if (!has)
            borrow(x, &from->groups.items[i], from->group_atoms.items[i]);
    }
    from->groups.n = from->group_atoms.n = 0;
}

void tt_exec_succeed(tt_exec *x)
{
    tt_exec *from = x->o.from;
    if (!from)
        return;
    from->borrowed |= x->borrowed;
    x->borrowed = 0;
    take_queues(x, from);
    take_groups(x, from);
    x->o.from = NULL;
}
