/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/http.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The HTTP parser: whole requests, requests that arrive byte by byte, faults, and noise. */

static tt_http_parsed parse(const char *text, tt_http_request *r, char **copy)
{
    const size_t n = strlen(text);
    *copy = malloc(n + 1); /* so that a sanitizer sees what is behind it */
    memcpy(*copy, text, n + 1);
    return tt_http_parse(*copy, n, 1000, r);
}

static void test_a_request(void **state)
{
    static const char text[] =
        "POST /v1/completions?x=1 HTTP/1.1\r\nHost: a\r\nauthorization: \t Bearer k \r\n"
        "Content-Length: 4\r\nExpect: 100-continue\r\n\r\nbodyGET / HTTP/1.1\r\n\r\n";
    tt_http_request r;
    char *copy;
    (void)state;
    const tt_http_parsed p = parse(text, &r, &copy);
    assert_int_equal(p.status, 0);
    assert_int_equal(p.bytes, strlen(text) - strlen("GET / HTTP/1.1\r\n\r\n"));
    assert_string_equal(r.method, "POST");
    assert_string_equal(r.path, "/v1/completions");
    assert_string_equal(r.authorization, "Bearer k");
    assert_int_equal(r.n_body, 4);
    assert_memory_equal(r.body, "body", 4);
    assert_true(r.keep_alive && r.expects);
    free(copy);
}

/* Before the last byte more is asked for, and nothing is changed. */
static void test_byte_by_byte(void **state)
{
    static const char text[] =
        "POST /a HTTP/1.1\r\nContent-Length: 3\r\nConnection: close\r\n\r\nxyz";
    const size_t n = strlen(text);
    tt_http_request r;
    (void)state;
    for (size_t k = 1; k <= n; k++) {
        char *copy = malloc(k);
        memcpy(copy, text, k);
        const tt_http_parsed p = tt_http_parse(copy, k, 1000, &r);
        assert_int_equal(p.status, k < n ? 100 : 0);
        if (k < n)
            assert_memory_equal(copy, text, k);
        else
            assert_true(!r.keep_alive && p.bytes == n);
        free(copy);
    }
}

static void test_who_keeps_the_connection(void **state)
{
    static const struct {
        const char *text;
        bool keeps;
    } rows[] = {
        {"GET / HTTP/1.1\r\n\r\n",                           true },
        {"GET / HTTP/1.1\r\nConnection: Close\r\n\r\n",      false},
        {"GET / HTTP/1.0\r\n\r\n",                           false},
        {"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", true },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tt_http_request r;
        char *copy;
        assert_int_equal(parse(rows[i].text, &r, &copy).status, 0);
        assert_true(r.keep_alive == rows[i].keeps);
        free(copy);
    }
}

static void test_faults(void **state)
{
    static const struct {
        const char *text;
        int status;
    } rows[] = {
        {"GET\r\n\r\n",                                                                         400},
        {"GET  / HTTP/1.1\r\n\r\n",                                                             400},
        {"G(T / HTTP/1.1\r\n\r\n",                                                              400},
        {"GET x HTTP/1.1\r\n\r\n",                                                              400},
        {"GET / HTTP/2.0\r\n\r\n",                                                              505},
        {"GET / HTTP/1.1\r\nno colon\r\n\r\n",                                                  400},
        {"GET / HTTP/1.1\r\n: x\r\n\r\n",                                                       400},
        {"GET / HTTP/1.1\r\nA\x01: x\r\n\r\n",                                                  400},
        {"GET / HTTP/1.1\r\nA: x\n\r\n\r\n",                                                    400},
        {"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",                                        400},
        {"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",                                       400},
        {"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",                     400},
        {"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",                 400},
        {"POST / HTTP/1.1\r\nContent-Length: 1001\r\n\r\n",                                     413},
        {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n",
         501                                                                                       },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tt_http_request r;
        char *copy;
        const tt_http_parsed p = parse(rows[i].text, &r, &copy);
        if (p.status != rows[i].status || !p.why)
            fail_msg("row %zu: %d", i, p.status);
        free(copy);
    }
    char *much = malloc(TT_HTTP_MOST_HEAD);
    tt_http_request r;
    memset(much, 'a', TT_HTTP_MOST_HEAD);
    assert_int_equal(tt_http_parse(much, TT_HTTP_MOST_HEAD - 1, 10, &r).status, 100);
    assert_int_equal(tt_http_parse(much, TT_HTTP_MOST_HEAD, 10, &r).status, 431);
    free(much);
}

/* Changed bytes, cut texts: an answer, and no byte read or written outside. */
static void test_noise(void **state)
{
    static const char text[] =
        "POST /v1/x?y HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\nConnection: "
        "keep-alive\r\nAuthorization: b\r\n\r\n{\"a\": [1,2]}";
    uint64_t s = 1;
    int complete = 0;
    (void)state;
    for (int i = 0; i < 200000; i++) {
        s = s * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        size_t n = strlen(text);
        char *copy = malloc(n);
        memcpy(copy, text, n);
        for (uint64_t k = 0; k < (s >> 33) % 4; k++)
            copy[(s >> (k * 7)) % n] = "\r\n\0 :/1a\xff"[(s >> (20 + 5 * k)) % 9];
        n -= (s >> 40) % 3 ? 0 : (s >> 45) % n;
        tt_http_request r;
        const tt_http_parsed p = tt_http_parse(copy, n, 100, &r);
        if (!p.status) {
            complete++;
            assert_true(p.bytes <= n && r.body + r.n_body <= copy + n);
            assert_true(strlen(r.method) + strlen(r.path) < n);
        }
        free(copy);
    }
    assert_true(complete > 10000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_request),
        cmocka_unit_test(test_byte_by_byte),
        cmocka_unit_test(test_who_keeps_the_connection),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_noise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
