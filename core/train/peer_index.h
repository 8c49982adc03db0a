/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PEER_INDEX_H
#define TT_PEER_INDEX_H
#include "checkpoint/checkpoint.h"

/* A copy of a rank's states begins with an index: the names, shapes and boxes of its tensors. So ranks of another mesh
 * take what they need from the copies of all ranks, by the same matching as from a checkpoint. */

typedef struct tt_peer_index {
    uint64_t job;  /* of what is trained: equal for all meshes */
    uint64_t mesh; /* of the copies that belong together */
    int32_t rank, world;
    int64_t
        bytes; /* of the index, whole pages; the tensors' data follows, in the order of the index */
    int64_t n; /* tensors */
} tt_peer_index;

/* The bytes of the index of n tensors; names: of their names, each with its final 0. */
int64_t tt_peer_index_bytes(int64_t n, int64_t names);
/* The same of these pieces. */
int64_t tt_peer_index_size(const tt_ckpt_piece *p, size_t n);
/* Writes so many bytes; job, mesh, rank and world of `of`. */
void tt_peer_index_write(const tt_peer_index *of, const tt_ckpt_piece *p, size_t n, void *to);
/* Reads a copy of n bytes: its pieces, with data in it. False: it has no valid index. */
bool tt_peer_index_read(const void *copy, int64_t n, tt_arena *a, tt_peer_index *out,
                        tt_ckpt_piece **pieces);
int64_t tt_peer_piece_bytes(const tt_ckpt_piece *p);

#endif
