/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "folder_test.h"
#include "nccl_world.h"
/* after those: */
#include "comm/device_cases.h"

/* The communicator nccl on a fake NCCL: the bits of every other transport, messages, and failures, none of which
 * hangs. */

/* ---- right programs ---- */

static void two_queues(member *m)
{
    static const int ranks[MOST] = {0, 1, 2, 3};
    tt_comm *other = NULL;
    char *want = calloc(ROOM, 1);
    MUST(lvt->group(m->self, ranks, m->n, 8, &other, E));
    MUST(lvt->on(other, m->d.q[1], E));
    reduced(m, want, 1000, TT_F32, TT_SUM);
    MUST(give(m, m->a, TT_F32, 1000, E));
    MUST(give(m, m->b, TT_F32, 1000, E));
    for (int i = 0; i < 3; i++) {
        MUST(lvt->all_reduce(m->all, m->a, 1000, TT_F32, i ? TT_MAX : TT_SUM, E));
        MUST(lvt->all_reduce(other, m->b, 1000, TT_F32, i ? TT_MAX : TT_SUM, E));
    }
    MUST(dev_sync(&m->d, 1, E));
    MUST(take(m, m->a, E));
    EXPECT(!memcmp(m->p, want, 4000));
    MUST(take(m, m->b, E));
    EXPECT(!memcmp(m->p, want, 4000));
    lvt->group_free(other);
    free(want);
}

/* Both neighbours send two messages before they receive any; three more than fit in between. */
static void crossing(member *m)
{
    const int peer = m->rank ^ 1;
    for (int round = 0; round < 3; round++) {
        MUST(give(m, m->a, TT_F32, 2000, E));
        MUST(lvt->send(m->all, peer, m->a, 4000, E));
        MUST(lvt->send(m->all, peer, m->a + 4000, 4000, E));
        MUST(spoil(m, m->a, E));
        MUST(lvt->recv(m->all, peer, m->b, 4000, E));
        MUST(lvt->recv(m->all, peer, m->b + 4000, 4000, E));
        MUST(take(m, m->b, E));
        for (int64_t i = 0; i < 2000; i++)
            put_value(m->p + ROOM, TT_F32, i, peer);
        EXPECT(!memcmp(m->p, m->p + ROOM, 8000));
    }
}

/* When there is no memory for a larger message, the send fails, its rank has given back what it had for the smaller one, once, and
 * can send on. */
static void larger(member *m)
{
    tt_error e = {0};
    for (int i = 0; i < 2; i++) { /* both places are used */
        MUST(m->rank ? lvt->recv(m->all, 0, m->b, 400, E) : lvt->send(m->all, 1, m->a, 400, E));
        MUST(dev_sync(&m->d, 0, E));
    }
    MUST(m->dist.vt->barrier(m->dist.all, E));
    if (m->rank == 0) {
        fake_load();
        OK(fake.fake_inject("cuMemAlloc_v2", 1, 2));
        EXPECT(lvt->send(m->all, 1, m->a, 4000, &e) == TT_ENOMEM);
    }
    MUST(m->dist.vt->barrier(m->dist.all, E));
    MUST(give(m, m->a, TT_F32, 50, E));
    MUST(m->rank ? lvt->recv(m->all, 0, m->b, 200, E) : lvt->send(m->all, 1, m->a, 200, E));
    MUST(take(m, m->b, E));
    for (int64_t i = 0; i < 50; i++)
        put_value(m->p + ROOM, TT_F32, i, 0);
    EXPECT(m->rank == 0 || !memcmp(m->p, m->p + ROOM, 200));
}

