/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_ASYNC_CASES_H
#define TT_TESTS_ASYNC_CASES_H
#include "comm/async.h"
#include "comm/world.h"
#include <unistd.h>

/* Collectives and messages that begin early and are waited for late, over threads and over
 * processes. */

enum { ASYNC_N = 3000 };

static tt_async *async_new(world *w, tt_dist *d, const int *ranks, int n)
{
    tt_async *a = NULL;
    tt_error err = {0};
    if (tt_async_new(d, ranks, n, 16, &a, &err) != TT_OK)
        world_fail(w, "%s", err.text);
    return a;
}

typedef struct sum_call { /* an all_reduce of i32 */
    int32_t *buf;
    int64_t n;
} sum_call;

static tt_status sum_run(void *arg, const tt_comm_vt *vt, tt_comm *c, tt_error *err)
{
    const sum_call *s = arg;
    return vt->all_reduce(c, s->buf, s->n, TT_I32, TT_SUM, err);
}

static tt_status sum_begin(tt_async *a, sum_call *s, tt_ticket *out, tt_error *err)
{
    return tt_async_begin(a, sum_run, s, out, err);
}

typedef struct gather_call {
    const int32_t *send;
    int32_t *recv;
    const int64_t *counts;
} gather_call;

static tt_status gather_run(void *arg, const tt_comm_vt *vt, tt_comm *c, tt_error *err)
{
    const gather_call *g = arg;
    return vt->all_gather(c, g->send, g->recv, g->counts, TT_I32, err);
}

static tt_status send_to_1(void *arg, const tt_comm_vt *vt, tt_comm *c, tt_error *err)
{
    return vt->send(c, 1, arg, 4, err);
}

static tt_status recv_from_0(void *arg, const tt_comm_vt *vt, tt_comm *c, tt_error *err)
{
    return vt->recv(c, 0, arg, 4, err);
}

/* Eight reductions in flight, waited for in reverse order; the same ranks make blocking calls in
 * between. */
static void many_under_way(world *w, tt_dist *d)
{
    static const int all[] = {0, 1, 2, 3};
    int64_t counts[4];
    tt_async *a = async_new(w, d, all, d->world);
    tt_error err = {0};
    int32_t *bufs[8], *gathered = calloc(4 * ASYNC_N, 4);
    sum_call sums[8];
    tt_ticket tickets[8], gather;
    for (int i = 0; i < d->world; i++)
        counts[i] = ASYNC_N;
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 8; i++) {
            bufs[i] = calloc(ASYNC_N, 4);
            for (int k = 0; k < ASYNC_N; k++)
                bufs[i][k] = k + i * d->rank + round;
            sums[i] = (sum_call){bufs[i], ASYNC_N};
            if (sum_begin(a, &sums[i], &tickets[i], &err))
                world_fail(w, "%s", err.text);
        }
        int32_t x = 1;
        if (d->vt->all_reduce(d->all, &x, 1, TT_I32, TT_SUM, &err) || x != d->world)
            world_fail(w, "a blocking call with the queue: %s", err.text);
        gather_call g = {bufs[0], gathered, counts};
        if (tt_async_begin(a, gather_run, &g, &gather, &err) || tt_async_wait(a, gather, &err))
            world_fail(w, "%s", err.text);
        for (int i = 8; i-- > 0;) {
            if (tt_async_wait(a, tickets[i], &err) || !tt_async_done(a, tickets[i]))
                world_fail(w, "%s", err.text);
            for (int k = 0; k < ASYNC_N; k++)
                if (bufs[i][k] != d->world * (k + round) + i * d->world * (d->world - 1) / 2)
                    world_fail(w, "round %d, call %d, element %d", round, i, k);
        }
        for (int k = 0; k < d->world * ASYNC_N; k++)
            if (gathered[k] != bufs[0][k % ASYNC_N])
                world_fail(w, "all_gather, element %d", k);
        for (int i = 0; i < 8; i++)
            free(bufs[i]);
    }
    free(gathered);
    tt_async_free(a);
}
static void test_calls_in_flight_can_be_waited_for_in_any_order(void **state)
{
    (void)state;
    for (int n = 2; n <= 4; n++)
        world_run(n, many_under_way);
}

