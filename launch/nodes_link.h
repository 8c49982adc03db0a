/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_LAUNCH_NODES_LINK_H
#define TT_LAUNCH_NODES_LINK_H
#include "base/base.h"
#include <ttrun/hmac.h>

/* The connection between two nodes' ttrun (nodes.h), and its messages. Node 0 sends 16 random bytes to whoever
 * connects. Each message carries an HMAC-SHA-256, keyed by TTRUN_COMM_SECRET, of these bytes, of 16 of the
 * other node, of the direction, of the number of the message, and of the message. */

#define TT_NODE_MAGIC UINT64_C(0x74746e6f64653035) /* changes with the message */

typedef enum tt_node_what {
    TT_NODE_JOIN,   /* to node 0: who I am */
    TT_NODE_START,  /* from node 0: start the ranks */
    TT_NODE_WAIT,   /* from node 0: this start has ranks on other nodes only */
    TT_NODE_STOP,   /* from node 0: end the ranks, another node's have failed */
    TT_NODE_ENDED,  /* to node 0: how my ranks ended */
    TT_NODE_COPIES, /* to node 0: which copies of states I have in memory (peers.h) */
    TT_NODE_FETCH,  /* from node 0, before a start: get copies that you need from this node */
    TT_NODE_OVER,   /* from node 0: the run has ended */
} tt_node_what;

/* How a node's ranks ended. Of failures that follow from one another, the first here is nearest to the cause. */
typedef enum tt_node_end {
    TT_NODE_DIED,    /* a process was ended by a signal */
    TT_NODE_LOST,    /* the node itself has ended, or the network: node 0 says so */
    TT_NODE_FAILED,  /* by a failure of their own */
    TT_NODE_FOLLOWS, /* because another rank was lost */
    TT_NODE_STOPPED, /* as a signal asked */
    TT_NODE_ASKED,   /* node 0 said so, or the ranks have said why themselves */
    TT_NODE_FINE,
} tt_node_end;

/* The whole copies of a rank's states that are in a node's memory. */
typedef struct tt_node_copy {
    int32_t rank, world;
    int64_t steps[2]; /* -1: none */
} tt_node_copy;

#define TT_NODE_COPIES_MOST 16 /* in a message */

typedef struct tt_node_message {
    uint64_t magic, start;
    int32_t what, node, nodes, least, nproc, status, end, resume;
    int32_t stopped;                            /* of TT_NODE_ENDED: a signal asked for it there */
    int32_t place, n_now, local, world;         /* of TT_NODE_START: see tt_machines */
    int32_t mesh_world, dp_replicate, dp_shard; /* of TT_NODE_START: a tt_refit */
    int64_t global_batch;
    /* Of copies: where this node listens, 0: it keeps none; of TT_NODE_JOIN and TT_NODE_COPIES, how many there are
     * in all, and how many were told before these; of TT_NODE_START and TT_NODE_FETCH, the step of the copies to
     * go on from, -1: none; of TT_NODE_START, the ranks of the mesh that has made them. */
    int32_t copies_port, n_copies, copies_total, copies_before;
    int64_t copies_step;
    tt_node_copy copies[TT_NODE_COPIES_MOST];
    char neighbour
        [64]; /* of TT_NODE_START: who gets copies of this node's, or ""; of TT_NODE_FETCH: who has them */
    int32_t neighbour_port, copies_world;
    uint8_t nonce
        [16]; /* of TT_NODE_JOIN: the node's part of what all codes on this connection depend on */
    char host[64], version[32], digest[40], id[64], text[1024];
    uint8_t code[TT_HMAC_BYTES]; /* of all that is before it */
} tt_node_message;

typedef struct tt_node_link {
    int fd;                      /* -1: none */
    bool far;                    /* this end has connected */
    char from[64];               /* the address of the other end, where this one has accepted it */
    uint8_t nonces[32];          /* that of node 0, and that of the other one */
    uint64_t n_sent, n_received; /* messages */
    size_t n_in;                 /* bytes of `in` that have arrived */
    tt_node_message in;
} tt_node_link;

/* address: by which the other nodes come. */
tt_status tt_node_listen(const char *address, int port, int *out, tt_error *err);
/* fd -1: nobody has connected. */
tt_node_link tt_node_accept(int listener);
/* Tries each address of the name for TT_NODE_CONNECT_NS; -1: none answers. stop_fd: once it can be read, nothing is
 * waited for; -1: there is none. */
tt_node_link tt_node_connect(const char *address, int port, int stop_fd);
void tt_node_send(tt_node_link *l, tt_node_message m);
/* 1: a whole message, whose texts end and are UTF-8; 0: not yet; -1: the other end has gone, has another
 * secret, or is no ttrun of this version. */
int tt_node_read(tt_node_link *l);
/* The code of a connection's message `number`, of which n bytes, at most TT_NODE_MESSAGE_MOST, are before the code. */
#define TT_NODE_MESSAGE_MOST 4096
void tt_node_code(const tt_node_link *l, const void *message, size_t n, bool from_far,
                  uint64_t number, uint8_t out[TT_HMAC_BYTES]);
void tt_node_drop(tt_node_link *l);

#endif
