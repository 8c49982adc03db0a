/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "comm/shm_direct.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/* What may go wrong between the two barriers of a copy from process to process. */

static _Atomic int *progress; /* of rank 1 in what is to be cut short; all share it */
static int moment; /* what is cut short ends at the collective of this number, or the next */

static int setup(void **state)
{
    progress = processes_shared(sizeof *progress);
    return find_out_first(state);
}

/* ---- refusals ---- */

/* A rank whose copy fails waits for news of a dead rank, which does not come here. For processes that start from now
 * on; NULL: as before. */
static void patience(const char *scale)
{
    static char *before; /* kept */
    if (scale) {
        before = getenv("TTRUN_PATIENCE");
        before = before ? strdup(before) : NULL;
    }
    if (scale || before)
        setenv("TTRUN_PATIENCE", scale ? scale : before, 1);
    else
        unsetenv("TTRUN_PATIENCE");
}

/* From now on this process may not copy from or to others, as in some containers. */
static bool forbid(void)
{
    struct sock_filter f[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog p = {sizeof f / sizeof *f, f};
    return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, 2, &p, 0, 0);
}

static void refused_early(world *w, tt_dist *d)
{
    if (d->rank == 1 && !forbid())
        return;
    for (int i = 0; i < 3; i++)
        sum_large(w, d, d->all, MUCH, d->rank, 2);
    if (direct(d))
        world_fail(w, "rank %d copies though rank 1 may not", d->rank);
}
static void test_if_one_member_may_not_copy_all_use_shared_buffers(void **state)
{
    (void)state;
    world_run(3, refused_early);
}

static void refused_late(world *w, tt_dist *d)
{
    int32_t *x = calloc(MUCH, sizeof *x);
    tt_error err = {0};
    sum_large(w, d, d->all, MUCH, d->rank, 2);
    if (d->rank == 1 && !forbid())
        world_fail(w, "seccomp");
    const tt_status s = d->vt->all_reduce(d->all, x, MUCH, TT_I32, TT_SUM, &err);
    if (s != TT_ECOMM ||
        !strstr(err.text, "all_reduce number 2: rank 1 cannot read from the memory of rank 2") ||
        !strstr(err.text, strerror(EPERM)))
        world_fail(w, "rank %d: %d %s", d->rank, s, err.text);
    free(x);
}
static void test_refused_copy_during_a_run_is_an_error_on_all_ranks(void **state)
{
    (void)state;
    if (!allowed)
        skip();
    patience("0.02");
    world_run(3, refused_late);
    patience(NULL);
}

/* Rank 1's buffer has a page in the middle that other processes may not write, or not even read. */
static int32_t *holed(int protection, int64_t from)
{
    char *p = mmap(NULL, MUCH * 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    memset(p, 0, MUCH * 4);
    assert_int_equal(mprotect(p + from, 4096, protection), 0);
    return (int32_t *)p;
}

static void half_way(world *w, tt_dist *d)
{
    const int64_t counts[] = {MUCH / 2, MUCH / 2};
    int32_t *x = calloc(MUCH, 4), *y = d->rank ? holed(PROT_READ, MUCH) : calloc(MUCH, 4);
    tt_error err = {0};
    const tt_status s = d->vt->all_gather(d->all, x, y, counts, TT_I32, &err);
    if (s != TT_ECOMM || !strstr(err.text, "all_gather number 1: rank 0 cannot write to the memory "
                                           "of rank 1"))
        world_fail(w, "rank %d: %d %s", d->rank, s, err.text);
    if (d->vt->barrier(d->all, &err) != TT_ECOMM)
        world_fail(w, "the run goes on");
}
static void half_read(world *w, tt_dist *d)
{
    const int64_t counts[] = {MUCH / 2, MUCH / 2};
    int32_t *x = d->rank ? holed(PROT_NONE, MUCH) : calloc(MUCH, 4), *y = calloc(MUCH, 4);
    tt_error err = {0};
    const tt_status s = d->vt->reduce_scatter(d->all, x, y, counts, TT_I32, TT_SUM, &err);
    if (s != TT_ECOMM || !strstr(err.text, "rank 0 cannot read from the memory of rank 1"))
        world_fail(w, "rank %d: %d %s", d->rank, s, err.text);
}
static void test_copy_that_fails_half_way_is_an_error_on_all_ranks(void **state)
{
    (void)state;
    if (!allowed)
        skip();
    patience("0.02");
    world_run(2, half_way);
    world_run(2, half_read);
    patience(NULL);
}

/* ---- failures in the middle of a copy ---- */

/* From now on nobody may write to this buffer. */
static void expect_untouched(world *w, const tt_dist *d, unsigned char *x)
{
    memset(x, 0x5a, MUCH * sizeof(int32_t));
    usleep(30000);
    for (size_t k = 0; k < MUCH * sizeof(int32_t); k++)
        if (x[k] != 0x5a) {
            world_fail(w, "rank %d: byte %zu was written after the end", d->rank, k);
            return;
        }
}

/* Runs collectives until one fails; after that nobody may touch this rank's buffers. */
static tt_status until_it_fails(world *w, tt_dist *d, tt_error *err)
{
    int64_t counts[5];
    tt_status s = TT_OK;
    for (int i = 0; i < d->world; i++)
        counts[i] = MUCH / d->world;
    for (int i = 0; s == TT_OK; i++) {
        unsigned char *x = calloc(MUCH, 4), *y = calloc(MUCH, 4);
        s = i % 2 ? d->vt->all_reduce(d->all, x, MUCH, TT_I32, TT_SUM, err)
                  : d->vt->all_gather(d->all, y, x, counts, TT_I32, err);
        if (s != TT_OK)
            expect_untouched(w, d, x);
        if (d->rank == 1)
            atomic_fetch_add(progress, 1);
        free(x);
        free(y);
    }
    return s;
}

static void until_killed(world *w, tt_dist *d)
{
    tt_error err = {0};
    const tt_status s = until_it_fails(w, d, &err);
    if (s != TT_ECOMM || !strstr(err.text, "rank 1 was lost at all_"))
        world_fail(w, "rank %d: %d %s", d->rank, s, err.text);
    atomic_fetch_add(&w->count, 1);
}
static void test_rank_killed_in_the_middle_is_named_and_nothing_hangs(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        const int n = 2 + i % 3;
        world *w = processes_shared(sizeof *w);
        pid_t pids[16];
        int status, n_killed = 0;
        atomic_store(progress, 0);
        processes_start(w, n, until_killed, pids);
        while (atomic_load(progress) < 3 && !atomic_load(&w->n_failed))
            usleep(100);
        usleep((useconds_t)i * 300);
        kill(pids[1], SIGKILL);
        for (int k = 0; k < n; k++) {
            assert_int_equal(waitpid(pids[k], &status, 0), pids[k]);
            n_killed += WIFSIGNALED(status) != 0;
        }
        assert_int_equal(world_end(w), n - 1);
        assert_int_equal(n_killed, 1);
        munmap(w, sizeof *w);
    }
}

