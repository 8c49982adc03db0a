/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/http.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <ttrun/option.h>

#include <cmocka.h>

/* Heads of requests, bodies in chunks, heads of answers. tests/fuzz/fuzz_http.c has the noise. */

#define HOST "Host: a\r\n"

static int read_head(const char *text, tt_http_request *r, char **copy)
{
    const size_t n = strlen(text);
    const char *why = NULL;
    *copy = malloc(n); /* so that a sanitizer sees what is behind it */
    memcpy(*copy, text, n);
    const int status = tt_http_read(*copy, n, r, &why);
    assert_true((status != 0) == (why != NULL));
    return status;
}

static void test_a_request(void **state)
{
    static const char text[] = "POST /v1/completions?x=1?y HTTP/1.1\r\nhost: a:8\r\n"
                               "authorization: \t Bearer k \r\nORIGIN: http://b\r\n"
                               "Content-Type: application/json\r\nX: y\r\nX: z\r\n"
                               "Content-Length: 4\r\nExpect: 100-Continue\r\n\r\n";
    tt_http_request r;
    char *copy;
    (void)state;
    assert_int_equal(read_head(text, &r, &copy), 0);
    assert_string_equal(r.method, "POST");
    assert_string_equal(r.path, "/v1/completions");
    assert_string_equal(r.host, "a:8");
    assert_string_equal(r.authorization, "Bearer k");
    assert_string_equal(r.origin, "http://b");
    assert_string_equal(r.content_type, "application/json");
    assert_int_equal(r.length, 4);
    assert_true(r.keep_alive && r.expects && !r.chunked && !r.old);
    free(copy);
}

/* host: "-" for none. */
static void test_where_requests_lead(void **state)
{
    static const struct {
        const char *text, *path, *host;
    } rows[] = {
        {"GET / HTTP/1.1\r\nHost: a\r\n\r\n",               "/",  "a"       },
        {"GET / HTTP/1.0\r\n\r\n",                          "/",  "-"       },
        {"GET http://b:1/x?y HTTP/1.1\r\nHost: a\r\n\r\n",  "/x", "b:1"     },
        {"GET HTTP://b HTTP/1.1\r\nHost: a\r\n\r\n",        "/",  "b"       },
        {"GET http://b?y HTTP/1.0\r\n\r\n",                 "/",  "b"       },
        {"GET https://b:1/x?y HTTP/1.1\r\nHost: a\r\n\r\n", "/x", "b:1"     },
        {"GET HttpS://b HTTP/1.1\r\nHost: a\r\n\r\n",       "/",  "b"       },
        {"GET https://[::1]:1/x HTTP/1.0\r\n\r\n",          "/x", "[::1]:1" },
        {"OPTIONS * HTTP/1.1\r\nHost: [::1]:80\r\n\r\n",    "*",  "[::1]:80"},
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(rows); i++) {
        tt_http_request r;
        char *copy;
        assert_int_equal(read_head(rows[i].text, &r, &copy), 0);
        assert_string_equal(r.path, rows[i].path);
        assert_string_equal(r.host ? r.host : "-", rows[i].host);
        free(copy);
    }
}

static void test_who_keeps_the_connection(void **state)
{
    static const struct {
        const char *text;
        bool keeps;
    } rows[] = {
        {"GET / HTTP/1.1\r\n" HOST "\r\n",                                        true },
        {"GET / HTTP/1.1\r\n" HOST "Connection: Close\r\n\r\n",                   false},
        {"GET / HTTP/1.1\r\n" HOST "Connection: TE ,close\r\n\r\n",               false},
        {"GET / HTTP/1.1\r\n" HOST "Connection: close\r\nConnection: TE\r\n\r\n", false},
        {"GET / HTTP/1.1\r\n" HOST "Connection: closed\r\n\r\n",                  true },
        {"GET / HTTP/1.0\r\n\r\n",                                                false},
        {"GET / HTTP/1.0\r\nConnection: x,, keep-alive\r\n\r\n",                  true },
        {"GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n",               false},
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(rows); i++) {
        tt_http_request r;
        char *copy;
        assert_int_equal(read_head(rows[i].text, &r, &copy), 0);
        if (r.keep_alive != rows[i].keeps)
            fail_msg("row %zu", i);
        free(copy);
    }
}

