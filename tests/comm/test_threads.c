/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
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
        return NULL;
    }
    r->fn(r->w, &d);
    tt_dist_leave(&d);
    return NULL;
}

static int world_run(int n, double timeout_s, rank_fn fn)
{
    world w = {0};
    tt_error err;
    tt_threads *t;
    pthread_t threads[16];
    world_rank ranks[16];
    assert_int_equal(tt_threads_new(n, timeout_s, &t, &err), TT_OK);
    for (int i = 0; i < n; i++) {
        ranks[i] = (world_rank){&w, t, fn, i};
        assert_int_equal(pthread_create(&threads[i], NULL, world_main, &ranks[i]), 0);
    }
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    tt_threads_free(t);
    return world_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {BATTERY, ASYNC_CASES};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
