/* SPDX-License-Identifier: Apache-2.0 */
#include "group.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The communicator: worlds, groups, and the calls, which are put on the group's queue. */

static far_world *worlds;
static uint64_t n_worlds;

/* ---- groups ---- */

far_group *far_group_ref(far_group *g)
{
    g->refs++;
    return g;
}

void far_group_drop(far_group *g)
{
    if (!g || --g->refs > 0)
        return;
    for (int i = 0; i < g->n; i++)
        if (!g->joined[i])
            return; /* that member will come and find the group */
    for (far_group **at = &g->world->groups; *at; at = &(*at)->next)
        if (*at == g) {
            *at = g->next;
            break;
        }
    for (int i = 0; i < g->n * g->n; i++)
        for (far_message *m = g->boxes[i].first, *next; m; m = next) {
            next = m->next;
            free(m->data);
            free(m);
        }
    free(g->ranks);
    free(g->joined);
    free(g->calls);
    free(g->n_calls);
    free(g->boxes);
    free(g);
}

void far_group_break(far_group *g, const tt_error *e)
{
    if (g->error.code == TT_OK)
        g->error = *e;
    pthread_cond_broadcast(&far.changed);
}

tt_status far_group_status(const far_group *g, tt_error *err)
{
    const tt_error *e = g->error.code != TT_OK ? &g->error : &g->world->why;
    if (e->code != TT_OK && err)
        *err = *e;
    return e->code;
}

static far_group *far_group_new(far_world *w, const int *ranks, int n, uint64_t key)
{
    const size_t m = (size_t)n;
    far_group *g = far_calloc(1, sizeof *g);
    *g = (far_group){.world = w, .key = key, .n = n};
    g->ranks = far_calloc(m, sizeof *g->ranks);
    memcpy(g->ranks, ranks, m * sizeof *ranks);
    g->joined = far_calloc(m, sizeof *g->joined);
    g->calls = far_calloc(m, sizeof(far_node *));
    g->n_calls = far_calloc(m, sizeof *g->n_calls);
    g->boxes = far_calloc(m * m, sizeof *g->boxes);
    far_group **last = &w->groups; /* a member joins the oldest of equal groups first */
    while (*last)
        last = &(*last)->next;
    return *last = g;
}

static tt_status far_group_join(void *self, const int *ranks, int n, uint64_t key, tt_comm **out,
                                tt_error *err)
{
    far_comm *c = self;
    int me = -1;
    for (int i = 0; i < n; i++)
        me = ranks[i] == c->env.rank ? i : me;
    if (me < 0)
        return TT_FAIL(err, TT_EINVAL,
                       "far: rank %d is not a member of the group that it asked for", c->env.rank);
    far_lock();
    far_group *g = c->world->groups;
    while (g && (g->key != key || g->n != n || g->joined[me] ||
                 memcmp(g->ranks, ranks, (size_t)n * sizeof *ranks)))
        g = g->next;
    if (!g)
        g = far_group_new(c->world, ranks, n, key);
    g->joined[me] = true;
    tt_comm *h = far_calloc(1, sizeof *h);
    *h = (tt_comm){.comm = c, .group = far_group_ref(g), .me = me};
    far_unlock();
    *out = h;
    return TT_OK;
}

static void far_group_leave(tt_comm *h)
{
    far_lock();
    far_group_drop(h->group);
    far_unlock();
    free(h);
}

/* ---- calls ---- */

static const char *const names[] = {"all_gather", "reduce_scatter", "all_reduce", "all_to_all",
                                    "barrier",    "send",           "recv"};

static int64_t far_sum(const int64_t *counts, int n)
{
    int64_t s = 0;
    for (int i = 0; i < n; i++)
        s += counts[i];
    return s;
}

