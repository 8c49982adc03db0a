/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "comm/async_cases.h"
#include "comm/battery.h"
#include "comm/processes.h"
#include <grp.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

/* Processes of one machine: the battery, and what happens when a process dies. */

/* More than a slot and than a block, in uneven pieces, not a multiple of anything. */
static void large(world *w, tt_dist *d)
{
    const int64_t counts[] = {300001, 7, 150003, 0, 99991};
    int64_t total = 0, mine = 0;
    tt_error err;
    for (int i = 0; i < d->world; i++) {
        mine += i < d->rank ? counts[i] : 0;
        total += counts[i];
    }
    float *all = malloc((size_t)total * 4), *buf = calloc((size_t)total, 4),
          *piece = malloc((size_t)(counts[d->rank] + 1) * 4);
    for (int64_t k = 0; k < total; k++)
        buf[k] = (float)(k % 1013) + (float)d->rank * 1024;
    if (d->vt->all_gather(d->all, buf + mine, all, counts, TT_F32, &err) != TT_OK)
        world_fail(w, "%s", err.text);
    for (int64_t k = 0, i = 0, at = 0; k < total; k++) {
        while (k >= at + counts[i])
            at += counts[i++];
        if (all[k] != (float)(k % 1013) + (float)i * 1024)
            world_fail(w, "all_gather, element %lld", (long long)k);
    }
    const float ranks = (float)(d->world * (d->world - 1) / 2 * 1024);
    if (d->vt->reduce_scatter(d->all, buf, piece, counts, TT_F32, TT_SUM, &err) != TT_OK)
        world_fail(w, "%s", err.text);
    for (int64_t k = 0; k < counts[d->rank]; k++)
        if (piece[k] != (float)((mine + k) % 1013 * d->world) + ranks)
            world_fail(w, "reduce_scatter, element %lld", (long long)k);
    if (d->vt->all_reduce(d->all, buf, total, TT_F32, TT_SUM, &err) != TT_OK)
        world_fail(w, "%s", err.text);
    for (int64_t k = 0; k < total; k++)
        if (buf[k] != (float)(k % 1013 * d->world) + ranks)
            world_fail(w, "all_reduce, element %lld", (long long)k);
    free(all);
    free(buf);
    free(piece);
}
static void test_large_collectives_take_many_rounds(void **state)
{
    (void)state;
    for (int n = 1; n <= 5; n++)
        world_run(n, large);
}

static void large_transpose(world *w, tt_dist *d)
{
    int64_t sends[5], recvs[5], n_send = 0, n_recv = 0, at = 0;
    tt_error err;
    for (int i = 0; i < d->world; i++) {
        n_send += sends[i] = 40000 * ((d->rank + 2 * i) % 4) + i;
        n_recv += recvs[i] = 40000 * ((i + 2 * d->rank) % 4) + d->rank;
    }
    int32_t *send = malloc((size_t)n_send * 4 + 4), *recv = malloc((size_t)n_recv * 4 + 4);
    for (int i = 0; i < d->world; i++)
        for (int64_t k = 0; k < sends[i]; k++)
            send[at++] = (int32_t)(k * 100 + d->rank * 10 + i);
    if (d->vt->all_to_all(d->all, send, sends, recv, recvs, TT_I32, &err) != TT_OK)
        world_fail(w, "%s", err.text);
    at = 0;
    for (int i = 0; i < d->world; i++)
        for (int64_t k = 0; k < recvs[i]; k++)
            if (recv[at++] != (int32_t)(k * 100 + i * 10 + d->rank))
                world_fail(w, "all_to_all, element %lld of rank %d", (long long)k, i);
    free(send);
    free(recv);
}
static void test_large_all_to_all_takes_the_rounds_of_the_largest(void **state)
{
    (void)state;
    for (int n = 2; n <= 5; n++)
        world_run(n, large_transpose);
}

/* ---- a rank that dies silently ---- */

static void until_lost(world *w, tt_dist *d)
{
    tt_error err = {0};
    tt_status s = TT_OK;
    for (int i = 0; s == TT_OK; i++) {
        int32_t x[2000] = {0};
        if (i == 100 && d->rank == 1)
            raise(SIGKILL);
        s = d->vt->all_reduce(d->all, x, 2000, TT_I32, TT_SUM, &err);
    }
    if (s != TT_ECOMM || !strstr(err.text, "rank 1 was lost at all_reduce number 100"))
        world_fail(w, "rank %d: %d %s", d->rank, s, err.text);
    tt_session_claim(d->session, s, err.text, false);
    const tt_status first = tt_session_first_failure(d->session, &err);
    if (first != TT_ECOMM)
        world_fail(w, "the first failure has status %d", first);
    if (err.text[0])
        atomic_fetch_add(&w->count, 1); /* this rank is to tell */
}

