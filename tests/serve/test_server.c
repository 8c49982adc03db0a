/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "serve/server.h"
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <ttrun/option.h>
#include <ttrun/patience.h>
#include <unistd.h>

#include <cmocka.h>

/* How the server treats its clients. Its thread stands after each turn until the test lets it go on, its clock is the
 * test's, and the functions below take the place of libc's and of the model's. The engine always has work, so that no turn
 * waits. */

enum { MOST_FDS = 1024, MOST_BODIES = 1 << 18 };

static struct {
    pthread_t thread;
    sem_t goes, stands;
    bool ends, full; /* full: there is no descriptor for a connection */
    int port, n_begun, n_freed, n_refused_accepts;
    int64_t read; /* bytes */
    int accepted; /* the last one */
    bool is_open[MOST_FDS];
    bool answers; /* each request at once */
    size_t n_body;
    struct tt_api_call {
        tt_str *out; /* NULL: there is no call */
        bool done;
    } call;
} subject;
static _Atomic int64_t now_ns;

/* ---- of the system; libevent calls them, too ---- */

TT_EXPORT int clock_gettime(clockid_t id, struct timespec *t)
{
    if (id != CLOCK_MONOTONIC && id != CLOCK_MONOTONIC_COARSE)
        return (int)syscall(SYS_clock_gettime, id, t);
    *t = (struct timespec){now_ns / 1000000000, now_ns % 1000000000};
    return 0;
}

TT_EXPORT int accept4(int fd, __SOCKADDR_ARG from, socklen_t *n, int flags)
{
    if (subject.full) {
        subject.n_refused_accepts++;
        errno = EMFILE;
        return -1;
    }
    const int got = (int)syscall(SYS_accept4, fd, from.__sockaddr__, n, flags);
    if (got >= 0 && got < MOST_FDS) {
        subject.accepted = got;
        subject.is_open[got] = true;
    }
    return got;
}

TT_EXPORT ssize_t readv(int fd, const struct iovec *all, int n)
{
    const ssize_t got = syscall(SYS_readv, fd, all, n);
    subject.read += got > 0 ? got : 0;
    return got;
}

TT_EXPORT int close(int fd)
{
    if (fd >= 0 && fd < MOST_FDS)
        subject.is_open[fd] = false;
    return (int)syscall(SYS_close, fd);
}

/* ---- of the model ---- */

bool tt_engine_is_busy(const tt_engine *e)
{
    (void)e;
    return true;
}

tt_status tt_engine_step(tt_engine *e, tt_error *err)
{
    (void)e, (void)err;
    return TT_OK;
}

tt_status tt_api_admit(tt_api *a, tt_error *err)
{
    (void)a, (void)err;
    return TT_OK;
}

/* /no: a client without the key. */
int tt_api_judge(const tt_api *a, const tt_http_request *r, tt_http_reply *p, const char **why)
{
    (void)a;
    *p = (tt_http_reply){.keep_alive = r->keep_alive};
    *why = "no";
    return strcmp(r->path, "/no") ? 0 : 401;
}

void tt_api_begin(tt_api *a, const tt_http_request *r, tt_http_reply *p, tt_str *out,
                  tt_api_call **call)
{
    (void)a, (void)p;
    subject.n_begun++;
    subject.n_body = r->n_body;
    *call = NULL;
    if (subject.answers) {
        tt_str_add(out, "HTTP/1.1 200 at once\r\n\r\n");
        return;
    }
    subject.call = (struct tt_api_call){.out = out};
    *call = &subject.call;
}

void tt_api_fault(tt_str *out, tt_http_reply *p, int status, const char *why)
{
    p->keep_alive = false;
    tt_str_printf(out, "HTTP/1.1 %d %s", status, why);
}

bool tt_api_is_done(const tt_api_call *c)
{
    return c->done;
}

void tt_api_free(tt_api *a, tt_api_call *c)
{
    (void)a;
    if (!c)
        return;
    c->out = NULL;
    subject.n_freed++;
}

/* ---- the server's thread ---- */

static int stands(void)
{
    sem_post(&subject.stands);
    sem_wait(&subject.goes);
    return subject.ends;
}

static void listens(void *user, const char *url)
{
    (void)user;
    subject.port = atoi(strrchr(url, ':') + 1);
}

static void *serve(void *arg)
{
    tt_error err;
    const tt_server_opts o = {
        .host = "127.0.0.1", .stop = stands, .ready = listens, .most_bodies = MOST_BODIES};
    (void)arg;
    if (tt_server_run(&o, &err) != TT_OK)
        abort();
    return NULL;
}

static void turn(void)
{
    sem_post(&subject.goes);
    sem_wait(&subject.stands);
}

