/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CLI_NODES_MACHINES_H
#define TT_CLI_NODES_MACHINES_H
#include "cli/nodes.h"
#include "cli/nodes_link.h"

/* What nodes.c and nodes_meet.c share. */

#define TT_NODES_PENDING 256 /* connections that have not said who they are */

typedef struct tt_node_pending {
    tt_node_link l;
    int64_t since_ns;
} tt_node_pending;

struct tt_machines {
    tt_nodes_opts o;
    const tt_launch_signals *signals;
    int listener; /* node 0's */
    int epoll;    /* signals and links; of node 0 with a range of nodes, also who connects */
    uint64_t start;
    char host[64];
    tt_node_link *links; /* node 0: by node; else [0]: to node 0 */
    bool *ended;         /* by node: it has said how its ranks ended, or was told that none start */
    tt_node_message *how;
    bool stopping; /* this node or another has failed */
    /* This start. Nodes without a place are spare. */
    int *place;       /* node 0: by node, in the order of their numbers; -1: it has no ranks */
    int my_place;     /* the node's first rank is my_place × local */
    int n_now;        /* nodes that have ranks */
    int local, world; /* ranks of each of them, and of all */
    bool met;         /* ranks have been started */
    bool running;     /* ranks run; a node that joins is told to wait */
    bool waits;       /* another node: it was told to wait */
    int stopped;      /* the signal by which another node was asked to stop, or 0 */
    int n_came;       /* nodes that have joined since the start */
    int came;         /* the last of them */
    int blamed;       /* whose ranks failed first at the start before; -1: none */
    tt_node_pending waiting[TT_NODES_PENDING];
    int64_t n_refused, tell_at; /* connections of no node; how many are the next to be told */
    int n_differing;            /* nodes that were refused in this meeting */
    char refused[512];          /* the last of them: why */
    tt_error cause;             /* why no ranks can be started; code TT_OK: they can */
};

tt_node_message tt_nodes_message(const tt_machines *n, tt_node_what what, tt_status s,
                                 const char *text);
void tt_nodes_tell(tt_machines *n, const tt_node_message *m); /* all that are connected */
void tt_nodes_watch(const tt_machines *n, int fd);            /* by tt_nodes_fd() */
void tt_nodes_take_in(tt_machines *n); /* node 0: those that connect, a few at a time */

#endif
