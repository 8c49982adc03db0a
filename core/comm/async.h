/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_ASYNC_H
#define TT_ASYNC_H
#include "comm/dist.h"

/* Asynchronous collectives: a call is begun now and waited for later. A queue is one rank's handle
 * on a group. It has its own communicator and its own thread, which makes the calls in order:
 * beginning a call never blocks, and queues do not wait for each other (R12). All members of the
 * group begin the same calls in the same order.
 *
 * When a call fails, every later call of the queue fails with the same error. */

typedef struct tt_async tt_async;
typedef uint64_t tt_ticket; /* identifies a call: 1, 2, 3, … on each queue */

/* A call, made by the queue's thread with the queue's communicator. The queue owns what arg points
 * to from tt_async_begin() to tt_async_wait(). */
typedef tt_status (*tt_async_fn)(void *arg, const tt_comm_vt *vt, tt_comm *comm, tt_error *err);

/* True if each group of this communicator may be used by its own thread, concurrently. */
bool tt_async_can(const tt_dist *d);
/* most: how many calls may be in flight at a time. TT_EUNSUPPORTED if tt_async_can() is false.
 * [collective, setup] */
tt_status tt_async_new(tt_dist *d, const int *ranks, int n, int most, tt_async **out,
                       tt_error *err);
int tt_async_most(const tt_async *a);
void tt_async_free(tt_async *a); /* waits for the calls in flight; NULL is allowed */

tt_status tt_async_begin(tt_async *a, tt_async_fn fn, void *arg, tt_ticket *out, tt_error *err);
/* Waits until the call has ended. Returns its status, or that of an earlier call that failed. */
tt_status tt_async_wait(tt_async *a, tt_ticket t, tt_error *err);
bool tt_async_done(tt_async *a, tt_ticket t);

#endif