static void test_faults(void **state)
{
    static const struct {
        const char *text;
        int status;
    } rows[] = {
        {"GET\r\n\r\n",                                                                        400},
        {"GET  / HTTP/1.1\r\n" HOST "\r\n",                                                    400},
        {"G(T / HTTP/1.1\r\n" HOST "\r\n",                                                     400},
        {"GET x HTTP/1.1\r\n" HOST "\r\n",                                                     400},
        {"GET * HTTP/1.1\r\n" HOST "\r\n",                                                     400},
        {"GET http:///x HTTP/1.1\r\n" HOST "\r\n",                                             400},
        {"GET http://u@b/x HTTP/1.1\r\n" HOST "\r\n",                                          400},
        {"GET https:///x HTTP/1.1\r\n" HOST "\r\n",                                            400},
        {"GET https://u@b/x HTTP/1.1\r\n" HOST "\r\n",                                         400},
        {"GET https:/b/x HTTP/1.1\r\n" HOST "\r\n",                                            400},
        {"GET httpss://b/x HTTP/1.1\r\n" HOST "\r\n",                                          400},
        {"GET ftp://b/x HTTP/1.1\r\n" HOST "\r\n",                                             400},
        {"GET https://b/ HTTP/1.1\r\n\r\n",                                                    400},
        {"GET / HTTP/2.0\r\n" HOST "\r\n",                                                     505},
        {"GET / HTTP/1.1 \r\n" HOST "\r\n",                                                    505},
        {"GET / HTTP/1.1\r\n" HOST "no colon\r\n\r\n",                                         400},
        {"GET / HTTP/1.1\r\n" HOST ": x\r\n\r\n",                                              400},
        {"GET / HTTP/1.1\r\n" HOST "A : x\r\n\r\n",                                            400},
        {"GET / HTTP/1.1\r\n" HOST "A: x\r\n folded\r\n\r\n",                                  400},
        {"GET / HTTP/1.1\r\n" HOST "A\x01: x\r\n\r\n",                                         400},
        {"GET / HTTP/1.1\r\n" HOST "A: x\n\r\n\r\n",                                           400},
        {"GET / HTTP/1.1\r\n" HOST "A: x\ry\r\n\r\n",                                          400},
        {"GET / HTTP/1.1\r\n\r\n",                                                             400},
        {"GET http://b/ HTTP/1.1\r\n\r\n",                                                     400},
        {"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",                                       400},
        {"GET / HTTP/1.1\r\n" HOST "Authorization: a\r\nAuthorization: b\r\n\r\n",             400},
        {"GET / HTTP/1.1\r\n" HOST "Origin: a\r\nOrigin: b\r\n\r\n",                           400},
        {"GET / HTTP/1.1\r\n" HOST "Content-Type: a\r\nContent-Type: a\r\n\r\n",               400},
        {"POST / HTTP/1.1\r\n" HOST "Content-Length: x\r\n\r\n",                               400},
        {"POST / HTTP/1.1\r\n" HOST "Content-Length: +1\r\n\r\n",                              400},
        {"POST / HTTP/1.1\r\n" HOST "Content-Length:\r\n\r\n",                                 400},
        {"POST / HTTP/1.1\r\n" HOST "Content-Length: 1, 1\r\n\r\n",                            400},
        {"POST / HTTP/1.1\r\n" HOST "Content-Length: 99999999999999999999\r\n\r\n",            400},
        {"POST / HTTP/1.1\r\n" HOST "Content-Length: 1\r\nContent-Length: 2\r\n\r\n",          400},
        {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", 400},
        {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",                              400},
        {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip, chunked\r\n\r\n",                501},
        {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked, chunked\r\n\r\n",             501},
        {"POST / HTTP/1.1\r\n" HOST "Expect: tea\r\n\r\n",                                     417},
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(rows); i++) {
        tt_http_request r;
        char *copy;
        const int status = read_head(rows[i].text, &r, &copy);
        if (status != rows[i].status)
            fail_msg("row %zu: %d", i, status);
        free(copy);
    }
}

/* What is not told is not known, and what is told of the body is. */
static void test_bodies(void **state)
{
    static const struct {
        const char *text;
        int64_t length;
        bool chunked;
    } rows[] = {
        {"POST / HTTP/1.1\r\n" HOST "\r\n",                               -1, false},
        {"POST / HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n",          0,  false},
        {"POST / HTTP/1.1\r\n" HOST "Content-Length: 012\r\n\r\n",        12, false},
        {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: Chunked\r\n\r\n", -1, true },
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(rows); i++) {
        tt_http_request r;
        char *copy;
        assert_int_equal(read_head(rows[i].text, &r, &copy), 0);
        assert_int_equal(r.length, rows[i].length);
        assert_true(r.chunked == rows[i].chunked);
        free(copy);
    }
}

/* The body in pieces of `step` bytes; *used: of the text. "!": it is broken, "?": more is to come. */
static void unchunk(const char *text, size_t step, tt_str *out, size_t *used)
{
    const size_t n = strlen(text);
    tt_http_chunks c = {0};
    for (*used = 0; *used < n && !c.done && !c.bad;) {
        const size_t k = TT_MIN(step, n - *used);
        const char *data;
        char *piece = malloc(k);
        size_t n_data, took;
        memcpy(piece, text + *used, k);
        took = tt_http_unchunk(&c, piece, k, &data, &n_data);
        assert_true(took > 0 && took <= k);
        if (n_data)
            tt_str_addn(out, data, n_data);
        *used += took;
        free(piece);
    }
    tt_str_add(out, c.bad ? "!" : c.done ? "" : "?");
}

static void test_chunks(void **state)
{
    static const struct {
        const char *text, *body;
        size_t left; /* bytes behind the body */
    } rows[] = {
        {"0\r\n\r\n",                                  "",           0 },
        {"3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n",         "abcdefg",    0 },
        {"00A;x=\"y\"\r\n0123456789\r\n0\r\n\r\nGET",  "0123456789", 3 },
        {"1 \r\na\r\n000\r\nA: b\r\nC: d\r\n\r\n\r\n", "a",          2 },
        {"3\r\nab",                                    "ab?",        0 },
        {"3\r\nabc\r\n0\r\nA: b\r\n",                  "abc?",       0 },
        {"3\r\nabcd\r\n",                              "abc!",       2 },
        {"\r\n",                                       "!",          1 },
        {"-3\r\nabc\r\n0\r\n\r\n",                     "!",          13},
        {"+3\r\nabc\r\n0\r\n\r\n",                     "!",          13},
        {"0x3\r\nabc\r\n0\r\n\r\n",                    "!",          13},
        {"3\nabc\r\n0\r\n\r\n",                        "!",          10},
        {"3\r\nabc\n0\r\n\r\n",                        "abc!",       5 },
        {"3;x\ny\r\nabc\r\n",                          "!",          8 },
        {"3\r\nabc\r\n0\r\n\n",                        "abc!",       0 },
        {"0\r\nA: b\nC\r\n\r\n",                       "!",          5 },
        {"fffffffffffffffff\r\n",                      "!",          3 },
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(rows); i++)
        for (size_t step = 1; step <= strlen(rows[i].text); step++) {
            tt_str got = {0};
            size_t used;
            unchunk(rows[i].text, step, &got, &used);
            if (strcmp(tt_str_get(&got), rows[i].body) != 0 ||
                strlen(rows[i].text) - used != rows[i].left)
                fail_msg("row %zu by %zu: %s, %zu left", i, step, tt_str_get(&got),
                         strlen(rows[i].text) - used);
            tt_str_free(&got);
        }
}

/* Extensions and trailers without end are no way to hold a connection. */
static void test_chunks_are_not_all_frame(void **state)
{
    tt_str text = {0}, got = {0};
    size_t used;
    (void)state;
    tt_str_add(&text, "0\r\n");
    for (int i = 0; i < 3000; i++)
        tt_str_add(&text, "A:\r\n");
    unchunk(tt_str_get(&text), 100, &got, &used);
    assert_string_equal(tt_str_get(&got), "!");
    tt_str_free(&text);
    tt_str_free(&got);
}

static void test_answers(void **state)
{
    static const struct {
        tt_http_reply reply;
        int status;
        int64_t length;
        const char *head;
        bool keeps;
    } rows[] = {
        {{.keep_alive = true},
         200, 5,
         "HTTP/1.1 200 OK\r\nContent-Type: t\r\nContent-Length: 5\r\nConnection: "
         "keep-alive\r\n\r\n",                                                           true },
        {{.keep_alive = true},
         200, -1,
         "HTTP/1.1 200 OK\r\nContent-Type: t\r\nTransfer-Encoding: chunked\r\n"
         "Cache-Control: no-cache\r\nConnection: keep-alive\r\n\r\n1\r\nx\r\n0\r\n\r\n", true },
        {{.keep_alive = true, .old = true},
         200, -1,
         "HTTP/1.1 200 OK\r\nContent-Type: t\r\nCache-Control: no-cache\r\nConnection: "
         "close\r\n\r\nx",                                                               false},
        {{.allow = "GET"},
         405, 0,
         "HTTP/1.1 405 Method Not Allowed\r\nAllow: GET\r\nContent-Type: t\r\nContent-Length: 0\r\n"
         "Connection: close\r\n\r\n",                                                    false},
        {{.origin = "http://b"},
         401, 0,
         "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\n"
         "Access-Control-Allow-Origin: http://b\r\nVary: Origin\r\nContent-Type: t\r\n"
         "Content-Length: 0\r\nConnection: close\r\n\r\n",                               false},
        {{.origin = "*", .allow = "GET", .keep_alive = true},
         204, 0,
         "HTTP/1.1 204 No Content\r\nAllow: GET\r\nAccess-Control-Allow-Origin: *\r\nVary: "
         "Origin\r\n"
         "Access-Control-Allow-Methods: GET\r\n"
         "Access-Control-Allow-Headers: Authorization, Content-Type, *\r\n"
         "Access-Control-Max-Age: 600\r\nConnection: keep-alive\r\n\r\n",                true },
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(rows); i++) {
        tt_http_reply r = rows[i].reply;
        tt_str out = {0};
        tt_http_head(&out, &r, rows[i].status, "t", rows[i].length);
        if (rows[i].length < 0) {
            tt_http_chunk(&out, &r, "x", 1);
            tt_http_last_chunk(&out, &r);
        }
        assert_string_equal(tt_str_get(&out), rows[i].head);
        assert_int_equal(r.keep_alive, rows[i].keeps);
        assert_memory_equal(out.s, TT_HTTP_VERSION, strlen(TT_HTTP_VERSION));
        tt_str_free(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_request),
        cmocka_unit_test(test_where_requests_lead),
        cmocka_unit_test(test_who_keeps_the_connection),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_chunks_are_not_all_frame),
        cmocka_unit_test(test_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