/* Puts a call on the queue of the group. in and out: what this member gives and gets, in bytes. */
static tt_status far_call(tt_comm *h, const far_collective *call, const int64_t *counts,
                          const void *in, int64_t in_bytes, void *out, int64_t out_bytes,
                          tt_error *err)
{
    const char *name = names[call->op];
    far_lock();
    tt_status s = TT_OK;
    if (!h->queue)
        s = TT_FAIL(err, TT_EINVAL, "far: %s before the group was put on a queue", name);
    if (s == TT_OK)
        s = far_group_status(h->group, err);
    if (s == TT_OK) {
        far_node *n = far_node_new(h->comm->rank, FAR_CALL, name, 2);
        far_collective *c = far_calloc(1, sizeof *c);
        *c = *call;
        c->group = far_group_ref(h->group);
        c->me = h->me;
        c->counts = far_calloc((size_t)c->n_counts, sizeof *c->counts);
        if (c->n_counts)
            memcpy(c->counts, counts, (size_t)c->n_counts * sizeof *counts);
        n->collective = c;
        n->ranges[0] = (far_range){.at = (void *)(uintptr_t)in, .bytes = (size_t)in_bytes};
        n->ranges[1] = (far_range){.at = out, .bytes = (size_t)out_bytes, .write = true};
        s = far_resolve(n, err);
        const bool in_place =
            c->op == FAR_ALL_REDUCE ||
            (c->op == FAR_ALL_GATHER &&
             (const char *)in ==
                 (const char *)out + far_sum(counts, h->me) * (int64_t)tt_dtype_size(c->dtype));
        if (s == TT_OK && !in_place && far_overlap(&n->ranges[0], &n->ranges[1]))
            s = TT_FAIL(err, TT_EINVAL,
                        "far: %s: what it sends at %p and what it receives at %p "
                        "overlap",
                        name, in, out);
        if (s == TT_OK)
            s = far_put(h->queue, n, err);
        else
            far_node_drop(n);
    }
    return far_end(h->comm->rank, s);
}

static tt_status far_all_gather(tt_comm *h, const void *send, void *recv, const int64_t *counts,
                                tt_dtype dtype, tt_error *err)
{
    const int64_t size = (int64_t)tt_dtype_size(dtype);
    const far_collective c = {.op = FAR_ALL_GATHER, .n_counts = h->group->n, .dtype = dtype};
    return far_call(h, &c, counts, send, counts[h->me] * size, recv,
                    far_sum(counts, h->group->n) * size, err);
}

static tt_status far_reduce_scatter(tt_comm *h, const void *send, void *recv, const int64_t *counts,
                                    tt_dtype dtype, tt_reduce op, tt_error *err)
{
    TT_TRY(tt_reduce_members(NULL, NULL, 0, 0, dtype, op, err));
    const int64_t size = (int64_t)tt_dtype_size(dtype);
    const far_collective c = {
        .op = FAR_REDUCE_SCATTER, .n_counts = h->group->n, .dtype = dtype, .reduce = op};
    return far_call(h, &c, counts, send, far_sum(counts, h->group->n) * size, recv,
                    counts[h->me] * size, err);
}

static tt_status far_all_reduce(tt_comm *h, void *buf, int64_t count, tt_dtype dtype, tt_reduce op,
                                tt_error *err)
{
    TT_TRY(tt_reduce_members(NULL, NULL, 0, 0, dtype, op, err));
    const int64_t bytes = count * (int64_t)tt_dtype_size(dtype);
    const far_collective c = {.op = FAR_ALL_REDUCE, .n_counts = 1, .dtype = dtype, .reduce = op};
    return far_call(h, &c, &count, buf, bytes, buf, bytes, err);
}

static tt_status far_all_to_all(tt_comm *h, const void *send, const int64_t *send_counts,
                                void *recv, const int64_t *recv_counts, tt_dtype dtype,
                                tt_error *err)
{
    const int n = h->group->n;
    const int64_t size = (int64_t)tt_dtype_size(dtype);
    const far_collective c = {.op = FAR_ALL_TO_ALL, .n_counts = 2 * n, .dtype = dtype};
    int64_t *counts = far_calloc(2 * (size_t)n, sizeof *counts);
    memcpy(counts, send_counts, (size_t)n * sizeof *counts);
    memcpy(counts + n, recv_counts, (size_t)n * sizeof *counts);
    const tt_status s = far_call(h, &c, counts, send, far_sum(send_counts, n) * size, recv,
                                 far_sum(recv_counts, n) * size, err);
    free(counts);
    return s;
}

static tt_status far_check_peer(const tt_comm *h, int peer, const char *what, tt_error *err)
{
    if (peer >= 0 && peer < h->group->n && peer != h->me)
        return TT_OK;
    return TT_FAIL(err, TT_EINVAL, "far: %s: member %d of %d has no other member %d", what, h->me,
                   h->group->n, peer);
}

static tt_status far_send(tt_comm *h, int to, const void *buf, int64_t bytes, tt_error *err)
{
    TT_TRY(far_check_peer(h, to, "send", err));
    const far_collective c = {.op = FAR_SEND, .peer = to, .n_counts = 1};
    return far_call(h, &c, &bytes, buf, bytes, NULL, 0, err);
}

static tt_status far_recv(tt_comm *h, int from, void *buf, int64_t bytes, tt_error *err)
{
    TT_TRY(far_check_peer(h, from, "recv", err));
    const far_collective c = {.op = FAR_RECV, .peer = from, .n_counts = 1};
    return far_call(h, &c, &bytes, NULL, 0, buf, bytes, err);
}

