/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/base.h"
#include "tier.h"
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

/* A bit that changes on the way between two ranks of comm "tcp": of a head, of data and of their codes, of collectives
 * and of messages. Three ranks are threads with the plugin's own files; what they send goes through this file, which turns
 * the n-th bit. */

enum { RANKS = 3, MOST_FDS = 256, LARGE = 25000 };

static struct {
    pthread_mutex_t lock;
    int64_t n_sent, at;  /* bytes so far; the byte that changes, -1: none */
    int bit, from, to;   /* from, to: the ranks between which it changed; -1: it has not */
    int owner[MOST_FDS]; /* rank + 1 of the end of a connection; 0: nothing changes there */
    int other[MOST_FDS];
} way = {.lock = PTHREAD_MUTEX_INITIALIZER};

static ssize_t send_on_the_way(int fd, const struct iovec *parts, int n_parts, int flags)
{
    static char copy[sizeof(float) * LARGE + 64];
    struct iovec one = {copy, 0};
    const struct msghdr m = {.msg_iov = &one, .msg_iovlen = 1};
    pthread_mutex_lock(&way.lock);
    for (int i = 0; i < n_parts; i++) {
        const size_t room = sizeof copy - one.iov_len,
                     n = parts[i].iov_len < room ? parts[i].iov_len : room;
        if (n)
            memcpy(copy + one.iov_len, parts[i].iov_base, n);
        one.iov_len += n;
    }
    const int64_t here = way.at - way.n_sent;
    const bool counts = way.owner[fd] > 0, is_here = here >= 0 && here < (int64_t)one.iov_len;
    if (counts && is_here)
        copy[here] ^= (char)(1 << way.bit);
    const ssize_t k = sendmsg(fd, &m, flags);
    if (counts && k > 0) {
        way.n_sent += k;
        if (is_here && here < k) {
            way.from = way.owner[fd] - 1;
            way.to = way.other[fd];
        }
    }
    pthread_mutex_unlock(&way.lock);
    return k;
}

static ssize_t sent_parts(int fd, const struct msghdr *m, int flags)
{
    return send_on_the_way(fd, m->msg_iov, (int)m->msg_iovlen, flags);
}

static ssize_t sent_bytes(int fd, const void *p, size_t n, int flags)
{
    const struct iovec one = {(void *)(uintptr_t)p, n};
    return send_on_the_way(fd, &one, 1, flags);
}

#include "../../plugins/comms/tcp/code.c"
#include "../../plugins/comms/tcp/code_avx2.c"
#include "../../plugins/comms/tcp/pairwise.c"
#include "../../plugins/comms/tcp/wait.c"
#define send sent_bytes
#define sendmsg sent_parts
#include "../../plugins/comms/tcp/exchange.c"
#include "../../plugins/comms/tcp/messages.c"
#undef send
#undef sendmsg

double tcp_now(void)
{
    return 0;
}

void tcp_accept(tcp_end *e)
{
    (void)e;
}

/* ---- the ranks ---- */

typedef struct rank {
    tcp_end end;
    tcp_peer peers[RANKS];
    tt_comm c;
    int fds[3][RANKS];
    transfer transfers[RANKS];
    struct pollfd polled[RANKS];
    outbox boxes[RANKS];
    pthread_t thread;
    tt_status (*calls)(struct rank *, tt_error *);
    tt_status status;
    tt_error err;
} rank;

static rank ranks[RANKS];
static atomic_int n_wrong, n_well;

/* Both directions of a connection. */
static void connect_ends(int *a, int rank_a, int *b, int rank_b)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    assert_true(fds[0] < MOST_FDS && fds[1] < MOST_FDS);
    *a = fds[0];
    *b = fds[1];
    way.owner[*a] = rank_a + 1;
    way.owner[*b] = rank_b + 1;
    way.other[*a] = rank_b;
    way.other[*b] = rank_a;
}

static void open_ranks(tt_status (*calls)(rank *, tt_error *))
{
    static const int all[RANKS] = {0, 1, 2};
    memset(ranks, 0, sizeof ranks);
    memset(way.owner, 0, sizeof way.owner);
    for (int i = 0; i < RANKS; i++) {
        rank *r = &ranks[i];
        r->calls = calls;
        r->end = (tcp_end){.rank = i,
                           .world = RANKS,
                           .start = 4711,
                           .wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                           .peers = r->peers,
                           .groups = &r->c,
                           .lock = PTHREAD_MUTEX_INITIALIZER};
        r->c = (tt_comm){
            .p = {.t = &tcp_transport, .timeout_s = &r->end.timeout_s},
            .e = &r->end,
            .fds = { r->fds[0],          r->fds[1],                      r->fds[2]},
            .transfers = r->transfers,
            .polled = r->polled,
            .boxes = r->boxes
        };
        tcp_choose_codes(&r->end);
        for (int j = 0; j < RANKS; j++) {
            r->peers[j].fd = r->fds[0][j] = r->fds[1][j] = r->fds[2][j] = -1;
            snprintf(r->peers[j].host, sizeof r->peers[j].host, "host%d", j);
        }
        assert_int_equal(pair_open(&r->c.p, all, RANKS, i, NULL), TT_OK);
    }
    for (int i = 0; i < RANKS; i++)
        for (int j = 0; j < i; j++) {
            rank *a = &ranks[i], *b = &ranks[j];
            connect_ends(&a->peers[j].fd, i, &b->peers[i].fd, j);
            connect_ends(&a->fds[0][j], i, &b->fds[0][i], j);
            connect_ends(&a->fds[1][j], i, &b->fds[2][i], j);
            connect_ends(&a->fds[2][j], i, &b->fds[1][i], j);
            way.owner[b->fds[2][i]] = way.owner[a->fds[2][j]] = 0; /* of an answer no bit matters */
        }
}

