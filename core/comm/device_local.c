/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/device_local.h"
#include <stdlib.h>
#include <string.h>

/* The communicator of tensors for ranks that are threads of one process, whose devices reach each
 * other's memory, or are one. The host waits in no call for a device: members meet to exchange
 * addresses and events, then put copies and reductions of each other's buffers on their queues.
 *
 *   ready    what the member did before the call is done: its buffers may be read and written
 *   reduced  its piece of an all-reduce is done
 *   done     it has read the others' buffers; the later work of those waits for that
 *
 * An event is recorded again in a later call only, when all members have put their waits for it on
 * their queues. Reductions are in member order by the backend's kernel; no call needs scratch. */

tt_status tt_local_new(const tt_data_opts *o, const tt_dist *d, void **out, tt_error *err)
{
    tt_local *l = calloc(1, sizeof *l);
    if (!l)
        return TT_FAIL(err, TT_ENOMEM, "no memory for a communicator");
    *l = (tt_local){o->device, o->reduce_members, d->vt, d->self, d->rank};
    *out = l;
    return TT_OK;
}

/* All ranks get the same answer. */
tt_status tt_local_serves(const tt_data_opts *o, tt_dist *d, bool *out, tt_error *err)
{
    const tt_device *v = &o->device;
    *out = false;
    if (!tt_dist_is_threads(d) || !o->reduce_members)
        return TT_OK;
    void **all = calloc((size_t)d->world, sizeof *all);
    int64_t *counts = calloc((size_t)d->world, sizeof *counts);
    int32_t refuses = !TT_HAS(v->vt, tt_device_vt, reaches) || !v->vt->reaches;
    tt_status s = all && counts ? TT_OK : TT_FAIL(err, TT_ENOMEM, "no memory for a communicator");
    for (int i = 0; s == TT_OK && i < d->world; i++)
        counts[i] = sizeof *all;
    if (s == TT_OK)
        s = d->vt->all_gather(d->all, &v->backend, all, counts, TT_U8, err);
    for (int i = 0; s == TT_OK && !refuses && i < d->world; i++)
        refuses = i != d->rank && !v->vt->reaches(v->backend, all[i]);
    if (s == TT_OK)
        s = d->vt->all_reduce(d->all, &refuses, 1, TT_I32, TT_MAX, err);
    *out = s == TT_OK && !refuses;
    free(all);
    free(counts);
    return s;
}

static void local_close(void *self, int ok)
{
    (void)ok;
    free(self);
}

/* ---- groups ---- */

#define LOCAL_KEY UINT64_C(0x6c6f63616c)

static void local_group_free(tt_comm *g)
{
    const tt_local *l = g->l;
    if (g->inner) {
        tt_threads_await_left(g->inner); /* others may be about to wait for the events */
        if (tt_threads_handles(g->inner) == 1)
            tt_local_leave_messages(g);
        l->host->group_free(g->inner);
    }
    for (int i = 0; i < TT_LOCAL_EVENTS; i++)
        tt_device_event_free(&l->device, g->events[i]);
    free(g->parts);
    free(g->readers);
    free(g);
}

static tt_status local_group(void *self, const int *ranks, int n, uint64_t key, tt_comm **out,
                             tt_error *err)
{
    const tt_local *l = self;
    tt_comm *g = calloc(1, sizeof *g);
    if (!g)
        return TT_FAIL(err, TT_ENOMEM, "no memory for a group of %d ranks", n);
    g->l = l;
    g->n = n;
    g->parts = calloc((size_t)n, sizeof *g->parts);
    g->readers = calloc((size_t)n, sizeof *g->readers);
    for (int i = 0; i < n; i++)
        if (ranks[i] == l->rank)
            g->me = i;
    /* Its host group is apart from the program's own group of these ranks. */
    const uint64_t apart = tt_hash64(&key, sizeof key, LOCAL_KEY);
    tt_status s = g->parts && g->readers
                      ? l->host->group(l->host_self, ranks, n, apart, &g->inner, err)
                      : TT_FAIL(err, TT_ENOMEM, "no memory for a group of %d ranks", n);
    for (int i = 0; s == TT_OK && i < TT_LOCAL_EVENTS; i++)
        s = tt_device_event_new(&l->device, false, &g->events[i], err);
    if (s == TT_OK)
        *out = g;
    else
        local_group_free(g);
    return s;
}