static int setup(void **state)
{
    (void)state;
    memset(&subject, 0, sizeof subject);
    now_ns = INT64_C(1000000000);
    sem_init(&subject.goes, 0, 0);
    sem_init(&subject.stands, 0, 0);
    if (pthread_create(&subject.thread, NULL, serve, NULL))
        return -1;
    sem_wait(&subject.stands);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    subject.ends = true;
    sem_post(&subject.goes);
    pthread_join(subject.thread, NULL);
    return 0;
}

/* ---- clients ---- */

typedef struct peer {
    int fd, accepted; /* accepted: the server's descriptor */
    char heard[4096]; /* of the answers */
    size_t n_heard;
    bool eof;
} peer;

static void call_server(peer *p)
{
    const struct sockaddr_in at = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)subject.port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    *p = (peer){.fd = socket(AF_INET, SOCK_STREAM, 0)};
    assert_return_code(connect(p->fd, (const struct sockaddr *)&at, sizeof at), errno);
}

static peer connected(void)
{
    peer p;
    call_server(&p);
    subject.accepted = -1;
    while (subject.accepted < 0)
        turn();
    p.accepted = subject.accepted;
    return p;
}

static bool is_open(const peer *p)
{
    return subject.is_open[p->accepted];
}

static void says(const peer *p, const char *text)
{
    const int64_t before = subject.read, n = (int64_t)strlen(text);
    assert_int_equal(send(p->fd, text, (size_t)n, 0), n);
    while (subject.read < before + n && is_open(p))
        turn();
    turn();
}

/* What has come by now. */
static const char *hear(peer *p)
{
    ssize_t n;
    while ((n = recv(p->fd, p->heard + p->n_heard, sizeof p->heard - 1 - p->n_heard,
                     MSG_DONTWAIT)) > 0)
        p->n_heard += (size_t)n;
    p->eof = p->eof || n == 0;
    assert_true(n == 0 || errno == EAGAIN);
    p->heard[p->n_heard] = '\0';
    return p->heard;
}

static void answers(const char *text)
{
    tt_str_add(subject.call.out, text);
    subject.call.done = true;
    turn();
    turn();
}

static void passes(int64_t ns)
{
    now_ns += ns;
    turn();
    turn();
}

/* ---- the tests ---- */

#define GET "GET / HTTP/1.1\r\nHost: a\r\n"
#define POST(path, n) "POST " path " HTTP/1.1\r\nHost: a\r\nContent-Length: " n "\r\n\r\n"

static const int64_t tick = 1000000;

/* What a client has said, and how long it may then wait, in all. */
static const struct {
    const char *text;
    int64_t limit_ns;
    const char *heard; /* when the limit is over */
} limits[] = {
    {"",          TT_HTTP_SILENT_NS,     ""                                             },
    {"GET / HTT", TT_HTTP_HEAD_NS,       "HTTP/1.1 408 the request has not come in time"},
    {"\r\n",      TT_HTTP_SILENT_NS,     ""                                             },
    {POST("/",    "9") "abc",            TT_HTTP_BODY_NS,                                 "HTTP/1.1 408 the request has not come in time"},
    {GET "\r\n",           TT_HTTP_SILENT_NS,                       "HTTP/1.1 200 at once\r\n\r\n"                                          },
    {GET "\r\nG",           TT_HTTP_HEAD_NS,
     "HTTP/1.1 200 at once\r\n\r\nHTTP/1.1 408 the request "
     "has not come in time" },
    {GET "Connection: close\r\n\r\nx",           TT_HTTP_LINGER_NS, "HTTP/1.1 200 at once\r\n\r\n"                   },
};

static void test_each_wait_has_a_limit(void **state)
{
    (void)state;
    subject.answers = true;
    for (size_t i = 0; i < TT_COUNT(limits); i++) {
        peer p = connected();
        if (*limits[i].text)
            says(&p, limits[i].text);
        passes(tt_patience(limits[i].limit_ns) - tick);
        const bool stays = is_open(&p) && !strstr(hear(&p), "408");
        passes(2 * tick);
        if (!stays || strcmp(hear(&p), limits[i].heard) != 0)
            fail_msg("row %zu: %d, %s", i, stays, p.heard);
        if (strstr(p.heard, "408"))
            passes(tt_patience(TT_HTTP_LINGER_NS) + tick);
        if (is_open(&p))
            fail_msg("row %zu stays for ever", i);
        close(p.fd);
    }
}

