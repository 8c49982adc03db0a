/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_THREADS_IMPL_H
#define TT_THREADS_IMPL_H
#include "comm/dist.h"
#include <pthread.h>
#include <stdatomic.h>

/* Inside of rank-threads: one process's ranks, their groups, barriers and mailboxes. */

#define TT_CACHE_LINE 64

/* A barrier of one group. word = generation * 2 + aborted; it is what sleepers wait on. */
typedef struct tt_barrier {
    _Alignas(TT_CACHE_LINE) _Atomic uint32_t word;
    _Atomic int32_t arrived;
    _Atomic int32_t n_sleeping;
    _Alignas(TT_CACHE_LINE) int n;
    bool crowded;               /* more rank-threads than cores: give way at once */
    _Atomic int64_t spin_ns[2]; /* closing, opening waits */
    _Atomic uint32_t n_waits;
} tt_barrier;

typedef enum tt_met { TT_MET, TT_MET_ABORTED, TT_MET_TIMEOUT } tt_met;
void tt_barrier_init(tt_barrier *b, int n, bool crowded);
/* Meet all members. opening: an abort or the time limit (ns, 0 = none) ends the wait, then nobody
 * gets past it; else the wait is for members that are certain to come and nothing ends it. */
tt_met tt_barrier_meet(tt_barrier *b, bool opening, int64_t limit_ns);
void tt_barrier_abort(tt_barrier *b);

typedef struct tt_mailbox tt_mailbox; /* one direction of a pair */

typedef struct tt_call { /* what a member is doing, published before the opening barrier */
    const char *op;
    const void *send;
    void *recv;
    const int64_t *counts; /* all_to_all: what it sends */
    int64_t size;          /* elements all members must agree on */
} tt_call;

typedef struct tt_shared_group {
    struct tt_shared_group *next;
    uint64_t key;
    int n;
    int *ranks;
    tt_barrier barrier;
    tt_call *calls;               /* by member */
    _Atomic uint64_t *came;       /* by member: collectives it has begun */
    const void **pieces;          /* [member * n + i]: scratch of a member's reduction */
    _Atomic(tt_mailbox *) *boxes; /* [from * n + to], made at the first message */
} tt_shared_group;

struct tt_threads {
    pthread_mutex_t lock; /* groups, boxes being made, why */
    int world;
    _Atomic double timeout_s; /* longer until step 1 */
    _Atomic bool aborted;
    char why[256];
    tt_shared_group *groups;
};

struct tt_comm {
    tt_threads *t;
    tt_shared_group *g;
    int me;
    uint64_t sequence; /* of the collective it is in, counted on the group */
};

void tt_threads_abort(tt_threads *t, const char *why);
tt_status tt_threads_aborted(tt_threads *t, tt_error *err); /* the error of a rank that was woken */

/* mailbox.c */
tt_status tt_mailbox_send(tt_comm *c, int to, const void *buf, int64_t bytes, tt_error *err);
tt_status tt_mailbox_recv(tt_comm *c, int from, void *buf, int64_t bytes, tt_error *err);
void tt_mailbox_wake(tt_mailbox *b);
void tt_mailbox_free(tt_mailbox *b);

#endif
