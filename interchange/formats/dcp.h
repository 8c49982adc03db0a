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

/* ---- dcp_open.c: such a folder as one of tt_ckpt_open's (checkpoint/reader.h) ---- */
tt_status tt_dcp_fill(tt_ckpt_reader *r, const void *unused, tt_error *err);
/* A number by its name: a tensor of one element, or what is kept beside tensors. *found false: there is none of this
 * name. The folder may have another format. */
tt_status tt_dcp_number(const tt_ckpt_reader *r, const char *name, double *out, bool *found,
                        tt_error *err);

/* ---- dcp_write.c: a folder that dcp.load and dcp_to_torch_save open; .metadata is written last. Tensors
 * are at the top, or in the flat dicts "optimizer", "train_state" and "lr_scheduler", as torchtitan has
 * them. Memory holds no data, only what .metadata says. ---- */
typedef struct tt_dcp_writer tt_dcp_writer;
typedef struct tt_dcp_tensor {
    const char *name;
    tt_dtype dtype;
    int n_dims;
    int64_t shape[TT_MAX_DIMS];
    const void *data; /* all of it */
} tt_dcp_tensor;

typedef enum tt_dcp_kind {
    TT_DCP_NONE,
    TT_DCP_BOOL,
    TT_DCP_INT,
    TT_DCP_REAL,
    TT_DCP_PAIR
} tt_dcp_kind;
typedef struct tt_dcp_value { /* a Python value that is no tensor */
    tt_dcp_kind kind;
    int64_t integer; /* of BOOL and INT */
    double real[2];  /* REAL: the first; PAIR: a tuple of both */
} tt_dcp_value;

tt_status tt_dcp_create(const char *folder, tt_dcp_writer **out, tt_error *err);
tt_status tt_dcp_put_tensor(tt_dcp_writer *w, const tt_dcp_tensor *t, tt_error *err);
tt_status tt_dcp_put_value(tt_dcp_writer *w, const char *name, const tt_dcp_value *v,
                           tt_error *err);
tt_status tt_dcp_finish(tt_dcp_writer *w, tt_error *err);
void tt_dcp_close(tt_dcp_writer *w);

#endif
