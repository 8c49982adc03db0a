/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_ASYNC_H
#define TT_ASYNC_H
#include "comm/dist.h"

/* Calls of a communicator that are begun now and waited for later. A queue is one rank's end of a
 * group, with a communicator and a thread of its own that works off the calls in order: to begin
 * never blocks, and queues do not wait for each other (R12). All members begin the same calls in
 * the same order.
 *
 * A call that fails fails all later ones of the queue, with its error. */

typedef struct tt_async tt_async;
typedef uint64_t tt_ticket; /* of a call: 1, 2, 3, … on each queue */

/* A call, made by the queue's thread with the queue's communicator. What arg points to belongs to
 * the queue from begin to wait. */
typedef tt_status (*tt_async_fn)(void *arg, const tt_comm_vt *vt, tt_comm *comm, tt_error *err);

/* May groups be used by threads of their own, beside each other? */
bool tt_async_can(const tt_dist *d);
/* most: calls under way at a time. TT_EUNSUPPORTED where tt_async_can() says no.
 * [collective, setup] */
tt_status tt_async_new(tt_dist *d, const int *ranks, int n, int most, tt_async **out,
                       tt_error *err);
void tt_async_free(tt_async *a); /* waits for what was begun; NULL is fine */

tt_status tt_async_begin(tt_async *a, tt_async_fn fn, void *arg, tt_ticket *out, tt_error *err);
/* Until the call has ended; its status, or that of the one before it that failed. */
tt_status tt_async_wait(tt_async *a, tt_ticket t, tt_error *err);
bool tt_async_done(tt_async *a, tt_ticket t);

#endif
