/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <ttrun/option.h>
#include <ttrun/sockets.h>
#include <unistd.h>

#include <cmocka.h>

#define NOBODY 65534

static int port_of(int listener)
{
    struct sockaddr_in6 a = {0};
    socklen_t n = sizeof a;
    assert_int_equal(getsockname(listener, (struct sockaddr *)&a, &n), 0);
    return ntohs(a.sin6_port); /* at the same place in IPv4's */
}

static int connect_to(const char *address, int port)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    if (inet_pton(AF_INET, address, &four.sin_addr) == 1)
        return tt_socket_connect((struct sockaddr *)&four, sizeof four, 5000);
    assert_int_equal(inet_pton(AF_INET6, address, &six.sin6_addr), 1);
    return tt_socket_connect((struct sockaddr *)&six, sizeof six, 5000);
}

/* Connects as a user from a process of its own, which stays until the other end has closed or spoken. */
static pid_t connect_as(uid_t user, const char *address, int port)
{
    const pid_t pid = fork();
    if (pid)
        return pid;
    char byte;
    if (user && setuid(user))
        _exit(2);
    const int fd = connect_to(address, port);
    struct pollfd f = {fd, POLLIN, 0};
    if (fd < 0 || poll(&f, 1, -1) != 1)
        _exit(2);
    _exit(recv(fd, &byte, 1, 0) == 1 ? 0 : 1);
}

/* The connection that comes next, of those that are taken; -1: it is refused. */
static int accept_one(int listener)
{
    struct pollfd f = {listener, POLLIN, 0};
    assert_int_equal(poll(&f, 1, -1), 1);
    const int fd = accept(listener, NULL, NULL);
    assert_true(fd >= 0);
    if (!tt_socket_is_of_another_user(fd))
        return fd;
    close(fd);
    return -1;
}

static void check(const char *listens, uid_t user, const char *address, bool is_taken)
{
    int status;
    const int listener = tt_socket_listen_at(listens, 0);
    assert_true(listener >= 0);
    const pid_t pid = connect_as(user, address, port_of(listener));
    const int fd = accept_one(listener);
    if ((fd >= 0) != is_taken)
        fail_msg("user %d by %s: %s", (int)user, address, fd >= 0 ? "taken" : "refused");
    if (fd >= 0) {
        assert_int_equal(send(fd, "", 1, 0), 1);
        close(fd);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, is_taken ? 0 : 1 << 8);
    close(listener);
}

static const char *const addresses[] = {"127.0.0.1", "127.0.0.2", "::1"};

static bool has_six(void)
{
    const int fd = socket(AF_INET6, SOCK_STREAM, 0);
    const struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
    const bool has = fd >= 0 && bind(fd, (const struct sockaddr *)&a, sizeof a) == 0;
    if (fd >= 0)
        close(fd);
    return has;
}

static void test_the_same_user_is_taken(void **state)
{
    (void)state;
    for (size_t i = 0; i < TT_COUNT(addresses) - !has_six(); i++) {
        check(NULL, 0, addresses[i], true);
        check("localhost", 0, addresses[i], true);
        check(addresses[i], 0, addresses[i], true);
    }
}

static void test_another_user_is_refused_without_a_secret(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip(); /* cannot be another user */
    for (size_t i = 0; i < TT_COUNT(addresses) - !has_six(); i++)
        check(NULL, NOBODY, addresses[i], false);
    setenv("TTRUN_COMM_SECRET", "secret", 1);
    check(NULL, NOBODY, "127.0.0.1", true);
    unsetenv("TTRUN_COMM_SECRET");
}

static void test_root_is_taken_by_others(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    assert_int_equal(seteuid(NOBODY), 0);
    const int listener = tt_socket_listen(0);
    assert_int_equal(seteuid(0), 0);
    const pid_t pid = connect_as(0, "127.0.0.1", port_of(listener));
    assert_int_equal(seteuid(NOBODY), 0);
    const int fd = accept_one(listener);
    assert_int_equal(seteuid(0), 0);
    assert_true(fd >= 0);
    close(fd);
    close(listener);
    waitpid(pid, NULL, 0);
}

static void test_pairs_are_ours(void **state)
{
    int pair[2];
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_false(tt_socket_is_of_another_user(pair[0]));
    close(pair[0]);
    close(pair[1]);
}

static void test_loopback_addresses(void **state)
{
    static const struct {
        const char *address;
        bool is;
    } rows[] = {
        {"localhost",             true },
        {"127.0.0.1",             true },
        {"127.1.2.3",             true },
        {"::1",                   true },
        {"127.example.org",       false},
        {"127.0.0.1.example.org", false},
        {"localhost.example.org", false},
        {"0.0.0.0",               false},
        {"::",                    false},
        {"10.0.0.1",              false},
        {"",                      false}
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(rows); i++)
        if (tt_socket_is_loopback(rows[i].address) != rows[i].is)
            fail_msg("%s", rows[i].address);
}

/* An address of this machine that is not loopback; false: there is none. */
static bool own_address(char text[INET_ADDRSTRLEN])
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)}, me;
    socklen_t n = sizeof me;
    const int fd = socket(AF_INET, SOCK_DGRAM, 0); /* connecting it sends nothing */
    to.sin_addr.s_addr = htonl(0xc0000201);        /* 192.0.2.1, of nobody (RFC 5737) */
    const bool has = fd >= 0 && !connect(fd, (struct sockaddr *)&to, sizeof to) &&
                     !getsockname(fd, (struct sockaddr *)&me, &n) &&
                     inet_ntop(AF_INET, &me.sin_addr, text, INET_ADDRSTRLEN);
    if (fd >= 0)
        close(fd);
    return has;
}

static void test_a_connection_by_our_own_address_is_of_this_machine(void **state)
{
    char address[INET_ADDRSTRLEN];
    (void)state;
    if (!own_address(address))
        skip();
    check(NULL, 0, address, true);
    if (geteuid() == 0)
        check(NULL, NOBODY, address, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_same_user_is_taken),
        cmocka_unit_test(test_another_user_is_refused_without_a_secret),
        cmocka_unit_test(test_root_is_taken_by_others),
        cmocka_unit_test(test_pairs_are_ours),
        cmocka_unit_test(test_loopback_addresses),
        cmocka_unit_test(test_a_connection_by_our_own_address_is_of_this_machine),
    };
    unsetenv("TTRUN_COMM_SECRET");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
