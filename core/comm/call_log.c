/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "comm/call_log_impl.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The communicator that logs the calls of another one. */

struct tt_comm { /* a group */
    const tt_comm_vt *vt;
    tt_comm *inner;
    tt_call_ring *ring;
    uint64_t entries;
    int group; /* of the ring; -1: its calls are not logged */
    const int *ranks;
    int n, me;
};

struct tt_called {
    tt_comm_vt vt; /* that of inner, with these functions */
    const tt_comm_vt *inner;
    void *self;
    tt_comm *all;
    bool tensors; /* d->data_vt was the same communicator */
    tt_call_log *log;
    tt_call_ring *ring;
};

/* More than the calls that a rank has in flight, so that an entry in use is never taken again. */
#define LEAST INT64_C(64)

static _Thread_local const char *caller; /* tt_called_name */

void tt_called_name(const char *scope, const char *op)
{
    caller = scope && *scope ? scope : op;
}

void tt_called_step(tt_called *c, int64_t step)
{
    if (c)
        atomic_store_explicit(&c->ring->step, step, memory_order_relaxed);
}

/* ---- a call ---- */

static void write_entry(tt_call_entry *e, uint64_t number, const tt_call_what *what)
{
    uint64_t words[TT_CALL_WORDS];
    memcpy(words, what, sizeof words);
    atomic_exchange(&e->number, 0); /* nothing that follows is seen before it */
    atomic_store_explicit(&e->ended_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&e->status, TT_OK, memory_order_relaxed);
    for (size_t i = 0; i < TT_CALL_WORDS; i++)
        atomic_store_explicit(&e->what[i], words[i], memory_order_relaxed);
    atomic_store_explicit(&e->number, number, memory_order_release);
}

static tt_call_entry *begin(tt_comm *g, tt_doing doing, int64_t count, int dtype, int peer)
{
    tt_call_ring *r = g->ring;
    if (g->group < 0)
        return NULL;
    const uint64_t number = atomic_fetch_add(&r->n, 1) + 1;
    const bool message = peer >= 0;
    const size_t length = caller ? strnlen(caller, TT_CALL_NAME - 1) : 0;
    tt_call_entry *e = &r->entries[(number - 1) % g->entries];
    tt_call_what w = {.step = atomic_load_explicit(&r->step, memory_order_relaxed),
                      .begun_ns = tt_now_ns(),
                      .bytes = dtype < 0 ? count : count * (int64_t)tt_dtype_size((tt_dtype)dtype),
                      .group = g->group,
                      .doing = (int32_t)doing,
                      .peer = message ? g->ranks[peer] : -1,
                      .dtype = dtype};
    if (!message)
        w.in_group = atomic_fetch_add(&r->groups[g->group].n_begun, 1) + 1;
    if (length)
        memcpy(w.name, caller, length);
    write_entry(e, number, &w);
    return e;
}

static tt_status end(tt_call_entry *e, tt_status s)
{
    if (!e)
        return s;
    atomic_store_explicit(&e->status, (int32_t)s, memory_order_relaxed);
    atomic_store_explicit(&e->ended_ns, tt_now_ns(), memory_order_release);
    return s;
}

static int64_t total_count(const int64_t *counts, int n)
{
    int64_t all = 0;
    for (int i = 0; i < n; i++)
        all += counts[i];
    return all;
}

static tt_status log_all_gather(tt_comm *g, const void *send, void *recv, const int64_t *counts,
                                tt_dtype dtype, tt_error *err)
{
    tt_call_entry *e = begin(g, TT_DOING_ALL_GATHER, counts[g->me], (int)dtype, -1);
    return end(e, g->vt->all_gather(g->inner, send, recv, counts, dtype, err));
}

static tt_status log_reduce_scatter(tt_comm *g, const void *send, void *recv, const int64_t *counts,
                                    tt_dtype dtype, tt_reduce op, tt_error *err)
{
    tt_call_entry *e = begin(g, TT_DOING_REDUCE_SCATTER, total_count(counts, g->n), (int)dtype, -1);
    return end(e, g->vt->reduce_scatter(g->inner, send, recv, counts, dtype, op, err));
}

static tt_status log_all_reduce(tt_comm *g, void *buf, int64_t count, tt_dtype dtype, tt_reduce op,
                                tt_error *err)
{
    tt_call_entry *e = begin(g, TT_DOING_ALL_REDUCE, count, (int)dtype, -1);
    return end(e, g->vt->all_reduce(g->inner, buf, count, dtype, op, err));
}

static tt_status log_all_to_all(tt_comm *g, const void *send, const int64_t *send_counts,
                                void *recv, const int64_t *recv_counts, tt_dtype dtype,
                                tt_error *err)
{
    tt_call_entry *e =
        begin(g, TT_DOING_ALL_TO_ALL, total_count(send_counts, g->n), (int)dtype, -1);
    return end(e, g->vt->all_to_all(g->inner, send, send_counts, recv, recv_counts, dtype, err));
}

