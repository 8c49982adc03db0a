/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SHM_IMPL_H
#define TT_SHM_IMPL_H
#include "comm/shm.h"

/* Inside of shared memory between processes. What is shared has offsets for pointers. */

/* Bytes a member hands on at a time. Small enough that what one writes another reads from a cache;
 * twice that and the readers come from memory. */
#define TT_SHM_SLOT (INT64_C(256) << 10)
#define TT_SHM_LINE 64
#define TT_SHM_IN_FLIGHT 2
/* Bytes a member from which on one copy between processes, with two meetings and its system calls,
 * is faster than two copies through the room. */
#define TT_SHM_MUCH (INT64_C(8) << 10)

typedef struct tt_shm_call { /* what a member came for, told in the first round of a collective */
    _Alignas(TT_SHM_LINE) int64_t op, size; /* op: tt_doing */
    int64_t dtype, reduce;
    uint64_t counts;     /* a hash of what each member gives or gets; 0: of no matter */
    uint64_t send, recv; /* addresses in the member's process */
} tt_shm_call;

/* A member. It writes slot r % 2 in round r, then sets `round` to r: there are always two, so that
 * one is written while the others read the one before. */
typedef struct tt_shm_member {
    _Alignas(TT_SHM_LINE) tt_word round;
    _Atomic uint64_t came; /* collectives begun */
    tt_shm_call call[2];
    /* Of its process: a word with a value that no other has, by which is known that pid and address
     * are what they seem to be. */
    _Alignas(TT_SHM_LINE) int64_t pid;
    uint64_t mark, mark_at;
    bool reaches; /* it can copy from and to all the others */
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

/* How the members of a group copy: settled by all in their first collective. */
typedef enum tt_shm_way { TT_SHM_UNSETTLED, TT_SHM_ROOM, TT_SHM_DIRECT } tt_shm_way;

typedef struct tt_shm_group { /* shared */
    uint64_t next, key;
    int32_t n;
    _Atomic int32_t settled; /* tt_shm_way */
    uint64_t ranks, members, slots, counts,
        boxes; /* int32_t[n], tt_shm_member[n], [n][2][SLOT] bytes,
                  int64_t[n][2][n], tt_shm_box[from][to] */
} tt_shm_group;

struct tt_shm {
    tt_session *session;
    int rank;
    bool room_only;
    uint64_t mark;
};

struct tt_comm { /* one process's end */
    tt_session *session;
    tt_shm *shm;
    int n, me;
    int *ranks;
    tt_shm_member *members;
    char *slots;
    int64_t *counts;
    tt_shm_box *boxes;
    const void **pieces;   /* [n]: scratch of a reduction */
    _Atomic int32_t *way;  /* tt_shm_way */
    char *scratch;         /* [n][piece] bytes, of DIRECT */
    int64_t piece;         /* bytes copied at a time: what is copied is added up out of a cache */
    uint32_t first, round; /* of the collective this rank is in */
    uint64_t sequence;
    const char *op;
};

/* A collective's arguments; counts by member, NULL: none. */
typedef struct tt_shm_args {
    tt_doing op;
    const void *send;
    void *recv;
    int64_t count;
    const int64_t *counts, *recv_counts;
    tt_dtype dtype;
    tt_reduce reduce;
} tt_shm_args;

/* ---- shm_meet.c: rounds ---- */
/* A collective begins; then the way is settled, where this is the group's first. */
tt_status tt_shm_begin(tt_comm *c, const tt_shm_args *a, tt_error *err);
/* My part of this round is done: wait for everyone's. In a collective's first, all must have come
 * for the same: where not, all get an error and the group is as before. */
tt_status tt_shm_meet(tt_comm *c, tt_error *err);
const tt_shm_call *tt_shm_call_of(const tt_comm *c, int member); /* of the collective that is */
int64_t tt_shm_sum(const int64_t *counts, int n);
int64_t tt_shm_most(const int64_t *counts, int n);
void tt_shm_copy(void *to, const void *from, size_t n);

/* ---- shm_room.c: two copies, through the slots ---- */
tt_status tt_shm_room_all_gather(tt_comm *c, const tt_shm_args *a, tt_error *err);
tt_status tt_shm_room_reduce_scatter(tt_comm *c, const tt_shm_args *a, tt_error *err);
tt_status tt_shm_room_all_reduce(tt_comm *c, const tt_shm_args *a, tt_error *err);
tt_status tt_shm_all_to_all(tt_comm *c, const tt_shm_args *a, tt_error *err); /* either way */
const int64_t *tt_shm_counts_of(const tt_comm *c, int member); /* what it sends, by member */

/* ---- shm_direct.c: one copy, between the processes ---- */
tt_status tt_shm_settle(tt_comm *c, tt_error *err);
tt_status tt_shm_direct_all_gather(tt_comm *c, const tt_shm_args *a, tt_error *err);
tt_status tt_shm_direct_reduce_scatter(tt_comm *c, const tt_shm_args *a, tt_error *err);
tt_status tt_shm_direct_all_reduce(tt_comm *c, const tt_shm_args *a, tt_error *err);
/* After a first round in which all learnt that there is much. s: other than TT_OK, what this member
 * found wrong in it: it only meets, and returns that. */
tt_status tt_shm_direct_all_to_all(tt_comm *c, const tt_shm_args *a, tt_status s, tt_error *err);

/* ---- shm_mail.c ---- */
tt_status tt_shm_send(tt_comm *c, int to, const void *buf, int64_t bytes, tt_error *err);
tt_status tt_shm_recv(tt_comm *c, int from, void *buf, int64_t bytes, tt_error *err);

#endif
