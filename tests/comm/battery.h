/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_BATTERY_H
#define TT_TESTS_BATTERY_H
#include "comm/world.h"
#include <signal.h>
#include <time.h>
#include <unistd.h>

/* What every communicator must do, whether its ranks are threads, processes or MPI's: each
 * collective compared with the obvious loop (group sizes 1 to 5, uneven counts, zeros, every
 * dtype), messages, and failures. The file that includes this one defines world_run. */

enum { ROUNDS = 40, MOST = 5 };

static const tt_dtype all_dtypes[] = {TT_F32, TT_F64, TT_I32, TT_I64, TT_BF16};

/* Element k of what `rank` contributes in a round: a small integer, so that sums are exact in every
 * dtype. */
static int value_of(int round, int rank, int64_t k)
{
    return (int)((round * 7 + rank * 13 + k * 5) % 11) - 5;
}

static void put(void *at, tt_dtype t, int64_t i, int v)
{
    if (t == TT_F32)
        ((float *)at)[i] = (float)v;
    if (t == TT_F64)
        ((double *)at)[i] = v;
    if (t == TT_I32)
        ((int32_t *)at)[i] = v;
    if (t == TT_I64)
        ((int64_t *)at)[i] = v;
    if (t == TT_BF16) {
        const float f = (float)v;
        uint32_t u;
        memcpy(&u, &f, sizeof u);
        ((uint16_t *)at)[i] = (uint16_t)(u >> 16);
    }
}

static double get(const void *at, tt_dtype t, int64_t i)
{
    if (t == TT_F32)
        return (double)((const float *)at)[i];
    if (t == TT_F64)
        return ((const double *)at)[i];
    if (t == TT_I32)
        return ((const int32_t *)at)[i];
    if (t == TT_I64)
        return (double)((const int64_t *)at)[i];
    const uint32_t u = (uint32_t)((const uint16_t *)at)[i] << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return (double)f;
}

static double reduced(int round, int n, int64_t k, tt_reduce op)
{
    double r = value_of(round, 0, k);
    for (int i = 1; i < n; i++) {
        const double v = value_of(round, i, k);
        r = op == TT_SUM ? r + v : v > r ? v : r;
    }
    return r;
}

/* Counts of a round: uneven, some zero, some rounds all zero. */
static void make_counts(int round, int n, int64_t *counts)
{
    for (int i = 0; i < n; i++)
        counts[i] = round % 9 == 8 ? 0
                    : (round * 31 + i * 17) % 4 == 0
                        ? 0
                        : (round * 5 + i * 3) % 23 + (round == 5 ? 9000 : 0);
}

static void all_gathers(world *w, tt_dist *d)
{
    for (int round = 0; round < ROUNDS; round++) {
        int64_t counts[MOST], total = 0, at = 0;
        tt_error err;
        const tt_dtype t = all_dtypes[round % 5];
        make_counts(round, d->world, counts);
        for (int i = 0; i < d->world; i++)
            total += counts[i];
        char *send = calloc((size_t)total + 1, 8), *recv = calloc((size_t)total + 1, 8);
        for (int64_t k = 0; k < counts[d->rank]; k++)
            put(send, t, k, value_of(round, d->rank, k));
        if (d->vt->all_gather(d->all, send, recv, counts, t, &err) != TT_OK)
            world_fail(w, "%s", err.text);
        for (int i = 0; i < d->world; at += counts[i++])
            for (int64_t k = 0; k < counts[i]; k++)
                if (get(recv, t, at + k) != value_of(round, i, k))
                    world_fail(w, "all_gather round %d, member %d, element %d", round, i, (int)k);
        free(send);
        free(recv);
    }
}

