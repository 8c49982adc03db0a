/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "comm/dist.h"
#include "comm/member_must.h"
#include "plugins/far_test.h"
#include <stdatomic.h>

/* The communicator "far": rank-threads, each with a device of its own. */

enum { RANKS = 4, MOST = 4096 };

typedef struct member {
    int rank, seed;
    void (*fn)(struct member *);
    tt_threads *threads; /* the host's communicator */
    tt_dist host;
    dev d;
    void *self; /* of the communicator */
    tt_comm *all;
    float *x, *p; /* device, pinned: MOST floats */
} member;

static _Atomic int n_failed, stop;
static char first_failure[400];

static void member_fail(const member *m, int line, tt_status s, const char *text)
{
    if (!atomic_fetch_add(&n_failed, 1))
        snprintf(first_failure, sizeof first_failure, "line %d, rank %d, seed %d: %s: %s", line,
                 m->rank, m->seed, tt_status_name(s), text);
}
static tt_status host_all_gather(void *user, const void *send, void *recv, size_t bytes,
                                 tt_error *err)
{
    const member *m = user;
    int64_t counts[RANKS];
    for (int i = 0; i < RANKS; i++)
        counts[i] = (int64_t)bytes;
    return m->host.vt->all_gather(m->host.all, send, recv, counts, TT_U8, err);
}

static tt_status stopped(void *user, tt_error *err)
{
    (void)user;
    return stop ? TT_FAIL(err, TT_ECOMM, "enough of it") : TT_OK;
}

static void *member_main(void *arg)
{
    static const int ranks[RANKS] = {0, 1, 2, 3};
    member *m = arg;
    MUST_GO_ON(tt_threads_join(m->threads, m->rank, &m->host, E));
    m->d = dev_open_rank(m->seed, true, m->rank, RANKS);
    const tt_comm_env env = {.struct_size = sizeof env,
                             .rank = m->rank,
                             .world = RANKS,
                             .timeout_s = 0,
                             .stopped = stopped,
                             .user = m,
                             .device = dvt,
                             .backend = m->d.self,
                             .host_all_gather = host_all_gather};
    MUST_GO_ON(cvt->open(NULL, &env, &m->self, E));
    MUST_GO_ON(cvt->group(m->self, ranks, RANKS, 7, &m->all, E));
    MUST_GO_ON(cvt->on(m->all, m->d.q[0], E));
    m->x = dev_alloc(&m->d, MOST);
    m->p = dev_pinned(&m->d, MOST);
    m->fn(m);
    for (int i = 0; i < 3; i++)
        dvt->queue_free(m->d.self, m->d.q[i]);
    dvt->free(m->d.self, m->x);
    dvt->free_pinned(m->d.self, m->p);
    for (int i = 0; i < 4; i++)
        dvt->event_free(m->d.self, m->d.e[i]);
    cvt->group_free(m->all);
    cvt->close(m->self, 1);
    far_vt->close(m->d.self);
    tt_dist_leave(&m->host);
    return NULL;
}

static void world(int seed, void (*fn)(member *))
{
    pthread_t threads[RANKS];
    member members[RANKS];
    tt_threads *t = NULL;
    stop = n_failed = 0;
    OK(tt_threads_new(RANKS, 0, &t, E));
    for (int i = 0; i < RANKS; i++) {
        members[i] = (member){.rank = i, .seed = seed, .fn = fn, .threads = t};
        assert_int_equal(pthread_create(&threads[i], NULL, member_main, &members[i]), 0);
    }
    for (int i = 0; i < RANKS; i++)
        pthread_join(threads[i], NULL);
    tt_threads_free(t);
    if (n_failed)
        fail_msg("%d failures, the first: %s", n_failed, first_failure);
}

/* ---- right programs ---- */

static void up(member *m, int64_t at, int64_t n)
{
    MUST_GO_ON(dev_copy(&m->d, 0, m->x + at, m->p + at, n, E));
}
static void down(member *m, int64_t at, int64_t n)
{
    MUST_GO_ON(dev_copy(&m->d, 0, m->p + at, m->x + at, n, E));
    MUST_GO_ON(dev_sync(&m->d, 0, E));
}

static float value(int rank, int64_t k)
{
    return (float)((rank * 13 + k * 5) % 11) / 7.0f;
}
static float summed(int64_t k)
{
    float s = value(0, k);
    for (int i = 1; i < RANKS; i++)
        s += value(i, k);
    return s;
}

