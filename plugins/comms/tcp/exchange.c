/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tcp.h"
#include <errno.h>
#include <poll.h>
#include <string.h>

/* What sockets do for the collectives of pairwise.h: transfers in both directions at once, until they are
 * complete, the run is stopped or the time is up. */

#define LOOK_MS 20

static tt_status check_run(tt_comm *c, tt_error *err)
{
    return tcp_check(c->e, err);
}

static void clear(tt_comm *c)
{
    memset(c->transfers, 0, (size_t)c->p.n * sizeof *c->transfers);
}

static void post(tt_comm *c, int i, const void *send, size_t n_send, void *recv, size_t n_recv)
{
    c->transfers[i] = (transfer){send, recv, n_send, n_recv};
}

/* Moves what can be moved now. -1: the connection has ended; 1: bytes have moved. */
static int move_bytes(int fd, transfer *t)
{
    int moved = 0;
    if (t->n_out) {
        const ssize_t k = send(fd, t->out, t->n_out, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (k < 0 && errno != EAGAIN && errno != EINTR)
            return -1;
        if (k > 0) {
            t->out += k;
            t->n_out -= (size_t)k;
            moved = 1;
        }
    }
    if (t->n_in) {
        const ssize_t k = recv(fd, t->in, t->n_in, MSG_DONTWAIT);
        if (k == 0 || (k < 0 && errno != EAGAIN && errno != EINTR))
            return -1;
        if (k > 0) {
            t->in += k;
            t->n_in -= (size_t)k;
            moved = 1;
        }
    }
    return moved;
}

/* A connection that has ended is not waited for here: the control connection says whether its rank was
 * lost. */
static tt_status exchange(tt_comm *c, tt_error *err)
{
    struct pollfd *f = c->polled;
    const double until = c->e->timeout_s > 0 ? tcp_now() + c->e->timeout_s : 0;
    for (;;) {
        int left = 0, moved = 0;
        for (int i = 0; i < c->p.n; i++) {
            transfer *t = &c->transfers[i];
            const int k = t->n_in || t->n_out ? move_bytes(c->fds[0][i], t) : 0;
            const bool wants = t->n_in || t->n_out;
            moved |= k > 0;
            left += wants;
            f[i] = (struct pollfd){wants && k >= 0 ? c->fds[0][i] : -1,
                                   (short)((t->n_in ? POLLIN : 0) | (t->n_out ? POLLOUT : 0)), 0};
        }
        if (!left)
            return TT_OK;
        if (moved)
            continue;
        TT_TRY(tcp_check(c->e, err));
        if (until > 0 && tcp_now() > until)
            return TT_ETIMEOUT;
        poll(f, (nfds_t)c->p.n, LOOK_MS);
    }
}

/* A head says how many bytes of data follow it; one that says another size than fits is no head of ours. */
static tt_status heads(tt_comm *c, tt_error *err)
{
    const pair *p = &c->p;
    clear(c);
    for (int i = 0; i < p->n; i++)
        if (i != p->me)
            post(c, i, &p->out[i], PAIR_HEAD_BYTES + (size_t)p->out[i].n_inline, &p->in[i],
                 PAIR_HEAD_BYTES);
    TT_TRY(exchange(c, err));
    clear(c);
    for (int i = 0; i < p->n; i++) {
        const int64_t n = p->in[i].n_inline;
        if (n < 0 || n > PAIR_INLINE_BYTES)
            return TT_FAIL(err, TT_ECOMM, "%s number %llu: rank %d sent what is no call", p->op,
                           (unsigned long long)p->sequence, p->ranks[i]);
        if (i != p->me)
            post(c, i, NULL, 0, p->in[i].data, (size_t)n);
    }
    return exchange(c, err);
}

static bool missing(tt_comm *c, int i)
{
    return c->transfers[i].n_in > 0;
}

static void stop_run(tt_comm *c, const char *why)
{
    tcp_abort_run(c->e, why);
}

const pair_transport tcp_transport = {.any_size = true,
                                      .check = check_run,
                                      .clear = clear,
                                      .post = post,
                                      .wait = exchange,
                                      .heads = heads,
                                      .missing = missing,
                                      .abort = stop_run};
