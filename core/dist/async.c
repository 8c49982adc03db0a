/* SPDX-License-Identifier: Apache-2.0 */
#include "dist/async.h"
#include "dist/shm.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A queue of calls and the thread that makes them. */

typedef enum call_kind { ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, SEND, RECV } call_kind;

typedef struct call {
    call_kind kind;
    const void *send;
    void *recv;
    const int64_t *counts;
    int64_t size; /* elements, or bytes of a message */
    int peer;
    tt_dtype dtype;
    tt_reduce op;
} call;

struct tt_async {
    const tt_comm_vt *vt;
    tt_comm *comm;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    call *ring; /* [most] */
    uint64_t most, n_begun, n_done;
    uint64_t failed; /* ticket of the first that failed; 0: none */
    tt_error err;
    bool quit;
};

static tt_status make_call(tt_async *a, const call *c, tt_error *err)
{
    switch (c->kind) {
    case ALL_GATHER:
        return a->vt->all_gather(a->comm, c->send, c->recv, c->counts, c->dtype, err);
    case REDUCE_SCATTER:
        return a->vt->reduce_scatter(a->comm, c->send, c->recv, c->counts, c->dtype, c->op, err);
    case ALL_REDUCE:
        return a->vt->all_reduce(a->comm, c->recv, c->size, c->dtype, c->op, err);
    case SEND:
        return a->vt->send(a->comm, c->peer, c->send, c->size, err);
    case RECV:
        return a->vt->recv(a->comm, c->peer, c->recv, c->size, err);
    }
    return TT_FAIL(err, TT_EINTERNAL, "no such call");
}

static void *work(void *arg)
{
    tt_async *a = arg;
    pthread_mutex_lock(&a->lock);
    for (;;) {
        while (a->n_done == a->n_begun && !a->quit)
            pthread_cond_wait(&a->changed, &a->lock);
        if (a->n_done == a->n_begun)
            break;
        const call c = a->ring[a->n_done % a->most];
        const bool skip = a->failed != 0;
        tt_error err = {0};
        pthread_mutex_unlock(&a->lock);
        const tt_status s = skip ? TT_OK : make_call(a, &c, &err);
        pthread_mutex_lock(&a->lock);
        a->n_done++;
        if (s != TT_OK) {
            a->failed = a->n_done;
            a->err = err;
            a->err.code = s;
        }
        pthread_cond_broadcast(&a->changed);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

/* ---- life ---- */

static void release(tt_async *a)
{
    if (a->comm)
        a->vt->group_free(a->comm);
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->changed);
    free(a->ring);
    free(a);
}

tt_status tt_async_new(tt_dist *d, const int *ranks, int n, int most, tt_async **out, tt_error *err)
{
    if (!d->vt || (d->session && d->vt != &tt_shm_vt))
        return TT_FAIL(err, TT_EUNSUPPORTED, "calls of this communicator cannot be begun early");
    tt_async *a = calloc(1, sizeof *a);
    TT_ASSERT(a && most > 0);
    a->vt = d->vt;
    a->most = (uint64_t)most;
    a->ring = calloc((size_t)most, sizeof *a->ring);
    TT_ASSERT(a->ring);
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
    /* not the group that others make of these ranks: its order is its own */
    const uint64_t key = tt_hash64(ranks, (size_t)n * sizeof *ranks, 0x6173796e63);
    tt_status s = a->vt->group(d->self, ranks, n, key, &a->comm, err);
    if (s == TT_OK && pthread_create(&a->thread, NULL, work, a))
        s = TT_FAIL(err, TT_ENOMEM, "no thread for communication could be started");
    if (s == TT_OK)
        *out = a;
    else
        release(a);
    return s;
}

void tt_async_free(tt_async *a)
{
    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    a->quit = true;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
    pthread_join(a->thread, NULL);
    release(a);
}

/* ---- begin and wait ---- */

static tt_status begin(tt_async *a, const call *c, tt_ticket *out, tt_error *err)
{
    pthread_mutex_lock(&a->lock);
    const bool full = a->n_begun - a->n_done == a->most;
    if (!full) {
        a->ring[a->n_begun % a->most] = *c;
        *out = ++a->n_begun;
        pthread_cond_broadcast(&a->changed);
    }
    pthread_mutex_unlock(&a->lock);
    if (full)
        return TT_FAIL(err, TT_EINTERNAL, "more than %llu calls are under way",
                       (unsigned long long)a->most);
    return TT_OK;
}

tt_status tt_all_gather_begin(tt_async *a, const void *send, void *recv, const int64_t *counts,
                              tt_dtype dtype, tt_ticket *out, tt_error *err)
{
    const call c = {
        .kind = ALL_GATHER, .send = send, .recv = recv, .counts = counts, .dtype = dtype};
    return begin(a, &c, out, err);
}

tt_status tt_reduce_scatter_begin(tt_async *a, const void *send, void *recv, const int64_t *counts,
                                  tt_dtype dtype, tt_reduce op, tt_ticket *out, tt_error *err)
{
    const call c = {.kind = REDUCE_SCATTER,
                    .send = send,
                    .recv = recv,
                    .counts = counts,
                    .dtype = dtype,
                    .op = op};
    return begin(a, &c, out, err);
}

tt_status tt_all_reduce_begin(tt_async *a, void *buf, int64_t count, tt_dtype dtype, tt_reduce op,
                              tt_ticket *out, tt_error *err)
{
    const call c = {.kind = ALL_REDUCE, .recv = buf, .size = count, .dtype = dtype, .op = op};
    return begin(a, &c, out, err);
}

tt_status tt_send_begin(tt_async *a, int to, const void *buf, int64_t bytes, tt_ticket *out,
                        tt_error *err)
{
    const call c = {.kind = SEND, .send = buf, .size = bytes, .peer = to};
    return begin(a, &c, out, err);
}

tt_status tt_recv_begin(tt_async *a, int from, void *buf, int64_t bytes, tt_ticket *out,
                        tt_error *err)
{
    const call c = {.kind = RECV, .recv = buf, .size = bytes, .peer = from};
    return begin(a, &c, out, err);
}

tt_status tt_async_wait(tt_async *a, tt_ticket t, tt_error *err)
{
    pthread_mutex_lock(&a->lock);
    while (a->n_done < t)
        pthread_cond_wait(&a->changed, &a->lock);
    const bool failed = a->failed && a->failed <= t;
    if (failed && err)
        *err = a->err;
    const tt_status s = failed ? a->err.code : TT_OK;
    pthread_mutex_unlock(&a->lock);
    return s;
}

bool tt_async_done(tt_async *a, tt_ticket t)
{
    pthread_mutex_lock(&a->lock);
    const bool done = a->n_done >= t;
    pthread_mutex_unlock(&a->lock);
    return done;
}
