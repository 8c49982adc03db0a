/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/exec_impl.h"

/* Collectives beside the program: begun at their instruction, on the queue of their group, and
 * waited for where the plan says. What is measured as communication is the wait alone.
 *
 * With poison each is made at its wait, by this thread: who reads too early finds NaN, whatever the
 * timing. Where the communicator has no threads of its own it is made at its instruction. */

static uint16_t mask_of(const tt_atom_list *atoms)
{
    uint16_t mask = 0;
    for (int i = 0; i < atoms->n; i++)
        mask |= (uint16_t)(1u << TT_ATOM(atoms->atom[i]));
    return mask;
}

static int n_async(const tt_plan *p)
{
    int n = 0;
    for (size_t i = 0; i < p->graph->nodes.n; i++)
        n += p->graph->nodes.items[i]->async;
    return n;
}

/* The queue of a group; a program beside another (validation) uses that one's. */
static tt_status queue_of(tt_exec *x, const tt_atom_list *atoms, const tt_group_comm *g, int *out,
                          tt_error *err)
{
    tt_queue q = {.atoms = mask_of(atoms)};
    const tt_exec *p = x->o.parent;
    for (size_t i = 0; i < x->queues.n; i++)
        if (x->queues.items[i].atoms == q.atoms) {
            *out = (int)i;
            return TT_OK;
        }
    for (size_t i = 0; p && i < p->queues.n; i++)
        if (p->queues.items[i].atoms == q.atoms)
            q.async = p->queues.items[i].async;
    q.own = !q.async;
    if (q.own)
        TT_TRY(tt_async_new(x->o.dist, g->ranks, g->n, n_async(x->o.plan) + 1, &q.async, err));
    *out = (int)x->queues.n;
    tt_vec_push(x->arena, &x->queues, q);
    return TT_OK;
}

tt_status tt_exec_bind_flight(tt_exec *x, tt_instr *i, tt_error *err)
{
    const tt_collective *c = i->collective;
    if (!i->node->async || c->group.n < 2 || (!x->o.poison && !tt_async_can(x->o.dist)))
        return TT_OK;
    tt_flight *f = tt_arena_alloc(x->arena, sizeof *f);
    *f = (tt_flight){.x = x, .node = i->node, .queue = -1};
    if (!x->o.poison)
        TT_TRY(queue_of(x, &i->node->step->atoms, &c->group, &f->queue, err));
    x->flights[i->node->id] = i->flight = f;
    return TT_OK;
}

void tt_exec_free_queues(tt_exec *x)
{
    for (size_t i = 0; i < x->queues.n; i++)
        if (x->queues.items[i].own)
            tt_async_free(x->queues.items[i].async);
}

static tt_status fly(void *arg, const tt_comm_vt *vt, tt_comm *comm, tt_error *err)
{
    tt_flight *f = arg;
    (void)vt;
    const bool timed = f->x->trace != NULL;
    f->begin_ns = timed ? tt_now_ns() : 0;
    const tt_status s = tt_exec_run_collective(f->x, f->instr, &f->in, &f->out, comm, err);
    f->end_ns = timed ? tt_now_ns() : 0;
    return s;
}

tt_status tt_exec_take_off(tt_flight *f, const tt_instr *i, const tt_tensor *in,
                           const tt_tensor *out, int micro, tt_error *err)
{
    tt_exec *x = f->x;
    TT_ASSERT(!f->under_way);
    f->instr = i;
    f->in = *in;
    f->out = *out;
    f->micro = micro;
    f->under_way = true;
    if (f->queue >= 0)
        return tt_async_begin(x->queues.items[f->queue].async, fly, f, &f->ticket, err);
    tt_exec_poison(out->data, (size_t)tt_tensor_numel(out) * tt_dtype_size(out->dtype));
    return TT_OK;
}

tt_status tt_exec_name_step(const tt_exec *x, const tt_instr *i, tt_error *err)
{
    return tt_error_context(err, "step %lld, %s in \"%s\"", (long long)x->step, i->node->op->name,
                            i->node->scope ? i->node->scope : "");
}

static tt_status land(tt_flight *f, tt_error *err)
{
    tt_exec *x = f->x;
    const tt_instr *i = f->instr;
    const int64_t t0 = tt_now_ns();
    const tt_status s =
        f->queue >= 0
            ? tt_async_wait(x->queues.items[f->queue].async, f->ticket, err)
            : tt_exec_run_collective(x, i, &f->in, &f->out, i->collective->group.comm, err);
    const int64_t t1 = tt_now_ns();
    f->under_way = false;
    x->comm_ns += t1 - t0;
    if (s != TT_OK)
        return tt_exec_name_step(x, i, err);
    if (x->trace && f->queue >= 0)
        tt_exec_trace_add(x->trace, &(tt_trace_event){i, f->begin_ns, f->end_ns, -1, f->micro,
                                                      f->queue + 1, false, false});
    if (x->trace)
        tt_exec_trace_add(x->trace, &(tt_trace_event){i, t0, t1, -1, f->micro, 0, true, false});
    if (x->o.detect_nan)
        TT_TRY(tt_exec_check_finite(x, i, &f->out, 1, f->micro, err));
    return x->o.poison ? tt_exec_after(x, i, &f->out, true, err) : TT_OK;
}

tt_status tt_exec_land(tt_flight *const *fs, int n, tt_error *err)
{
    for (int k = 0; k < n; k++)
        if (fs[k]->under_way)
            TT_TRY(land(fs[k], err));
    return TT_OK;
}