static void collectives(member *m)
{
    const int64_t counts[RANKS] = {100, 0, 37, 300}, begin[RANKS] = {0, 100, 100, 137};
    for (int64_t k = 0; k < 437; k++)
        m->p[k] = value(m->rank, k);
    up(m, 0, 437);
    MUST_GO_ON(cvt->reduce_scatter(m->all, m->x, m->x + 512, counts, TT_F32, TT_SUM, E));
    MUST_GO_ON(cvt->all_reduce(m->all, m->x, 437, TT_F32, TT_SUM, E));
    /* the piece of each goes to its place, from where all gather */
    if (counts[m->rank])
        MUST_GO_ON(
            dev_copy(&m->d, 0, m->x + 1024 + begin[m->rank], m->x + 512, counts[m->rank], E));
    MUST_GO_ON(
        cvt->all_gather(m->all, m->x + 1024 + begin[m->rank], m->x + 1024, counts, TT_F32, E));
    MUST_GO_ON(cvt->barrier(m->all, E));
    down(m, 0, 437);
    down(m, 1024, 437);
    for (int64_t k = 0; k < 437; k++)
        EXPECT(m->p[k] == summed(k) && m->p[1024 + k] == summed(k));
}

static void transposes(member *m)
{
    int64_t give[RANKS], get[RANKS], n = 0;
    for (int i = 0; i < RANKS; i++) {
        give[i] = 3 * m->rank + i;
        get[i] = 3 * i + m->rank;
        for (int64_t k = 0; k < give[i]; k++)
            m->p[n++] = (float)(100 * m->rank + 10 * i);
    }
    up(m, 0, n);
    MUST_GO_ON(cvt->all_to_all(m->all, m->x, give, m->x + 512, get, TT_F32, E));
    n = 0;
    for (int i = 0; i < RANKS; i++)
        n += get[i];
    down(m, 512, n);
    n = 512;
    for (int i = 0; i < RANKS; i++)
        for (int64_t k = 0; k < get[i]; k++)
            EXPECT(m->p[n++] == (float)(100 * i + 10 * m->rank));
}

/* A ring: everyone sends three messages before it receives any; two of them fit in between, so the
 * third waits on its own queue until the receiver's turn. */
static void messages(member *m)
{
    const int to = (m->rank + 1) % RANKS, from = (m->rank + RANKS - 1) % RANKS;
    tt_comm *back = NULL; /* the same group again, on another queue */
    static const int ranks[RANKS] = {0, 1, 2, 3};
    MUST_GO_ON(cvt->group(m->self, ranks, RANKS, 8, &back, E));
    MUST_FAIL(cvt->send(back, to, m->x, 4, E), TT_EINVAL, "before the group was put on a queue");
    MUST_FAIL(cvt->send(m->all, m->rank, m->x, 4, E), TT_EINVAL, "no other member");
    for (int i = 0; i < 3; i++)
        m->p[i] = (float)(10 * m->rank + i);
    up(m, 0, 3);
    for (int i = 0; i < 3; i++)
        MUST_GO_ON(cvt->send(m->all, to, m->x + i, 4, E));
    MUST_GO_ON(cvt->on(m->all, m->d.q[1], E));
    for (int i = 0; i < 3; i++)
        MUST_GO_ON(cvt->recv(m->all, from, m->x + 512 + i, 4, E));
    MUST_GO_ON(dvt->record(m->d.self, m->d.e[0], m->d.q[1], E));
    MUST_GO_ON(dvt->wait(m->d.self, m->d.q[0], m->d.e[0], E));
    down(m, 512, 3);
    for (int i = 0; i < 3; i++)
        EXPECT(m->p[512 + i] == (float)(10 * from + i));
    cvt->group_free(back);
}

static void test_collectives_with_every_seed(void **state)
{
    (void)state;
    for (int seed = 1; seed <= 20; seed++) {
        world(seed, collectives);
        world(seed, transposes);
        world(seed, messages);
    }
}

/* Two pairs and the group of all, each on its own queue, in opposite orders on the two sides. */
static void crossed(member *m)
{
    const int pair[2] = {m->rank & ~1, m->rank | 1};
    tt_comm *two = NULL;
    MUST_GO_ON(cvt->group(m->self, pair, 2, 100 + (uint64_t)pair[0], &two, E));
    MUST_GO_ON(cvt->on(two, m->d.q[1], E));
    m->p[0] = m->p[1] = (float)(1 << m->rank);
    up(m, 0, 2);
    MUST_GO_ON(dev_sync(&m->d, 0, E));
    if (m->rank % 2)
        MUST_GO_ON(cvt->all_reduce(two, m->x, 1, TT_F32, TT_MAX, E));
    MUST_GO_ON(cvt->all_reduce(m->all, m->x + 1, 1, TT_F32, TT_SUM, E));
    if (m->rank % 2 == 0)
        MUST_GO_ON(cvt->all_reduce(two, m->x, 1, TT_F32, TT_MAX, E));
    MUST_GO_ON(dev_sync(&m->d, 1, E));
    down(m, 0, 2);
    EXPECT(m->p[0] == (float)(2 << pair[0]) && m->p[1] == 15.0f);
    cvt->group_free(two);
}

