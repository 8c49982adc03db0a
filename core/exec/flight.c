/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/exec_impl.h"

/* Collectives on queues of their own: begun at their instruction, by the thread of their group's
 * queue, and waited for at the WAIT. What is measured as communication is the wait alone.
 *
 * With poison each is made at its wait, by this thread: who reads too early finds NaN, whatever the
 * timing. Where the communicator has no threads of its own it is made at its instruction. */

/* The queue of a group; a second program (validation) uses that one's. */
static tt_status open_queue(tt_exec *x, int queue, const tt_group_comm *g, tt_error *err)
{
    tt_queue *q = &x->queues[queue];
    const tt_exec *p = x->o.parent;
    if (q->async)
        return TT_OK;
    q->atoms = tt_atom_list_mask(&x->p->queues[queue].atoms);
    for (int i = 0; p && i < p->p->n_queues; i++)
        if (p->queues[i].async && p->queues[i].atoms == q->atoms)
            q->async = p->queues[i].async;
    q->own = !q->async;
    return q->own ? tt_async_new(x->o.dist, g->ranks, g->n, x->p->queues[queue].n_collectives + 1,
                                 &q->async, err)
                  : TT_OK;
}

tt_status tt_exec_bind_flight(tt_exec *x, tt_bound *b, tt_error *err)
{
    const int queue = b->instr->queue - 1;
    if (!x->o.poison && !tt_async_can(x->o.dist))
        return TT_OK;
    if (!x->o.poison)
        TT_TRY(open_queue(x, queue, &b->collective->group, err));
    b->flight = tt_arena_alloc(x->arena, sizeof *b->flight);
    *b->flight = (tt_flight){.x = x, .queue = x->o.poison ? -1 : queue};
    return TT_OK;
}

void tt_exec_free_queues(tt_exec *x)
{
    for (int i = 0; x->queues && i < x->p->n_queues; i++)
        if (x->queues[i].own)
            tt_async_free(x->queues[i].async);
}

static tt_status fly(void *arg, const tt_comm_vt *vt, tt_comm *comm, tt_error *err)
{
    tt_flight *f = arg;
    (void)vt;
    const bool timed = f->x->trace != NULL;
    f->begin_ns = timed ? tt_now_ns() : 0;
    const tt_status s = tt_exec_run_collective(f->x, f->bound, &f->in, &f->out, comm, err);
    f->end_ns = timed ? tt_now_ns() : 0;
    return s;
}

tt_status tt_exec_take_off(tt_flight *f, const tt_bound *b, const tt_tensor *in,
                           const tt_tensor *out, int micro, tt_error *err)
{
    tt_exec *x = f->x;
    TT_ASSERT(!f->under_way);
    f->bound = b;
    f->in = *in;
    f->out = *out;
    f->micro = micro;
    f->under_way = true;
    if (f->queue >= 0)
        return tt_async_begin(x->queues[f->queue].async, fly, f, &f->ticket, err);
    tt_exec_poison(out->data, (size_t)tt_tensor_numel(out) * tt_dtype_size(out->dtype));
    return TT_OK;
}

tt_status tt_exec_name_step(const tt_exec *x, const tt_instr *i, tt_error *err)
{
    return tt_error_context(err, "step %lld, %s in \"%s\"", (long long)x->step, i->op, i->scope);
}

tt_status tt_exec_land(tt_flight *f, const tt_instr *wait, tt_error *err)
{
    tt_exec *x = f->x;
    if (!f->under_way)
        return TT_OK;
    const tt_bound *b = f->bound;
    const int64_t t0 = tt_now_ns();
    const tt_status s = f->queue >= 0 ? tt_async_wait(x->queues[f->queue].async, f->ticket, err)
                                      : tt_exec_run_collective(x, b, &f->in, &f->out,
                                                               b->collective->group.comm, err);
    const int64_t t1 = tt_now_ns();
    f->under_way = false;
    x->comm_ns += t1 - t0;
    if (s != TT_OK)
        return tt_exec_name_step(x, b->instr, err);
    if (x->trace && f->queue >= 0)
        tt_exec_trace_add(x->trace, &(tt_trace_event){b->instr, f->begin_ns, f->end_ns, -1,
                                                      f->micro, f->queue + 1, false, false});
    if (x->trace)
        tt_exec_trace_add(x->trace,
                          &(tt_trace_event){b->instr, t0, t1, -1, f->micro, 0, true, false});
    if (x->o.detect_nan)
        TT_TRY(tt_exec_check_finite(x, b->instr, &f->out, 1, f->micro, err));
    if (!x->o.poison)
        return TT_OK;
    TT_TRY(tt_exec_after(x, b, &f->out, err));
    tt_exec_poison_last_used(x, wait);
    return TT_OK;
}
