/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/clock.h"
#include "base/pool.h"
#include "comm/threads_impl.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Ranks as threads of one process. In a collective the members publish pointers, wait at a barrier,
 * read each other's memory, and wait at a second barrier before anyone goes on. Reductions add in
 * ascending member order, each element by one member, so the results equal those of any other
 * transport. Every group has its own barrier: groups do not wait for each other. */

typedef struct rank_end {
    tt_threads *t;
    int rank;
} rank_end;

/* The rank that gave up first aborts the barrier and writes the reason right after: wait for it. */
tt_status tt_threads_aborted(tt_threads *t, tt_error *err)
{
    while (!atomic_load(&t->aborted))
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    pthread_mutex_lock(&t->lock);
    const tt_status s = TT_FAIL(err, TT_ECOMM, "stopped: %s", t->why);
    pthread_mutex_unlock(&t->lock);
    return s;
}

static void threads_abort(tt_threads *t, const char *why)
{
    pthread_mutex_lock(&t->lock);
    if (!atomic_load(&t->aborted))
        snprintf(t->why, sizeof t->why, "%s", why);
    atomic_store(&t->aborted, true);
    for (tt_shared_group *g = t->groups; g; g = g->next) {
        tt_barrier_abort(&g->barrier);
        for (int i = 0; i < g->n * g->n; i++) {
            tt_mailbox *b = atomic_load(&g->boxes[i]);
            if (b)
                tt_mailbox_wake(b);
        }
    }
    pthread_mutex_unlock(&t->lock);
}

/* ---- groups ---- */

static void group_destroy(tt_shared_group *g)
{
    for (int i = 0; g->boxes && i < g->n * g->n; i++)
        tt_mailbox_free(atomic_load(&g->boxes[i]));
    free(g->ranks);
    free(g->calls);
    free(g->n_begun);
    free(g->n_left);
    free(g->n_handles);
    free(g->pieces);
    free(g->boxes);
    free(g);
}

static tt_shared_group *group_new(const tt_threads *t, const int *ranks, int n, uint64_t key)
{
    const size_t m = (size_t)n, size = (sizeof(tt_shared_group) + TT_CACHE_LINE - 1) /
                                       TT_CACHE_LINE * TT_CACHE_LINE;
    tt_shared_group *g = aligned_alloc(TT_CACHE_LINE, size);
    if (!g)
        return NULL;
    memset(g, 0, size);
    g->key = key;
    g->n = n;
    g->ranks = calloc(m, sizeof *g->ranks);
    g->calls = calloc(m, sizeof *g->calls);
    g->n_begun = calloc(m, sizeof *g->n_begun);
    g->n_left = calloc(m, sizeof *g->n_left);
    g->n_handles = calloc(m, sizeof *g->n_handles);
    g->pieces = calloc(m * m, sizeof *g->pieces);
    g->boxes = calloc(m * m, sizeof *g->boxes);
    if (!g->ranks || !g->calls || !g->n_begun || !g->n_left || !g->n_handles || !g->pieces ||
        !g->boxes) {
        group_destroy(g);
        return NULL;
    }
    memcpy(g->ranks, ranks, m * sizeof *ranks);
    tt_barrier_init(&g->barrier, n, t->world > tt_cpu_count());
    return g;
}

static tt_shared_group *find_or_make(tt_threads *t, const int *ranks, int n, uint64_t key)
{
    pthread_mutex_lock(&t->lock);
    tt_shared_group *g = t->groups;
    while (g && (g->key != key || g->n != n || memcmp(g->ranks, ranks, (size_t)n * sizeof *ranks)))
        g = g->next;
    if (!g && (g = group_new(t, ranks, n, key)) != NULL) {
        g->next = t->groups;
        t->groups = g;
        if (atomic_load(&t->aborted))
            tt_barrier_abort(&g->barrier);
    }
    pthread_mutex_unlock(&t->lock);
    return g;
}