static void test_groups_on_two_queues_do_not_wait_for_each_other(void **state)
{
    (void)state;
    for (int seed = 1; seed <= 20; seed++)
        world(seed, crossed);
}

static void a_graph(member *m)
{
    tt_device_graph *g = NULL;
    m->p[0] = 1;
    up(m, 0, 1);
    MUST_GO_ON(dvt->capture_begin(m->d.self, m->d.q[0], E));
    MUST_GO_ON(cvt->all_reduce(m->all, m->x, 1, TT_F32, TT_SUM, E));
    MUST_GO_ON(dvt->capture_end(m->d.self, m->d.q[0], &g, E));
    for (int i = 0; i < 5; i++)
        MUST_GO_ON(dvt->launch(m->d.self, g, m->d.q[0], E));
    down(m, 0, 1);
    EXPECT(m->p[0] == 1024.0f);
    dvt->graph_free(m->d.self, g);
}

static void test_collectives_in_a_graph(void **state)
{
    (void)state;
    for (int seed = 1; seed <= 8; seed++)
        world(seed, a_graph);
}

/* ---- wrong programs ---- */

static void other_counts(member *m)
{
    up(m, 0, 8);
    MUST_GO_ON(cvt->all_reduce(m->all, m->x, m->rank == 2 ? 7 : 8, TT_F32, TT_SUM, E));
    MUST_FAIL(dev_sync(&m->d, 0, E), TT_ECOMM, "rank 2 calls all_reduce of 7 f32");
    MUST_FAIL(cvt->poll(m->all, E), TT_ECOMM, "rank 2 calls all_reduce of 7 f32");
}
static void other_op(member *m)
{
    if (m->rank == 3)
        MUST_GO_ON(cvt->barrier(m->all, E));
    else
        MUST_GO_ON(cvt->all_reduce(m->all, m->x, 8, TT_F32, TT_SUM, E));
    MUST_FAIL(dev_sync(&m->d, 0, E), TT_ECOMM, "rank 3 calls barrier");
}
static void other_type(member *m)
{
    MUST_GO_ON(cvt->all_reduce(m->all, m->x, 8, m->rank ? TT_F32 : TT_I32, TT_SUM, E));
    MUST_FAIL(dev_sync(&m->d, 0, E), TT_ECOMM, "rank 0 calls all_reduce of 8 i32");
}
static void other_message(member *m)
{
    if (m->rank == 0)
        MUST_GO_ON(cvt->send(m->all, 1, m->x, 8, E));
    if (m->rank == 1) {
        MUST_GO_ON(cvt->recv(m->all, 0, m->x, 12, E));
        MUST_FAIL(dev_sync(&m->d, 0, E), TT_ECOMM, "8 bytes, the receiver expects 12");
    }
}
/* All but rank 1 have called. Most of them wait by then; the sleep decides nothing. */
static void call_but_rank_1(member *m)
{
    if (m->rank != 1)
        MUST_GO_ON(cvt->barrier(m->all, E));
    MUST_GO_ON(m->host.vt->barrier(m->host.all, E));
    if (m->rank == 1)
        usleep(20000);
}
/* Of the three that wait for rank 1, only rank 0 has a limit: it must wake the others. */
static void absent(member *m)
{
    call_but_rank_1(m);
    if (m->rank == 1)
        return;
    if (m->rank == 0)
        cvt->set_timeout(m->self, 0.2);
    const int64_t began = tt_now_ns();
    MUST_FAIL(dev_sync(&m->d, 0, E), TT_ETIMEOUT, "ranks that did not call it: 1");
    EXPECT(m->rank || tt_now_ns() - began >= INT64_C(200000000));
    MUST_FAIL(cvt->barrier(m->all, E), TT_ETIMEOUT, "barrier number 1");
}
static void aborted(member *m)
{
    call_but_rank_1(m);
    if (m->rank == 1) {
        cvt->abort(m->self, "rank 1: no more");
    } else {
        MUST_FAIL(dev_sync(&m->d, 0, E), TT_ECOMM, "stopped: rank 1: no more");
    }
}
static void told_to_stop(member *m)
{
    call_but_rank_1(m);
    if (m->rank == 1)
        stop = 1;
    else
        MUST_FAIL(dev_sync(&m->d, 0, E), TT_ECOMM, "");
}
/* Rank 2 fails before its call: the others hear why. */
static void failed_before(member *m)
{
    if (m->rank != 2)
        MUST_GO_ON(cvt->barrier(m->all, E));
    MUST_GO_ON(m->host.vt->barrier(m->host.all, E));
    if (m->rank == 2) {
        const tt_tensor x = dev_tensor(m->x, TT_F32, 8), in[4] = {x, x, x, x};
        tt_tensor out = dev_tensor(m->x + 64, TT_F32, 8);
        MUST_GO_ON(dev_call(&m->d, 0, "add", in, 4, &out, NULL, E));
        MUST_GO_ON(cvt->barrier(m->all, E));
        MUST_FAIL(dev_sync(&m->d, 0, E), TT_EUNSUPPORTED, "rank 2: add");
    } else {
        MUST_FAIL(dev_sync(&m->d, 0, E), TT_ECOMM, "rank 2 failed before it: far: rank 2: add");
    }
}
static void crossed_on_one_queue(member *m)
{
    static const int ranks[RANKS] = {0, 1, 2, 3};
    tt_comm *other = NULL;
    MUST_GO_ON(cvt->group(m->self, ranks, RANKS, 9, &other, E));
    MUST_GO_ON(cvt->on(other, m->d.q[0], E));
    MUST_GO_ON(cvt->barrier(m->rank ? m->all : other, E));
    MUST_GO_ON(cvt->barrier(m->rank ? other : m->all, E));
    MUST_FAIL(dev_sync(&m->d, 0, E), TT_ECOMM, "");
    cvt->group_free(other);
}
static void bad_addresses(member *m)
{
    float host[8] = {0};
    const int64_t counts[RANKS] = {8, 8, 8, 8};
    MUST_FAIL(cvt->all_reduce(m->all, host, 8, TT_F32, TT_SUM, E), TT_EINVAL, "not memory");
    MUST_FAIL(cvt->all_reduce(m->all, m->p, 8, TT_F32, TT_SUM, E), TT_EINVAL, "is pinned");
    MUST_FAIL(cvt->all_reduce(m->all, m->x, 8, TT_BOOL, TT_SUM, E), TT_EUNSUPPORTED, "bool");
    MUST_FAIL(cvt->all_reduce(m->all, m->x, MOST + 1, TT_F32, TT_SUM, E), TT_EINVAL, "leave");
    MUST_FAIL(cvt->reduce_scatter(m->all, m->x, m->x + 8, counts, TT_F32, TT_SUM, E), TT_EINVAL,
              "overlap");
    MUST_GO_ON(cvt->all_reduce(m->all, m->x, 0, TT_F32, TT_SUM, E));
    MUST_GO_ON(dev_sync(&m->d, 0, E));
}

