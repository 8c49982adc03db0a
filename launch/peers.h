/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_LAUNCH_PEERS_H
#define TT_LAUNCH_PEERS_H
#include "launch/nodes_link.h"

/* checkpoint.peer_copy_interval with --nnodes: a node's ttrun keeps the copies of its ranks' states in memory
 * (train/peer.h), and sends each to its neighbour, the node that has the next ranks (that of the last ranks sends to
 * the first). So all states are in memory after any rank is lost, and after any one node is. Before each start node
 * 0 finds the newest step of which all ranks have a whole copy, and who has copies that a node needs (nodes_peers.c). A
 * node that has all ranks of a start may go on from the copies of another mesh, if it has those of all its ranks.
 *
 * Threads of their own do the sending (peers_send.c) and receiving (peers_serve.c) while ranks run. If the neighbour
 * cannot be reached a line says so, and the run goes on. */

typedef struct tt_peers tt_peers;

typedef struct tt_peers_fetch { /* copies that this node needs, and who has them */
    int rank;
    char host[64];
    int port;
} tt_peers_fetch;

typedef struct tt_peers_start {
    uint64_t start; /* its number */
    int me;         /* of --node_rank, for the log */
    int place, nodes, local, world;
    int64_t step;   /* of the copies to go on from; -1: none, and all are forgotten */
    int from_world; /* ranks of the mesh that has made them */
    char neighbour[64];
    int neighbour_port;
    const tt_peers_fetch *fetches;
    int n_fetches;
    int signal_fd; /* it can be read: fetch nothing more */
} tt_peers_start;

/* address: by which the nodes find node 0; NULL: it is not known. Gives NULL if copies cannot be kept, as a line of the log
 * says. */
tt_peers *tt_peers_open(const char *address);
void tt_peers_close(tt_peers *p); /* NULL: nothing */
int tt_peers_port(const tt_peers *p);
/* The whole copies that are here; returns how many ranks have any. No start runs. */
int tt_peers_stock(const tt_peers *p, tt_node_copy *out, int most);
/* The memories of this node's ranks, by local rank, with the copies that they go on from; NULL: there are none. */
const int *tt_peers_begin(tt_peers *p, const tt_peers_start *s);
/* Memories of copies of another mesh, all of which are here, for the ranks to read. */
const int *tt_peers_before(const tt_peers *p, int *n);
void tt_peers_tidy(tt_peers *p); /* ends these if all ranks, which run, have copies */
void tt_peers_end(tt_peers *p);  /* the ranks have ended */
void tt_peers_forget(tt_peers *p);

#endif