static tt_status threads_group(void *self, const int *ranks, int n, uint64_t key, tt_comm **out,
                               tt_error *err)
{
    const rank_end *e = self;
    tt_comm *c = calloc(1, sizeof *c);
    if (!c)
        return TT_FAIL(err, TT_ENOMEM, "no memory for a group");
    c->t = e->t;
    c->g = find_or_make(e->t, ranks, n, key);
    c->me = -1;
    for (int i = 0; i < n; i++)
        if (ranks[i] == e->rank)
            c->me = i;
    if (c->g && c->me >= 0) {
        c->g->n_handles[c->me]++;
        *out = c;
        return TT_OK;
    }
    const bool is_member = c->me >= 0;
    free(c);
    if (!is_member)
        return TT_FAIL(err, TT_EINVAL, "rank %d is not a member of the group that it asked for",
                       e->rank);
    return TT_FAIL(err, TT_ENOMEM, "no memory for a group of %d ranks", n);
}

static void threads_group_free(tt_comm *c)
{
    c->g->n_handles[c->me]--;
    free(c); /* shared groups live as long as the world */
}

/* ---- the two barriers of a collective ---- */

static tt_status timed_out(tt_comm *c, const char *op, tt_error *err)
{
    const tt_shared_group *g = c->g;
    char missing[160] = "";
    size_t len = 0;
    for (int i = 0; i < g->n && len + 16 < sizeof missing; i++)
        if (atomic_load(&g->n_begun[i]) < c->sequence)
            len += (size_t)snprintf(missing + len, sizeof missing - len, " %d", g->ranks[i]);
    return TT_FAIL(err, TT_ETIMEOUT,
                   "%s number %llu waited %g s (" TT_COMM_LIMIT_KEYS
                   "); ranks that did not arrive:%s",
                   op, (unsigned long long)c->sequence, c->t->timeout_s, missing);
}

/* All members must make the same call: if they do not, the programs of their ranks differ. */
static tt_status check_calls(const tt_comm *c, tt_error *err)
{
    const tt_call *mine = &c->g->calls[c->me];
    for (int i = 0; i < c->g->n; i++) {
        const tt_call *other = &c->g->calls[i];
        const bool same = !strcmp(other->op, mine->op) && other->size == mine->size;
        if (same && other->signature == mine->signature)
            continue;
        return TT_FAIL(
            err, TT_ECOMM,
            "collective number %llu: rank %d calls %s of %lld, rank %d calls %s of %lld%s",
            (unsigned long long)c->sequence, c->g->ranks[c->me], mine->op, (long long)mine->size,
            c->g->ranks[i], other->op, (long long)other->size,
            same ? ": their counts, their dtypes or their reductions differ" : "");
    }
    return TT_OK;
}

static tt_status close_barrier(tt_comm *c)
{
    tt_barrier_wait(&c->g->barrier, false, 0);
    return TT_OK;
}

/* Publishes this member's call and waits for all members' calls. After TT_OK the caller must call
 * close_barrier(). */
static tt_status open_barrier(tt_comm *c, const tt_call *call, tt_error *err)
{
    tt_shared_group *g = c->g;
    g->calls[c->me] = *call;
    c->sequence = atomic_fetch_add(&g->n_begun[c->me], 1) + 1;
    switch (tt_barrier_wait(&g->barrier, true, tt_clock_deadline(c->t->timeout_s))) {
    case TT_BARRIER_PASSED:
        break;
    case TT_BARRIER_ABORTED:
        return tt_threads_aborted(c->t, err);
    case TT_BARRIER_TIMEOUT: {
        tt_error e = {0};
        const tt_status s = timed_out(c, call->op, &e);
        threads_abort(c->t, e.text);
        if (err)
            *err = e;
        return s;
    }
    }
    const tt_status s = check_calls(c, err);
    if (s != TT_OK)
        close_barrier(c);
    return s;
}

/* ---- for communicators that are built on this one: threads_meet.h ---- */

tt_status tt_threads_meet(tt_comm *c, const tt_call *call, tt_error *err)
{
    return open_barrier(c, call, err);
}

void tt_threads_meet_again(tt_comm *c)
{
    close_barrier(c);
}

const tt_call *tt_threads_call_of(const tt_comm *c, int member)
{
    return &c->g->calls[member];
}

