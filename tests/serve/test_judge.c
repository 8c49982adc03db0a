/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/api_impl.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* What the head of a request decides: paths and methods, bodies, keys, and pages of other origins. */

typedef struct row {
    const char *line, *headers; /* HTTP/1.1 and Host: localhost, unless the headers have one */
    int status;
    const char *allow, *origin; /* "": not told */
} row;

#define JSON "Content-Type: application/json\r\nContent-Length: 2\r\n"
#define FORM "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 2\r\n"
#define KEY "Authorization: Bearer abc\r\n"

static void check(const tt_api *a, const row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char text[1024];
        tt_http_request r;
        tt_http_reply p;
        const char *why = NULL, *host = strstr(rows[i].headers, "Host:");
        const int size = snprintf(text, sizeof text, "%s HTTP/1.1\r\n%s%s\r\n", rows[i].line,
                                  host ? "" : "Host: localhost:8000\r\n", rows[i].headers);
        assert_int_equal(tt_http_read(text, (size_t)size, &r, &why), 0);
        const int status = tt_api_judge(a, &r, &p, &why);
        if (status != rows[i].status || strcmp(p.allow ? p.allow : "", rows[i].allow) != 0 ||
            strcmp(p.origin ? p.origin : "", rows[i].origin) != 0)
            fail_msg("row %zu, %s: %d (%s), %s, %s", i, rows[i].line, status, why ? why : "",
                     p.allow ? p.allow : "", p.origin ? p.origin : "");
        assert_true(!status || status == 204 || (why && !p.keep_alive));
    }
}

static void test_paths_and_bodies(void **state)
{
    static const row rows[] = {
        {"GET /health",          "",                                                                 0,   "",                         ""},
        {"HEAD /health",         "",                                                                 0,   "",                         ""},
        {"GET /v1/models/a/b",   "",                                                                 0,   "",                         ""},
        {"GET /v1/models/",      "",                                                                 404, "",                         ""},
        {"GET /v1",              "",                                                                 404, "",                         ""},
        {"GET /v1/completions",  "",                                                                 405, "POST, OPTIONS",            ""},
        {"HEAD /tokenize",       "",                                                                 405, "POST, OPTIONS",            ""},
        {"POST /health",         JSON,                                                               405, "GET, HEAD, OPTIONS",       ""},
        {"BREW /health",         "",                                                                 405, "GET, HEAD, OPTIONS",       ""},
        {"OPTIONS /health",      "",                                                                 204, "GET, HEAD, OPTIONS",       ""},
        {"OPTIONS /tokenize",    "",                                                                 204, "POST, OPTIONS",            ""},
        {"OPTIONS *",            "",                                                                 204, "GET, HEAD, POST, OPTIONS", ""},
        {"OPTIONS /no",          "",                                                                 404, "",                         ""},
        {"GET /health",          "Content-Length: 0\r\n",                                            0,   "",                         ""},
        {"GET /health",          "Content-Length: 1\r\n",                                            413, "",                         ""},
        {"GET /health",          "Transfer-Encoding: chunked\r\n",                                   413, "",                         ""},
        {"POST /v1/completions", JSON,                                                               0,   "",                         ""},
        {"POST /v1/completions",
         "Content-Type: Application/JSON; charset=utf-8\r\nContent-Length: 2\r\n",                   0,   "",                         ""},
        {"POST /v1/completions", "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n",
         0,                                                                                               "",                         ""},
        {"POST /v1/completions", "Content-Type: application/json\r\n",                               411, "",                         ""},
        {"POST /v1/completions", "Content-Type: application/json\r\nContent-Length: 16777216\r\n",
         0,                                                                                               "",                         ""},
        {"POST /v1/completions", "Content-Type: application/json\r\nContent-Length: 16777217\r\n",
         413,                                                                                             "",                         ""},
        {"POST /v1/completions", FORM,                                                               415, "",                         ""},
        {"POST /v1/completions", "Content-Length: 2\r\n",                                            415, "",                         ""},
        {"POST /v1/completions", "Content-Type: application/jsonx\r\nContent-Length: 2\r\n",         415,
         "",                                                                                                                          ""},
    };
    const tt_api a = {.o = {.host = "127.0.0.1"}};
    (void)state;
    check(&a, rows, TT_COUNT(rows));
}

