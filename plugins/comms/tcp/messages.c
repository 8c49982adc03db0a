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

typedef struct message_head {
    int64_t bytes;            /* of the data behind it */
    uint64_t data_code, code; /* of the data, and of what is before it here */
} message_head;

static message_head make_head(const tcp_end *e, const void *data, int64_t bytes)
{
    message_head h = {.bytes = bytes, .data_code = tcp_code(e, e->first_code, data, (size_t)bytes)};
    h.code = tcp_code(e, e->first_code, &h, offsetof(message_head, code));
    return h;
}

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
    double ended = 0;
    while (b->n_sent - b->n_acked >= PAIR_IN_FLIGHT) {
        char bytes[PAIR_IN_FLIGHT];
        struct pollfd f = {c->fds[1][to], POLLIN, 0};
        const ssize_t k = recv(c->fds[1][to], bytes, sizeof bytes, MSG_DONTWAIT);
        if (k == 0 || (k < 0 && errno != EAGAIN && errno != EINTR)) {
            f.fd = -1;
            tcp_ended(c->e, c->p.ranks[to], &ended);
        }
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
    const int64_t room = bytes + (int64_t)sizeof(message_head);
    TT_TRY(tcp_check(c->e, err));
    const tt_status s = await_answer(c, to, err);
    if (s == TT_ETIMEOUT)
        return pair_late(&c->p, "send to", to, b->n_sent + 1, err);
    TT_TRY(s);
    const message_head h = make_head(c->e, buf, bytes);
    pthread_mutex_lock(&c->e->lock);
    if (o->room < room) {
        free(o->data);
        o->data = malloc((size_t)room);
        o->room = o->data ? room : 0;
    }
    if (o->data) {
        memcpy(o->data, &h, sizeof h);
        if (bytes)
            memcpy(o->data + sizeof h, buf, (size_t)bytes);
        o->n = room;
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
    double ended = 0;
    for (char *at = to; n > 0;) {
        struct pollfd f = {c->fds[2][from], POLLIN, 0};
        const ssize_t k = recv(f.fd, at, (size_t)n, MSG_DONTWAIT);
        if (k > 0) {
            at += k;
            n -= k;
            continue;
        }
        if (k == 0 || (errno != EAGAIN && errno != EINTR)) {
            f.fd = -1;
            tcp_ended(c->e, c->p.ranks[from], &ended);
        }
        TT_TRY(tcp_check(c->e, err));
        if (until > 0 && tcp_now() > until)
            return TT_ETIMEOUT;
        poll(&f, 1, 20);
    }
    return TT_OK;
}

/* The head and the data behind it. A head that is not as it was sent may say any size. */
static tt_status read_checked(tt_comm *c, int from, void *buf, int64_t bytes, tt_error *err)
{
    const uint64_t number = c->boxes[from].n_received + 1;
    const tcp_end *e = c->e;
    message_head h;
    TT_TRY(read_message(c, from, &h, sizeof h, err));
    if (h.code != tcp_code(e, e->first_code, &h, offsetof(message_head, code)))
        return tcp_damaged(c, from, "message", number, err);
    if (h.bytes != bytes)
        return TT_FAIL(err, TT_ECOMM, "rank %d sent %lld bytes where %lld were due",
                       c->p.ranks[from], (long long)h.bytes, (long long)bytes);
    TT_TRY(read_message(c, from, buf, bytes, err));
    return h.data_code == tcp_code(e, e->first_code, buf, (size_t)bytes)
               ? TT_OK
               : tcp_damaged(c, from, "message", number, err);
}

tt_status tcp_recv(tt_comm *c, int from, void *buf, int64_t bytes, tt_error *err)
{
    outbox *b = &c->boxes[from];
    TT_TRY(tcp_check(c->e, err));
    const tt_status s = read_checked(c, from, buf, bytes, err);
    if (s == TT_ETIMEOUT)
        return pair_late(&c->p, "receive from", from, b->n_received + 1, err);
    TT_TRY(s);
    b->n_received++;
    (void)!send(c->fds[2][from], "", 1, MSG_NOSIGNAL); /* a sender that has ended needs no answer */
    return TT_OK;
}
