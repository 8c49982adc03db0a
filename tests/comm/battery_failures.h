/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_BATTERY_FAILURES_H
#define TT_TESTS_BATTERY_FAILURES_H
#include "comm/world.h"
#include <signal.h>
#include <time.h>
#include <unistd.h>

/* The part of the battery (battery.h) in which something goes wrong: calls that differ, limits that pass, aborts, and what ranks agree on. */

static void wrong_size(world *w, tt_dist *d)
{
    int32_t x[2] = {0};
    tt_error err = {0};
    if (d->rank == 0)
        d->vt->send(d->all, 1, x, 8, &err);
    else if (d->vt->recv(d->all, 0, x, 4, &err) != TT_ECOMM ||
             !strstr(err.text, "rank 0 sent 8 bytes where 4"))
        world_fail(w, "%s", err.text);
}
static void test_message_of_another_size_is_an_error(void **state)
{
    (void)state;
    world_run(2, wrong_size);
}

/* ---- failure ---- */

static void differing_calls(world *w, tt_dist *d)
{
    float x[2] = {0};
    tt_error err = {0};
    const tt_status s = d->rank == 1 ? d->vt->all_reduce(d->all, x, 2, TT_F32, TT_SUM, &err)
                                     : d->vt->barrier(d->all, &err);
    if (s != TT_ECOMM || !strstr(err.text, "all_reduce") || !strstr(err.text, "barrier"))
        world_fail(w, "%s", err.text);
    memset(&err, 0, sizeof err);
    if (d->vt->all_reduce(d->all, x, d->rank ? 2 : 1, TT_F32, TT_SUM, &err) != TT_ECOMM ||
        !strstr(err.text, "number 2"))
        world_fail(w, "another size: %s", err.text);
}
static void test_differing_calls_are_named(void **state)
{
    (void)state;
    world_run(3, differing_calls);
}

#define LIMIT_S 0.3

/* A wait that began at `began` has lasted for the limit. On the world's own clock not a moment longer: no time passes
 * while a rank runs. */
static void expect_the_limit(world *w, int64_t began)
{
    const int64_t waited = tt_clock_now() - began, limit = (int64_t)(LIMIT_S * 1e9);
    if (own_clock.open ? waited != limit : waited < limit)
        world_fail(w, "waited %lld ns, not %lld", (long long)waited, (long long)limit);
}

/* Rank 2 stays away until the others have failed. Of these only rank 0 has a limit: it must wake rank 1. Rank 0 comes
 * last; among processes nobody knows that, and its call may not have seen rank 1's yet. */
static void late(world *w, tt_dist *d)
{
    float x = 1;
    tt_error err = {0};
    for (int i = 0; i < 3; i++)
        if (d->vt->all_reduce(d->all, &x, 1, TT_F32, TT_SUM, &err) != TT_OK)
            world_fail(w, "%s", err.text);
    if (d->rank == 2)
        world_until(&w->count, 2);
    const bool others_wait = d->rank == 0 && world_until_idle();
    if (d->rank == 0)
        tt_dist_set_timeout(d, LIMIT_S);
    const int64_t began = tt_clock_now();
    const char *number = "all_reduce number 4";
    tt_status s = d->vt->all_reduce(d->all, &x, 1, TT_F32, TT_SUM, &err);
    if (d->session && d->rank == 2 && s == TT_OK) {
        /* Among processes what the others sent may be here before the news that they failed. */
        number = "all_reduce number 5";
        s = d->vt->all_reduce(d->all, &x, 1, TT_F32, TT_SUM, &err);
    }
    if (s != (d->rank == 0 ? TT_ETIMEOUT : TT_ECOMM) || !strstr(err.text, number))
        world_fail(w, "rank %d: %d %s", d->rank, s, err.text);
    if (d->rank == 0) {
        const char *names = strstr(err.text, "that did not arrive:");
        if (!names || (strcmp(names, "that did not arrive: 2") &&
                       (others_wait || strcmp(names, "that did not arrive: 1 2"))))
            world_fail(w, "%s", err.text);
        expect_the_limit(w, began);
    }
    world_add(&w->count);
}
static void test_timeout_names_op_number_and_missing_ranks(void **state)
{
    (void)state;
    assert_in_range(world_run(3, late), 1, 3);
}

static void lonely_recv(world *w, tt_dist *d)
{
    int32_t x;
    tt_error err = {0};
    if (d->rank)
        return;
    tt_dist_set_timeout(d, LIMIT_S);
    const int64_t began = tt_clock_now();
    if (d->vt->recv(d->all, 1, &x, 4, &err) != TT_ETIMEOUT ||
        !strstr(err.text, "receive from rank 1, message number 1"))
        world_fail(w, "%s", err.text);
    expect_the_limit(w, began);
}
static void test_receive_times_out(void **state)
{
    (void)state;
    world_run(2, lonely_recv);
}

