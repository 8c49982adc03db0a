/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_DCP_H
#define TT_DCP_H
#include "checkpoint/checkpoint.h"

/* torch.distributed.checkpoint's own format: `.metadata`, a pickle that lists tensors, their chunks and
 * where those lie, and files `__R_N.distcp` of rank R, in which each item is a file of torch.save. The
 * pickles are read by pickle.h, which runs nothing. Source: torch/distributed/checkpoint/metadata.py,
 * filesystem.py (torch 2.15). */

#define TT_DCP_METADATA ".metadata"

/* A chunk of a tensor, or a value that is no tensor. */
typedef struct tt_dcp_item {
    const char *name; /* of the tensor or value, "optimizer.state.<param>.exp_avg" */
    const char *file; /* in the folder */
    int64_t at, bytes;
    bool is_value;
    int n_dims;
    int64_t begin[8], size[8]; /* the chunk's place in the tensor */
} tt_dcp_item;

typedef struct tt_dcp {
    TT_VEC(tt_ckpt_tensor) tensors; /* in the order of .metadata */
    TT_VEC(tt_dcp_item) items;
} tt_dcp;

/* Reads a .metadata file in memory. Refuses chunks that leave their tensor, items of tensors that are not
 * listed, transforms (compressed items), and paths that leave the folder. */
tt_status tt_dcp_parse(const char *path, const uint8_t *bytes, size_t n, tt_arena *a, tt_dcp *out,
                       tt_error *err);

#endif
