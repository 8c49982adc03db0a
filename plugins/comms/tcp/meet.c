/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tcp.h"
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <ttrun/log.h>
#include <ttrun/patience.h>
#include <ttrun/sockets.h>
#include <unistd.h>

/* The meeting: rank 0 listens at the address of the start, the other ranks connect to it and say where
 * they listen, and rank 0 tells all of them where all listen. Then every two ranks have a connection.
 * Whoever connects and does not say a hello of this start is refused. */

#define MAGIC UINT64_C(0x7474727463703034) /* the last byte: the version of what ranks say */
#define MOST_SILENT 256                    /* connections that have not said their hello yet */

typedef struct seat { /* what rank 0 tells of each rank */
    struct sockaddr_storage address;
    char host[sizeof((hello *)0)->host];
} seat;

static void set_port(struct sockaddr_storage *a, int port)
{
    if (a->ss_family == AF_INET6)
        ((struct sockaddr_in6 *)a)->sin6_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in *)a)->sin_port = htons((uint16_t)port);
}

static int port_of(const struct sockaddr_storage *a)
{
    const struct sockaddr_in6 *six = (const void *)a;
    const struct sockaddr_in *four = (const void *)a;
    return ntohs(a->ss_family == AF_INET6 ? six->sin6_port : four->sin_port);
}

static socklen_t length_of(const struct sockaddr_storage *a)
{
    return a->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

static bool is_loopback(const struct sockaddr_storage *a)
{
    const struct sockaddr_in6 *six = (const void *)a;
    const struct sockaddr_in *four = (const void *)a;
    if (a->ss_family == AF_INET)
        return ntohl(four->sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&six->sin6_addr) ||
           (IN6_IS_ADDR_V4MAPPED(&six->sin6_addr) && six->sin6_addr.s6_addr[12] == 127);
}

tt_status tcp_listen(tcp_end *e, const char *address, int port, tt_error *err)
{
    e->listener = tt_socket_listen_at(address, port);
    return e->listener >= 0
               ? TT_OK
               : TT_FAIL(err, TT_ECOMM,
                         "tcp: rank %d cannot listen on port %d: %s; take another port", e->rank,
                         port, strerror(errno));
}

static hello make_hello(const tcp_end *e, int kind, uint64_t group, uint64_t number)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    memset(&a, 0, sizeof a);
    getsockname(e->listener, (struct sockaddr *)&a, &n);
    hello h = {.magic = MAGIC,
               .start = e->start,
               .group = group,
               .number = number,
               .kind = kind,
               .rank = e->rank,
               .world = e->world,
               .port = port_of(&a)};
    memcpy(h.host, e->peers[e->rank].host, sizeof h.host);
    return h;
}

/* The code of a hello, or of the answer to it. */
static void make_code(const uint8_t nonce[NONCE], const hello *h, bool answer,
                      uint8_t out[TT_HMAC_BYTES])
{
    struct {
        hello h;
        uint8_t nonce[NONCE];
        uint64_t answer;
    } all;
    memset(&all, 0, sizeof all);
    memcpy(&all.h, h, offsetof(hello, code));
    memcpy(all.nonce, nonce, NONCE);
    all.answer = answer;
    tt_comm_code(&all, sizeof all, out);
}

