/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SESSION_IMPL_H
#define TT_SESSION_IMPL_H
#include "comm/session.h"
#include <poll.h>
#include <pthread.h>

/* Inside of a session. */

#define TT_SESSION_LINE 64
#define TT_SESSION_TEXT 1024

typedef struct tt_session_rank {
    _Alignas(TT_SESSION_LINE) _Atomic int32_t left;
    int32_t rank;           /* of the world */
    _Atomic int32_t agreed; /* 1 + status, negated, of tt_session_agree; 0: not yet */
    _Atomic uint64_t doing; /* number << 8 | tt_doing; 0: nothing yet */
} tt_session_rank;

/* What a writer that is killed halfway leaves behind is CLAIMED for ever: readers give it a moment.
 */
typedef enum tt_session_note { TT_NOTE_NONE, TT_NOTE_CLAIMED, TT_NOTE_WRITTEN } tt_session_note;

typedef struct tt_session_memory {
    _Atomic uint64_t used, root;
    _Atomic uint32_t lock;
    _Atomic uint32_t stopped, verdict; /* tt_session_note */
    int32_t speaker, status;           /* the verdict's: local rank, tt_status */
    int32_t waited;                    /* 1 + local rank of whose wait stopped the run; 0: none's */
    char why[TT_SESSION_TEXT], text[TT_SESSION_TEXT];
    tt_session_rank ranks[];
} tt_session_memory;

struct tt_session {
    tt_session_memory *m;
    uint64_t bytes;
    tt_launch launch;
    _Atomic double timeout_s;
    bool crowded;
    _Atomic int64_t spin_ns[2]; /* of waits for what comes soon [1], and others */
    _Atomic uint32_t n_waits;
    void (*overdue)(tt_session *s);
    int (*stop)(void);
    int *socks;            /* by local rank; of others than the first only [0] is used */
    struct pollfd *polled; /* [local_world + 1]: the watching thread's */
    int memfd, wake;
    pthread_t watch;
    bool watching;
};

/* meet.c: the sockets and the memory. */
tt_status tt_session_meet(tt_session *s, const tt_session_opts *o, tt_error *err);
/* Of a rank that waits for others before step 1. TT_ESIGNAL: a signal asks to stop, and they have
 * had the time to come: ranks that are all sent one signal meet first, and then stop as one.
 * *asked_ns: 0 before the first call. */
tt_status tt_session_asked_to_stop(int (*stop)(void), int64_t *asked_ns, tt_error *err);
/* watch.c */
void *tt_session_watch(void *session);

#endif
