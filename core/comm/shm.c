/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "comm/shm_impl.h"
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* The communicator of rank processes on one machine: its groups, and which path a collective takes
 * (through buffers in shared memory, or directly from process to process). */

#define PAGE 4096
#define MOST_SCRATCH (INT64_C(512) << 10)

/* ---- collectives ---- */

static bool is_direct(const tt_comm *c, const tt_shm_args *a)
{
    return atomic_load(c->path) == TT_SHM_DIRECT &&
           a->count * (int64_t)tt_dtype_size(a->dtype) >= TT_SHM_DIRECT_BYTES * c->n;
}

static tt_status all_gather(tt_comm *c, const void *send, void *recv, const int64_t *counts,
                            tt_dtype dtype, tt_error *err)
{
    const tt_shm_args a = {.op = TT_DOING_ALL_GATHER,
                           .send = send,
                           .recv = recv,
                           .count = tt_shm_sum(counts, c->n),
                           .counts = counts,
                           .dtype = dtype};
    TT_TRY(tt_shm_begin(c, &a, err));
    return is_direct(c, &a) ? tt_shm_direct_all_gather(c, &a, err)
                            : tt_shm_buffered_all_gather(c, &a, err);
}

static tt_status reduce_scatter(tt_comm *c, const void *send, void *recv, const int64_t *counts,
                                tt_dtype dtype, tt_reduce op, tt_error *err)
{
    const tt_shm_args a = {.op = TT_DOING_REDUCE_SCATTER,
                           .send = send,
                           .recv = recv,
                           .count = tt_shm_sum(counts, c->n),
                           .counts = counts,
                           .dtype = dtype,
                           .reduce = op};
    TT_TRY(
        tt_reduce_members(NULL, NULL, 0, 0, dtype, op, err)); /* fails on all ranks, or on none */
    TT_TRY(tt_shm_begin(c, &a, err));
    return is_direct(c, &a) ? tt_shm_direct_reduce_scatter(c, &a, err)
                            : tt_shm_buffered_reduce_scatter(c, &a, err);
}

static tt_status all_reduce(tt_comm *c, void *buf, int64_t count, tt_dtype dtype, tt_reduce op,
                            tt_error *err)
{
    const tt_shm_args a = {.op = TT_DOING_ALL_REDUCE,
                           .send = buf,
                           .recv = buf,
                           .count = count,
                           .dtype = dtype,
                           .reduce = op};
    TT_TRY(
        tt_reduce_members(NULL, NULL, 0, 0, dtype, op, err)); /* fails on all ranks, or on none */
    TT_TRY(tt_shm_begin(c, &a, err));
    return is_direct(c, &a) ? tt_shm_direct_all_reduce(c, &a, err)
                            : tt_shm_buffered_all_reduce(c, &a, err);
}

static tt_status all_to_all(tt_comm *c, const void *send, const int64_t *send_counts, void *recv,
                            const int64_t *recv_counts, tt_dtype dtype, tt_error *err)
{
    const tt_shm_args a = {.op = TT_DOING_ALL_TO_ALL,
                           .send = send,
                           .recv = recv,
                           .counts = send_counts,
                           .recv_counts = recv_counts,
                           .dtype = dtype};
    TT_TRY(tt_shm_begin(c, &a, err));
    return tt_shm_all_to_all(c, &a, err);
}

static tt_status barrier(tt_comm *c, tt_error *err)
{
    TT_TRY(tt_shm_begin(c, &(tt_shm_args){.op = TT_DOING_BARRIER}, err));
    return tt_shm_finish_round(c, err);
}

/* ---- groups ---- */

static tt_shm_group *shm_group_find(tt_session *s, const int *ranks, int n, uint64_t key)
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

/* Allocates a group's memory; its pages are allocated only when they are touched. */
static tt_shm_group *shm_group_make(tt_session *s, const int *ranks, int n, uint64_t key)
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

static void shm_group_free(tt_comm *c)
{
    free(c->ranks);
    free(c->pieces);
    free(c->scratch);
    free(c); /* the shared part lives as long as the session */
}

/* The bytes that are copied at a time: one piece of each member fits the cache, where a reduction
 * adds the pieces up. */
static int64_t piece_of(int n)
{
    return TT_MAXV(MOST_SCRATCH / n / PAGE, 2) * PAGE;
}

