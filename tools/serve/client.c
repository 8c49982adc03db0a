/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/server_impl.h"
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <ttrun/patience.h>
#include <unistd.h>

enum {
    MOST_INPUT = 1 << 16,    /* bytes that wait to be looked at; more stays in the kernel */
    MOST_ANSWERED = 1 << 16, /* bytes of answers that are not sent; then the next request waits */
    FEW = 4,                 /* requests of a connection, until others are looked at */
    N_VERSION = sizeof TT_HTTP_VERSION - 1,
};
#define MOST_UNSENT ((size_t)64 << 20) /* of an answer that its client does not read */

static struct timeval time_of(int64_t ns)
{
    ns = tt_patience(ns);
    return (struct timeval){.tv_sec = ns / 1000000000, .tv_usec = ns % 1000000000 / 1000};
}

/* ---- its states ---- */

void tt_client_has_news(tt_client *c)
{
    if (!c->in_news)
        TAILQ_INSERT_TAIL(&c->server->news, c, news);
    c->in_news = true;
}

static struct tt_clients *list_of(tt_client *c)
{
    return c->state == TT_CLIENT_WORK ? &c->server->working : &c->server->waiting;
}

/* Each state but work has its limit, and the client then waits behind all others. */
static void enter(tt_client *c, tt_client_state state)
{
    static const int64_t limits[] = {TT_HTTP_SILENT_NS, TT_HTTP_HEAD_NS, TT_HTTP_BODY_NS, 0, 0,
                                     TT_HTTP_LINGER_NS};
    const struct timeval limit = time_of(limits[state]);
    TAILQ_REMOVE(list_of(c), c, one);
    c->state = state;
    c->late = false;
    TAILQ_INSERT_TAIL(list_of(c), c, one);
    if (limits[state])
        event_add(c->limit, &limit);
    else
        event_del(c->limit);
}

static void drop_body(tt_client *c)
{
    c->server->bodies -= c->state == TT_CLIENT_BODY ? evbuffer_get_length(c->body) : 0;
    evbuffer_drain(c->body, evbuffer_get_length(c->body));
}

void tt_client_free(tt_client *c)
{
    drop_body(c);
    TAILQ_REMOVE(list_of(c), c, one);
    if (c->in_news)
        TAILQ_REMOVE(&c->server->news, c, news);
    tt_api_free(c->server->o->api, c->call);
    event_free(c->limit);
    evbuffer_free(c->body);
    bufferevent_free(c->io);
    tt_str_free(&c->head);
    tt_str_free(&c->out);
    free(c);
}

/* ---- what libevent tells ---- */

/* A watermark would do the same, but libevent 2.1 then calls again and again within one look, until the input is less. */
static void on_bytes(struct bufferevent *io, void *client)
{
    if (evbuffer_get_length(bufferevent_get_input(io)) >= MOST_INPUT)
        bufferevent_disable(io, EV_READ);
    tt_client_has_news(client);
}

static void on_sent(struct bufferevent *io, void *client)
{
    (void)io;
    tt_client_has_news(client);
}

static void on_event(struct bufferevent *io, short what, void *client)
{
    tt_client *c = client;
    (void)io;
    if (what & BEV_EVENT_CONNECTED) /* the handshake of TLS is done */
        return;
    if (what & BEV_EVENT_EOF && what & BEV_EVENT_READING)
        c->eof = true;
    else
        c->gone = true;
    tt_client_has_news(c);
}

static void on_limit(evutil_socket_t fd, short what, void *client)
{
    tt_client *c = client;
    (void)fd, (void)what;
    c->late = true;
    tt_client_has_news(c);
}

