/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SERVE_HTTP_H
#define TT_SERVE_HTTP_H
#include "base/base.h"

/* The words of HTTP/1.1 (RFC 9110, 9112): the head of a request, bodies in chunks, heads of answers. It is strict where two
 * readers of one text could disagree: a header that may stand once stands once, a line ends with CR and LF. Safe against
 * hostile input. */

enum { TT_HTTP_MOST_HEAD = 32768 }; /* bytes of the request line and headers */

typedef struct tt_http_request { /* it points into the head */
    const char *method, *path;   /* the path without what follows "?"; "*" of OPTIONS */
    const char *host;            /* with its port; NULL: HTTP/1.0 without one */
    const char *authorization, *origin, *content_type; /* NULL: absent */
    int64_t length;                                    /* of the body; -1: it is not told */
    bool chunked, keep_alive, old;                     /* old: HTTP/1.0 */
    bool expects;                                      /* "100-continue" */
    const char *body;                                  /* of the caller */
    size_t n_body;
} tt_http_request;

/* Reads a head, text [n] with the empty line that ends it, which it cuts into strings in place. 0, or the status of the
 * answer and why. */
int tt_http_read(char *text, size_t n, tt_http_request *out, const char **why);

/* Where in a body in chunks its reader is; all zero is the begin. */
typedef struct tt_http_chunks {
    int state;
    uint64_t left;   /* bytes of this chunk */
    size_t n_digits; /* of its length */
    size_t n_more;   /* bytes since the last data that are none */
    bool done, bad;
} tt_http_chunks;

/* Reads on in text [n], up to the end of the body or of a piece of data [*n_data] in it. Returns how many bytes it took; it
 * takes some of any text until it is done, or bad. */
size_t tt_http_unchunk(tt_http_chunks *c, const char *text, size_t n, const char **data,
                       size_t *n_data);

/* What the head of an answer has to say besides its status. */
typedef struct tt_http_reply {
    bool keep_alive, old, head_only; /* of the request: HTTP/1.0; HEAD */
    const char *allow;               /* the methods of the path; NULL: not to be told */
    const char *origin;              /* pages that may read the answer; NULL: none but its own */
} tt_http_reply;

#define TT_HTTP_VERSION "HTTP/1.1 " /* each answer begins so */
/* length < 0: the body follows in chunks or, to HTTP/1.0, until the connection ends. */
void tt_http_head(tt_str *out, tt_http_reply *r, int status, const char *type, int64_t length);
void tt_http_chunk(tt_str *out, const tt_http_reply *r, const char *text, size_t n); /* n > 0 */
void tt_http_last_chunk(tt_str *out, const tt_http_reply *r);

#endif
