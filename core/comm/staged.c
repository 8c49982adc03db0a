/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/data_comm.h"
#include <stdlib.h>
#include <string.h>

/* The host's communicator for tensors of a device: each call waits for its queue, copies down to pinned
 * memory, makes the host's call, and copies up again. It works with every transport and hides nothing:
 * for machines where the ranks' devices have no communicator of their own. */

typedef struct staged {
    tt_device device;
    const tt_comm_vt *host;
    void *host_self;
    int rank;
} staged;

/* Pinned memory that grows to the largest call. */
typedef struct staged_buffer {
    char *p;
    size_t bytes;
} staged_buffer;

struct tt_comm {
    const staged *s;
    tt_comm *inner;
    int n, me; /* me: this rank's member number */
    tt_device_queue *queue;
    tt_device_event *event;
    staged_buffer send, recv;
};

tt_status tt_staged_new(const tt_device *device, const tt_dist *d, void **out, tt_error *err)
{
    staged *s = calloc(1, sizeof *s);
    if (!s)
        return TT_FAIL(err, TT_ENOMEM, "no memory for a communicator");
    *s = (staged){*device, d->vt, d->self, d->rank};
    *out = s;
    return TT_OK;
}

static void staged_close(void *self, int ok)
{
    (void)ok;
    free(self);
}

static void staged_group_free(tt_comm *g)
{
    const staged *s = g->s;
    if (g->inner)
        s->host->group_free(g->inner);
    tt_device_event_free(&s->device, g->event);
    tt_device_free_pinned(&s->device, g->send.p, g->send.bytes);
    tt_device_free_pinned(&s->device, g->recv.p, g->recv.bytes);
    free(g);
}

static tt_status staged_group(void *self, const int *ranks, int n, uint64_t key, tt_comm **out,
                              tt_error *err)
{
    const staged *s = self;
    tt_comm *g = calloc(1, sizeof *g);
    if (!g)
        return TT_FAIL(err, TT_ENOMEM, "no memory for a group of %d ranks", n);
    g->s = s;
    g->n = n;
    for (int i = 0; i < n; i++)
        if (ranks[i] == s->rank)
            g->me = i;
    tt_status st = s->host->group(s->host_self, ranks, n, key, &g->inner, err);
    if (st == TT_OK)
        st = tt_device_event_new(&s->device, false, &g->event, err);
    if (st == TT_OK)
        *out = g;
    else
        staged_group_free(g);
    return st;
}

static tt_status staged_on(tt_comm *g, tt_device_queue *queue, tt_error *err)
{
    (void)err;
    g->queue = queue;
    return TT_OK;
}

/* ---- copies ---- */

static tt_status staged_room(const staged *s, staged_buffer *b, size_t bytes, tt_error *err)
{
    void *p = NULL;
    if (bytes <= b->bytes)
        return TT_OK;
    tt_device_free_pinned(&s->device, b->p, b->bytes);
    b->bytes = 0;
    b->p = NULL;
    TT_TRY(tt_device_alloc_pinned(&s->device, bytes, &p, err));
    b->p = p;
    b->bytes = bytes;
    return TT_OK;
}

static tt_status staged_finish(tt_comm *g, tt_error *err)
{
    TT_TRY(tt_device_record(&g->s->device, g->event, g->queue, err));
    return tt_device_sync(&g->s->device, g->event, err);
}

/* Device memory to the buffer of what is sent, and room for what is received. */
static tt_status staged_down(tt_comm *g, const void *from, size_t bytes, size_t recv_bytes,
                             tt_error *err)
{
    TT_TRY(staged_room(g->s, &g->send, TT_MAXV(bytes, (size_t)1), err));
    TT_TRY(staged_room(g->s, &g->recv, TT_MAXV(recv_bytes, (size_t)1), err));
    TT_TRY(tt_device_copy(&g->s->device, g->queue, g->send.p, from, bytes, err));
    return staged_finish(g, err);
}

/* The next call overwrites the buffer, so this waits for the copy. */
static tt_status staged_up(tt_comm *g, void *to, const char *from, size_t bytes, tt_error *err)
{
    TT_TRY(tt_device_copy(&g->s->device, g->queue, to, from, bytes, err));
    return staged_finish(g, err);
}