static tt_status far_barrier(tt_comm *h, tt_error *err)
{
    const far_collective c = {.op = FAR_BARRIER};
    return far_call(h, &c, NULL, NULL, 0, NULL, 0, err);
}

static tt_status far_on(tt_comm *h, tt_device_queue *queue, tt_error *err)
{
    far_lock();
    const tt_status s = far_check_queue(h->comm->rank, queue, "on", err);
    if (s == TT_OK)
        h->queue = queue;
    far_unlock();
    return s;
}

static tt_status far_poll(tt_comm *h, tt_error *err)
{
    far_lock();
    const tt_status s = far_group_status(h->group, err);
    far_unlock();
    return s;
}

/* ---- life ---- */

static void far_comm_abort(void *self, const char *why)
{
    far_comm *c = self;
    far_lock();
    if (c->world->why.code == TT_OK)
        TT_FAIL(&c->world->why, TT_ECOMM, "stopped: %s", why);
    pthread_cond_broadcast(&far.changed);
    far_unlock();
}

static tt_status far_comm_open(const void *config, const tt_comm_env *env, void **self,
                               tt_error *err)
{
    (void)config;
    struct {
        int64_t process;
        uint64_t world;
    } mine = {getpid(), 0}, *all;
    if (env->device != &far_device_vt || !env->backend)
        return TT_FAIL(err, TT_EINVAL,
                       "far: comm.backend far works in the memory of backend.name far only");
    if (env->world > 1 && !env->host_all_gather)
        return TT_FAIL(err, TT_EINVAL, "far: %d ranks and no host communicator", env->world);
    far_lock();
    mine.world = ++n_worlds;
    far_unlock();
    all = far_calloc((size_t)env->world, sizeof *all);
    all[0] = mine;
    tt_status s =
        env->world > 1 ? env->host_all_gather(env->user, &mine, all, sizeof mine, err) : TT_OK;
    for (int i = 0; s == TT_OK && i < env->world; i++)
        if (all[i].process != mine.process && env->world > 1)
            s = TT_FAIL(err, TT_EUNSUPPORTED,
                        "far: its ranks are threads of one process; rank %d "
                        "is in another process than rank %d",
                        i, env->rank);
    mine.world = all[0].world;
    free(all);
    if (s != TT_OK)
        return s;
    far_comm *c = far_calloc(1, sizeof *c);
    *c = (far_comm){.env = *env, .timeout_s = env->timeout_s, .rank = env->backend};
    far_lock();
    far_world *w = worlds;
    while (w && w->id != mine.world)
        w = w->next;
    if (!w) {
        w = far_calloc(1, sizeof *w);
        *w = (far_world){.id = mine.world, .next = worlds};
        worlds = w;
    }
    c->world = w;
    c->rank->comm = c;
    far_unlock();
    *self = c;
    return TT_OK;
}

/* A world ends with its last rank, but stays if work that never ran names it. */
static void far_comm_close(void *self, int ok)
{
    far_comm *c = self;
    far_world *w = c->world;
    (void)ok;
    far_lock();
    if (c->rank->comm == c)
        c->rank->comm = NULL;
    if (++w->n_closed == c->env.world && !w->groups) {
        far_world **at = &worlds;
        while (*at != w)
            at = &(*at)->next;
        *at = w->next;
        free(w);
    }
    far_unlock();
    free(c);
}

static void far_set_timeout(void *self, double timeout_s)
{
    far_comm *c = self;
    far_lock();
    c->timeout_s = timeout_s;
    far_unlock();
}

static int far_concurrent(void *self)
{
    (void)self;
    return 1;
}

double far_comm_timeout(const far_comm *c)
{
    return c->timeout_s;
}

tt_status far_comm_stopped(const far_comm *c, tt_error *err)
{
    return c->env.stopped ? c->env.stopped(c->env.user, err) : TT_OK;
}

const tt_comm_vt far_comm_vt = {.struct_size = sizeof(tt_comm_vt),
                                .group = far_group_join,
                                .group_free = far_group_leave,
                                .all_gather = far_all_gather,
                                .reduce_scatter = far_reduce_scatter,
                                .all_reduce = far_all_reduce,
                                .all_to_all = far_all_to_all,
                                .send = far_send,
                                .recv = far_recv,
                                .barrier = far_barrier,
                                .abort = far_comm_abort,
                                .open = far_comm_open,
                                .close = far_comm_close,
                                .set_timeout = far_set_timeout,
                                .concurrent = far_concurrent,
                                .launcher = "threads",
                                .device_memory = 1,
                                .on = far_on,
                                .poll = far_poll,
                                .capture = 1};
