/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SHM_IMPL_H
#define TT_SHM_IMPL_H
#include "dist/shm.h"

/* Inside of shared memory between processes. What is shared has offsets for pointers. */

/* Bytes a member hands on at a time. Small enough that what one writes another reads from a cache;
 * twice that and the readers come from memory. */
#define TT_SHM_SLOT (INT64_C(256) << 10)
#define TT_SHM_LINE 64
#define TT_SHM_IN_FLIGHT 2

typedef struct tt_shm_call { /* what a member came for, told in the first round of a collective */
    int64_t op, size;        /* op: tt_doing */
} tt_shm_call;

/* A member. It writes slot r % 2 in round r, then sets `round` to r: there are always two, so that
 * one is written while the others read the one before. */
typedef struct tt_shm_member {
    _Alignas(TT_SHM_LINE) tt_word round;
    _Atomic uint64_t came; /* collectives begun */
    _Alignas(TT_SHM_LINE) tt_shm_call call[2];
} tt_shm_member;

typedef struct tt_shm_message {
    uint64_t at;
    int64_t bytes, room;
} tt_shm_message;

typedef struct tt_shm_box { /* one direction of a pair */
    _Alignas(TT_SHM_LINE) tt_word sent;
    _Alignas(TT_SHM_LINE) tt_word received;
    tt_shm_message ring[TT_SHM_IN_FLIGHT];
} tt_shm_box;

typedef struct tt_shm_group { /* shared */
    uint64_t next, key;
    int32_t n;
    uint64_t ranks, members, slots, counts,
        boxes; /* int32_t[n], tt_shm_member[n], [n][2][SLOT] bytes,
                  int64_t[n][2][n], tt_shm_box[from][to] */
} tt_shm_group;

struct tt_shm {
    tt_session *session;
    int rank;
};

struct tt_comm { /* one process's end */
    tt_session *session;
    int n, me;
    int *ranks;
    tt_shm_member *members;
    char *slots;
    int64_t *counts;
    tt_shm_box *boxes;
    const void **pieces; /* [n]: scratch of a reduction */
    uint32_t round;      /* of the collective this rank is in */
    uint64_t sequence;
    const char *op;
};

/* shm_mail.c */
tt_status tt_shm_send(tt_comm *c, int to, const void *buf, int64_t bytes, tt_error *err);
tt_status tt_shm_recv(tt_comm *c, int from, void *buf, int64_t bytes, tt_error *err);

#endif
