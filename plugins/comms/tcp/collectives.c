/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tcp.h"
#include <stdio.h>
#include <string.h>

/* Collectives made of exchanges with each member: sums are in ascending member order, and an error
 * can name the ranks that did not arrive.
 * Each collective first sends a head to every member, which says which collective the rank calls
 * and carries small data; larger data follows in pieces. */

enum { ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, ALL_TO_ALL, BARRIER };
static const char *const op_names[] = {"all_gather", "reduce_scatter", "all_reduce", "all_to_all",
                                       "barrier"};

static tt_status tcp_timed_out(tt_comm *c, tt_error *err)
{
    tt_error e = {0};
    char missing[160] = "";
    size_t len = 0;
    for (int i = 0; i < c->n && len + 16 < sizeof missing; i++)
        if (c->transfers[i].n_in)
            len += (size_t)snprintf(missing + len, sizeof missing - len, " %d", c->ranks[i]);
    const tt_status s = TT_FAIL(&e, TT_ETIMEOUT,
                                "%s number %llu waited %g s (comm.init_timeout_seconds before step "
                                "1, train_timeout_seconds from then on); ranks that did not "
                                "arrive:%s",
                                c->op, (unsigned long long)c->sequence, c->e->timeout_s, missing);
    tcp_abort_run(c->e, e.text);
    if (err)
        *err = e;
    return s;
}

static tt_status wait_for_peers(tt_comm *c, tt_error *err)
{
    const tt_status s = tcp_exchange(c, err);
    return s == TT_ETIMEOUT ? tcp_timed_out(c, err) : s;
}

static void no_transfers(tt_comm *c)
{
    memset(c->transfers, 0, (size_t)c->n * sizeof *c->transfers);
}

static void post(tt_comm *c, int i, const void *send, size_t n_send, void *recv, size_t n_recv)
{
    c->transfers[i] = (transfer){send, recv, n_send, n_recv};
}

/* The data that comes with the heads; a head that says another size than fits is no head of ours. */
static tt_status take_inline(tt_comm *c, tt_error *err)
{
    no_transfers(c);
    for (int i = 0; i < c->n; i++) {
        const int64_t n = c->in[i].n_inline;
        if (n < 0 || n > INLINE_BYTES)
            return TT_FAIL(err, TT_ECOMM, "%s number %llu: rank %d sent what is no call", c->op,
                           (unsigned long long)c->sequence, c->ranks[i]);
        if (i != c->me)
            post(c, i, NULL, 0, c->in[i].data, (size_t)n);
    }
    return wait_for_peers(c, err);
}

/* Exchanges heads with all members and checks that all call the same collective. inline_bytes of
 * data go along, the same to every member. */
static tt_status meet(tt_comm *c, int op, int64_t size, const void *data, size_t inline_bytes,
                      tt_error *err)
{
    TT_TRY(tcp_check(c->e, err));
    c->op = op_names[op];
    c->sequence++;
    no_transfers(c);
    for (int i = 0; i < c->n; i++) {
        head *h = &c->out[i];
        h->op = op;
        h->size = size;
        h->sequence = (int64_t)c->sequence;
        h->n_inline = (int64_t)inline_bytes;
        if (inline_bytes)
            memcpy(h->data, data, inline_bytes);
        if (i == c->me)
            memcpy(&c->in[i], h, HEAD_BYTES + inline_bytes);
        else
            post(c, i, h, HEAD_BYTES + inline_bytes, &c->in[i], HEAD_BYTES);
    }
    TT_TRY(wait_for_peers(c, err));
    TT_TRY(take_inline(c, err));
    for (int i = 0; i < c->n; i++) {
        const head *h = &c->in[i];
        if (h->op == op && h->size == size)
            continue;
        return TT_FAIL(err, TT_ECOMM,
                       "collective number %llu: rank %d calls %s of %lld, rank %d calls %s of %lld",
                       (unsigned long long)c->sequence, c->ranks[c->me], op_names[op],
                       (long long)size, c->ranks[i],
                       h->op >= 0 && h->op <= BARRIER ? op_names[h->op] : "?", (long long)h->size);
    }
    return TT_OK;
}

static int64_t sum_counts(const int64_t *counts, int n)
{
    int64_t s = 0;
    for (int i = 0; i < n; i++)
        s += counts[i];
    return s;
}

static int64_t most(const int64_t *counts, int n)
{
    int64_t m = 0;
    for (int i = 0; i < n; i++)
        m = counts[i] > m ? counts[i] : m;
    return m;
}

tt_status tcp_all_gather(tt_comm *c, const void *send, void *recv, const int64_t *counts,
                         tt_dtype dtype, tt_error *err)
{
    const int64_t size = (int64_t)tt_dtype_size(dtype), mine = counts[c->me] * size;
    char *own = (char *)recv + sum_counts(counts, c->me) * size;
    TT_TRY(meet(c, ALL_GATHER, sum_counts(counts, c->n), NULL, 0, err));
    if (mine && own != send)
        memcpy(own, send, (size_t)mine);
    char *to = recv;
    no_transfers(c);
    for (int i = 0; i < c->n; to += counts[i++] * size)
        if (i != c->me)
            post(c, i, own, (size_t)mine, to, (size_t)(counts[i] * size));
    return wait_for_peers(c, err);
}

/* Exchanges bytes [at, at + room) of every member's piece: sends each member its part of mine,
 * receives my part of theirs into room. */
