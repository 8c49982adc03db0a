/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_DEVICE_LOCAL_H
#define TT_DEVICE_LOCAL_H
#include "comm/data_comm.h"
#include "comm/threads_meet.h"

/* What device_local.c (collectives) and device_local_messages.c share. */

typedef struct tt_local {
    tt_device device;
    const tt_kernel *reduce; /* "reduce_members" */
    const tt_comm_vt *host;  /* of the rank-threads */
    void *host_self;
    int rank;
} tt_local;

enum { TT_LOCAL_READY, TT_LOCAL_REDUCED, TT_LOCAL_DONE, TT_LOCAL_EVENTS };

struct tt_comm {
    const tt_local *l;
    tt_comm *inner; /* the host group where the members meet */
    int n, me;
    tt_device_queue *queue;
    tt_device_event *events[TT_LOCAL_EVENTS];
    tt_tensor *parts; /* [n]: operands of a reduction */
    bool *readers;    /* [n]: the members that read this member's buffers in a call */
};

tt_status tt_local_send(tt_comm *g, int to, const void *buf, int64_t bytes, tt_error *err);
tt_status tt_local_recv(tt_comm *g, int from, void *buf, int64_t bytes, tt_error *err);
/* The last handle of this rank frees what its messages hold. */
void tt_local_leave_messages(tt_comm *g);

#endif
