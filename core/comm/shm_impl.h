/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SHM_IMPL_H
#define TT_SHM_IMPL_H
#include "comm/shm.h"

/* Collectives through shared memory: the structures. Shared ones hold offsets instead of pointers.
 */

/* Bytes that a member writes per round. Small enough for readers to find them in a cache; at twice
 * the size they read from memory. */
#define TT_SHM_SLOT (INT64_C(256) << 10)
#define TT_SHM_LINE 64
#define TT_SHM_IN_FLIGHT 2
/* From this many bytes per rank, one process_vm_readv copy (two barriers, one system call) is
 * faster than two copies through shared memory. */
#define TT_SHM_DIRECT_BYTES (INT64_C(8) << 10)

/* The call that a rank is making; exchanged in the first round, so that a mismatch is an error and
 * not a hang. */
typedef struct tt_shm_call {
    _Alignas(TT_SHM_LINE) int64_t op, size; /* op: tt_doing */
    int64_t dtype, reduce;
    uint64_t counts;     /* a hash of the counts by member; 0: not compared */
    uint64_t send, recv; /* addresses in the member's process */
} tt_shm_call;

/* A member. In round r it writes slot r % 2 and then sets `round` to r: there are two slots, so
 * that it can write one while the others still read the previous one. */
typedef struct tt_shm_member {
    _Alignas(TT_SHM_LINE) tt_word round;
    _Atomic uint64_t n_begun; /* collectives it has begun */
    tt_shm_call call[2];
    /* mark: a random value that this process keeps at address mark_at. Reading it back through pid
     * proves that pid and addresses are right (pid namespaces, reuse of a pid). */
    _Alignas(TT_SHM_LINE) int64_t pid;
    uint64_t mark, mark_at;
    bool reaches; /* it can copy from and to the memory of all others */
} tt_shm_member;

typedef struct tt_shm_message {
    uint64_t at;
    int64_t bytes, capacity;
} tt_shm_message;

typedef struct tt_shm_box { /* messages from one member to another */
    _Alignas(TT_SHM_LINE) tt_word sent;
    _Alignas(TT_SHM_LINE) tt_word received;
    tt_shm_message ring[TT_SHM_IN_FLIGHT];
} tt_shm_box;

/* How the members of a group copy; they decide it together in their first collective. */
typedef enum tt_shm_path { TT_SHM_UNDECIDED, TT_SHM_BUFFERED, TT_SHM_DIRECT } tt_shm_path;

typedef struct tt_shm_group { /* in shared memory */
    uint64_t next, key;
    int32_t n;
    _Atomic int32_t path; /* tt_shm_path */
    uint64_t ranks, members, slots, counts,
        boxes; /* int32_t[n], tt_shm_member[n], [n][2][SLOT] bytes,
                  int64_t[n][2][n], tt_shm_box[from][to] */
} tt_shm_group;

struct tt_shm {
    tt_session *session;
    int rank;
    bool buffered_only;
    uint64_t mark;
};

struct tt_comm { /* a group as one process sees it */
    tt_session *session;
    tt_shm *shm;
    int n, me;
    int *ranks;
    tt_shm_member *members;
    char *slots;
    int64_t *counts;
    tt_shm_box *boxes;
    const void **pieces;   /* [n]: scratch of a reduction */
    _Atomic int32_t *path; /* tt_shm_path */
    char *scratch;         /* [n][piece] bytes, used by TT_SHM_DIRECT */
    int64_t piece;         /* bytes copied at a time, few enough to be added up in a cache */
    uint32_t first, round; /* the first and the current round of this rank's collective */
    uint64_t sequence;
    const char *op;
};

/* The arguments of a collective. counts are by member; NULL: the collective has none. */
typedef struct tt_shm_args {
    tt_doing op;
    const void *send;
    void *recv;
    int64_t count;
    const int64_t *counts, *recv_counts;
    tt_dtype dtype;
    tt_reduce reduce;
} tt_shm_args;

/* ---- shm_rounds.c ---- */
/* Begins a collective; if it is the group's first, the members also choose how they copy. */
tt_status tt_shm_begin(tt_comm *c, const tt_shm_args *a, tt_error *err);
/* This rank's part of the round is done: waits until all members' are. In the first round of a
 * collective all members must have made the same call: if not, all get an error and the group
 * stays usable. */
tt_status tt_shm_finish_round(tt_comm *c, tt_error *err);
const tt_shm_call *tt_shm_call_of(const tt_comm *c, int member); /* in the current collective */
int64_t *tt_shm_counts_of(const tt_comm *c, int member);         /* what it sends, by receiver */
int64_t tt_shm_sum(const int64_t *counts, int n);
int64_t tt_shm_most(const int64_t *counts, int n);
void tt_shm_copy(void *to, const void *from, size_t n);

/* ---- shm_buffered.c: two copies, through the slots in shared memory ---- */
tt_status tt_shm_buffered_all_gather(tt_comm *c, const tt_shm_args *a, tt_error *err);
tt_status tt_shm_buffered_reduce_scatter(tt_comm *c, const tt_shm_args *a, tt_error *err);
tt_status tt_shm_buffered_all_reduce(tt_comm *c, const tt_shm_args *a, tt_error *err);
tt_status tt_shm_all_to_all(tt_comm *c, const tt_shm_args *a, tt_error *err); /* either path */

/* ---- shm_direct.c: one copy, from process to process ---- */
tt_status tt_shm_choose_path(tt_comm *c, tt_error *err);
tt_status tt_shm_direct_all_gather(tt_comm *c, const tt_shm_args *a, tt_error *err);
tt_status tt_shm_direct_reduce_scatter(tt_comm *c, const tt_shm_args *a, tt_error *err);
tt_status tt_shm_direct_all_reduce(tt_comm *c, const tt_shm_args *a, tt_error *err);
/* Continues after a first round that showed all members that the transfer is large. s: the error
 * that this member found in that round, or TT_OK; on an error it only waits at the barriers and
 * returns s. */
tt_status tt_shm_direct_all_to_all(tt_comm *c, const tt_shm_args *a, tt_status s, tt_error *err);

/* ---- shm_mail.c ---- */
tt_status tt_shm_send(tt_comm *c, int to, const void *buf, int64_t bytes, tt_error *err);
tt_status tt_shm_recv(tt_comm *c, int from, void *buf, int64_t bytes, tt_error *err);

#endif
