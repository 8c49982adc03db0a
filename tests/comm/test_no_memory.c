/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "comm/async.h"
#include "comm/session.h"
#include "train/saver.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

/* A failed allocation, or a descriptor too many, is an error for the caller, not the end of the process: the test's own
 * calloc and eventfd override the C library's and fail as the test says. */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define INTERPOSED 0 /* the sanitizer's own stands there */
#else
#define INTERPOSED 1
#endif

static _Thread_local int refuse_at; /* 1: the next calloc of this thread; 0: none */
static bool no_eventfd;

#if INTERPOSED
void *__libc_calloc(size_t n, size_t size);
TT_EXPORT void *calloc(size_t n, size_t size)
{
    if (refuse_at > 0 && --refuse_at == 0)
        return NULL;
    return __libc_calloc(n, size);
}

TT_EXPORT int eventfd(unsigned count, int flags)
{
    errno = EMFILE;
    return no_eventfd ? -1 : (int)syscall(SYS_eventfd2, count, flags);
}
#endif

/* fn fails with TT_ENOMEM for each of its first n allocations, and succeeds with all of them; in a
 * sanitizer's build only the second part is tested. */
typedef tt_status (*making)(void *user, tt_error *err);
static void each_refused(making fn, void *user, int n)
{
    for (int i = 1; INTERPOSED && i <= n; i++) {
        tt_error err = {0};
        refuse_at = i;
        const tt_status s = fn(user, &err);
        refuse_at = 0;
        if (s != TT_ENOMEM || !strstr(err.text, "no memory"))
            fail_msg("allocation %d: status %d, \"%s\"", i, (int)s, err.text);
    }
    tt_error err = {0};
    if (fn(user, &err) != TT_OK)
        fail_msg("with memory: %s", err.text);
}

static tt_status make_queue(void *user, tt_error *err)
{
    tt_dist *d = user;
    const int ranks[] = {0};
    tt_async *a = NULL;
    const tt_status s = tt_async_new(d, ranks, 1, 4, &a, err);
    tt_async_free(a);
    return s;
}

static void test_no_memory_for_a_queue_is_an_error(void **state)
{
    tt_threads *t;
    tt_dist d;
    (void)state;
    assert_int_equal(tt_threads_new(1, 10, &t, NULL), TT_OK);
    assert_int_equal(tt_threads_join(t, 0, &d, NULL), TT_OK);
    each_refused(make_queue, &d, 2);
    tt_dist_leave(&d);
    tt_threads_free(t);
}

static tt_status make_session(void *user, tt_error *err)
{
    const tt_session_opts o = {.launch = user, .timeout_s = 10};
    tt_session *s = NULL;
    const tt_status st = tt_session_open(&o, &s, err);
    tt_session_close(s, true);
    return st;
}

static void test_no_memory_for_a_session_is_an_error(void **state)
{
    tt_launch l = {.world = 1, .local_world = 1};
    (void)state;
    snprintf(l.key, sizeof l.key, "no-memory-%ld", (long)getpid());
    each_refused(make_session, &l, 3);
}

static void test_no_descriptor_for_a_session_is_an_error(void **state)
{
    tt_launch l = {.world = 1, .local_world = 1};
    const tt_session_opts o = {.launch = &l, .timeout_s = 10};
    tt_session *s = NULL;
    tt_error err = {0};
    (void)state;
    if (!INTERPOSED)
        skip();
    snprintf(l.key, sizeof l.key, "no-eventfd-%ld", (long)getpid());
    no_eventfd = true;
    assert_int_equal(tt_session_open(&o, &s, &err), TT_ECOMM);
    no_eventfd = false;
    assert_non_null(strstr(err.text, "cannot create an eventfd"));
    assert_int_equal(make_session(&l, &err), TT_OK);
}

static tt_status make_saver(void *user, tt_error *err)
{
    tt_saver *s = NULL;
    (void)user;
    const tt_saver_opts o = {0};
    return tt_saver_new(&o, &s, err);
}

static void test_no_memory_for_a_saver_is_an_error(void **state)
{
    tt_error err = {0};
    (void)state;
    if (!INTERPOSED)
        skip();
    refuse_at = 1;
    assert_int_equal(make_saver(NULL, &err), TT_ENOMEM);
    refuse_at = 0;
    assert_string_equal(err.text, "no memory for saving checkpoints");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_memory_for_a_queue_is_an_error),
        cmocka_unit_test(test_no_memory_for_a_session_is_an_error),
        cmocka_unit_test(test_no_descriptor_for_a_session_is_an_error),
        cmocka_unit_test(test_no_memory_for_a_saver_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
