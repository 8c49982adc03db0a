/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/device_local.h"
#include <stdlib.h>

/* Messages of the communicator of rank-threads with devices. send copies to one of two places in the
 * sender's device memory, which recv copies from: the sender goes on at once, and the third message
 * waits until the first one's recv was called. Places grow to the largest message, in the first step.
 * They are freed by the last handle of their sender, when the receiver has read them. */

static tt_status wait_if(tt_comm *g, tt_device_event *e, tt_error *err)
{
    return e ? tt_device_wait(&g->l->device, g->queue, e, err) : TT_OK;
}

/* Another place, when the receiver has read what the old one holds. */
static tt_status grow_place(tt_comm *g, tt_message *m, int64_t bytes, tt_error *err)
{
    const tt_device *d = &g->l->device;
    void *p = NULL;
    if (m->data) {
        TT_TRY(wait_if(g, m->taken, err));
        TT_TRY(tt_device_record(d, m->filled, g->queue, err));
        TT_TRY(tt_device_sync(d, m->filled, err));
        tt_device_free(d, m->data, (size_t)m->cap);
        m->data = NULL;
        m->cap = 0;
    }
    TT_TRY(tt_device_alloc(d, (size_t)bytes, &p, err));
    m->data = p;
    m->cap = bytes;
    return TT_OK;
}

static tt_status fill_place(tt_comm *g, tt_message *m, const void *buf, int64_t bytes,
                            tt_error *err)
{
    const tt_device *d = &g->l->device;
    if (!m->filled)
        TT_TRY(tt_device_event_new(d, false, &m->filled, err));
    if (m->cap < bytes)
        TT_TRY(grow_place(g, m, bytes, err));
    else
        TT_TRY(wait_if(g, m->taken, err));
    m->bytes = bytes;
    TT_TRY(tt_device_copy(d, g->queue, m->data, buf, (size_t)bytes, err));
    return tt_device_record(d, m->filled, g->queue, err);
}

static tt_status check_call(const tt_comm *g, int peer, const char *op, tt_error *err)
{
    if (!g->queue)
        return TT_FAIL(err, TT_EINVAL, "%s before the group was put on a queue", op);
    if (peer < 0 || peer >= g->n || peer == g->me)
        return TT_FAIL(err, TT_EINVAL, "%s: member %d of %d has no other member %d", op, g->me,
                       g->n, peer);
    return TT_OK;
}

tt_status tt_local_send(tt_comm *g, int to, const void *buf, int64_t bytes, tt_error *err)
{
    tt_message *m = NULL;
    TT_TRY(check_call(g, to, "send", err));
    tt_mailbox *b = tt_mailbox_of(g->inner, g->me, to);
    if (!b)
        return TT_FAIL(err, TT_ENOMEM, "no memory for a mailbox");
    TT_TRY(tt_mailbox_open(g->inner, b, true, to, &m, err));
    const tt_status s = fill_place(g, m, buf, bytes, err);
    tt_mailbox_close(b, true, s == TT_OK);
    return s;
}

static tt_status read_place(tt_comm *g, tt_message *m, void *buf, int64_t bytes, tt_error *err)
{
    const tt_device *d = &g->l->device;
    if (m->bytes != bytes)
        return TT_FAIL(err, TT_ECOMM, "member %d expects %lld bytes where %lld were sent", g->me,
                       (long long)bytes, (long long)m->bytes);
    if (!m->filled)
        return TT_FAIL(err, TT_ECOMM, "the sender left before its message was received");
    if (!m->taken)
        TT_TRY(tt_device_event_new(d, false, &m->taken, err));
    TT_TRY(tt_device_wait(d, g->queue, m->filled, err));
    TT_TRY(tt_device_copy(d, g->queue, buf, m->data, (size_t)bytes, err));
    return tt_device_record(d, m->taken, g->queue, err);
}

tt_status tt_local_recv(tt_comm *g, int from, void *buf, int64_t bytes, tt_error *err)
{
    tt_message *m = NULL;
    TT_TRY(check_call(g, from, "recv", err));
    tt_mailbox *b = tt_mailbox_of(g->inner, from, g->me);
    if (!b)
        return TT_FAIL(err, TT_ENOMEM, "no memory for a mailbox");
    TT_TRY(tt_mailbox_open(g->inner, b, false, from, &m, err));
    const tt_status s = read_place(g, m, buf, bytes, err);
    tt_mailbox_close(b, false, s == TT_OK);
    return s;
}

/* ---- leaving ---- */

/* The receiver's events. Its work is done: the host has awaited it. */
static void leave_inbox(tt_comm *g, tt_mailbox *b)
{
    tt_message *m = tt_mailbox_leave(g->inner, b, false);
    for (int i = 0; i < TT_MAILBOX_PLACES; i++) {
        tt_device_event_free(&g->l->device, m[i].taken);
        m[i].taken = NULL;
    }
    tt_mailbox_unlock(b);
}

/* The sender's places and events, when the receiver has read them. */
static void leave_outbox(tt_comm *g, tt_mailbox *b, tt_device_queue *q)
{
    const tt_device *d = &g->l->device;
    tt_error ignored = {0};
    tt_message *m = tt_mailbox_leave(g->inner, b, true);
    for (int i = 0; i < TT_MAILBOX_PLACES; i++)
        if (q && m[i].taken && tt_device_wait(d, q, m[i].taken, &ignored) == TT_OK &&
            tt_device_record(d, g->events[TT_LOCAL_DONE], q, &ignored) == TT_OK)
            (void)tt_device_sync(d, g->events[TT_LOCAL_DONE], &ignored);
    for (int i = 0; i < TT_MAILBOX_PLACES; i++) {
        tt_device_free(d, m[i].data, (size_t)m[i].cap);
        tt_device_event_free(d, m[i].filled);
        m[i] = (tt_message){.taken = m[i].taken};
    }
    tt_mailbox_unlock(b);
}

void tt_local_leave_messages(tt_comm *g)
{
    tt_device_queue *q = NULL;
    tt_error ignored = {0};
    for (int i = 0; i < g->n; i++) {
        tt_mailbox *in = tt_mailbox_find(g->inner, i, g->me),
                   *out = tt_mailbox_find(g->inner, g->me, i);
        if (in)
            leave_inbox(g, in);
        if (out && !q)
            (void)tt_device_queue_new(&g->l->device, false, &q, &ignored);
        if (out)
            leave_outbox(g, out, q);
    }
    tt_device_queue_free(&g->l->device, q);
}
