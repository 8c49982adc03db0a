/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_BATTERY_H
#define TT_TESTS_BATTERY_H
#include "comm/battery_failures.h"
#include "comm/world.h"
#include <time.h>
#include <unistd.h>

/* What every communicator must do, whether its ranks are threads, processes or MPI's: each
 * collective compared with the obvious loop (group sizes 1 to 5, uneven counts, zeros, every
 * dtype), messages, and failures (battery_failures.h). The file that includes this one defines world_run. */

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
