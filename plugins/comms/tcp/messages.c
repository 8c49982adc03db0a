/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tcp.h"
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Messages between two ranks, as the stages of a pipeline send them. The watching thread writes them,
 * so that they arrive while the sender computes; the receiver answers each with one byte. */

bool tcp_write_box(tt_comm *c, int to)
{
    outbox *b = &c->boxes[to];
    while (b->n_written < b->n_sent) {
        struct out *o = &b->out[b->n_written % PAIR_IN_FLIGHT];
        const ssize_t k = send(c->fds[1][to], o->data + o->sent, (size_t)(o->n - o->sent),
                               MSG_NOSIGNAL | MSG_DONTWAIT);
        if (k < 0)
            return errno == EAGAIN || errno == EINTR;
        o->sent += k;
        if (o->sent == o->n)
            b->n_written++;
    }
    return false;
}

static tt_status await_answer(tt_comm *c, int to, tt_error *err)
{
    outbox *b = &c->boxes[to];
    const double until = c->e->timeout_s > 0 ? tcp_now() + c->e->timeout_s : 0;
    while (b->n_sent - b->n_acked >= PAIR_IN_FLIGHT) {
        char bytes[PAIR_IN_FLIGHT];
        struct pollfd f = {c->fds[1][to], POLLIN, 0};
        const ssize_t k = recv(c->fds[1][to], bytes, sizeof bytes, MSG_DONTWAIT);
        if (k == 0 || (k < 0 && errno != EAGAIN && errno != EINTR))
            f.fd = -1; /* the control connection says whether the rank was lost */
        b->n_acked += k > 0 ? (uint64_t)k : 0;
        TT_TRY(tcp_check(c->e, err));
        if (until > 0 && tcp_now() > until)
            return TT_ETIMEOUT;
        if (b->n_sent - b->n_acked >= PAIR_IN_FLIGHT)
            poll(&f, 1, 20);
    }
    return TT_OK;
}

tt_status tcp_send(tt_comm *c, int to, const void *buf, int64_t bytes, tt_error *err)
{
    outbox *b = &c->boxes[to];
    struct out *o = &b->out[b->n_sent % PAIR_IN_FLIGHT];
    const uint64_t one = 1;
    TT_TRY(tcp_check(c->e, err));
    const tt_status s = await_answer(c, to, err);
    if (s == TT_ETIMEOUT)
        return pair_late(&c->p, "send to", to, b->n_sent + 1, err);
    TT_TRY(s);
    pthread_mutex_lock(&c->e->lock);
    if (o->room < bytes + 8) {
        free(o->data);
        o->data = malloc((size_t)bytes + 8);
        o->room = o->data ? bytes + 8 : 0;
    }
    if (o->data) {
        memcpy(o->data, &bytes, 8);
        if (bytes)
            memcpy(o->data + 8, buf, (size_t)bytes);
        o->n = bytes + 8;
        o->sent = 0;
        b->n_sent++;
        tcp_write_box(c, to);
    }
    const bool good = o->data != NULL;
    pthread_mutex_unlock(&c->e->lock);
    if (!good)
        return TT_FAIL(err, TT_ENOMEM, "no memory to send %lld bytes", (long long)bytes);
    (void)!write(c->e->wake, &one, sizeof one);
    return TT_OK;
}

static tt_status read_message(tt_comm *c, int from, void *to, int64_t n, tt_error *err)
{
    const double until = c->e->timeout_s > 0 ? tcp_now() + c->e->timeout_s : 0;
    for (char *at = to; n > 0;) {
        struct pollfd f = {c->fds[2][from], POLLIN, 0};
        const ssize_t k = recv(f.fd, at, (size_t)n, MSG_DONTWAIT);
        if (k > 0) {
            at += k;
            n -= k;
            continue;
        }
        if (k == 0 || (errno != EAGAIN && errno != EINTR))
            f.fd = -1;
        TT_TRY(tcp_check(c->e, err));
        if (until > 0 && tcp_now() > until)
            return TT_ETIMEOUT;
        poll(&f, 1, 20);
    }
    return TT_OK;
}

tt_status tcp_recv(tt_comm *c, int from, void *buf, int64_t bytes, tt_error *err)
{
    outbox *b = &c->boxes[from];
    int64_t length = 0;
    TT_TRY(tcp_check(c->e, err));
    tt_status s = read_message(c, from, &length, 8, err);
    if (s == TT_OK && length != bytes)
        return TT_FAIL(err, TT_ECOMM, "rank %d sent %lld bytes where %lld were due",
                       c->p.ranks[from], (long long)length, (long long)bytes);
    if (s == TT_OK)
        s = read_message(c, from, buf, bytes, err);
    if (s == TT_ETIMEOUT)
        return pair_late(&c->p, "receive from", from, b->n_received + 1, err);
    TT_TRY(s);
    b->n_received++;
    (void)!send(c->fds[2][from], "", 1, MSG_NOSIGNAL); /* a sender that has ended needs no answer */
    return TT_OK;
}
