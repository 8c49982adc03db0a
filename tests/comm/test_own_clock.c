/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "comm/own_clock.h"
#include "comm/threads_impl.h"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* The clock that tests own, and the barrier of rank-threads on it. */

#define SECOND INT64_C(1000000000)

typedef struct member {
    int i;
    int64_t limit_ns, ended_ns;
    int result;
} member;

static void run(int n, void *(*fn)(void *), member *m)
{
    pthread_t threads[8];
    own_clock_open(n);
    for (int i = 0; i < n; i++) {
        m[i].i = i;
        assert_int_equal(pthread_create(&threads[i], NULL, fn, &m[i]), 0);
    }
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    own_clock_close();
}

static int64_t deadline(const member *m)
{
    return m->limit_ns ? tt_clock_now() + m->limit_ns : 0;
}

/* ---- the clock ---- */

static _Atomic uint32_t word;

static void *waits_alone(void *arg)
{
    member *m = arg;
    for (int i = 0; i < 3; i++)
        if (tt_clock_wait_word(&word, 0, deadline(m)))
            m->result++;
    m->ended_ns = tt_clock_now() - OWN_CLOCK_BEGIN;
    own_clock_leave();
    return NULL;
}
static void test_time_jumps_from_deadline_to_deadline(void **state)
{
    (void)state;
    member m[4] = {{.limit_ns = 75 * SECOND},
                   {.limit_ns = SECOND / 4},
                   {.limit_ns = 3600 * SECOND},
                   {.limit_ns = SECOND / 4}};
    run(4, waits_alone, m);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(m[i].ended_ns, 3 * m[i].limit_ns);
        assert_int_equal(m[i].result, 0); /* each wait ended by its deadline */
    }
}

/* Member 0 is busy for longer than the others' limits are: none of those ends. */
static void *spins_or_waits(void *arg)
{
    member *m = arg;
    if (m->i == 0) {
        while (!own_clock_n_waiting()) /* one of them waits */
            sched_yield();
        for (const int64_t until = tt_now_ns() + SECOND / 50; tt_now_ns() < until;)
            sched_yield();
        atomic_store(&word, 1);
        tt_clock_wake_word(&word);
        (void)tt_clock_wait_word(&word, 1, deadline(m));
    } else {
        while (!atomic_load(&word))
            m->result += !tt_clock_wait_word(&word, 0, deadline(m));
    }
    m->ended_ns = tt_clock_now() - OWN_CLOCK_BEGIN;
    own_clock_leave();
    return NULL;
}
static void test_time_stands_while_a_member_runs(void **state)
{
    (void)state;
    member m[3] = {{.limit_ns = SECOND}, {.limit_ns = 1000}, {.limit_ns = 2000}};
    run(3, spins_or_waits, m);
    assert_int_equal(m[0].ended_ns, SECOND);
    for (int i = 1; i < 3; i++) {
        assert_int_equal(m[i].result, 0);
        assert_int_equal(m[i].ended_ns, 0);
    }
    atomic_store(&word, 0);
}

/* A ball that goes round by wakes under a limit of 1 ns: a wake that counted its waiter late would let time jump. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static int holder;

static void *passes_on(void *arg)
{
    member *m = arg;
    for (int round = 0; round < 2000; round++) {
        pthread_mutex_lock(&lock);
        while (holder != m->i)
            m->result += !tt_clock_wait_cond(&changed, &lock, deadline(m));
        holder = (m->i + 1) % 4;
        tt_clock_wake_cond(&changed);
        pthread_mutex_unlock(&lock);
    }
    own_clock_leave();
    return NULL;
}
static void test_a_wake_counts_before_the_waker_waits(void **state)
{
    (void)state;
    member m[4] = {{.limit_ns = 1}, {.limit_ns = 1}, {.limit_ns = 1}, {.limit_ns = 1}};
    tt_clock_cond_init(&changed);
    run(4, passes_on, m);
    for (int i = 0; i < 4; i++)
        assert_int_equal(m[i].result, 0);
}

static _Atomic int count;

static void *idles(void *arg)
{
    member *m = arg;
    if (m->i == 0) {
        own_clock_until_idle();
        m->result = own_clock_n_waiting(); /* all others */
        own_clock_add(&count);
        own_clock_add(&count);
    } else {
        own_clock_until(&count, m->i);
        (void)tt_clock_wait_word(&word, 0, deadline(m));
    }
    m->ended_ns = tt_clock_now() - OWN_CLOCK_BEGIN;
    own_clock_leave();
    return NULL;
}
static void test_who_waits_for_idleness_goes_on_before_time_does(void **state)
{
    (void)state;
    member m[3] = {{0}, {.limit_ns = SECOND}, {.limit_ns = SECOND}};
    run(3, idles, m);
    assert_int_equal(m[0].result, 2);
    assert_int_equal(m[0].ended_ns, 0);
    assert_int_equal(m[2].ended_ns, SECOND);
}

