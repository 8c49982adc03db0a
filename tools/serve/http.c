/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/http.h"
#include <string.h>
#include <strings.h>
#include <ttrun/option.h>

static const char *reason(int status)
{
    static const struct {
        int status;
        const char *text;
    } all[] = {
        {200, "OK"                             },
        {204, "No Content"                     },
        {400, "Bad Request"                    },
        {401, "Unauthorized"                   },
        {403, "Forbidden"                      },
        {404, "Not Found"                      },
        {405, "Method Not Allowed"             },
        {408, "Request Timeout"                },
        {411, "Length Required"                },
        {413, "Content Too Large"              },
        {415, "Unsupported Media Type"         },
        {417, "Expectation Failed"             },
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

static bool is_token(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (s[i] <= ' ' || s[i] >= 0x7f || strchr("()<>@,;:\\\"/[]?={}", s[i]))
            return false;
    return n > 0;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static bool text_is(const char *s, size_t n, const char *want)
{
    return n == strlen(want) && strncasecmp(s, want, n) == 0;
}

/* Takes the next element of a list with commas, without blanks around it: *s [*n]. False: there is none. */
static bool next_element(const char **at, const char *end, const char **s, size_t *n)
{
    if (*at >= end)
        return false;
    const char *comma = memchr(*at, ',', (size_t)(end - *at)), *stop = comma ? comma : end;
    *s = *at;
    *at = stop + 1;
    while (*s < stop && is_blank(**s))
        ++*s;
    while (stop > *s && is_blank(stop[-1]))
        stop--;
    *n = (size_t)(stop - *s);
    return true;
}

/* ---- the head of a request ---- */

typedef struct head {
    tt_http_request *r;
    const char *length, *coding, *expect;
    bool closes, stays;
    int status;
    const char *why;
} head;

static bool fault(head *h, int status, const char *why)
{
    h->status = status;
    h->why = why;
    return false;
}

static bool is_length(const char *s)
{
    const size_t n = strspn(s, "0123456789");
    return n > 0 && n <= 15 && !s[n];
}

static void read_connection(head *h, const char *v)
{
    const char *end = v + strlen(v), *s;
    size_t n;
    while (next_element(&v, end, &s, &n)) {
        h->closes = h->closes || text_is(s, n, "close");
        h->stays = h->stays || text_is(s, n, "keep-alive");
    }
}

/* The line [n] is cut: its name and its value are strings then. */
static bool read_header(head *h, char *line, size_t n)
{
    tt_http_request *r = h->r;
    const struct {
        const char *name, **value;
    } once[] = {
        {"Host",              &r->host         },
        {"Authorization",     &r->authorization},
        {"Origin",            &r->origin       },
        {"Content-Type",      &r->content_type },
        {"Content-Length",    &h->length       },
        {"Transfer-Encoding", &h->coding       },
        {"Expect",            &h->expect       },
    };
    char *colon = memchr(line, ':', n), *v, *end = line + n;
    if (!colon || !is_token(line, (size_t)(colon - line)))
        return fault(h, 400, "a header has no name");
    *colon = '\0';
    for (v = colon + 1; v < end && is_blank(*v); v++)
        continue;
    while (end > v && is_blank(end[-1]))
        end--;
    *end = '\0';
    if (!strcasecmp(line, "Connection"))
        read_connection(h, v);
    for (size_t i = 0; i < TT_COUNT(once); i++) {
        if (strcasecmp(line, once[i].name) != 0)
            continue;
        if (*once[i].value)
            return fault(h, 400, "a header that may stand once stands twice");
        *once[i].value = v;
    }
    return true;
}

/* Of "http://" or "https://" at the begin of a target; 0: it has neither. A proxy that ends TLS may leave the latter. */
static size_t scheme_length(const char *target)
{
    static const char *const schemes[] = {"http://", "https://"};
    for (size_t i = 0; i < TT_COUNT(schemes); i++)
        if (!strncasecmp(target, schemes[i], strlen(schemes[i])))
            return strlen(schemes[i]);
    return 0;
}

/* SCHEME://HOST/PATH, as to a proxy: its host counts. */
static bool read_absolute(head *h, char *target, size_t scheme)
{
    char *host = target + scheme, *path = host + strcspn(host, "/");
    const size_t n = (size_t)(path - host);
    if (!n || memchr(host, '@', n))
        return fault(h, 400, "the address of the request has no host");
    memmove(target, host, n); /* so that there is room for what ends it */
    target[n] = '\0';
    h->r->host = target;
    h->r->path = *path == '/' ? path : "/";
    return true;
}

static bool read_request_line(head *h, char *line, size_t n)
{
    tt_http_request *r = h->r;
    char *blank = memchr(line, ' ', n);
    char *second = blank ? memchr(blank + 1, ' ', n - (size_t)(blank + 1 - line)) : NULL;
    if (!second || second == blank + 1 || !is_token(line, (size_t)(blank - line)))
        return fault(h, 400, "the first line is no request");
    line[n] = *blank = *second = '\0';
    blank[1 + strcspn(blank + 1, "?")] = '\0';
    r->old = !strcmp(second + 1, "HTTP/1.0");
    if (!r->old && strcmp(second + 1, "HTTP/1.1") != 0)
        return fault(h, 505, "only HTTP/1.1 and HTTP/1.0 are known");
    r->method = line;
    r->path = blank + 1;
    const size_t scheme = scheme_length(r->path);
    if (scheme)
        return read_absolute(h, blank + 1, scheme);
    if (*r->path != '/' && !(!strcmp(r->path, "*") && !strcmp(line, "OPTIONS")))
        return fault(h, 400, "the first line is no request");
    return true;
}

static bool read_lines(head *h, char *text, size_t n)
{
    const char *of_line = NULL; /* the host that the request line names */
    for (char *line = text, *end = text + n - 2; line < end;) {
        char *stop = line;
        while (!(stop[0] == '\r' && stop[1] == '\n')) {
            if (((unsigned char)*stop < ' ' && *stop != '\t') || *stop == 0x7f)
                return fault(h, 400, "the head holds a control character");
            stop++;
        }
        if (!(line == text ? read_request_line(h, line, (size_t)(stop - line))
                           : read_header(h, line, (size_t)(stop - line))))
            return false;
        if (line == text) {
            of_line = h->r->host;
            h->r->host = NULL;
        }
        line = stop + 2;
    }
    if (!h->r->host && !h->r->old)
        return fault(h, 400, "the header Host is missing");
    h->r->host = of_line ? of_line : h->r->host;
    return true;
}

/* What the headers say together: of the body, and of the connection. */
static bool read_framing(head *h)
{
    tt_http_request *r = h->r;
    if (h->coding && (h->length || r->old))
        return fault(h, 400, "Transfer-Encoding does not go with Content-Length or HTTP/1.0");
    if (h->coding && strcasecmp(h->coding, "chunked") != 0)
        return fault(h, 501, "the only Transfer-Encoding that is known is chunked");
    if (h->length && !is_length(h->length))
        return fault(h, 400, "Content-Length is no number");
    if (h->expect && strcasecmp(h->expect, "100-continue") != 0)
        return fault(h, 417, "the only expectation that is known is 100-continue");
    r->chunked = h->coding != NULL;
    r->length = -1;
    for (const char *d = h->length; d && *d; d++)
        r->length = (d == h->length ? 0 : r->length * 10) + (*d - '0');
    r->expects = h->expect && !r->old;
    r->keep_alive = !h->closes && (!r->old || h->stays);
    return true;
}

int tt_http_read(char *text, size_t n, tt_http_request *out, const char **why)
{
    head h = {.r = out};
    *out = (tt_http_request){0};
    if (read_lines(&h, text, n))
        read_framing(&h);
    *why = h.why;
    return h.status;
}

/* ---- bodies in chunks ---- */

enum {
    LENGTH,
    EXTENSION,
    LENGTH_LF,
    DATA,
    DATA_CR,
    DATA_LF,
    TRAILER,
    IN_TRAILER,
    TRAILER_LF,
    LAST_LF
};
enum { MOST_MORE = 8192 }; /* of extensions and trailers in a row */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* In the line of a chunk's length. */
static int after_length(tt_http_chunks *c, char b)
{
    const int digit = hex_digit(b);
    if (digit >= 0 && c->n_digits < 15) {
        c->left = c->left * 16 + (uint64_t)digit;
        c->n_digits++;
        return LENGTH;
    }
    if (!c->n_digits || !(b == '\r' || b == ';' || is_blank(b)))
        return -1;
    return b == '\r' ? LENGTH_LF : EXTENSION;
}

/* The state behind a byte that is no data; -1: it may not come. */
static int after(tt_http_chunks *c, char b)
{
    switch (c->state) {
    case LENGTH:
        return after_length(c, b);
    case EXTENSION:
        return b == '\r' ? LENGTH_LF : b == '\n' ? -1 : EXTENSION;
    case LENGTH_LF:
        return b != '\n' ? -1 : c->left ? DATA : TRAILER;
    case DATA_CR:
        return b == '\r' ? DATA_LF : -1;
    case DATA_LF:
        c->n_digits = 0;
        return b == '\n' ? LENGTH : -1;
    case TRAILER:
        return b == '\r' ? LAST_LF : b == '\n' ? -1 : IN_TRAILER;
    case IN_TRAILER:
        return b == '\r' ? TRAILER_LF : b == '\n' ? -1 : IN_TRAILER;
    case TRAILER_LF:
        return b == '\n' ? TRAILER : -1;
    default:
        c->done = b == '\n';
        return c->done ? LAST_LF : -1;
    }
}

size_t tt_http_unchunk(tt_http_chunks *c, const char *text, size_t n, const char **data,
                       size_t *n_data)
{
    size_t at = 0;
    *n_data = 0;
    while (at < n && !c->done && !c->bad) {
        if (c->state == DATA) {
            *data = text + at;
            *n_data = (size_t)TT_MIN(c->left, (uint64_t)(n - at));
            c->left -= *n_data;
            c->n_more = 0;
            c->state = c->left ? DATA : DATA_CR;
            return at + *n_data;
        }
        const int next = after(c, text[at++]);
        c->bad = next < 0 || ++c->n_more > MOST_MORE;
        c->state = next;
    }
    return at;
}

/* ---- answers ---- */

void tt_http_head(tt_str *out, tt_http_reply *r, int status, const char *type, int64_t length)
{
    tt_str_printf(out, TT_HTTP_VERSION "%d %s\r\n", status, reason(status));
    if (status == 401)
        tt_str_add(out, "WWW-Authenticate: Bearer\r\n");
    if (r->allow)
        tt_str_printf(out, "Allow: %s\r\n", r->allow);
    if (r->origin)
        tt_str_printf(out, "Access-Control-Allow-Origin: %s\r\nVary: Origin\r\n", r->origin);
    if (r->origin && status == 204) /* a page's browser asks before it sends */
        tt_str_printf(out,
                      "Access-Control-Allow-Methods: %s\r\n"
                      "Access-Control-Allow-Headers: Authorization, Content-Type, *\r\n"
                      "Access-Control-Max-Age: 600\r\n",
                      r->allow);
    if (status != 204)
        tt_str_printf(out, "Content-Type: %s\r\n", type);
    if (length < 0) {
        r->keep_alive = r->keep_alive && !r->old;
        tt_str_add(out, r->old ? "" : "Transfer-Encoding: chunked\r\n");
        tt_str_add(out, "Cache-Control: no-cache\r\n");
    } else if (status != 204) {
        tt_str_printf(out, "Content-Length: %lld\r\n", (long long)length);
    }
    tt_str_printf(out, "Connection: %s\r\n\r\n", r->keep_alive ? "keep-alive" : "close");
}

void tt_http_chunk(tt_str *out, const tt_http_reply *r, const char *text, size_t n)
{
    if (!r->old)
        tt_str_printf(out, "%zx\r\n", n);
    tt_str_addn(out, text, n);
    tt_str_add(out, r->old ? "" : "\r\n");
}

void tt_http_last_chunk(tt_str *out, const tt_http_reply *r)
{
    tt_str_add(out, r->old ? "" : "0\r\n\r\n");
}
