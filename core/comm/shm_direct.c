/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "comm/shm_impl.h"
#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>

/* Collectives with one copy, from the memory of one process into another's, if the kernel allows it
 * (process_vm_readv and process_vm_writev). Members publish their addresses, wait at the opening
 * barrier, copy, and wait at the closing barrier: before the first and after the second nobody
 * touches another's buffers. This must hold after failures too, when buffers are freed: see
 * give_up.
 *
 * Results are written to the other members, not read by them: the bytes are in this core's cache
 * then, and a member that has reduced a piece overwrites cache lines that it has just read. */

/* Copies n bytes to or from an address of another process. Returns 0, or the errno. */
static int copy_bytes(const tt_comm *c, int member, bool write, void *mine, uint64_t theirs,
                      size_t n)
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

static bool is_reachable(const tt_comm *c, int member)
{
    uint64_t mark = 0;
    const tt_shm_member *m = &c->members[member];
    return !copy_bytes(c, member, false, &mark, m->mark_at, sizeof mark) && mark == m->mark;
}

/* ---- the two barriers ---- */

/* The run was stopped, and the members may be before, in or after the barrier of round `opening`.
 * This member no longer touches others' buffers and publishes that. It waits for those that may
 * still touch its own: they check for a stop before each piece. A member that arrives at the
 * opening barrier later sees the stop, because it checks after it has published its arrival, and
 * this member looks for arrivals after the stop. */
static void give_up(tt_comm *c, uint32_t opening)
{
    const int64_t until = tt_now_ns() + tt_patience(TT_RANK_MOMENT_NS);
    tt_word_set(&c->members[c->me].round, opening + 1);
    atomic_thread_fence(memory_order_seq_cst);
    for (int i = 0; i < c->n; i++)
        while (atomic_load(&c->members[i].round.value) == opening && is_reachable(c, i) &&
               tt_now_ns() < until)
            nanosleep(&(struct timespec){0, 1000000}, NULL);
}

static tt_status check_stopped(tt_comm *c, tt_error *err)
{
    return tt_session_stopped(c->session, err);
}

/* Ends the opening barrier; s is the status of its wait. */
static tt_status open_barrier(tt_comm *c, tt_status s, tt_error *err)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (s == TT_OK)
        s = check_stopped(c, err);
    if (s != TT_OK && check_stopped(c, NULL) != TT_OK) /* else the calls differ */
        give_up(c, c->round);
    return s;
}

/* The closing barrier, after copies that ended with status s. A member that gave up counts as
 * arrived here too, but it stopped the run before. */
static tt_status close_barrier(tt_comm *c, tt_status s, tt_error *err)
{
    c->round++;
    if (s == TT_OK)
        s = tt_shm_finish_round(c, err);
    if (s == TT_OK)
        s = check_stopped(c, err);
    if (s != TT_OK)
        give_up(c, c->round - 1);
    return s;
}

/* ---- the path of a group ---- */

/* Reads each member's mark and writes it back: the kernel may refuse either. */
static bool reaches_all(const tt_comm *c)
{
    for (int i = 0; i < c->n; i++) {
        uint64_t mark = c->members[i].mark;
        if (i != c->me && (!is_reachable(c, i) ||
                           copy_bytes(c, i, true, &mark, c->members[i].mark_at, sizeof mark)))
            return false;
    }
    return true;
}

/* Marks are read between the two barriers, as buffers are. */
tt_status tt_shm_choose_path(tt_comm *c, tt_error *err)
{
    bool all = true;
    TT_TRY(open_barrier(c, tt_shm_finish_round(c, err), err));
    c->members[c->me].reaches = !c->shm->buffered_only && reaches_all(c);
    TT_TRY(close_barrier(c, TT_OK, err));
    for (int i = 0; i < c->n; i++)
        all = all && c->members[i].reaches;
    atomic_store(c->path, all ? TT_SHM_DIRECT : TT_SHM_BUFFERED);
    c->round++;
    return TT_OK;
}

/* ---- copies ---- */

/* Most likely the other process has ended: then the rank that watches it reports that in a moment,
 * and its message is better than this one. */
static tt_status copy_failed(tt_comm *c, int member, bool write, int code, tt_error *err)
{
    const int64_t until = tt_now_ns() + tt_patience(TT_RANK_MOMENT_NS) / 4;
    tt_error e = {0};
    while (check_stopped(c, NULL) == TT_OK && tt_now_ns() < until)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    TT_TRY(check_stopped(c, err));
    TT_FAIL(&e, TT_ECOMM,
            "%s number %llu: rank %d cannot %s the memory of rank %d (process %lld): %s", c->op,
            (unsigned long long)c->sequence, c->ranks[c->me], write ? "write to" : "read from",
            c->ranks[member], (long long)c->members[member].pid, strerror(code));
    tt_session_stop(c->session, e.text);
    if (err)
        *err = e;
    return TT_ECOMM;
}