void tt_threads_leave_call(tt_comm *c)
{
    atomic_fetch_add(&c->g->n_left[c->me], 1);
}

void tt_threads_await_left(tt_comm *c)
{
    const uint64_t mine = atomic_load(&c->g->n_left[c->me]);
    for (int i = 0; i < c->g->n; i++)
        while (atomic_load(&c->g->n_left[i]) < mine)
            nanosleep(&(struct timespec){0, 20000}, NULL);
}

int tt_threads_handles(tt_comm *c)
{
    return c->g->n_handles[c->me];
}

tt_status tt_threads_poll(tt_comm *c, tt_error *err)
{
    return atomic_load(&c->t->aborted) ? tt_threads_aborted(c->t, err) : TT_OK;
}

/* ---- collectives ---- */

static int64_t sum(const int64_t *counts, int n)
{
    int64_t s = 0;
    for (int i = 0; i < n; i++)
        s += counts[i];
    return s;
}

static tt_status all_gather(tt_comm *c, const void *send, void *recv, const int64_t *counts,
                            tt_dtype dtype, tt_error *err)
{
    const tt_call call = {.op = "all_gather", .send = send, .size = sum(counts, c->g->n)};
    TT_TRY(open_barrier(c, &call, err));
    char *to = recv;
    for (int i = 0; i < c->g->n; i++) {
        const size_t bytes = (size_t)counts[i] * tt_dtype_size(dtype);
        if (bytes && to != c->g->calls[i].send)
            memcpy(to, c->g->calls[i].send, bytes);
        to += bytes;
    }
    return close_barrier(c);
}

/* Reduces elements [at, at + n) of all members' buffers into out. */
static tt_status reduce_piece(tt_comm *c, void *out, int64_t at, int64_t n, tt_dtype dtype,
                              tt_reduce op, tt_error *err)
{
    const void **xs = c->g->pieces + (size_t)c->me * (size_t)c->g->n;
    for (int i = 0; i < c->g->n; i++)
        xs[i] = (const char *)c->g->calls[i].send + (size_t)at * tt_dtype_size(dtype);
    return tt_reduce_members(out, xs, c->g->n, n, dtype, op, err);
}

static tt_status reduce_scatter(tt_comm *c, const void *send, void *recv, const int64_t *counts,
                                tt_dtype dtype, tt_reduce op, tt_error *err)
{
    TT_TRY(tt_reduce_members(NULL, NULL, 0, 0, dtype, op,
                             err)); /* checks dtype and op: fails on all ranks, or on none */
    const tt_call call = {.op = "reduce_scatter", .send = send, .size = sum(counts, c->g->n)};
    TT_TRY(open_barrier(c, &call, err));
    const tt_status s = reduce_piece(c, recv, sum(counts, c->me), counts[c->me], dtype, op, err);
    close_barrier(c);
    return s;
}

/* Member i reduces piece i of all buffers into member 0's buffer and copies the result to all
 * others: no other member touches piece i. */
static tt_status all_reduce(tt_comm *c, void *buf, int64_t count, tt_dtype dtype, tt_reduce op,
                            tt_error *err)
{
    TT_TRY(tt_reduce_members(NULL, NULL, 0, 0, dtype, op,
                             err)); /* checks dtype and op: fails on all ranks, or on none */
    const tt_call call = {.op = "all_reduce", .send = buf, .recv = buf, .size = count};
    TT_TRY(open_barrier(c, &call, err));
    const int n = c->g->n;
    const int64_t piece = (count + n - 1) / n, b = TT_MIN(piece * c->me, count),
                  e = TT_MIN(b + piece, count);
    const size_t at = (size_t)b * tt_dtype_size(dtype),
                 bytes = (size_t)(e - b) * tt_dtype_size(dtype);
    tt_status s = TT_OK;
    if (bytes) {
        char *first = (char *)c->g->calls[0].recv + at;
        s = reduce_piece(c, first, b, e - b, dtype, op, err);
        for (int i = 1; s == TT_OK && i < n; i++)
            memcpy((char *)c->g->calls[i].recv + at, first, bytes);
    }
    close_barrier(c);
    return s;
}

