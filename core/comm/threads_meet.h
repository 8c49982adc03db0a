/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_THREADS_MEET_H
#define TT_THREADS_MEET_H
#include "comm/dist.h"
#include <pthread.h>

/* How rank-threads meet on the host, for communicators that are built on groups of theirs. A
 * collective: each member publishes its call and waits for the others' (tt_threads_meet), reads what
 * they published, and waits until all have read (tt_threads_meet_again, as often as it needs). */

#define TT_MEET_EVENTS 3

typedef struct tt_call { /* what a member is doing */
    const char *op;
    const void *send;
    void *recv;
    const int64_t *counts; /* all_to_all: the elements it sends, by receiver */
    int64_t size;          /* elements; must be equal on all members */
    uint64_t signature;    /* of everything else that must be equal on all members */
    tt_device_event *events[TT_MEET_EVENTS]; /* of a device communicator */
} tt_call;

bool tt_dist_is_threads(const tt_dist *d); /* its ranks are threads of this process */
/* c: a group of tt_dist.vt. After TT_OK all members have met: each of them calls
 * tt_threads_meet_again() at least once, then tt_threads_leave_call(). */
tt_status tt_threads_meet(tt_comm *c, const tt_call *call, tt_error *err);
void tt_threads_meet_again(tt_comm *c); /* ends for certain: the others are on their way */
const tt_call *tt_threads_call_of(const tt_comm *c, int member);
/* This member has used what the others published; tt_threads_await_left waits until all others have
 * left the calls that this member has left. */
void tt_threads_leave_call(tt_comm *c);
void tt_threads_await_left(tt_comm *c);
/* Handles that this rank has of the group: groups with equal ranks and keys are one. */
int tt_threads_handles(tt_comm *c);
tt_status tt_threads_poll(tt_comm *c, tt_error *err); /* TT_ECOMM: the world was aborted */

/* ---- messages from one member to another: two places, used in turn ---- */
typedef struct tt_message {
    int64_t bytes, cap;
    char *data;
    /* Of a device communicator, where data is the sender's device memory: the sender's event, that it
     * is filled, and the receiver's, that it has been read. */
    tt_device_event *filled, *taken;
} tt_message;
typedef struct tt_mailbox tt_mailbox;
#define TT_MAILBOX_PLACES 2

/* NULL: no memory. */
tt_mailbox *tt_mailbox_of(tt_comm *c, int from, int to);
/* Waits until a place is free (to send) or filled (to receive). After TT_OK the mailbox is locked
 * until tt_mailbox_close; done: the message was sent, or received. */
tt_status tt_mailbox_open(tt_comm *c, tt_mailbox *b, bool sending, int peer, tt_message **out,
                          tt_error *err);
void tt_mailbox_close(tt_mailbox *b, bool sending, bool done);
/* A member leaves; the sender first waits until all messages are received, the receiver has left, or the
 * world was aborted. The mailbox is locked until tt_mailbox_unlock. */
tt_message *tt_mailbox_leave(tt_comm *c, tt_mailbox *b, bool sender);
/* The mailbox if it was ever used, or NULL. */
tt_mailbox *tt_mailbox_find(const tt_comm *c, int from, int to);
void tt_mailbox_unlock(tt_mailbox *b);

#endif
