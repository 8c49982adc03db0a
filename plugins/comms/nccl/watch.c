/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "nccl.h"
#include <stdio.h>
#include <time.h>

/* The thread that watches a rank's groups: the host may be waiting for a queue on which NCCL waits for a
 * rank that never comes. It also posts the first messages of channels. */

#define LOOK_NS INT64_C(100000000)
#define LOOK_SOON_NS INT64_C(200000) /* while a channel has something to post */

/* ---- calls ---- */

tt_status nccl_call_begins(tt_comm *g, const char *op, nccl_call **out, tt_error *err)
{
    nccl_world *w = g->world;
    nccl_call *c = &g->calls[g->n_calls % NCCL_WATCHED];
    *out = NULL;
    TT_TRY(nccl_check_queue(g, op, err));
    TT_TRY(nccl_world_status(w, err));
    g->n_calls++;
    pthread_mutex_lock(&w->lock);
    const bool busy = c->op && !NCCL_DEVICE(w, done, c->end);
    if (!busy)
        c->op = NULL;
    pthread_mutex_unlock(&w->lock);
    if (busy)
        return TT_OK; /* the earlier one is watched */
    TT_TRY(NCCL_DEVICE(w, record, c->begin, g->queue, err));
    *out = c;
    c->number = g->n_calls;
    c->since_ns = 0;
    return TT_OK;
}

tt_status nccl_call_ends(tt_comm *g, const char *op, nccl_call *c, tt_error *err)
{
    if (!c)
        return TT_OK;
    TT_TRY(NCCL_DEVICE(g->world, record, c->end, g->queue, err));
    pthread_mutex_lock(&g->world->lock);
    c->op = op;
    pthread_mutex_unlock(&g->world->lock);
    return TT_OK;
}

/* ---- what is wrong? With the world's lock held. ---- */

static bool call_is_overdue(const nccl_world *w, nccl_call *c)
{
    const double limit = atomic_load(&w->timeout_s);
    if (!c->op || !NCCL_DEVICE(w, done, c->begin))
        return false;
    if (NCCL_DEVICE(w, done, c->end)) {
        c->op = NULL;
        return false;
    }
    if (!c->since_ns)
        c->since_ns = nccl_now_ns();
    return limit > 0 && (double)(nccl_now_ns() - c->since_ns) > limit * 1e9;
}

static tt_status watch_calls(const nccl_world *w, tt_comm *g, tt_error *err)
{
    char ranks[200];
    for (int i = 0; i < NCCL_WATCHED; i++) {
        nccl_call *c = &g->calls[i];
        if (!call_is_overdue(w, c))
            continue;
        nccl_ranks_text(g, ranks, sizeof ranks);
        return TT_FAIL(
            err, TT_ETIMEOUT,
            "NCCL, %s number %llu of %s: rank %d waited %g s for the others (" TT_COMM_LIMIT_KEYS
            ")",
            c->op, (unsigned long long)c->number, ranks, g->ranks[g->me],
            atomic_load(&w->timeout_s));
    }
    return TT_OK;
}

static tt_status watch_link(const tt_comm *g, nccl_link *l, tt_error *err)
{
    ncclResult_t state = NCCL_SUCCESS;
    if (!l || pthread_mutex_trylock(&l->lock))
        return TT_OK;
    if (l->comm)
        (void)nccl.ncclCommGetAsyncError(l->comm, &state);
    pthread_mutex_unlock(&l->lock);
    if ((int)state == NCCL_SUCCESS || (int)state == NCCL_IN_PROGRESS)
        return TT_OK;
    return nccl_error(g, l, state, "a call", err);
}

static tt_status watch_group(const nccl_world *w, tt_comm *g, bool *soon, tt_error *err)
{
    TT_TRY(watch_calls(w, g, err));
    TT_TRY(watch_link(g, g->link, err));
    for (int i = 0; i < g->n; i++) {
        TT_TRY(watch_link(g, g->from[i], err));
        if (!g->to[i])
            continue;
        *soon |= nccl_channel_goes_on(g, g->to[i], err);
        if (err->code != TT_OK)
            return err->code;
        TT_TRY(watch_link(g, g->to[i]->link, err));
    }
    return TT_OK;
}

void *nccl_watch(void *world)
{
    nccl_world *w = world;
    tt_error entered = {0};
    bool soon = false;
    if (w->env.device->enter(w->env.backend, &entered) != TT_OK)
        nccl_world_abort(w, entered.code, entered.text);
    pthread_mutex_lock(&w->lock);
    while (!w->quit) {
        const int64_t at = nccl_now_ns() + (soon ? LOOK_SOON_NS : LOOK_NS);
        const struct timespec until = {(time_t)(at / 1000000000), (long)(at % 1000000000)};
        pthread_cond_timedwait(&w->changed, &w->lock, &until);
        tt_error err = {0};
        tt_status s = TT_OK;
        soon = false;
        const bool works = !w->quit && !atomic_load(&w->aborted);
        for (tt_comm *g = w->groups; works && s == TT_OK && g; g = g->next)
            s = watch_group(w, g, &soon, &err);
        if (!works)
            continue;
        pthread_mutex_unlock(&w->lock); /* stopped may take other locks */
        if (s == TT_OK && w->env.stopped)
            s = w->env.stopped(w->env.user, &err);
        if (s != TT_OK)
            nccl_world_abort(w, s, err.text);
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}