/* Rank 0 sends more than fits in between and never waits for the device: each message has other bytes. */
static void stream(member *m)
{
    enum { BYTES = 4096, N = 10 };
    for (int i = 0; i < N * BYTES; i++)
        m->p[ROOM + i] = (char)(i / BYTES * 7 + i % 101);
    for (int i = 0; i < N; i++) {
        if (m->rank == 0) {
            MUST(move(m, m->a, m->p + ROOM + i * BYTES, BYTES, E));
            MUST(lvt->send(m->all, 1, m->a, BYTES, E));
        } else {
            MUST(lvt->recv(m->all, 0, m->b + i * BYTES, BYTES, E));
        }
    }
    if (m->rank == 1)
        MUST(take(m, m->b, E));
    EXPECT(m->rank == 0 || !memcmp(m->p, m->p + ROOM, N * BYTES));
}

static void fast(member *m)
{
    const int64_t equal[MOST] = {50, 50, 50, 50}, other[MOST] = {50, 51, 49, 50};
    char *want = calloc(ROOM, 1);
    for (int round = 0; round < 2; round++) {
        const int64_t *counts = round ? other : equal;
        int64_t at = 0, n = 0;
        for (int i = 0; i < m->n; i++) {
            at += i < m->rank ? counts[i] : 0;
            n += counts[i];
        }
        reduced(m, want, n, TT_I64, TT_SUM);
        MUST(give(m, m->a, TT_I64, n, E));
        MUST(lvt->reduce_scatter(m->all, m->a, m->b, counts, TT_I64, TT_SUM, E));
        MUST(lvt->all_reduce(m->all, m->a, n, TT_I64, TT_SUM, E));
        MUST(take(m, m->a, E));
        EXPECT(!memcmp(m->p, want, (size_t)n * 8));
        MUST(take(m, m->b, E));
        EXPECT(!memcmp(m->p, want + at * 8, (size_t)counts[m->rank] * 8));
    }
    /* These sums are the fake's own: in another order. */
    reduced(m, want, 4000, TT_F32, TT_SUM);
    MUST(give(m, m->a, TT_F32, 4000, E));
    MUST(lvt->all_reduce(m->all, m->a, 4000, TT_F32, TT_SUM, E));
    MUST(take(m, m->a, E));
    EXPECT(memcmp(m->p, want, 16000) != 0);
    free(want);
}

static void barriers(member *m)
{
    for (int i = 0; i < 40; i++) /* more than are watched at a time */
        MUST(lvt->barrier(m->all, E));
    MUST(lvt->poll(m->all, E));
}

/* What the plan counts is what a group takes. */
static void scratch(member *m)
{
    static const int64_t counts[MOST] = {3000, 3000, 3000, 3000};
    const struct {
        int all;
        int64_t count;
        tt_dtype t;
    } calls[] = {
        {1, 100,   TT_F32 },
        {0, 3000,  TT_BF16},
        {1, 15000, TT_F32 },
        {0, 3000,  TT_F32 }
    };
    int64_t most = 0;
    uint64_t before = 0, after = 0, all = 0;
    for (int i = 0; i < 4; i++) {
        const int64_t want =
            lvt->scratch_bytes(&nccl_options, m->n, calls[i].all, calls[i].count, calls[i].t);
        MUST(dev_sync(&m->d, 0, E));
        MUST(m->dist.vt->barrier(m->dist.all, E));
        MUST(dvt->memory(m->d.self, &before, &all, E));
        if (calls[i].all)
            MUST(lvt->all_reduce(m->all, m->a, calls[i].count, calls[i].t, TT_SUM, E));
        else
            MUST(lvt->reduce_scatter(m->all, m->a, m->b, counts, calls[i].t, TT_SUM, E));
        MUST(dvt->memory(m->d.self, &after, &all, E));
        const int64_t grown = (int64_t)before - (int64_t)after,
                      expect = want > most ? want - most : 0;
        if (grown < expect - 512 || grown > expect + 512)
            fprintf(stderr, "call %d: %lld bytes, %lld expected\n", i, (long long)grown,
                    (long long)expect);
        EXPECT(grown >= expect - 512 && grown <= expect + 512);
        most = want > most ? want : most;
    }
}
static void case_scratch(int n)
{
    world(n, scratch);
}

/* Spaces are registered once with each communicator, whichever was there first, and deregistered by
 * forget_memory or, at the latest, before the communicator ends: the fake refuses all else. */