static tt_status all_to_all(tt_comm *c, const void *send, const int64_t *send_counts, void *recv,
                            const int64_t *recv_counts, tt_dtype dtype, tt_error *err)
{
    const tt_call call = {.op = "all_to_all", .send = send, .counts = send_counts};
    TT_TRY(open_barrier(c, &call, err));
    const size_t size = tt_dtype_size(dtype);
    char *to = recv;
    tt_status s = TT_OK;
    for (int i = 0; s == TT_OK && i < c->g->n; i++) {
        const tt_call *from = &c->g->calls[i];
        const size_t bytes = (size_t)recv_counts[i] * size;
        if (from->counts[c->me] != recv_counts[i])
            s = TT_FAIL(err, TT_ECOMM,
                        "all_to_all number %llu: rank %d sends %lld elements where %lld are "
                        "expected",
                        (unsigned long long)c->sequence, c->g->ranks[i],
                        (long long)from->counts[c->me], (long long)recv_counts[i]);
        else if (bytes)
            memcpy(to, (const char *)from->send + (size_t)sum(from->counts, c->me) * size, bytes);
        to += bytes;
    }
    close_barrier(c);
    return s;
}

static tt_status barrier(tt_comm *c, tt_error *err)
{
    const tt_call call = {.op = "barrier"};
    TT_TRY(open_barrier(c, &call, err));
    return close_barrier(c);
}

static void abort_(void *self, const char *why)
{
    threads_abort(((rank_end *)self)->t, why);
}

static void threads_set_timeout(void *self, double timeout_s)
{
    ((rank_end *)self)->t->timeout_s = timeout_s;
}

static int threads_concurrent(void *self)
{
    (void)self;
    return 1;
}

static const tt_comm_vt vt = {
    .struct_size = sizeof(tt_comm_vt),
    .group = threads_group,
    .group_free = threads_group_free,
    .all_gather = all_gather,
    .reduce_scatter = reduce_scatter,
    .all_reduce = all_reduce,
    .all_to_all = all_to_all,
    .send = tt_mailbox_send,
    .recv = tt_mailbox_recv,
    .barrier = barrier,
    .abort = abort_,
    .set_timeout = threads_set_timeout,
    .concurrent = threads_concurrent,
};

/* ---- life ---- */

bool tt_dist_is_threads(const tt_dist *d)
{
    return d->vt == &vt;
}

tt_status tt_threads_new(int world, double timeout_s, tt_threads **out, tt_error *err)
{
    tt_threads *t = calloc(1, sizeof *t);
    if (!t)
        return TT_FAIL(err, TT_ENOMEM, "no memory for %d ranks", world);
    t->world = world;
    t->timeout_s = timeout_s;
    pthread_mutex_init(&t->lock, NULL);
    *out = t;
    return TT_OK;
}

void tt_threads_free(tt_threads *t)
{
    if (!t)
        return;
    for (tt_shared_group *g = t->groups; g;) {
        tt_shared_group *next = g->next;
        group_destroy(g);
        g = next;
    }
    tt_lending_free(t->lending);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

void tt_threads_lend(tt_threads *t, int n_threads)
{
    tt_error why = {0};
    if (n_threads && tt_lending_new(t->world, n_threads, &t->lending, &why) != TT_OK)
        tt_log(TT_WARN, "comm", "%s; ranks that wait lend their cores to no others", why.text);
}

tt_status tt_threads_join(tt_threads *t, int rank, tt_dist *out, tt_error *err)
{
    rank_end *e = calloc(1, sizeof *e);
    if (!e)
        return TT_FAIL(err, TT_ENOMEM, "no memory for a rank");
    e->t = t;
    e->rank = rank;
    tt_dist d = {.vt = &vt,
                 .self = e,
                 .rank = rank,
                 .world = t->world,
                 .local_rank = rank,
                 .local_world = t->world,
                 .free_self = free,
                 .data_vt = &vt,
                 .data_self = e,
                 .lending = t->lending};
    const tt_status s = tt_comm_all(&vt, e, t->world, &d.all, err);
    if (s == TT_OK)
        *out = d;
    else
        free(e);
    return s;
}