static size_t counted_bytes(const int64_t *counts, int n, tt_dtype dtype)
{
    size_t sum = 0;
    for (int i = 0; i < n; i++)
        sum += (size_t)counts[i];
    return sum * tt_dtype_size(dtype);
}

/* ---- calls ---- */

static tt_status staged_all_gather(tt_comm *g, const void *send, void *recv, const int64_t *counts,
                                   tt_dtype dtype, tt_error *err)
{
    const size_t all = counted_bytes(counts, g->n, dtype),
                 mine = (size_t)counts[g->me] * tt_dtype_size(dtype);
    TT_TRY(staged_down(g, send, mine, all, err));
    TT_TRY(g->s->host->all_gather(g->inner, g->send.p, g->recv.p, counts, dtype, err));
    return staged_up(g, recv, g->recv.p, all, err);
}

static tt_status staged_reduce_scatter(tt_comm *g, const void *send, void *recv,
                                       const int64_t *counts, tt_dtype dtype, tt_reduce op,
                                       tt_error *err)
{
    const size_t mine = (size_t)counts[g->me] * tt_dtype_size(dtype);
    TT_TRY(staged_down(g, send, counted_bytes(counts, g->n, dtype), mine, err));
    TT_TRY(g->s->host->reduce_scatter(g->inner, g->send.p, g->recv.p, counts, dtype, op, err));
    return staged_up(g, recv, g->recv.p, mine, err);
}

static tt_status staged_all_reduce(tt_comm *g, void *buf, int64_t count, tt_dtype dtype,
                                   tt_reduce op, tt_error *err)
{
    const size_t bytes = (size_t)count * tt_dtype_size(dtype);
    TT_TRY(staged_down(g, buf, bytes, 0, err));
    TT_TRY(g->s->host->all_reduce(g->inner, g->send.p, count, dtype, op, err));
    return staged_up(g, buf, g->send.p, bytes, err);
}

static tt_status staged_all_to_all(tt_comm *g, const void *send, const int64_t *send_counts,
                                   void *recv, const int64_t *recv_counts, tt_dtype dtype,
                                   tt_error *err)
{
    const size_t in = counted_bytes(send_counts, g->n, dtype),
                 out = counted_bytes(recv_counts, g->n, dtype);
    TT_TRY(staged_down(g, send, in, out, err));
    TT_TRY(g->s->host->all_to_all(g->inner, g->send.p, send_counts, g->recv.p, recv_counts, dtype,
                                  err));
    return staged_up(g, recv, g->recv.p, out, err);
}

static tt_status staged_send(tt_comm *g, int to_member, const void *buf, int64_t bytes,
                             tt_error *err)
{
    TT_TRY(staged_down(g, buf, (size_t)bytes, 0, err));
    return g->s->host->send(g->inner, to_member, g->send.p, bytes, err);
}

static tt_status staged_recv(tt_comm *g, int from_member, void *buf, int64_t bytes, tt_error *err)
{
    TT_TRY(staged_room(g->s, &g->recv, TT_MAXV((size_t)bytes, (size_t)1), err));
    TT_TRY(g->s->host->recv(g->inner, from_member, g->recv.p, bytes, err));
    return staged_up(g, buf, g->recv.p, (size_t)bytes, err);
}

static tt_status staged_barrier(tt_comm *g, tt_error *err)
{
    return g->s->host->barrier(g->inner, err);
}

static void staged_abort(void *self, const char *why)
{
    const staged *s = self;
    s->host->abort(s->host_self, why);
}

static tt_status staged_poll(tt_comm *g, tt_error *err)
{
    (void)g;
    (void)err;
    return TT_OK; /* calls report their own errors */
}

const tt_comm_vt tt_staged_vt = {.struct_size = sizeof tt_staged_vt,
                                 .group = staged_group,
                                 .group_free = staged_group_free,
                                 .all_gather = staged_all_gather,
                                 .reduce_scatter = staged_reduce_scatter,
                                 .all_reduce = staged_all_reduce,
                                 .all_to_all = staged_all_to_all,
                                 .send = staged_send,
                                 .recv = staged_recv,
                                 .barrier = staged_barrier,
                                 .abort = staged_abort,
                                 .close = staged_close,
                                 .device_memory = 1,
                                 .on = staged_on,
                                 .poll = staged_poll};