/* A byte now and then does not renew the limit of a head or a body. */
static void test_bytes_do_not_renew_a_limit(void **state)
{
    static const struct {
        const char *begin;
        int64_t limit_ns;
    } rows[] = {
        {"GET / HTTP/1.1\r\nA: ", TT_HTTP_HEAD_NS},
        { POST("/",                  "99"), TT_HTTP_BODY_NS},
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(rows); i++) {
        peer p = connected();
        says(&p, rows[i].begin);
        for (int k = 0; k < 9; k++) {
            passes(tt_patience(rows[i].limit_ns) / 10);
            says(&p, "x");
        }
        assert_string_equal(hear(&p), "");
        passes(tt_patience(rows[i].limit_ns) / 10 + tick);
        assert_non_null(strstr(hear(&p), " 408 "));
        close(p.fd);
    }
}

static void test_a_client_that_waits_for_us_stays(void **state)
{
    (void)state;
    peer p = connected();
    says(&p, GET "\r\n");
    for (int i = 0; i < 3; i++)
        passes(tt_patience(TT_HTTP_SILENT_NS));
    assert_non_null(subject.call.out);
    assert_true(is_open(&p));
    answers("HTTP/1.1 200 OK\r\n\r\n");
    assert_string_equal(hear(&p), "HTTP/1.1 200 OK\r\n\r\n");
    passes(tt_patience(TT_HTTP_SILENT_NS) - tick);
    assert_true(is_open(&p));
    passes(2 * tick);
    assert_false(is_open(&p));
    close(p.fd);
}

/* A client that has closed its side gets its answer, once, and then the end. */
static void test_a_half_closed_client_is_answered(void **state)
{
    static const char *const rows[] = {GET "\r\n", POST("/", "3") "abc"};
    (void)state;
    for (size_t i = 0; i < TT_COUNT(rows); i++) {
        peer p = connected();
        says(&p, rows[i]);
        shutdown(p.fd, SHUT_WR);
        while (!*hear(&p)) /* so that a client that is gone is found out */
            turn();
        assert_string_equal(p.heard, TT_HTTP_VERSION);
        answers("HTTP/1.1 200 OK\r\n\r\n");
        while (is_open(&p))
            turn();
        assert_string_equal(hear(&p), "HTTP/1.1 200 OK\r\n\r\n");
        assert_true(p.eof);
        close(p.fd);
    }
}

static void test_a_client_that_goes_takes_its_request_along(void **state)
{
    (void)state;
    for (int answering = 0; answering < 2; answering++) {
        peer p = connected();
        says(&p, GET "\r\n");
        if (answering)
            tt_str_add(subject.call.out, "HTTP/1.1 200 OK\r\n\r\n");
        turn();
        close(p.fd);
        while (subject.n_freed == answering) {
            if (answering)
                tt_str_add(subject.call.out, "more");
            turn();
        }
        assert_int_equal(subject.n_freed, answering + 1);
    }
}

/* What is refused by its head is answered before its body comes, and the answer is not lost behind the body. */
static void test_a_refusal_needs_no_body(void **state)
{
    (void)state;
    peer p = connected();
    says(&p, POST("/no", "200000"));
    assert_string_equal(hear(&p), "HTTP/1.1 401 no");
    char *body = calloc(1, 200001);
    memset(body, 'x', 200000);
    says(&p, body);
    assert_true(is_open(&p));
    hear(&p);
    assert_true(p.eof);
    assert_int_equal(subject.n_begun, 0);
    shutdown(p.fd, SHUT_WR);
    while (is_open(&p))
        turn();
    assert_string_equal(hear(&p), "HTTP/1.1 401 no");
    close(p.fd);
    free(body);
}