/* Without a key only this machine asks, and no page of a stranger in its browser. */
static void test_strangers(void **state)
{
    static const char *const origins[] = {"https://chat.example.org", "http://localhost:3000"};
    static const row rows[] = {
        {"GET /v1/models",                  "Host: 127.0.0.1\r\n",                       0,   "",              ""                     },
        {"GET /v1/models",                  "Host: 127.9.9.9:8000\r\n",                  0,   "",              ""                     },
        {"GET /v1/models",                  "Host: LocalHost\r\n",                       0,   "",              ""                     },
        {"GET /v1/models",                  "Host: [::1]:8000\r\n",                      0,   "",              ""                     },
        {"GET /v1/models",                  "Host: MINE:80\r\n",                         0,   "",              ""                     },
        {"GET /v1/models",                  "Host: evil.example\r\n",                    403, "",              ""                     },
        {"GET /v1/models",                  "Host: 127.example.org\r\n",                 403, "",              ""                     },
        {"GET /v1/models",                  "Host: 127.0.0.1.example.org\r\n",           403, "",              ""                     },
        {"GET /v1/models",                  "Host: localhost.example.org\r\n",           403, "",              ""                     },
        {"GET /v1/models",                  "Host: [::1\r\n",                            403, "",              ""                     },
        {"GET /v1/models",                  "Host: [::2]\r\n",                           403, "",              ""                     },
        {"GET /v1/models",                  "Host: \r\n",                                403, "",              ""                     },
        {"GET http://evil.example/health",  "",                                          403, "",              ""                     },
        {"GET https://evil.example/health", "",                                          403, "",              ""                     },
        {"GET https://MINE:80/health",      "",                                          0,   "",              ""                     },
        {"GET /health",                     "Host: evil.example\r\n",                    403, "",              ""                     },
        {"GET /v1/models",                  "Origin: http://evil.example\r\n",           403, "",              ""                     },
        {"GET /v1/models",                  "Origin: null\r\n",                          403, "",              ""                     },
        {"GET /v1/models",                  "Origin: http://localhost:8000\r\n",         0,   "",              ""                     },
        {"GET /v1/models",                  "Origin: http://localhost:8001\r\n",         403, "",              ""                     },
        {"GET /v1/models",                  "Origin: http://localhost:3000\r\n",         0,   "",              "http://localhost:3000"},
        {"POST /tokenize",                  "Origin: https://chat.example.org\r\n" JSON, 0,   "",
         "https://chat.example.org"                                                                                                   },
        {"POST /tokenize",                  "Origin: https://chat.example.org\r\n" FORM, 415, "",
         "https://chat.example.org"                                                                                                   },
        {"OPTIONS /tokenize",               "Origin: https://chat.example.org\r\n",      204, "POST, OPTIONS",
         "https://chat.example.org"                                                                                                   },
        {"OPTIONS /tokenize",               "Origin: https://evil.example\r\n",          403, "",              ""                     },
    };
    const tt_api a = {
        .o = {.host = "mine", .origins = origins, .n_origins = TT_COUNT(origins)}
    };
    (void)state;
    check(&a, rows, TT_COUNT(rows));
}

static void test_keys(void **state)
{
    static const char *const origins[] = {"*"};
    static const row rows[] = {
        {"GET /v1/models",       KEY,                                0,   "",                   "" },
        {"GET /v1/models",       "Authorization: bEARER  abc\r\n",   0,   "",                   "" },
        {"GET /v1/models",       "",                                 401, "",                   "" },
        {"GET /v1/models",       "Authorization: abc\r\n",           401, "",                   "" },
        {"GET /v1/models",       "Authorization: Basic abc\r\n",     401, "",                   "" },
        {"GET /v1/models",       "Authorization: Bearer ab\r\n",     401, "",                   "" },
        {"GET /v1/models",       "Authorization: Bearer abcd\r\n",   401, "",                   "" },
        {"GET /v1/models",       "Authorization: Bearer\r\n",        401, "",                   "" },
        {"GET /health",          "",                                 0,   "",                   "" },
        {"GET /no",              "",                                 404, "",                   "" },
        {"GET /v1/models",       "Host: evil.example\r\n" KEY,       0,   "",                   "" },
        {"GET /v1/models",       "Origin: http://a\r\n" KEY,         0,   "",                   "*"},
        {"GET /v1/models",       "Origin: http://a\r\n",             401, "",                   "*"},
        {"OPTIONS /v1/models",   "Origin: http://a\r\n",             204, "GET, HEAD, OPTIONS", "*"},
        {"POST /v1/completions", KEY FORM,                           0,   "",                   "" },
        {"POST /v1/completions", FORM,                               401, "",                   "" },
        {"POST /v1/completions", "Content-Length: 99999999\r\n",     401, "",                   "" },
        {"POST /v1/completions", KEY "Content-Length: 99999999\r\n", 413, "",                   "" },
        {"POST /v1/completions", KEY,                                411, "",                   "" },
    };
    const tt_api a = {
        .o = {.key = "abc", .host = "0.0.0.0", .origins = origins, .n_origins = TT_COUNT(origins)}
    };
    (void)state;
    check(&a, rows, TT_COUNT(rows));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paths_and_bodies),
        cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
