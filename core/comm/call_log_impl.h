/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CALL_LOG_IMPL_H
#define TT_CALL_LOG_IMPL_H
#include "comm/call_log.h"
#include <pthread.h>
#include <stdatomic.h>

/* The memory of a call log: no pointers, since each process maps it at another address. */

#define TT_CALL_GROUPS 64  /* of a ring; calls of further groups are not logged */
#define TT_CALL_RANKS 4096 /* of the groups of a ring together; a group beyond has no list */
#define TT_CALL_NAME 80

typedef struct tt_call_what {
    uint64_t in_group; /* number of the collective among those of its group; 0: a message */
    int64_t step;
    int64_t begun_ns; /* on the clock of tt_now_ns() */
    int64_t bytes;    /* of what this rank sends, of an all_reduce its buffer */
    int32_t group, doing;
    int32_t peer;  /* a rank of the world, of a message; -1 */
    int32_t dtype; /* -1: bytes */
    char name[TT_CALL_NAME];
} tt_call_what;
#define TT_CALL_WORDS (sizeof(tt_call_what) / 8)
_Static_assert(sizeof(tt_call_what) % 8 == 0, "copied word by word");

typedef struct tt_call_entry { /* read while it may be written anew */
    _Atomic uint64_t
        number; /* counted from 1 on this rank; 0: the entry is empty or being written */
    _Atomic int64_t ended_ns; /* 0: not yet */
    _Atomic int32_t status;
    _Atomic uint64_t what[TT_CALL_WORDS]; /* a tt_call_what */
} tt_call_entry;

typedef struct tt_call_group {
    uint64_t key;
    int32_t n, first;         /* ranks[first …]; first -1: no list, or every rank */
    _Atomic uint64_t n_begun; /* collectives */
} tt_call_group;

typedef struct tt_call_ring {
    _Alignas(64) _Atomic uint64_t n; /* calls that were begun */
    _Atomic int64_t step;
    _Atomic int32_t rank, world;
    _Atomic int64_t process;  /* 0: the rank has not come */
    _Atomic int32_t n_groups; /* a group is complete when it is counted */
    int32_t n_ranks;
    tt_call_group groups[TT_CALL_GROUPS];
    int32_t ranks[TT_CALL_RANKS];
    tt_call_entry entries[];
} tt_call_ring;

struct tt_call_log {
    tt_call_log_opts o;
    tt_session *session;
    char *rings; /* ring i at i * ring_bytes */
    size_t ring_bytes;
    _Atomic uint32_t *dumped; /* of the machine: 0, 1 while files are written, 2 */
    _Atomic uint32_t own;     /* of threads */
    pthread_mutex_t
        groups; /* of a ring of threads or of the process: guards the making of groups */
};

static inline tt_call_ring *tt_call_ring_of(const tt_call_log *log, int local)
{
    return (tt_call_ring *)(void *)(log->rings + (size_t)local * log->ring_bytes);
}

/* call_dump.c: "rank 1 is behind: …"; nothing if no rank of this machine is. */
void tt_call_log_behind(const tt_call_log *log, tt_str *out);
tt_status tt_call_log_write(const tt_call_log *log, const char *why, tt_error *err);

#endif
