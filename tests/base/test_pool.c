/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/meet.h"
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <ttrun/option.h>
#include <unistd.h>
/* cmocka needs the headers above */
#include <cmocka.h>

enum { LARGEST = 4096 };

typedef struct {
    int64_t n, grain;
    int n_threads;
    int hits[LARGEST]; /* how often each index was visited: not atomic, so that TSan sees a double
                          visit */
    int bad; /* pieces cut otherwise than promised; written only when something is wrong */
} visit;

static void visit_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    visit *v = arg;
    int64_t want = v->n - begin > v->grain ? begin + v->grain : v->n;
    if (begin % v->grain || end != want || thread < 0 || thread >= v->n_threads)
        v->bad = 1;
    for (int64_t i = begin; i < end; i++)
        v->hits[i]++;
}

static void check_cover(int n_threads)
{
    static const int64_t cuts[][2] = {
        {1,    1   },
        {1,    100 },
        {2,    1   },
        {7,    3   },
        {64,   64  },
        {65,   64  },
        {100,  1   },
        {4096, 7   },
        {4096, 1000}
    };
    tt_pool *p = NULL;
    tt_error err = {0};
    visit *v = calloc(1, sizeof *v);
    assert_non_null(v);
    assert_int_equal(tt_pool_new(n_threads, &p, &err), TT_OK);
    assert_int_equal(tt_pool_threads(p), n_threads);
    for (int turn = 0; turn < 30; turn++)
        for (size_t k = 0; k < TT_COUNT(cuts); k++) {
            *v = (visit){.n = cuts[k][0], .grain = cuts[k][1], .n_threads = n_threads};
            tt_parallel_for(p, v->n, v->grain, visit_piece, v);
            assert_int_equal(v->bad, 0);
            for (int64_t i = 0; i < LARGEST; i++)
                assert_int_equal(v->hits[i], i < v->n);
        }
    tt_parallel_for(p, 0, 1, visit_piece, NULL); /* nothing: fn is not called */
    tt_parallel_for(p, -5, 1, visit_piece, NULL);
    tt_pool_free(p);
    free(v);
}

static void test_pool_visits_each_index_once(void **state)
{
    (void)state;
    check_cover(1);
    check_cover(2);
    check_cover(4);
    check_cover(13); /* more than there are cores */
}

static void test_pool_null_runs_inline(void **state)
{
    (void)state;
    static visit v;
    v = (visit){.n = 10, .grain = 4, .n_threads = 1};
    tt_parallel_for(NULL, v.n, v.grain, visit_piece, &v);
    for (int i = 0; i < 10; i++)
        assert_int_equal(v.hits[i], 1);
    assert_int_equal(tt_pool_threads(NULL), 1);
    tt_pool_free(NULL);
}

typedef struct {
    int64_t in[LARGEST], out[LARGEST];
} chain;

static void step_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    chain *c = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        c->out[i] = c->in[LARGEST - 1 - i] * 3 + 1;
}

/* Each job reads what other threads wrote in the previous job: fork and join order memory accesses.
 */
static void stress(int n_threads, int jobs, bool pauses)
{
    static chain a, b;
    tt_pool *p = NULL;
    assert_int_equal(tt_pool_new(n_threads, &p, NULL), TT_OK);
    int64_t want = 1;
    for (int i = 0; i < LARGEST; i++)
        a.in[i] = 1;
    for (int k = 0; k < jobs; k++) {
        tt_parallel_for(p, LARGEST, 64 + k % 100, step_piece, &a);
        memcpy(b.in, a.out, sizeof b.in); /* the caller alone between jobs */
        tt_parallel_for(p, LARGEST, 512, step_piece, &b);
        memcpy(a.in, b.out, sizeof a.in);
        want = ((want * 3 + 1) * 3 + 1) & 0xffffff;
        for (int i = 0; i < LARGEST; i++)
            a.in[i] &= 0xffffff;
        assert_int_equal(a.in[k % LARGEST], want);
        if (pauses && k % 8 == 0)
            usleep(200); /* most workers fall asleep; all is right also where none does */
    }
    tt_pool_free(p);
}

static void test_pool_stress(void **state)
{
    (void)state;
    stress(2, 3000, false);
    stress(4, 500, false);
}

static void test_pool_stress_with_sleeps(void **state)
{
    (void)state;
    stress(2, 1000, true);
    stress(4, 500, true);
}

static void add_one(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        ((int *)arg)[i]++;
}

static void *own_pool(void *arg)
{
    static _Thread_local int data[16];
    tt_pool *p = NULL;
    (void)arg;
    if (tt_pool_new(2, &p, NULL) != TT_OK)
        return (void *)1;
    for (int i = 0; i < 2000; i++)
        tt_parallel_for(p, 16, 1, add_one, data);
    tt_pool_free(p);
    for (int i = 0; i < 16; i++)
        if (data[i] != 2000)
            return (void *)1;
    return NULL;
}

static void test_pool_one_per_rank_thread(void **state)
{
    (void)state;
    pthread_t t[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&t[i], NULL, own_pool, NULL), 0);
    for (int i = 0; i < 3; i++) {
        void *bad;
        pthread_join(t[i], &bad);
        assert_null(bad);
    }
}

static void test_pool_made_and_freed_at_once(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        tt_pool *p = NULL;
        int data[8] = {0};
        assert_int_equal(tt_pool_new(1 + i % 5, &p, NULL), TT_OK);
        if (i % 2)
            tt_parallel_for(p, 8, 1, add_one, data);
        tt_pool_free(p);
    }
}

static void test_pool_traces_what_workers_did(void **state)
{
    (void)state;
    tt_pool *p;
    tt_error err;
    tt_pool_slice items[2];
    tt_pool_slices worker = {items, 0, 2, 0};
    tt_pool_tracer t = {.workers = &worker};
    _Atomic int n = 0;
    assert_int_equal(tt_pool_new(2, &p, &err), TT_OK);
    tt_parallel_for(p, 2, 1, meet, &n);
    assert_int_equal(worker.n, 0);
    tt_pool_trace(p, &t);
    for (int i = 0; i < 3; i++) {
        t.tag = 10 + i;
        tt_parallel_for(p, 2, 1, meet, &n);
    }
    tt_pool_trace(p, NULL);
    tt_parallel_for(p, 2, 1, meet, &n);
    assert_int_equal(worker.n, 2);
    assert_int_equal(worker.dropped, 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(items[i].tag, 10 + i);
        assert_int_equal(items[i].pieces, 1);
        assert_true(items[i].begin_ns > 0 && items[i].end_ns >= items[i].begin_ns);
    }
    assert_true(items[1].begin_ns >= items[0].end_ns);
    tt_pool_free(p);
}

static void test_pool_refuses_invalid_counts(void **state)
{
    (void)state;
    tt_error err = {0};
    tt_pool *p = (tt_pool *)1;
    assert_int_equal(tt_pool_new(0, &p, &err), TT_EINVAL);
    assert_int_equal(tt_pool_new(-1, &p, &err), TT_EINVAL);
    assert_ptr_equal(p, (tt_pool *)1);
    assert_true(tt_cpu_count() >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pool_visits_each_index_once),
        cmocka_unit_test(test_pool_null_runs_inline),
        cmocka_unit_test(test_pool_stress),
        cmocka_unit_test(test_pool_stress_with_sleeps),
        cmocka_unit_test(test_pool_one_per_rank_thread),
        cmocka_unit_test(test_pool_made_and_freed_at_once),
        cmocka_unit_test(test_pool_traces_what_workers_did),
        cmocka_unit_test(test_pool_refuses_invalid_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
