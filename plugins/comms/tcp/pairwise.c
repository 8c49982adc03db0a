/* SPDX-License-Identifier: Apache-2.0 */
#include "pairwise.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Collectives of messages between two members; comms "tcp" and "mpi" are linked with this file. */

#ifndef PAIR_PIECE                    /* a test has a smaller one */
#define PAIR_PIECE (INT64_C(4) << 20) /* bytes that a group reduces at a time */
#endif
#define PAIR_LINE 64

enum { PAIR_ALL_GATHER, PAIR_REDUCE_SCATTER, PAIR_ALL_REDUCE, PAIR_ALL_TO_ALL, PAIR_BARRIER };
static const char *const pair_names[] = {"all_gather", "reduce_scatter", "all_reduce", "all_to_all",
                                         "barrier"};

/* The bytes of a piece that each member reduces, a whole number of cache lines. */
static int64_t pair_share(int n)
{
    const int64_t room = PAIR_PIECE / n / PAIR_LINE * PAIR_LINE;
    return room ? room : PAIR_LINE;
}

tt_status pair_open(pair *p, const int *ranks, int n, int rank, tt_error *err)
{
    const size_t m = (size_t)n;
    p->n = n;
    p->me = -1;
    for (int i = 0; i < n; i++)
        if (ranks[i] == rank)
            p->me = i;
    if (p->me < 0)
        return TT_FAIL(err, TT_EINVAL, "rank %d is not a member of the group that it asked for",
                       rank);
    p->ranks = calloc(m, sizeof *p->ranks);
    p->in = calloc(m, sizeof *p->in);
    p->out = calloc(m, sizeof *p->out);
    p->room = malloc((m + 1) * (size_t)pair_share(n));
    p->pieces = calloc(m, sizeof *p->pieces);
    if (!p->ranks || !p->in || !p->out || !p->room || !p->pieces)
        return TT_FAIL(err, TT_ENOMEM, "no memory for a group of %d ranks", n);
    memcpy(p->ranks, ranks, m * sizeof *ranks);
    return TT_OK;
}

void pair_close(pair *p)
{
    free(p->ranks);
    free(p->in);
    free(p->out);
    free(p->room);
    free(p->pieces);
}

tt_status pair_late(const pair *p, const char *what, int peer, uint64_t number, tt_error *err)
{
    return TT_FAIL(err, TT_ETIMEOUT,
                   "%s rank %d, message number %llu, waited %g s (" TT_COMM_LIMIT_KEYS ")", what,
                   p->ranks[peer], (unsigned long long)number, *p->timeout_s);
}

/* s: of a wait. Names the ranks that did not arrive, and stops the run. */
static tt_status pair_waited(tt_comm *c, tt_status s, tt_error *err)
{
    const pair *p = pair_of(c);
    tt_error e = {0};
    char missing[160] = "";
    size_t len = 0;
    if (s != TT_ETIMEOUT)
        return s;
    for (int i = 0; i < p->n && len + 16 < sizeof missing; i++)
        if (i != p->me && p->t->missing(c, i))
            len += (size_t)snprintf(missing + len, sizeof missing - len, " %d", p->ranks[i]);
    s = TT_FAIL(&e, TT_ETIMEOUT,
                "%s number %llu waited %g s (" TT_COMM_LIMIT_KEYS "); ranks that did not arrive:%s",
                p->op, (unsigned long long)p->sequence, *p->timeout_s, missing);
    p->t->abort(c, e.text);
    if (err)
        *err = e;
    return s;
}

static tt_status pair_wait(tt_comm *c, tt_error *err)
{
    return pair_waited(c, pair_of(c)->t->wait(c, err), err);
}

/* Exchanges heads with all members and checks that all call the same collective. n_inline bytes of
 * data go along, the same to every member. */
