/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "serve/server.h"
#include "serve/server_impl.h"
#include <errno.h>
#include <event2/listener.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <ttrun/patience.h>
#include <unistd.h>

enum {
    ROUNDS = 16
}; /* looks at the connections before a step of the engine, while there is news */

/* ---- the listener ---- */

static void url_of(int fd, const char *scheme, tt_str *url)
{
    struct sockaddr_storage a = {0};
    socklen_t n = sizeof a;
    char host[256] = "?", port[32] = "?";
    getsockname(fd, (struct sockaddr *)&a, &n);
    getnameinfo((struct sockaddr *)&a, n, host, sizeof host, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
    tt_str_printf(url, strchr(host, ':') ? "%s://[%s]:%s" : "%s://%s:%s", scheme, host, port);
}

static tt_status listen_at(const tt_server_opts *o, int *out, tt_error *err)
{
    char port[16];
    struct addrinfo *all = NULL;
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    const int one = 1;
    int why = 0;
    *out = -1;
    snprintf(port, sizeof port, "%d", o->port);
    const int r = getaddrinfo(o->host, port, &hints, &all);
    if (r)
        return TT_FAIL(err, TT_EINVAL, "--host %s: %s", o->host, gai_strerror(r));
    for (const struct addrinfo *a = all; a && *out < 0; a = a->ai_next) {
        const int fd =
            socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
        if (fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) &&
            !bind(fd, a->ai_addr, a->ai_addrlen) && !listen(fd, 128)) {
            *out = fd;
        } else {
            why = errno;
            if (fd >= 0)
                close(fd);
        }
    }
    freeaddrinfo(all);
    return *out >= 0 ? TT_OK
                     : TT_FAIL(err, TT_EIO, "cannot listen at %s, port %d: %s", o->host, o->port,
                               strerror(why));
}

/* The listener can give no connection: a client that only waits gives way, the longest first. */
static void no_room(struct evconnlistener *listener, void *server)
{
    tt_server *s = server;
    const int64_t ns = tt_patience(TT_DEAF_NS);
    const struct timeval pause = {ns / 1000000000, ns % 1000000000 / 1000};
    if (!TAILQ_EMPTY(&s->waiting)) {
        tt_client_free(TAILQ_FIRST(&s->waiting));
    } else {
        evconnlistener_disable(listener);
        event_add(s->hears, &pause);
    }
}

static void on_hears(evutil_socket_t fd, short what, void *server)
{
    (void)fd, (void)what;
    evconnlistener_enable(((tt_server *)server)->listener);
}

static void on_tick(evutil_socket_t fd, short what, void *server)
{
    (void)fd, (void)what, (void)server;
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *from,
                      int n, void *server)
{
    (void)from, (void)n;
    if (!tt_client_new(server, fd))
        no_room(listener, server);
}

/* ---- the loop ---- */

/* Goes on with each client of which there is news by now; what they do may be news of the next round. */
static void go_on(tt_server *s)
{
    const tt_client *last = TAILQ_LAST(&s->news, tt_clients);
    for (const tt_client *done = NULL; done != last;) {
        tt_client *c = TAILQ_FIRST(&s->news);
        done = c;
        TAILQ_REMOVE(&s->news, c, news);
        c->in_news = false;
        tt_client_go_on(c);
    }
}

/* Waits for news, not at all while the engine has work. */
static void look_at_clients(tt_server *s)
{
    const bool waits = !tt_engine_is_busy(s->o->engine) && TAILQ_EMPTY(&s->news);
    for (int i = 0; i < ROUNDS; i++) {
        event_base_loop(s->base, EVLOOP_ONCE | (waits && !i ? 0 : EVLOOP_NONBLOCK));
        if (TAILQ_EMPTY(&s->news))
            break;
        go_on(s);
    }
}

static tt_status turn(tt_server *s, tt_error *err)
{
    look_at_clients(s);
    TT_TRY(tt_api_admit(s->o->api, err));
    if (tt_engine_is_busy(s->o->engine))
        TT_TRY(tt_engine_step(s->o->engine, err));
    for (tt_client *c = TAILQ_FIRST(&s->working), *next; c; c = next) {
        next = TAILQ_NEXT(c, one);
        tt_client_flush(c);
    }
    return TT_OK;
}

/* fd: of the listener, which the server owns. */
static tt_status open_server(tt_server *s, const tt_server_opts *o, int fd, tt_error *err)
{
    const struct timeval often = {0, 200000};
    struct event_config *config = event_config_new();
    *s = (tt_server){.o = o};
    TAILQ_INIT(&s->waiting);
    TAILQ_INIT(&s->working);
    TAILQ_INIT(&s->news);
    if (config && !event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK))
        s->base = event_base_new_with_config(config);
    if (config)
        event_config_free(config);
    if (s->base) {
        s->listener = evconnlistener_new(s->base, on_accept, s,
                                         LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0, fd);
        s->tick = event_new(s->base, -1, EV_PERSIST, on_tick, s);
        s->hears = event_new(s->base, -1, 0, on_hears, s);
    }
    if (!s->listener)
        close(fd);
    if (!s->listener || !s->tick || !s->hears || event_add(s->tick, &often))
        return TT_FAIL(err, TT_ENOMEM, "no memory for a server");
    evconnlistener_set_error_cb(s->listener, no_room);
    return TT_OK;
}

static void close_server(tt_server *s)
{
    struct tt_clients *const all[] = {&s->waiting, &s->working};
    for (size_t i = 0; i < TT_COUNT(all); i++)
        while (!TAILQ_EMPTY(all[i]))
            tt_client_free(TAILQ_FIRST(all[i]));
    if (s->listener)
        evconnlistener_free(s->listener);
    if (s->tick)
        event_free(s->tick);
    if (s->hears)
        event_free(s->hears);
    if (s->base)
        event_base_free(s->base);
}

/* As many clients as the system lets this process have. */
static void raise_limit(void)
{
    struct rlimit most;
    if (!getrlimit(RLIMIT_NOFILE, &most)) {
        most.rlim_cur = most.rlim_max;
        setrlimit(RLIMIT_NOFILE, &most);
    }
}

tt_status tt_server_run(const tt_server_opts *o, tt_error *err)
{
    tt_server s;
    tt_str url = {0};
    int fd;
    raise_limit();
    TT_TRY(listen_at(o, &fd, err));
    url_of(fd, o->tls ? "https" : "http", &url);
    tt_status st = open_server(&s, o, fd, err);
    if (st == TT_OK)
        o->ready(o->user, tt_str_get(&url));
    tt_str_free(&url);
    while (st == TT_OK && !o->stop())
        st = turn(&s, err);
    close_server(&s);
    return st;
}
