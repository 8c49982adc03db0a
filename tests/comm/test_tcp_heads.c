/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/base.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../plugins/comms/tcp/code.c"
#include "../../plugins/comms/tcp/code_avx2.c"
#include "../../plugins/comms/tcp/exchange.c"

/* The first bytes of a collective of comm "tcp", from a member that may send anything: this is one of two members, and
 * the test has the other end of its connection. */

static int n_looks; /* at the run, while a call waits */

tt_status tcp_check(tcp_end *e, tt_error *err)
{
    (void)e;
    return n_looks++ ? TT_FAIL(err, TT_ETIMEOUT, "it waits for more bytes") : TT_OK;
}

void tcp_ended(tcp_end *e, int rank, double *since)
{
    (void)e;
    (void)rank;
    (void)since;
}

double tcp_now(void)
{
    return 0;
}

void tcp_abort_run(void *self, const char *why)
{
    (void)self;
    (void)why;
}

typedef struct connected {
    tcp_end end;
    tt_comm c;
    int ranks[2], fds[2], other;
    pair_head in[2], out[2];
    transfer transfers[2];
    struct pollfd polled[2];
} connected;

static void connect_two(connected *x)
{
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    memset(x, 0, sizeof *x);
    x->fds[0] = -1;
    x->fds[1] = ends[0];
    x->other = ends[1];
    x->ranks[0] = 3;
    x->ranks[1] = 5;
    x->c = (tt_comm){
        .p = {.n = 2,
              .ranks = x->ranks,
              .sequence = 7,
              .op = "all_reduce",
              .in = x->in,
              .out = x->out},
        .e = &x->end,
        .fds = {x->fds},
        .transfers = x->transfers,
        .polled = x->polled
    };
    n_looks = 0;
}

static void disconnect(const connected *x)
{
    close(x->fds[1]);
    close(x->other);
}

static void test_a_head_brings_its_data(void **state)
{
    static const int64_t sizes[] = {0, 1, PAIR_INLINE_BYTES};
    connected x;
    (void)state;
    for (size_t i = 0; i < TT_COUNT(sizes); i++) {
        tt_error err = {0};
        pair_head theirs = {.op = 1, .size = 2, .sequence = 7, .n_inline = sizes[i]}, ours;
        const size_t n = PAIR_HEAD_BYTES + (size_t)sizes[i];
        connect_two(&x);
        memset(theirs.data, 'x', sizeof theirs.data);
        memset(x.out[1].data, 'y', sizeof x.out[1].data);
        x.out[1].n_inline = sizes[i];
        assert_int_equal(write(x.other, &theirs, n), n);
        if (tcp_transport.heads(&x.c, &err) != TT_OK)
            fail_msg("%s", err.text);
        assert_memory_equal(&x.in[1], &theirs, n);
        assert_int_equal(read(x.other, &ours, sizeof ours), n);
        assert_memory_equal(&ours, &x.out[1], n);
        disconnect(&x);
    }
}

static void test_a_head_that_is_no_call_is_named(void **state)
{
    static const int64_t sizes[] = {-1, PAIR_INLINE_BYTES + 1, INT64_MIN, INT64_MAX};
    connected x;
    (void)state;
    for (size_t i = 0; i < TT_COUNT(sizes); i++) {
        tt_error err = {0};
        const pair_head theirs = {.n_inline = sizes[i]};
        connect_two(&x);
        assert_int_equal(write(x.other, &theirs, PAIR_HEAD_BYTES), PAIR_HEAD_BYTES);
        assert_int_equal(tcp_transport.heads(&x.c, &err), TT_ECOMM);
        assert_string_equal(err.text, "all_reduce number 7: rank 5 sent what is no call");
        disconnect(&x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_head_brings_its_data),
        cmocka_unit_test(test_a_head_that_is_no_call_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
