/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/shm_impl.h"
#include <string.h>

/* Collectives through buffers in shared memory. In each round a member copies a piece into its
 * slot, waits for the others, and reads their slots. Pieces fit a cache, so bytes that are copied
 * twice are read from memory once. Reductions add in ascending member order, each element by one
 * member or in the same way by all: the results equal those of rank-threads, bit for bit. */

static char *slot(const tt_comm *c, int member, uint32_t round)
{
    return c->slots + ((int64_t)member * 2 + round % 2) * TT_SHM_SLOT;
}

/* How many of the bytes [at, at + room) lie within n. */
static size_t part(int64_t n, int64_t at, int64_t room)
{
    return n > at ? (size_t)TT_MIN(n - at, room) : 0;
}

/* The bytes of a piece if a slot holds n of them, each a whole number of cache lines. */
static int64_t slot_piece_bytes(int n)
{
    return TT_MAXV(TT_SHM_SLOT / TT_MAXV(n, 1) / TT_SHM_LINE, 1) * TT_SHM_LINE;
}

tt_status tt_shm_buffered_all_gather(tt_comm *c, const tt_shm_args *a, tt_error *err)
{
    const int64_t size = (int64_t)tt_dtype_size(a->dtype),
                  bytes = tt_shm_most(a->counts, c->n) * size, mine = a->counts[c->me] * size;
    tt_shm_copy((char *)a->recv + tt_shm_sum(a->counts, c->me) * size, a->send, (size_t)mine);
    for (int64_t at = 0; at == 0 || at < bytes; at += TT_SHM_SLOT, c->round++) {
        tt_shm_copy(slot(c, c->me, c->round), (const char *)a->send + at,
                    part(mine, at, TT_SHM_SLOT));
        TT_TRY(tt_shm_finish_round(c, err));
        char *to = a->recv;
        for (int i = 0; i < c->n; to += a->counts[i++] * size)
            if (i != c->me)
                tt_shm_copy(to + at, slot(c, i, c->round),
                            part(a->counts[i] * size, at, TT_SHM_SLOT));
    }
    return TT_OK;
}

/* The offset in a member's slot of the piece for member `to`; a member has no piece for itself. */
static int64_t place(int member, int to, int64_t room)
{
    return (to < member ? to : to - 1) * room;
}

tt_status tt_shm_buffered_reduce_scatter(tt_comm *c, const tt_shm_args *a, tt_error *err)
{
    const int64_t size = (int64_t)tt_dtype_size(a->dtype),
                  bytes = tt_shm_most(a->counts, c->n) * size, mine = a->counts[c->me] * size,
                  room = slot_piece_bytes(c->n - 1);
    const char *own = (const char *)a->send + tt_shm_sum(a->counts, c->me) * size;
    for (int64_t at = 0; at == 0 || at < bytes; at += room, c->round++) {
        const char *from = a->send;
        for (int i = 0; i < c->n; from += a->counts[i++] * size)
            if (i != c->me)
                tt_shm_copy(slot(c, c->me, c->round) + place(c->me, i, room), from + at,
                            part(a->counts[i] * size, at, room));
        TT_TRY(tt_shm_finish_round(c, err));
        for (int i = 0; i < c->n; i++)
            c->pieces[i] = i == c->me ? own + at : slot(c, i, c->round) + place(i, c->me, room);
        const int64_t n = (int64_t)part(mine, at, room) / size;
        if (n)
            TT_TRY(tt_reduce_members((char *)a->recv + at, c->pieces, c->n, n, a->dtype, a->reduce,
                                     err));
    }
    return TT_OK;
}

/* Few bytes: every member reads all members' data and adds for itself. */
static tt_status all_reduce_small(tt_comm *c, const tt_shm_args *a, tt_error *err)
{
    tt_shm_copy(slot(c, c->me, c->round), a->recv, (size_t)a->count * tt_dtype_size(a->dtype));
    TT_TRY(tt_shm_finish_round(c, err));
    for (int i = 0; i < c->n; i++)
        c->pieces[i] = slot(c, i, c->round);
    return a->count
               ? tt_reduce_members(a->recv, c->pieces, c->n, a->count, a->dtype, a->reduce, err)
               : TT_OK;
}

/* Many bytes: in blocks of one piece per member. In one round a slot holds the pieces of block k
 * that the others will reduce, and the piece of block k - 1 that this member has reduced: so a
 * block takes one round. */
