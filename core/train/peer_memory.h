/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PEER_MEMORY_H
#define TT_PEER_MEMORY_H
#include "checkpoint/checkpoint.h"
#include <stdatomic.h>

/* The memory of one rank's copies, a memfd: a page that begins with tt_peer_head, then TT_PEER_SLOTS copies of
 * `bytes` each, which begin with an index (peer_index.h). A rank fills it, and its supervisor owns it. With --nnodes the supervisor sends each copy to
 * another node; then a rank does not begin a copy while the newest whole one is not there yet. */

#define TT_PEER_MAGIC UINT64_C(0x7474727565657234) /* changes with the layout of tt_peer_head */
#define TT_PEER_PAGE ((int64_t)4096)
#define TT_PEER_SLOTS 2

typedef struct tt_peer_state {
    tt_trainer_state st; /* its strings are NULL: they are the job's, but for these two; "": NULL */
    char frozen_from[1024], initial_identity[24];
} tt_peer_state;

typedef struct tt_peer_slot {
    _Atomic int64_t step; /* -1: no whole copy */
    uint64_t check;       /* of its bytes, of its state and of the layout */
    tt_peer_state state;
} tt_peer_slot;

typedef struct tt_peer_head {
    _Atomic uint64_t magic;
    uint64_t layout; /* of the job, the mesh, the rank and its tensors */
    int64_t bytes;   /* of a copy, whole pages */
    tt_peer_slot slots[TT_PEER_SLOTS];
    /* Of the supervisor: */
    _Atomic int32_t gated; /* it sends copies to another node */
    _Atomic int64_t sent;  /* the step of the copy that this node has got last; -1: none */
    _Atomic int64_t
        skipped; /* by the rank: copies that were not made because the one before was on its way */
} tt_peer_head;
_Static_assert(sizeof(tt_peer_head) <= 4096, "a page");

static inline int64_t tt_peer_pages(int64_t bytes) /* in whole pages */
{
    return (bytes + TT_PEER_PAGE - 1) / TT_PEER_PAGE * TT_PEER_PAGE;
}

static inline int64_t tt_peer_size(int64_t bytes)
{
    return TT_PEER_PAGE + TT_PEER_SLOTS * bytes;
}

/* Sets the size of the memory. The limit on file sizes (ulimit -f) is no limit here. */
bool tt_peer_set_size(int fd, int64_t size);
/* The first page, which stays valid whatever else is done to the memory; NULL: there is none. It need not have
 * TT_PEER_MAGIC yet. */
tt_peer_head *tt_peer_map_head(int fd);
void tt_peer_unmap_head(tt_peer_head *h); /* NULL: nothing */
/* Makes an empty memory of this layout of what fd is; only while no rank uses it. */
bool tt_peer_prepare(int fd, tt_peer_head *h, uint64_t layout, int64_t bytes);
/* A path that is too long is left out. */
void tt_peer_state_write(const tt_trainer_state *st, tt_peer_state *to);
void tt_peer_state_read(const tt_peer_state *from, tt_arena *a, tt_trainer_state *out);
/* The checksum of a copy whose bytes are at data. */
uint64_t tt_peer_check(const tt_peer_head *h, int slot, const void *data);
int64_t tt_peer_newest_of(const tt_peer_head *h); /* a whole copy's step; -1: there is none */
int tt_peer_slot_of(const tt_peer_head *h, int64_t step); /* -1: there is none */
/* Copies of later steps are no copies any more; of a rank that goes on from this step. */
void tt_peer_drop_after(tt_peer_head *h, int64_t step);

#endif