static tt_status pair_meet(tt_comm *c, int op, int64_t size, const void *data, size_t n_inline,
                           tt_error *err)
{
    pair *p = pair_of(c);
    TT_TRY(p->t->check(c, err));
    p->op = pair_names[op];
    p->sequence++;
    for (int i = 0; i < p->n; i++) {
        pair_head *h = &p->out[i];
        h->op = op;
        h->size = size;
        h->sequence = (int64_t)p->sequence;
        h->n_inline = (int64_t)n_inline;
        if (n_inline)
            memcpy(h->data, data, n_inline);
    }
    memcpy(&p->in[p->me], &p->out[p->me], PAIR_HEAD_BYTES + n_inline);
    TT_TRY(pair_waited(c, p->t->heads(c, err), err));
    for (int i = 0; i < p->n; i++) {
        const pair_head *h = &p->in[i];
        if (h->op == op && h->size == size)
            continue;
        return TT_FAIL(err, TT_ECOMM,
                       "collective number %llu: rank %d calls %s of %lld, rank %d calls %s of %lld",
                       (unsigned long long)p->sequence, p->ranks[p->me], pair_names[op],
                       (long long)size, p->ranks[i],
                       h->op >= 0 && h->op <= PAIR_BARRIER ? pair_names[h->op] : "?",
                       (long long)h->size);
    }
    return TT_OK;
}

static int64_t pair_sum(const int64_t *counts, int n)
{
    int64_t s = 0;
    for (int i = 0; i < n; i++)
        s += counts[i];
    return s;
}

static int64_t pair_most(const int64_t *counts, int n)
{
    int64_t m = 0;
    for (int i = 0; i < n; i++)
        m = counts[i] > m ? counts[i] : m;
    return m;
}

/* How far the pieces of a message are apart. */
static int64_t step_of(const pair *p, int64_t piece)
{
    return p->t->any_size ? INT64_MAX : piece;
}

tt_status pair_all_gather(tt_comm *c, const void *send, void *recv, const int64_t *counts,
                          tt_dtype dtype, tt_error *err)
{
    const pair *p = pair_of(c);
    const int64_t size = (int64_t)tt_dtype_size(dtype), bytes = pair_most(counts, p->n) * size,
                  mine = counts[p->me] * size, step = step_of(p, PAIR_PIECE);
    char *own = (char *)recv + pair_sum(counts, p->me) * size;
    TT_TRY(pair_meet(c, PAIR_ALL_GATHER, pair_sum(counts, p->n), NULL, 0, err));
    if (mine && own != send)
        memcpy(own, send, (size_t)mine);
    for (int64_t at = 0; at < bytes; at += step) {
        char *to = recv;
        p->t->clear(c);
        for (int i = 0; i < p->n; to += counts[i++] * size)
            if (i != p->me)
                p->t->post(c, i, own + at, pair_part(mine, at, step), to + at,
                           pair_part(counts[i] * size, at, step));
        TT_TRY(pair_wait(c, err));
    }
    return TT_OK;
}

/* Exchanges bytes [at, at + room) of every member's piece: sends each member its part of mine,
 * receives my part of theirs into room. */
static tt_status exchange_pieces(tt_comm *c, const char *send, const int64_t *counts, int64_t size,
                                 int64_t at, int64_t room, tt_error *err)
{
    const pair *p = pair_of(c);
    const int64_t mine = counts[p->me] * size;
    p->t->clear(c);
    for (int i = 0; i < p->n; send += counts[i++] * size) {
        p->pieces[i] = i == p->me ? send + at : p->room + i * room;
        if (i != p->me)
            p->t->post(c, i, send + at, pair_part(counts[i] * size, at, room), p->room + i * room,
                       pair_part(mine, at, room));
    }
    return pair_wait(c, err);
}

tt_status pair_reduce_scatter(tt_comm *c, const void *send, void *recv, const int64_t *counts,
                              tt_dtype dtype, tt_reduce op, tt_error *err)
{
    const pair *p = pair_of(c);
    TT_TRY(tt_reduce_members(NULL, NULL, 0, 0, dtype, op, err)); /* fails on all ranks alike */
    const int64_t size = (int64_t)tt_dtype_size(dtype), bytes = pair_most(counts, p->n) * size,
                  mine = counts[p->me] * size, room = pair_share(p->n);
    TT_TRY(pair_meet(c, PAIR_REDUCE_SCATTER, pair_sum(counts, p->n), NULL, 0, err));
    for (int64_t at = 0; at < bytes; at += room) {
        TT_TRY(exchange_pieces(c, send, counts, size, at, room, err));
        const int64_t n = (int64_t)pair_part(mine, at, room) / size;
        if (n)
            TT_TRY(tt_reduce_members((char *)recv + at, p->pieces, p->n, n, dtype, op, err));
    }
    return TT_OK;
}

/* Reduces a block of up to n pieces in place: each member reduces one piece and sends the result to
 * all. */