static tt_status all_reduce_blocks(tt_comm *c, const tt_shm_args *a, tt_error *err)
{
    const int64_t size = (int64_t)tt_dtype_size(a->dtype), bytes = a->count * size,
                  even = (bytes / c->n / TT_SHM_LINE + 1) *
                         TT_SHM_LINE, /* bytes of a piece if one block is enough */
        room = TT_MIN(slot_piece_bytes(c->n + 1), even), block = room * c->n,
                  done = room * c->n; /* offset of the reduced piece */
    char *buf = a->recv;
    for (int64_t at = 0; at < bytes + block; at += block, c->round++) {
        char *out = slot(c, c->me, c->round);
        for (int i = 0; i < c->n; i++)
            if (i != c->me)
                tt_shm_copy(out + i * room, buf + at + i * room, part(bytes, at + i * room, room));
        TT_TRY(tt_shm_finish_round(c, err));
        const int64_t b = at + c->me * room, n = (int64_t)part(bytes, b, room) / size;
        char *next = slot(c, c->me, c->round + 1) + done;
        for (int i = 0; i < c->n; i++)
            c->pieces[i] = i == c->me ? buf + b : slot(c, i, c->round) + c->me * room;
        if (n)
            TT_TRY(tt_reduce_members(next, c->pieces, c->n, n, a->dtype, a->reduce, err));
        tt_shm_copy(buf + b, next, (size_t)(n * size));
        for (int i = 0; at && i < c->n; i++)
            if (i != c->me)
                tt_shm_copy(buf + at - block + i * room, slot(c, i, c->round) + done,
                            part(bytes, at - block + i * room, room));
    }
    return TT_OK;
}

tt_status tt_shm_buffered_all_reduce(tt_comm *c, const tt_shm_args *a, tt_error *err)
{
    if (a->count * (int64_t)tt_dtype_size(a->dtype) <= TT_SHM_SLOT / (8 * c->n))
        return all_reduce_small(c, a, err);
    return all_reduce_blocks(c, a, err);
}

/* ---- all_to_all ----
 * Only the sender knows how much it sends to whom, so all members publish their counts in the first
 * round. The largest count gives the number of rounds, or selects the direct path. */

static bool is_direct(const tt_comm *c, int64_t bytes)
{
    return atomic_load(c->path) == TT_SHM_DIRECT && bytes >= TT_SHM_DIRECT_BYTES;
}

static tt_status check_counts(const tt_comm *c, const tt_shm_args *a, tt_error *err)
{
    for (int i = 0; i < c->n; i++)
        if (tt_shm_counts_of(c, i)[c->me] != a->recv_counts[i])
            return TT_FAIL(err, TT_ECOMM,
                           "all_to_all number %llu: rank %d sends %lld elements where %lld are "
                           "expected",
                           (unsigned long long)c->sequence, c->ranks[i],
                           (long long)tt_shm_counts_of(c, i)[c->me], (long long)a->recv_counts[i]);
    return TT_OK;
}

/* A wrong count is known to some members only, so these go through the rounds with the others. */
tt_status tt_shm_all_to_all(tt_comm *c, const tt_shm_args *a, tt_error *err)
{
    const int64_t size = (int64_t)tt_dtype_size(a->dtype), room = slot_piece_bytes(c->n - 1);
    const bool skip = is_direct(c, tt_shm_most(a->counts, c->n) * size);
    int64_t bytes = 0;
    tt_status s = TT_OK;
    memcpy(tt_shm_counts_of(c, c->me), a->counts, (size_t)c->n * sizeof *a->counts);
    for (int64_t at = 0; at == 0 || at < bytes; at += room, c->round++) {
        const char *from = a->send;
        for (int i = 0; !skip && i < c->n; from += a->counts[i++] * size)
            if (i != c->me)
                tt_shm_copy(slot(c, c->me, c->round) + place(c->me, i, room), from + at,
                            part(a->counts[i] * size, at, room));
        TT_TRY(tt_shm_finish_round(c, err));
        for (int i = 0; at == 0 && i < c->n; i++)
            bytes = TT_MAXV(bytes, tt_shm_most(tt_shm_counts_of(c, i), c->n) * size);
        if (at == 0)
            s = check_counts(c, a, err);
        if (at == 0 && is_direct(c, bytes))
            return tt_shm_direct_all_to_all(c, a, s, err);
        char *to = a->recv;
        for (int i = 0; s == TT_OK && i < c->n; to += a->recv_counts[i++] * size)
            if (i != c->me)
                tt_shm_copy(to + at, slot(c, i, c->round) + place(i, c->me, room),
                            part(a->recv_counts[i] * size, at, room));
    }
    if (s == TT_OK)
        tt_shm_copy((char *)a->recv + tt_shm_sum(a->recv_counts, c->me) * size,
                    (const char *)a->send + tt_shm_sum(a->counts, c->me) * size,
                    (size_t)(a->recv_counts[c->me] * size));
    return s;
}
