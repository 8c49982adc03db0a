/* SPDX-License-Identifier: Apache-2.0 */
#include "dist/shm_impl.h"
#include <stdlib.h>
#include <string.h>

/* Ranks as processes of one machine. A collective is cut into rounds; in each a member copies a
 * piece into its slot, says so, waits for the others to have, and reads theirs. Pieces are as large
 * as a cache holds, so what is copied twice comes from memory once. Reductions add in ascending
 * member order, each element by one member or by all alike: the bits of rank-threads. */

/* ---- rounds ---- */

static char *slot(const tt_comm *c, int member, uint32_t round)
{
    return c->slots + ((int64_t)member * 2 + round % 2) * TT_SHM_SLOT;
}

static tt_status timed_out(tt_comm *c, uint32_t round, tt_error *err)
{
    char missing[160] = "";
    size_t len = 0;
    tt_error e = {0};
    for (int i = 0; i < c->n && len + 16 < sizeof missing; i++)
        if ((int32_t)(atomic_load(&c->members[i].round.value) - round) < 0)
            len += (size_t)snprintf(missing + len, sizeof missing - len, " %d", c->ranks[i]);
    const tt_status s =
        TT_FAIL(&e, TT_ETIMEOUT,
                "%s number %llu waited %g s (comm.init_timeout_seconds before step "
                "1, train_timeout_seconds from then on); ranks that did not "
                "come:%s",
                c->op, (unsigned long long)c->sequence, tt_session_timeout(c->session), missing);
    tt_session_stop(c->session, e.text);
    if (err)
        *err = e;
    return s;
}

/* My slot of this round is written: wait for everyone's. */
static tt_status meet(tt_comm *c, tt_error *err)
{
    const double limit = tt_session_timeout(c->session);
    const int64_t until = limit > 0 ? tt_now_ns() + (int64_t)(TT_MIN(limit, 1e9) * 1e9) : 0;
    tt_word_set(&c->members[c->me].round, c->round);
    for (int k = 1; k < c->n; k++) {
        const int i = (c->me + k) % c->n;
        const tt_status s = tt_session_await(c->session, &c->members[i].round, c->round, until);
        if (s == TT_ECOMM)
            return tt_session_stopped(c->session, err);
        if (s != TT_OK)
            return timed_out(c, c->round, err);
    }
    return TT_OK;
}

static tt_status check_calls(const tt_comm *c, tt_error *err)
{
    const tt_shm_call *mine = &c->members[c->me].call[c->round % 2];
    for (int i = 0; i < c->n; i++) {
        const tt_shm_call *other = &c->members[i].call[c->round % 2];
        if (other->op == mine->op && other->size == mine->size)
            continue;
        return TT_FAIL(err, TT_ECOMM,
                       "collective number %llu: rank %d calls %s of %lld, rank %d calls %s of %lld",
                       (unsigned long long)c->sequence, c->ranks[c->me],
                       tt_doing_name((tt_doing)mine->op), (long long)mine->size, c->ranks[i],
                       tt_doing_name((tt_doing)other->op), (long long)other->size);
    }
    return TT_OK;
}

/* The first round of a collective: its slot may be written after this. */
static tt_status begin(tt_comm *c, tt_doing op, int64_t size, tt_error *err)
{
    tt_shm_member *m = &c->members[c->me];
    TT_TRY(tt_session_stopped(c->session, err));
    c->op = tt_doing_name(op);
    c->sequence = atomic_fetch_add(&m->came, 1) + 1;
    c->round = atomic_load(&m->round.value) + 1;
    m->call[c->round % 2] = (tt_shm_call){op, size};
    tt_session_doing(c->session, op, c->sequence);
    return TT_OK;
}

/* The k-th round of a collective ends; the first is checked. */
static tt_status meet_in(tt_comm *c, int64_t k, tt_error *err)
{
    TT_TRY(meet(c, err));
    return k ? TT_OK : check_calls(c, err);
}

/* Bytes [at, at + room) of n: how many there are. */
static size_t part(int64_t n, int64_t at, int64_t room)
{
    return n > at ? (size_t)TT_MIN(n - at, room) : 0;
}

static void copy(void *to, const void *from, size_t n)
{
    if (n && to != from)
        memcpy(to, from, n);
}

static int64_t sum(const int64_t *counts, int n)
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
        m = TT_MAXV(m, counts[i]);
    return m;
}