/* Two messages fit, the third waits for a receiver. */
static void lonely_send(world *w, tt_dist *d)
{
    int32_t x = 0;
    tt_error err = {0};
    if (d->rank)
        world_until(&w->count, 1);
    if (d->rank)
        return;
    for (int i = 0; i < 2; i++)
        if (d->vt->send(d->all, 1, &x, 4, &err) != TT_OK)
            world_fail(w, "%s", err.text);
    tt_dist_set_timeout(d, LIMIT_S);
    const int64_t began = tt_clock_now();
    if (d->vt->send(d->all, 1, &x, 4, &err) != TT_ETIMEOUT ||
        !strstr(err.text, "send to rank 1, message number 3"))
        world_fail(w, "%s", err.text);
    expect_the_limit(w, began);
    world_add(&w->count);
}
static void test_send_times_out(void **state)
{
    (void)state;
    world_run(2, lonely_send);
}

/* One rank aborts; the others hang in a barrier, a group's collective, a full send and an empty
 * receive. */
static void aborting(world *w, tt_dist *d)
{
    static const int pair[2] = {0, 1};
    tt_error err = {0};
    int32_t x = 0;
    tt_comm *g = d->rank <= 1 ? world_group(w, d, pair, 2) : NULL;
    tt_status s = d->vt->barrier(d->all, &err); /* the group is made before the end */
    if (s != TT_OK)
        world_fail(w, "%s", err.text);
    if (d->rank == 4) {
        world_until_idle();
        tt_dist_abort(d, "rank 4: out of coffee");
        s = d->vt->barrier(d->all, &err);
    } else if (d->rank <= 1) {
        s = d->rank ? d->vt->recv(g, 0, &x, 4, &err)
                    : d->vt->all_gather(g, &x, &x, (int64_t[]){0, 0}, TT_I32, &err);
        d->vt->group_free(g);
    } else if (d->rank == 2) {
        while (s == TT_OK)
            s = d->vt->send(d->all, 3, &x, 4, &err);
    } else {
        s = d->vt->barrier(d->all, &err);
    }
    if (s != TT_ECOMM || !strstr(err.text, "out of coffee"))
        world_fail(w, "rank %d: %d %s", d->rank, s, err.text);
    if (d->vt->barrier(d->all, &err) != TT_ECOMM)
        world_fail(w, "a later call does not fail");
    if (d->vt->send(d->all, (d->rank + 1) % 5, &x, 4, &err) != TT_ECOMM)
        world_fail(w, "a later send does not fail");
    if (tt_agree(d, TT_OK, &err) != TT_ECOMM)
        world_fail(w, "agreement after an abort");
}
static void test_abort_wakes_everyone(void **state)
{
    (void)state;
    world_run(5, aborting);
}

/* An abort in the middle of many collectives: buffers are freed the moment a call fails, so a
 * member that still read them would be found by ASan and TSan. */
static void abort_race(world *w, tt_dist *d)
{
    tt_error err = {0};
    tt_status s = TT_OK;
    for (int i = 0; s == TT_OK; i++) {
        int32_t *x = calloc(4096, sizeof *x);
        s = d->vt->all_reduce(d->all, x, 4096, TT_I32, TT_SUM, &err);
        memset(x, 0x5a, 4096 * sizeof *x);
        free(x);
        if (d->rank == 0 && i == 20)
            tt_dist_abort(d, "enough");
    }
    if (s != TT_ECOMM)
        world_fail(w, "%s", err.text);
}
static void test_abort_leaves_no_one_reading(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++)
        world_run(2 + i % 3, abort_race);
}

static int interrupted(void)
{
    return SIGINT;
}
static void agreeing(world *w, tt_dist *d)
{
    tt_error err = {0};
    if (tt_agree(d, TT_OK, &err) != TT_OK)
        world_fail(w, "all well: %s", err.text);
    tt_status mine = TT_OK;
    if (d->rank == 1) {
        d->stop = interrupted;
        mine = TT_FAIL(&err, TT_ESIGNAL, "stopped here");
    }
    if (tt_agree(d, mine, &err) != TT_ESIGNAL ||
        strcmp(err.text, d->rank == 1 ? "stopped here" : "stopped by SIGINT before step 1"))
        world_fail(w, "%s", err.text);
    mine = TT_OK;
    if (d->rank == 1 || d->rank == 3)
        mine = TT_FAIL(&err, TT_EIO, "disk %d", d->rank);
    const tt_status s = tt_agree(d, mine, &err);
    if (mine == TT_EIO && (s != TT_EIO || !strstr(err.text, "disk")))
        world_fail(w, "own text is lost: %s", err.text);
    if (mine == TT_OK && (s != TT_ECOMM || strcmp(err.text, "rank 1 failed")))
        world_fail(w, "%s", err.text);
}
static void test_agree_names_the_first_failing_rank(void **state)
{
    (void)state;
    world_run(4, agreeing);
}

#endif