/* The members of a pair begin a message and a reduction in opposite orders, on two queues: neither
 * blocks the other, and begin does not block. */
static void crossed(world *w, tt_dist *d)
{
    static const int pair[] = {0, 1}, four[] = {0, 1, 2, 3};
    tt_async *all = async_new(w, d, four, 4), *two = NULL;
    tt_error err = {0};
    int32_t x = d->rank, y = 7;
    sum_call sum = {&x, 1};
    tt_ticket a = 0, b = 0;
    if (d->rank < 2)
        two = async_new(w, d, pair, 2);
    if (d->rank == 0) { /* the reduction first; its last member comes after the message */
        if (sum_begin(all, &sum, &a, &err) || tt_async_begin(two, send_to_1, &y, &b, &err) ||
            tt_async_wait(two, b, &err))
            world_fail(w, "%s", err.text);
    } else if (d->rank == 1) {
        y = 0;
        if (tt_async_begin(two, recv_from_0, &y, &b, &err) || tt_async_wait(two, b, &err) || y != 7)
            world_fail(w, "%s", err.text);
    }
    if (d->rank && sum_begin(all, &sum, &a, &err))
        world_fail(w, "%s", err.text);
    if (tt_async_wait(all, a, &err) || x != 6)
        world_fail(w, "%s", err.text);
    tt_async_free(two);
    tt_async_free(all);
}
static void test_queues_do_not_wait_for_each_other(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++)
        world_run(4, crossed);
}

static void stopped_early(world *w, tt_dist *d)
{
    static const int all[] = {0, 1, 2};
    tt_async *a = async_new(w, d, all, 3);
    tt_error err = {0};
    int32_t x = 1, y = 1;
    sum_call sx = {&x, 1}, sy = {&y, 1};
    tt_ticket t = 0, u = 0;
    if (d->rank == 2) { /* never comes */
        world_until_idle();
        tt_dist_abort(d, "rank 2: enough");
    } else {
        sum_begin(a, &sx, &t, &err);
        sum_begin(a, &sy, &u, &err);
        if (tt_async_wait(a, t, &err) != TT_ECOMM || !strstr(err.text, "enough"))
            world_fail(w, "rank %d: %s", d->rank, err.text);
        if (tt_async_wait(a, u, &err) != TT_ECOMM || !strstr(err.text, "enough"))
            world_fail(w, "the call after it: %s", err.text);
    }
    tt_async_free(a);
}
static void test_abort_ends_calls_in_flight(void **state)
{
    (void)state;
    world_run(3, stopped_early);
}

static void overfull(world *w, tt_dist *d)
{
    static const int all[] = {0, 1};
    tt_async *a = async_new(w, d, all, 2);
    tt_error err = {0};
    int32_t x[20] = {0};
    sum_call sums[20];
    tt_ticket t = 0;
    int refused = 0;
    for (int i = 0; i < 20; i++)
        sums[i] = (sum_call){&x[i], 1};
    for (int i = 0; d->rank == 0 && i < 20; i++)
        refused += sum_begin(a, &sums[i], &t, &err) == TT_EINTERNAL;
    if (d->rank == 0 && (refused != 4 || !strstr(err.text, "16")))
        world_fail(w, "%d refused: %s", refused, err.text);
    d->vt->barrier(d->all, &err); /* only now does the other come */
    for (int i = 0; d->rank == 1 && i < 16; i++)
        if (sum_begin(a, &sums[i], &t, &err))
            world_fail(w, "%s", err.text);
    tt_async_wait(a, t, &err);
    tt_async_free(a);
}
static void test_more_calls_than_the_queue_holds_are_refused(void **state)
{
    (void)state;
    world_run(2, overfull);
}

#define ASYNC_CASES                                                                                \
    cmocka_unit_test(test_calls_in_flight_can_be_waited_for_in_any_order),                         \
        cmocka_unit_test(test_queues_do_not_wait_for_each_other),                                  \
        cmocka_unit_test(test_abort_ends_calls_in_flight),                                         \
        cmocka_unit_test(test_more_calls_than_the_queue_holds_are_refused)

#endif
