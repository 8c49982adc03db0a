/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_LAUNCH_NODES_MACHINES_H
#define TT_LAUNCH_NODES_MACHINES_H
#include "launch/nodes.h"
#include "launch/nodes_link.h"
#include "launch/peers.h"

/* What nodes.c and nodes_meet.c share. */

#define TT_NODES_PENDING 256 /* connections that have not said who they are */

typedef struct tt_node_pending {
    tt_node_link l;
    int64_t since_ns;
} tt_node_pending;

/* Node 0: the copies of states that a node has said to have in memory. */
typedef struct tt_node_stock {
    tt_node_copy *items;
    int n, total; /* told, and to be told */
    int port;     /* where it listens for copies; 0: it keeps none */
} tt_node_stock;

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
    /* Copies of states (peers.h). */
    tt_peers *peers;      /* NULL: none are kept */
    tt_node_stock *stock; /* node 0: by node */
    int64_t copies_step;  /* of this start */
    int copies_world;     /* ranks of the mesh that has made them */
    char neighbour[64];
    int neighbour_port;
    tt_peers_fetch *fetches; /* that this node needs */
    int n_fetches;
};

tt_node_message tt_nodes_message(const tt_machines *n, tt_node_what what, tt_status s,
                                 const char *text);
void tt_nodes_tell(tt_machines *n, const tt_node_message *m); /* all that are connected */
void tt_nodes_watch(const tt_machines *n, int fd);            /* by tt_nodes_fd() */
void tt_nodes_take_in(tt_machines *n); /* node 0: those that connect, a few at a time */

/* ---- nodes_peers.c: copies of states; where none are kept these do nothing ---- */
/* Node 0: what the node says in a TT_NODE_JOIN or TT_NODE_COPIES to have in memory. */
void tt_nodes_take_stock(tt_machines *n, int node, const tt_node_message *m);
bool tt_nodes_told_stock(const tt_machines *n); /* all nodes have said all */
/* Notes what this node has in memory, or tells node 0, there with a TT_NODE_JOIN that is not sent yet, or NULL. */
void tt_nodes_tell_stock(tt_machines *n, const tt_node_message *join);
/* Node 0, when the places of a start are known: which step it goes on from, at least this one, and who gets copies
 * from whom. -1: from none. */
void tt_nodes_plan_copies(tt_machines *n, int64_t least);
void tt_nodes_fill_start(const tt_machines *n, int node, tt_node_message *m); /* for this node */
/* What node 0 says in a TT_NODE_FETCH and a TT_NODE_START. */
void tt_nodes_add_fetches(tt_machines *n, const tt_node_message *m);
void tt_nodes_hear_start(tt_machines *n, const tt_node_message *m);

#endif
