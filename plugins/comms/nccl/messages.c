/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "nccl.h"
#include <stdlib.h>
#include <time.h>

/* Messages: each sender and receiver have a communicator of NCCL of their own, because in one
 * communicator a send would wait for the sends of others. send copies to one of two places and returns;
 * the place is sent on the channel's own queue. recv puts NCCL's on the group's queue. The members join
 * the communicator at their first message, whose sender tells the receiver its id over the host. */

static tt_status check_peer(const tt_comm *g, int peer, const char *op, tt_error *err)
{
    TT_TRY(nccl_check_queue(g, op, err));
    if (peer >= 0 && peer < g->n && peer != g->me)
        return nccl_world_status(g->world, err);
    return TT_FAIL(err, TT_EINVAL, "nccl: %s: member %d of %d has no other member %d", op, g->me,
                   g->n, peer);
}

/* ---- a channel's progress, in the watching thread ---- */

static ncclResult_t post(nccl_channel *c, const nccl_place *p)
{
    ncclResult_t r = NCCL_SUCCESS;
    pthread_mutex_lock(&c->link->lock);
    if (c->link->comm && p->bytes)
        r = nccl.ncclSend(p->data, (size_t)p->bytes, (ncclDataType_t)NCCL_UINT8, 1, c->link->comm,
                          (cudaStream_t)(void *)c->queue);
    pthread_mutex_unlock(&c->link->lock);
    return r;
}

static ncclResult_t channel_state(nccl_channel *c)
{
    ncclResult_t r = NCCL_IN_PROGRESS;
    pthread_mutex_lock(&c->link->lock);
    if (c->link->comm && (int)nccl.ncclCommGetAsyncError(c->link->comm, &r) != NCCL_SUCCESS)
        r = NCCL_IN_PROGRESS;
    pthread_mutex_unlock(&c->link->lock);
    return r;
}

/* r: of the channel's last function. */
static tt_status channel_step(tt_comm *g, nccl_channel *c, ncclResult_t r, tt_error *err)
{
    nccl_world *w = g->world;
    nccl_place *p = &c->places[c->n_posted % NCCL_PLACES];
    if ((int)r == NCCL_IN_PROGRESS)
        return TT_OK;
    if ((int)r != NCCL_SUCCESS)
        return nccl_error(g, c->link, r, "send", err);
    if (c->state == CHANNEL_POSTS) {
        TT_TRY(NCCL_DEVICE(w, record, p->sent, c->queue, err));
        c->n_posted++;
        pthread_cond_broadcast(&w->changed);
    }
    c->state = CHANNEL_READY;
    return TT_OK;
}

bool nccl_channel_goes_on(tt_comm *g, nccl_channel *c, tt_error *err)
{
    nccl_world *w = g->world;
    nccl_place *p;
    if (c->state == CHANNEL_NEW && c->n_filled) {
        c->state = CHANNEL_JOINS;
        (void)channel_step(g, c, nccl_link_join(c->link, &c->id, 2, 0), err);
    } else if (c->state == CHANNEL_JOINS || c->state == CHANNEL_POSTS) {
        (void)channel_step(g, c, channel_state(c), err);
    }
    while (err->code == TT_OK && c->state == CHANNEL_READY && c->n_posted < c->n_filled) {
        p = &c->places[c->n_posted % NCCL_PLACES];
        c->state = CHANNEL_POSTS;
        if (NCCL_DEVICE(w, wait, c->queue, p->filled, err) == TT_OK)
            (void)channel_step(g, c, post(c, p), err);
    }
    return err->code == TT_OK && c->n_posted < c->n_filled;
}

/* ---- send ---- */

static tt_status channel_open(tt_comm *g, int to, tt_error *err)
{
    nccl_world *w = g->world;
    nccl_channel *c = calloc(1, sizeof *c);
    ncclResult_t r = NCCL_SUCCESS;
    if (!c)
        return TT_FAIL(err, TT_ENOMEM, "nccl: no memory for messages");
    tt_status s = nccl_link_new(&c->link, err);
    if (s == TT_OK)
        s = NCCL_DEVICE(w, queue_new, 1, &c->queue, err);
    for (int i = 0; s == TT_OK && i < NCCL_PLACES; i++) {
        s = NCCL_DEVICE(w, event_new, 0, &c->places[i].filled, err);
        if (s == TT_OK)
            s = NCCL_DEVICE(w, event_new, 0, &c->places[i].sent, err);
    }
    if (s == TT_OK && (int)(r = nccl.ncclGetUniqueId(&c->id)) != NCCL_SUCCESS)
        s = nccl_error(g, NULL, r, "ncclGetUniqueId", err);
    if (s == TT_OK)
        s = w->env.host->send(g->host, to, &c->id, sizeof c->id, err);
    if (s != TT_OK) {
        nccl_channel_free(g, c);
        return s;
    }
    pthread_mutex_lock(&w->lock);
    g->to[to] = c;
    pthread_mutex_unlock(&w->lock);
    return TT_OK;
}

