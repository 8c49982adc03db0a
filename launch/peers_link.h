/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_LAUNCH_PEERS_LINK_H
#define TT_LAUNCH_PEERS_LINK_H
#include "launch/nodes_link.h"
#include "train/peer_memory.h"

/* The connection over which two nodes' ttrun send copies of states (peers.h). It begins as that of the nodes'
 * meeting does, and its messages carry the same kind of code (nodes_link.h). The bytes of a copy follow their
 * message without a code of their own: the message has their checksum.
 *
 * A node sends its ranks' copies to its neighbour: SENDS, to which the neighbour answers a HAS per rank; then an
 * OFFER per copy, with its blocks, each of which the neighbour answers by an ACK. A block begins with a byte, a
 * tt_peers_block; the bytes of the block follow only if the neighbour has them nowhere. A node that needs copies
 * sends a WANTS per rank; the other one answers by a GIVES, and the copy's bytes. */

#define TT_PEERS_MAGIC UINT64_C(0x7474727065723032) /* changes with the message and the blocks */
#define TT_PEERS_BLOCK ((int64_t)262144)

typedef enum tt_peers_what {
    TT_PEERS_SENDS, /* rank: the first; n ranks */
    TT_PEERS_HAS,   /* rank, had */
    TT_PEERS_OFFER, /* rank, slot, copy; its step -1: the neighbour drops all copies of the rank */
    TT_PEERS_ACK,   /* rank, step of the copy; -1: its bytes are damaged */
    TT_PEERS_WANTS, /* rank, step */
    TT_PEERS_GIVES, /* rank, copy; its step -1: there is none */
    TT_PEERS_BYE,   /* of the neighbour: its ranks have ended */
} tt_peers_what;

typedef enum tt_peers_block {
    TT_PEERS_SAME,  /* as in the slot before */
    TT_PEERS_OTHER, /* as in the other slot */
    TT_PEERS_BYTES, /* the bytes follow */
} tt_peers_block;

typedef struct tt_peers_copy {
    uint64_t layout, check;
    int64_t bytes, step;
    uint8_t state[sizeof(tt_peer_state)];
} tt_peers_copy;

typedef struct tt_peers_had { /* a slot that is whole; step -1: none */
    uint64_t layout, check;
    int64_t bytes, step;
} tt_peers_had;

typedef struct tt_peers_message {
    uint64_t magic, start; /* the number of the start that both nodes take part in */
    int32_t what, rank, n, world, slot, unused;
    int64_t step;
    tt_peers_copy copy;
    tt_peers_had had[TT_PEER_SLOTS];
    uint8_t nonce[16];           /* as that of a tt_node_message */
    uint8_t code[TT_HMAC_BYTES]; /* of all that is before it */
} tt_peers_message;

/* What ends a wait for the other node. */
typedef struct tt_peers_limit {
    int stop_fd; /* it can be read: stop now; -1: nothing does */
    int idle_ms; /* nothing arrives, or is taken, for so long */
} tt_peers_limit;

/* These wait. They return NULL, or why they failed: the connection is of no use then. */
const char *tt_peers_put(tt_node_link *l, const void *p, size_t n, const tt_peers_limit *w);
const char *tt_peers_get(tt_node_link *l, void *p, size_t n, const tt_peers_limit *w);
const char *tt_peers_say(tt_node_link *l, tt_peers_message m, const tt_peers_limit *w);
const char *tt_peers_hear(tt_node_link *l, tt_peers_message *m, const tt_peers_limit *w);
/* `m`, which is the next one of this connection and has all its bytes: whether its code is right, and what it says
 * can be. */
bool tt_peers_is_right(tt_node_link *l, const tt_peers_message *m);
/* A message about this slot's copy. */
tt_peers_copy tt_peers_copy_of(const tt_peer_head *h, int slot);
/* Makes the slot one of this copy, which is not whole yet, in memory of its layout. */
void tt_peers_expect(tt_peer_head *h, int slot, const tt_peers_copy *c);

#endif
