/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_ASYNC_H
#define TT_ASYNC_H
#include "dist/dist.h"

/* Calls of a communicator that are begun now and waited for later. A queue is one rank's end of a
 * group, with a communicator and a thread of its own that works off the calls in order: to begin
 * never blocks, and queues do not wait for each other (R12). All members begin the same calls in
 * the same order. Buffers and counts belong to the queue from begin to wait.
 *
 * A call that fails fails all later ones of the queue, with its error. */

typedef struct tt_async tt_async;
typedef uint64_t tt_ticket; /* of a call: 1, 2, 3, … on each queue */

/* most: calls under way at a time. TT_EUNSUPPORTED where the group's communicator may not be used
 * by a thread of its own (MPI). [collective, setup] */
tt_status tt_async_new(tt_dist *d, const int *ranks, int n, int most, tt_async **out,
                       tt_error *err);
void tt_async_free(tt_async *a); /* waits for what was begun; NULL is fine */

tt_status tt_all_gather_begin(tt_async *a, const void *send, void *recv, const int64_t *counts,
                              tt_dtype dtype, tt_ticket *out, tt_error *err);
tt_status tt_reduce_scatter_begin(tt_async *a, const void *send, void *recv, const int64_t *counts,
                                  tt_dtype dtype, tt_reduce op, tt_ticket *out, tt_error *err);
tt_status tt_all_reduce_begin(tt_async *a, void *buf, int64_t count, tt_dtype dtype, tt_reduce op,
                              tt_ticket *out, tt_error *err);
tt_status tt_send_begin(tt_async *a, int to_member, const void *buf, int64_t bytes, tt_ticket *out,
                        tt_error *err);
tt_status tt_recv_begin(tt_async *a, int from_member, void *buf, int64_t bytes, tt_ticket *out,
                        tt_error *err);
/* Until the call has ended; its status, or that of the one before it that failed. */
tt_status tt_async_wait(tt_async *a, tt_ticket t, tt_error *err);
bool tt_async_done(tt_async *a, tt_ticket t);

#endif