static void close_ranks(void)
{
    for (int i = 0; i < RANKS; i++) {
        rank *r = &ranks[i];
        for (int j = 0; j < RANKS; j++) {
            for (int k = 0; k < 3 && j != i; k++)
                close(r->fds[k][j]);
            if (j != i)
                close(r->peers[j].fd);
            for (int k = 0; k < PAIR_IN_FLIGHT; k++)
                free(r->boxes[j].out[k].data);
        }
        close(r->end.wake);
        pair_close(&r->c.p);
    }
}

static const char *text_of(const rank *r)
{
    return strncmp(r->err.text, "stopped: ", 9) ? r->err.text : r->err.text + 9;
}

static void *rank_main(void *arg)
{
    rank *r = arg;
    r->status = r->calls(r, &r->err);
    if (r->status != TT_OK) /* as the core does */
        tcp_abort_run(&r->end, text_of(r));
    n_well += r->status == TT_OK;
    while (r->status == TT_OK && n_well < RANKS) { /* a later call would hear of it */
        r->status = tcp_check(&r->end, &r->err);
        sched_yield();
    }
    return NULL;
}

static void run(tt_status (*calls)(rank *, tt_error *), int64_t at, int bit)
{
    open_ranks(calls);
    n_wrong = n_well = 0;
    way.n_sent = 0;
    way.at = at;
    way.bit = bit;
    way.from = way.to = -1;
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(pthread_create(&ranks[i].end.thread, NULL, tcp_watch, &ranks[i].end), 0);
        assert_int_equal(pthread_create(&ranks[i].thread, NULL, rank_main, &ranks[i]), 0);
    }
    for (int i = 0; i < RANKS; i++)
        pthread_join(ranks[i].thread, NULL);
    for (int i = 0; i < RANKS; i++) {
        const uint64_t one = 1;
        atomic_store(&ranks[i].end.closing, 1);
        assert_int_equal(write(ranks[i].end.wake, &one, sizeof one), sizeof one);
        pthread_join(ranks[i].end.thread, NULL);
    }
    close_ranks();
}

/* ---- what they call ---- */

/* A number of element i of a member's data; sums of three are exact. */
static float number(int member, int i)
{
    return (float)(member * 1000 + i % 997);
}

static void fill_numbers(float *x, int member, int n)
{
    for (int i = 0; i < n; i++)
        x[i] = number(member, i);
}

static void expect_numbers(const float *x, int member, int n)
{
    for (int i = 0; i < n; i++)
        n_wrong += x[i] != number(member, i);
}

static void expect_sums(const float *x, int n)
{
    for (int i = 0; i < n; i++)
        n_wrong += x[i] != number(0, i) + number(1, i) + number(2, i);
}

static tt_status call_all_reduce(rank *r, int n, tt_error *err)
{
    static float all[RANKS][LARGE];
    float *x = all[r->end.rank];
    fill_numbers(x, r->end.rank, n);
    TT_TRY(pair_all_reduce(&r->c, x, n, TT_F32, TT_SUM, err));
    expect_sums(x, n);
    return TT_OK;
}

static tt_status call_all_gather(rank *r, int n, tt_error *err)
{
    static float all[RANKS][RANKS * LARGE], mine[RANKS][LARGE];
    const int64_t counts[RANKS] = {n, n - 1, 0};
    const int me = r->end.rank;
    fill_numbers(mine[me], me, n);
    TT_TRY(pair_all_gather(&r->c, mine[me], all[me], counts, TT_F32, err));
    expect_numbers(all[me], 0, n);
    expect_numbers(all[me] + n, 1, n - 1);
    return TT_OK;
}

static tt_status call_reduce_scatter(rank *r, tt_error *err)
{
    const int64_t counts[RANKS] = {5, 0, 0};
    float x[5], sums[5];
    fill_numbers(x, r->end.rank, 5);
    TT_TRY(pair_reduce_scatter(&r->c, x, sums, counts, TT_F32, TT_SUM, err));
    expect_sums(sums, r->end.rank ? 0 : 5);
    return TT_OK;
}