static tt_status local_on(tt_comm *g, tt_device_queue *queue, tt_error *err)
{
    (void)err;
    g->queue = queue;
    return TT_OK;
}

/* ---- a call ---- */

static tt_status local_record(tt_comm *g, int event, tt_error *err)
{
    return tt_device_record(&g->l->device, g->events[event], g->queue, err);
}

/* This member's queue waits for an event of another member. */
static tt_status local_await(tt_comm *g, int member, int event, tt_error *err)
{
    if (member == g->me)
        return TT_OK;
    return tt_device_wait(&g->l->device, g->queue,
                          tt_threads_call_of(g->inner, member)->events[event], err);
}

static tt_status local_await_all(tt_comm *g, int event, tt_error *err)
{
    for (int i = 0; i < g->n; i++)
        TT_TRY(local_await(g, i, event, err));
    return TT_OK;
}

/* After TT_OK the members' calls are known and this member must end with local_end(). */
static tt_status local_begin(tt_comm *g, tt_call *c, const int64_t *counts, int n_counts,
                             tt_dtype dtype, int op, tt_error *err)
{
    const int kind[2] = {(int)dtype, op};
    if (!g->queue)
        return TT_FAIL(err, TT_EINVAL, "%s before the group was put on a queue", c->op);
    for (int i = 0; i < n_counts; i++)
        c->size += counts[i];
    c->signature = tt_hash64(kind, sizeof kind, 0);
    if (n_counts)
        c->signature = tt_hash64(counts, (size_t)n_counts * sizeof *counts, c->signature);
    memcpy(c->events, g->events, sizeof g->events);
    TT_TRY(local_record(g, TT_LOCAL_READY, err));
    return tt_threads_meet(g->inner, c, err);
}

/* s: of what this member has put on its queue. g->readers says who reads this member's buffers. */
static tt_status local_end(tt_comm *g, tt_status s, tt_error *err)
{
    if (s == TT_OK)
        s = local_record(g, TT_LOCAL_DONE, err);
    tt_threads_meet_again(g->inner);
    for (int i = 0; s == TT_OK && i < g->n; i++)
        if (g->readers[i])
            s = local_await(g, i, TT_LOCAL_DONE, err);
    tt_threads_leave_call(g->inner);
    return s;
}

static size_t local_sum(const int64_t *counts, int n)
{
    size_t s = 0;
    for (int i = 0; i < n; i++)
        s += (size_t)counts[i];
    return s;
}

static tt_status local_copy(tt_comm *g, void *to, const void *from, size_t bytes, tt_error *err)
{
    return tt_device_copy(&g->l->device, g->queue, to, from, bytes, err);
}

/* Elements [at, at + n) of what all members send, summed into out. */
static tt_status local_reduce(tt_comm *g, void *out, size_t at, size_t n, tt_dtype dtype,
                              tt_reduce op, tt_error *err)
{
    const tt_mover m = {.device = g->l->device, .queue = g->queue};
    const tt_attrs_reduce_members a = {.op = (int32_t)op};
    tt_tensor sum = {.data = out, .dtype = dtype, .n_dims = 1};
    sum.shape[0] = sum.global[0] = (int64_t)n;
    for (int i = 0; i < g->n; i++) {
        g->parts[i] = sum;
        g->parts[i].data =
            (char *)(uintptr_t)tt_threads_call_of(g->inner, i)->send + at * tt_dtype_size(dtype);
    }
    return n ? tt_move_kernel(&m, g->l->reduce, g->parts, g->n, &sum, &a, err) : TT_OK;
}

