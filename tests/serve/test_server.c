/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "serve/server.h"
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <ttrun/patience.h>
#include <unistd.h>

#include <cmocka.h>

/* How long the server keeps a client that is silent. Its thread stands after each turn until the test lets it go on, its
 * clock is the test's, and the functions below take the place of libc's and of the model's. */

static struct {
    pthread_t thread;
    sem_t goes, stands;
    bool ends;
    int port, n_dropped;
    int64_t read; /* bytes */
    int connection;
    struct tt_api_call {
        tt_str *out; /* NULL: there is no call */
        bool done;
    } call;
} subject;
static _Atomic int64_t now_ns;

/* ---- of the system ---- */

int clock_gettime(clockid_t id, struct timespec *t)
{
    if (id != CLOCK_MONOTONIC)
        return (int)syscall(SYS_clock_gettime, id, t);
    *t = (struct timespec){now_ns / 1000000000, now_ns % 1000000000};
    return 0;
}

int poll(struct pollfd *fds, nfds_t n, int wait_ms)
{
    (void)wait_ms; /* the test waits, by turns */
    return (int)syscall(SYS_poll, fds, n, 0);
}

int accept4(int fd, __SOCKADDR_ARG from, socklen_t *n, int flags)
{
    const int got = (int)syscall(SYS_accept4, fd, from.__sockaddr__, n, flags);
    subject.connection = got >= 0 ? got : subject.connection;
    return got;
}

ssize_t recv(int fd, void *p, size_t n, int flags)
{
    const ssize_t got = syscall(SYS_recvfrom, fd, p, n, flags, NULL, NULL);
    subject.read += got > 0 && fd == subject.connection ? got : 0;
    return got;
}

int close(int fd)
{
    subject.n_dropped += fd >= 0 && fd == subject.connection;
    return (int)syscall(SYS_close, fd);
}

/* ---- of the model ---- */

bool tt_engine_is_busy(const tt_engine *e)
{
    (void)e;
    return false;
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

bool tt_api_begin(tt_api *a, const tt_http_request *r, tt_str *out, tt_api_call **call)
{
    (void)a, (void)r;
    subject.call = (struct tt_api_call){.out = out};
    *call = &subject.call;
    return true;
}

void tt_api_fault(tt_str *out, int status, const char *why)
{
    tt_str_printf(out, "%d %s", status, why);
}

bool tt_api_is_done(const tt_api_call *c)
{
    return c->done;
}

bool tt_api_has_failed(const tt_api_call *c)
{
    (void)c;
    return false;
}

void tt_api_free(tt_api *a, tt_api_call *c)
{
    (void)a;
    if (c)
        c->out = NULL;
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
    const tt_server_opts o = {.host = "127.0.0.1", .stop = stands, .ready = listens};
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

static void says(int client, const char *text)
{
    const int64_t before = subject.read, n = (int64_t)strlen(text);
    assert_int_equal(send(client, text, (size_t)n, 0), n);
    while (subject.read < before + n && !subject.n_dropped)
        turn();
    assert_int_equal(subject.n_dropped, 0);
}

/* ---- the tests ---- */

static int64_t silent_ns; /* the limit */

/* A server, and a client that it has accepted. */
static int setup(void **state)
{
    static int client;
    memset(&subject, 0, sizeof subject);
    subject.connection = -1;
    now_ns = INT64_C(1000000000);
    silent_ns = tt_patience(TT_HTTP_SILENT_NS);
    sem_init(&subject.goes, 0, 0);
    sem_init(&subject.stands, 0, 0);
    if (pthread_create(&subject.thread, NULL, serve, NULL))
        return -1;
    sem_wait(&subject.stands);
    const struct sockaddr_in at = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)subject.port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    client = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(client, (const struct sockaddr *)&at, sizeof at))
        return -1;
    while (subject.connection < 0)
        turn();
    *state = &client;
    return 0;
}

static int teardown(void **state)
{
    subject.ends = true;
    sem_post(&subject.goes);
    pthread_join(subject.thread, NULL);
    close(*(int *)*state);
    return 0;
}

/* It has been silent since this moment: it stays for the limit and not longer. */
static void assert_is_dropped_after_the_limit(void)
{
    now_ns += silent_ns;
    turn();
    turn();
    assert_int_equal(subject.n_dropped, 0);
    now_ns += 1;
    turn();
    assert_int_equal(subject.n_dropped, 1);
}

static void test_a_client_that_says_nothing_is_dropped(void **state)
{
    (void)state;
    assert_is_dropped_after_the_limit();
}

static void test_a_client_that_is_slow_stays_while_it_speaks(void **state)
{
    const int client = *(int *)*state;
    for (const char *c = "GET / HTT"; *c; c++) {
        now_ns += silent_ns;
        says(client, (const char[]){*c, 0});
    }
    assert_is_dropped_after_the_limit();
}

static void test_a_client_that_waits_for_us_stays(void **state)
{
    const int client = *(int *)*state;
    says(client, "GET / HTTP/1.1\r\n\r\n");
    for (int i = 0; i < 3; i++) {
        now_ns += silent_ns;
        turn();
    }
    assert_non_null(subject.call.out);
    assert_int_equal(subject.n_dropped, 0);
    now_ns += silent_ns; /* the answer takes as long */
    tt_str_add(subject.call.out, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    subject.call.done = true;
    turn();
    assert_is_dropped_after_the_limit();
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_client_that_says_nothing_is_dropped),
        TEST(test_a_client_that_is_slow_stays_while_it_speaks),
        TEST(test_a_client_that_waits_for_us_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
