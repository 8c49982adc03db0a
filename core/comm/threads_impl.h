/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_THREADS_IMPL_H
#define TT_THREADS_IMPL_H
#include "base/spin.h"
#include "comm/threads_meet.h"
#include <stdatomic.h>

/* Ranks as threads of one process: their groups, barriers and mailboxes. */

#define TT_CACHE_LINE 64

/* A barrier of one group. word = generation * 2 + aborted; sleeping threads wait for it to change.
 */
typedef struct tt_barrier {
    _Alignas(TT_CACHE_LINE) _Atomic uint32_t word;
    _Atomic int32_t arrived;
    _Atomic int32_t n_sleeping;
    _Alignas(TT_CACHE_LINE) int n;
    bool crowded; /* more rank-threads than cores: yield the core at once */
    tt_spin spin; /* spin times of closing [0] and opening [1] waits */
} tt_barrier;

typedef enum tt_barrier_result {
    TT_BARRIER_PASSED,
    TT_BARRIER_ABORTED,
    TT_BARRIER_TIMEOUT
} tt_barrier_result;
void tt_barrier_init(tt_barrier *b, int n, bool crowded);
/* Waits until all members have arrived. opening: an abort or the deadline (tt_clock_now, 0 = none)
 * ends the wait, for all members, and then no member passes. A closing wait is for members that are
 * certain to arrive: nothing ends it early. */
tt_barrier_result tt_barrier_wait(tt_barrier *b, bool opening, int64_t until);
void tt_barrier_abort(tt_barrier *b);

typedef struct tt_shared_group {
    struct tt_shared_group *next;
    uint64_t key;
    int n;
    int *ranks;
    tt_barrier barrier;
    tt_call *calls;               /* by member */
    _Atomic uint64_t *n_begun;    /* by member: collectives it has begun */
    _Atomic uint64_t *n_left;     /* by member: collectives that it has left (threads_meet.h) */
    int *n_handles;               /* by member, which alone uses it */
    const void **pieces;          /* [member * n + i]: scratch of a member's reduction */
    _Atomic(tt_mailbox *) *boxes; /* [from * n + to], made at the first message */
} tt_shared_group;

struct tt_threads {
    pthread_mutex_t lock; /* protects groups, why, and the making of boxes */
    int world;
    _Atomic double timeout_s; /* longer until step 1 */
    _Atomic bool aborted;
    char why[256];
    tt_shared_group *groups;
    struct tt_lending *lending; /* NULL: the ranks lend nothing */
};

struct tt_comm {
    tt_threads *t;
    tt_shared_group *g;
    int me;
    uint64_t sequence; /* number of the collective it is in, counted per group */
};

tt_status tt_threads_aborted(tt_threads *t,
                             tt_error *err); /* the error of a rank woken by an abort */

/* mailbox.c */
tt_status tt_mailbox_send(tt_comm *c, int to, const void *buf, int64_t bytes, tt_error *err);
tt_status tt_mailbox_recv(tt_comm *c, int from, void *buf, int64_t bytes, tt_error *err);
void tt_mailbox_wake(tt_mailbox *b);
void tt_mailbox_free(tt_mailbox *b);

#endif