/* Whether a whole hello is that of a rank of this start; if so, it is answered. */
static bool answer_hello(int fd, const uint8_t nonce[NONCE], const hello *h)
{
    uint8_t code[TT_HMAC_BYTES];
    make_code(nonce, h, false, code);
    if (!tt_hmac_equal(code, h->code) || tt_socket_is_of_another_user(fd))
        return false;
    make_code(nonce, h, true, code);
    return send(fd, code, sizeof code, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof code;
}

static bool is_ours(const tcp_end *e, const hello *h)
{
    return h->magic == MAGIC && h->start == e->start && h->world == e->world && h->rank > e->rank &&
           h->rank < e->world && h->kind >= CONTROL && h->kind <= MESSAGES_DOWN && h->port > 0 &&
           h->port < 65536;
}

/* A line for the first connection that is refused, the tenth, the hundredth, and so on. */
static void tell_refused(tcp_end *e)
{
    e->n_refused++;
    if (e->n_refused < e->tell_at)
        return;
    e->tell_at = e->n_refused * 10;
    tt_log(TT_WARN, "comm", "tcp: refused %lld connection%s of no rank of this start",
           (long long)e->n_refused, e->n_refused > 1 ? "s" : "");
}

static double hello_s(void)
{
    return 1e-9 * (double)tt_patience(TT_TCP_HELLO_NS);
}

static void drop(tcp_end *e, pending **at)
{
    pending *p = *at;
    tell_refused(e);
    close(p->fd);
    *at = p->next;
    free(p);
}

/* Reads what pending connections say, and closes those that are none of ours. */
static void read_hellos(tcp_end *e)
{
    for (pending **at = &e->pending; *at;) {
        pending *p = *at;
        bool bad = false;
        if (p->n_read < sizeof p->h) {
            const ssize_t k =
                recv(p->fd, (char *)&p->h + p->n_read, sizeof p->h - p->n_read, MSG_DONTWAIT);
            p->n_read += k > 0 ? (size_t)k : 0;
            bad = k == 0 || (k < 0 && errno != EAGAIN && errno != EINTR) ||
                  (p->n_read < sizeof p->h
                       ? tcp_now() - p->since > hello_s()
                       : !is_ours(e, &p->h) || !answer_hello(p->fd, p->nonce, &p->h));
        }
        if (!bad) {
            at = &p->next;
            continue;
        }
        drop(e, at);
    }
}

/* Whether one more may be silent. The one that has been for longest goes, but not at once: a rank may be far away. The
 * others wait in the kernel's queue, where they take no descriptor of this process. */
static bool has_place(tcp_end *e)
{
    int n = 0;
    pending **oldest = NULL;
    for (pending **at = &e->pending; *at; at = &(*at)->next)
        if ((*at)->n_read < sizeof(*at)->h) {
            oldest = at; /* the newest is the first */
            n++;
        }
    if (n < MOST_SILENT)
        return true;
    if (tcp_now() - (*oldest)->since < hello_s() / 10)
        return false;
    drop(e, oldest);
    return true;
}

static void accept_some(tcp_end *e)
{
    int fd;
    while (has_place(e) && (fd = accept4(e->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        pending *p = calloc(1, sizeof *p);
        if (!p) {
            close(fd);
            break;
        }
        tt_socket_tune(fd);
        *p = (pending){.fd = fd, .since = tcp_now(), .next = e->pending};
        if (getrandom(p->nonce, NONCE, 0) != NONCE ||
            send(fd, p->nonce, NONCE, MSG_NOSIGNAL | MSG_DONTWAIT) != NONCE) {
            close(fd);
            free(p);
            continue;
        }
        e->pending = p;
    }
    read_hellos(e);
}

void tcp_accept(tcp_end *e)
{
    pthread_mutex_lock(&e->accepting);
    accept_some(e);
    pthread_mutex_unlock(&e->accepting);
}

/* Takes the connection of `rank` for this purpose out of those that are pending; -1: not yet. The newest: a rank that
 * could not read the answer to its hello has come again. */
static int take_link(tcp_end *e, int rank, int kind, uint64_t group, uint64_t number, hello *theirs)
{
    int fd = -1;
    pthread_mutex_lock(&e->accepting);
    accept_some(e);
    for (pending **at = &e->pending; *at; at = &(*at)->next) {
        pending *p = *at;
        if (p->n_read < sizeof p->h || p->h.rank != rank || p->h.kind != kind ||
            p->h.group != group || p->h.number != number)
            continue;
        fd = p->fd;
        *theirs = p->h;
        *at = p->next;
        free(p);
        break;
    }
    pthread_mutex_unlock(&e->accepting);
    return fd;
}

static tt_status late(const tcp_end *e, int rank, tt_error *err)
{
    return TT_FAIL(err, TT_ETIMEOUT,
                   "tcp: rank %d waited %g s (comm.init_timeout_seconds) for the connection with "
                   "rank %d%s",
                   e->rank, e->timeout_s, rank,
                   e->answered
                       ? "; what listens there refuses this rank: are TTRUN_COMM_SECRET, the "
                         "port and the version of ttrun the same everywhere?"
                       : "");
}

static void rest(void)
{
    nanosleep(&(struct timespec){0, 2000000}, NULL);
}

/* Reads what the accepting rank sends, while this rank accepts others, so that no two wait for each other. */
static bool hear_answer(tcp_end *e, int fd, void *bytes, size_t n)
{
    const double until = tcp_now() + hello_s();
    for (size_t at = 0; at < n;) {
        struct pollfd f = {fd, POLLIN, 0};
        const ssize_t k = recv(fd, (char *)bytes + at, n - at, MSG_DONTWAIT);
        if (k == 0 || (k < 0 && errno != EAGAIN && errno != EINTR))
            return false;
        at += k > 0 ? (size_t)k : 0;
        if (k > 0)
            continue;
        if (tcp_now() > until || tcp_check(e, NULL) != TT_OK)
            return false;
        tcp_accept(e);
        poll(&f, 1, 2);
    }
    return true;
}

/* The connecting rank's part of the beginning. */
static bool say_hello(tcp_end *e, int fd, hello h)
{
    uint8_t nonce[NONCE], answer[TT_HMAC_BYTES], code[TT_HMAC_BYTES];
    if (!hear_answer(e, fd, nonce, sizeof nonce))
        return false;
    e->answered = true;
    if (getrandom(h.nonce, NONCE, 0) != NONCE)
        return false;
    make_code(nonce, &h, false, h.code);
    if (send(fd, &h, sizeof h, MSG_NOSIGNAL) != (ssize_t)sizeof h ||
        !hear_answer(e, fd, answer, sizeof answer))
        return false;
    make_code(nonce, &h, true, code);
    if (!tt_hmac_equal(answer, code))
        return false;
    e->answered = false;
    return true;
}

static int try_connect(tcp_end *e, const struct sockaddr_storage *a, const hello *h)
{
    const int fd = tt_socket_connect((const struct sockaddr *)a, length_of(a), 1000);
    if (fd < 0 || say_hello(e, fd, *h))
        return fd;
    close(fd);
    return -1;
}

/* The next address of rank 0's name, where it may listen as well. */
static void next_address(tcp_end *e)
{
    const int port = port_of(&e->peers[0].address);
    if (e->running || !e->address)
        return;
    e->address = e->address->ai_next ? e->address->ai_next : e->addresses;
    memcpy(&e->peers[0].address, e->address->ai_addr, e->address->ai_addrlen);
    set_port(&e->peers[0].address, port);
}

static tt_status link_hello(tcp_end *e, int rank, int kind, uint64_t group, uint64_t number,
                            int *out, hello *theirs, tt_error *err)
{
    const double until = e->timeout_s > 0 ? tcp_now() + e->timeout_s : 0;
    const hello h = make_hello(e, kind, group, number);
    for (;;) {
        const int fd = rank > e->rank ? take_link(e, rank, kind, group, number, theirs)
                                      : try_connect(e, &e->peers[rank].address, &h);
        if (fd >= 0) {
            *out = fd;
            return TT_OK;
        }
        if (!e->running)
            tcp_hear(e);
        TT_TRY(tcp_check(e, err));
        if (until > 0 && tcp_now() > until)
            return late(e, rank, err);
        if (!rank)
            next_address(e);
        rest();
    }
}

tt_status tcp_link(tcp_end *e, int rank, int kind, uint64_t group, uint64_t number, int *out,
                   tt_error *err)
{
    hello theirs;
    return link_hello(e, rank, kind, group, number, out, &theirs, err);
}

/* Before the watching thread runs. */
static tt_status all_of(tcp_end *e, int rank, void *bytes, size_t n, bool out, tt_error *err)
{
    const double until = e->timeout_s > 0 ? tcp_now() + e->timeout_s : 0;
    for (char *at = bytes; n > 0;) {
        const int fd = e->peers[rank].fd;
        struct pollfd f = {fd, out ? POLLOUT : POLLIN, 0};
        const ssize_t k =
            out ? send(fd, at, n, MSG_NOSIGNAL | MSG_DONTWAIT) : recv(fd, at, n, MSG_DONTWAIT);
        if (k > 0) {
            at += k;
            n -= (size_t)k;
            continue;
        }
        if (k == 0 || (errno != EAGAIN && errno != EINTR))
            return TT_FAIL(err, TT_ECOMM,
                           "tcp: rank %d ended or refused rank %d before all ranks had met", rank,
                           e->rank);
        TT_TRY(tcp_check(e, err));
        if (until > 0 && tcp_now() > until)
            return late(e, rank, err);
        poll(&f, 1, 50);
    }
    return TT_OK;
}

static tt_status resolve(tcp_end *e, const char *address, int port, tt_error *err)
{
    struct addrinfo *all = NULL;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    const int bad = getaddrinfo(address, NULL, &hints, &all);
    if (bad)
        return TT_FAIL(err, TT_ECOMM, "tcp: the address of rank 0, %s: %s", address,
                       gai_strerror(bad));
    e->addresses = e->address = all;
    memcpy(&e->peers[0].address, all->ai_addr, all->ai_addrlen);
    set_port(&e->peers[0].address, port);
    return TT_OK;
}

static void name_host(tcp_end *e, int rank, const char name[64])
{
    memcpy(e->peers[rank].host, name, sizeof e->peers->host - 1);
}

static tt_status host_meeting(tcp_end *e, seat *seats, size_t bytes, tt_error *err)
{
    for (int i = 1; i < e->world; i++) {
        hello theirs;
        socklen_t n = sizeof seats[i].address;
        TT_TRY(link_hello(e, i, CONTROL, 0, 0, &e->peers[i].fd, &theirs, err));
        name_host(e, i, theirs.host);
        memcpy(seats[i].host, e->peers[i].host, sizeof seats[i].host);
        getpeername(e->peers[i].fd, (struct sockaddr *)&seats[i].address, &n);
        set_port(&seats[i].address, theirs.port);
    }
    tcp_seal(seats, bytes);
    for (int i = 1; i < e->world; i++)
        TT_TRY(all_of(e, i, seats, bytes + TT_HMAC_BYTES, true, err));
    return TT_OK;
}

static tt_status join_meeting(tcp_end *e, const char *address, int port, seat *seats, size_t bytes,
                              tt_error *err)
{
    char text[TEXT];
    TT_TRY(resolve(e, address, port, err));
    TT_TRY(tcp_link(e, 0, CONTROL, 0, 0, &e->peers[0].fd, err));
    TT_TRY(all_of(e, 0, seats, bytes + TT_HMAC_BYTES, false, err));
    if (!tcp_is_sealed(seats, bytes)) {
        tcp_damage_text(e, 0, "the addresses of all ranks", text);
        return TT_FAIL(err, TT_ECOMM, "%s", text);
    }
    name_host(e, 0, seats[0].host);
    for (int i = 1; i < e->world; i++) {
        const int its = port_of(&seats[i].address);
        name_host(e, i, seats[i].host);
        e->peers[i].address = seats[i].address;
        if (is_loopback(&seats[i].address)) { /* it is on rank 0's machine */
            e->peers[i].address = e->peers[0].address;
            set_port(&e->peers[i].address, its);
        }
    }
    return TT_OK;
}

tt_status tcp_meet(tcp_end *e, const char *address, int port, tt_error *err)
{
    const size_t bytes = (size_t)e->world * sizeof(seat);
    char *host = e->peers[e->rank].host;
    seat *seats = calloc(1, bytes + TT_HMAC_BYTES);
    if (!seats)
        return TT_FAIL(err, TT_ENOMEM, "no memory for the addresses of %d ranks", e->world);
    gethostname(host, sizeof e->peers->host - 1);
    memcpy(seats[0].host, host, sizeof seats->host);
    tt_status s = e->rank ? join_meeting(e, address, port, seats, bytes, err)
                          : host_meeting(e, seats, bytes, err);
    for (int i = 1; s == TT_OK && e->rank && i < e->world; i++)
        if (i != e->rank)
            s = tcp_link(e, i, CONTROL, 0, 0, &e->peers[i].fd, err);
    free(seats);
    return s;
}
