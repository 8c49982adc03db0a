/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "dist/dist.h"
#include "dist/reduce.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Ranks as threads of one process: members publish pointers, meet at a barrier, and read each other's memory. Reductions
 * add in ascending member order, each element by one member, so results are those of any other transport. */

#define MAX_IN_FLIGHT 2

typedef struct message {
    struct message *next;
    int64_t bytes, cap;
    void *data;
} message;

typedef struct mailbox { /* one direction of a pair */
    message *first, *last, *spare;
    int n;
} mailbox;

typedef struct shared_group {
    struct shared_group *next;
    uint64_t key;
    int n, users;
    int *ranks;
    /* barrier */
    int arrived;
    uint64_t generation, sequence;
    bool *here;
    const char *op;
    /* published by each member before the barrier */
    const void **send;
    void **recv;
    const int64_t **counts;
    mailbox *boxes; /* [from * n + to] */
} shared_group;

struct tt_threads {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int world;
    double timeout_s;
    bool aborted;
    char why[256];
    shared_group *groups;
};

typedef struct rank_end {
    tt_threads *t;
    int rank;
} rank_end;

struct tt_comm {
    tt_threads *t;
    shared_group *g;
    int me;
};

static tt_status aborted(const tt_threads *t, tt_error *err)
{
    return TT_FAIL(err, TT_ECOMM, "stopped: %s", t->why);
}

static struct timespec deadline(const tt_threads *t)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    const double s = t->timeout_s > 0 ? t->timeout_s : 1e6;
    ts.tv_sec += (time_t)s;
    return ts;
}

static tt_status timed_out(const tt_threads *t, const shared_group *g, const char *op, tt_error *err)
{
    char missing[160] = "";
    size_t len = 0;
    for (int i = 0; g->here && i < g->n; i++)
        if (!g->here[i] && len + 12 < sizeof missing)
            len += (size_t)snprintf(missing + len, sizeof missing - len, " %d", g->ranks[i]);
    return TT_FAIL(err, TT_ETIMEOUT,
                   "%s number %llu waited %g s (comm.train_timeout_seconds); ranks that did not come:%s",
                   op, (unsigned long long)g->sequence, t->timeout_s, missing);
}

/* Meet all members. The last to arrive opens the next generation. */
static tt_status meet(tt_comm *c, const char *op, tt_error *err)
{
    tt_threads *t = c->t;
    shared_group *g = c->g;
    tt_status s = TT_OK;
    const struct timespec until = deadline(t);
    pthread_mutex_lock(&t->lock);
    const uint64_t mine = g->generation;
    g->here[c->me] = true;
    g->op = op;
    if (++g->arrived == g->n) {
        g->arrived = 0;
        g->generation++;
        g->sequence++;
        memset(g->here, 0, (size_t)g->n * sizeof *g->here);
        pthread_cond_broadcast(&t->changed);
    }
    while (s == TT_OK && g->generation == mine) {
        if (t->aborted)
            s = aborted(t, err);
        else if (pthread_cond_timedwait(&t->changed, &t->lock, &until) == ETIMEDOUT)
            s = timed_out(t, g, op, err);
    }
    pthread_mutex_unlock(&t->lock);
    return s;
}

static tt_status group(void *self, const int *ranks, int n, uint64_t key, tt_comm **out,
                       tt_error *err)
{
    const rank_end *e = self;
    tt_threads *t = e->t;
    tt_comm *c = calloc(1, sizeof *c);
    if (!c) return TT_FAIL(err, TT_ENOMEM, "no memory for a group");
    pthread_mutex_lock(&t->lock);
    shared_group *g = t->groups;
    while (g && (g->key != key || g->n != n || memcmp(g->ranks, ranks, (size_t)n * sizeof *ranks)))
        g = g->next;
    if (!g) {
        const size_t m = (size_t)n;
        g = calloc(1, sizeof *g);
        TT_ASSERT(g);
        g->key = key;
        g->n = n;
        g->ranks = calloc(m, sizeof *g->ranks);
        g->here = calloc(m, sizeof *g->here);
        g->send = calloc(m, sizeof *g->send);
        g->recv = calloc(m, sizeof *g->recv);
        g->counts = calloc(m, sizeof *g->counts);
        g->boxes = calloc(m * m, sizeof *g->boxes);
        TT_ASSERT(g->ranks && g->here && g->send && g->recv && g->counts && g->boxes);
        memcpy(g->ranks, ranks, m * sizeof *ranks);
        g->next = t->groups;
        t->groups = g;
    }
    g->users++;
    pthread_mutex_unlock(&t->lock);
    c->t = t;
    c->g = g;
    for (int i = 0; i < n; i++)
        if (ranks[i] == e->rank) c->me = i;
    *out = c;
    return TT_OK;
}

