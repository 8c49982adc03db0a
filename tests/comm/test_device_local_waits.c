/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "comm/device_local_world.h"
/* after those: */
#include "comm/device_cases.h"

/* The communicator of rank-threads whose devices reach each other: each wait for an event that it puts
 * on a queue is left out once, and far finds that, whatever the seed. */

/* Only the end waits for the device, so that far has all work before it to compare with. */

static char *peer_b[MOST]; /* of each member */

static void orders_reduce_scatter(member *m)
{
    const int64_t counts[MOST] = {70, 3, 200, 64, 1};
    MUST(spoil(m, m->a, E));
    MUST(lvt->reduce_scatter(m->all, m->a, m->b, counts, TT_F32, TT_SUM, E));
    MUST(spoil(m, m->a, E));
    MUST(m->dist.vt->barrier(m->dist.all, E));
}
static void orders_all_reduce(member *m)
{
    MUST(spoil(m, m->a, E));
    MUST(lvt->all_reduce(m->all, m->a, 1000, TT_F32, TT_SUM, E));
    MUST(spoil(m, m->a, E));
    MUST(m->dist.vt->barrier(m->dist.all, E));
}
static void orders_all_gather(member *m)
{
    const int64_t counts[MOST] = {70, 3, 200, 64, 1};
    MUST(spoil(m, m->a, E));
    MUST(lvt->all_gather(m->all, m->a, m->b, counts, TT_F32, E));
    MUST(spoil(m, m->a, E));
    MUST(m->dist.vt->barrier(m->dist.all, E));
}
static void orders_all_to_all(member *m)
{
    const int64_t counts[MOST] = {9, 9, 9, 9, 9};
    MUST(spoil(m, m->a, E));
    MUST(lvt->all_to_all(m->all, m->a, counts, m->b, counts, TT_F32, E));
    MUST(spoil(m, m->a, E));
    MUST(m->dist.vt->barrier(m->dist.all, E));
}
/* Each member reads the others' memory by itself after the barrier. */
static void orders_barrier(member *m)
{
    peer_b[m->rank] = m->b;
    MUST(m->dist.vt->barrier(m->dist.all, E));
    MUST(spoil(m, m->b, E));
    MUST(lvt->barrier(m->all, E));
    for (int i = 0; i < m->n; i++)
        if (i != m->rank)
            MUST(move(m, m->a, peer_b[i], 64, E));
    MUST(m->dist.vt->barrier(m->dist.all, E));
    MUST(dev_sync(&m->d, 0, E));
    MUST(m->dist.vt->barrier(m->dist.all, E));
}
/* From rank 0 to rank 1 only, because messages back would order what the waits order. Sizes grow, then
 * places are in use again; the end frees them. The victim leaves first, when the other has not waited
 * for its work. */
static void orders_messages(member *m)
{
    for (int i = 0; i < 6; i++) {
        const int64_t bytes = i < 2 ? 64 : 256;
        if (m->rank == 0)
            MUST(lvt->send(m->all, 1, m->a, bytes, E));
        else
            MUST(lvt->recv(m->all, 0, m->b, bytes, E));
        MUST(m->dist.vt->barrier(m->dist.all, E)); /* the next send may wait for its queue */
    }
    while (m->rank != first_to_leave && !has_left)
        usleep(100);
}

static void check_waits(const char *name, int n, void (*fn)(member *))
{
    for (int victim = 0; victim < n; victim++)
        for (int seed = 1; seed <= 4; seed++) {
            const int most = world(n, seed, fn, victim, 0);
            if (n_failed)
                fail_msg("%s: %s", name, first_failure);
            for (int k = 1; k <= most; k++) {
                world(n, seed, fn, victim, k);
                if (!n_failed)
                    fail_msg("%s on %d ranks with seed %d: nothing finds that wait %d of %d of "
                             "rank %d is left out",
                             name, n, seed, k, most, victim);
                if (!strstr(first_failure, "race") && !strstr(first_failure, "a member failed"))
                    fail_msg("%s: not as a race: %s", name, first_failure);
            }
        }
}

static int message_seed, message_victim, message_wait;
static void one_mutant(void)
{
    may_die = true;
    world(2, message_seed, orders_messages, message_victim, message_wait);
    if (n_failed)
        abort();
}

/* far ends the process where something is freed too early. */
static void test_a_wait_of_messages_left_out_is_found(void **state)
{
    (void)state;
    for (message_seed = 1; message_seed <= 4; message_seed++)
        for (message_victim = 0; message_victim < 2; message_victim++) {
            const int most = world(2, message_seed, orders_messages, message_victim, 0);
            if (n_failed)
                fail_msg("%s", first_failure);
            assert_int_equal(most, 6);
            for (message_wait = 1; message_wait <= most; message_wait++)
                /* The fifth is for the message before the last, which the last one's implies. */
                if (!(message_victim == 0 && message_wait == 5) && dies_by(one_mutant) != SIGABRT)
                    fail_msg("seed %d: nothing finds that wait %d of %d of rank %d is left out",
                             message_seed, message_wait, most, message_victim);
        }
}

static void test_a_wait_left_out_is_found(void **state)
{
    (void)state;
    for (int n = 2; n <= 4; n++) {
        check_waits("reduce_scatter", n, orders_reduce_scatter);
        check_waits("all_reduce", n, orders_all_reduce);
        check_waits("all_gather", n, orders_all_gather);
        check_waits("all_to_all", n, orders_all_to_all);
        check_waits("barrier", n, orders_barrier);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_wait_left_out_is_found),
        cmocka_unit_test(test_a_wait_of_messages_left_out_is_found),
    };
    return cmocka_run_group_tests(tests, far_test_load, NULL);
}
