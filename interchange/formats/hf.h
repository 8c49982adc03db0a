/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_FORMATS_HF_H
#define TT_FORMATS_HF_H
#include "checkpoint/match.h"
#include <ttrun/param.h>

/* Weights in Hugging Face's format: model.safetensors, or shards and their index. A parameter's
 * storage map says in which file tensors it is stored (rule R14); a parameter without a map is
 * stored in the file tensor of the same name. */

typedef enum tt_hf_low {             /* how tt_hf_save writes matrices (hf_low.h) */
                         TT_HF_WIDE, /* in the dtype of the rest */
                         TT_HF_FP8,
                         TT_HF_FP8_ROW,
                         TT_HF_NVFP4
} tt_hf_low;

typedef struct tt_hf_param {
    const char *name;
    int n_dims;
    int64_t dims[TT_MAX_DIMS];
    const tt_storage *storage;
    size_t n_storage;
    /* A low-rank adapter that is added to the parameter: scale · b [rows,rank] · a [rank,cols]. */
    const char *adapter_a, *adapter_b; /* NULL: it has none */
    int64_t rank;
    double scale;
    const char *magnitude; /* the lengths of the sum's rows, [rows]; NULL: as they are */
    tt_hf_low low;
    bool vocab; /* its rows are tokens */
} tt_hf_param;

/* One entry of a storage map with its defaults filled in: rows [begin, begin + size) of the
 * parameter are the rows of the file tensor that start at file_begin. */
typedef struct tt_hf_part {
    const tt_hf_param *param;
    int64_t begin, size, file_begin;
    bool transpose; /* the file stores the matrix transposed */
    bool item;      /* the file tensor is one row, without dim 0 */
} tt_hf_part;

typedef struct tt_hf_tensor { /* a tensor of the files */
    const char *name;
    int n_dims;
    int64_t shape[TT_MAX_DIMS];
    TT_VEC(tt_hf_part) parts;
} tt_hf_tensor;

/* Returns the file tensors that hold the parameters: a map from name to tt_hf_tensor. */
tt_status tt_hf_layout(tt_arena *a, const tt_hf_param *params, size_t n, tt_map **out,
                       tt_error *err);

/* Whether the folder is a Hugging Face folder with weights, not a step folder of ttrun. */
bool tt_hf_has_weights(const char *folder);
/* Opens the weights: model.safetensors.index.json and its files, else model.safetensors, else the same of
 * pytorch_model.bin. */
tt_status tt_hf_open(const char *folder, tt_ckpt_reader **out, tt_error *err);
/* Fills pieces, which are named by parameter, from a Hugging Face folder. F32, BF16, F16 and F64
 * files are converted. prefix: the folder's names may lack it ("transformer."); NULL = none.
 * how: rules rename the tensors of the folder; report: log those that no parameter uses. */
tt_status tt_hf_load(const char *folder, const tt_hf_param *params, size_t n_params,
                     const char *prefix, const tt_ckpt_piece *pieces, size_t n,
                     const tt_ckpt_matching *how, tt_error *err);

#define TT_HF_SHARD_BYTES 5000000000 /* the most bytes per file, Hugging Face's default */
/* Writes weights of a step-N folder as dtype (f32, bf16, f16) into `folder`, which exists; those of parameters
 * that say so in 8 or 4 bits. *made, which may be NULL: how many tensors the files have. */
tt_status tt_hf_save(tt_ckpt_reader *from, const tt_hf_param *params, size_t n_params,
                     tt_dtype dtype, int64_t shard_bytes, const char *folder, size_t *made,
                     tt_error *err);

#endif
