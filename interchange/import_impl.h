/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_IMPORT_IMPL_H
#define TT_IMPORT_IMPL_H
#include "interchange/import.h"
#include "interchange/interchange_impl.h"

/* Shared by import.c and import_dcp.c. */

/* A tensor of a step folder that is made from one of the other program's folder. */
typedef struct tt_import_tensor {
    const char *name, *there;
    int n_dims;
    int64_t dims[TT_MAX_DIMS];
    tt_layout layout; /* of the tensor there */
} tt_import_tensor;

typedef struct import {
    const tt_setup *s;
    const char *folder;
    tt_import_from from;
    bool is_meta_release;
    tt_arena *arena;
    tt_ckpt_reader *reader;     /* NULL for Hugging Face */
    const tt_name_table *names; /* the names of the folder; NULL: ours */
    const char *prefix;         /* before every parameter's name there */
    const char *states;         /* before every optimizer state's name there; NULL: it has none */
    const tt_hf_param *params;
    size_t n;
    TT_VEC(tt_import_tensor) tensors; /* the parameters in their order, then optimizer states */
    size_t n_taken, n_left; /* tensors of the folder; n_taken 0: one for each of tensors */
} import;

/* Opens a folder of torch.distributed.checkpoint, and finds which names and which prefix it has. */
tt_status tt_import_open_dcp(import *im, tt_error *err);
/* Adds the folder's optimizer states to im->tensors, which has the parameters. */
tt_status tt_import_list_states(import *im, tt_error *err);
/* Adds to `used` the folder's vectors that the model has not and that change nothing if they are zero; warns if one is
 * not. */
tt_status tt_import_take_zeros(const import *im, tt_map *used, tt_error *err);
/* Fills step, tokens_seen and samples_seen from the folder, if it has optimizer states. */
tt_status tt_import_progress(const import *im, tt_trainer_state *state, tt_error *err);

#endif