static tt_status call_all_to_all(rank *r, tt_error *err)
{
    const int64_t counts[RANKS] = {3, 3, 3};
    float x[9], y[9];
    for (int i = 0; i < RANKS; i++)
        fill_numbers(x + (ptrdiff_t)3 * i, r->end.rank, 3);
    TT_TRY(pair_all_to_all(&r->c, x, counts, y, counts, TT_F32, err));
    for (int i = 0; i < RANKS; i++)
        expect_numbers(y + (ptrdiff_t)3 * i, i, 3);
    return TT_OK;
}

/* Around a ring. */
static tt_status call_messages(rank *r, int n, tt_error *err)
{
    static float out[RANKS][LARGE], in[RANKS][LARGE];
    const int me = r->end.rank, before = (me + RANKS - 1) % RANKS;
    const int64_t bytes = (int64_t)sizeof(float) * n;
    fill_numbers(out[me], me, n);
    TT_TRY(tcp_send(&r->c, (me + 1) % RANKS, out[me], bytes, err));
    TT_TRY(tcp_recv(&r->c, before, in[me], bytes, err));
    expect_numbers(in[me], before, n);
    return TT_OK;
}

static tt_status call_small(rank *r, tt_error *err)
{
    TT_TRY(call_all_reduce(r, 2, err)); /* with the heads */
    TT_TRY(call_messages(r, 9, err));
    TT_TRY(call_messages(r, 0, err));
    TT_TRY(call_all_gather(r, 7, err));
    TT_TRY(call_reduce_scatter(r, err));
    TT_TRY(call_all_to_all(r, err));
    TT_TRY(call_all_reduce(r, PAIR_INLINE_BYTES / 4 + 1, err));
    return pair_barrier(&r->c, err);
}

static tt_status call_large(rank *r, tt_error *err) /* more than a block of the code */
{
    TT_TRY(call_all_gather(r, LARGE, err));
    return call_messages(r, LARGE, err);
}

/* ---- tests ---- */

static const struct {
    tt_status (*calls)(rank *, tt_error *);
    int flips;
} scripts[] = {
    {call_small, 150},
    {call_large, 12 }
};

static int64_t bytes_of(tt_status (*calls)(rank *, tt_error *), const char *secret)
{
    if (secret)
        setenv("TTRUN_COMM_SECRET", secret, 1);
    else
        unsetenv("TTRUN_COMM_SECRET");
    run(calls, -1, 0);
    for (int i = 0; i < RANKS; i++)
        if (ranks[i].status != TT_OK)
            fail_msg("rank %d: %s", i, ranks[i].err.text);
    assert_int_equal(n_wrong, 0);
    return way.n_sent;
}

/* Codes are sent where there is a secret, and the numbers are the same. */
static void test_what_is_sent_has_codes_where_there_is_a_secret(void **state)
{
    (void)state;
    for (size_t i = 0; i < TT_COUNT(scripts); i++) {
        const int64_t n = bytes_of(scripts[i].calls, NULL);
        assert_int_equal(bytes_of(scripts[i].calls, ""), n);
        assert_true(bytes_of(scripts[i].calls, "a secret") > n);
    }
}

static void expect_the_cause(int64_t at)
{
    char between[100];
    if (way.from < 0)
        fail_msg("bit %d of byte %lld was not sent", way.bit, (long long)at);
    snprintf(between, sizeof between, ": bits have changed between rank %d on host%d and rank %d (",
             way.from, way.from, way.to);
    for (int i = 0; i < RANKS; i++)
        if (ranks[i].status != TT_ECOMM || !strstr(text_of(&ranks[i]), between) ||
            strcmp(text_of(&ranks[i]), text_of(&ranks[way.to])))
            fail_msg("bit %d of byte %lld, from rank %d to %d: rank %d has status %d: %s", way.bit,
                     (long long)at, way.from, way.to, i, ranks[i].status, ranks[i].err.text);
    if (n_wrong)
        fail_msg("bit %d of byte %lld: %d numbers are wrong", way.bit, (long long)at, n_wrong);
}

/* Every rank hears the same line, which names both ends, and no call that succeeded has another number. */
static void test_a_changed_bit_ends_the_run_of_all_ranks(void **state)
{
    uint64_t random = 88172645463325252u;
    (void)state;
    for (size_t i = 0; i < TT_COUNT(scripts); i++) {
        const int64_t n = bytes_of(scripts[i].calls, "a secret");
        const int64_t flips = is_long() ? TT_MIN(n, 10000) : scripts[i].flips, part = n / flips;
        for (int64_t k = 0; k < flips; k++) { /* one in each of so many equal parts */
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            const int64_t at = part * k + (int64_t)(random % (uint64_t)part);
            run(scripts[i].calls, at, (int)(random >> 32 & 7));
            expect_the_cause(at);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_sent_has_codes_where_there_is_a_secret),
        cmocka_unit_test(test_a_changed_bit_ends_the_run_of_all_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