static void registers(member *m)
{
    static const int ranks[MOST] = {0, 1, 2, 3};
    tt_comm *later = NULL;
    lvt->use_memory(m->self, m->a, ROOM); /* the first group is there */
    MUST(lvt->group(m->self, ranks, m->n, 8, &later, E));
    MUST(lvt->on(later, m->d.q[0], E));
    lvt->use_memory(m->self, m->b, ROOM);
    messages(m); /* their communicators are made by the first message */
    reductions(m);
    lvt->group_free(later); /* which ends with the world */
    MUST(dev_sync(&m->d, 0, E));
    lvt->forget_memory(m->self, m->a);
    lvt->forget_memory(m->self, m->a); /* unknown: nothing happens */
    lvt->use_memory(m->self, m->a, ROOM);
    reductions(m);
}
static void case_registers(int n)
{
    world(n, registers);
}

static void case_right(int i)
{
    static void (*const fns[])(member *) = {reductions, large_reductions, gathers,
                                            messages,   two_queues,       barriers};
    world(i % 4 + 1, fns[i / 4]);
}
static void case_crossing(int n)
{
    world(n, crossing);
}
static void case_larger(int n)
{
    world(n, larger);
}
static void case_stream(int n)
{
    world(n, stream);
}
static void case_fast(int n)
{
    nccl_options.reduction = 1;
    world(n, fast);
}

static void test_results_are_those_of_every_transport(void **state)
{
    (void)state;
    for (int i = 0; i < 24; i++)
        rig_expect_right(case_right, i);
}
static void test_scratch_is_what_the_plan_counts(void **state)
{
    (void)state;
    for (int n = 2; n <= 4; n++)
        rig_expect_right(case_scratch, n);
}
static void test_messages_cross(void **state)
{
    (void)state;
    rig_expect_right(case_crossing, 2);
    rig_expect_right(case_crossing, 4);
    rig_expect_right(case_stream, 2);
}
static void test_a_message_without_memory_is_an_error(void **state)
{
    (void)state;
    if (rig_run_seed(case_larger, 2, 0) || strstr(rig_text, "cuMemFree of"))
        fail_msg("%s", rig_text);
}

/* The lines of the trace with these words. */
static int lines_with(const char *words)
{
    int n = 0;
    for (const char *at = rig_text; (at = strstr(at, words)) != NULL; at++)
        n++;
    return n;
}

static void test_memory_is_registered_once_with_each_communicator(void **state)
{
    (void)state;
    char text[40];
    const char *const traced[] = {"FAKE_NCCL_TRACE=1", text, NULL};
    const char *const fails[] = {"FAKE_NCCL_TRACE=1", "FAKE_CUDA_FAIL=ncclCommRegister:*=3", NULL};
    /* of two ranks, each with two groups and one receiver of messages: a, b, and a again where its
     * communicator is one of a group that is still used */
    for (int seed = 0; seed < 3; seed++) {
        snprintf(text, sizeof text, "FAKE_CUDA_SEED=%d", seed);
        if (rig_run(case_registers, 2, traced))
            fail_msg("%s", rig_text);
        if (lines_with(" registers ") != 2 * (3 + 3 + 2) ||
            lines_with(" deregisters ") != lines_with(" registers "))
            fail_msg("%s", rig_text);
    }
    if (rig_run(case_registers, 2, fails) || lines_with(" registers ") != 0)
        fail_msg("%s", rig_text);
}

static void test_fast_sums_are_those_of_NCCL(void **state)
{
    (void)state;
    rig_expect_right(case_fast, 3);
}

/* ---- failures ---- */

