/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PLUGIN_PAIRWISE_H
#define TT_PLUGIN_PAIRWISE_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ttrun/comm.h>

/* Collectives made of messages between two members, for transports that have only those. So sums are in
 * ascending member order, a wait can be ended, and an error can name the ranks that did not arrive.
 * Each collective first exchanges a head with every member, which says which collective the rank calls
 * and carries small data; larger data follows in pieces. */

#define PAIR_INLINE_BYTES 1024 /* an all_reduce of so many bytes goes with the heads */
#define PAIR_IN_FLIGHT 2 /* messages that a member may send before it waits for the receiver */

typedef struct pair_head {
    int64_t op, size, sequence;
    int64_t sends, receives; /* all_to_all: elements sent to and received from the member */
    int64_t n_inline;        /* bytes of data */
    uint64_t data_code,
        code; /* of the data, and of all before it: of a transport that needs them */
    char data[PAIR_INLINE_BYTES];
} pair_head;
#define PAIR_HEAD_BYTES offsetof(pair_head, data)

/* What a transport does. Between clear and wait it has at most one message to each member and one from
 * each. Functions that wait return TT_ETIMEOUT without a text. */
typedef struct pair_transport {
    bool any_size; /* messages of any size; false: the larger data goes in pieces */
    tt_status (*check)(tt_comm *c, tt_error *err); /* TT_ECOMM: the run is being stopped */
    void (*clear)(tt_comm *c);
    void (*post)(tt_comm *c, int member, const void *send, size_t n_send, void *recv,
                 size_t n_recv); /* 0 bytes: no message */
    tt_status (*wait)(tt_comm *c, tt_error *err);
    tt_status (*heads)(tt_comm *c, tt_error *err); /* out[i] to member i, in[i] from it */
    bool (*missing)(tt_comm *c, int member);       /* its message has not arrived */
    void (*abort)(tt_comm *c, const char *why);
} pair_transport;

typedef struct pair { /* the first member of a plugin's struct tt_comm */
    const pair_transport *t;
    int n, me;
    int *ranks;
    const _Atomic double *timeout_s;
    uint64_t sequence;
    const char *op;
    pair_head *in, *out; /* by member */
    char *room;          /* n + 1 pieces: the data received for a reduction, and the result */
    const void **pieces;
} pair;

static inline pair *pair_of(tt_comm *c)
{
    return (pair *)(void *)c;
}

/* How many bytes of [at, at + room) are below n. */
static inline size_t pair_part(int64_t n, int64_t at, int64_t room)
{
    return n > at ? (size_t)(n - at < room ? n - at : room) : 0;
}

/* ranks: as tt_comm_vt.group has them; rank: this one. pair_close frees what it allocates, in any case. */
tt_status pair_open(pair *p, const int *ranks, int n, int rank, tt_error *err);
void pair_close(pair *p);
/* TT_ETIMEOUT of message `number` between stages. what: "send to". */
tt_status pair_late(const pair *p, const char *what, int peer, uint64_t number, tt_error *err);
/* tt_comm_vt's functions of these names. */
tt_status pair_all_gather(tt_comm *c, const void *send, void *recv, const int64_t *counts,
                          tt_dtype dtype, tt_error *err);
tt_status pair_reduce_scatter(tt_comm *c, const void *send, void *recv, const int64_t *counts,
                              tt_dtype dtype, tt_reduce op, tt_error *err);
tt_status pair_all_reduce(tt_comm *c, void *buf, int64_t count, tt_dtype dtype, tt_reduce op,
                          tt_error *err);
tt_status pair_all_to_all(tt_comm *c, const void *send, const int64_t *send_counts, void *recv,
                          const int64_t *recv_counts, tt_dtype dtype, tt_error *err);
tt_status pair_barrier(tt_comm *c, tt_error *err);

#endif
