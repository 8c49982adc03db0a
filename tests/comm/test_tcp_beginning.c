/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/base.h"
#include "tier.h"
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <ttrun/patience.h>
#include <unistd.h>

#include <cmocka.h>

/* A bit that changes in what ranks of comm "tcp" say beside their calls: in the beginning of a connection, in the
 * addresses that rank 0 tells and in the last words of a rank. Three ranks are threads with the whole plugin; what they
 * send goes through this file, which knows these by their sizes and turns a bit. */

enum { RANKS = 3 };

static struct {
    pthread_mutex_t lock;
    size_t size, at; /* of what changes: its bytes, and which one; 0: nothing does */
    int nth, n;      /* which of those of this size, -1: all; how many there were */
    int bit;
} way = {.lock = PTHREAD_MUTEX_INITIALIZER};

static ssize_t send_on_the_way(int fd, const struct iovec *parts, int n_parts, int flags)
{
    char copy[8192];
    struct iovec one = {copy, 0};
    const struct msghdr m = {.msg_iov = &one, .msg_iovlen = 1};
    for (int i = 0; i < n_parts; i++) {
        const size_t room = sizeof copy - one.iov_len,
                     n = parts[i].iov_len < room ? parts[i].iov_len : room;
        if (n)
            memcpy(copy + one.iov_len, parts[i].iov_base, n);
        one.iov_len += n;
    }
    pthread_mutex_lock(&way.lock);
    const bool changes = one.iov_len == way.size && (way.nth == -1 || way.nth == way.n);
    way.n += one.iov_len == way.size;
    pthread_mutex_unlock(&way.lock);
    if (changes)
        copy[way.at] ^= (char)(1 << way.bit);
    return sendmsg(fd, &m, flags);
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

static bool any_line; /* a rank that has lost one connection need not wait for the cause */

static int64_t short_moment(int64_t ns)
{
    return any_line && ns == TT_RANK_MOMENT_NS ? TT_NS(0.001) : tt_patience(ns);
}

#define send sent_bytes
#define sendmsg sent_parts
#define tt_patience short_moment
#include "../../plugins/comms/tcp/code.c"
#include "../../plugins/comms/tcp/code_avx2.c"
#include "../../plugins/comms/tcp/exchange.c"
#include "../../plugins/comms/tcp/meet.c"
#include "../../plugins/comms/tcp/messages.c"
#include "../../plugins/comms/tcp/pairwise.c"
#include "../../plugins/comms/tcp/tcp.c"
#include "../../plugins/comms/tcp/wait.c"
#undef send
#undef sendmsg
#undef tt_patience

/* ---- the ranks ---- */

typedef struct rank {
    tcp_end *end;
    tt_comm *group;
    pthread_t thread;
    tt_status status;
    tt_error err;
} rank;

static rank ranks[RANKS];
static atomic_int n_wrong, n_well;
static atomic_bool rank0_failed;
static struct {
    int port, messages;
    bool fails;  /* rank 1, before its calls */
    struct cut { /* of a connection of the group, before any call */
        int rank, fd_of, member, how;
    } cut;
} script;

/* As a launcher: without rank 0, a rank that has not reached it would try until its time is up. */
static tt_status stopped(void *user, tt_error *err)
{
    const tcp_end *e = ((rank *)user)->end;
    return e->peers && e->rank && e->peers[0].fd < 0 && rank0_failed
               ? TT_FAIL(err, TT_ECOMM, "rank 0 has ended")
               : TT_OK;
}

/* A sum, which goes with the heads, a larger one, and a message around the ring. */
static tt_status call_all(rank *r, tt_error *err)
{
    enum { N = 300 };
    const int me = r->end->rank, before = (me + RANKS - 1) % RANKS;
    float x[N], got = 0;
    if (me == script.cut.rank)
        shutdown(r->group->fds[script.cut.fd_of][script.cut.member], script.cut.how);
    for (int n = 2; n <= N; n += N - 2) {
        for (int i = 0; i < n; i++)
            x[i] = (float)(me + i);
        TT_TRY(pair_all_reduce(r->group, x, n, TT_F32, TT_SUM, err));
        for (int i = 0; i < n; i++)
            n_wrong += x[i] != (float)(3 + 3 * i);
    }
    for (int i = 0; i < script.messages; i++) {
        x[0] = (float)(10 * me + i);
        TT_TRY(tcp_send(r->group, (me + 1) % RANKS, x, sizeof *x, err));
        TT_TRY(tcp_recv(r->group, before, &got, sizeof got, err));
        n_wrong += got != (float)(10 * before + i);
    }
    return pair_barrier(r->group, err);
}

static tt_status do_all(rank *r, tt_error *err)
{
    static const int all[RANKS] = {0, 1, 2};
    const tcp_config config = {"127.0.0.1", script.port};
    TT_TRY(open_end(r->end, &config, err));
    TT_TRY(tcp_group(r->end, all, RANKS, 4711, &r->group, err));
    if (script.fails && r->end->rank == 1)
        return TT_FAIL(err, TT_EIO, "the disk is full");
    return call_all(r, err);
}

static void *rank_main(void *arg)
{
    rank *r = arg;
    r->status = do_all(r, &r->err);
    n_well += r->status == TT_OK;
    while (r->status == TT_OK && n_well < RANKS) { /* a later call would hear of it */
        r->status = tcp_check(r->end, &r->err);
        sched_yield();
    }
    if (r->status != TT_OK && r->end->running) /* as the core does */
        tcp_abort_run(r->end, r->err.text);
    if (r->status != TT_OK && r == ranks)
        rank0_failed = true;
    if (r->group)
        tcp_group_free(r->group);
    if (r->end->running)
        close_(r->end, r->status == TT_OK);
    else
        end_free(r->end);
    return NULL;
}

/* A port that is ours until the next call: a socket stays bound to it, and listens not, so that rank 0 may. */
static int reserved_port(void)
{
    static int reserved = -1;
    const int one = 1;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    if (reserved >= 0)
        close(reserved);
    reserved = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(reserved >= 0);
    assert_int_equal(setsockopt(reserved, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one), 0);
    assert_int_equal(bind(reserved, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(getsockname(reserved, (struct sockaddr *)&a, &n), 0);
    return ntohs(a.sin_port);
}

static void run(void)
{
    memset(ranks, 0, sizeof ranks);
    n_wrong = n_well = way.n = 0;
    rank0_failed = false;
    script.port = reserved_port();
    for (int i = 0; i < RANKS; i++) {
        ranks[i].end = calloc(1, sizeof(tcp_end));
        assert_non_null(ranks[i].end);
        *ranks[i].end = (tcp_end){.rank = i,
                                  .world = RANKS,
                                  .stopped = stopped,
                                  .user = &ranks[i],
                                  .listener = -1,
                                  .wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                                  .lock = PTHREAD_MUTEX_INITIALIZER,
                                  .accepting = PTHREAD_MUTEX_INITIALIZER};
    }
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(pthread_create(&ranks[i].thread, NULL, rank_main, &ranks[i]), 0);
    for (int i = 0; i < RANKS; i++)
        pthread_join(ranks[i].thread, NULL);
}

static void take_script(const char *secret)
{
    script.fails = false;
    script.messages = PAIR_IN_FLIGHT + 1;
    any_line = true;
    script.cut.rank = -1;
    way.size = 0;
    if (secret)
        setenv("TTRUN_COMM_SECRET", secret, 1);
    else
        unsetenv("TTRUN_COMM_SECRET");
}

/* Each rank has an error, which has this text; NULL: any. */
static void expect_an_end(const char *text)
{
    for (int i = 0; i < RANKS; i++)
        if (ranks[i].status == TT_OK || !ranks[i].err.text[0] ||
            (text && !strstr(ranks[i].err.text, text)))
            fail_msg("bit %d of byte %zu of %zu, rank %d: %s", way.bit, way.at, way.size, i,
                     ranks[i].err.text);
}

static void expect_numbers(void)
{
    for (int i = 0; i < RANKS; i++)
        if (ranks[i].status != TT_OK || n_wrong)
            fail_msg("bit %d of byte %zu of %zu, rank %d: %d numbers are wrong; %s", way.bit,
                     way.at, way.size, i, n_wrong, ranks[i].err.text);
}

/* ---- tests ---- */

static uint64_t next_random(void)
{
    static uint64_t random = 88172645463325252u;
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    return random >> 16;
}

/* Either a connection is begun once more and all numbers are right, or every rank has a line. No rank waits without end:
 * none has a limit here. */
static void test_a_changed_bit_of_a_beginning(void **state)
{
    enum { HEALS = 1, ENDS = 2 };
    static const struct {
        size_t size;
        int what;
    } rows[] = {
        {NONCE,                                HEALS       },
        {sizeof(hello),                        HEALS       },
        {TT_HMAC_BYTES,                        HEALS | ENDS}, /* whether the other one has taken the connection */
        {RANKS * sizeof(seat) + TT_HMAC_BYTES, ENDS        },
    };
    (void)state;
    for (size_t i = 0; i < 2 * TT_COUNT(rows); i++) {
        const int what = rows[i / 2].what;
        take_script(i % 2 ? "a secret" : NULL);
        way.size = rows[i / 2].size;
        way.nth = INT_MAX;
        run();
        expect_numbers();
        const int n = way.n;
        assert_true(n >= RANKS - 1);
        for (int k = 0; k < (is_long() ? 200 : 6); k++) {
            way.nth = (int)(next_random() % (uint64_t)n);
            way.at = next_random() % way.size;
            way.bit = (int)(next_random() & 7);
            run();
            if (what == ENDS || (what != HEALS && ranks[0].status != TT_OK))
                expect_an_end(NULL);
            else
                expect_numbers();
            if (what == ENDS)
                assert_non_null(strstr(ranks[1 + way.nth].err.text,
                                       "the addresses of all ranks: bits have changed between"));
        }
    }
}

/* That a rank has failed is known all the same. */
static void test_a_changed_bit_of_a_last_word(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        take_script(i % 2 ? "a secret" : NULL);
        script.fails = true;
        any_line = false;
        if (i > 1) {
            way.size = sizeof(said);
            way.nth = -1;
            way.at = i < 4 ? 0 : next_random() % way.size;
            way.bit = (int)(next_random() & 7);
        }
        run();
        expect_an_end(NULL);
        assert_string_equal(ranks[1].err.text, "the disk is full");
        const char *text = i > 1 ? "what a rank said last: bits have changed" : "the disk is full";
        if (!strstr(ranks[0].err.text, text) || !strstr(ranks[2].err.text, text))
            fail_msg("byte %zu: %s, %s", way.at, ranks[0].err.text, ranks[2].err.text);
    }
}

/* The network has cut one connection of two ranks that have others. */
static void test_a_connection_that_ends_alone_ends_the_run(void **state)
{
    static const struct {
        struct cut cut;
        int messages;
    } rows[] = {
        {{1, 0, 2, SHUT_RDWR}, 0                 }, /* a collective */
        {{1, 1, 2, SHUT_RDWR}, 1                 }, /* rank 2 waits for a message */
        {{2, 2, 1, SHUT_WR},   PAIR_IN_FLIGHT + 1}, /* rank 1 waits for an answer */
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(rows); i++) {
        take_script("a secret");
        script.cut = rows[i].cut;
        script.messages = rows[i].messages;
        run();
        expect_an_end("its connection has ended");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_changed_bit_of_a_last_word),
        cmocka_unit_test(test_a_connection_that_ends_alone_ends_the_run),
        cmocka_unit_test(test_a_changed_bit_of_a_beginning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