static tt_status reduce_block(tt_comm *c, char *buf, int64_t bytes, tt_dtype dtype, tt_reduce op,
                              tt_error *err)
{
    const pair *p = pair_of(c);
    const int64_t size = (int64_t)tt_dtype_size(dtype), room = pair_share(p->n),
                  mine = (int64_t)pair_part(bytes, p->me * room, room);
    char *result = p->room + p->n * room;
    p->t->clear(c);
    for (int i = 0; i < p->n; i++) {
        p->pieces[i] = i == p->me ? buf + i * room : p->room + i * room;
        if (i != p->me)
            p->t->post(c, i, buf + i * room, pair_part(bytes, i * room, room), p->room + i * room,
                       (size_t)mine);
    }
    TT_TRY(pair_wait(c, err));
    if (mine)
        TT_TRY(tt_reduce_members(result, p->pieces, p->n, mine / size, dtype, op, err));
    p->t->clear(c);
    for (int i = 0; i < p->n; i++)
        if (i != p->me)
            p->t->post(c, i, result, (size_t)mine, buf + i * room,
                       pair_part(bytes, i * room, room));
    if (mine)
        memcpy(buf + p->me * room, result, (size_t)mine);
    return pair_wait(c, err);
}

tt_status pair_all_reduce(tt_comm *c, void *buf, int64_t count, tt_dtype dtype, tt_reduce op,
                          tt_error *err)
{
    const pair *p = pair_of(c);
    TT_TRY(tt_reduce_members(NULL, NULL, 0, 0, dtype, op, err)); /* fails on all ranks alike */
    const int64_t bytes = count * (int64_t)tt_dtype_size(dtype), block = pair_share(p->n) * p->n;
    if (bytes > PAIR_INLINE_BYTES) {
        TT_TRY(pair_meet(c, PAIR_ALL_REDUCE, count, NULL, 0, err));
        for (int64_t at = 0; at < bytes; at += block)
            TT_TRY(reduce_block(c, (char *)buf + at, (int64_t)pair_part(bytes, at, block), dtype,
                                op, err));
        return TT_OK;
    }
    TT_TRY(pair_meet(c, PAIR_ALL_REDUCE, count, buf, (size_t)bytes, err));
    for (int i = 0; i < p->n; i++)
        p->pieces[i] = p->in[i].data;
    return count ? tt_reduce_members(buf, p->pieces, p->n, count, dtype, op, err) : TT_OK;
}

tt_status pair_all_to_all(tt_comm *c, const void *send, const int64_t *send_counts, void *recv,
                          const int64_t *recv_counts, tt_dtype dtype, tt_error *err)
{
    const pair *p = pair_of(c);
    const int64_t size = (int64_t)tt_dtype_size(dtype), step = step_of(p, pair_share(p->n)),
                  sent = pair_most(send_counts, p->n) * size,
                  received = pair_most(recv_counts, p->n) * size,
                  bytes = sent > received ? sent : received;
    for (int i = 0; i < p->n; i++) {
        p->out[i].sends = send_counts[i];
        p->out[i].receives = recv_counts[i];
    }
    TT_TRY(pair_meet(c, PAIR_ALL_TO_ALL, 0, NULL, 0, err));
    for (int i = 0; i < p->n; i++)
        if (p->in[i].sends != recv_counts[i] || p->in[i].receives != send_counts[i])
            return TT_FAIL(err, TT_ECOMM,
                           "all_to_all number %llu: rank %d sends %lld elements where %lld are due",
                           (unsigned long long)p->sequence, p->ranks[i], (long long)p->in[i].sends,
                           (long long)recv_counts[i]);
    if (send_counts[p->me])
        memcpy((char *)recv + pair_sum(recv_counts, p->me) * size,
               (const char *)send + pair_sum(send_counts, p->me) * size,
               (size_t)(send_counts[p->me] * size));
    for (int64_t at = 0; at < bytes; at += step) {
        const char *from = send;
        char *to = recv;
        p->t->clear(c);
        for (int i = 0; i < p->n; from += send_counts[i] * size, to += recv_counts[i++] * size)
            if (i != p->me)
                p->t->post(c, i, from + at, pair_part(send_counts[i] * size, at, step), to + at,
                           pair_part(recv_counts[i] * size, at, step));
        TT_TRY(pair_wait(c, err));
    }
    return TT_OK;
}

tt_status pair_barrier(tt_comm *c, tt_error *err)
{
    return pair_meet(c, PAIR_BARRIER, 0, NULL, 0, err);
}
