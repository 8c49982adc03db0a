/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/dist.h"
#include "comm/shm.h"
#include <stdlib.h>

/* The communicator of a rank process: shared memory among the ranks of a machine, a plugin (MPI)
 * between machines. A group uses shared memory if all its members are on one machine. */

struct tt_comm { /* a group of one of the two communicators */
    const tt_comm_vt *vt;
    tt_comm *inner;
    tt_session *session; /* NULL: shared memory, which records its calls itself */
    uint64_t collectives, sends, receives;
};

typedef struct mixed {
    tt_shm *shm; /* NULL: all groups are remote */
    const tt_comm_vt *remote;
    void *remote_self;
    int rank, world;
    int64_t *node; /* by rank */
    tt_session *session;
    bool failed;
} mixed;

/* ---- each call is passed on to the group's communicator ---- */

/* For the error line in case this rank is lost in a call of the plugin. */
static void record_call(tt_comm *g, tt_doing d)
{
    uint64_t *n = d == TT_DOING_SEND      ? &g->sends
                  : d == TT_DOING_RECEIVE ? &g->receives
                                          : &g->collectives;
    if (g->session)
        tt_session_doing(g->session, d, ++*n);
}

/* err is not cleared before the call: it may hold this rank's own failure, which the ranks are
 * agreeing on. */
static tt_status comm_status(tt_status s, tt_error *err)
{
    return tt_plugin_status(s, err, "comm", NULL);
}

static tt_status all_gather(tt_comm *g, const void *send, void *recv, const int64_t *counts,
                            tt_dtype dtype, tt_error *err)
{
    record_call(g, TT_DOING_ALL_GATHER);
    return comm_status(g->vt->all_gather(g->inner, send, recv, counts, dtype, err), err);
}

static tt_status reduce_scatter(tt_comm *g, const void *send, void *recv, const int64_t *counts,
                                tt_dtype dtype, tt_reduce op, tt_error *err)
{
    record_call(g, TT_DOING_REDUCE_SCATTER);
    return comm_status(g->vt->reduce_scatter(g->inner, send, recv, counts, dtype, op, err), err);
}

static tt_status all_reduce(tt_comm *g, void *buf, int64_t count, tt_dtype dtype, tt_reduce op,
                            tt_error *err)
{
    record_call(g, TT_DOING_ALL_REDUCE);
    return comm_status(g->vt->all_reduce(g->inner, buf, count, dtype, op, err), err);
}

static tt_status all_to_all(tt_comm *g, const void *send, const int64_t *send_counts, void *recv,
                            const int64_t *recv_counts, tt_dtype dtype, tt_error *err)
{
    record_call(g, TT_DOING_ALL_TO_ALL);
    return comm_status(
        g->vt->all_to_all(g->inner, send, send_counts, recv, recv_counts, dtype, err), err);
}

static tt_status send(tt_comm *g, int to, const void *buf, int64_t bytes, tt_error *err)
{
    record_call(g, TT_DOING_SEND);
    return comm_status(g->vt->send(g->inner, to, buf, bytes, err), err);
}

static tt_status recv(tt_comm *g, int from, void *buf, int64_t bytes, tt_error *err)
{
    record_call(g, TT_DOING_RECEIVE);
    return comm_status(g->vt->recv(g->inner, from, buf, bytes, err), err);
}

static tt_status barrier(tt_comm *g, tt_error *err)
{
    record_call(g, TT_DOING_BARRIER);
    return comm_status(g->vt->barrier(g->inner, err), err);
}

static void processes_group_free(tt_comm *g)
{
    g->vt->group_free(g->inner);
    free(g);
}

static tt_status processes_group(void *self, const int *ranks, int n, uint64_t key, tt_comm **out,
                                 tt_error *err)
{
    const mixed *m = self;
    bool near = m->shm != NULL;
    for (int i = 0; i < n && near; i++)
        near = m->node[ranks[i]] == m->node[m->rank];
    tt_comm *g = calloc(1, sizeof *g);
    if (!g)
        return TT_FAIL(err, TT_ENOMEM, "no memory for a group");
    g->vt = near ? &tt_shm_vt : m->remote;
    g->session = near ? NULL : m->session;
    const tt_status s = comm_status(
        g->vt->group(near ? (void *)m->shm : m->remote_self, ranks, n, key, &g->inner, err), err);
    if (s == TT_OK)
        *out = g;
    else
        free(g);
    return s;
}

static void stop(void *self, const char *why)
{
    mixed *m = self;
    m->failed = true;
    tt_session_stop(m->session, why);
    m->remote->abort(m->remote_self, why);
}

static void processes_set_timeout(void *self, double timeout_s)
{
    const mixed *m = self;
    tt_session_set_timeout(m->session, timeout_s);
    m->remote->set_timeout(m->remote_self, timeout_s);
}