static tt_status copy_or_fail(tt_comm *c, int member, bool write, void *mine, uint64_t theirs,
                              int64_t bytes, tt_error *err)
{
    const int code = copy_bytes(c, member, write, mine, theirs, (size_t)bytes);
    return code ? copy_failed(c, member, write, code, err) : TT_OK;
}

/* Writes to all others. Each member begins with the next one, so that they do not all write to the
 * same process at a time. */
static tt_status write_to_others(tt_comm *c, void *from, int64_t at, int64_t bytes, tt_error *err)
{
    for (int k = 1; k < c->n; k++) {
        const int i = (c->me + k) % c->n;
        TT_TRY(
            copy_or_fail(c, i, true, from, tt_shm_call_of(c, i)->recv + (uint64_t)at, bytes, err));
    }
    return TT_OK;
}

/* Points c->pieces at bytes [at, at + bytes) of what each member sends, copied to c->scratch. */
static tt_status read_pieces(tt_comm *c, const void *send, int64_t at, int64_t bytes, tt_error *err)
{
    c->pieces[c->me] = (const char *)send + at;
    for (int k = 1; k < c->n; k++) {
        const int i = (c->me + k) % c->n;
        char *to = c->scratch + i * c->piece;
        TT_TRY(
            copy_or_fail(c, i, false, to, tt_shm_call_of(c, i)->send + (uint64_t)at, bytes, err));
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
        TT_TRY(check_stopped(c, err));
        tt_shm_copy(own, (const char *)a->send + at, (size_t)n);
        TT_TRY(write_to_others(c, own, to + at, n, err));
    }
    return TT_OK;
}

static tt_status reduce_piece(tt_comm *c, const tt_shm_args *a, tt_error *err)
{
    const int64_t size = (int64_t)tt_dtype_size(a->dtype), mine = a->counts[c->me] * size,
                  from = tt_shm_sum(a->counts, c->me) * size;
    for (int64_t at = 0; at < mine; at += c->piece) {
        const int64_t n = TT_MIN(mine - at, c->piece);
        TT_TRY(check_stopped(c, err));
        TT_TRY(read_pieces(c, a->send, from + at, n, err));
        TT_TRY(tt_reduce_members((char *)a->recv + at, c->pieces, c->n, n / size, a->dtype,
                                 a->reduce, err));
    }
    return TT_OK;
}

/* A member reduces its own share and writes the result to all others: no other member touches that
 * share. It overwrites one of the first two addends (tt_reduce_members): its own, or the copy of
 * member 0's. */

static tt_status reduce_share(tt_comm *c, const tt_shm_args *a, tt_error *err)
{
    const int64_t size = (int64_t)tt_dtype_size(a->dtype), bytes = a->count * size,
                  share = (bytes / c->n / TT_SHM_LINE + 1) * TT_SHM_LINE,
                  begin = TT_MIN(c->me * share, bytes), end = TT_MIN(begin + share, bytes);
    for (int64_t at = begin; at < end; at += c->piece) {
        const int64_t n = TT_MIN(end - at, c->piece);
        TT_TRY(check_stopped(c, err));
        TT_TRY(read_pieces(c, a->recv, at, n, err));
        char *out = c->me > 1 ? c->scratch : (char *)a->recv + at;
        TT_TRY(tt_reduce_members(out, c->pieces, c->n, n / size, a->dtype, a->reduce, err));
        tt_shm_copy((char *)a->recv + at, out, (size_t)n);
        TT_TRY(write_to_others(c, out, at, n, err));
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
            TT_TRY(check_stopped(c, err));
            TT_TRY(copy_or_fail(c, i, false, to + at,
                                tt_shm_call_of(c, i)->send + (uint64_t)(from + at),
                                TT_MIN(bytes - at, c->piece), err));
        }
    }
    return TT_OK;
}

tt_status tt_shm_direct_all_gather(tt_comm *c, const tt_shm_args *a, tt_error *err)
{
    TT_TRY(open_barrier(c, tt_shm_finish_round(c, err), err));
    return close_barrier(c, gather(c, a, err), err);
}

tt_status tt_shm_direct_reduce_scatter(tt_comm *c, const tt_shm_args *a, tt_error *err)
{
    TT_TRY(open_barrier(c, tt_shm_finish_round(c, err), err));
    return close_barrier(c, reduce_piece(c, a, err), err);
}

tt_status tt_shm_direct_all_reduce(tt_comm *c, const tt_shm_args *a, tt_error *err)
{
    TT_TRY(open_barrier(c, tt_shm_finish_round(c, err), err));
    return close_barrier(c, reduce_share(c, a, err), err);
}

tt_status tt_shm_direct_all_to_all(tt_comm *c, const tt_shm_args *a, tt_status s, tt_error *err)
{
    TT_TRY(open_barrier(c, TT_OK, err));
    if (s == TT_OK)
        return close_barrier(c, transpose(c, a, err), err);
    const tt_status left = close_barrier(c, TT_OK, NULL);
    return left == TT_OK ? s : check_stopped(c, err);
}
