/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/call_log.h"
#include "exec/debug.h"
#include <string.h>

/* Collectives on queues of their own, on the host: the thread of the group's queue begins them at their
 * instruction, and the program waits for them at the WAIT. Only that wait counts as communication.
 *
 * With poison this thread makes each call at its wait, so that an instruction that reads the result
 * too early finds NaN, whatever the timing. If the communicator has no threads of its own, the call
 * is made at its instruction. */

tt_status tt_exec_bind_pending(tt_exec *x, tt_bound *b, tt_error *err)
{
    const int queue = b->instr->queue;
    const bool can = tt_device_is_host(&x->o.device) && tt_async_can(x->o.dist);
    if (!x->o.poison && !can)
        return TT_OK;
    if (!x->o.poison)
        TT_TRY(tt_exec_group_queue(x, queue, &b->exchange->group, err));
    b->pending = tt_arena_alloc(x->arena, sizeof *b->pending);
    *b->pending = (tt_pending){.x = x, .queue = x->o.poison ? -1 : queue};
    return TT_OK;
}

static tt_status make_call(const tt_pending *c, tt_comm *comm, tt_error *err)
{
    const tt_exec *x = c->x;
    const tt_exchange_call call = {.vt = x->o.dist->data_vt,
                                   .comm = comm,
                                   .mover = tt_exec_mover(x),
                                   .in = c->in,
                                   .n_in = c->bound->n_in,
                                   .out = &c->out,
                                   .scratch = c->bound->scratch,
                                   .alignment = x->p->alignment,
                                   .clear = x->o.detect_nan};
    tt_called_name(c->bound->instr->scope, c->bound->instr->op);
    return tt_exchange_run(c->bound->exchange, &call, err);
}

static tt_status call_in_queue(void *arg, const tt_comm_vt *vt, tt_comm *comm, tt_error *err)
{
    tt_pending *c = arg;
    (void)vt;
    const bool timed = c->x->trace != NULL;
    c->begin_ns = timed ? tt_now_ns() : 0;
    const tt_status s = make_call(c, comm, err);
    c->end_ns = timed ? tt_now_ns() : 0;
    return s;
}

tt_status tt_exec_begin(tt_pending *c, const tt_bound *b, const tt_tensor *in, const tt_tensor *out,
                        int micro, tt_error *err)
{
    tt_exec *x = c->x;
    TT_ASSERT(!c->begun);
    c->bound = b;
    TT_ASSERT((size_t)b->n_in <= TT_COUNT(c->in));
    memcpy(c->in, in, (size_t)b->n_in * sizeof *in);
    c->out = *out;
    c->micro = micro;
    c->begun = true;
    if (c->queue >= 0)
        return tt_async_begin(x->queues[c->queue].async, call_in_queue, c, &c->ticket, err);
    return tt_exec_poison(x, out->data, (size_t)tt_tensor_bytes(out), err);
}

tt_status tt_exec_name_step(const tt_exec *x, const tt_instr *i, tt_error *err)
{
    return tt_error_context(err, "step %lld, %s in \"%s\"", (long long)x->step, i->op, i->scope);
}

tt_status tt_exec_end(tt_pending *c, const tt_instr *wait, tt_error *err)
{
    tt_exec *x = c->x;
    if (!c->begun)
        return TT_OK;
    const tt_bound *b = c->bound;
    const bool host = tt_device_is_host(&x->o.device);
    const tt_trace_event waited = {.instr = b->instr, .rows = -1, .micro = c->micro, .wait = true};
    if (!host) /* with poison: the call itself */
        TT_TRY(tt_exec_mark_begin(x, b, err));
    const int64_t t0 = tt_now_ns();
    const tt_status s = c->queue >= 0 ? tt_async_wait(x->queues[c->queue].async, c->ticket, err)
                                      : make_call(c, b->exchange->group.comm, err);
    const int64_t t1 = tt_now_ns();
    c->begun = false;
    x->comm_ns += host ? t1 - t0 : 0;
    x->comm.axes[b->communicates - 1].ns += host ? t1 - t0 : 0;
    if (s != TT_OK)
        return tt_exec_name_step(x, b->instr, err);
    if (!host)
        TT_TRY(tt_exec_mark_end(x, b, &waited, err));
    if (x->trace && c->queue >= 0)
        tt_trace_add(x->trace, &(tt_trace_event){b->instr, c->begin_ns, c->end_ns, -1, c->micro,
                                                 c->queue, false, false});
    if (x->trace && host)
        tt_trace_add(x->trace, &(tt_trace_event){b->instr, t0, t1, -1, c->micro, 0, true, false});
    if (x->o.detect_nan)
        TT_TRY(tt_exec_check_finite(x, b->instr, &c->out, 1, c->micro, err));
    if (!x->o.poison)
        return TT_OK;
    TT_TRY(tt_exec_after(x, b, &c->out, err));
    return tt_exec_poison_last_used(x, wait, err);
}
