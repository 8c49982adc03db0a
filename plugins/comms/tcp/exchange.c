/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tcp.h"
#include <errno.h>
#include <poll.h>
#include <string.h>

/* What sockets do for the collectives of pairwise.h: transfers in both directions at once, until they are
 * complete, the run is stopped or the time is up. */

#define LOOK_MS 20
#define BLOCK ((size_t)64 << 10) /* bytes that the code takes at a time; the same on all ranks */

static tt_status check_run(tt_comm *c, tt_error *err)
{
    return tcp_check(c->e, err);
}

static void clear(tt_comm *c)
{
    memset(c->transfers, 0, (size_t)c->p.n * sizeof *c->transfers);
}

static flow flow_of(const tcp_end *e, const void *p, size_t n, bool coded)
{
    coded = coded && n && e->coded;
    return (flow){.at = (char *)(uintptr_t)p,
                  .left = n,
                  .n_code = coded ? sizeof(uint64_t) : 0,
                  .coded = coded ? p : NULL,
                  .code = e->first_code};
}

static void post(tt_comm *c, int i, const void *send, size_t n_send, void *recv, size_t n_recv)
{
    c->transfers[i] =
        (transfer){flow_of(c->e, send, n_send, true), flow_of(c->e, recv, n_recv, true)};
}

static bool is_under_way(const flow *f)
{
    return f->left || f->n_code;
}

/* Takes the data before `to` into the code, in blocks that are the same on both sides, while they are in the cache. */
static void code_up_to(const tcp_end *e, flow *f, const char *to)
{
    const char *end = f->at + f->left;
    while (f->coded && f->coded < to) {
        const size_t rest = (size_t)(end - f->coded), n = rest < BLOCK ? rest : BLOCK;
        if ((size_t)(to - f->coded) < n)
            return;
        f->code = tcp_code(e, f->code, f->coded, n);
        f->coded += n;
    }
}

/* Moves what can be moved now. -1: the connection has ended; 1: bytes have moved. */
static int move_bytes(const tcp_end *e, int fd, flow *f, bool out)
{
    if (!is_under_way(f))
        return 0;
    const bool last = f->left <= BLOCK; /* the code leaves with the last data */
    if (out && last) {
        code_up_to(e, f, f->at + f->left);
        f->end = f->code;
    }
    struct iovec parts[] = {
        {f->at,                                       f->left  },
        {(char *)&f->end + sizeof f->end - f->n_code, f->n_code}
    };
    struct msghdr both = {.msg_iov = parts, .msg_iovlen = 2};
    const bool alone = !f->n_code || (out && !last); /* the data */
    const ssize_t k = alone ? (out ? send(fd, f->at, f->left, MSG_NOSIGNAL | MSG_DONTWAIT)
                                   : recv(fd, f->at, f->left, MSG_DONTWAIT))
                      : out ? sendmsg(fd, &both, MSG_NOSIGNAL | MSG_DONTWAIT)
                            : recvmsg(fd, &both, MSG_DONTWAIT);
    if (k < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (k <= 0)
        return out && !k ? 0 : -1;
    const size_t n = (size_t)k < f->left ? (size_t)k : f->left;
    f->at += n;
    f->left -= n;
    f->n_code -= (size_t)k - n;
    code_up_to(e, f, f->at);
    return 1;
}

static int move_both(const tcp_end *e, int fd, transfer *t)
{
    const int out = move_bytes(e, fd, &t->out, true);
    const int in = out < 0 ? -1 : move_bytes(e, fd, &t->in, false);
    return in < 0 ? -1 : out | in;
}

static tt_status check_codes(tt_comm *c, tt_error *err)
{
    for (int i = 0; i < c->p.n; i++) {
        const flow *f = &c->transfers[i].in;
        if (f->coded && f->code != f->end)
            return tcp_damaged(c, i, c->p.op, c->p.sequence, err);
    }
    return TT_OK;
}

static tt_status exchange(tt_comm *c, tt_error *err)
{
    struct pollfd *f = c->polled;
    const double until = c->e->timeout_s > 0 ? tcp_now() + c->e->timeout_s : 0;
    double ended = 0;
    for (;;) {
        int left = 0, moved = 0;
        for (int i = 0; i < c->p.n; i++) {
            transfer *t = &c->transfers[i];
            const int k = move_both(c->e, c->fds[0][i], t);
            const bool reads = is_under_way(&t->in), writes = is_under_way(&t->out),
                       wants = reads || writes;
            moved |= k > 0;
            left += wants;
            if (k < 0)
                tcp_ended(c->e, c->p.ranks[i], &ended);
            f[i] = (struct pollfd){wants && k >= 0 ? c->fds[0][i] : -1,
                                   (short)((reads ? POLLIN : 0) | (writes ? POLLOUT : 0)), 0};
        }
        if (!left)
            return check_codes(c, err);
        if (moved)
            continue;
        TT_TRY(tcp_check(c->e, err));
        if (until > 0 && tcp_now() > until)
            return TT_ETIMEOUT;
        poll(f, (nfds_t)c->p.n, LOOK_MS);
    }
}

static uint64_t code_of_head(const tcp_end *e, const pair_head *h)
{
    return tcp_code(e, e->first_code, h, offsetof(pair_head, code));
}

static uint64_t code_of_data(const tcp_end *e, const pair_head *h)
{
    return tcp_code(e, e->first_code, h->data, (size_t)h->n_inline);
}

/* A head says how many bytes of data follow it, so it has a code of its own; one that says another size than fits is no
 * head of ours. */
static tt_status check_head(tt_comm *c, int i, tt_error *err)
{
    const pair_head *h = &c->p.in[i];
    if (h->code != code_of_head(c->e, h))
        return tcp_damaged(c, i, c->p.op, c->p.sequence, err);
    if (h->n_inline < 0 || h->n_inline > PAIR_INLINE_BYTES)
        return TT_FAIL(err, TT_ECOMM, "%s number %llu: rank %d sent what is no call", c->p.op,
                       (unsigned long long)c->p.sequence, c->p.ranks[i]);
    return TT_OK;
}

static tt_status heads(tt_comm *c, tt_error *err)
{
    const pair *p = &c->p;
    clear(c);
    for (int i = 0; i < p->n; i++) {
        pair_head *h = &p->out[i];
        if (i == p->me)
            continue;
        h->data_code = code_of_data(c->e, h);
        h->code = code_of_head(c->e, h);
        c->transfers[i] = (transfer){flow_of(c->e, h, PAIR_HEAD_BYTES + (size_t)h->n_inline, false),
                                     flow_of(c->e, &p->in[i], PAIR_HEAD_BYTES, false)};
    }
    TT_TRY(exchange(c, err));
    clear(c);
    for (int i = 0; i < p->n; i++) {
        if (i == p->me)
            continue;
        TT_TRY(check_head(c, i, err));
        c->transfers[i].in = flow_of(c->e, p->in[i].data, (size_t)p->in[i].n_inline, false);
    }
    TT_TRY(exchange(c, err));
    for (int i = 0; i < p->n; i++)
        if (i != p->me && p->in[i].data_code != code_of_data(c->e, &p->in[i]))
            return tcp_damaged(c, i, p->op, p->sequence, err);
    return TT_OK;
}

static bool missing(tt_comm *c, int i)
{
    return is_under_way(&c->transfers[i].in);
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
