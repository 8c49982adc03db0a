/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_WIRES_H
#define TT_WIRES_H
#include "base/base.h"

/* Do all ranks of a world finish? What they say to each other, in order, run in the abstract:
 * messages between two, collectives of groups, those that run beside the program included. */

typedef enum tt_wire_kind {
    TT_WIRE_SEND,
    TT_WIRE_RECV,
    TT_WIRE_MEET,  /* a collective, until all members have come */
    TT_WIRE_BEGIN, /* one that runs beside the program: does not wait */
    TT_WIRE_WAIT   /* until all members have begun it too */
} tt_wire_kind;
typedef struct tt_wire {
    tt_wire_kind kind;
    int to;           /* the other rank; of collectives the group */
    int64_t tag;      /* equal at both ends, and at all members */
    int back;         /* WAIT: for the one begun in this group so many before the last */
    const void *what; /* for describe */
} tt_wire;
typedef struct tt_strip { /* a run of a rank's list: many micro-batches share one */
    const tt_wire *items;
    int n;
    int64_t micro; /* part of every tag */
} tt_strip;
typedef struct tt_wires {
    int n_ranks, n_groups;
    const int *group_size;
    tt_strip **strips; /* by rank */
    int *n_strips;
    /* What `to` means to a rank: peer[rank * n_peers + to], group[rank * n_own + to]; so ranks can
     * share strips. NULL: itself. */
    int n_peers, n_own;
    const int *peer, *group;
    const int *name; /* of ranks, in errors; NULL: their numbers */
    void (*describe)(const void *user, const tt_wire *w, tt_str *out); /* NULL: by group, tag */
    const void *user;
} tt_wires;
#define TT_MAX_BUFFERS 6
/* Runs all ranks: a receive, a collective and a wait for one wait, a send waits while more than
 * n_buffers of its directed pair are not received (0 = rendezvous: it ends when its receive
 * begins). Fails where a rank waits for ever, members of a group meet at different collectives, or
 * a message is not its receiver's or nobody's; says which ranks, at what, where in their lists. */
tt_status tt_wires_run(const tt_wires *w, int n_buffers, tt_error *err);

#endif