/* When rank 1 has ended as many collectives, and a part of the next: how large it is decides nothing. */
static void await_the_moment(void)
{
    while (atomic_load(progress) < moment)
        usleep(100);
    usleep((useconds_t)moment * 150);
}

static void *stop_soon(void *dist)
{
    await_the_moment();
    tt_session_stop(((tt_dist *)dist)->session, "enough");
    return NULL;
}

static void until_stopped(world *w, tt_dist *d)
{
    tt_error err = {0};
    pthread_t t;
    if (d->rank == 0 && pthread_create(&t, NULL, stop_soon, d))
        world_fail(w, "no thread");
    const tt_status s = until_it_fails(w, d, &err);
    if (s != TT_ECOMM || !strstr(err.text, "enough"))
        world_fail(w, "rank %d: %d %s", d->rank, s, err.text);
    if (d->rank == 0)
        pthread_join(t, NULL);
}
static void test_stop_in_the_middle_leaves_no_one_copying(void **state)
{
    (void)state;
    for (moment = 1; moment <= 10; moment++) {
        atomic_store(progress, 0);
        world_run(2 + moment % 3, until_stopped);
    }
}

/* Another thread of rank 0 waits until its time limit: rank 0's collectives fail with that timeout,
 * those of the other ranks because rank 0 stopped the run. */
static void *time_out_soon(void *dist)
{
    await_the_moment();
    tt_session_timed_out(((tt_dist *)dist)->session, "that waited 1 s");
    return NULL;
}

static void until_one_times_out(world *w, tt_dist *d)
{
    tt_error err = {0};
    pthread_t t;
    if (d->rank == 0 && pthread_create(&t, NULL, time_out_soon, d))
        world_fail(w, "no thread");
    const tt_status s = until_it_fails(w, d, &err);
    if (s != (d->rank ? TT_ECOMM : TT_ETIMEOUT) || !strstr(err.text, "that waited 1 s") ||
        !strstr(err.text, "stopped: ") != !d->rank)
        world_fail(w, "rank %d: %d %s", d->rank, s, err.text);
    if (d->rank == 0)
        pthread_join(t, NULL);
}
static void test_timeout_of_another_thread_is_the_ranks_own_failure(void **state)
{
    (void)state;
    for (moment = 1; moment <= 4; moment++) {
        atomic_store(progress, 0);
        world_run(2 + moment % 3, until_one_times_out);
    }
}

/* ---- limits. Each rank has its own; one that is to be the last to come sees the others' arrival. ---- */

