/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "launch/nodes_link.h"
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <ttrun/sockets.h>
#include <unistd.h>

tt_status tt_node_listen(const char *address, int port, int *out, tt_error *err)
{
    *out = tt_socket_listen_at(address, port);
    return *out >= 0 ? TT_OK
                     : TT_FAIL(err, TT_EINVAL,
                               "--master_port %d: node 0 cannot listen there: %s; give all nodes "
                               "another port",
                               port, strerror(errno));
}

void tt_node_code(const tt_node_link *l, const void *message, size_t n, bool from_far,
                  uint64_t number, uint8_t out[TT_HMAC_BYTES])
{
    struct {
        uint8_t nonces[32];
        uint64_t number, from_far;
        uint8_t message[TT_NODE_MESSAGE_MOST];
    } all;
    TT_ASSERT(n <= sizeof all.message);
    memcpy(all.nonces, l->nonces, sizeof all.nonces);
    all.number = number;
    all.from_far = from_far;
    memcpy(all.message, message, n);
    tt_comm_code(&all, sizeof all - sizeof all.message + n, out);
}

tt_node_link tt_node_accept(int listener)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    tt_node_link l = {
        .fd = accept4(listener, (struct sockaddr *)&a, &n, SOCK_CLOEXEC | SOCK_NONBLOCK)};
    if (l.fd < 0)
        return l;
    if (getnameinfo((struct sockaddr *)&a, n, l.from, sizeof l.from, NULL, 0, NI_NUMERICHOST))
        snprintf(l.from, sizeof l.from, "an address that is not known");
    tt_socket_tune(l.fd);
    if (getrandom(l.nonces, 16, 0) != 16 ||
        send(l.fd, l.nonces, 16, MSG_NOSIGNAL | MSG_DONTWAIT) != 16)
        tt_node_drop(&l);
    return l;
}

tt_node_link tt_node_connect(const char *address, int port, int stop_fd)
{
    char service[16];
    tt_node_link l = {.fd = -1, .far = true};
    const int wait_ms = tt_patience_ms(TT_NODE_CONNECT_NS);
    struct addrinfo *all = NULL;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    snprintf(service, sizeof service, "%d", port);
    if (getaddrinfo(address, service, &hints, &all))
        return l;
    for (const struct addrinfo *a = all; a && l.fd < 0; a = a->ai_next)
        l.fd = tt_socket_connect(a->ai_addr, a->ai_addrlen, wait_ms);
    freeaddrinfo(all);
    struct pollfd f[2] = {
        {l.fd,    POLLIN, 0},
        {stop_fd, POLLIN, 0}  /* -1: poll ignores it */
    };
    if (l.fd >= 0 && (poll(f, 2, wait_ms) < 1 || !f[0].revents ||
                      recv(l.fd, l.nonces, 16, 0) != 16 || getrandom(l.nonces + 16, 16, 0) != 16))
        tt_node_drop(&l);
    return l;
}

void tt_node_send(tt_node_link *l, tt_node_message m)
{
    if (l->fd < 0)
        return;
    memcpy(m.nonce, l->nonces + 16, sizeof m.nonce);
    tt_node_code(l, &m, offsetof(tt_node_message, code), l->far, l->n_sent++, m.code);
    if (send(l->fd, &m, sizeof m, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof m)
        shutdown(l->fd, SHUT_RDWR); /* the next read notices */
}

static void clean_text(char *text, size_t size)
{
    text[size - 1] = 0;
    text[tt_utf8_valid(text, strlen(text))] = 0;
}

/* Ends the texts of a message; false: it is none of this version. */
static bool clean_message(tt_node_message *m)
{
    clean_text(m->host, sizeof m->host);
    clean_text(m->version, sizeof m->version);
    clean_text(m->digest, sizeof m->digest);
    clean_text(m->id, sizeof m->id);
    clean_text(m->text, sizeof m->text);
    clean_text(m->neighbour, sizeof m->neighbour);
    return m->magic == TT_NODE_MAGIC && m->what >= TT_NODE_JOIN && m->what <= TT_NODE_OVER &&
           m->n_copies >= 0 && m->n_copies <= TT_NODE_COPIES_MOST && m->end >= TT_NODE_DIED &&
           m->end <= TT_NODE_FINE && m->status <= TT_OK && m->status >= TT_EINTERNAL;
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
    const bool is_first = !l->far && !l->n_received;
    if (is_first)
        memcpy(l->nonces + 16, l->in.nonce, 16);
    tt_node_code(l, &l->in, offsetof(tt_node_message, code), !l->far, l->n_received++, code);
    const bool good = tt_hmac_equal(code, l->in.code) && clean_message(&l->in);
    return good && !(is_first && tt_socket_is_of_another_user(l->fd)) ? 1 : -1;
}

void tt_node_drop(tt_node_link *l)
{
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
    l->n_in = 0;
}
