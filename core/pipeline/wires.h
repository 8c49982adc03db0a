/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_WIRES_H
#define TT_WIRES_H
#include "base/base.h"

/* Proves that all ranks of a world finish: simulates, in order, what they exchange. These are
 * messages between two ranks and collectives of groups, also those that run concurrently with the
 * program. */

typedef enum tt_wire_kind {
    TT_WIRE_SEND,
    TT_WIRE_RECV,
    TT_WIRE_MEET,  /* a collective: waits until all members have arrived */
    TT_WIRE_BEGIN, /* an asynchronous collective: does not wait */
    TT_WIRE_WAIT   /* waits until all members have begun the asynchronous collective */
} tt_wire_kind;
typedef struct tt_wire {
    tt_wire_kind kind;
    int to;           /* the other rank; for collectives the group */
    int64_t tag;      /* equal at both ends, and at all members */
    int back;         /* WAIT: how many were begun in this group after the one to wait for */
    const void *what; /* for describe() */
} tt_wire;
typedef struct tt_strip { /* a part of a rank's list; many micro-batches share one */
    const tt_wire *items;
    int n;
    int64_t micro; /* part of every tag */
} tt_strip;
typedef struct tt_wires {
    int n_ranks, n_groups;
    const int *group_size;
    tt_strip **strips; /* by rank */
    int *n_strips;
    /* Translates `to` for a rank: peer[rank * n_peers + to], group[rank * n_own + to], so that
     * ranks can share strips. NULL: `to` itself. */
    int n_peers, n_own;
    const int *peer, *group;
    const int *name; /* the ranks' names in errors; NULL: their numbers */
    void (*describe)(const void *user, const tt_wire *w, tt_str *out); /* NULL: by group, tag */
    const void *user;
} tt_wires;
#define TT_MAX_BUFFERS 6
/* Simulates all ranks. A receive, a collective and a wait for a collective wait; a send waits while
 * more than n_buffers messages of its directed pair are not received (0 = rendezvous: the send ends
 * when its receive begins). Fails if a rank waits for ever, if members of a group are at different
 * collectives, or if a message is not the one that its receiver expects or is never received. The
 * error names the ranks, their actions and their positions in the lists. */

tt_status tt_wires_run(const tt_wires *w, int n_buffers, tt_error *err);

#endif
