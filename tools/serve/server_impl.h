/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SERVE_SERVER_IMPL_H
#define TT_SERVE_SERVER_IMPL_H
#include "serve/server.h"
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <sys/queue.h>

/* A connection is read and written by libevent's bufferevents, which keep a bounded piece of what a client sends. Callbacks
 * note that there is news of it; the server then goes on with it, outside of them.
 * Limits, each of a whole state and not renewed by a byte: a head TT_HTTP_HEAD_NS, a body TT_HTTP_BODY_NS, silence between
 * two requests TT_HTTP_SILENT_NS, the end of a connection TT_HTTP_LINGER_NS. */

typedef enum tt_client_state {
    TT_CLIENT_SILENT, /* nothing of its next request is there */
    TT_CLIENT_HEAD,   /* a part of the head */
    TT_CLIENT_BODY,   /* the head, and a part of the body */
    TT_CLIENT_WORK,   /* a whole request, which the engine works on */
    TT_CLIENT_LAST,   /* its last answer is to be sent */
    TT_CLIENT_LINGER, /* all is sent; what still comes is thrown away, so that the answer is not lost (RFC 9112, 9.6) */
} tt_client_state;

typedef struct tt_server tt_server;
typedef struct tt_client {
    tt_server *server;
    struct bufferevent *io;
    struct event *limit;
    tt_client_state state;
    size_t scanned; /* bytes of an incomplete head without its end */
    tt_str head;    /* of the request; r points into it */
    tt_http_request r;
    tt_http_chunks chunks;
    struct evbuffer *body; /* what is there of it */
    tt_http_reply reply;
    tt_str out; /* of the answer, that the connection does not have yet */
    tt_api_call *call;
    bool eof, gone, late;
    bool answers; /* something of the answer is sent */
    bool greeted; /* only TT_HTTP_VERSION */
    bool in_news;
    TAILQ_ENTRY(tt_client) one, news; /* `one`: in the list of its state */
} tt_client;
TAILQ_HEAD(tt_clients, tt_client);

struct tt_server {
    const tt_server_opts *o;
    struct event_base *base;
    struct evconnlistener *listener;
    struct event *tick, *hears; /* tick: ends a wait; hears: accepts again */
    struct tt_clients waiting;  /* whose request is not whole, or over, the longest first */
    struct tt_clients working;
    struct tt_clients news;
    size_t bodies; /* bytes of all bodies that are not whole */
};

/* Of a connection that was accepted, which it owns. NULL: no memory. */
tt_client *tt_client_new(tt_server *s, int fd);
void tt_client_free(tt_client *c);
/* Takes what has come, begins requests that are whole, sends what is said. It may be freed. */
void tt_client_go_on(tt_client *c);
/* After a step of the engine. It may be freed. */
void tt_client_flush(tt_client *c);
void tt_client_has_news(tt_client *c);

#endif