/* Fails unless n - 1 ranks, whose calls have no limit, end by themselves, and exactly one of them prints the error. */
static void one_is_lost(int n, rank_fn fn)
{
    world *w = processes_shared(sizeof *w);
    pid_t pids[16];
    int status, n_killed = 0;
    processes_start(w, n, fn, pids);
    for (int i = 0; i < n; i++) {
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        n_killed += WIFSIGNALED(status);
    }
    assert_int_equal(world_end(w), 1);
    assert_int_equal(n_killed, 1);
    munmap(w, sizeof *w);
}
static void test_killed_rank_is_named_by_one_other(void **state)
{
    (void)state;
    for (int n = 2; n <= 5; n++)
        one_is_lost(n, until_lost);
}

static void first_is_lost(world *w, tt_dist *d)
{
    tt_error err = {0};
    if (d->rank == 0)
        raise(SIGKILL);
    const tt_status s = d->vt->barrier(d->all, &err);
    if (s != TT_ECOMM || !strstr(err.text, "rank 0 was lost before step 1"))
        world_fail(w, "rank %d: %d %s", d->rank, s, err.text);
    tt_session_claim(d->session, s, err.text, false);
    tt_session_first_failure(d->session, &err);
    if (err.text[0])
        atomic_fetch_add(&w->count, 1);
}
static void test_first_rank_of_the_machine_may_be_the_lost_one(void **state)
{
    (void)state;
    one_is_lost(4, first_is_lost);
}

/* If several ranks fail on their own, the first failure is printed once, and all ranks exit with
 * its status. */
static void failing(world *w, tt_dist *d)
{
    tt_error err = {0};
    tt_status s = TT_OK;
    if (d->rank == 2) {
        world_until_idle();
        s = TT_FAIL(&err, TT_ENUMERIC, "loss is NaN");
    } else {
        s = d->vt->barrier(d->all, &err);
    }
    tt_dist_fail(d, s, err.text);
    if (tt_session_first_failure(d->session, &err) != TT_ENUMERIC)
        world_fail(w, "rank %d ends with another status", d->rank);
    if (err.text[0] && (d->rank != 2 || strcmp(err.text, "loss is NaN")))
        world_fail(w, "rank %d tells: %s", d->rank, err.text);
    atomic_fetch_add(&w->count, err.text[0] != 0);
}
static void test_own_failure_is_reported_once(void **state)
{
    (void)state;
    assert_int_equal(world_run(4, failing), 1);
}

static void agreeing_early(world *w, tt_dist *d)
{
    tt_error err = {0};
    tt_status mine = TT_OK;
    if (d->rank)
        mine = TT_FAIL(&err, TT_EFORMAT, "rank %d's file", d->rank);
    const tt_status s = tt_session_agree(d->session, mine, &err);
    if (d->rank == 1 ? s != TT_EFORMAT : s != TT_ECOMM || strcmp(err.text, "rank 1 failed"))
        world_fail(w, "rank %d: %d %s", d->rank, s, err.text);
}
static void test_session_agrees_on_the_lowest_failing_rank(void **state)
{
    (void)state;
    world_run(4, agreeing_early);
}

/* Rank 1 stays away until rank 0, the only one with a limit, has failed. */
static void disagreeing_early(world *w, tt_dist *d)
{
    tt_error err = {0};
    if (d->rank)
        world_until(&w->count, 1);
    if (d->rank)
        return;
    tt_dist_set_timeout(d, LIMIT_S);
    const int64_t began = tt_clock_now();
    const tt_status s = tt_session_agree(d->session, TT_OK, &err);
    if (s != TT_ETIMEOUT || strcmp(err.text, "rank 1 did not arrive within 0.3 s"))
        world_fail(w, "%d %s", s, err.text);
    expect_the_limit(w, began);
    world_add(&w->count);
}
static void test_session_names_a_rank_that_does_not_agree(void **state)
{
    (void)state;
    world_run(2, disagreeing_early);
}

/* ---- rendezvous ---- */

static void test_ranks_that_do_not_arrive_are_named(void **state)
{
    (void)state;
    tt_launch l = {.world = 3, .local_world = 3, .launcher = "test"};
    const tt_session_opts o = {.launch = &l, .timeout_s = 0.3};
    tt_session *s;
    tt_error err = {0};
    snprintf(l.key, sizeof l.key, "alone-%ld", (long)getpid());
    assert_int_equal(tt_session_open(&o, &s, &err), TT_ETIMEOUT);
    assert_non_null(strstr(err.text, "did not arrive within 0.3 s"));
    assert_non_null(strstr(err.text, ": 1 2"));
    l.rank = l.local_rank = 1;
    assert_int_equal(tt_session_open(&o, &s, &err), TT_ETIMEOUT);
    assert_non_null(strstr(err.text, "first rank of this machine did not arrive"));
}

