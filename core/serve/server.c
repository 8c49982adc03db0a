/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "serve/server.h"
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* One thread polls the connections and runs the engine, a step at a time. A connection has one request at a time; what
 * follows it waits. A client that is slow or silent is dropped after TT_HTTP_SILENT_NS, one that goes takes its request with
 * it. */

#define CLIENTS 256
#define MOST_BODY ((size_t)16 << 20)
#define MOST_UNSENT ((size_t)64 << 20) /* of an answer that its client does not read */

typedef struct client {
    int fd; /* -1: free */
    tt_str in, out;
    size_t sent;
    tt_api_call *call;
    bool keep, told_continue, gone;
    int64_t until_ns;
} client;

typedef struct server {
    const tt_server_opts *o;
    int listener;
    client clients[CLIENTS];
    int64_t deaf_until_ns; /* nothing is accepted before: this process has no descriptor left */
} server;

bool tt_server_is_loopback(const char *host)
{
    return !strcmp(host, "localhost") || !strncmp(host, "127.", 4) || !strcmp(host, "::1");
}

/* ---- a connection ---- */

static void client_free(server *s, client *c)
{
    tt_api_free(s->o->api, c->call);
    close(c->fd);
    tt_str_free(&c->in);
    tt_str_free(&c->out);
    *c = (client){.fd = -1};
}

static void patience(client *c)
{
    c->until_ns = tt_now_ns() + tt_patience(TT_HTTP_SILENT_NS);
}

static void client_write(client *c)
{
    while (c->sent < c->out.n) {
        const ssize_t n =
            send(c->fd, c->out.s + c->sent, c->out.n - c->sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n <= 0) {
            c->gone = true;
            return;
        }
        c->sent += (size_t)n;
        patience(c);
    }
    if (c->sent == c->out.n) {
        tt_str_clear(&c->out);
        c->sent = 0;
    } else if (c->out.n - c->sent > MOST_UNSENT) {
        c->gone = true;
    } else if (c->sent > (1 << 20)) {
        memmove(c->out.s, c->out.s + c->sent, c->out.n - c->sent + 1);
        c->out.n -= c->sent;
        c->sent = 0;
    }
}

/* Begins the next request, if it is complete and the one before it is answered. */
static void client_obey(server *s, client *c)
{
    tt_http_request r;
    while (!c->call && c->keep && c->in.n && !c->out.n) {
        const tt_http_parsed p = tt_http_parse(c->in.s, c->in.n, MOST_BODY, &r);
        if (p.status == 100) {
            if (r.expects && !c->told_continue)
                tt_str_add(&c->out, "HTTP/1.1 100 Continue\r\n\r\n");
            c->told_continue = c->told_continue || r.expects;
            client_write(c);
            return;
        }
        if (p.status) {
            tt_api_fault(&c->out, p.status, p.why);
            c->keep = false;
        } else {
            c->keep = tt_api_begin(s->o->api, &r, &c->out, &c->call);
            memmove(c->in.s, c->in.s + p.bytes, c->in.n - p.bytes + 1);
            c->in.n -= p.bytes;
            c->told_continue = false;
        }
        client_write(c);
    }
}

static void client_read(client *c)
{
    char piece[65536];
    const ssize_t n = recv(c->fd, piece, sizeof piece, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0 || c->in.n > MOST_BODY + TT_HTTP_MOST_HEAD) {
        c->gone = true;
        return;
    }
    tt_str_addn(&c->in, piece, (size_t)n);
    patience(c);
}

/* After the engine has worked: sends what it said, and ends what is over. */
static void client_go_on(server *s, client *c)
{
    if (c->out.n)
        client_write(c);
    if (c->call && tt_api_is_done(c->call)) {
        c->keep = c->keep && !tt_api_has_failed(c->call);
        tt_api_free(s->o->api, c->call);
        c->call = NULL;
        patience(c);
    }
    client_obey(s, c);
    if (c->call)
        patience(c); /* it waits for us */
    if (c->gone || (!c->keep && !c->call && !c->out.n) || tt_now_ns() > c->until_ns)
        client_free(s, c);
}

/* ---- the listener ---- */