/* ---- collectives ---- */

static tt_status local_all_gather(tt_comm *g, const void *send, void *recv, const int64_t *counts,
                                  tt_dtype dtype, tt_error *err)
{
    tt_call c = {.op = "all_gather", .send = send};
    TT_TRY(local_begin(g, &c, counts, g->n, dtype, 0, err));
    tt_status s = TT_OK;
    char *to = recv;
    for (int i = 0; s == TT_OK && i < g->n; i++) {
        const size_t bytes = (size_t)counts[i] * tt_dtype_size(dtype);
        if (bytes)
            s = local_await(g, i, TT_LOCAL_READY, err);
        if (s == TT_OK && bytes)
            s = local_copy(g, to, tt_threads_call_of(g->inner, i)->send, bytes, err);
        g->readers[i] = counts[g->me] > 0;
        to += bytes;
    }
    return local_end(g, s, err);
}

static tt_status local_reduce_scatter(tt_comm *g, const void *send, void *recv,
                                      const int64_t *counts, tt_dtype dtype, tt_reduce op,
                                      tt_error *err)
{
    TT_TRY(tt_reduce_members(NULL, NULL, 0, 0, dtype, op, err)); /* can it be reduced? */
    tt_call c = {.op = "reduce_scatter", .send = send};
    TT_TRY(local_begin(g, &c, counts, g->n, dtype, op, err));
    tt_status s = counts[g->me] ? local_await_all(g, TT_LOCAL_READY, err) : TT_OK;
    for (int i = 0; i < g->n; i++)
        g->readers[i] = counts[i] > 0;
    if (s == TT_OK)
        s = local_reduce(g, recv, local_sum(counts, g->me), (size_t)counts[g->me], dtype, op, err);
    return local_end(g, s, err);
}

/* Member i reduces piece i. The kernel can write to the memory of its first two inputs only: from
 * member 2 on, the sum is made in the buffer of member 0 or 1, and copied to member i's own. Then the
 * members copy the other pieces from their owners. */
typedef struct piece {
    size_t at, n; /* elements */
    int home;     /* whose buffer its owner's reduction writes to */
} piece;

#define PIECE_MULTIPLE 64 /* elements, so that pieces are aligned as well as their buffer is */

static piece local_piece(const tt_comm *g, int member, int64_t count)
{
    const size_t all = (size_t)count, n = (size_t)g->n,
                 each = ((all + n - 1) / n + PIECE_MULTIPLE - 1) / PIECE_MULTIPLE * PIECE_MULTIPLE,
                 at = TT_MIN(each * (size_t)member, all);
    return (piece){at, TT_MIN(each, all - at), member % 2};
}

static tt_status reduce_own_piece(tt_comm *g, int64_t count, tt_dtype dtype, tt_reduce op,
                                  tt_error *err)
{
    const piece p = local_piece(g, g->me, count);
    const size_t at = p.at * tt_dtype_size(dtype), bytes = p.n * tt_dtype_size(dtype);
    char *home = tt_threads_call_of(g->inner, p.home)->recv,
         *own = tt_threads_call_of(g->inner, g->me)->recv;
    if (!p.n)
        return TT_OK;
    TT_TRY(local_await_all(g, TT_LOCAL_READY, err));
    TT_TRY(local_reduce(g, home + at, p.at, p.n, dtype, op, err));
    if (p.home != g->me)
        TT_TRY(local_copy(g, own + at, home + at, bytes, err));
    return local_record(g, TT_LOCAL_REDUCED, err);
}