static void group_free(tt_comm *c)
{
    free(c); /* shared groups live as long as the world */
}

static tt_status publish(tt_comm *c, const void *send, void *recv, const int64_t *counts,
                         const char *op, tt_error *err)
{
    c->g->send[c->me] = send;
    c->g->recv[c->me] = recv;
    c->g->counts[c->me] = counts;
    return meet(c, op, err);
}

static tt_status all_gather(tt_comm *c, const void *send, void *recv, const int64_t *counts,
                            tt_dtype dtype, tt_error *err)
{
    TT_TRY(publish(c, send, recv, counts, "all_gather", err));
    char *to = recv;
    for (int i = 0; i < c->g->n; i++) {
        const size_t bytes = (size_t)counts[i] * tt_dtype_size(dtype);
        if (bytes && to != c->g->send[i]) memcpy(to, c->g->send[i], bytes);
        to += bytes;
    }
    return meet(c, "all_gather", err);
}

static tt_status reduce_scatter(tt_comm *c, const void *send, void *recv, const int64_t *counts,
                                tt_dtype dtype, tt_reduce op, tt_error *err)
{
    TT_TRY(publish(c, send, recv, counts, "reduce_scatter", err));
    size_t at = 0;
    for (int i = 0; i < c->me; i++)
        at += (size_t)counts[i] * tt_dtype_size(dtype);
    tt_status s = TT_OK;
    for (int i = 0; s == TT_OK && i < c->g->n; i++) {
        const char *from = (const char *)c->g->send[i] + at;
        if (i == 0)
            memcpy(recv, from, (size_t)counts[c->me] * tt_dtype_size(dtype));
        else
            s = tt_reduce_into(recv, from, counts[c->me], dtype, op, err);
    }
    TT_TRY(meet(c, "reduce_scatter", err));
    return s;
}

/* Member i reduces piece i of everyone's buffer into its own, then writes it back to all: nobody else touches piece i. */
static tt_status all_reduce(tt_comm *c, void *buf, int64_t count, tt_dtype dtype, tt_reduce op,
                            tt_error *err)
{
    TT_TRY(publish(c, buf, buf, NULL, "all_reduce", err));
    const int n = c->g->n;
    const int64_t piece = (count + n - 1) / n, b = TT_MIN(piece * c->me, count),
                  e = TT_MIN(b + piece, count);
    const size_t size = tt_dtype_size(dtype), at = (size_t)b * size;
    tt_status s = TT_OK;
    char *first = (char *)c->g->recv[0] + at; /* sum in member order into member 0's piece */
    for (int i = 1; s == TT_OK && i < n; i++)
        s = tt_reduce_into(first, (char *)c->g->recv[i] + at, e - b, dtype, op, err);
    for (int i = 1; i < n; i++)
        memcpy((char *)c->g->recv[i] + at, first, (size_t)(e - b) * size);
    TT_TRY(meet(c, "all_reduce", err));
    return s;
}

static tt_status all_to_all(tt_comm *c, const void *send, const int64_t *send_counts, void *recv,
                            const int64_t *recv_counts, tt_dtype dtype, tt_error *err)
{
    TT_TRY(publish(c, send, recv, send_counts, "all_to_all", err));
    const size_t size = tt_dtype_size(dtype);
    char *to = recv;
    for (int i = 0; i < c->g->n; i++) {
        size_t at = 0;
        for (int j = 0; j < c->me; j++)
            at += (size_t)c->g->counts[i][j] * size;
        memcpy(to, (const char *)c->g->send[i] + at, (size_t)recv_counts[i] * size);
        to += (size_t)recv_counts[i] * size;
    }
    return meet(c, "all_to_all", err);
}

static tt_status barrier(tt_comm *c, tt_error *err)
{
    return meet(c, "barrier", err);
}

/* ---- point to point ---- */

static message *take_spare(mailbox *b, int64_t bytes)
{
    message *m = b->spare;
    if (m) b->spare = m->next;
    if (!m) m = calloc(1, sizeof *m);
    if (m && m->cap < bytes) {
        free(m->data);
        m->data = malloc((size_t)bytes);
        m->cap = m->data ? bytes : 0;
    }
    return m;
}

