/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_MESSAGES_H
#define TT_MESSAGES_H
#include "base/base.h"

/* Proves that all ranks of a world finish: simulates, in order, what they exchange. These are
 * messages between two ranks and collectives of groups, also those that run concurrently with the
 * program. */

typedef enum tt_message_kind {
    TT_MESSAGE_SEND,
    TT_MESSAGE_RECV,
    TT_MESSAGE_COLLECTIVE, /* a collective: waits until all members have arrived */
    TT_MESSAGE_BEGIN,      /* an asynchronous collective: does not wait */
    TT_MESSAGE_WAIT        /* waits until all members have begun the asynchronous collective */
} tt_message_kind;
typedef struct tt_message {
    tt_message_kind kind;
    int to;           /* the other rank; for collectives the group */
    int64_t tag;      /* equal at both ends, and at all members */
    int back;         /* WAIT: how many were begun in this group after the one to wait for */
    const void *what; /* for describe() */
} tt_message;
typedef struct tt_trace_part { /* of a rank's trace; many micro-batches share one */
    const tt_message *items;
    int n;
    int64_t micro; /* part of every tag */
} tt_trace_part;
typedef struct tt_messages {
    int n_ranks, n_groups;
    const int *group_size;
    tt_trace_part **traces; /* by rank */
    int *n_parts;
    /* Translates `to` for a rank: peer[rank * n_peers + to], group[rank * n_own + to], so that
     * ranks can share parts. NULL: `to` itself. */
    int n_peers, n_own;
    const int *peer, *group;
    const int *name; /* the ranks' names in errors; NULL: their numbers */
    void (*describe)(const void *user, const tt_message *w, tt_str *out); /* NULL: by group, tag */
    const void *user;
} tt_messages;
#define TT_MAX_BUFFERS 6
/* Simulates all ranks. A receive, a collective and a wait for a collective wait; a send waits while
 * more than n_buffers messages of its directed pair are not received (0 = rendezvous: the send ends
 * when its receive begins). Fails if a rank waits for ever, if members of a group are at different
 * collectives, or if a message is not the one that its receiver expects or is never received. The
 * error names the ranks, their actions and their positions in the lists. */

tt_status tt_messages_run(const tt_messages *w, int n_buffers, tt_error *err);

#endif