/* A slot cut into n pieces, each a whole number of cache lines. */
static int64_t cut(int n)
{
    return TT_MAXV(TT_SHM_SLOT / TT_MAXV(n, 1) / TT_SHM_LINE, 1) * TT_SHM_LINE;
}

/* ---- collectives ---- */

static tt_status all_gather(tt_comm *c, const void *send, void *recv, const int64_t *counts,
                            tt_dtype dtype, tt_error *err)
{
    const int64_t size = (int64_t)tt_dtype_size(dtype), bytes = most(counts, c->n) * size,
                  mine = counts[c->me] * size;
    TT_TRY(begin(c, TT_DOING_ALL_GATHER, sum(counts, c->n), err));
    copy((char *)recv + sum(counts, c->me) * size, send, (size_t)mine);
    for (int64_t at = 0, k = 0; k == 0 || at < bytes; at += TT_SHM_SLOT, k++, c->round++) {
        copy(slot(c, c->me, c->round), (const char *)send + at, part(mine, at, TT_SHM_SLOT));
        TT_TRY(meet_in(c, k, err));
        char *to = recv;
        for (int i = 0; i < c->n; to += counts[i++] * size)
            if (i != c->me)
                copy(to + at, slot(c, i, c->round), part(counts[i] * size, at, TT_SHM_SLOT));
    }
    return TT_OK;
}

/* Where in a member's slot the piece for `to` lies: there is none for itself. */
static int64_t place(int member, int to, int64_t room)
{
    return (to < member ? to : to - 1) * room;
}

static tt_status reduce_scatter(tt_comm *c, const void *send, void *recv, const int64_t *counts,
                                tt_dtype dtype, tt_reduce op, tt_error *err)
{
    TT_TRY(tt_reduce_members(NULL, NULL, 0, 0, dtype, op, err)); /* all ranks alike */
    const int64_t size = (int64_t)tt_dtype_size(dtype), bytes = most(counts, c->n) * size,
                  mine = counts[c->me] * size, room = cut(c->n - 1);
    const char *own = (const char *)send + sum(counts, c->me) * size;
    TT_TRY(begin(c, TT_DOING_REDUCE_SCATTER, sum(counts, c->n), err));
    for (int64_t at = 0, k = 0; k == 0 || at < bytes; at += room, k++, c->round++) {
        const char *from = send;
        for (int i = 0; i < c->n; from += counts[i++] * size)
            if (i != c->me)
                copy(slot(c, c->me, c->round) + place(c->me, i, room), from + at,
                     part(counts[i] * size, at, room));
        TT_TRY(meet_in(c, k, err));
        for (int i = 0; i < c->n; i++)
            c->pieces[i] = i == c->me ? own + at : slot(c, i, c->round) + place(i, c->me, room);
        const int64_t n = (int64_t)part(mine, at, room) / size;
        if (n)
            TT_TRY(tt_reduce_members((char *)recv + at, c->pieces, c->n, n, dtype, op, err));
    }
    return TT_OK;
}

/* Little: everyone reads all of everyone's, and adds for itself. */
static tt_status all_reduce_small(tt_comm *c, void *buf, int64_t count, tt_dtype dtype,
                                  tt_reduce op, tt_error *err)
{
    copy(slot(c, c->me, c->round), buf, (size_t)count * tt_dtype_size(dtype));
    TT_TRY(meet_in(c, 0, err));
    for (int i = 0; i < c->n; i++)
        c->pieces[i] = slot(c, i, c->round);
    return count ? tt_reduce_members(buf, c->pieces, c->n, count, dtype, op, err) : TT_OK;
}

/* Much: in blocks of a piece a member. A slot holds, of block k, the pieces the others reduce, and
 * of block k - 1 the piece this member has reduced: so a block costs one round. */
