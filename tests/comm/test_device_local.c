/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "comm/device_local_world.h"
/* after those: */
#include "comm/device_cases.h"

/* The communicator of rank-threads whose devices reach each other: collectives of every dtype against
 * tt_reduce_members and plain loops, messages, and failures. */

static void test_collectives_with_every_seed(void **state)
{
    (void)state;
    for (int seed = 1; seed <= 20; seed++)
        for (int n = 1; n <= MOST; n += seed % 4 == 0 ? 1 : 2) {
            right(n, seed, reductions);
            right(n, seed, gathers);
            right(n, seed, large_reductions);
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
    calls_fail = true;
    for (size_t i = 0; i < TT_COUNT(fns); i++)
        right(3, 1 + (int)i, fns[i]);
    calls_fail = false;
}

#define LIMIT_S 0.3
#define LIMIT_NS INT64_C(300000000)

/* Of the two that wait for rank 1, only rank 0, the last, has a limit: it must wake rank 2. */
static void absent(member *m)
{
    tt_error e = {0};
    MUST(m->dist.vt->barrier(m->dist.all, E));
    if (m->rank == 1)
        return;
    if (m->rank == 0) {
        own_clock_until_idle();
        tt_dist_set_timeout(&m->dist, LIMIT_S);
    }
    const int64_t until = tt_clock_now() + LIMIT_NS;
    const tt_status s = lvt->barrier(m->all, &e);
    EXPECT(s == (m->rank ? TT_ECOMM : TT_ETIMEOUT));
    EXPECT(m->rank || tt_clock_now() == until);
    const char *names = strstr(e.text, "ranks that did not arrive:");
    EXPECT(names && !strcmp(names, "ranks that did not arrive: 1"));
    EXPECT(lvt->poll(m->all, &e) == TT_ECOMM);
}
static void absent_sender(member *m)
{
    MUST(m->dist.vt->barrier(m->dist.all, E));
    if (m->rank != 1)
        return;
    tt_dist_set_timeout(&m->dist, LIMIT_S);
    const int64_t until = tt_clock_now() + LIMIT_NS;
    MUST_FAIL(lvt->recv(m->all, 0, m->a, 8, E), TT_ETIMEOUT,
              "receive from rank 0, message number 1");
    EXPECT(tt_clock_now() == until);
}
static void test_an_absent_rank_is_named(void **state)
{
    (void)state;
    right(3, 1, absent);
    right(3, 2, absent_sender);
}

/* Nobody waits for a message that is not received: neither who leaves first, nor the other. */
static void not_received(member *m)
{
    if (m->rank == 0)
        MUST(lvt->send(m->all, 1, m->a, 8, E));
    MUST(m->dist.vt->barrier(m->dist.all, E));
    while (m->rank == 0 && first_to_leave == 1 && !has_left)
        usleep(100);
}
static void test_a_sender_leaves_with_its_receiver(void **state)
{
    (void)state;
    for (int seed = 1; seed <= 4; seed++)
        for (int first = 0; first < 2; first++) {
            world(2, seed, not_received, first, 0);
            if (n_failed)
                fail_msg("%s", first_failure);
        }
}

static void aborted(member *m)
{
    tt_error e = {0};
    if (m->rank == 1) {
        own_clock_until_idle();
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
        cmocka_unit_test(test_a_sender_leaves_with_its_receiver),
        cmocka_unit_test(test_an_abort_ends_the_wait),
        cmocka_unit_test(test_ranks_that_do_not_reach_each_other_use_the_host),
    };
    return cmocka_run_group_tests(tests, far_test_load, NULL);
}