static void url_of(int fd, tt_str *url)
{
    struct sockaddr_storage a = {0};
    socklen_t n = sizeof a;
    char host[256] = "?", port[32] = "?";
    getsockname(fd, (struct sockaddr *)&a, &n);
    getnameinfo((struct sockaddr *)&a, n, host, sizeof host, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
    tt_str_printf(url, strchr(host, ':') ? "http://[%s]:%s" : "http://%s:%s", host, port);
}

static tt_status listen_at(server *s, tt_error *err)
{
    char port[16];
    struct addrinfo *all = NULL;
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    const int one = 1;
    int why = 0;
    snprintf(port, sizeof port, "%d", s->o->port);
    const int r = getaddrinfo(s->o->host, port, &hints, &all);
    if (r)
        return TT_FAIL(err, TT_EINVAL, "--host %s: %s", s->o->host, gai_strerror(r));
    for (const struct addrinfo *a = all; a && s->listener < 0; a = a->ai_next) {
        const int fd =
            socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
        if (fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) &&
            !bind(fd, a->ai_addr, a->ai_addrlen) && !listen(fd, 128)) {
            s->listener = fd;
        } else {
            why = errno;
            if (fd >= 0)
                close(fd);
        }
    }
    freeaddrinfo(all);
    return s->listener >= 0 ? TT_OK
                            : TT_FAIL(err, TT_EIO, "cannot listen at %s, port %d: %s", s->o->host,
                                      s->o->port, strerror(why));
}

static void accept_one(server *s)
{
    const int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), one = 1;
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
            s->deaf_until_ns = tt_now_ns() + tt_patience(TT_DEAF_NS);
        return;
    }
    for (int i = 0; i < CLIENTS; i++)
        if (s->clients[i].fd < 0) {
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
            s->clients[i] = (client){.fd = fd, .keep = true};
            patience(&s->clients[i]);
            return;
        }
    close(fd);
}

/* ---- the loop ---- */

/* Waits for news, not at all while the engine has work. */
static void server_look(server *s, bool busy)
{
    struct pollfd fds[CLIENTS + 1];
    int of[CLIENTS], n = 0, room = 0;
    for (int i = 0; i < CLIENTS; i++) {
        client *c = &s->clients[i];
        if (c->fd < 0) {
            room++;
            continue;
        }
        of[n] = i;
        const bool reads = c->in.n <= MOST_BODY + TT_HTTP_MOST_HEAD;
        fds[n++] = (struct pollfd){
            .fd = c->fd, .events = (short)((reads ? POLLIN : 0) | (c->out.n ? POLLOUT : 0))};
    }
    const bool hears = room && tt_now_ns() > s->deaf_until_ns;
    fds[n] = (struct pollfd){.fd = hears ? s->listener : -1, .events = POLLIN};
    if (poll(fds, (nfds_t)n + 1, busy ? 0 : 200) < 0)
        return;
    for (int i = 0; i < n; i++) {
        client *c = &s->clients[of[i]];
        if (fds[i].revents & POLLIN)
            client_read(c);
        else if (fds[i].revents & (POLLERR | POLLHUP | POLLNVAL))
            c->gone = true;
    }
    if (fds[n].revents & POLLIN)
        accept_one(s);
}

static tt_status turn(server *s, tt_error *err)
{
    server_look(s, tt_engine_is_busy(s->o->engine));
    for (int i = 0; i < CLIENTS; i++)
        if (s->clients[i].fd >= 0)
            client_go_on(s, &s->clients[i]);
    TT_TRY(tt_api_admit(s->o->api, err));
    if (tt_engine_is_busy(s->o->engine))
        TT_TRY(tt_engine_step(s->o->engine, err));
    return TT_OK;
}

tt_status tt_server_run(const tt_server_opts *o, tt_error *err)
{
    server *s = calloc(1, sizeof *s);
    if (!s)
        return TT_FAIL(err, TT_ENOMEM, "no memory for a server");
    s->o = o;
    s->listener = -1;
    for (int i = 0; i < CLIENTS; i++)
        s->clients[i].fd = -1;
    tt_status st = listen_at(s, err);
    if (st == TT_OK) {
        tt_str url = {0};
        url_of(s->listener, &url);
        o->ready(o->user, tt_str_get(&url));
        tt_str_free(&url);
    }
    while (st == TT_OK && !o->stop())
        st = turn(s, err);
    for (int i = 0; i < CLIENTS; i++)
        if (s->clients[i].fd >= 0)
            client_free(s, &s->clients[i]);
    if (s->listener >= 0)
        close(s->listener);
    free(s);
    return st;
}
