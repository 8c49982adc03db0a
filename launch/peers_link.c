/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "launch/peers_link.h"
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#define MOST_BYTES (INT64_C(1) << 46) /* of a copy */

/* Waits until the connection can be read or written. */
static const char *wait_until(const tt_node_link *l, short what, const tt_peers_limit *w)
{
    struct pollfd f[2] = {
        {l->fd,      what,   0},
        {w->stop_fd, POLLIN, 0}
    };
    const int got = poll(f, w->stop_fd >= 0 ? 2 : 1, w->idle_ms);
    if (got > 0 && f[1].revents)
        return "this node stops";
    return got == 0 ? "the other node does nothing" : NULL;
}

/* What a call that has moved no byte says about the connection; NULL: there is nothing to do yet. */
static const char *broken(ssize_t k)
{
    if (k < 0 && (errno == EAGAIN || errno == EINTR))
        return NULL;
    return k == 0 ? "the other node has closed the connection" : strerror(errno);
}

/* Whether many bytes are not begun, because this node stops. */
static bool stops(const tt_peers_limit *w, size_t n)
{
    struct pollfd f = {w->stop_fd, POLLIN, 0};
    return n >= (size_t)TT_PEERS_BLOCK && w->stop_fd >= 0 && poll(&f, 1, 0) > 0;
}

const char *tt_peers_put(tt_node_link *l, const void *p, size_t n, const tt_peers_limit *w)
{
    const char *at = p, *why = stops(w, n) ? "this node stops" : NULL;
    if (why)
        return why;
    while (n) {
        const ssize_t k = send(l->fd, at, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (k > 0) {
            at += k;
            n -= (size_t)k;
        } else if ((why = broken(k)) || (why = wait_until(l, POLLOUT, w))) {
            return why;
        }
    }
    return NULL;
}

const char *tt_peers_get(tt_node_link *l, void *p, size_t n, const tt_peers_limit *w)
{
    char *at = p;
    const char *why;
    while (n) {
        const ssize_t k = recv(l->fd, at, n, MSG_DONTWAIT);
        if (k > 0) {
            at += k;
            n -= (size_t)k;
        } else if ((why = broken(k)) || (why = wait_until(l, POLLIN, w))) {
            return why;
        }
    }
    return NULL;
}

const char *tt_peers_say(tt_node_link *l, tt_peers_message m, const tt_peers_limit *w)
{
    m.magic = TT_PEERS_MAGIC;
    memcpy(m.nonce, l->nonces + 16, sizeof m.nonce);
    tt_node_code(l, &m, offsetof(tt_peers_message, code), l->far, l->n_sent++, m.code);
    return tt_peers_put(l, &m, sizeof m, w);
}

bool tt_peers_is_right(tt_node_link *l, const tt_peers_message *m)
{
    uint8_t code[TT_HMAC_BYTES];
    if (!l->far && !l->n_received)
        memcpy(l->nonces + 16, m->nonce, 16);
    tt_node_code(l, m, offsetof(tt_peers_message, code), !l->far, l->n_received++, code);
    return tt_hmac_equal(code, m->code) && m->magic == TT_PEERS_MAGIC && m->slot >= 0 &&
           m->slot < TT_PEER_SLOTS && m->copy.bytes >= 0 && m->copy.bytes < MOST_BYTES &&
           m->copy.bytes % TT_PEER_PAGE == 0;
}

const char *tt_peers_hear(tt_node_link *l, tt_peers_message *m, const tt_peers_limit *w)
{
    const char *why = tt_peers_get(l, m, sizeof *m, w);
    if (!why && !tt_peers_is_right(l, m))
        why = "what it says is not of this run";
    return why;
}

tt_peers_copy tt_peers_copy_of(const tt_peer_head *h, int slot)
{
    const tt_peer_slot *s = &h->slots[slot];
    tt_peers_copy c = {
        .layout = h->layout, .check = s->check, .bytes = h->bytes, .step = atomic_load(&s->step)};
    memcpy(c.state, &s->state, sizeof c.state);
    return c;
}

void tt_peers_expect(tt_peer_head *h, int slot, const tt_peers_copy *c)
{
    tt_peer_slot *s = &h->slots[slot];
    atomic_store(&s->step, -1);
    s->check = c->check;
    memcpy(&s->state, c->state, sizeof s->state);
}