static tt_status log_send(tt_comm *g, int to, const void *buf, int64_t bytes, tt_error *err)
{
    tt_call_entry *e = begin(g, TT_DOING_SEND, bytes, -1, to);
    return end(e, g->vt->send(g->inner, to, buf, bytes, err));
}

static tt_status log_recv(tt_comm *g, int from, void *buf, int64_t bytes, tt_error *err)
{
    tt_call_entry *e = begin(g, TT_DOING_RECEIVE, bytes, -1, from);
    return end(e, g->vt->recv(g->inner, from, buf, bytes, err));
}

static tt_status log_barrier(tt_comm *g, tt_error *err)
{
    tt_call_entry *e = begin(g, TT_DOING_BARRIER, 0, -1, -1);
    return end(e, g->vt->barrier(g->inner, err));
}

/* ---- groups ---- */

static int find_group(const tt_call_ring *r, uint64_t key, int n)
{
    const int have = atomic_load(&r->n_groups);
    for (int i = 0; i < have; i++)
        if (r->groups[i].key == key && r->groups[i].n == n)
            return i;
    return -1;
}

static int make_group(tt_call_ring *r, const int *ranks, int n, uint64_t key)
{
    const int i = atomic_load(&r->n_groups);
    if (i == TT_CALL_GROUPS)
        return -1;
    const bool listed = n < r->world && n <= TT_CALL_RANKS - r->n_ranks;
    r->groups[i] = (tt_call_group){.key = key, .n = n, .first = listed ? r->n_ranks : -1};
    if (listed) {
        memcpy(r->ranks + r->n_ranks, ranks, (size_t)n * sizeof *ranks);
        r->n_ranks += n;
    }
    atomic_store(&r->n_groups, i + 1);
    return i;
}

/* Handles of one group share its number of calls. */
static int group_of(const tt_called *c, const int *ranks, int n, uint64_t key)
{
    pthread_mutex_lock(&c->log->groups);
    int i = find_group(c->ring, key, n);
    if (i < 0)
        i = make_group(c->ring, ranks, n, key);
    pthread_mutex_unlock(&c->log->groups);
    return i;
}

static tt_status wrap(const tt_called *c, tt_comm *inner, const int *ranks, int n, uint64_t key,
                      tt_comm **out, tt_error *err)
{
    tt_comm *g = calloc(1, sizeof *g + (size_t)n * sizeof *ranks);
    if (!g)
        return TT_FAIL(err, TT_ENOMEM, "no memory for a group of %d ranks", n);
    int *members = (int *)(void *)(g + 1);
    memcpy(members, ranks, (size_t)n * sizeof *ranks);
    int at = 0;
    while (at + 1 < n && ranks[at] != c->ring->rank)
        at++;
    *g = (tt_comm){.vt = c->inner,
                   .inner = inner,
                   .ring = c->ring,
                   .entries = (uint64_t)c->log->o.entries,
                   .group = group_of(c, ranks, n, key),
                   .ranks = members,
                   .n = n,
                   .me = at};
    *out = g;
    return TT_OK;
}

static tt_status log_group(void *self, const int *ranks, int n, uint64_t key, tt_comm **out,
                           tt_error *err)
{
    const tt_called *c = self;
    tt_comm *inner;
    TT_TRY(c->inner->group(c->self, ranks, n, key, &inner, err));
    const tt_status s = wrap(c, inner, ranks, n, key, out, err);
    if (s != TT_OK)
        c->inner->group_free(inner);
    return s;
}

static void log_group_free(tt_comm *g)
{
    g->vt->group_free(g->inner);
    free(g);
}

static void log_abort(void *self, const char *why)
{
    const tt_called *c = self;
    c->inner->abort(c->self, why);
}

static void log_set_timeout(void *self, double timeout_s)
{
    const tt_called *c = self;
    c->inner->set_timeout(c->self, timeout_s);
}

static int log_concurrent(void *self)
{
    const tt_called *c = self;
    return c->inner->concurrent(c->self);
}

/* ---- a rank's end ---- */

/* The host's communicator: open, close and what belongs to devices are not called through it. */
static tt_comm_vt vt_over(const tt_comm_vt *inner)
{
    const bool concurrent = TT_HAS(inner, tt_comm_vt, concurrent) && inner->concurrent;
    return (tt_comm_vt){.struct_size = sizeof(tt_comm_vt),
                        .group = log_group,
                        .group_free = log_group_free,
                        .all_gather = log_all_gather,
                        .reduce_scatter = log_reduce_scatter,
                        .all_reduce = log_all_reduce,
                        .all_to_all = log_all_to_all,
                        .send = log_send,
                        .recv = log_recv,
                        .barrier = log_barrier,
                        .abort = log_abort,
                        .set_timeout = inner->set_timeout ? log_set_timeout : NULL,
                        .concurrent = concurrent ? log_concurrent : NULL};
}

