/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/exec_impl.h"
#include <stdlib.h>

/* How long work takes on a device, where the host's clock tells only when work is put on a queue: timed
 * events before and behind it, on its own queue. They are made once, and read when they have happened:
 * those around communication after the epilogue, those of a traced step when its record is read. */

#define MOST_COMM 16384 /* pairs of a step; of more communication the time is not known */

static bool waits_for_others(const tt_bound *b)
{
    return !b->queue && (b->communicates || (b->kind == TT_INSTR_WAIT && b->over));
}

static size_t comm_of_section(const tt_exec *x, const tt_section *s)
{
    size_t n = 0, times = 1;
    for (int i = s->begin; i < s->end; i++) {
        const tt_bound *b = &x->code[i];
        if (b->kind == TT_INSTR_LOOP)
            times = (size_t)x->p->most_chunks;
        if (b->kind == TT_INSTR_END_LOOP)
            times = 1;
        n += waits_for_others(b) ? times : 0;
    }
    return n;
}

static tt_status new_marks(tt_exec *x, size_t n, tt_device_event ***out, tt_error *err)
{
    tt_device_event **e = tt_arena_array(x->arena, n + 1, sizeof(tt_device_event *));
    *out = e;
    for (size_t i = 0; i < n; i++)
        TT_TRY(tt_device_event_new(&x->o.device, true, &e[i], err));
    return TT_OK;
}

tt_status tt_exec_times_open(tt_exec *x, tt_error *err)
{
    const tt_program *p = x->p;
    if (tt_device_is_host(&x->o.device))
        return TT_OK;
    size_t n =
        comm_of_section(x, &p->sections[p->epilogue]) + comm_of_section(x, &p->sections[p->update]);
    for (int i = 0; i < p->n_calls && n <= MOST_COMM; i++)
        n += comm_of_section(x, &p->sections[p->calls[i].section]);
    x->times.most_comm = n <= MOST_COMM ? n : 0;
    TT_TRY(new_marks(x, 2 * x->times.most_comm, &x->times.comm, err));
    x->times.comm_before = x->times.comm;
    return x->o.late ? new_marks(x, 2 * x->times.most_comm, &x->times.comm_before, err) : TT_OK;
}

tt_status tt_exec_times_trace_open(tt_exec *x, size_t events, size_t items, tt_error *err)
{
    tt_times *t = &x->times;
    if (tt_device_is_host(&x->o.device))
        return TT_OK;
    TT_TRY(tt_device_event_new(&x->o.device, true, &t->base, err));
    t->first_of_item = tt_arena_array(x->arena, items + 1, sizeof *t->first_of_item);
    t->n_events = 2 * events;
    TT_TRY(new_marks(x, t->n_events, &t->events, err));
    t->n_items = 2 * items;
    return new_marks(x, t->n_items, &t->items, err);
}

static void free_marks(const tt_exec *x, tt_device_event **e, size_t n)
{
    for (size_t i = 0; e && i < n; i++)
        tt_device_event_free(&x->o.device, e[i]);
}

void tt_exec_times_free(tt_exec *x)
{
    const tt_times *t = &x->times;
    free_marks(x, t->comm, 2 * t->most_comm);
    if (t->comm_before != t->comm)
        free_marks(x, t->comm_before, 2 * t->most_comm);
    free_marks(x, t->events, t->n_events);
    free_marks(x, t->items, t->n_items);
    tt_device_event_free(&x->o.device, t->base);
}

/* ---- recording ---- */

tt_status tt_exec_times_begin(tt_exec *x, tt_error *err)
{
    const tt_device *d = &x->o.device;
    if (!x->times.base || !x->trace)
        return TT_OK;
    TT_TRY(tt_device_record(d, x->times.base, tt_exec_mover(x)->queue, err));
    TT_TRY(tt_device_sync(d, x->times.base, err));
    x->times.base_ns = tt_now_ns();
    return TT_OK;
}

tt_status tt_exec_mark_begin(tt_exec *x, const tt_bound *b, tt_error *err)
{
    tt_times *t = &x->times;
    const tt_device *d = &x->o.device;
    tt_device_queue *q = x->queues[b->queue].mover.queue;
    if (x->graphs.capturing) /* a graph's events have no times */
        return TT_OK;
    if (t->n_comm < t->most_comm && waits_for_others(b))
        TT_TRY(tt_device_record(d, t->comm[2 * t->n_comm], q, err));
    return x->trace && x->trace->n < x->trace->cap
               ? tt_device_record(d, t->events[2 * x->trace->n], q, err)
               : TT_OK;
}