static void reduce_scatters(world *w, tt_dist *d)
{
    for (int round = 0; round < ROUNDS; round++) {
        int64_t counts[MOST], total = 0, mine = 0;
        tt_error err;
        const tt_dtype t = all_dtypes[round % 5];
        const tt_reduce op = round % 2 ? TT_MAX : TT_SUM;
        make_counts(round, d->world, counts);
        for (int i = 0; i < d->world; i++) {
            if (i < d->rank)
                mine += counts[i];
            total += counts[i];
        }
        char *send = calloc((size_t)total + 1, 8), *recv = calloc((size_t)total + 1, 8);
        for (int64_t k = 0; k < total; k++)
            put(send, t, k, value_of(round, d->rank, k));
        if (d->vt->reduce_scatter(d->all, send, recv, counts, t, op, &err) != TT_OK)
            world_fail(w, "%s", err.text);
        for (int64_t k = 0; k < counts[d->rank]; k++)
            if (get(recv, t, k) != reduced(round, d->world, mine + k, op))
                world_fail(w, "reduce_scatter round %d, element %d", round, (int)k);
        for (int64_t k = 0; k < total; k++) /* the send buffer is unchanged */
            if (get(send, t, k) != value_of(round, d->rank, k))
                world_fail(w, "reduce_scatter wrote its input");
        free(send);
        free(recv);
    }
}

static void all_reduces(world *w, tt_dist *d)
{
    for (int round = 0; round < ROUNDS; round++) {
        const int64_t n = round % 9 == 8 ? 0 : round == 5 ? 30011 : round % 7 + 1;
        const tt_dtype t = all_dtypes[round % 5];
        const tt_reduce op = round % 2 ? TT_MAX : TT_SUM;
        tt_error err;
        char *buf = calloc((size_t)n + 1, 8);
        for (int64_t k = 0; k < n; k++)
            put(buf, t, k, value_of(round, d->rank, k));
        if (d->vt->all_reduce(d->all, buf, n, t, op, &err) != TT_OK)
            world_fail(w, "%s", err.text);
        for (int64_t k = 0; k < n; k++)
            if (get(buf, t, k) != reduced(round, d->world, k, op))
                world_fail(w, "all_reduce round %d, element %d", round, (int)k);
        free(buf);
    }
}

/* What rank `from` sends rank `to` in a round. */
static int64_t pair_count(int round, int from, int to)
{
    return round % 9 == 8 ? 0 : (round + from * 3 + to * 5) % 6;
}

static void all_to_alls(world *w, tt_dist *d)
{
    for (int round = 0; round < ROUNDS; round++) {
        int64_t sends[MOST], recvs[MOST], at = 0;
        int32_t send[64], recv[64];
        tt_error err;
        for (int i = 0; i < d->world; i++) {
            sends[i] = pair_count(round, d->rank, i);
            recvs[i] = pair_count(round, i, d->rank);
            for (int64_t k = 0; k < sends[i]; k++)
                send[at++] = round * 1000 + d->rank * 100 + i * 10 + (int)k;
        }
        if (d->vt->all_to_all(d->all, send, sends, recv, recvs, TT_I32, &err) != TT_OK)
            world_fail(w, "%s", err.text);
        at = 0;
        for (int i = 0; i < d->world; i++)
            for (int64_t k = 0; k < recvs[i]; k++)
                if (recv[at++] != round * 1000 + i * 100 + d->rank * 10 + (int)k)
                    world_fail(w, "all_to_all round %d", round);
    }
}

static void each_size(rank_fn fn)
{
    for (int n = 1; n <= MOST; n++)
        world_run(n, fn);
}
static void test_all_gather_puts_members_in_order(void **state)
{
    (void)state;
    each_size(all_gathers);
}
static void test_reduce_scatter_gives_each_member_its_piece(void **state)
{
    (void)state;
    each_size(reduce_scatters);
}
static void test_all_reduce_gives_all_members_the_same(void **state)
{
    (void)state;
    each_size(all_reduces);
}
static void test_all_to_all_transposes(void **state)
{
    (void)state;
    each_size(all_to_alls);
}

/* Floats in an order in which addition is not associative: the result must be the sum in ascending
 * member order. */