static tt_status exchange_pieces(tt_comm *c, const char *send, const int64_t *counts, int64_t size,
                                 int64_t at, int64_t room, tt_error *err)
{
    const int64_t mine = counts[c->me] * size;
    no_transfers(c);
    for (int i = 0; i < c->n; send += counts[i++] * size) {
        c->pieces[i] = i == c->me ? send + at : c->room + i * room;
        if (i != c->me)
            post(c, i, send + at, part(counts[i] * size, at, room), c->room + i * room,
                 part(mine, at, room));
    }
    return wait_for_peers(c, err);
}

tt_status tcp_reduce_scatter(tt_comm *c, const void *send, void *recv, const int64_t *counts,
                             tt_dtype dtype, tt_reduce op, tt_error *err)
{
    TT_TRY(tt_reduce_members(NULL, NULL, 0, 0, dtype, op, err)); /* fails on all ranks alike */
    const int64_t size = (int64_t)tt_dtype_size(dtype), bytes = most(counts, c->n) * size,
                  mine = counts[c->me] * size, room = tcp_piece(c->n);
    TT_TRY(meet(c, REDUCE_SCATTER, sum_counts(counts, c->n), NULL, 0, err));
    for (int64_t at = 0; at < bytes; at += room) {
        TT_TRY(exchange_pieces(c, send, counts, size, at, room, err));
        const int64_t n = (int64_t)part(mine, at, room) / size;
        if (n)
            TT_TRY(tt_reduce_members((char *)recv + at, c->pieces, c->n, n, dtype, op, err));
    }
    return TT_OK;
}

/* Reduces a block of up to n pieces in place: each member reduces one piece and sends the result to
 * all. */
static tt_status reduce_block(tt_comm *c, char *buf, int64_t bytes, tt_dtype dtype, tt_reduce op,
                              tt_error *err)
{
    const int64_t size = (int64_t)tt_dtype_size(dtype), room = tcp_piece(c->n),
                  mine = (int64_t)part(bytes, c->me * room, room);
    char *result = c->room + c->n * room;
    no_transfers(c);
    for (int i = 0; i < c->n; i++) {
        c->pieces[i] = i == c->me ? buf + i * room : c->room + i * room;
        if (i != c->me)
            post(c, i, buf + i * room, part(bytes, i * room, room), c->room + i * room,
                 (size_t)mine);
    }
    TT_TRY(wait_for_peers(c, err));
    if (mine)
        TT_TRY(tt_reduce_members(result, c->pieces, c->n, mine / size, dtype, op, err));
    no_transfers(c);
    for (int i = 0; i < c->n; i++)
        if (i != c->me)
            post(c, i, result, (size_t)mine, buf + i * room, part(bytes, i * room, room));
    if (mine)
        memcpy(buf + c->me * room, result, (size_t)mine);
    return wait_for_peers(c, err);
}

tt_status tcp_all_reduce(tt_comm *c, void *buf, int64_t count, tt_dtype dtype, tt_reduce op,
                         tt_error *err)
{
    TT_TRY(tt_reduce_members(NULL, NULL, 0, 0, dtype, op, err)); /* fails on all ranks alike */
    const int64_t bytes = count * (int64_t)tt_dtype_size(dtype), block = tcp_piece(c->n) * c->n;
    if (bytes > INLINE_BYTES) {
        TT_TRY(meet(c, ALL_REDUCE, count, NULL, 0, err));
        for (int64_t at = 0; at < bytes; at += block)
            TT_TRY(
                reduce_block(c, (char *)buf + at, (int64_t)part(bytes, at, block), dtype, op, err));
        return TT_OK;
    }
    TT_TRY(meet(c, ALL_REDUCE, count, buf, (size_t)bytes, err));
    for (int i = 0; i < c->n; i++)
        c->pieces[i] = c->in[i].data;
    return count ? tt_reduce_members(buf, c->pieces, c->n, count, dtype, op, err) : TT_OK;
}

tt_status tcp_all_to_all(tt_comm *c, const void *send, const int64_t *send_counts, void *recv,
                         const int64_t *recv_counts, tt_dtype dtype, tt_error *err)
{
    const int64_t size = (int64_t)tt_dtype_size(dtype);
    for (int i = 0; i < c->n; i++) {
        c->out[i].sends = send_counts[i];
        c->out[i].receives = recv_counts[i];
    }
    TT_TRY(meet(c, ALL_TO_ALL, 0, NULL, 0, err));
    for (int i = 0; i < c->n; i++)
        if (c->in[i].sends != recv_counts[i] || c->in[i].receives != send_counts[i])
            return TT_FAIL(err, TT_ECOMM,
                           "all_to_all number %llu: rank %d sends %lld elements where %lld are due",
                           (unsigned long long)c->sequence, c->ranks[i], (long long)c->in[i].sends,
                           (long long)recv_counts[i]);
    if (send_counts[c->me])
        memcpy((char *)recv + sum_counts(recv_counts, c->me) * size,
               (const char *)send + sum_counts(send_counts, c->me) * size,
               (size_t)(send_counts[c->me] * size));
    const char *from = send;
    char *to = recv;
    no_transfers(c);
    for (int i = 0; i < c->n; from += send_counts[i] * size, to += recv_counts[i++] * size)
        if (i != c->me)
            post(c, i, from, (size_t)(send_counts[i] * size), to, (size_t)(recv_counts[i] * size));
    return wait_for_peers(c, err);
}

tt_status tcp_barrier(tt_comm *c, tt_error *err)
{
    return meet(c, BARRIER, 0, NULL, 0, err);
}