tt_status tt_exec_mark_end(tt_exec *x, const tt_bound *b, const tt_trace_event *e, tt_error *err)
{
    tt_times *t = &x->times;
    const tt_device *d = &x->o.device;
    tt_device_queue *q = x->queues[b->queue].mover.queue;
    if (x->graphs.capturing)
        return TT_OK;
    if (x->trace && x->trace->n < x->trace->cap)
        TT_TRY(tt_device_record(d, t->events[2 * x->trace->n + 1], q, err));
    if (x->trace)
        tt_trace_add(x->trace, e);
    if (t->n_comm == t->most_comm || !waits_for_others(b))
        return TT_OK;
    return tt_device_record(d, t->comm[2 * t->n_comm++ + 1], q, err);
}

tt_status tt_exec_mark_item(tt_exec *x, bool end, tt_error *err)
{
    tt_times *t = &x->times;
    const int i = x->trace->n_items;
    if (tt_device_is_host(&x->o.device))
        return TT_OK;
    if (!end)
        t->first_of_item[i] = x->trace->n;
    return tt_device_record(&x->o.device, t->items[2 * i + end], tt_exec_mover(x)->queue, err);
}

/* ---- reading ---- */

void tt_exec_times_end_step(tt_exec *x)
{
    tt_times *t = &x->times;
    tt_device_event **const free_now = t->comm_before;
    t->comm_before = t->comm;
    t->comm = free_now;
    t->n_comm_before = t->n_comm;
    t->n_comm = 0;
    t->in_graphs = x->graphs.comm;
    x->graphs.comm = false;
}

tt_status tt_exec_times_read_comm(tt_exec *x, tt_error *err)
{
    const tt_times *t = &x->times;
    tt_device_event **const marks = t->comm_before;
    double all = 0;
    for (size_t i = 0; i < t->n_comm_before; i++) {
        double s = 0;
        TT_TRY(tt_device_seconds(&x->o.device, marks[2 * i], marks[2 * i + 1], &s, err));
        all += s;
    }
    x->comm_ns = (int64_t)(1e9 * all);
    return TT_OK;
}

/* When a pair of events happened, on the host's clock. */
static tt_status read_pair(const tt_exec *x, tt_device_event *const *pair, int64_t *begin_ns,
                           int64_t *end_ns, tt_error *err)
{
    const tt_device *d = &x->o.device;
    double begin = 0, end = 0;
    TT_TRY(tt_device_sync(d, pair[1], err));
    TT_TRY(tt_device_seconds(d, x->times.base, pair[0], &begin, err));
    TT_TRY(tt_device_seconds(d, x->times.base, pair[1], &end, err));
    *begin_ns = x->times.base_ns + (int64_t)(1e9 * begin);
    *end_ns = x->times.base_ns + (int64_t)(1e9 * end);
    return TT_OK;
}

/* A queue does one thing at a time, so an item's own time is what its messages leave of it; of an item
 * that only receives it is the message's. */
static tt_status read_item(const tt_exec *x, int i, tt_error *err)
{
    const tt_trace *t = x->recording;
    tt_item_time *item = &t->items[i];
    const size_t end = i + 1 < t->n_items ? x->times.first_of_item[i + 1] : t->n;
    TT_TRY(read_pair(x, &x->times.items[2 * i], &item->begin_ns, &item->end_ns, err));
    item->message_ns = 0;
    for (size_t e = x->times.first_of_item[i]; e < end; e++) {
        const tt_trace_event *v = &t->events[e];
        const bool in_item = v->begin_ns >= item->begin_ns && v->end_ns <= item->end_ns;
        if (in_item && (v->instr->kind == TT_INSTR_SEND || v->instr->kind == TT_INSTR_RECV))
            item->message_ns += v->end_ns - v->begin_ns;
    }
    item->cpu_ns = item->end_ns - item->begin_ns;
    if (item->item->kind == TT_ITEM_RUN)
        item->cpu_ns -= item->message_ns;
    return TT_OK;
}

tt_status tt_exec_trace_times(tt_exec *x, tt_error *err)
{
    const tt_trace *t = x->recording;
    if (tt_device_is_host(&x->o.device) || !t)
        return TT_OK;
    for (size_t i = 0; i < t->n; i++)
        TT_TRY(read_pair(x, &x->times.events[2 * i], &t->events[i].begin_ns, &t->events[i].end_ns,
                         err));
    for (int i = 0; i < t->n_items; i++)
        TT_TRY(read_item(x, i, err));
    return TT_OK;
}
