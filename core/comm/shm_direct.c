/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "comm/shm_impl.h"
#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>

/* Collectives with one copy, from the memory of one process into another's, where the kernel lets
 * them (process_vm_readv and _writev). Members tell their addresses, meet, copy, and meet again:
 * before the first meeting and after the second nobody touches another's buffers. That must hold
 * for failures too, after which buffers are freed: see give_up.
 *
 * What is written is pushed, not fetched: the bytes are in this core's cache then, and a member
 * that has reduced a piece overwrites lines that it has just read. */

#define MOMENT_NS INT64_C(2000000000)

/* Copies n bytes between here and an address of another's. 0, or errno's. */
static int reach(const tt_comm *c, int member, bool write, void *mine, uint64_t theirs, size_t n)
{
    const pid_t pid = (pid_t)c->members[member].pid;
    for (char *at = mine; n > 0;) {
        const struct iovec here = {at, n}, there = {(void *)(uintptr_t)theirs, n};
        const ssize_t k = write ? process_vm_writev(pid, &here, 1, &there, 1, 0)
                                : process_vm_readv(pid, &here, 1, &there, 1, 0);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return k < 0 && errno ? errno : EFAULT;
        at += k;
        theirs += (uint64_t)k;
        n -= (size_t)k;
    }
    return 0;
}

static bool answers(const tt_comm *c, int member)
{
    uint64_t mark = 0;
    const tt_shm_member *m = &c->members[member];
    return !reach(c, member, false, &mark, m->mark_at, sizeof mark) && mark == m->mark;
}

/* ---- the two meetings ---- */

/* The run was stopped, with the members in any state around the meeting `opening`. This one touches
 * others' buffers no more and says so; those that may still touch its own are waited for: they look
 * for a stop before each piece. One that comes to the opening later finds the run stopped, for it
 * looks after it has said that it is there, and this one looks who is there after the stop. */
static void give_up(tt_comm *c, uint32_t opening)
{
    const int64_t until = tt_now_ns() + MOMENT_NS;
    tt_word_set(&c->members[c->me].round, opening + 1);
    atomic_thread_fence(memory_order_seq_cst);
    for (int i = 0; i < c->n; i++)
        while (atomic_load(&c->members[i].round.value) == opening && answers(c, i) &&
               tt_now_ns() < until)
            nanosleep(&(struct timespec){0, 1000000}, NULL);
}

static tt_status go_on(tt_comm *c, tt_error *err)
{
    return tt_session_stopped(c->session, err);
}

/* After the opening meeting, whose outcome s is. */
static tt_status opened(tt_comm *c, tt_status s, tt_error *err)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (s == TT_OK)
        s = go_on(c, err);
    if (s != TT_OK && go_on(c, NULL) != TT_OK) /* else they came for different things */
        give_up(c, c->round);
    return s;
}

/* The closing meeting, after a part that ended with s. Who gave up is past it too, but stopped the
 * run before. */
static tt_status leave(tt_comm *c, tt_status s, tt_error *err)
{
    c->round++;
    if (s == TT_OK)
        s = tt_shm_meet(c, err);
    if (s == TT_OK)
        s = go_on(c, err);
    if (s != TT_OK)
        give_up(c, c->round - 1);
    return s;
}

/* ---- the way of a group ---- */

/* Reads each member's mark, and writes it back: both may be refused. */
static bool reaches_all(const tt_comm *c)
{
    for (int i = 0; i < c->n; i++) {
        uint64_t mark = c->members[i].mark;
        if (i != c->me &&
            (!answers(c, i) || reach(c, i, true, &mark, c->members[i].mark_at, sizeof mark)))
            return false;
    }
    return true;
}

/* Who is asked for its mark is so between two meetings, as buffers are. */
tt_status tt_shm_settle(tt_comm *c, tt_error *err)
{
    bool all = true;
    TT_TRY(opened(c, tt_shm_meet(c, err), err));
    c->members[c->me].reaches = !c->shm->room_only && reaches_all(c);
    TT_TRY(leave(c, TT_OK, err));
    for (int i = 0; i < c->n; i++)
        all = all && c->members[i].reaches;
    atomic_store(c->way, all ? TT_SHM_DIRECT : TT_SHM_ROOM);
    c->round++;
    return TT_OK;
}

/* ---- copies ---- */

/* Most likely the other's process has ended: then who watches over it says so in a moment. */
static tt_status refused(tt_comm *c, int member, bool write, int code, tt_error *err)
{
    const int64_t until = tt_now_ns() + MOMENT_NS / 4;
    tt_error e = {0};
    while (go_on(c, NULL) == TT_OK && tt_now_ns() < until)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    TT_TRY(go_on(c, err));
    TT_FAIL(&e, TT_ECOMM,
            "%s number %llu: rank %d cannot %s the memory of rank %d (process %lld): %s", c->op,
            (unsigned long long)c->sequence, c->ranks[c->me], write ? "write to" : "read from",
            c->ranks[member], (long long)c->members[member].pid, strerror(code));
    tt_session_stop(c->session, e.text);
    if (err)
        *err = e;
    return TT_ECOMM;
}

static tt_status move(tt_comm *c, int member, bool write, void *mine, uint64_t theirs,
                      int64_t bytes, tt_error *err)
{
    const int code = reach(c, member, write, mine, theirs, (size_t)bytes);
    return code ? refused(c, member, write, code, err) : TT_OK;
}

