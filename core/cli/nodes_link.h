/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CLI_NODES_LINK_H
#define TT_CLI_NODES_LINK_H
#include "base/base.h"

/* The connection between two nodes' ttrun (nodes.h), and its messages. */

#define TT_NODE_MAGIC UINT64_C(0x74746e6f64653031) /* changes with the message */

typedef enum tt_node_what {
    TT_NODE_JOIN,  /* to node 0: who I am */
    TT_NODE_START, /* from node 0: start the ranks */
    TT_NODE_STOP,  /* from node 0: end the ranks, another node's have failed */
    TT_NODE_ENDED, /* to node 0: how my ranks ended */
    TT_NODE_OVER,  /* from node 0: the run has ended */
} tt_node_what;

typedef struct tt_node_message {
    uint64_t magic, start;
    int32_t what, node, nodes, nproc, status, resume;
    char host[64], version[32], digest[40], id[64], text[1024];
} tt_node_message;

typedef struct tt_node_link {
    int fd;      /* -1: none */
    size_t n_in; /* bytes of `in` that have arrived */
    tt_node_message in;
} tt_node_link;

tt_status tt_node_listen(int port, int *out, tt_error *err);
int tt_node_accept(int listener); /* -1: nobody has connected */
/* Tries each address of the name for a moment; -1: none answers. */
int tt_node_connect(const char *address, int port);
void tt_node_send(tt_node_link *l, const tt_node_message *m);
int tt_node_read(tt_node_link *l); /* 1: a whole message; 0: not yet; -1: the other end has gone */
void tt_node_drop(tt_node_link *l);
void tt_node_clean(tt_node_message *m); /* ends its texts */

#endif
