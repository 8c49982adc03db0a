/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_EXCHANGE_H
#define TT_EXCHANGE_H
#include "comm/dist.h"
#include "device/device.h"

/* One step of a redistribute (tt_lower_step) as this rank runs it: pack boxes, call the
 * communicator, unpack; or, of a local step, move and sum what is here. Boxes are exact, so shards
 * of unequal sizes need no padding: the counts differ by member. */
typedef struct tt_exchange {
    tt_step_kind kind;
    tt_reduce reduce;
    tt_group_comm group;
    int64_t *counts, *recv_counts; /* elements by member, as the call takes them */
    tt_box *send_box, *recv_box;   /* by member, relative to the local tensors */
    bool packed, unpacked;         /* the local tensor itself can be sent, received */
    int *order;                    /* SUM: by member, the number of its input */
    /* ALL_TO_ALL of rows (tt_redistribute_rows): a call sets `counts` and the boxes of dim 1 by what its
     * inputs 1 and 2 count for the member; else NULL. */
    int *sent_part, *received_part; /* by member: which part of the counts is its */
    int64_t room;                   /* rows that a box may have */
} tt_exchange;

typedef struct tt_exchange_opts {
    const tt_mesh *mesh;
    const int32_t *coords; /* of this rank */
    const tt_lower_step *step;
    const tt_dim *dims;        /* of the global tensor */
    tt_group_comm group;       /* over the step's atoms; only if tt_exchange_has_group() */
    const tt_tensor *in, *out; /* this rank's; in NULL: a FILL has none */
    int n_in;
} tt_exchange_opts;

bool tt_exchange_has_group(tt_step_kind k);
tt_status tt_exchange_make(const tt_exchange_opts *o, tt_arena *a, tt_exchange *out, tt_error *err);
typedef struct tt_exchange_call {
    const tt_comm_vt *vt;
    tt_comm *comm;         /* of the group, for the thread or the queue that calls */
    const tt_mover *mover; /* for copies and sums, on that queue */
    const tt_tensor *in;
    int n_in;
    const tt_tensor *out;
    /* Room for the packed input, and behind it, from the next multiple of `alignment`, for the packed
     * output. */
    char *scratch;
    int64_t alignment;
    bool clear; /* rows that are not sent are 0 in out, for debug.detect_nan */
} tt_exchange_call;
tt_status tt_exchange_run(tt_exchange *e, const tt_exchange_call *c, tt_error *err);

#endif
