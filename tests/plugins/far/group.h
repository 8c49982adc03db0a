/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_FAR_GROUP_H
#define TT_TESTS_FAR_GROUP_H
#include "far.h"

/* What comm.c, which takes the calls, and collective.c, which runs them, share. */

typedef struct far_world {
    uint64_t id;
    int n_closed; /* ranks that left */
    tt_error why; /* code TT_OK: it was not aborted */
    struct far_group *groups;
    struct far_world *next;
} far_world;

struct far_comm { /* one rank's handle of a world */
    tt_comm_env env;
    double timeout_s;
    far_rank *rank;
    far_world *world;
};

typedef struct far_message {
    size_t bytes;
    char *data;
    struct far_message *next;
} far_message;

typedef struct far_box { /* messages from one member to another */
    far_message *first;
    uint64_t n_sent, n_received; /* that ran */
    uint64_t n_sends, n_recvs;   /* that were put on a queue */
} far_box;

typedef struct far_group {
    far_world *world;
    uint64_t key;
    int n, refs;
    int *ranks;
    bool *joined;
    far_node **calls;  /* of each member, those that did not run, in their order */
    uint64_t *n_calls; /* of each member: collectives that were put on a queue */
    far_box *boxes;    /* [from * n + to] */
    tt_error error;    /* code TT_OK: the group works */
    struct far_group *next;
} far_group;

struct tt_comm { /* one rank's handle of a group */
    far_comm *comm;
    far_group *group;
    int me;
    tt_device_queue *queue;
};

typedef enum far_op {
    FAR_ALL_GATHER,
    FAR_REDUCE_SCATTER,
    FAR_ALL_REDUCE,
    FAR_ALL_TO_ALL,
    FAR_BARRIER,
    FAR_SEND,
    FAR_RECV
} far_op;

typedef struct far_collective { /* one member's call */
    far_group *group;
    int me, peer; /* peer: of a message */
    far_op op;
    int64_t *counts; /* n of them; of all_to_all n that are sent, then n that are received */
    int n_counts;
    tt_dtype dtype;
    tt_reduce reduce;
    uint64_t number; /* from 0, among the calls that it is matched with */
    far_node *next;  /* of this member */
} far_collective;

far_group *far_group_ref(far_group *g);
void far_group_drop(far_group *g);
void far_group_break(far_group *g, const tt_error *e);
/* TT_OK, or why no call of the group can succeed. */
tt_status far_group_status(const far_group *g, tt_error *err);

#endif