static tt_status wrap_all(tt_called *c, const tt_dist *d, tt_comm **out, tt_error *err)
{
    int *ranks = calloc((size_t)d->world, sizeof *ranks);
    if (!ranks)
        return TT_FAIL(err, TT_ENOMEM, "no memory for a group of %d ranks", d->world);
    for (int i = 0; i < d->world; i++)
        ranks[i] = i;
    const tt_status s = wrap(c, d->all, ranks, d->world, 0, out, err);
    free(ranks);
    return s;
}

tt_status tt_call_log_join(tt_call_log *log, tt_dist *d, tt_error *err)
{
    if (!log || !d->vt)
        return TT_OK;
    tt_called *c = calloc(1, sizeof *c);
    tt_comm *all;
    if (!c)
        return TT_FAIL(err, TT_ENOMEM, "no memory for a log of calls");
    *c = (tt_called){.vt = vt_over(d->vt),
                     .inner = d->vt,
                     .self = d->self,
                     .all = d->all,
                     .tensors = d->data_self == d->self,
                     .log = log,
                     .ring = tt_call_ring_of(log, d->local_rank)};
    c->ring->rank = d->rank;
    c->ring->world = d->world;
    c->ring->process = getpid();
    const tt_status s = wrap_all(c, d, &all, err);
    if (s != TT_OK) {
        free(c);
        return s;
    }
    d->vt = &c->vt;
    d->self = c;
    d->all = all;
    if (c->tensors) {
        d->data_vt = d->vt;
        d->data_self = d->self;
    }
    d->called = c;
    return TT_OK;
}

void tt_call_log_leave(tt_dist *d)
{
    tt_called *c = d->called;
    if (!c)
        return;
    free(d->all);
    d->vt = c->inner;
    d->self = c->self;
    d->all = c->all;
    if (c->tensors) {
        d->data_vt = d->vt;
        d->data_self = d->self;
    }
    d->called = NULL;
    free(c);
}

/* ---- the log ---- */

static tt_status find_memory(tt_call_log *log, tt_error *err)
{
    tt_session *s = log->session;
    const size_t bytes = (size_t)log->o.ranks * log->ring_bytes;
    if (!s) {
        log->dumped = &log->own;
        log->rings = aligned_alloc(64, bytes);
        if (!log->rings)
            return TT_FAIL(err, TT_ENOMEM, "no memory for comm.trace_buf_size %lld",
                           (long long)log->o.entries);
        memset(log->rings, 0, bytes);
        return TT_OK;
    }
    _Atomic uint64_t *at = tt_session_log(s);
    TT_TRY(tt_session_lock(s, err));
    if (!atomic_load(at))
        atomic_store(at, tt_session_alloc(s, 64 + bytes));
    tt_session_unlock(s);
    if (!atomic_load(at))
        return TT_FAIL(err, TT_ENOMEM, "no shared memory for comm.trace_buf_size %lld of %d ranks",
                       (long long)log->o.entries, log->o.ranks);
    log->dumped = tt_session_at(s, atomic_load(at));
    log->rings = (char *)(void *)log->dumped + 64;
    return TT_OK;
}

static void on_lost(void *log, tt_error *why)
{
    tt_call_log_dump(log, why);
}

tt_status tt_call_log_new(const tt_call_log_opts *o, tt_session *session, tt_call_log **out,
                          tt_error *err)
{
    *out = NULL;
    if (o->entries <= 0)
        return TT_OK;
    tt_call_log *log = calloc(1, sizeof *log);
    if (!log)
        return TT_FAIL(err, TT_ENOMEM, "no memory for a log of calls");
    const int64_t entries = TT_MAXV(o->entries, LEAST);
    const size_t bytes = sizeof(tt_call_ring) + (size_t)entries * sizeof(tt_call_entry);
    log->o = *o;
    log->o.entries = entries;
    log->session = session;
    log->ring_bytes = (bytes + 63) / 64 * 64;
    pthread_mutex_init(&log->groups, NULL);
    const tt_status s = find_memory(log, err);
    if (s != TT_OK) {
        tt_call_log_free(log);
        return s;
    }
    if (session)
        tt_session_on_lost(session, on_lost, log);
    *out = log;
    return TT_OK;
}

void tt_call_log_free(tt_call_log *log)
{
    if (!log)
        return;
    if (log->session)
        tt_session_on_lost(log->session, NULL, NULL);
    else
        free(log->rings);
    pthread_mutex_destroy(&log->groups);
    free(log);
}
