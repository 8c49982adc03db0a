/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_LAUNCH_PEERS_IMPL_H
#define TT_LAUNCH_PEERS_IMPL_H
#include "launch/peers.h"
#include "launch/peers_link.h"
#include <pthread.h>

/* What peers.c, peers_send.c and peers_serve.c share. */

typedef enum tt_peers_role {
    TT_PEERS_OWN,   /* of a rank that runs here */
    TT_PEERS_HELD,  /* of a rank of the node whose neighbour this one is */
    TT_PEERS_SPARE, /* another node may need it before its ranks go on */
    TT_PEERS_BEFORE, /* of a rank of another mesh: the ranks go on from it, and all of them are here */
} tt_peers_role;

typedef struct tt_peers_item { /* the memory of one rank's copies */
    int rank, world;
    int fd; /* -1: closed */
    tt_peers_role role;
    tt_peer_head *head;
    uint8_t *all;    /* of a copy that arrives: the whole memory; NULL: not mapped */
    size_t n_mapped; /* bytes of it */
} tt_peers_item;

struct tt_peers {
    int listener, port;
    int stop_fd; /* it can be read: the start has ended */
    tt_peers_start s;
    int *fds;              /* of TT_PEERS_OWN, by local rank */
    int *before, n_before; /* of TT_PEERS_BEFORE */
    /* The array changes only between starts; protected by lock: closing spare items, and giving from any. */
    tt_peers_item *items;
    int n;
    pthread_mutex_t lock;
    pthread_t sender, server;
    bool sends, serves;
};

/* The memory of a rank that runs here, or whose node's neighbour this is; NULL: it is neither. */
tt_peers_item *tt_peers_find(tt_peers *p, int rank);
tt_peers_item *tt_peers_find_any(tt_peers *p, int rank); /* with the lock: a spare one, too */
/* All ranks run on from their copies: nobody needs spare ones. [any-thread] */
void tt_peers_drop_spare(tt_peers *p);
/* Makes empty memory of this layout; false: there is not enough. */
bool tt_peers_make_room(tt_peers_item *i, uint64_t layout, int64_t bytes);
bool tt_peers_map_all(tt_peers_item *i);
void tt_peers_unmap_all(tt_peers_item *i);
/* Gets copies of other nodes before the ranks start. */
void tt_peers_fetch_all(tt_peers *p);
void *tt_peers_sender(void *peers); /* threads */
void *tt_peers_server(void *peers);

#endif