static tt_status all_reduce_blocks(tt_comm *c, char *buf, int64_t bytes, tt_dtype dtype,
                                   tt_reduce op, tt_error *err)
{
    const int64_t size = (int64_t)tt_dtype_size(dtype), room = cut(c->n + 1), block = room * c->n,
                  done = room * c->n; /* where the reduced piece lies */
    for (int64_t at = 0, k = 0; at < bytes + block; at += block, k++, c->round++) {
        char *out = slot(c, c->me, c->round);
        for (int i = 0; i < c->n; i++)
            if (i != c->me)
                copy(out + i * room, buf + at + i * room, part(bytes, at + i * room, room));
        TT_TRY(meet_in(c, k, err));
        const int64_t b = at + c->me * room, n = (int64_t)part(bytes, b, room) / size;
        char *next = slot(c, c->me, c->round + 1) + done;
        for (int i = 0; i < c->n; i++)
            c->pieces[i] = i == c->me ? buf + b : slot(c, i, c->round) + c->me * room;
        if (n)
            TT_TRY(tt_reduce_members(next, c->pieces, c->n, n, dtype, op, err));
        copy(buf + b, next, (size_t)(n * size));
        for (int i = 0; k && i < c->n; i++)
            if (i != c->me)
                copy(buf + at - block + i * room, slot(c, i, c->round) + done,
                     part(bytes, at - block + i * room, room));
    }
    return TT_OK;
}

static tt_status all_reduce(tt_comm *c, void *buf, int64_t count, tt_dtype dtype, tt_reduce op,
                            tt_error *err)
{
    TT_TRY(tt_reduce_members(NULL, NULL, 0, 0, dtype, op, err)); /* all ranks alike */
    const int64_t bytes = count * (int64_t)tt_dtype_size(dtype);
    TT_TRY(begin(c, TT_DOING_ALL_REDUCE, count, err));
    if (bytes <= TT_SHM_SLOT / (8 * c->n))
        return all_reduce_small(c, buf, count, dtype, op, err);
    return all_reduce_blocks(c, buf, bytes, dtype, op, err);
}

/* What is sent to whom is known to the sender alone, so it is told in the first round: its largest
 * number gives the rounds. */
static tt_status all_to_all(tt_comm *c, const void *send, const int64_t *send_counts, void *recv,
                            const int64_t *recv_counts, tt_dtype dtype, tt_error *err)
{
    const int64_t size = (int64_t)tt_dtype_size(dtype), room = cut(c->n - 1);
    const size_t n = (size_t)c->n;
    int64_t bytes = 0;
    tt_status s = TT_OK;
    TT_TRY(begin(c, TT_DOING_ALL_TO_ALL, 0, err));
    memcpy(c->counts + ((size_t)c->me * 2 + c->round % 2) * n, send_counts,
           n * sizeof *send_counts);
    for (int64_t at = 0, k = 0; k == 0 || at < bytes; at += room, k++, c->round++) {
        const char *from = send;
        for (int i = 0; i < c->n; from += send_counts[i++] * size)
            if (i != c->me)
                copy(slot(c, c->me, c->round) + place(c->me, i, room), from + at,
                     part(send_counts[i] * size, at, room));
        TT_TRY(meet_in(c, k, err));
        for (int i = 0; k == 0 && i < c->n; i++) {
            const int64_t *theirs = c->counts + ((size_t)i * 2 + c->round % 2) * n;
            bytes = TT_MAXV(bytes, most(theirs, c->n) * size);
            if (s == TT_OK && theirs[c->me] != recv_counts[i])
                s = TT_FAIL(
                    err, TT_ECOMM,
                    "all_to_all number %llu: rank %d sends %lld elements where %lld are due",
                    (unsigned long long)c->sequence, c->ranks[i], (long long)theirs[c->me],
                    (long long)recv_counts[i]);
        }
        char *to = recv;
        for (int i = 0; s == TT_OK && i < c->n; to += recv_counts[i++] * size)
            if (i != c->me)
                copy(to + at, slot(c, i, c->round) + place(i, c->me, room),
                     part(recv_counts[i] * size, at, room));
    }
    if (s == TT_OK)
        copy((char *)recv + sum(recv_counts, c->me) * size,
             (const char *)send + sum(send_counts, c->me) * size,
             (size_t)(recv_counts[c->me] * size));
    return s;
}

static tt_status barrier(tt_comm *c, tt_error *err)
{
    TT_TRY(begin(c, TT_DOING_BARRIER, 0, err));
    return meet_in(c, 0, err);
}

/* ---- groups ---- */

static tt_shm_group *find(tt_session *s, const int *ranks, int n, uint64_t key)
{
    for (uint64_t at = atomic_load(tt_session_root(s)); at;) {
        tt_shm_group *g = tt_session_at(s, at);
        if (g->key == key && g->n == n &&
            !memcmp(tt_session_at(s, g->ranks), ranks, (size_t)n * sizeof *ranks))
            return g;
        at = g->next;
    }
    return NULL;
}