static void other_counts(member *m)
{
    tt_error e = {0};
    MUST(lvt->barrier(m->all, E));
    (void)lvt->all_reduce(m->all, m->a, m->rank == 1 ? 7 : 8, TT_F32, TT_SUM, &e);
    (void)dev_sync(&m->d, 0, &e);
    MUST_FAIL(lvt->poll(m->all, E), TT_ECOMM, "NCCL, ");
}
static void other_call(member *m)
{
    tt_error e = {0};
    MUST(lvt->barrier(m->all, E));
    if (m->rank)
        (void)lvt->all_reduce(m->all, m->a, 8, TT_F32, TT_SUM, &e);
    else
        (void)lvt->barrier(m->all, &e);
    (void)dev_sync(&m->d, 0, &e);
    MUST_FAIL(lvt->poll(m->all, E), TT_ECOMM, "of ranks 0, 1, 2");
}
static _Atomic int n_done; /* ranks that have seen what they wait for */
/* The host waits for its queue; the watching thread ends that. */
static void absent(member *m)
{
    tt_error e = {0};
    MUST(lvt->barrier(m->all, E));
    MUST(dev_sync(&m->d, 0, E));
    if (m->rank != 1)
        MUST(lvt->all_reduce(m->all, m->a, 8, TT_F32, TT_SUM, E));
    MUST(m->dist.vt->barrier(m->dist.all, E));
    if (m->rank == 1) {
        while (!stop && !n_failed)
            usleep(1000);
        return;
    }
    lvt->set_timeout(m->self, 0.1); /* of a call under way, when it has been made */
    (void)dev_sync(&m->d, 0, &e);
    MUST_FAIL(lvt->poll(m->all, E), TT_ETIMEOUT, "all_reduce number 2 of ranks 0, 1, 2: rank ");
    MUST_FAIL(lvt->barrier(m->all, E), TT_ETIMEOUT, "all_reduce number 2");
    if (++n_done == 2) /* rank 1 stays until both have heard of it */
        stop = 1;
}
static void absent_receiver(member *m)
{
    if (m->rank == 1) {
        while (!stop && !n_failed)
            usleep(1000);
        return;
    }
    MUST(lvt->send(m->all, 1, m->a, 8, E));
    MUST(lvt->send(m->all, 1, m->a, 8, E));
    lvt->set_timeout(m->self, 0.1);
    MUST_FAIL(lvt->send(m->all, 1, m->a, 8, E), TT_ETIMEOUT, "from rank 0 to rank 1 waited");
    stop = 1;
}
static void told_to_stop(member *m)
{
    tt_error e = {0};
    MUST(lvt->barrier(m->all, E));
    MUST(dev_sync(&m->d, 0, E));
    if (m->rank != 1)
        MUST(lvt->barrier(m->all, E));
    MUST(m->dist.vt->barrier(m->dist.all, E));
    if (m->rank == 1) {
        usleep(20000); /* most likely the others wait by then; it decides nothing */
        stop = 1;
        while (n_done < 2 && !n_failed)
            usleep(1000);
        return;
    }
    (void)dev_sync(&m->d, 0, &e);
    MUST_FAIL(lvt->poll(m->all, E), TT_ECOMM, "enough of it");
    n_done++;
}
static void aborted(member *m)
{
    tt_error e = {0};
    MUST(lvt->barrier(m->all, E));
    MUST(dev_sync(&m->d, 0, E));
    if (m->rank != 1)
        MUST(lvt->barrier(m->all, E));
    MUST(m->dist.vt->barrier(m->dist.all, E));
    if (m->rank == 1) {
        usleep(20000); /* as above */
        lvt->abort(m->self, "rank 1: no more");
        MUST_FAIL(lvt->poll(m->all, E), TT_ECOMM, "stopped: rank 1: no more");
        while (!stop && !n_failed)
            usleep(1000);
        return;
    }
    usleep(50000); /* most likely rank 1 has aborted; it decides nothing */
    lvt->abort(m->self, "rank 1 said so");
    (void)dev_sync(&m->d, 0, &e);
    MUST_FAIL(lvt->send(m->all, 1, m->a, 8, E), TT_ECOMM, "stopped: rank 1 said so");
    stop = 1;
}
static void bad_calls(member *m)
{
    static const int ranks[MOST] = {0, 1, 2};
    tt_comm *g = NULL;
    MUST(lvt->group(m->self, ranks, 3, 9, &g, E));
    MUST_FAIL(lvt->barrier(g, E), TT_EINVAL, "before the group was put on a queue");
    MUST_FAIL(lvt->send(g, (m->rank + 1) % 3, m->a, 8, E), TT_EINVAL, "before the group was put");
    MUST_FAIL(lvt->send(m->all, m->rank, m->a, 8, E), TT_EINVAL, "no other member");
    MUST_FAIL(lvt->recv(m->all, 3, m->a, 8, E), TT_EINVAL, "no other member 3");
    MUST_FAIL(lvt->all_reduce(m->all, m->a, 8, TT_BOOL, TT_SUM, E), TT_EUNSUPPORTED, "bool");
    lvt->group_free(g);
}
static bool inject_late; /* or as the settings of the child say */
/* Whoever hears of the error first says it, and stops the others, as the core does. */
static void injected(member *m)
{
    tt_error e = {0}, ignored;
    tt_status s = TT_OK;
    MUST(m->dist.vt->barrier(m->dist.all, E));
    if (inject_late && m->rank == 0) { /* not before both have come to the barrier */
        fake_load();
        OK(fake.fake_inject("ncclCommGetAsyncError", 20, 6));
    }
    for (int i = 0; i < 3 && s == TT_OK; i++) {
        s = lvt->barrier(m->all, &e);
        if (s == TT_OK)
            s = dev_sync(&m->d, 0, &e);
    }
    for (; s == TT_OK && !stop; usleep(10000))
        s = lvt->poll(m->all, &e); /* the watching thread has perhaps heard of it */
    if (s != TT_OK)
        fprintf(stderr, "%s\n", e.text);
    stop = 1;
    lvt->abort(m->self, "the end");
    (void)dev_sync(&m->d, 0, &ignored);
}

