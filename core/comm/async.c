/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/async.h"
#include "base/clock.h"
#include "base/pool.h"
#include <stdlib.h>
#include <string.h>

/* A queue of collective calls, and the thread that makes them. */

typedef struct call {
    tt_async_fn fn;
    void *arg;
} call;

struct tt_async {
    const tt_comm_vt *vt;
    tt_comm *comm;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    call *ring; /* [most] */
    uint64_t most, n_begun, n_done;
    uint64_t failed; /* ticket of the first call that failed; 0: none */
    tt_error err;
    bool quit;
};

static void *work(void *arg)
{
    tt_async *a = arg;
    pthread_mutex_lock(&a->lock);
    for (;;) {
        while (a->n_done == a->n_begun && !a->quit)
            tt_clock_wait_cond(&a->changed, &a->lock, 0);
        if (a->n_done == a->n_begun)
            break;
        const call c = a->ring[a->n_done % a->most];
        const bool skip = a->failed != 0;
        tt_error err = {0};
        pthread_mutex_unlock(&a->lock);
        const tt_status s = skip ? TT_OK : c.fn(c.arg, a->vt, a->comm, &err);
        pthread_mutex_lock(&a->lock);
        a->n_done++;
        if (s != TT_OK) {
            a->failed = a->n_done;
            a->err = err;
            a->err.code = s;
        }
        tt_clock_wake_cond(&a->changed);
    }
    pthread_mutex_unlock(&a->lock);
    tt_clock_member_ends();
    return NULL;
}

/* ---- life ---- */

static void async_release(tt_async *a)
{
    if (a->comm)
        a->vt->group_free(a->comm);
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->changed);
    free(a->ring);
    free(a);
}

bool tt_async_can(const tt_dist *d)
{
    return d->vt && TT_HAS(d->vt, tt_comm_vt, concurrent) && d->vt->concurrent &&
           d->vt->concurrent(d->self);
}

static tt_status start_thread(tt_async *a, tt_error *err)
{
    tt_clock_member_begins();
    if (!pthread_create(&a->thread, NULL, work, a))
        return TT_OK;
    tt_clock_member_ends();
    return TT_FAIL(err, TT_ENOMEM, "cannot start a thread for asynchronous collectives");
}

tt_status tt_async_new(tt_dist *d, const int *ranks, int n, int most, tt_async **out, tt_error *err)
{
    if (!tt_async_can(d))
        return TT_FAIL(err, TT_EUNSUPPORTED, "this communicator has no asynchronous collectives");
    TT_ASSERT(most > 0);
    tt_async *a = calloc(1, sizeof *a);
    call *ring = calloc((size_t)most, sizeof *ring);
    if (!a || !ring) {
        free(a);
        free(ring);
        return TT_FAIL(err, TT_ENOMEM, "no memory for a queue of %d collectives", most);
    }
    a->vt = d->vt;
    a->most = (uint64_t)most;
    a->ring = ring;
    pthread_mutex_init(&a->lock, NULL);
    tt_clock_cond_init(&a->changed);
    /* The key keeps this group apart from other groups of these ranks: it has its own order. */
    const uint64_t key = tt_hash64(ranks, (size_t)n * sizeof *ranks, 0x6173796e63);
    tt_status s = a->vt->group(d->self, ranks, n, key, &a->comm, err);
    if (s == TT_OK)
        s = start_thread(a, err);
    if (s == TT_OK)
        *out = a;
    else
        async_release(a);
    return s;
}

int tt_async_most(const tt_async *a)
{
    return (int)a->most;
}

void tt_async_free(tt_async *a)
{
    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    a->quit = true;
    tt_clock_wake_cond(&a->changed);
    pthread_mutex_unlock(&a->lock);
    pthread_join(a->thread, NULL);
    async_release(a);
}

/* ---- begin and wait ---- */

tt_status tt_async_begin(tt_async *a, tt_async_fn fn, void *arg, tt_ticket *out, tt_error *err)
{
    pthread_mutex_lock(&a->lock);
    const bool full = a->n_begun - a->n_done == a->most;
    if (!full) {
        a->ring[a->n_begun % a->most] = (call){fn, arg};
        *out = ++a->n_begun;
        tt_clock_wake_cond(&a->changed);
    }
    pthread_mutex_unlock(&a->lock);
    if (full)
        return TT_FAIL(err, TT_EINTERNAL, "more than %llu collectives are in flight",
                       (unsigned long long)a->most);
    return TT_OK;
}

tt_status tt_async_wait(tt_async *a, tt_ticket t, tt_error *err)
{
    pthread_mutex_lock(&a->lock);
    const bool waits = a->n_done < t;
    if (waits)
        tt_pool_lend();
    while (a->n_done < t)
        tt_clock_wait_cond(&a->changed, &a->lock, 0);
    if (waits)
        tt_pool_take_back();
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
