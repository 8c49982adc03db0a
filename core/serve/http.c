/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/http.h"
#include <string.h>
#include <strings.h>
#include <ttrun/option.h>

static tt_http_parsed fault(int status, const char *why)
{
    return (tt_http_parsed){.status = status, .why = why};
}

static const char *reason(int status)
{
    static const struct {
        int status;
        const char *text;
    } all[] = {
        {200, "OK"                             },
        {400, "Bad Request"                    },
        {401, "Unauthorized"                   },
        {404, "Not Found"                      },
        {405, "Method Not Allowed"             },
        {408, "Request Timeout"                },
        {413, "Content Too Large"              },
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"          },
        {501, "Not Implemented"                },
        {503, "Service Unavailable"            },
        {505, "HTTP Version Not Supported"     },
    };
    for (size_t i = 0; i < TT_COUNT(all); i++)
        if (all[i].status == status)
            return all[i].text;
    return "Error";
}

/* The end of the head, behind its empty line; 0: it is not complete. */
static size_t head_end(const char *text, size_t n)
{
    for (size_t i = 0; i + 3 < n; i++)
        if (text[i] == '\r' && !memcmp(text + i, "\r\n\r\n", 4))
            return i + 4;
    return 0;
}

static bool is_token(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (s[i] <= ' ' || s[i] >= 0x7f || strchr("()<>@,;:\\\"/[]?={}", s[i]))
            return false;
    return n > 0;
}

/* A header's value without blanks around it: *value, *n. */
static bool header_is(const char *line, size_t n, const char *name, const char **value,
                      size_t *size)
{
    const size_t k = strlen(name);
    if (n <= k || line[k] != ':' || strncasecmp(line, name, k) != 0)
        return false;
    line += k + 1;
    n -= k + 1;
    while (n && (*line == ' ' || *line == '\t')) {
        line++;
        n--;
    }
    while (n && (line[n - 1] == ' ' || line[n - 1] == '\t'))
        n--;
    *value = line;
    *size = n;
    return true;
}

static bool value_is(const char *v, size_t n, const char *want)
{
    return n == strlen(want) && strncasecmp(v, want, n) == 0;
}

typedef struct head {
    const char *method, *path, *authorization;
    size_t n_method, n_path, n_authorization;
    size_t length;
    bool has_length, old, closes, stays, expects;
} head;

static const char *read_length(head *h, const char *v, size_t n)
{
    size_t length = 0;
    if (!n || n > 15)
        return "Content-Length is no number";
    for (size_t i = 0; i < n; i++) {
        if (v[i] < '0' || v[i] > '9')
            return "Content-Length is no number";
        length = length * 10 + (size_t)(v[i] - '0');
    }
    if (h->has_length && h->length != length)
        return "two different Content-Lengths";
    h->has_length = true;
    h->length = length;
    return NULL;
}

static tt_http_parsed read_header(head *h, const char *line, size_t n)
{
    const char *v, *bad = NULL;
    size_t k;
    const char *colon = memchr(line, ':', n);
    if (!colon || !is_token(line, (size_t)(colon - line)))
        return fault(400, "a header has no name");
    if (header_is(line, n, "Content-Length", &v, &k)) {
        bad = read_length(h, v, k);
    } else if (header_is(line, n, "Transfer-Encoding", &v, &k)) {
        return fault(501, "a body must have a Content-Length");
    } else if (header_is(line, n, "Connection", &v, &k)) {
        h->closes = h->closes || value_is(v, k, "close");
        h->stays = h->stays || value_is(v, k, "keep-alive");
    } else if (header_is(line, n, "Expect", &v, &k)) {
        h->expects = value_is(v, k, "100-continue");
    } else if (header_is(line, n, "Authorization", &v, &k)) {
        h->authorization = v;
        h->n_authorization = k;
    }
    return bad ? fault(400, bad) : (tt_http_parsed){0};
}