/* What a child that runs fn on n threads ends by. */
static int ends_by(int n, void *(*fn)(void *), member *m)
{
    int status = 0;
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        freopen("/dev/null", "w", stderr);
        run(n, fn, m);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}
static void test_a_wait_that_nobody_can_end_aborts(void **state)
{
    (void)state;
    member stuck[2] = {{0}, {.limit_ns = SECOND}}; /* the other leaves after 3 s */
    assert_int_equal(ends_by(2, waits_alone, stuck), SIGABRT);
    member well[2] = {{.limit_ns = SECOND}, {.limit_ns = SECOND}};
    assert_int_equal(ends_by(2, waits_alone, well), 0);
}

/* ---- the system's clock: lower bounds only ---- */

static void test_waits_of_the_system_last_until_their_deadline(void **state)
{
    (void)state;
    int64_t until = tt_clock_deadline(0.01);
    assert_int_equal(tt_clock_deadline(0), 0);
    while (tt_clock_wait_word(&word, 0, until))
        ;
    assert_true(tt_now_ns() >= until);
    assert_false(tt_clock_wait_word(&word, 0, until)); /* it has passed */
    assert_true(tt_clock_wait_word(&word, 1, 0));      /* another value */
    until = tt_clock_deadline(0.01);
    pthread_mutex_lock(&lock);
    while (tt_clock_wait_cond(&changed, &lock, until))
        ;
    pthread_mutex_unlock(&lock);
    assert_true(tt_now_ns() >= until);
}

/* ---- the barrier: one member is absent, one has a limit, and the others must be woken ---- */

static tt_barrier barrier;

static void *meets(void *arg)
{
    member *m = arg;
    for (int i = 0; i < 3; i++)
        if (tt_barrier_wait(&barrier, i != 1, 0) != TT_BARRIER_PASSED)
            m->result = -1;
    if (m->i) {
        m->result += (int)tt_barrier_wait(&barrier, true, deadline(m));
        m->ended_ns = tt_clock_now() - OWN_CLOCK_BEGIN;
    }
    own_clock_leave();
    return NULL;
}
static void test_barrier_wakes_all_when_one_times_out(void **state)
{
    (void)state;
    for (int crowded = 0; crowded < 2; crowded++) {
        member m[4] = {{0}, {0}, {.limit_ns = 75 * SECOND}, {0}};
        tt_barrier_init(&barrier, 4, crowded);
        run(4, meets, m);
        assert_int_equal(m[0].result, TT_BARRIER_PASSED);
        for (int i = 1; i < 4; i++) {
            assert_int_equal(m[i].result, i == 2 ? TT_BARRIER_TIMEOUT : TT_BARRIER_ABORTED);
            assert_int_equal(m[i].ended_ns, 75 * SECOND);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_time_jumps_from_deadline_to_deadline),
        cmocka_unit_test(test_time_stands_while_a_member_runs),
        cmocka_unit_test(test_a_wake_counts_before_the_waker_waits),
        cmocka_unit_test(test_who_waits_for_idleness_goes_on_before_time_does),
        cmocka_unit_test(test_a_wait_that_nobody_can_end_aborts),
        cmocka_unit_test(test_waits_of_the_system_last_until_their_deadline),
        cmocka_unit_test(test_barrier_wakes_all_when_one_times_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
