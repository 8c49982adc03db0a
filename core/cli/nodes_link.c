/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "cli/nodes_link.h"
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

/* A machine that vanishes is noticed after IDLE_S + PROBES · PROBE_S seconds. */
#define IDLE_S 10
#define PROBE_S 5
#define PROBES 3
#define CONNECT_MS 1000

static void tune_link(int fd)
{
    const int on = 1, idle = IDLE_S, probe = PROBE_S, probes = PROBES,
              unsent_ms = 1000 * (IDLE_S + PROBES * PROBE_S);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &probe, sizeof probe);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unsent_ms, sizeof unsent_ms);
}

tt_status tt_node_listen(int port, int *out, tt_error *err)
{
    const int on = 1, off = 0;
    const struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    const struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    for (int i = 0; i < 2; i++) { /* IPv6 takes IPv4 as well, where the kernel has it */
        const int fd =
            socket(i ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
            continue;
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (!i)
            setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
        if (!bind(fd, i ? (const struct sockaddr *)&four : (const struct sockaddr *)&six,
                  i ? sizeof four : sizeof six) &&
            !listen(fd, 1024)) {
            *out = fd;
            return TT_OK;
        }
        close(fd);
    }
    return TT_FAIL(err, TT_EINVAL,
                   "--master_port %d: node 0 cannot listen there: %s; give all nodes another port",
                   port, strerror(errno));
}

/* The code of message `number`, whose other fields are set. */
static void make_code(const tt_node_link *l, const tt_node_message *m, bool from_far,
                      uint64_t number, uint8_t out[TT_HMAC_BYTES])
{
    struct {
        uint8_t nonces[32];
        uint64_t number, from_far;
        tt_node_message m;
    } all;
    const char *secret = getenv("TTRUN_COMM_SECRET");
    memset(&all, 0, sizeof all);
    memcpy(all.nonces, l->nonces, sizeof all.nonces);
    all.number = number;
    all.from_far = from_far;
    memcpy(&all.m, m, sizeof *m);
    memset(all.m.code, 0, sizeof all.m.code);
    tt_hmac_sha256(secret ? secret : "", secret ? strlen(secret) : 0, &all, sizeof all, out);
}

tt_node_link tt_node_accept(int listener)
{
    tt_node_link l = {.fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)};
    if (l.fd < 0)
        return l;
    tune_link(l.fd);
    if (getrandom(l.nonces, 16, 0) != 16 ||
        send(l.fd, l.nonces, 16, MSG_NOSIGNAL | MSG_DONTWAIT) != 16)
        tt_node_drop(&l);
    return l;
}

static int connect_one(const struct addrinfo *a)
{
    const int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct pollfd f = {fd, POLLOUT, 0};
    int why = 0;
    socklen_t n = sizeof why;
    if (fd < 0)
        return -1;
    if (connect(fd, a->ai_addr, a->ai_addrlen) &&
        (errno != EINPROGRESS || poll(&f, 1, CONNECT_MS) != 1 ||
         getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &n) || why)) {
        close(fd);
        return -1;
    }
    tune_link(fd);
    return fd;
}

tt_node_link tt_node_connect(const char *address, int port)
{
    char service[16];
    tt_node_link l = {.fd = -1, .far = true};
    struct addrinfo *all = NULL;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    snprintf(service, sizeof service, "%d", port);
    if (getaddrinfo(address, service, &hints, &all))
        return l;
    for (const struct addrinfo *a = all; a && l.fd < 0; a = a->ai_next)
        l.fd = connect_one(a);
    freeaddrinfo(all);
    struct pollfd f = {l.fd, POLLIN, 0};
    if (l.fd >= 0 && (poll(&f, 1, CONNECT_MS) != 1 || recv(l.fd, l.nonces, 16, 0) != 16 ||
                      getrandom(l.nonces + 16, 16, 0) != 16))
        tt_node_drop(&l);
    return l;
}

void tt_node_send(tt_node_link *l, tt_node_message m)
{
    if (l->fd < 0)
        return;
    memcpy(m.nonce, l->nonces + 16, sizeof m.nonce);
    make_code(l, &m, l->far, l->n_sent++, m.code);
    if (send(l->fd, &m, sizeof m, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof m)
        shutdown(l->fd, SHUT_RDWR); /* the next read notices */
}

int tt_node_read(tt_node_link *l)
{
    uint8_t code[TT_HMAC_BYTES];
    if (l->fd < 0)
        return 0;
    const ssize_t k = recv(l->fd, (char *)&l->in + l->n_in, sizeof l->in - l->n_in, MSG_DONTWAIT);
    if (k == 0 || (k < 0 && errno != EAGAIN && errno != EINTR))
        return -1;
    l->n_in += k > 0 ? (size_t)k : 0;
    if (l->n_in < sizeof l->in)
        return 0;
    l->n_in = 0;
    if (!l->far && !l->n_received)
        memcpy(l->nonces + 16, l->in.nonce, 16);
    make_code(l, &l->in, !l->far, l->n_received++, code);
    return tt_hmac_equal(code, l->in.code) ? 1 : -1;
}

void tt_node_drop(tt_node_link *l)
{
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
    l->n_in = 0;
}

void tt_node_clean(tt_node_message *m)
{
    m->host[sizeof m->host - 1] = m->version[sizeof m->version - 1] = 0;
    m->digest[sizeof m->digest - 1] = m->id[sizeof m->id - 1] = 0;
    m->text[sizeof m->text - 1] = 0;
}
