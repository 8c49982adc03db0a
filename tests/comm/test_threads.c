/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/pool.h"
#include "comm/async_cases.h"
#include "comm/battery.h"
#include <pthread.h>

/* Rank-threads. */

typedef struct world_rank {
    world *w;
    tt_threads *t;
    rank_fn fn;
    int rank;
} world_rank;

static void *world_main(void *arg)
{
    world_rank *r = arg;
    tt_dist d;
    tt_error err;
    if (tt_threads_join(r->t, r->rank, &d, &err) != TT_OK) {
        world_fail(r->w, "join: %s", err.text);
        own_clock_leave();
        return NULL;
    }
    r->fn(r->w, &d);
    tt_dist_leave(&d);
    own_clock_leave();
    return NULL;
}

static int lends; /* threads of a rank that lends them while it waits; 0: none does */

static int world_run(int n, rank_fn fn)
{
    world w = {0};
    tt_error err;
    tt_threads *t;
    pthread_t threads[16];
    world_rank ranks[16];
    assert_int_equal(tt_threads_new(n, 0, &t, &err), TT_OK);
    tt_threads_lend(t, lends);
    own_clock_open(n);
    for (int i = 0; i < n; i++) {
        ranks[i] = (world_rank){&w, t, fn, i};
        assert_int_equal(pthread_create(&threads[i], NULL, world_main, &ranks[i]), 0);
    }
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    own_clock_close();
    tt_threads_free(t);
    return world_end(&w);
}

/* ---- rank 0 waits, in each way that there is; a job of rank 1 ends only if two threads run its pieces ---- */

typedef enum wait_kind { IN_COLLECTIVE, TO_RECEIVE, TO_SEND, FOR_ASYNC, N_WAITS } wait_kind;

static wait_kind waits;

typedef struct meeting {
    _Atomic int n;
} meeting;

static void meet(void *arg, int64_t begin, int64_t end, int thread)
{
    meeting *m = arg;
    (void)begin;
    (void)end;
    (void)thread;
    atomic_fetch_add(&m->n, 1);
    while (atomic_load(&m->n) % 2) /* without end if nobody helps */
        sched_yield();
}

static void lend_async(world *w, tt_dist *d, tt_pool *p, meeting *m)
{
    int32_t x = 1;
    sum_call call = {&x, 1};
    tt_ticket t = 0;
    tt_error err = {0};
    const int both[] = {0, 1};
    tt_async *a = async_new(w, d, both, 2);
    if (d->rank == 1)
        tt_parallel_for(p, 2, 1, meet, m);
    if (!a || sum_begin(a, &call, &t, &err) != TT_OK || tt_async_wait(a, t, &err) != TT_OK ||
        x != 2)
        world_fail(w, "async: %s", err.text);
    tt_async_free(a);
}

/* The third message waits until the first has been received. */
static tt_status lend_messages(tt_dist *d, tt_pool *p, meeting *m, tt_error *err)
{
    int32_t x = 0;
    const int n = waits == TO_SEND ? 3 : 1, sender = waits == TO_SEND ? 0 : 1;
    tt_status s = TT_OK;
    if (d->rank == 1)
        tt_parallel_for(p, 2, 1, meet, m);
    for (int i = 0; i < n && s == TT_OK; i++)
        s = d->rank == sender ? d->vt->send(d->all, 1 - sender, &x, sizeof x, err)
                              : d->vt->recv(d->all, sender, &x, sizeof x, err);
    return s;
}

static void lend(world *w, tt_dist *d)
{
    tt_pool *p = NULL;
    tt_error err = {0};
    meeting m = {0};
    int32_t x = 1;
    tt_status s = tt_lending_pool(d->lending, &p, &err);
    if (s == TT_OK && waits == FOR_ASYNC) {
        lend_async(w, d, p, &m);
    } else if (s == TT_OK && waits == IN_COLLECTIVE) {
        if (d->rank == 1)
            tt_parallel_for(p, 2, 1, meet, &m);
        s = d->vt->all_reduce(d->all, &x, 1, TT_I32, TT_SUM, &err);
    } else if (s == TT_OK) {
        s = lend_messages(d, p, &m, &err);
    }
    if (s != TT_OK)
        world_fail(w, "%s", err.text);
    tt_pool_free(p);
}

static void test_waiting_ranks_lend(void **state)
{
    (void)state;
    if (!tt_lending_helpers(2, 1))
        skip(); /* one core */
    lends = 1;
    for (waits = 0; waits < N_WAITS; waits++)
        for (int i = 0; i < 20; i++)
            world_run(2, lend);
    lends = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {BATTERY, ASYNC_CASES,
                                       cmocka_unit_test(test_waiting_ranks_lend)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
