/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/meet.h"
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
/* cmocka needs the headers above */
#include <cmocka.h>

/* Ranks as threads of one process, whose helpers compute for the others while a rank waits. */

enum { RANKS = 3, JOBS = 400, N = 1024 };

static void test_counts(void **state)
{
    (void)state;
    const int cores = tt_cpu_count();
    assert_int_equal(tt_lending_helpers(1, 1), 0);
    assert_int_equal(tt_lending_helpers(1, 64), 0);
    assert_int_equal(tt_lending_helpers(2, cores), 0); /* every rank uses every core itself */
    assert_int_equal(tt_lending_helpers(cores, 1), cores - 1);
    assert_int_equal(tt_lending_helpers(100 * cores, 1), cores - 1);
    assert_int_equal(tt_lending_helpers(2, 1), cores > 1 ? 1 : 0);
}

typedef struct waiting {
    tt_lending *lending;
    _Atomic bool over;
} waiting;

static void *waits(void *arg)
{
    waiting *w = arg;
    tt_pool *p = NULL;
    if (tt_lending_pool(w->lending, &p, NULL) != TT_OK)
        return arg;
    tt_pool_lend();
    while (!atomic_load(&w->over))
        sched_yield();
    tt_pool_take_back();
    tt_pool_free(p);
    return NULL;
}

static void test_a_waiting_rank_lends_its_thread(void **state)
{
    (void)state;
    waiting w = {.lending = NULL};
    tt_pool *p = NULL;
    pthread_t other;
    _Atomic int n = 0;
    void *failed = NULL;
    if (tt_cpu_count() < 2)
        skip(); /* no core to lend */
    assert_int_equal(tt_lending_new(2, 1, &w.lending, NULL), TT_OK);
    assert_non_null(w.lending);
    assert_int_equal(tt_lending_pool(w.lending, &p, NULL), TT_OK);
    assert_int_equal(tt_pool_threads(p), 2);
    assert_int_equal(pthread_create(&other, NULL, waits, &w), 0);
    for (int i = 0; i < 200; i++)
        tt_parallel_for(p, 2, 1, meet, &n);
    assert_int_equal(n, 400);
    atomic_store(&w.over, true);
    pthread_join(other, &failed);
    assert_null(failed);
    tt_pool_free(p);
    tt_lending_free(w.lending);
}

typedef struct rank {
    tt_lending *lending;
    pthread_barrier_t *barrier;
    int index;
    int64_t data[N]; /* not atomic, so that TSan sees a piece that two threads run */
    int64_t by[64];  /* pieces by thread */
} rank;

static void add(void *arg, int64_t begin, int64_t end, int thread)
{
    rank *r = arg;
    for (int64_t i = begin; i < end; i++)
        r->data[i] += i + 1;
    if (thread < 0 || thread >= 64)
        r->data[0] = -1;
    else
        r->by[thread]++;
}

static void *works(void *arg)
{
    rank *r = arg;
    tt_pool *p = NULL;
    if (tt_lending_pool(r->lending, &p, NULL) != TT_OK)
        return arg;
    for (int job = 0; job < JOBS; job++) {
        if (job % RANKS == r->index ||
            job % 7 == 0) /* the others wait for it, at times for several */
            for (int i = 0; i < 3; i++)
                tt_parallel_for(p, N, 1 + job % 60, add, r);
        tt_pool_lend();
        pthread_barrier_wait(r->barrier);
        tt_pool_take_back();
    }
    int64_t times = 0, pieces = 0, want = 0;
    for (int job = 0; job < JOBS; job++)
        if (job % RANKS == r->index || job % 7 == 0) {
            times += 3;
            want += 3 * ((N - 1) / (1 + job % 60) + 1);
        }
    bool right = true;
    for (int i = 0; i < N; i++)
        right = right && r->data[i] == times * (i + 1);
    for (int i = 0; i < 64; i++)
        pieces += i < tt_pool_threads(p) ? r->by[i] : r->by[i] * N * JOBS;
    tt_pool_free(p);
    return right && pieces == want ? NULL : arg;
}

static void test_each_piece_runs_once(void **state)
{
    (void)state;
    static rank ranks[RANKS];
    pthread_t threads[RANKS];
    pthread_barrier_t barrier;
    tt_lending *l = NULL;
    memset(ranks, 0, sizeof ranks);
    assert_int_equal(tt_lending_new(RANKS, 1, &l, NULL), TT_OK);
    if (!l)
        skip(); /* no core to lend */
    pthread_barrier_init(&barrier, NULL, RANKS);
    for (int i = 0; i < RANKS; i++) {
        ranks[i].lending = l;
        ranks[i].barrier = &barrier;
        ranks[i].index = i;
        assert_int_equal(pthread_create(&threads[i], NULL, works, &ranks[i]), 0);
    }
    for (int i = 0; i < RANKS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    pthread_barrier_destroy(&barrier);
    tt_lending_free(l);
}

static void test_nothing_without_a_pool(void **state)
{
    (void)state;
    tt_pool *p = NULL;
    tt_pool_lend();
    tt_pool_take_back();
    assert_int_equal(tt_pool_new(2, &p, NULL), TT_OK);
    tt_pool_lend();
    assert_int_equal(tt_pool_threads(p), 2);
    tt_pool_take_back();
    tt_pool_free(p);
    tt_lending_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_a_waiting_rank_lends_its_thread),
        cmocka_unit_test(test_each_piece_runs_once),
        cmocka_unit_test(test_nothing_without_a_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