static tt_status send_(tt_comm *c, int to, const void *buf, int64_t bytes, tt_error *err)
{
    tt_threads *t = c->t;
    mailbox *b = &c->g->boxes[c->me * c->g->n + to];
    tt_status s = TT_OK;
    const struct timespec until = deadline(t);
    pthread_mutex_lock(&t->lock);
    while (s == TT_OK && b->n >= MAX_IN_FLIGHT) {
        if (t->aborted)
            s = aborted(t, err);
        else if (pthread_cond_timedwait(&t->changed, &t->lock, &until) == ETIMEDOUT)
            s = TT_FAIL(err, TT_ETIMEOUT, "send to rank %d waited %g s", c->g->ranks[to], t->timeout_s);
    }
    message *m = s == TT_OK ? take_spare(b, bytes) : NULL;
    if (s == TT_OK && (!m || m->cap < bytes))
        s = TT_FAIL(err, TT_ENOMEM, "no memory to send %lld bytes", (long long)bytes);
    if (s == TT_OK) {
        m->bytes = bytes;
        m->next = NULL;
        if (bytes) memcpy(m->data, buf, (size_t)bytes);
        if (b->last)
            b->last->next = m;
        else
            b->first = m;
        b->last = m;
        b->n++;
        pthread_cond_broadcast(&t->changed);
    }
    pthread_mutex_unlock(&t->lock);
    return s;
}

static tt_status recv_(tt_comm *c, int from, void *buf, int64_t bytes, tt_error *err)
{
    tt_threads *t = c->t;
    mailbox *b = &c->g->boxes[from * c->g->n + c->me];
    tt_status s = TT_OK;
    const struct timespec until = deadline(t);
    pthread_mutex_lock(&t->lock);
    while (s == TT_OK && !b->first) {
        if (t->aborted)
            s = aborted(t, err);
        else if (pthread_cond_timedwait(&t->changed, &t->lock, &until) == ETIMEDOUT)
            s = TT_FAIL(err, TT_ETIMEOUT, "receive from rank %d waited %g s", c->g->ranks[from], t->timeout_s);
    }
    if (s == TT_OK && b->first->bytes != bytes)
        s = TT_FAIL(err, TT_ECOMM, "rank %d sent %lld bytes where %lld were due", c->g->ranks[from],
                    (long long)b->first->bytes, (long long)bytes);
    if (s == TT_OK) {
        message *m = b->first;
        if (bytes) memcpy(buf, m->data, (size_t)bytes);
        b->first = m->next;
        if (!b->first) b->last = NULL;
        m->next = b->spare;
        b->spare = m;
        b->n--;
        pthread_cond_broadcast(&t->changed);
    }
    pthread_mutex_unlock(&t->lock);
    return s;
}

static void abort_(void *self, const char *why)
{
    tt_threads *t = ((rank_end *)self)->t;
    pthread_mutex_lock(&t->lock);
    if (!t->aborted) {
        t->aborted = true;
        snprintf(t->why, sizeof t->why, "%s", why);
    }
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

static const tt_comm_vt vt = {
    .struct_size = sizeof(tt_comm_vt), .group = group, .group_free = group_free,
    .all_gather = all_gather, .reduce_scatter = reduce_scatter, .all_reduce = all_reduce,
    .all_to_all = all_to_all, .send = send_, .recv = recv_, .barrier = barrier, .abort = abort_,
};

tt_status tt_threads_new(int world, double timeout_s, tt_threads **out, tt_error *err)
{
    tt_threads *t = calloc(1, sizeof *t);
    if (!t) return TT_FAIL(err, TT_ENOMEM, "no memory for %d ranks", world);
    t->world = world;
    t->timeout_s = timeout_s;
    pthread_condattr_t a;
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->changed, &a);
    pthread_condattr_destroy(&a);
    *out = t;
    return TT_OK;
}

static void free_messages(message *m)
{
    while (m) {
        message *next = m->next;
        free(m->data);
        free(m);
        m = next;
    }
}

void tt_threads_free(tt_threads *t)
{
    if (!t) return;
    for (shared_group *g = t->groups; g;) {
        shared_group *next = g->next;
        for (int i = 0; i < g->n * g->n; i++) {
            free_messages(g->boxes[i].first);
            free_messages(g->boxes[i].spare);
        }
        free(g->ranks);
        free(g->here);
        free(g->send);
        free(g->recv);
        free(g->counts);
        free(g->boxes);
        free(g);
        g = next;
    }
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->changed);
    free(t);
}

tt_status tt_threads_join(tt_threads *t, int rank, tt_dist *out, tt_error *err)
{
    rank_end *e = calloc(1, sizeof *e);
    int *ranks = calloc((size_t)t->world, sizeof *ranks);
    if (!e || !ranks) {
        free(e);
        free(ranks);
        return TT_FAIL(err, TT_ENOMEM, "no memory for a rank");
    }
    e->t = t;
    e->rank = rank;
    for (int i = 0; i < t->world; i++)
        ranks[i] = i;
    tt_dist d = {.vt = &vt, .self = e, .rank = rank, .world = t->world, .free_self = free};
    const tt_status s = group(e, ranks, t->world, 0, &d.all, err);
    free(ranks);
    if (s == TT_OK) *out = d;
    return s;
}
