/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "comm/device_local_world.h"

/* The communicator of rank-threads whose devices reach each other: collectives of every dtype against
 * tt_reduce_members and plain loops, messages, and failures. */

/* ---- values ---- */

static const tt_dtype dtypes[] = {TT_F32, TT_BF16, TT_F64, TT_I32, TT_I64};

/* Finite, and such that the order of a sum changes its bits. */
static void put_value(void *at, tt_dtype t, int64_t i, int rank)
{
    const uint32_t h = (uint32_t)(rank * 7919 + i * 104729) * 2654435761u;
    const float f = (float)(int32_t)h * (rank % 2 ? 1e-3f : 1.7f);
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    if (t == TT_F32)
        ((float *)at)[i] = f;
    if (t == TT_F64)
        ((double *)at)[i] = (double)f / 3;
    if (t == TT_I32)
        ((int32_t *)at)[i] = (int32_t)(h >> 8);
    if (t == TT_I64)
        ((int64_t *)at)[i] = (int64_t)h * 3;
    if (t == TT_BF16)
        ((uint16_t *)at)[i] = (uint16_t)(u >> 16);
}

/* What a reduction of all members' values is. */
static void reduced(const member *m, void *out, int64_t n, tt_dtype t, tt_reduce op)
{
    const void *xs[MOST];
    char *x[MOST];
    tt_error err;
    for (int r = 0; r < m->n; r++) {
        xs[r] = x[r] = calloc((size_t)n + 1, 8);
        for (int64_t i = 0; i < n; i++)
            put_value(x[r], t, i, r);
    }
    (void)tt_reduce_members(out, xs, m->n, n, t, op, &err);
    for (int r = 0; r < m->n; r++)
        free(x[r]);
}

static tt_status take(const member *m, const void *from, tt_error *err) /* to p */
{
    TT_TRY(move(m, m->p, from, ROOM, err));
    return dev_sync(&m->d, 0, err);
}
static tt_status give(const member *m, void *to, tt_dtype t, int64_t n,
                      tt_error *err) /* by p + ROOM */
{
    for (int64_t i = 0; i < n; i++)
        put_value(m->p + ROOM, t, i, m->rank);
    TT_TRY(spoil(m, to, err));
    TT_TRY(move(m, to, m->p + ROOM, (size_t)n * tt_dtype_size(t), err));
    return dev_sync(&m->d, 0, err);
}

static int64_t counts_of(int n, int round, int64_t *counts)
{
    int64_t all = 0;
    for (int i = 0; i < n; i++)
        all += counts[i] = (round * 31 + i * 57) % 4 == 1 ? 0 : (round * 97 + i * 131) % 300;
    return all;
}

static void reductions(member *m)
{
    char *want = calloc(ROOM, 1);
    for (int round = 0; round < 10; round++) {
        const tt_dtype t = dtypes[round % 5];
        const tt_reduce op = round % 3 == 2 ? TT_MAX : TT_SUM;
        const size_t size = tt_dtype_size(t);
        int64_t counts[MOST], at = 0;
        const int64_t n = counts_of(m->n, round, counts);
        for (int i = 0; i < m->rank; i++)
            at += counts[i];
        reduced(m, want, n, t, op);
        MUST(give(m, m->a, t, n, E));
        MUST(lvt->reduce_scatter(m->all, m->a, m->b, counts, t, op, E));
        MUST(lvt->all_reduce(m->all, m->a, n, t, op, E));
        MUST(move(m, m->c, m->b, ROOM, E));
        MUST(take(m, m->c, E));
        EXPECT(!memcmp(m->p, want + (size_t)at * size, (size_t)counts[m->rank] * size));
        MUST(take(m, m->a, E));
        EXPECT(!memcmp(m->p, want, (size_t)n * size));
        MUST(lvt->barrier(m->all, E));
    }
    free(want);
}