/* Pages of it are touched only as they are used. */
static tt_shm_group *make(tt_session *s, const int *ranks, int n, uint64_t key)
{
    const uint64_t m = (uint64_t)n, at = tt_session_alloc(s, sizeof(tt_shm_group));
    tt_shm_group *g = at ? tt_session_at(s, at) : NULL;
    if (!g)
        return NULL;
    g->key = key;
    g->n = n;
    g->ranks = tt_session_alloc(s, m * sizeof *ranks);
    g->members = tt_session_alloc(s, m * sizeof(tt_shm_member));
    g->slots = tt_session_alloc(s, m * 2 * (uint64_t)TT_SHM_SLOT);
    g->counts = tt_session_alloc(s, m * 2 * m * sizeof(int64_t));
    g->boxes = tt_session_alloc(s, m * m * sizeof(tt_shm_box));
    if (!g->ranks || !g->members || !g->slots || !g->counts || !g->boxes)
        return NULL;
    memcpy(tt_session_at(s, g->ranks), ranks, m * sizeof *ranks);
    g->next = atomic_load(tt_session_root(s));
    atomic_store(tt_session_root(s), at);
    return g;
}

static void group_free(tt_comm *c)
{
    free(c->ranks);
    free(c->pieces);
    free(c); /* what is shared lives as long as the session */
}

static tt_status group(void *self, const int *ranks, int n, uint64_t key, tt_comm **out,
                       tt_error *err)
{
    const tt_shm *shm = self;
    int me = -1;
    for (int i = 0; i < n; i++)
        if (ranks[i] == shm->rank)
            me = i;
    if (me < 0)
        return TT_FAIL(err, TT_EINVAL, "rank %d is no member of the group it asks for", shm->rank);
    TT_TRY(tt_session_lock(shm->session, err));
    tt_shm_group *g = find(shm->session, ranks, n, key);
    if (!g)
        g = make(shm->session, ranks, n, key);
    tt_session_unlock(shm->session);
    tt_comm *c = g ? calloc(1, sizeof *c) : NULL;
    if (!c)
        return TT_FAIL(err, TT_ENOMEM, "no memory for a group of %d ranks", n);
    *c = (tt_comm){.session = shm->session,
                   .n = n,
                   .me = me,
                   .ranks = calloc((size_t)n, sizeof *c->ranks),
                   .members = tt_session_at(shm->session, g->members),
                   .slots = tt_session_at(shm->session, g->slots),
                   .counts = tt_session_at(shm->session, g->counts),
                   .boxes = tt_session_at(shm->session, g->boxes),
                   .pieces = calloc((size_t)n, sizeof *c->pieces)};
    if (!c->ranks || !c->pieces) {
        group_free(c);
        return TT_FAIL(err, TT_ENOMEM, "no memory for a group of %d ranks", n);
    }
    memcpy(c->ranks, ranks, (size_t)n * sizeof *ranks);
    *out = c;
    return TT_OK;
}

static void stop(void *self, const char *why)
{
    tt_session_stop(((tt_shm *)self)->session, why);
}

static void set_timeout(void *self, double timeout_s)
{
    tt_session_set_timeout(((tt_shm *)self)->session, timeout_s);
}

static void close_(void *self, int ok)
{
    (void)ok;
    free(self);
}

static int beside(void *self)
{
    (void)self;
    return 1;
}

const tt_comm_vt tt_shm_vt = {
    .struct_size = sizeof(tt_comm_vt),
    .group = group,
    .group_free = group_free,
    .all_gather = all_gather,
    .reduce_scatter = reduce_scatter,
    .all_reduce = all_reduce,
    .all_to_all = all_to_all,
    .send = tt_shm_send,
    .recv = tt_shm_recv,
    .barrier = barrier,
    .abort = stop,
    .close = close_,
    .set_timeout = set_timeout,
    .beside = beside,
};

tt_status tt_shm_new(tt_session *s, int rank, tt_shm **out, tt_error *err)
{
    tt_shm *shm = calloc(1, sizeof *shm);
    if (!shm)
        return TT_FAIL(err, TT_ENOMEM, "no memory for a rank");
    *shm = (tt_shm){s, rank};
    *out = shm;
    return TT_OK;
}