enum { NOBODY = 65534 };

/* A process of another user that has bound the rendezvous name of `l` first. full: it accepts no
 * connection and takes no more of them. It ends when *end is closed. */
static pid_t squat(const tt_launch *l, bool full, int *end)
{
    int ready[2], stay[2];
    char byte = 0;
    const unsigned uid = (unsigned)geteuid();
    assert_int_equal(pipe(ready) || pipe(stay), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        const int n = snprintf(a.sun_path + 1, sizeof a.sun_path - 1, "ttrun-%u-%s", uid, l->key);
        const socklen_t size = (socklen_t)offsetof(struct sockaddr_un, sun_path) + 1 + (unsigned)n;
        close(stay[1]);
        bool good = !setgroups(0, NULL) && !setgid(NOBODY) && !setuid(NOBODY);
        const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        good = good && !bind(fd, (struct sockaddr *)&a, size) && !listen(fd, full ? 0 : 8);
        while (
            good && full &&
            !connect(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0), (struct sockaddr *)&a, size))
            ;
        if (good && write(ready[1], "!", 1) == 1)
            (void)!read(stay[0], &byte, 1);
        _exit(!good);
    }
    close(ready[1]);
    close(stay[0]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    *end = stay[1];
    return pid;
}

/* Both ranks of a start whose name another user holds end by one line at once; if the
 * listener cannot be asked, they end after their time limit. */
static void test_another_users_name_is_refused(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip(); /* only root can start a process of another user */
    for (int full = 0; full < 2; full++) {
        tt_launch l = {.world = 2, .local_world = 2, .launcher = "test"};
        const tt_session_opts o = {.launch = &l, .timeout_s = full ? 0.3 : 3600};
        tt_session *s;
        int end, status;
        snprintf(l.key, sizeof l.key, "squat-%ld-%d", (long)getpid(), full);
        const pid_t pid = squat(&l, full, &end);
        for (int rank = 0; rank < 2; rank++) {
            tt_error err = {0};
            l.rank = l.local_rank = rank;
            const tt_status st = tt_session_open(&o, &s, &err);
            assert_int_equal(st, full && rank ? TT_ETIMEOUT : TT_ECOMM);
            if (!full && !strstr(err.text, "of user 65534 holds the name"))
                fail_msg("%s", err.text);
        }
        close(end);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
}

static int stop_now(void)
{
    return 15;
}
/* With a grace time (TT_RANK_STOPPED_NS) of a moment: the others do not come, however long it is. */
static int wait_with_a_signal(void)
{
    tt_launch l = {.world = 2, .local_world = 2, .launcher = "test"};
    const tt_session_opts o = {.launch = &l, .timeout_s = 3600, .stop = stop_now};
    tt_session *s;
    tt_error err = {0};
    snprintf(l.key, sizeof l.key, "signal-%ld", (long)getpid());
    for (l.rank = 0; l.rank < 2; l.rank++) {
        l.local_rank = l.rank;
        if (tt_session_open(&o, &s, &err) != TT_ESIGNAL) {
            fprintf(stderr, "rank %d: %s\n", l.rank, err.text);
            return 1;
        }
    }
    return 0;
}
static void test_signal_ends_the_wait_for_ranks(void **state)
{
    (void)state;
    int status = 0;
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) { /* another program: this one may have read the variable already */
        setenv("TTRUN_PATIENCE", "0.01", 1);
        execl("/proc/self/exe", "test_shm", "signal", (char *)NULL);
        _exit(1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static int through_the_room(void **state)
{
    (void)state;
    processes_buffered_only = true;
    return 0;
}

/* Everything runs twice: large transfers directly between processes, then all transfers through
 * shared memory. */
int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "signal"))
        return wait_with_a_signal();
    const struct CMUnitTest tests[] = {
        BATTERY,
        ASYNC_CASES,
        cmocka_unit_test(test_large_collectives_take_many_rounds),
        cmocka_unit_test(test_large_all_to_all_takes_the_rounds_of_the_largest),
        cmocka_unit_test(test_killed_rank_is_named_by_one_other),
        cmocka_unit_test(test_first_rank_of_the_machine_may_be_the_lost_one),
        cmocka_unit_test(test_own_failure_is_reported_once),
        cmocka_unit_test(test_session_agrees_on_the_lowest_failing_rank),
        cmocka_unit_test(test_session_names_a_rank_that_does_not_agree),
        cmocka_unit_test(test_ranks_that_do_not_arrive_are_named),
        cmocka_unit_test(test_another_users_name_is_refused),
        cmocka_unit_test(test_signal_ends_the_wait_for_ranks),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + cmocka_run_group_tests_name("room", tests, through_the_room, NULL);
}
