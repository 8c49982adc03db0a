/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CHECKPOINT_HF_H
#define TT_CHECKPOINT_HF_H
#include "checkpoint/checkpoint.h"
#include <ttrun/param.h>

/* Weights in Hugging Face's form: model.safetensors, or shards and their index. Parameters lie in
 * file tensors by their storage maps (rule R14); without one a parameter is the tensor of its name.
 */

typedef struct tt_hf_param {
    const char *name;
    int n_dims;
    int64_t dims[TT_MAX_DIMS];
    const tt_storage *storage;
    size_t n_storage;
} tt_hf_param;

/* One storage entry made whole: rows [begin, begin+size) of dim 0 lie at file_begin. */
typedef struct tt_hf_part {
    const tt_hf_param *param;
    int64_t begin, size, file_begin;
    bool transpose; /* of a matrix */
} tt_hf_part;

typedef struct tt_hf_tensor { /* a file tensor */
    const char *name;
    int n_dims;
    int64_t shape[TT_MAX_DIMS];
    TT_VEC(tt_hf_part) parts;
} tt_hf_tensor;

/* File tensors of all parameters of the model: name → tt_hf_tensor. */
tt_status tt_hf_layout(tt_arena *a, const tt_hf_param *params, size_t n, tt_map **out,
                       tt_error *err);

/* Fill pieces (of parameters, by name) from a Hugging Face folder. F32, BF16, F16, F64 convert.
 * prefix: what its names may lack ("transformer."), or NULL. report: log the tensors there that no
 * parameter has. */
tt_status tt_hf_load(const char *folder, const tt_hf_param *params, size_t n_params,
                     const char *prefix, const tt_ckpt_piece *pieces, size_t n, bool report,
                     tt_error *err);

#define TT_HF_SHARD_BYTES 5000000000 /* of one file, as Hugging Face's writer has it */
/* Write the weights of a step-N folder of ours into `folder` (which exists), f32. */
tt_status tt_hf_save(const char *step_folder, const tt_hf_param *params, size_t n_params,
                     int64_t shard_bytes, const char *folder, tt_error *err);
/* hf/step-N.tmp → hf/step-N, replacing a former one; hf/latest links it. */
tt_status tt_hf_publish(const char *hf_folder, int64_t step, tt_error *err);

#endif