/* Waits until fewer than `most` messages are not posted yet. */
static tt_status await_posted(tt_comm *g, const nccl_channel *c, uint64_t most, int to,
                              tt_error *err)
{
    nccl_world *w = g->world;
    const int64_t begun = nccl_now_ns();
    tt_status s = TT_OK;
    pthread_mutex_lock(&w->lock);
    while (c->n_filled - c->n_posted >= most && !atomic_load(&w->aborted) && s == TT_OK) {
        const int64_t at = nccl_now_ns() + 10000000;
        const struct timespec until = {(time_t)(at / 1000000000), (long)(at % 1000000000)};
        const double limit = atomic_load(&w->timeout_s);
        pthread_cond_timedwait(&w->changed, &w->lock, &until);
        if (limit > 0 && (double)(nccl_now_ns() - begun) > limit * 1e9)
            s = TT_FAIL(
                err, TT_ETIMEOUT,
                "NCCL, send number %llu from rank %d to rank %d waited %g s (" TT_COMM_LIMIT_KEYS
                ")",
                (unsigned long long)c->n_posted + 1, g->ranks[g->me], g->ranks[to], limit);
    }
    pthread_mutex_unlock(&w->lock);
    if (s != TT_OK)
        nccl_world_abort(w, s, err ? err->text : "a send waited too long");
    return s == TT_OK ? nccl_world_status(w, err) : s;
}

static tt_status place_fill(tt_comm *g, nccl_place *p, const void *buf, int64_t bytes,
                            tt_error *err)
{
    nccl_world *w = g->world;
    void *data = NULL;
    if (p->cap < bytes && p->data) {
        TT_TRY(NCCL_DEVICE(w, sync, p->sent, err));
        w->env.device->free(w->env.backend, p->data);
        p->data = NULL;
        p->cap = 0;
    }
    if (p->cap < bytes) {
        TT_TRY(NCCL_DEVICE(w, alloc, (size_t)bytes, &data, err));
        p->data = data;
        p->cap = bytes;
    }
    if (p->used)
        TT_TRY(NCCL_DEVICE(w, wait, g->queue, p->sent, err));
    if (bytes)
        TT_TRY(NCCL_DEVICE(w, copy, g->queue, p->data, buf, (size_t)bytes, err));
    p->bytes = bytes;
    p->used = true;
    return NCCL_DEVICE(w, record, p->filled, g->queue, err);
}

tt_status nccl_send(tt_comm *g, int to, const void *buf, int64_t bytes, tt_error *err)
{
    nccl_world *w = g->world;
    TT_TRY(check_peer(g, to, "send", err));
    if (!g->to[to])
        TT_TRY(channel_open(g, to, err));
    nccl_channel *c = g->to[to];
    TT_TRY(await_posted(g, c, NCCL_PLACES, to, err));
    TT_TRY(place_fill(g, &c->places[c->n_filled % NCCL_PLACES], buf, bytes, err));
    tt_error e = {0};
    pthread_mutex_lock(&w->lock);
    c->n_filled++;
    if (c->state == CHANNEL_READY && c->n_posted) /* the receiver is there: at once */
        (void)nccl_channel_goes_on(g, c, &e);
    if (c->n_posted < c->n_filled)
        pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    if (e.code != TT_OK && err)
        *err = e;
    return e.code;
}

void nccl_channel_free(tt_comm *g, nccl_channel *c)
{
    nccl_world *w = g->world;
    tt_error ignored = {0};
    if (c->n_filled && !atomic_load(&w->aborted) &&
        await_posted(g, c, 1, g->me, &ignored) == TT_OK && c->places[0].used)
        for (int i = 0; i < NCCL_PLACES && c->places[i].used; i++)
            (void)NCCL_DEVICE(w, sync, c->places[i].sent, &ignored);
    pthread_mutex_lock(&w->lock);
    for (int i = 0; i < g->n; i++)
        if (g->to[i] == c)
            g->to[i] = NULL;
    pthread_mutex_unlock(&w->lock);
    for (int i = 0; i < NCCL_PLACES; i++) {
        if (c->places[i].data)
            w->env.device->free(w->env.backend, c->places[i].data);
        w->env.device->event_free(w->env.backend, c->places[i].filled);
        w->env.device->event_free(w->env.backend, c->places[i].sent);
    }
    if (c->queue)
        w->env.device->queue_free(w->env.backend, c->queue);
    nccl_link_end(w, c->link);
    free(c);
}

/* ---- recv ---- */

static tt_status join_sender(tt_comm *g, int from, tt_error *err)
{
    nccl_world *w = g->world;
    nccl_link *l = NULL;
    ncclUniqueId id;
    TT_TRY(w->env.host->recv(g->host, from, &id, sizeof id, err));
    TT_TRY(nccl_link_new(&l, err));
    pthread_mutex_lock(&w->lock);
    g->from[from] = l;
    pthread_mutex_unlock(&w->lock);
    TT_TRY(nccl_settle(g, l, nccl_link_join(l, &id, 2, 1), "ncclCommInitRankConfig for messages",
                       err));
    nccl_link_registers(w, l);
    return TT_OK;
}

static tt_status post_recv(tt_comm *g, nccl_link *l, void *buf, int64_t bytes, tt_error *err)
{
    ncclResult_t r = NCCL_SUCCESS;
    pthread_mutex_lock(&l->lock);
    const bool works = l->comm != NULL;
    if (works && bytes)
        r = nccl.ncclRecv(buf, (size_t)bytes, (ncclDataType_t)NCCL_UINT8, 0, l->comm,
                          (cudaStream_t)(void *)g->queue);
    pthread_mutex_unlock(&l->lock);
    if (!works)
        return nccl_world_status(g->world, err);
    return nccl_settle(g, l, r, "recv", err);
}

tt_status nccl_recv(tt_comm *g, int from, void *buf, int64_t bytes, tt_error *err)
{
    nccl_call *watched;
    TT_TRY(check_peer(g, from, "recv", err));
    if (!g->from[from])
        TT_TRY(join_sender(g, from, err));
    TT_TRY(nccl_call_begins(g, "recv", &watched, err));
    TT_TRY(post_recv(g, g->from[from], buf, bytes, err));
    return nccl_call_ends(g, "recv", watched, err);
}
