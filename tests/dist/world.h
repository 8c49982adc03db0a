/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_WORLD_H
#define TT_TESTS_WORLD_H
#include "dist/dist.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A world of rank-threads that all run one function. Failures are counted, not asserted: cmocka's
 * asserts jump, which only the main thread may do. */

typedef struct world world;
typedef void (*rank_fn)(world *w, tt_dist *d);
struct world {
    tt_threads *t;
    rank_fn fn;
    void *user;
    _Atomic int n_failed;
    char first[300]; /* text of the first failure */
    pthread_mutex_t lock;
};

typedef struct world_rank {
    world *w;
    int rank;
} world_rank;

static inline void world_fail(world *w, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    pthread_mutex_lock(&w->lock);
    if (!w->n_failed++)
        vsnprintf(w->first, sizeof w->first, fmt, ap);
    pthread_mutex_unlock(&w->lock);
    va_end(ap);
}

static void *world_main(void *arg)
{
    world_rank *r = arg;
    tt_dist d;
    tt_error err;
    if (tt_threads_join(r->w->t, r->rank, &d, &err) != TT_OK) {
        world_fail(r->w, "join: %s", err.text);
        return NULL;
    }
    r->w->fn(r->w, &d);
    tt_dist_leave(&d);
    return NULL;
}

/* Runs fn on `n` ranks; fails the test with the first failure. */
static inline void world_run(int n, double timeout_s, rank_fn fn, void *user)
{
    world w = {.fn = fn, .user = user, .lock = PTHREAD_MUTEX_INITIALIZER};
    tt_error err;
    pthread_t threads[16];
    world_rank ranks[16];
    assert_int_equal(tt_threads_new(n, timeout_s, &w.t, &err), TT_OK);
    for (int i = 0; i < n; i++) {
        ranks[i] = (world_rank){&w, i};
        assert_int_equal(pthread_create(&threads[i], NULL, world_main, &ranks[i]), 0);
    }
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    tt_threads_free(w.t);
    if (w.n_failed)
        fail_msg("%d failures, the first: %s", w.n_failed, w.first);
}

static inline tt_comm *world_group(world *w, tt_dist *d, const int *ranks, int n)
{
    tt_comm *c = NULL;
    tt_error err;
    if (d->vt->group(d->self, ranks, n, tt_hash64(ranks, (size_t)n * sizeof *ranks, 0), &c, &err) !=
        TT_OK)
        world_fail(w, "group: %s", err.text);
    return c;
}

#endif