static void ordered(world *w, tt_dist *d)
{
    static const float v[MOST] = {1e8f, 3.3f, -1e8f, 0.7f, 1e-3f};
    static const int64_t counts[MOST] = {1, 0, 1, 1, 1};
    float sum = v[0], buf[4], piece = 0;
    tt_error err;
    for (int i = 1; i < d->world; i++)
        sum += v[i];
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < 4; i++)
            buf[i] = v[d->rank];
        if (d->vt->reduce_scatter(d->all, buf, &piece, counts, TT_F32, TT_SUM, &err) != TT_OK)
            world_fail(w, "%s", err.text);
        if (counts[d->rank] && memcmp(&piece, &sum, sizeof sum))
            world_fail(w, "reduce_scatter added in another order");
        if (d->vt->all_reduce(d->all, buf, 4, TT_F32, TT_SUM, &err) != TT_OK)
            world_fail(w, "%s", err.text);
        for (int i = 0; i < 4; i++)
            if (memcmp(&buf[i], &sum, sizeof sum))
                world_fail(w, "all_reduce added in another order");
    }
}
static void test_sums_are_in_member_order(void **state)
{
    (void)state;
    world_run(5, ordered);
}

/* bf16 1 + 2^-8 + 2^-8 = 1.0078125 when added in f32 and rounded once; rounded after each it would
 * stay 1. */
static void bf16_once(world *w, tt_dist *d)
{
    static const uint16_t v[] = {0x3f80, 0x3b80, 0x3b80};
    uint16_t x = v[d->rank];
    tt_error err;
    if (d->vt->all_reduce(d->all, &x, 1, TT_BF16, TT_SUM, &err) != TT_OK)
        world_fail(w, "%s", err.text);
    if (x != 0x3f81)
        world_fail(w, "bf16 sum is %04x", x);
}
static void test_bf16_is_rounded_once(void **state)
{
    (void)state;
    world_run(3, bf16_once);
}

static void f16_refused(world *w, tt_dist *d)
{
    bool flags[2] = {0};
    tt_error err = {0};
    if (d->vt->all_reduce(d->all, flags, 2, TT_BOOL, TT_SUM, &err) != TT_EUNSUPPORTED ||
        !strstr(err.text, "bool"))
        world_fail(w, "a dtype that cannot be added: %s", err.text);
    if (d->vt->barrier(d->all, &err) != TT_OK)
        world_fail(w, "the group is lost after it: %s", err.text);
}
static void test_dtype_that_cannot_be_reduced_is_an_error_on_all_ranks(void **state)
{
    (void)state;
    world_run(3, f16_refused);
}

/* Overlapping groups, which their members use different numbers of times; every rank has its own
 * order of its groups. */
static void many_groups(world *w, tt_dist *d)
{
    static const int rows[2][2] =
        {
            {0, 1},
            {2, 3}
    },
                     cols[2][2] = {{0, 2}, {1, 3}};
    tt_comm *row = world_group(w, d, rows[d->rank / 2], 2),
            *col = world_group(w, d, cols[d->rank % 2], 2);
    tt_comm *again = world_group(w, d, rows[d->rank / 2], 2);
    tt_error err;
    for (int i = 0; i < 300 && row && col && again; i++) {
        int32_t x = d->rank, y = d->rank, z = 1;
        d->vt->all_reduce(row, &x, 1, TT_I32, TT_SUM, &err);
        for (int k = 0; k < (d->rank < 2 ? 3 : 1); k++) { /* rows meet in different numbers */
            int32_t q = 1;
            d->vt->all_reduce(again, &q, 1, TT_I32, TT_SUM, &err);
            if (q != 2)
                world_fail(w, "second end of a group");
        }
        d->vt->all_reduce(col, &y, 1, TT_I32, TT_SUM, &err);
        d->vt->all_reduce(d->all, &z, 1, TT_I32, TT_SUM, &err);
        if (x != (d->rank < 2 ? 1 : 5) || y != (d->rank % 2 ? 4 : 2) || z != 4)
            world_fail(w, "groups mix: %d %d %d", x, y, z);
    }
    d->vt->group_free(row);
    d->vt->group_free(col);
    d->vt->group_free(again);
}
static void test_groups_do_not_disturb_each_other(void **state)
{
    (void)state;
    world_run(4, many_groups);
}