static tt_status group_new(tt_shm *shm, tt_shm_group *g, const int *ranks, int n, int me,
                           tt_comm **out, tt_error *err)
{
    tt_session *s = shm->session;
    tt_comm *c = calloc(1, sizeof *c);
    if (!c)
        return TT_FAIL(err, TT_ENOMEM, "no memory for a group of %d ranks", n);
    *c = (tt_comm){.session = s,
                   .shm = shm,
                   .n = n,
                   .me = me,
                   .ranks = calloc((size_t)n, sizeof *c->ranks),
                   .members = tt_session_at(s, g->members),
                   .slots = tt_session_at(s, g->slots),
                   .counts = tt_session_at(s, g->counts),
                   .boxes = tt_session_at(s, g->boxes),
                   .pieces = calloc((size_t)n, sizeof *c->pieces),
                   .path = &g->path,
                   .piece = piece_of(n),
                   .scratch = aligned_alloc(PAGE, (size_t)(n * piece_of(n)))};
    if (!c->ranks || !c->pieces || !c->scratch) {
        shm_group_free(c);
        return TT_FAIL(err, TT_ENOMEM, "no memory for a group of %d ranks", n);
    }
    memcpy(c->ranks, ranks, (size_t)n * sizeof *ranks);
    *out = c;
    return TT_OK;
}

static tt_status shm_group(void *self, const int *ranks, int n, uint64_t key, tt_comm **out,
                           tt_error *err)
{
    tt_shm *shm = self;
    int me = -1;
    for (int i = 0; i < n; i++)
        if (ranks[i] == shm->rank)
            me = i;
    if (me < 0)
        return TT_FAIL(err, TT_EINVAL, "rank %d is not a member of the group that it asked for",
                       shm->rank);
    TT_TRY(tt_session_lock(shm->session, err));
    tt_shm_group *g = shm_group_find(shm->session, ranks, n, key);
    if (!g)
        g = shm_group_make(shm->session, ranks, n, key);
    tt_shm_member *m = g ? (tt_shm_member *)tt_session_at(shm->session, g->members) + me : NULL;
    if (m && m->mark != shm->mark) { /* this process opens the group for the first time */
        m->pid = getpid();
        m->mark = shm->mark;
        m->mark_at = (uintptr_t)&shm->mark;
    }
    tt_session_unlock(shm->session);
    if (!g)
        return TT_FAIL(err, TT_ENOMEM, "no memory for a group of %d ranks", n);
    return group_new(shm, g, ranks, n, me, out, err);
}

static void stop(void *self, const char *why)
{
    tt_session_stop(((tt_shm *)self)->session, why);
}

static void shm_set_timeout(void *self, double timeout_s)
{
    tt_session_set_timeout(((tt_shm *)self)->session, timeout_s);
}

static void close_(void *self, int ok)
{
    (void)ok;
    free(self);
}

static int shm_concurrent(void *self)
{
    (void)self;
    return 1;
}

const tt_comm_vt tt_shm_vt = {
    .struct_size = sizeof(tt_comm_vt),
    .group = shm_group,
    .group_free = shm_group_free,
    .all_gather = all_gather,
    .reduce_scatter = reduce_scatter,
    .all_reduce = all_reduce,
    .all_to_all = all_to_all,
    .send = tt_shm_send,
    .recv = tt_shm_recv,
    .barrier = barrier,
    .abort = stop,
    .close = close_,
    .set_timeout = shm_set_timeout,
    .concurrent = shm_concurrent,
};

tt_status tt_shm_new(tt_session *s, int rank, bool buffered_only, tt_shm **out, tt_error *err)
{
    tt_shm *shm = calloc(1, sizeof *shm);
    if (!shm)
        return TT_FAIL(err, TT_ENOMEM, "no memory for a rank");
    *shm = (tt_shm){.session = s, .rank = rank, .buffered_only = buffered_only};
    const int64_t own[] = {rank, getpid(), tt_now_ns(), (int64_t)(uintptr_t)shm};
    shm->mark = tt_hash64(own, sizeof own, 0);
    /* The Yama kernel module forbids processes to access the memory of others than their children
     * unless these allow it; without Yama this does nothing. */
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    *out = shm;
    return TT_OK;
}
