/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/exec_impl.h"

/* The order of a program's queues: by its RECORD and WAIT and, around graphs, by fences.
 *
 * A wait cannot name an event that was recorded on the other side of a graph's begin or end. So before a
 * graph queue 0 waits for all other queues, and after it they wait for queue 0 when they are next used.
 * Between two such places lies an epoch: an event is waited for only in the epoch in which it was
 * recorded, because an earlier one is before queue 0's work already. */

tt_status tt_exec_events_open(tt_exec *x, tt_error *err)
{
    const size_t n = (size_t)x->p->n_events + 2;
    x->events = tt_arena_array(x->arena, n, sizeof(tt_device_event *));
    x->recorded = tt_arena_array(x->arena, n, sizeof *x->recorded);
    for (size_t i = 0; i < n; i++)
        x->recorded[i] = -1;
    for (int i = 0; x->streams && i <= x->p->n_events; i++)
        TT_TRY(tt_device_event_new(&x->o.device, false, &x->events[i], err));
    return x->streams ? tt_device_event_new(&x->o.device, false, &x->fence, err) : TT_OK;
}

void tt_exec_events_free(tt_exec *x)
{
    for (int i = 0; x->events && i <= x->p->n_events; i++)
        tt_device_event_free(&x->o.device, x->events[i]);
    tt_device_event_free(&x->o.device, x->fence);
}

static tt_status order(const tt_exec *x, int before, int after, tt_error *err)
{
    const tt_device *d = &x->o.device;
    TT_TRY(tt_device_record(d, x->fence, x->queues[before].mover.queue, err));
    return tt_device_wait(d, x->queues[after].mover.queue, x->fence, err);
}

tt_status tt_exec_use_queue(tt_exec *x, int queue, tt_error *err)
{
    tt_queue *q = &x->queues[queue];
    if (!queue || q->epoch == x->epoch)
        return TT_OK;
    q->epoch = x->epoch;
    return order(x, 0, queue, err);
}

tt_status tt_exec_join_queues(tt_exec *x, tt_error *err)
{
    for (int i = 1; x->streams && i <= x->p->n_queues; i++)
        if (x->queues[i].opened && x->queues[i].epoch == x->epoch)
            TT_TRY(order(x, i, 0, err));
    x->epoch++;
    return TT_OK;
}

/* On the host only a wait of queue 0 for the call of a thread does something. */
tt_status tt_exec_event(tt_exec *x, const tt_bound *b, int micro, tt_error *err)
{
    const tt_device *d = &x->o.device;
    const tt_queue *q = &x->queues[b->instr->queue];
    const int event = b->instr->event;
    if (!x->streams)
        return b->kind == TT_INSTR_WAIT && b->pending ? tt_exec_end(b->pending, b->instr, err)
                                                      : TT_OK;
    if (!q->opened)
        return TT_OK;
    TT_TRY(tt_exec_use_queue(x, b->instr->queue, err));
    if (b->kind == TT_INSTR_RECORD) {
        x->recorded[event] = x->epoch;
        return tt_device_record(d, x->events[event], q->mover.queue, err);
    }
    if (x->recorded[event] != x->epoch)
        return TT_OK;
    if (!b->over)
        return tt_device_wait(d, q->mover.queue, x->events[event], err);
    TT_TRY(tt_exec_mark_begin(x, b, err));
    TT_TRY(tt_device_wait(d, q->mover.queue, x->events[event], err));
    return tt_exec_mark_end(
        x, b, &(tt_trace_event){.instr = b->over->instr, .rows = -1, .micro = micro, .wait = true},
        err);
}
