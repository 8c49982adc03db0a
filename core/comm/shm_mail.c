/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/shm_impl.h"
#include <string.h>

/* Messages between two processes. A message is copied into shared memory when it is sent and out of
 * it when it is received; at most two per direction are in flight. Buffers are kept and only grow.
 */

static tt_shm_box *box_of(const tt_comm *c, int from, int to)
{
    return &c->boxes[(size_t)from * (size_t)c->n + (size_t)to];
}

static tt_status wait_for(tt_comm *c, tt_word *w, uint32_t want, bool sending, int peer,
                          tt_error *err)
{
    const double limit = tt_session_timeout(c->session);
    const int64_t until = tt_session_deadline(c->session);
    const tt_status s = tt_session_await(c->session, w, want, false, until);
    if (s == TT_ECOMM)
        return tt_session_stopped(c->session, err);
    if (s == TT_ETIMEOUT)
        return TT_FAIL(err, s,
                       "%s rank %d, message number %llu, waited %g s (" TT_COMM_LIMIT_KEYS ")",
                       sending ? "send to" : "receive from", c->ranks[peer],
                       (unsigned long long)want + (sending ? TT_SHM_IN_FLIGHT : 0), limit);
    return s;
}

tt_status tt_shm_send(tt_comm *c, int to, const void *buf, int64_t bytes, tt_error *err)
{
    tt_shm_box *b = box_of(c, c->me, to);
    const uint32_t n = atomic_load(&b->sent.value);
    TT_TRY(tt_session_stopped(c->session, err));
    tt_session_doing(c->session, TT_DOING_SEND, (uint64_t)n + 1);
    TT_TRY(wait_for(c, &b->received, n + 1 - TT_SHM_IN_FLIGHT, true, to, err));
    tt_shm_message *m = &b->ring[n % TT_SHM_IN_FLIGHT];
    if (m->capacity < bytes) {
        m->at = tt_session_alloc(c->session, (uint64_t)bytes);
        m->capacity = m->at ? bytes : 0;
        if (!m->at)
            return TT_FAIL(err, TT_ENOMEM, "no memory to send %lld bytes", (long long)bytes);
    }
    m->bytes = bytes;
    if (bytes)
        memcpy(tt_session_at(c->session, m->at), buf, (size_t)bytes);
    tt_word_set(&b->sent, n + 1);
    return TT_OK;
}

tt_status tt_shm_recv(tt_comm *c, int from, void *buf, int64_t bytes, tt_error *err)
{
    tt_shm_box *b = box_of(c, from, c->me);
    const uint32_t n = atomic_load(&b->received.value);
    TT_TRY(tt_session_stopped(c->session, err));
    tt_session_doing(c->session, TT_DOING_RECEIVE, (uint64_t)n + 1);
    TT_TRY(wait_for(c, &b->sent, n + 1, false, from, err));
    const tt_shm_message *m = &b->ring[n % TT_SHM_IN_FLIGHT];
    if (m->bytes != bytes)
        return TT_FAIL(err, TT_ECOMM, "rank %d sent %lld bytes where %lld were expected",
                       c->ranks[from], (long long)m->bytes, (long long)bytes);
    if (bytes)
        memcpy(buf, tt_session_at(c->session, m->at), (size_t)bytes);
    tt_word_set(&b->received, n + 1);
    return TT_OK;
}