static void test_mismatched_calls_are_errors_on_all(void **state)
{
    (void)state;
    for (int seed = 1; seed <= 4; seed++) {
        world(seed, other_counts);
        world(seed, other_op);
        world(seed, other_type);
        world(seed, other_message);
    }
}
static void test_absent_rank_is_named_after_the_timeout(void **state)
{
    (void)state;
    for (int seed = 1; seed <= 4; seed++)
        world(seed, absent);
}
static void test_abort_and_stop_end_the_wait(void **state)
{
    (void)state;
    world(1, aborted);
    world(3, aborted);
    world(1, told_to_stop);
}
static void test_failure_of_one_rank_reaches_the_others(void **state)
{
    (void)state;
    for (int seed = 1; seed <= 4; seed++)
        world(seed, failed_before);
}
static void test_opposite_orders_on_one_queue_are_a_deadlock(void **state)
{
    (void)state;
    world(1, crossed_on_one_queue);
}
static void test_addresses_of_collectives_are_checked(void **state)
{
    (void)state;
    world(1, bad_addresses);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_collectives_with_every_seed),
        cmocka_unit_test(test_groups_on_two_queues_do_not_wait_for_each_other),
        cmocka_unit_test(test_collectives_in_a_graph),
        cmocka_unit_test(test_mismatched_calls_are_errors_on_all),
        cmocka_unit_test(test_absent_rank_is_named_after_the_timeout),
        cmocka_unit_test(test_abort_and_stop_end_the_wait),
        cmocka_unit_test(test_failure_of_one_rank_reaches_the_others),
        cmocka_unit_test(test_opposite_orders_on_one_queue_are_a_deadlock),
        cmocka_unit_test(test_addresses_of_collectives_are_checked),
    };
    return cmocka_run_group_tests(tests, far_test_load, NULL);
}
