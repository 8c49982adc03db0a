/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "nccl.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Groups, the communicators of NCCL, and errors. */

int64_t nccl_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- errors ---- */

void nccl_ranks_text(const tt_comm *g, char *text, size_t size)
{
    size_t n = (size_t)snprintf(text, size, "rank");
    for (int i = 0; i < g->n && n + 16 < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s %d", i ? "," : "s", g->ranks[i]);
}

tt_status nccl_error(const tt_comm *g, const nccl_link *l, ncclResult_t r, const char *what,
                     tt_error *err)
{
    char ranks[200];
    const char *more = nccl.ncclGetLastError(l ? l->comm : NULL);
    nccl_ranks_text(g, ranks, sizeof ranks);
    const bool twice = more && strstr(more, "uplicate GPU");
    /* A call that NCCL refuses is this rank's own failure; others may follow from another rank's. */
    const bool own =
        r == (ncclResult_t)NCCL_INVALID_ARGUMENT || r == (ncclResult_t)NCCL_INVALID_USAGE;
    return TT_FAIL(err, own ? TT_EINVAL : TT_ECOMM, "NCCL, %s of %s: %s%s%s%s", what, ranks,
                   nccl.ncclGetErrorString(r), more && *more ? ": " : "", more ? more : "",
                   twice ? "; a GPU can be in a communicator once: give each rank its own, or use "
                           "comm.backend local, with rank-threads"
                         : "");
}

tt_status nccl_world_status(nccl_world *w, tt_error *err)
{
    if (!atomic_load(&w->aborted))
        return TT_OK;
    pthread_mutex_lock(&w->lock);
    if (err)
        *err = w->why;
    const tt_status s = w->why.code;
    pthread_mutex_unlock(&w->lock);
    return s;
}

static void link_abort(nccl_link *l)
{
    struct timespec until;
    if (!l)
        return;
    /* A thread that holds the lock is in a function of NCCL that returns soon, or never. */
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    const bool locked = pthread_mutex_timedlock(&l->lock, &until) == 0;
    const ncclComm_t comm = l->comm;
    l->comm = NULL;
    if (locked)
        pthread_mutex_unlock(&l->lock);
    if (comm)
        (void)nccl.ncclCommAbort(comm);
}

void nccl_world_abort(nccl_world *w, tt_status s, const char *why)
{
    pthread_mutex_lock(&w->lock);
    if (!atomic_load(&w->aborted)) {
        TT_FAIL(&w->why, s, "%s", why);
        atomic_store(&w->aborted, true);
    }
    for (tt_comm *g = w->groups; g; g = g->next) {
        link_abort(g->link);
        for (int i = 0; i < g->n; i++) {
            link_abort(g->to[i] ? g->to[i]->link : NULL);
            link_abort(g->from[i]);
        }
    }
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

/* ---- communicators of NCCL ---- */

tt_status nccl_link_new(nccl_link **out, tt_error *err)
{
    nccl_link *l = calloc(1, sizeof *l);
    if (!l)
        return TT_FAIL(err, TT_ENOMEM, "nccl: no memory for a communicator");
    pthread_mutex_init(&l->lock, NULL);
    *out = l;
    return TT_OK;
}

void nccl_link_end(nccl_world *w, nccl_link *l)
{
    if (!l)
        return;
    pthread_mutex_lock(&w->lock);
    l->next_ended = w->ended;
    w->ended = l;
    pthread_mutex_unlock(&w->lock);
}

ncclResult_t nccl_link_join(nccl_link *l, const ncclUniqueId *id, int n, int rank)
{
    nccl_settings c = {.size = sizeof c,
                       .magic = (unsigned)NCCL_MAGIC,
                       .version = NCCL_OLDEST,
                       .blocking = 0,
                       .cga_cluster_size = NCCL_UNDEFINED,
                       .min_ctas = NCCL_UNDEFINED,
                       .max_ctas = NCCL_UNDEFINED,
                       .split_share = NCCL_UNDEFINED};
    pthread_mutex_lock(&l->lock);
    const ncclResult_t r = nccl.ncclCommInitRankConfig(&l->comm, n, *id, rank, &c);
    pthread_mutex_unlock(&l->lock);
    return r;
}

static tt_status settle_overdue(const tt_comm *g, const char *what, tt_error *err)
{
    char text[sizeof err->text], ranks[200];
    nccl_ranks_text(g, ranks, sizeof ranks);
    snprintf(text, sizeof text,
             "NCCL, %s of %s: rank %d waited %g s for the others (" TT_COMM_LIMIT_KEYS ")", what,
             ranks, g->ranks[g->me], atomic_load(&g->world->timeout_s));
    nccl_world_abort(g->world, TT_ETIMEOUT, text);
    return nccl_world_status(g->world, err);
}

tt_status nccl_settle(const tt_comm *g, nccl_link *l, ncclResult_t r, const char *what,
                      tt_error *err)
{
    nccl_world *w = g->world;
    const int64_t begun = nccl_now_ns();
    for (int looks = 0; (int)r == NCCL_IN_PROGRESS; looks++) {
        TT_TRY(nccl_world_status(w, err));
        pthread_mutex_lock(&l->lock);
        if (l->comm && (int)nccl.ncclCommGetAsyncError(l->comm, &r) != NCCL_SUCCESS)
            r = NCCL_IN_PROGRESS;
        pthread_mutex_unlock(&l->lock);
        const double limit = atomic_load(&w->timeout_s);
        if ((int)r == NCCL_IN_PROGRESS && limit > 0 &&
            (double)(nccl_now_ns() - begun) > limit * 1e9)
            return settle_overdue(g, what, err);
        if ((int)r == NCCL_IN_PROGRESS)
            nanosleep(&(struct timespec){0, looks < 200 ? 1000 : 200000}, NULL);
    }
    TT_TRY(nccl_world_status(w, err));
    return (int)r == NCCL_SUCCESS ? TT_OK : nccl_error(g, l, r, what, err);
}

/* ---- groups ---- */

typedef struct hello { /* what each member tells the others */
    ncclUniqueId id;   /* of member 0 */
    int32_t failed;
} hello;

static tt_status group_meet(tt_comm *g, uint64_t key, hello *all, int64_t *counts, tt_error *err)
{
    nccl_world *w = g->world;
    hello mine = {0};
    TT_TRY(w->env.host->group(w->env.host_self, g->ranks, g->n, key, &g->host, err));
    ncclResult_t r = NCCL_SUCCESS;
    if (g->me == 0)
        r = nccl.ncclGetUniqueId(&mine.id);
    mine.failed = (int)r != NCCL_SUCCESS;
    for (int i = 0; i < g->n; i++)
        counts[i] = sizeof mine;
    TT_TRY(w->env.host->all_gather(g->host, &mine, all, counts, TT_U8, err));
    if ((int)r != NCCL_SUCCESS)
        return nccl_error(g, NULL, r, "ncclGetUniqueId", err);
    if (all[0].failed)
        return TT_FAIL(err, TT_ECOMM, "NCCL gave rank %d no id for a group", g->ranks[0]);
    return nccl_settle(g, g->link, nccl_link_join(g->link, &all[0].id, g->n, g->me),
                       "ncclCommInitRankConfig", err);
}

static tt_status group_make(tt_comm *g, uint64_t key, tt_error *err)
{
    nccl_world *w = g->world;
    hello *all = calloc((size_t)g->n, sizeof *all);
    int64_t *counts = calloc((size_t)g->n, sizeof *counts);
    tt_status s = all && counts ? TT_OK : TT_FAIL(err, TT_ENOMEM, "nccl: no memory for a group");
    if (s == TT_OK)
        s = group_meet(g, key, all, counts, err);
    free(all);
    free(counts);
    if (s == TT_OK)
        nccl_link_registers(w, g->link);
    if (s == TT_OK)
        s = NCCL_DEVICE(w, alloc, 16, &g->token, err);
    if (s == TT_OK)
        s = NCCL_DEVICE(w, event_new, 0, &g->idle, err);
    for (int i = 0; s == TT_OK && i < NCCL_WATCHED; i++) {
        s = NCCL_DEVICE(w, event_new, 0, &g->calls[i].begin, err);
        if (s == TT_OK)
            s = NCCL_DEVICE(w, event_new, 0, &g->calls[i].end, err);
    }
    return s;
}

static tt_comm *group_new(nccl_world *w, const int *ranks, int n)
{
    tt_comm *g = calloc(1, sizeof *g);
    if (!g)
        return NULL;
    g->world = w;
    g->n = n;
    g->me = -1;
    g->ranks = calloc((size_t)n, sizeof *g->ranks);
    g->parts = calloc((size_t)n, sizeof *g->parts);
    g->pieces = calloc((size_t)n, sizeof *g->pieces);
    g->to = calloc((size_t)n, sizeof *g->to);
    g->from = calloc((size_t)n, sizeof *g->from);
    for (int i = 0; g->ranks && i < n; i++) {
        g->ranks[i] = ranks[i];
        if (ranks[i] == w->env.rank)
            g->me = i;
    }
    return g;
}

tt_status nccl_group(void *self, const int *ranks, int n, uint64_t key, tt_comm **out,
                     tt_error *err)
{
    nccl_world *w = self;
    tt_comm *g = group_new(w, ranks, n);
    tt_status s = nccl_world_status(w, err);
    if (s == TT_OK && (!g || !g->ranks || !g->parts || !g->pieces || !g->to || !g->from))
        s = TT_FAIL(err, TT_ENOMEM, "nccl: no memory for a group of %d ranks", n);
    if (s == TT_OK && g->me < 0)
        s = TT_FAIL(err, TT_EINVAL, "nccl: rank %d is not a member of the group that it asked for",
                    w->env.rank);
    if (s == TT_OK)
        s = nccl_link_new(&g->link, err);
    if (s == TT_OK) {
        pthread_mutex_lock(&w->lock);
        g->next = w->groups;
        w->groups = g;
        pthread_mutex_unlock(&w->lock);
        s = group_make(g, key, err);
    }
    if (s == TT_OK)
        *out = g;
    else if (g)
        nccl_group_free(g);
    return s;
}

void nccl_group_free(tt_comm *g)
{
    nccl_world *w = g->world;
    for (int i = 0; g->to && i < g->n; i++)
        if (g->to[i])
            nccl_channel_free(g, g->to[i]);
    pthread_mutex_lock(&w->lock);
    for (tt_comm **at = &w->groups; *at; at = &(*at)->next)
        if (*at == g) {
            *at = g->next;
            break;
        }
    pthread_mutex_unlock(&w->lock);
    for (int i = 0; g->from && i < g->n; i++)
        nccl_link_end(w, g->from[i]);
    nccl_link_end(w, g->link);
    if (g->host)
        w->env.host->group_free(g->host);
    if (g->token)
        w->env.device->free(w->env.backend, g->token);
    if (g->scratch)
        w->env.device->free(w->env.backend, g->scratch);
    for (int i = 0; i < NCCL_WATCHED; i++) {
        w->env.device->event_free(w->env.backend, g->calls[i].begin);
        w->env.device->event_free(w->env.backend, g->calls[i].end);
    }
    w->env.device->event_free(w->env.backend, g->idle);
    free(g->ranks);
    free(g->parts);
    free(g->pieces);
    free(g->to);
    free(g->from);
    free(g);
}