/* ---- point to point ---- */

static void ring(world *w, tt_dist *d)
{
    const int next = (d->rank + 1) % d->world, before = (d->rank + d->world - 1) % d->world;
    static _Thread_local int32_t out[5000], in[5000];
    tt_error err;
    for (int round = 0; round < 200; round++) {
        const int64_t n = round % 10 == 9 ? 0 : (round * 37) % 5000;
        for (int64_t i = 0; i < n; i++)
            out[i] = round * 10000 + d->rank;
        if (d->vt->send(d->all, next, out, n * 4, &err) != TT_OK)
            world_fail(w, "%s", err.text);
        memset(out, 0xff, sizeof out); /* sent is copied */
        if (d->vt->recv(d->all, before, in, n * 4, &err) != TT_OK)
            world_fail(w, "%s", err.text);
        for (int64_t i = 0; i < n; i++)
            if (in[i] != round * 10000 + before)
                world_fail(w, "round %d: got %d", round, in[i]);
    }
}
static void test_messages_keep_their_order(void **state)
{
    (void)state;
    for (int n = 2; n <= 4; n++)
        world_run(n, ring);
}

/* Two sends do not wait for the receiver, the third does. */
static void two_in_flight(world *w, tt_dist *d)
{
    _Atomic int *sent = &w->count;
    tt_error err;
    int32_t x;
    if (d->rank == 0) {
        for (x = 0; x < 5; x++) {
            if (d->vt->send(d->all, 1, &x, 4, &err) != TT_OK)
                world_fail(w, "%s", err.text);
            world_add(sent);
        }
        return;
    }
    world_until(sent, 2);
    world_until_idle();
    if (atomic_load(sent) != 2)
        world_fail(w, "%d messages in flight", atomic_load(sent));
    for (int i = 0; i < 5; i++)
        if (d->vt->recv(d->all, 0, &x, 4, &err) != TT_OK || x != i)
            world_fail(w, "message %d is %d", i, x);
}
static void test_send_waits_with_two_in_flight(void **state)
{
    (void)state;
    world_run(2, two_in_flight);
}

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
    if (d->rank == 2 && s == TT_OK) {
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

#define BATTERY                                                                                    \
    cmocka_unit_test(test_all_gather_puts_members_in_order),                                       \
        cmocka_unit_test(test_reduce_scatter_gives_each_member_its_piece),                         \
        cmocka_unit_test(test_all_reduce_gives_all_members_the_same),                              \
        cmocka_unit_test(test_all_to_all_transposes),                                              \
        cmocka_unit_test(test_sums_are_in_member_order),                                           \
        cmocka_unit_test(test_bf16_is_rounded_once),                                               \
        cmocka_unit_test(test_dtype_that_cannot_be_reduced_is_an_error_on_all_ranks),              \
        cmocka_unit_test(test_groups_do_not_disturb_each_other),                                   \
        cmocka_unit_test(test_messages_keep_their_order),                                          \
        cmocka_unit_test(test_send_waits_with_two_in_flight),                                      \
        cmocka_unit_test(test_message_of_another_size_is_an_error),                                \
        cmocka_unit_test(test_differing_calls_are_named),                                          \
        cmocka_unit_test(test_timeout_names_op_number_and_missing_ranks),                          \
        cmocka_unit_test(test_receive_times_out), cmocka_unit_test(test_send_times_out),           \
        cmocka_unit_test(test_abort_wakes_everyone),                                               \
        cmocka_unit_test(test_abort_leaves_no_one_reading),                                        \
        cmocka_unit_test(test_agree_names_the_first_failing_rank)

#endif
