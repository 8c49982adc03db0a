/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/base.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <cmocka.h>

/* What a rank does while the rank that it has connected to has not answered yet. The test's own functions say what
 * arrives, and count. */

enum { STEPS = 8, ENDLESS = 1000, ANSWER = 16 };

typedef struct step {
    ssize_t k; /* what recv returns; behind the last step, the one before it once more */
    int why;   /* errno */
} step;

static const step *script;
static int offered[2] = {-1, -1},
           n_offered;                 /* connections that wait to be accepted, as copies of one */
static int n_recv, n_accept, stop_at; /* 0: the run is not stopped */
static double now, tick;              /* what a look at the clock adds */

static ssize_t scripted_recv(int fd, void *to, size_t n, int flags)
{
    int i = 0;
    (void)fd;
    assert_true(flags & MSG_DONTWAIT);
    if (++n_recv > ENDLESS) /* it only looks for bytes */
        return 0;
    while (i + 1 < n_recv && i + 1 < STEPS && (script[i + 1].k || script[i + 1].why))
        i++;
    const step s = script[i];
    errno = s.why;
    assert_true(s.k <= (ssize_t)n);
    if (s.k > 0)
        memset(to, n_recv, (size_t)s.k);
    return s.k;
}

static int counted_accept(int fd, struct sockaddr *a, socklen_t *n, int flags)
{
    (void)fd;
    (void)a;
    (void)n;
    (void)flags;
    char nonce[16];
    if (n_accept++ && offered[1] >= 0) /* somebody reads what it is sent */
        (void)!read(offered[1], nonce, sizeof nonce);
    errno = EAGAIN;
    return n_offered > 0 && n_offered-- ? dup(offered[0]) : -1;
}

#include "../../plugins/comms/tcp/code.c"
#include "../../plugins/comms/tcp/code_avx2.c"
#define recv scripted_recv
#define accept4 counted_accept
#include "../../plugins/comms/tcp/meet.c"
#undef recv
#undef accept4

tt_status tcp_check(tcp_end *e, tt_error *err)
{
    (void)e;
    return stop_at && n_recv >= stop_at ? TT_FAIL(err, TT_ECOMM, "stopped") : TT_OK;
}

void tcp_hear(tcp_end *e)
{
    (void)e;
}

double tcp_now(void)
{
    return now += tick;
}

static bool hear(const step *s, int stops, uint8_t out[ANSWER])
{
    tcp_end e = {.listener = -1, .accepting = PTHREAD_MUTEX_INITIALIZER};
    script = s;
    n_recv = n_accept = 0;
    stop_at = stops;
    memset(out, 0, ANSWER);
    return hear_answer(&e, -1, out, ANSWER);
}

/* Others are accepted whenever there is nothing to read, and only then. */
static void test_others_are_accepted_while_an_answer_is_awaited(void **state)
{
    static const struct {
        step s[STEPS];
        int n_recv, n_accept;
    } cases[] = {
        {{{16, 0}},                                                  1, 0},
        {{{-1, EAGAIN}, {-1, EAGAIN}, {-1, EINTR}, {5, 0}, {11, 0}}, 5, 3},
        {{{15, 0}, {-1, EAGAIN}, {1, 0}},                            3, 1},
    };
    (void)state;
    tick = 0;
    for (size_t i = 0; i < TT_COUNT(cases); i++) {
        uint8_t out[ANSWER];
        assert_true(hear(cases[i].s, 0, out));
        assert_int_equal(n_recv, cases[i].n_recv);
        assert_int_equal(n_accept, cases[i].n_accept);
        assert_int_equal(out[ANSWER - 1], n_recv); /* the last byte came last */
        assert_true(out[0] > 0);
    }
}

/* An end of the connection, an error, a stop, and the time that a hello has, end it. */
static void test_an_answer_that_does_not_come_is_given_up(void **state)
{
    static const step closed[STEPS] =
        {
            {-1, EAGAIN    },
            {4,  0         },
            {-1, ECONNRESET}
    },
                      silent[STEPS] = {{-1, EAGAIN}}, slow[STEPS] = {{7, 0}, {-1, EAGAIN}};
    static const step ended[STEPS] = {
        {0, 0}
    };
    uint8_t out[ANSWER];
    (void)state;
    tick = 0;
    assert_false(hear(ended, 0, out));
    assert_int_equal(n_recv, 1);
    assert_false(hear(closed, 0, out));
    assert_int_equal(n_recv, 3);
    assert_false(hear(silent, 5, out));
    assert_int_equal(n_recv, 5);
    assert_int_equal(n_accept, 4);
    tick = hello_s() / 4;
    for (int i = 0; i < 2; i++) {
        const double begin = now;
        assert_false(hear(i ? slow : silent, 0, out));
        assert_true(n_recv < ENDLESS && n_accept > 1 && now - begin > hello_s());
    }
}

static int n_silent(const tcp_end *e)
{
    int n = 0;
    for (const pending *p = e->pending; p; p = p->next)
        n += p->n_read < sizeof p->h;
    return n;
}

/* A run has a thousand files; silent connections must leave them to it, and ranks must come through. */
static void test_silent_connections_hold_few_descriptors(void **state)
{
    static const step silent[STEPS] = {
        {-1, EAGAIN}
    };
    tcp_end e = {.listener = -1, .accepting = PTHREAD_MUTEX_INITIALIZER};
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, offered), 0);
    script = silent;
    n_offered = 700;
    now = tick = 0;
    static const struct {
        double at;
        int left;
    } rows[] = {
        {0,    700 - MOST_SILENT    },
        {0.05, 700 - MOST_SILENT    },
        {0.11, 700 - 2 * MOST_SILENT},
        {0.15, 700 - 2 * MOST_SILENT},
        {0.25, 0                    }
    };
    for (size_t i = 0; i < TT_COUNT(rows); i++) {
        now = rows[i].at * hello_s();
        n_recv = 0;
        tcp_accept(&e);
        assert_int_equal(n_offered, rows[i].left);
        assert_in_range(n_silent(&e), MOST_SILENT - 1, MOST_SILENT);
    }
    /* one that has said its hello keeps no place from others, and stays */
    pending *oldest = e.pending;
    while (oldest->next)
        oldest = oldest->next;
    oldest->n_read = sizeof oldest->h;
    n_offered = 1;
    n_recv = 0;
    tcp_accept(&e);
    assert_int_equal(n_offered, 0);
    for (pending *p = e.pending, *next; p; p = next) {
        next = p->next;
        assert_true(next || p == oldest);
        close(p->fd);
        free(p);
    }
    close(offered[0]);
    close(offered[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_silent_connections_hold_few_descriptors),
        cmocka_unit_test(test_others_are_accepted_while_an_answer_is_awaited),
        cmocka_unit_test(test_an_answer_that_does_not_come_is_given_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