/* A call that NCCL has not put on its queue yet is no error. */
static void under_way(member *m)
{
    MUST(lvt->barrier(m->all, E));
    MUST(dev_sync(&m->d, 0, E));
    MUST(m->dist.vt->barrier(m->dist.all, E));
    if (m->rank == 0) {
        fake_load();
        OK(fake.fake_inject("ncclCommGetAsyncError", 0, 7));
    }
    MUST(m->dist.vt->barrier(m->dist.all, E));
    MUST(lvt->poll(m->all, E));
    MUST(m->dist.vt->barrier(m->dist.all, E));
    if (m->rank == 0)
        OK(fake.fake_inject("ncclCommGetAsyncError", 0, 0));
    MUST(m->dist.vt->barrier(m->dist.all, E));
    MUST(lvt->barrier(m->all, E));
    MUST(lvt->poll(m->all, E));
}

/* A communicator whose members do not come together has the limit of a call. */
static void never_joined(member *m)
{
    const int ranks[2] = {0, 1};
    tt_comm *g = NULL;
    MUST(m->dist.vt->barrier(m->dist.all, E));
    if (m->rank == 0) {
        fake_load();
        OK(fake.fake_inject("ncclCommGetAsyncError", 0, 7));
    }
    MUST(m->dist.vt->barrier(m->dist.all, E));
    lvt->set_timeout(m->self, 0.1);
    MUST_FAIL(lvt->group(m->self, ranks, 2, 9, &g, E), TT_ETIMEOUT,
              "NCCL, ncclCommInitRankConfig of ranks 0, 1: rank ");
}

static void case_never_joined(int n)
{
    world(n, never_joined);
}
static void test_a_communicator_that_is_never_made_has_a_limit(void **state)
{
    (void)state;
    if (rig_run_seed(case_never_joined, 2, 0))
        fail_msg("%s", rig_text);
}

static void case_under_way(int n)
{
    world(n, under_way);
}
static void test_calls_under_way_are_no_errors(void **state)
{
    (void)state;
    if (rig_run_seed(case_under_way, 2, 0))
        fail_msg("%s", rig_text);
}