static tt_status gather_pieces(tt_comm *g, int64_t count, tt_dtype dtype, tt_error *err)
{
    const piece mine = local_piece(g, g->me, count);
    char *own = tt_threads_call_of(g->inner, g->me)->recv;
    for (int i = 0; i < g->n; i++) {
        const piece p = local_piece(g, i, count);
        const size_t at = p.at * tt_dtype_size(dtype);
        g->readers[i] = mine.n && mine.home != i;
        if (i == g->me || p.home == g->me || !p.n)
            continue; /* what others write here is done with their calls */
        TT_TRY(local_await(g, i, TT_LOCAL_REDUCED, err));
        TT_TRY(local_copy(g, own + at, (const char *)tt_threads_call_of(g->inner, i)->recv + at,
                          p.n * tt_dtype_size(dtype), err));
    }
    return TT_OK;
}

static tt_status local_all_reduce(tt_comm *g, void *buf, int64_t count, tt_dtype dtype,
                                  tt_reduce op, tt_error *err)
{
    TT_TRY(tt_reduce_members(NULL, NULL, 0, 0, dtype, op, err)); /* can it be reduced? */
    tt_call c = {.op = "all_reduce", .send = buf, .recv = buf};
    TT_TRY(local_begin(g, &c, &count, 1, dtype, op, err));
    tt_status s = reduce_own_piece(g, count, dtype, op, err);
    tt_threads_meet_again(g->inner);
    if (s == TT_OK)
        s = gather_pieces(g, count, dtype, err);
    return local_end(g, s, err);
}

static tt_status local_all_to_all(tt_comm *g, const void *send, const int64_t *send_counts,
                                  void *recv, const int64_t *recv_counts, tt_dtype dtype,
                                  tt_error *err)
{
    const size_t size = tt_dtype_size(dtype);
    tt_call c = {.op = "all_to_all", .send = send, .counts = send_counts};
    TT_TRY(local_begin(g, &c, NULL, 0, dtype, 0, err));
    char *to = recv;
    tt_status s = TT_OK;
    for (int i = 0; s == TT_OK && i < g->n; i++) {
        const tt_call *from = tt_threads_call_of(g->inner, i);
        const size_t bytes = (size_t)recv_counts[i] * size;
        if (from->counts[g->me] != recv_counts[i])
            s = TT_FAIL(err, TT_ECOMM,
                        "all_to_all: member %d sends %lld elements to member %d, which expects "
                        "%lld",
                        i, (long long)from->counts[g->me], g->me, (long long)recv_counts[i]);
        if (s == TT_OK && bytes)
            s = local_await(g, i, TT_LOCAL_READY, err);
        if (s == TT_OK && bytes)
            s = local_copy(g, to, (const char *)from->send + local_sum(from->counts, g->me) * size,
                           bytes, err);
        g->readers[i] = send_counts[i] > 0;
        to += bytes;
    }
    return local_end(g, s, err);
}

/* What follows on the queue waits for what the members did before the barrier. */
static tt_status local_barrier(tt_comm *g, tt_error *err)
{
    tt_call c = {.op = "barrier"};
    TT_TRY(local_begin(g, &c, NULL, 0, TT_U8, 0, err));
    const tt_status s = local_await_all(g, TT_LOCAL_READY, err);
    tt_threads_meet_again(g->inner);
    tt_threads_leave_call(g->inner);
    return s;
}

static void local_abort(void *self, const char *why)
{
    const tt_local *l = self;
    l->host->abort(l->host_self, why);
}

static int local_concurrent(void *self)
{
    (void)self;
    return 1;
}

static tt_status local_poll(tt_comm *g, tt_error *err)
{
    return tt_threads_poll(g->inner, err);
}

const tt_comm_vt tt_local_vt = {.struct_size = sizeof tt_local_vt,
                                .group = local_group,
                                .group_free = local_group_free,
                                .all_gather = local_all_gather,
                                .reduce_scatter = local_reduce_scatter,
                                .all_reduce = local_all_reduce,
                                .all_to_all = local_all_to_all,
                                .send = tt_local_send,
                                .recv = tt_local_recv,
                                .barrier = local_barrier,
                                .abort = local_abort,
                                .close = local_close,
                                .concurrent = local_concurrent,
                                .device_memory = 1,
                                .on = local_on,
                                .poll = local_poll};