tt_client *tt_client_new(tt_server *s, int fd)
{
    const int one = 1;
    const struct timeval unread = time_of(TT_HTTP_SILENT_NS);
    tt_client *c = calloc(1, sizeof *c);
    struct bufferevent *io = s->o->tls ? tt_tls_accept(s->o->tls, s->base, fd)
                                       : bufferevent_socket_new(s->base, fd, BEV_OPT_CLOSE_ON_FREE);
    struct evbuffer *body = evbuffer_new();
    struct event *limit = c ? event_new(s->base, -1, 0, on_limit, c) : NULL;
    if (!c || !io || !body || !limit) {
        if (io)
            bufferevent_free(io);
        else
            close(fd);
        if (body)
            evbuffer_free(body);
        if (limit)
            event_free(limit);
        free(c);
        return NULL;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    *c = (tt_client){.server = s, .io = io, .limit = limit, .body = body};
    TAILQ_INSERT_TAIL(list_of(c), c, one);
    enter(c, TT_CLIENT_SILENT);
    bufferevent_setcb(io, on_bytes, on_sent, on_event, c);
    bufferevent_set_timeouts(io, NULL, &unread);
    bufferevent_enable(io, EV_READ | EV_WRITE);
    return c;
}

/* ---- its answers ---- */

static size_t unsent(const tt_client *c)
{
    return evbuffer_get_length(bufferevent_get_output(c->io));
}

static void send_text(tt_client *c, const char *text, size_t n)
{
    if (bufferevent_write(c->io, text, n))
        c->gone = true;
}

static void send_out(tt_client *c)
{
    const size_t skip = c->greeted ? N_VERSION : 0;
    if (!c->out.n)
        return;
    send_text(c, c->out.s + skip, c->out.n - skip);
    c->greeted = false;
    c->answers = true;
    if (c->out.n > MOST_ANSWERED)
        tt_str_free(&c->out);
    tt_str_clear(&c->out);
    c->gone = c->gone || unsent(c) > MOST_UNSENT;
}

/* The answer is complete. */
static void answered(tt_client *c)
{
    send_out(c);
    tt_str_free(&c->head);
    enter(c, c->reply.keep_alive ? TT_CLIENT_SILENT : TT_CLIENT_LAST);
}

static void refuse_client(tt_client *c, int status, const char *why)
{
    drop_body(c);
    tt_api_fault(&c->out, &c->reply, status, why);
    answered(c);
}

/* A client that has closed its side may wait for the answer, or be gone. What the answer begins with anyway is sent, and
 * comes back as a reset if nobody is there. */
static void look_if_gone(tt_client *c)
{
    int error = 0;
    socklen_t n = sizeof error;
    if (!c->answers) {
        send_text(c, TT_HTTP_VERSION, N_VERSION);
        c->greeted = c->answers = true;
    }
    if (!getsockopt(bufferevent_getfd(c->io), SOL_SOCKET, SO_ERROR, &error, &n) && error)
        c->gone = true;
}

/* ---- its requests ---- */

static struct evbuffer *input(const tt_client *c)
{
    return bufferevent_get_input(c->io);
}

static void begin_request(tt_client *c)
{
    c->r.n_body = evbuffer_get_length(c->body);
    c->r.body = c->r.n_body ? (const char *)evbuffer_pullup(c->body, -1) : "";
    c->answers = c->greeted = false;
    if (c->r.body)
        tt_api_begin(c->server->o->api, &c->r, &c->reply, &c->out, &c->call);
    else
        tt_api_fault(&c->out, &c->reply, 500, "no memory for the body");
    drop_body(c);
    enter(c, TT_CLIENT_WORK);
    if (c->call)
        send_out(c);
    else
        answered(c);
}

/* The head is whole: text [n]. */
static void take_head(tt_client *c, const char *text, size_t n)
{
    const char *why;
    tt_str_addn(&c->head, text, n);
    evbuffer_drain(input(c), n);
    c->scanned = 0;
    c->reply = (tt_http_reply){0};
    int status = tt_http_read(c->head.s, c->head.n, &c->r, &why);
    if (!status)
        status = tt_api_judge(c->server->o->api, &c->r, &c->reply, &why);
    const bool more = c->r.chunked || c->r.length > 0;
    c->reply.keep_alive = c->reply.keep_alive && !(status && more);
    if (status) {
        refuse_client(c, status, why);
    } else if (more) {
        c->chunks = (tt_http_chunks){0};
        enter(c, TT_CLIENT_BODY);
        if (c->r.expects)
            send_text(c, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    } else {
        begin_request(c);
    }
}

/* True: it has gone on, and there may be more to do. */
static bool read_head(tt_client *c)
{
    struct evbuffer *in = input(c);
    struct evbuffer_ptr at;
    char two[2];
    while (!c->scanned && evbuffer_copyout(in, two, 2) == 2 && !memcmp(two, "\r\n", 2))
        evbuffer_drain(in, 2); /* empty lines before a request */
    const size_t n = evbuffer_get_length(in);
    if (n && c->state == TT_CLIENT_SILENT)
        enter(c, TT_CLIENT_HEAD);
    evbuffer_ptr_set(in, &at, c->scanned, EVBUFFER_PTR_SET);
    at = evbuffer_search(in, "\r\n\r\n", 4, &at);
    const size_t size = at.pos < 0 ? n : (size_t)at.pos + 4;
    if (size > TT_HTTP_MOST_HEAD) {
        c->reply = (tt_http_reply){0};
        refuse_client(c, 431, "the headers are too long");
    } else if (at.pos >= 0) {
        const char *text = (const char *)evbuffer_pullup(in, (ev_ssize_t)size);
        if (text)
            take_head(c, text, size);
        else
            c->gone = true;
    } else {
        c->scanned = n > 3 ? n - 3 : 0;
        if (c->eof)
            enter(c, TT_CLIENT_LAST);
        return false;
    }
    return true;
}

/* Takes a piece of the body out of the input; false: there is none now. */
static bool read_piece(tt_client *c)
{
    struct evbuffer *in = input(c);
    const size_t n = evbuffer_get_contiguous_space(in), has = evbuffer_get_length(c->body);
    const char *text = (const char *)evbuffer_pullup(in, (ev_ssize_t)n), *data = text;
    size_t n_data = c->r.chunked ? 0 : TT_MIN(n, (size_t)c->r.length - has), used = n_data;
    if (!n || !text || c->chunks.done || c->chunks.bad || has > TT_API_MOST_BODY)
        return false;
    if (c->r.chunked)
        used = tt_http_unchunk(&c->chunks, text, n, &data, &n_data);
    c->gone = c->gone || (n_data && evbuffer_add(c->body, data, n_data));
    c->server->bodies += evbuffer_get_length(c->body) - has;
    evbuffer_drain(in, used);
    return used > 0;
}

/* Bodies have a memory in common: who has been sending for the longest time gives way. */
static void keep_bodies(tt_server *s)
{
    const size_t most = s->o->most_bodies ? s->o->most_bodies : (size_t)256 << 20;
    tt_client *next, *c = TAILQ_FIRST(&s->waiting);
    for (; c && s->bodies > most; c = next) {
        next = TAILQ_NEXT(c, one);
        if (c->state != TT_CLIENT_BODY)
            continue;
        refuse_client(c, 503, "too many long bodies at once: try again later");
        tt_client_has_news(c);
    }
}

static bool read_body(tt_client *c)
{
    while (read_piece(c))
        continue;
    const size_t has = evbuffer_get_length(c->body);
    keep_bodies(c->server);
    if (c->state != TT_CLIENT_BODY)
        return true;
    if (c->chunks.bad)
        refuse_client(c, 400, "the chunks of the body are broken");
    else if (has > TT_API_MOST_BODY)
        refuse_client(c, 413, "the body is too long: at most 16 MiB");
    else if (c->r.chunked ? c->chunks.done : has == (size_t)c->r.length)
        begin_request(c);
    else if (c->eof)
        c->gone = true;
    else
        return false;
    return true;
}

static bool read_next(tt_client *c)
{
    switch (c->state) {
    case TT_CLIENT_SILENT:
    case TT_CLIENT_HEAD:
        return unsent(c) <= MOST_ANSWERED && read_head(c);
    case TT_CLIENT_BODY:
        return read_body(c);
    default:
        return false;
    }
}

/* ---- the end ---- */

static void end_answers(tt_client *c)
{
    if (c->state == TT_CLIENT_LAST && !unsent(c) && !c->eof) {
        if (c->server->o->tls)
            tt_tls_say_end(c->server->o->tls, c->io);
        shutdown(bufferevent_getfd(c->io), SHUT_WR);
        enter(c, TT_CLIENT_LINGER);
    }
    if (c->state == TT_CLIENT_LINGER)
        evbuffer_drain(input(c), evbuffer_get_length(input(c)));
    c->gone = c->gone || (c->eof && !unsent(c) &&
                          (c->state == TT_CLIENT_LAST || c->state == TT_CLIENT_LINGER));
}

static void end_patience(tt_client *c)
{
    c->late = false;
    if (c->state == TT_CLIENT_HEAD || c->state == TT_CLIENT_BODY) {
        c->reply = (tt_http_reply){0};
        refuse_client(c, 408, "the request has not come in time");
    } else {
        c->gone = true;
    }
}

void tt_client_go_on(tt_client *c)
{
    int n = 0;
    if (c->late)
        end_patience(c);
    while (!c->gone && n < FEW && read_next(c))
        n++;
    end_answers(c);
    if (c->gone) {
        tt_client_free(c);
        return;
    }
    if (n == FEW)
        tt_client_has_news(c);
    if (!c->eof && evbuffer_get_length(input(c)) < MOST_INPUT)
        bufferevent_enable(c->io, EV_READ);
}

void tt_client_flush(tt_client *c)
{
    send_out(c);
    if (tt_api_is_done(c->call)) {
        tt_api_free(c->server->o->api, c->call);
        c->call = NULL;
        answered(c);
        tt_client_has_news(c); /* the next request may be there */
    } else if (c->eof) {
        look_if_gone(c);
    }
    if (c->gone)
        tt_client_free(c);
}