/* Waits until the members but `absent` have arrived in the collective that this one will call next. */
static void until_arrived(const tt_dist *d, int absent)
{
    const tt_comm *c = d->all;
    const uint32_t next = atomic_load(&c->members[c->me].round.value) + 1;
    for (int i = 0; i < c->n; i++)
        while (i != c->me && i != absent &&
               (int32_t)(atomic_load(&c->members[i].round.value) - next) < 0)
            usleep(100);
}

/* One member arrives at about the moment when the time limit of the others passes. Either all pass
 * the opening barrier, or a member that gave up can be sure that nobody touches its buffer. */
static void late(world *w, tt_dist *d)
{
    for (int i = 0; i < 2; i++)
        sum_large(w, d, d->all, MUCH, d->rank, d->world - 1);
    unsigned char *x = calloc(MUCH, 4);
    tt_error err = {0};
    world_add(&w->count);
    world_until(&w->count, d->world); /* a rank that is still in number 2 would fail there */
    tt_dist_set_timeout(d, 0.05);
    if (d->rank == 1)
        usleep((useconds_t)(49000 + d->world * 500)); /* before or after: both must be right */
    if (d->vt->all_reduce(d->all, x, MUCH, TT_I32, TT_SUM, &err) != TT_OK) {
        expect_untouched(w, d, x);
        if (!strstr(err.text, "all_reduce number 3"))
            world_fail(w, "%s", err.text);
    }
    free(x);
}

/* The worst moment: this member has seen that the run goes on, but arrives at the barrier when the
 * others have left. */
static void too_late(world *w, tt_dist *d)
{
    sum_large(w, d, d->all, MUCH, d->rank, d->world - 1);
    unsigned char *x = calloc(MUCH, 4);
    tt_error err = {0};
    tt_status s;
    const tt_shm_args a = {
        .op = TT_DOING_ALL_REDUCE, .send = x, .recv = x, .count = MUCH, .dtype = TT_I32};
    if (d->rank == 0) { /* when rank 1 has seen that the run goes on */
        world_until(&w->count, 1);
        until_arrived(d, 1);
        tt_dist_set_timeout(d, 0.05);
    }
    if (d->rank == 1) {
        if (tt_shm_begin(d->all, &a, &err) != TT_OK)
            world_fail(w, "%s", err.text);
        world_add(&w->count);
        while (tt_session_stopped(d->session, NULL) == TT_OK)
            usleep(1000);
        usleep(10000);
        s = tt_shm_direct_all_reduce(d->all, &a, &err);
    } else {
        s = d->vt->all_reduce(d->all, x, MUCH, TT_I32, TT_SUM, &err);
        expect_untouched(w, d, x);
    }
    const char *names = strstr(err.text, "that did not arrive:");
    if (s == TT_OK || !names || strcmp(names, "that did not arrive: 1"))
        world_fail(w, "rank %d: %d %s", d->rank, s, err.text);
    free(x);
}
static void test_late_rank_does_not_write_to_ranks_that_gave_up(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++)
        world_run(2 + i % 4, late);
    if (!allowed)
        skip();
    for (int n = 2; n <= 4; n++)
        world_run(n, too_late);
}

static void missing(world *w, tt_dist *d)
{
    int32_t *x = calloc(MUCH, 4);
    tt_error err = {0};
    sum_large(w, d, d->all, MUCH, d->rank, 2);
    if (d->rank == 0) {
        until_arrived(d, 2);
        tt_dist_set_timeout(d, 0.05);
    }
    while (d->rank == 2 && tt_session_stopped(d->session, NULL) == TT_OK)
        usleep(1000);
    const tt_status s = d->vt->all_reduce(d->all, x, MUCH, TT_I32, TT_SUM, &err);
    const char *names = strstr(err.text, "that did not arrive:");
    if (s != (d->rank ? TT_ECOMM : TT_ETIMEOUT) || !strstr(err.text, "all_reduce number 2") ||
        !names || strcmp(names, "that did not arrive: 2"))
        world_fail(w, "rank %d: %d %s", d->rank, s, err.text);
    free(x);
}
static void test_rank_that_does_not_arrive_is_named(void **state)
{
    (void)state;
    world_run(3, missing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_if_one_member_may_not_copy_all_use_shared_buffers),
        cmocka_unit_test(test_refused_copy_during_a_run_is_an_error_on_all_ranks),
        cmocka_unit_test(test_copy_that_fails_half_way_is_an_error_on_all_ranks),
        cmocka_unit_test(test_rank_killed_in_the_middle_is_named_and_nothing_hangs),
        cmocka_unit_test(test_stop_in_the_middle_leaves_no_one_copying),
        cmocka_unit_test(test_timeout_of_another_thread_is_the_ranks_own_failure),
        cmocka_unit_test(test_late_rank_does_not_write_to_ranks_that_gave_up),
        cmocka_unit_test(test_rank_that_does_not_arrive_is_named),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