/* The others, each beginning with the next: they are not all at the same one's memory. */
static tt_status push(tt_comm *c, void *from, int64_t at, int64_t bytes, tt_error *err)
{
    for (int k = 1; k < c->n; k++) {
        const int i = (c->me + k) % c->n;
        TT_TRY(move(c, i, true, from, tt_shm_call_of(c, i)->recv + (uint64_t)at, bytes, err));
    }
    return TT_OK;
}

/* Bytes [at, at + bytes) of what everyone sends, into c->pieces. */
static tt_status collect(tt_comm *c, const void *send, int64_t at, int64_t bytes, tt_error *err)
{
    c->pieces[c->me] = (const char *)send + at;
    for (int k = 1; k < c->n; k++) {
        const int i = (c->me + k) % c->n;
        char *to = c->scratch + i * c->piece;
        TT_TRY(move(c, i, false, to, tt_shm_call_of(c, i)->send + (uint64_t)at, bytes, err));
        c->pieces[i] = to;
    }
    return TT_OK;
}

/* ---- collectives ---- */

static tt_status gather(tt_comm *c, const tt_shm_args *a, tt_error *err)
{
    const int64_t size = (int64_t)tt_dtype_size(a->dtype), mine = a->counts[c->me] * size,
                  to = tt_shm_sum(a->counts, c->me) * size;
    for (int64_t at = 0; at < mine; at += c->piece) {
        const int64_t n = TT_MIN(mine - at, c->piece);
        char *own = (char *)a->recv + to + at;
        TT_TRY(go_on(c, err));
        tt_shm_copy(own, (const char *)a->send + at, (size_t)n);
        TT_TRY(push(c, own, to + at, n, err));
    }
    return TT_OK;
}

static tt_status reduce_piece(tt_comm *c, const tt_shm_args *a, tt_error *err)
{
    const int64_t size = (int64_t)tt_dtype_size(a->dtype), mine = a->counts[c->me] * size,
                  from = tt_shm_sum(a->counts, c->me) * size;
    for (int64_t at = 0; at < mine; at += c->piece) {
        const int64_t n = TT_MIN(mine - at, c->piece);
        TT_TRY(go_on(c, err));
        TT_TRY(collect(c, a->send, from + at, n, err));
        TT_TRY(tt_reduce_members((char *)a->recv + at, c->pieces, c->n, n / size, a->dtype,
                                 a->reduce, err));
    }
    return TT_OK;
}

/* A member reduces its own share and puts the result in everyone's: nobody else touches it. It
 * overwrites one of the first two addends (tt_reduce_members): its own, or the copy of member 0's.
 */
static tt_status reduce_share(tt_comm *c, const tt_shm_args *a, tt_error *err)
{
    const int64_t size = (int64_t)tt_dtype_size(a->dtype), bytes = a->count * size,
                  share = (bytes / c->n / TT_SHM_LINE + 1) * TT_SHM_LINE,
                  begin = TT_MIN(c->me * share, bytes), end = TT_MIN(begin + share, bytes);
    for (int64_t at = begin; at < end; at += c->piece) {
        const int64_t n = TT_MIN(end - at, c->piece);
        TT_TRY(go_on(c, err));
        TT_TRY(collect(c, a->recv, at, n, err));
        char *out = c->me > 1 ? c->scratch : (char *)a->recv + at;
        TT_TRY(tt_reduce_members(out, c->pieces, c->n, n / size, a->dtype, a->reduce, err));
        tt_shm_copy((char *)a->recv + at, out, (size_t)n);
        TT_TRY(push(c, out, at, n, err));
    }
    return TT_OK;
}

static tt_status transpose(tt_comm *c, const tt_shm_args *a, tt_error *err)
{
    const int64_t size = (int64_t)tt_dtype_size(a->dtype);
    for (int k = 0; k < c->n; k++) {
        const int i = (c->me + k) % c->n;
        const int64_t bytes = a->recv_counts[i] * size,
                      from = tt_shm_sum(tt_shm_counts_of(c, i), c->me) * size;
        char *to = (char *)a->recv + tt_shm_sum(a->recv_counts, i) * size;
        if (i == c->me)
            tt_shm_copy(to, (const char *)a->send + from, (size_t)bytes);
        for (int64_t at = 0; i != c->me && at < bytes; at += c->piece) {
            TT_TRY(go_on(c, err));
            TT_TRY(move(c, i, false, to + at, tt_shm_call_of(c, i)->send + (uint64_t)(from + at),
                        TT_MIN(bytes - at, c->piece), err));
        }
    }
    return TT_OK;
}

tt_status tt_shm_direct_all_gather(tt_comm *c, const tt_shm_args *a, tt_error *err)
{
    TT_TRY(opened(c, tt_shm_meet(c, err), err));
    return leave(c, gather(c, a, err), err);
}

tt_status tt_shm_direct_reduce_scatter(tt_comm *c, const tt_shm_args *a, tt_error *err)
{
    TT_TRY(opened(c, tt_shm_meet(c, err), err));
    return leave(c, reduce_piece(c, a, err), err);
}

tt_status tt_shm_direct_all_reduce(tt_comm *c, const tt_shm_args *a, tt_error *err)
{
    TT_TRY(opened(c, tt_shm_meet(c, err), err));
    return leave(c, reduce_share(c, a, err), err);
}

tt_status tt_shm_direct_all_to_all(tt_comm *c, const tt_shm_args *a, tt_status s, tt_error *err)
{
    TT_TRY(opened(c, TT_OK, err));
    if (s == TT_OK)
        return leave(c, transpose(c, a, err), err);
    const tt_status left = leave(c, TT_OK, NULL);
    return left == TT_OK ? s : go_on(c, err);
}