static void free_mixed(void *self)
{
    mixed *m = self;
    if (m->remote_self)
        m->remote->close(m->remote_self,
                         !m->failed && tt_session_stopped(m->session, NULL) == TT_OK);
    if (m->shm)
        tt_shm_vt.close(m->shm, true);
    free(m->node);
    free(m);
}

/* Which of the two communicators a group will use is not known here, so both must allow it. */
static int processes_concurrent(void *self)
{
    const mixed *m = self;
    return TT_HAS(m->remote, tt_comm_vt, concurrent) && m->remote->concurrent &&
           m->remote->concurrent(m->remote_self);
}

static const tt_comm_vt mixed_vt = {
    .struct_size = sizeof(tt_comm_vt),
    .group = processes_group,
    .group_free = processes_group_free,
    .all_gather = all_gather,
    .reduce_scatter = reduce_scatter,
    .all_reduce = all_reduce,
    .all_to_all = all_to_all,
    .send = send,
    .recv = recv,
    .barrier = barrier,
    .abort = stop,
    .set_timeout = processes_set_timeout,
    .concurrent = processes_concurrent,
};

/* ---- joining ---- */

static tt_status stopped(void *session, tt_error *err)
{
    return tt_session_stopped(session, err);
}

/* Identifies the machine: the world rank of its first rank, the same on all ranks of a session. */
static tt_status learn_nodes(mixed *m, tt_comm *all, tt_error *err)
{
    const int64_t node = tt_session_first_rank(m->session);
    int64_t *ones = calloc((size_t)m->world, sizeof *ones);
    m->node = calloc((size_t)m->world, sizeof *m->node);
    if (!ones || !m->node) {
        free(ones);
        return TT_FAIL(err, TT_ENOMEM, "no memory for the nodes of %d ranks", m->world);
    }
    for (int i = 0; i < m->world; i++)
        ones[i] = 1;
    const tt_status s =
        comm_status(m->remote->all_gather(all, &node, m->node, ones, TT_I64, err), err);
    free(ones);
    return s;
}

static tt_status open_remote(const tt_processes_opts *o, mixed *m, tt_error *err)
{
    const tt_launch *l = o->launch;
    const tt_comm_env env = {.struct_size = sizeof env,
                             .rank = l->rank,
                             .world = l->world,
                             .timeout_s = tt_session_timeout(o->session),
                             .stopped = stopped,
                             .user = o->session,
                             .concurrent = o->concurrent};
    tt_comm *all;
    TT_TRY(comm_status(m->remote->open(o->remote_config, &env, &m->remote_self, err), err));
    TT_TRY(comm_status(tt_comm_all(m->remote, m->remote_self, l->world, &all, err), err));
    const tt_status s = learn_nodes(m, all, err);
    m->remote->group_free(all);
    return s;
}

static tt_status join_mixed(const tt_processes_opts *o, tt_dist *d, tt_error *err)
{
    const tt_launch *l = o->launch;
    mixed *m = calloc(1, sizeof *m);
    if (!m)
        return TT_FAIL(err, TT_ENOMEM, "no memory for a communicator of %d ranks", l->world);
    *m = (mixed){.remote = o->remote, .rank = l->rank, .world = l->world, .session = o->session};
    tt_status s = open_remote(o, m, err);
    if (s == TT_OK && !o->all_remote)
        s = tt_shm_new(o->session, l->rank, o->buffered_only, &m->shm, err);
    if (s == TT_OK)
        s = tt_comm_all(&mixed_vt, m, l->world, &d->all, err);
    if (s != TT_OK) {
        m->failed = true;
        free_mixed(m);
        return s;
    }
    d->vt = &mixed_vt;
    d->self = m;
    d->free_self = free_mixed;
    return TT_OK;
}

static void free_shm(void *self)
{
    tt_shm_vt.close(self, true);
}

static tt_status join_shm(const tt_processes_opts *o, tt_dist *d, tt_error *err)
{
    tt_shm *shm;
    TT_TRY(tt_shm_new(o->session, o->launch->rank, o->buffered_only, &shm, err));
    const tt_status s = tt_comm_all(&tt_shm_vt, shm, o->launch->world, &d->all, err);
    if (s != TT_OK) {
        free_shm(shm);
        return s;
    }
    d->vt = &tt_shm_vt;
    d->self = shm;
    d->free_self = free_shm;
    return TT_OK;
}

tt_status tt_processes_join(const tt_processes_opts *o, tt_dist *out, tt_error *err)
{
    const int n = o->launch->world;
    tt_dist d = {.rank = o->launch->rank,
                 .world = n,
                 .local_rank = o->launch->local_rank,
                 .local_world = o->launch->local_world,
                 .session = o->session};
    TT_TRY(o->remote ? join_mixed(o, &d, err) : join_shm(o, &d, err));
    d.data_vt = d.vt;
    d.data_self = d.self;
    *out = d;
    return TT_OK;
}
