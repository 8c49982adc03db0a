/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/pool.h"
#include "comm/threads_impl.h"
#include <stdlib.h>
#include <string.h>

/* Messages between two members of a group. A message is copied when it is sent and again when it is
 * received; at most two per direction are in flight. Buffers are reused, so steady traffic
 * allocates nothing. */

#define MAX_IN_FLIGHT TT_MAILBOX_PLACES

struct tt_mailbox {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    tt_message ring[MAX_IN_FLIGHT];
    uint64_t n_sent, n_received; /* completed messages */
    bool left[2];                /* the receiver, the sender; of device communicators */
};

static tt_mailbox *mailbox_new(void)
{
    tt_mailbox *b = calloc(1, sizeof *b);
    if (!b)
        return NULL;
    pthread_mutex_init(&b->lock, NULL);
    tt_clock_cond_init(&b->changed);
    return b;
}

void tt_mailbox_free(tt_mailbox *b)
{
    if (!b)
        return;
    for (int i = 0; i < MAX_IN_FLIGHT; i++)
        free(b->ring[i].data);
    pthread_mutex_destroy(&b->lock);
    pthread_cond_destroy(&b->changed);
    free(b);
}

void tt_mailbox_wake(tt_mailbox *b)
{
    pthread_mutex_lock(&b->lock);
    tt_clock_wake_cond(&b->changed);
    pthread_mutex_unlock(&b->lock);
}

tt_mailbox *tt_mailbox_of(tt_comm *c, int from, int to)
{
    _Atomic(tt_mailbox *) *at = &c->g->boxes[from * c->g->n + to];
    tt_mailbox *b = atomic_load(at);
    if (b)
        return b;
    pthread_mutex_lock(&c->t->lock);
    b = atomic_load(at);
    if (!b) {
        b = mailbox_new();
        atomic_store(at, b);
    }
    pthread_mutex_unlock(&c->t->lock);
    return b;
}

static bool must_wait(const tt_mailbox *b, bool sending)
{
    return sending ? b->n_sent - b->n_received >= MAX_IN_FLIGHT : b->n_sent == b->n_received;
}

/* Waits, with the lock held, until fewer than two messages are in flight (to send) or one has
 * arrived (to receive). */
static tt_status await(tt_comm *c, tt_mailbox *b, bool sending, int peer, tt_error *err)
{
    const int64_t until = tt_clock_deadline(c->t->timeout_s);
    while (must_wait(b, sending)) {
        if (atomic_load(&c->t->aborted))
            return TT_ECOMM;
        tt_pool_lend();
        const bool in_time = tt_clock_wait_cond(&b->changed, &b->lock, until);
        tt_pool_take_back();
        if (in_time || !must_wait(b, sending))
            continue;
        return TT_FAIL(err, TT_ETIMEOUT,
                       "%s rank %d, message number %llu, waited %g s (" TT_COMM_LIMIT_KEYS ")",
                       sending ? "send to" : "receive from", c->g->ranks[peer],
                       (unsigned long long)(sending ? b->n_sent : b->n_received) + 1,
                       c->t->timeout_s);
    }
    return TT_OK;
}

static tt_status woken(tt_comm *c, tt_status s, tt_error *err)
{
    return s == TT_ECOMM ? tt_threads_aborted(c->t, err) : s;
}

static tt_status message_fill(tt_message *m, const void *buf, int64_t bytes, tt_error *err)
{
    if (m->cap < bytes) {
        free(m->data);
        m->data = malloc((size_t)bytes);
        m->cap = m->data ? bytes : 0;
        if (!m->data)
            return TT_FAIL(err, TT_ENOMEM, "no memory to send %lld bytes", (long long)bytes);
    }
    m->bytes = bytes;
    if (bytes)
        memcpy(m->data, buf, (size_t)bytes);
    return TT_OK;
}