static void case_failure(int i)
{
    static void (*const fns[])(member *) = {other_counts, other_call, absent,   absent_receiver,
                                            told_to_stop, aborted,    bad_calls};
    world(i == 3 ? 2 : 3, fns[i]);
}
static void test_failures_are_named_and_do_not_hang(void **state)
{
    (void)state;
    for (int i = 0; i < 7; i++)
        for (int seed = 0; seed < 4; seed++)
            if (rig_run_seed(case_failure, i, seed))
                fail_msg("case %d, seed %d: %s", i, seed, rig_text);
}

static void case_injected(int n)
{
    world(n, injected);
}
static void test_errors_of_NCCL_are_told(void **state)
{
    (void)state;
    const char *const at_once[] = {"FAKE_CUDA_FAIL=ncclAllReduce:2=3", NULL};
    inject_late = true;
    assert_int_equal(rig_run(case_injected, 2, NULL), 0);
    inject_late = false;
    if (!strstr(rig_text, "remote process exited or there was a network error"))
        fail_msg("%s", rig_text);
    assert_int_equal(rig_run(case_injected, 2, at_once), 0);
    if (!strstr(rig_text, "barrier of ranks 0, 1: internal error: ncclAllReduce fails on request"))
        fail_msg("%s", rig_text);
}

/* ---- opening ---- */

static tt_status open_status;
static const char *open_words;
static void open_only(member *m)
{
    static const int ranks[MOST] = {0, 1, 2, 3};
    tt_error e = {0};
    MUST(backend_open(m, E));
    tt_status s = comm_open(m, &e);
    if (s == TT_OK)
        s = lvt->group(m->self, ranks, m->n, 7, &m->all, &e);
    if (s != open_status || !strstr(e.text, open_words))
        member_fail(m, __LINE__, s, e.text);
}
static void case_open(int i)
{
    static char folder[TEST_FOLDER];
    char command[TEST_FOLDER + 40];
    body = open_only;
    open_status = TT_ENOTFOUND;
    open_words = "libnccl.so.2 was not found";
    if (i == 0) { /* a folder that is searched alone */
        CHECK(test_folder("nccl", folder));
        snprintf(command, sizeof command, "touch %s/libcuda.so.1", folder);
        CHECK(system(command) == 0);
        nccl_options.libraries = folder;
    } else if (i == 1) {
        open_status = TT_EUNSUPPORTED;
        open_words = "is NCCL 2.17.0; 2.18 or newer is needed";
        setenv("FAKE_NCCL_VERSION", "21700", 1);
    } else if (i == 2) {
        open_status = TT_EINVAL;
        open_words = "backend.name cuda, not far";
        backend_name = "far";
    } else {
        open_status = TT_EINVAL;
        open_words = "a GPU can be in a communicator once";
        setenv("FAKE_CUDA_DEVICES", "1", 1);
    }
    world(2, NULL);
    if (i == 0) {
        snprintf(command, sizeof command, "rm -r %s", folder);
        CHECK(system(command) == 0);
    }
}
static void test_what_is_missing_is_said(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++)
        if (rig_run_seed(case_open, i, 0))
            fail_msg("case %d: %s", i, rig_text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_results_are_those_of_every_transport),
        cmocka_unit_test(test_scratch_is_what_the_plan_counts),
        cmocka_unit_test(test_messages_cross),
        cmocka_unit_test(test_a_message_without_memory_is_an_error),
        cmocka_unit_test(test_memory_is_registered_once_with_each_communicator),
        cmocka_unit_test(test_fast_sums_are_those_of_NCCL),
        cmocka_unit_test(test_calls_under_way_are_no_errors),
        cmocka_unit_test(test_a_communicator_that_is_never_made_has_a_limit),
        cmocka_unit_test(test_failures_are_named_and_do_not_hang),
        cmocka_unit_test(test_errors_of_NCCL_are_told),
        cmocka_unit_test(test_what_is_missing_is_said),
    };
    setenv("FAKE_CUDA_DEVICES", "4", 1);
    setenv("FAKE_CUDA_MEMORY_MIB", "64", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
