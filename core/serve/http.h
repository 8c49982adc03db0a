/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SERVE_HTTP_H
#define TT_SERVE_HTTP_H
#include "base/base.h"

/* The part of HTTP/1.1 (RFC 9112) that a small server of JSON needs: requests whose body has a length, answers with
 * a length or in chunks, connections that stay open. Safe against hostile input. */

enum { TT_HTTP_MOST_HEAD = 32768 }; /* bytes of the request line and headers */

typedef struct tt_http_request { /* it points into what was parsed */
    const char *method, *path;   /* the path without what follows "?" */
    const char *body;
    size_t n_body;
    const char *authorization; /* NULL: the header is absent */
    bool keep_alive;
    bool expects; /* "100-continue" */
} tt_http_request;

typedef struct tt_http_parsed {
    int status;   /* 0: complete; 100: more is needed; else the error to answer with */
    size_t bytes; /* of a complete request */
    const char *why;
} tt_http_parsed;

/* Reads the request at the begin of text [n], whose head it cuts into strings in place once the request is complete.
 * A request that is not complete is left as it is; out->expects is known as soon as the head is there. */
tt_http_parsed tt_http_parse(char *text, size_t n, size_t most_body, tt_http_request *out);

/* length < 0: the body follows in chunks. */
void tt_http_head(tt_str *out, int status, const char *type, int64_t length, bool keep_alive);
void tt_http_chunk(tt_str *out, const char *text, size_t n); /* n > 0 */
void tt_http_last_chunk(tt_str *out);

#endif