static void test_bodies(void **state)
{
    static const struct {
        const char *text, *heard;
        size_t n_body;
    } rows[] = {
        {POST("/", "0"), " 200 ",                                                                0},
        {POST("/",        "5") "abcde",     " 200 ",                                                        5},
        {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n3\r\nbcd\r\n"
         "0\r\nA: b\r\n\r\n",       " 200 ",           4},
        {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",       " 400 ", 0  },
        {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n",
         "HTTP/1.1 100 Continue\r\n\r\n",           0},
    };
    (void)state;
    subject.answers = true;
    for (size_t i = 0; i < TT_COUNT(rows); i++)
        for (int slow = 0; slow < 2; slow++) {
            peer p = connected();
            subject.n_body = 0;
            if (!slow)
                says(&p, rows[i].text);
            for (const char *c = rows[i].text; slow && *c; c++)
                says(&p, (const char[]){*c, 0});
            if (!strstr(hear(&p), rows[i].heard) || subject.n_body != rows[i].n_body)
                fail_msg("row %zu: %s, a body of %zu", i, p.heard, subject.n_body);
            close(p.fd);
        }
}

/* Bodies that are not whole have a memory in common; who sends for the longest time gives way. */
static void test_bodies_have_a_limit_together(void **state)
{
    char *half = calloc(1, MOST_BODIES / 2 + 1);
    (void)state;
    memset(half, 'x', MOST_BODIES / 2);
    peer first = connected();
    says(&first, POST("/", "999999"));
    says(&first, half);
    peer second = connected();
    says(&second, POST("/", "999999"));
    says(&second, half);
    assert_string_equal(hear(&first), "");
    says(&second, "x");
    turn();
    assert_non_null(strstr(hear(&first), " 503 "));
    turn();
    hear(&first);
    assert_true(first.eof); /* the rest of its body is no request */
    assert_string_equal(hear(&second), "");
    half[MOST_BODIES / 4] = '\0';
    says(&second, half); /* what the first one had is given back */
    assert_string_equal(hear(&second), "");
    close(first.fd);
    close(second.fd);
    free(half);
}

/* Where a process has no more descriptors, the client that has waited for the longest time goes. */
static void test_the_slowest_goes_for_a_new_one(void **state)
{
    (void)state;
    peer busy = connected();
    says(&busy, GET "\r\n");
    peer slow = connected(), late = connected(), next;
    says(&late, "GET / HTT");
    says(&slow, "G"); /* it has begun later, and so waits less */
    subject.full = true;
    call_server(&next);
    while (!subject.n_refused_accepts)
        turn();
    assert_true(!is_open(&late) && is_open(&slow) && is_open(&busy));
    close(late.fd);
    close(slow.fd);
    close(next.fd);
    close(busy.fd);
}

/* Where none can go, the server is deaf for a while, and does not try all the time. */
static void test_deaf_while_all_work(void **state)
{
    (void)state;
    peer busy = connected(), next;
    says(&busy, GET "\r\n");
    subject.full = true;
    call_server(&next);
    while (!subject.n_refused_accepts)
        turn();
    for (int i = 0; i < 5; i++)
        turn();
    assert_int_equal(subject.n_refused_accepts, 1);
    subject.full = false;
    subject.accepted = -1;
    passes(tt_patience(TT_DEAF_NS) + tick);
    assert_true(subject.accepted >= 0 && is_open(&busy));
    close(next.fd);
    close(busy.fd);
}

/* Requests one behind the other are answered in turns with others, and all of them. */
static void test_many_requests_of_one_client(void **state)
{
    enum { MANY = 2001 };
    static const char *const kinds[] = {
        GET "\r\n", POST("/", "3") "abc",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"};
    tt_str text = {0};
    peer many = connected(), other = connected();
    size_t n = 0;
    (void)state;
    subject.answers = true;
    for (int i = 0; i < MANY; i++)
        tt_str_add(&text, kinds[i % 3]);
    assert_int_equal(send(many.fd, text.s, text.n, 0), text.n);
    assert_true(send(other.fd, GET "\r\n", strlen(GET "\r\n"), 0) > 0);
    while (!*hear(&other))
        turn();
    assert_true(subject.n_begun < MANY / 2);
    while (n < MANY * strlen("HTTP/1.1 200 at once\r\n\r\n")) {
        turn();
        many.n_heard = 0;
        hear(&many);
        n += many.n_heard;
    }
    assert_int_equal(subject.n_begun, MANY + 1);
    close(many.fd);
    close(other.fd);
    tt_str_free(&text);
}

/* An answer that its client does not read is kept up to a limit. */
static void test_an_unread_answer_has_a_limit(void **state)
{
    char *much = calloc(1, (65 << 20) + 1);
    (void)state;
    memset(much, 'x', 65 << 20);
    peer p = connected();
    says(&p, GET "\r\n");
    tt_str_addn(subject.call.out, much, 16 << 20);
    turn();
    assert_true(is_open(&p));
    tt_str_addn(subject.call.out, much, 65 << 20);
    turn();
    turn();
    assert_false(is_open(&p));
    close(p.fd);
    free(much);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_each_wait_has_a_limit),
        TEST(test_bytes_do_not_renew_a_limit),
        TEST(test_a_client_that_waits_for_us_stays),
        TEST(test_a_half_closed_client_is_answered),
        TEST(test_a_client_that_goes_takes_its_request_along),
        TEST(test_a_refusal_needs_no_body),
        TEST(test_bodies),
        TEST(test_bodies_have_a_limit_together),
        TEST(test_the_slowest_goes_for_a_new_one),
        TEST(test_deaf_while_all_work),
        TEST(test_many_requests_of_one_client),
        TEST(test_an_unread_answer_has_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
