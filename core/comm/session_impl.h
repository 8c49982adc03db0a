/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SESSION_IMPL_H
#define TT_SESSION_IMPL_H
#include "base/spin.h"
#include "comm/session.h"
#include <poll.h>
#include <pthread.h>

/* The memory and the threads of a session. */

#define TT_SESSION_LINE 64
#define TT_SESSION_TEXT 1024

typedef struct tt_session_rank {
    _Alignas(TT_SESSION_LINE) _Atomic int32_t left;
    int32_t rank;           /* of the world */
    _Atomic int32_t agreed; /* 1 + status, negated, of tt_session_agree; 0: not yet */
    _Atomic uint64_t doing; /* number << 8 | tt_doing; 0: nothing yet */
} tt_session_rank;

/* If the writer is killed halfway, the note stays CLAIMED for ever: readers wait only a moment. */
typedef enum tt_session_note { TT_NOTE_NONE, TT_NOTE_CLAIMED, TT_NOTE_WRITTEN } tt_session_note;

typedef struct tt_session_memory {
    _Atomic uint64_t used, root, log;
    _Atomic uint32_t lock;
    _Atomic uint32_t stopped, first_failure; /* tt_session_note */
    int32_t speaker, status; /* of the first failure: the local rank that prints it, its status */
    int32_t waited;          /* 1 + local rank whose timeout stopped the run; 0: no timeout did */
    char why[TT_SESSION_TEXT], text[TT_SESSION_TEXT];
    tt_session_rank ranks[];
} tt_session_memory;

struct tt_session {
    tt_session_memory *m;
    uint64_t bytes;
    tt_launch launch;
    _Atomic double timeout_s;
    bool crowded;
    tt_spin spin; /* spin times of waits that end soon [1], and of others [0] */
    void (*overdue)(tt_session *s);
    void (*lost)(const char *text);
    int (*stop)(void);
    pthread_mutex_t on_lost_lock;
    void (*on_lost)(void *arg, tt_error *why);
    void *on_lost_arg;
    int *socks;            /* by local rank; ranks other than local rank 0 use only [0] */
    struct pollfd *polled; /* [local_world + 1]: the watching thread's */
    atomic_bool quits;     /* the watching thread ends */
    int memfd, wake;
    pthread_t watch;
    bool watching;
};

/* rendezvous.c: the sockets and the memory. */
tt_status tt_session_rendezvous(tt_session *s, const tt_session_opts *o, tt_error *err);
/* For a rank that waits for others before step 1. TT_ESIGNAL: a stop signal was received, and the
 * other ranks have had time to arrive: when all ranks receive a signal, they first complete the
 * rendezvous and then stop together. *asked_ns is 0 before the first call. */
tt_status tt_session_asked_to_stop(int (*stop)(void), int64_t *asked_ns, tt_error *err);
/* watch.c */
void *tt_session_watch(void *session);

#endif