static void gathers(member *m)
{
    for (int round = 0; round < 10; round++) {
        const tt_dtype t = dtypes[round % 5];
        const size_t size = tt_dtype_size(t);
        int64_t counts[MOST], get[MOST], send[MOST], mine = 0, n = counts_of(m->n, round, counts);
        char *want = calloc(ROOM, 1), *x = calloc(ROOM, 1), *to = want;
        for (int i = 0; i < m->n; i++) {
            for (int64_t k = 0; k < counts[i]; k++)
                put_value(x, t, k, i);
            memcpy(to, x, (size_t)counts[i] * size);
            to += (size_t)counts[i] * size;
            mine += i < m->rank ? counts[i] : 0;
        }
        MUST(give(m, m->a, t, counts[m->rank], E));
        MUST(spoil(m, m->b, E));
        if (round % 2) { /* in place */
            MUST(move(m, m->b + (size_t)mine * size, m->a, (size_t)counts[m->rank] * size, E));
            MUST(lvt->all_gather(m->all, m->b + (size_t)mine * size, m->b, counts, t, E));
        } else {
            MUST(lvt->all_gather(m->all, m->a, m->b, counts, t, E));
            MUST(spoil(m, m->a, E));
        }
        MUST(take(m, m->b, E));
        EXPECT(!memcmp(m->p, want, (size_t)n * size));
        /* member i sends (i + k) % 3 elements of its value to member k */
        to = want;
        n = 0;
        for (int k = 0; k < m->n; k++) {
            send[k] = (m->rank + k + round) % 3 * 5;
            get[k] = (k + m->rank + round) % 3 * 5;
            for (int64_t e = 0, first = 0; e < get[k]; e++) {
                for (int j = 0; e == 0 && j < m->rank; j++)
                    first += (k + j + round) % 3 * 5;
                put_value(x, t, first + e, k);
                memcpy(to, x + (size_t)(first + e) * size, size);
                to += size;
            }
            n += send[k];
        }
        MUST(give(m, m->a, t, n, E));
        MUST(lvt->all_to_all(m->all, m->a, send, m->b, get, t, E));
        MUST(spoil(m, m->a, E));
        MUST(take(m, m->b, E));
        EXPECT(!memcmp(m->p, want, (size_t)(to - want)));
        free(want);
        free(x);
    }
}

/* A ring: two messages fit in between; they grow. */
static void messages(member *m)
{
    const int to = (m->rank + 1) % m->n, from = (m->rank + m->n - 1) % m->n;
    char *x = calloc(ROOM, 1);
    if (m->n < 2) {
        free(x);
        return;
    }
    for (int round = 0; round < 6; round++) {
        const int64_t n = round < 2 ? 100 : 1000 + round * 7;
        MUST(give(m, m->a, TT_F32, 2 * n, E));
        MUST(lvt->send(m->all, to, m->a, 4 * n, E));
        MUST(lvt->send(m->all, to, m->a + 4 * n, 4 * n, E));
        MUST(spoil(m, m->a, E));
        MUST(lvt->recv(m->all, from, m->b, 4 * n, E));
        MUST(lvt->recv(m->all, from, m->b + 4 * n, 4 * n, E));
        MUST(take(m, m->b, E));
        for (int64_t i = 0; i < 2 * n; i++)
            put_value(x, TT_F32, i, from);
        EXPECT(!memcmp(m->p, x, (size_t)n * 8));
    }
    MUST(lvt->send(m->all, to, m->a, 0, E));
    MUST(lvt->recv(m->all, from, m->a, 0, E));
    free(x);
}

static void test_collectives_with_every_seed(void **state)
{
    (void)state;
    for (int seed = 1; seed <= 20; seed++)
        for (int n = 1; n <= MOST; n += seed % 4 == 0 ? 1 : 2) {
            right(n, seed, reductions);
            right(n, seed, gathers);
            right(n, seed, messages);
        }
}

/* ---- two groups on two queues, which the program's order interleaves ---- */

static void two_queues(member *m)
{
    static const int ranks[MOST] = {0, 1, 2, 3, 4};
    tt_comm *other = NULL;
    char *want = calloc(ROOM, 1);
    MUST(lvt->group(m->dist.data_self, ranks, m->n, 8, &other, E));
    MUST(lvt->on(other, m->d.q[1], E));
    reduced(m, want, 1000, TT_F32, TT_SUM);
    MUST(give(m, m->a, TT_F32, 1000, E));
    MUST(give(m, m->b, TT_F32, 1000, E));
    for (int i = 0; i < 3; i++) {
        MUST(lvt->all_reduce(m->all, m->a, 1000, TT_F32, i ? TT_MAX : TT_SUM, E));
        MUST(lvt->all_reduce(other, m->b, 1000, TT_F32, i ? TT_MAX : TT_SUM, E));
    }
    MUST(dvt->record(m->d.self, m->d.e[0], m->d.q[1], E));
    MUST(dvt->wait(m->d.self, m->d.q[0], m->d.e[0], E));
    MUST(take(m, m->a, E));
    EXPECT(!memcmp(m->p, want, 4000));
    MUST(take(m, m->b, E));
    EXPECT(!memcmp(m->p, want, 4000));
    lvt->group_free(other);
    free(want);
}

static void test_groups_have_queues_of_their_own(void **state)
{
    (void)state;
    for (int seed = 1; seed <= 20; seed++)
        right(2 + seed % 4, seed, two_queues);
}

/* ---- failures ---- */