/* A message is filled and read without the lock: n_sent and n_received say which side owns it. */
tt_status tt_mailbox_send(tt_comm *c, int to, const void *buf, int64_t bytes, tt_error *err)
{
    if (atomic_load(&c->t->aborted))
        return tt_threads_aborted(c->t, err);
    tt_mailbox *b = tt_mailbox_of(c, c->me, to);
    if (!b)
        return TT_FAIL(err, TT_ENOMEM, "no memory for a mailbox");
    pthread_mutex_lock(&b->lock);
    const tt_status s = await(c, b, true, to, err);
    tt_message *m = &b->ring[b->n_sent % MAX_IN_FLIGHT];
    pthread_mutex_unlock(&b->lock);
    if (s != TT_OK)
        return woken(c, s, err);
    TT_TRY(message_fill(m, buf, bytes, err));
    pthread_mutex_lock(&b->lock);
    b->n_sent++;
    tt_clock_wake_cond(&b->changed);
    pthread_mutex_unlock(&b->lock);
    return TT_OK;
}

tt_status tt_mailbox_recv(tt_comm *c, int from, void *buf, int64_t bytes, tt_error *err)
{
    tt_mailbox *b = tt_mailbox_of(c, from, c->me);
    if (!b)
        return TT_FAIL(err, TT_ENOMEM, "no memory for a mailbox");
    pthread_mutex_lock(&b->lock);
    const tt_status s = atomic_load(&c->t->aborted) ? TT_ECOMM : await(c, b, false, from, err);
    const tt_message *m = &b->ring[b->n_received % MAX_IN_FLIGHT];
    pthread_mutex_unlock(&b->lock);
    if (s != TT_OK)
        return woken(c, s, err);
    if (m->bytes != bytes)
        return TT_FAIL(err, TT_ECOMM, "rank %d sent %lld bytes where %lld were expected",
                       c->g->ranks[from], (long long)m->bytes, (long long)bytes);
    if (bytes)
        memcpy(buf, m->data, (size_t)bytes);
    pthread_mutex_lock(&b->lock);
    b->n_received++;
    tt_clock_wake_cond(&b->changed);
    pthread_mutex_unlock(&b->lock);
    return TT_OK;
}

/* ---- for communicators that are built on this one: threads_meet.h ---- */

tt_status tt_mailbox_open(tt_comm *c, tt_mailbox *b, bool sending, int peer, tt_message **out,
                          tt_error *err)
{
    pthread_mutex_lock(&b->lock);
    tt_status s = atomic_load(&c->t->aborted) ? TT_ECOMM : await(c, b, sending, peer, err);
    if (s == TT_OK) {
        b->left[sending] = false;
        *out = &b->ring[(sending ? b->n_sent : b->n_received) % MAX_IN_FLIGHT];
        return TT_OK;
    }
    pthread_mutex_unlock(&b->lock);
    return woken(c, s, err);
}

void tt_mailbox_close(tt_mailbox *b, bool sending, bool done)
{
    if (done)
        sending ? b->n_sent++ : b->n_received++;
    tt_clock_wake_cond(&b->changed);
    pthread_mutex_unlock(&b->lock);
}

tt_mailbox *tt_mailbox_find(const tt_comm *c, int from, int to)
{
    return atomic_load(&c->g->boxes[from * c->g->n + to]);
}

tt_message *tt_mailbox_leave(tt_comm *c, tt_mailbox *b, bool sender)
{
    const int64_t until = tt_clock_deadline(c->t->timeout_s);
    pthread_mutex_lock(&b->lock);
    while (sender && b->n_sent != b->n_received && !b->left[0] && !atomic_load(&c->t->aborted))
        if (!tt_clock_wait_cond(&b->changed, &b->lock, until))
            break;
    b->left[sender] = true;
    tt_clock_wake_cond(&b->changed);
    return b->ring;
}

void tt_mailbox_unlock(tt_mailbox *b)
{
    pthread_mutex_unlock(&b->lock);
}