static tt_http_parsed read_request_line(head *h, const char *line, size_t n)
{
    const char *end = line + n, *blank = memchr(line, ' ', n);
    const char *second = blank ? memchr(blank + 1, ' ', (size_t)(end - blank - 1)) : NULL;
    if (!second || !is_token(line, (size_t)(blank - line)) || blank[1] != '/')
        return fault(400, "the first line is no request");
    if (value_is(second + 1, (size_t)(end - second - 1), "HTTP/1.0"))
        h->old = true;
    else if (!value_is(second + 1, (size_t)(end - second - 1), "HTTP/1.1"))
        return fault(505, "only HTTP/1.1 and HTTP/1.0 are known");
    h->method = line;
    h->n_method = (size_t)(blank - line);
    h->path = blank + 1;
    h->n_path = (size_t)(second - blank - 1);
    const char *query = memchr(h->path, '?', h->n_path);
    if (query)
        h->n_path = (size_t)(query - h->path);
    return (tt_http_parsed){0};
}

static tt_http_parsed read_head(head *h, const char *text, size_t n)
{
    bool first = true;
    for (const char *line = text, *end = text + n - 2; line < end;) {
        const char *stop = line;
        while (!(stop[0] == '\r' && stop[1] == '\n')) {
            if ((unsigned char)*stop < ' ' && *stop != '\t')
                return fault(400, "the head holds a control character");
            stop++;
        }
        const tt_http_parsed p = first ? read_request_line(h, line, (size_t)(stop - line))
                                       : read_header(h, line, (size_t)(stop - line));
        if (p.status)
            return p;
        first = false;
        line = stop + 2;
    }
    return (tt_http_parsed){0};
}

static const char *cut(char *text, const char *s, size_t n)
{
    if (!s)
        return NULL;
    text[(s - text) + (ptrdiff_t)n] = '\0';
    return s;
}

tt_http_parsed tt_http_parse(char *text, size_t n, size_t most_body, tt_http_request *out)
{
    head h = {0};
    const size_t end = head_end(text, TT_MIN(n, (size_t)TT_HTTP_MOST_HEAD));
    *out = (tt_http_request){0};
    if (!end)
        return n >= TT_HTTP_MOST_HEAD ? fault(431, "the headers are too long")
                                      : (tt_http_parsed){.status = 100};
    const tt_http_parsed p = read_head(&h, text, end);
    if (p.status)
        return p;
    if (h.length > most_body)
        return fault(413, "the body is too long");
    out->expects = h.expects;
    if (n - end < h.length)
        return (tt_http_parsed){.status = 100};
    out->keep_alive = !h.closes && (!h.old || h.stays);
    out->body = text + end;
    out->n_body = h.length;
    out->method = cut(text, h.method, h.n_method);
    out->path = cut(text, h.path, h.n_path);
    out->authorization = cut(text, h.authorization, h.n_authorization);
    return (tt_http_parsed){.bytes = end + h.length};
}

void tt_http_head(tt_str *out, int status, const char *type, int64_t length, bool keep_alive)
{
    tt_str_printf(out, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\n", status, reason(status), type);
    if (status == 401)
        tt_str_add(out, "WWW-Authenticate: Bearer\r\n");
    if (length < 0)
        tt_str_add(out, "Transfer-Encoding: chunked\r\nCache-Control: no-cache\r\n");
    else
        tt_str_printf(out, "Content-Length: %lld\r\n", (long long)length);
    tt_str_printf(out, "Connection: %s\r\n\r\n", keep_alive ? "keep-alive" : "close");
}

void tt_http_chunk(tt_str *out, const char *text, size_t n)
{
    tt_str_printf(out, "%zx\r\n", n);
    tt_str_addn(out, text, n);
    tt_str_add(out, "\r\n");
}

void tt_http_last_chunk(tt_str *out)
{
    tt_str_add(out, "0\r\n\r\n");
}