static void other_call(member *m)
{
    if (m->rank == 1)
        MUST_FAIL(lvt->barrier(m->all, E), TT_ECOMM,
                  "rank 1 calls barrier of 0, rank 0 calls all_r");
    else
        MUST_FAIL(lvt->all_reduce(m->all, m->a, 8, TT_F32, TT_SUM, E), TT_ECOMM,
                  "rank 1 calls barrier of 0");
}
static void other_dtype(member *m)
{
    MUST_FAIL(lvt->all_reduce(m->all, m->a, 8, m->rank ? TT_F32 : TT_I32, TT_SUM, E), TT_ECOMM,
              "their dtypes or their reductions differ");
}
static void other_counts(member *m)
{
    const int64_t counts[3] = {m->rank == 2 ? 5 : 4, m->rank == 2 ? 3 : 4, 4};
    MUST_FAIL(lvt->all_gather(m->all, m->a, m->b, counts, TT_F32, E), TT_ECOMM, "their counts");
}
static void other_transpose(member *m)
{
    const int64_t one[3] = {1, 1, 1}, two[3] = {1, 2, 1};
    const bool wrong = m->rank == 1;
    tt_error e = {0};
    const tt_status s =
        lvt->all_to_all(m->all, m->a, one, m->b, m->rank == 1 ? two : one, TT_F32, &e);
    EXPECT(wrong ? s == TT_ECOMM && strstr(e.text, "member 1 sends 1 elements to member 1")
                 : s == TT_OK);
}
static void other_message(member *m)
{
    if (m->rank == 0)
        MUST(lvt->send(m->all, 1, m->a, 8, E));
    if (m->rank == 1)
        MUST_FAIL(lvt->recv(m->all, 0, m->a, 12, E), TT_ECOMM,
                  "expects 12 bytes where 8 were sent");
    if (m->rank == 1)
        MUST(lvt->recv(m->all, 0, m->a, 8, E));
    MUST_FAIL(lvt->send(m->all, m->rank, m->a, 8, E), TT_EINVAL, "no other member");
    MUST_FAIL(lvt->all_reduce(m->all, m->a, 8, TT_BOOL, TT_SUM, E), TT_EUNSUPPORTED, "bool");
}
static void no_queue(member *m)
{
    static const int ranks[3] = {0, 1, 2};
    tt_comm *g = NULL;
    MUST(lvt->group(m->dist.data_self, ranks, 3, 77, &g, E));
    MUST_FAIL(lvt->barrier(g, E), TT_EINVAL, "before the group was put on a queue");
    MUST_FAIL(lvt->send(g, (m->rank + 1) % 3, m->a, 8, E), TT_EINVAL, "before the group");
    lvt->group_free(g);
}
static void test_different_calls_are_errors_on_all(void **state)
{
    (void)state;
    void (*const fns[])(member *) = {other_call,      other_dtype,   other_counts,
                                     other_transpose, other_message, no_queue};
    for (size_t i = 0; i < TT_COUNT(fns); i++)
        right(3, 1 + (int)i, fns[i]);
}

static void absent(member *m)
{
    tt_dist_set_timeout(&m->dist, 0.3);
    MUST(m->dist.vt->barrier(m->dist.all, E));
    tt_error e = {0};
    if (m->rank == 1)
        return;
    const tt_status s = lvt->barrier(m->all, &e);
    EXPECT(s == TT_ETIMEOUT || s == TT_ECOMM);
    EXPECT(strstr(e.text, "ranks that did not arrive: 1"));
    EXPECT(lvt->poll(m->all, &e) == TT_ECOMM);
}
static void absent_sender(member *m)
{
    tt_dist_set_timeout(&m->dist, 0.3);
    MUST(m->dist.vt->barrier(m->dist.all, E));
    if (m->rank == 1)
        MUST_FAIL(lvt->recv(m->all, 0, m->a, 8, E), TT_ETIMEOUT,
                  "receive from rank 0, message number 1");
}
static void test_an_absent_rank_is_named(void **state)
{
    (void)state;
    right(3, 1, absent);
    right(3, 2, absent_sender);
}

static void aborted(member *m)
{
    tt_error e = {0};
    if (m->rank == 1) {
        usleep(20000);
        tt_dist_abort(&m->dist, "no more");
    } else if (m->rank == 0) {
        MUST_FAIL(lvt->barrier(m->all, E), TT_ECOMM, "stopped: no more");
    } else {
        MUST_FAIL(lvt->recv(m->all, 0, m->a, 8, E), TT_ECOMM, "stopped: no more");
    }
    EXPECT(m->rank != 1 || lvt->poll(m->all, &e) == TT_ECOMM);
}
static void test_an_abort_ends_the_wait(void **state)
{
    (void)state;
    right(3, 1, aborted);
}

static void nothing(member *m)
{
    (void)m;
}
static void test_ranks_that_do_not_reach_each_other_use_the_host(void **state)
{
    (void)state;
    reach = false;
    right(3, 1, nothing);
    reach = true;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_collectives_with_every_seed),
        cmocka_unit_test(test_groups_have_queues_of_their_own),
        cmocka_unit_test(test_different_calls_are_errors_on_all),
        cmocka_unit_test(test_an_absent_rank_is_named),
        cmocka_unit_test(test_an_abort_ends_the_wait),
        cmocka_unit_test(test_ranks_that_do_not_reach_each_other_use_the_host),
    };
    return cmocka_run_group_tests(tests, far_test_load, NULL);
}
