/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SAFETENSORS_H
#define TT_SAFETENSORS_H
#include "base/base.h"

/* safetensors files: read by mmap with every check of the reference, written byte-identical to the
 * reference writer. Source: huggingface/safetensors; DCP's HuggingFaceStorage metadata
 * (torch/distributed/checkpoint/hf_storage.py). */

typedef struct tt_st_tensor {
    const char *name;
    tt_dtype dtype;
    const char *dtype_name; /* "F32", also for dtypes tt_dtype has no value for (then dtype is
                               TT_N_DTYPES) */
    int n_dims;
    int64_t shape[8];
    int64_t offset[8]; /* DCP saved_offsets of this shard in the global tensor; zeros without DCP
                          metadata */
    const void *data;  /* into the mapping, may be unaligned */
    size_t bytes;
} tt_st_tensor;

typedef struct tt_st_file {
    const char *path;
    size_t n_tensors;
    tt_st_tensor *tensors; /* header order */
    size_t n_metadata;
    const char **metadata_keys, **metadata_values;
    tt_mapping map;
} tt_st_file;

tt_status tt_st_open(const char *path, tt_arena *a, tt_st_file *out, tt_error *err);
/* The same over bytes in memory, which must outlive out; path is for errors. out->map stays empty.
 */
tt_status tt_st_parse(const char *path, const uint8_t *bytes, size_t n, tt_arena *a,
                      tt_st_file *out, tt_error *err);
void tt_st_close(tt_st_file *f);
const tt_st_tensor *tt_st_find(const tt_st_file *f, const char *name);

/* Write a file: tensors sorted as the reference does (dtype descending, then name), header padded
 * to 8. with_offsets adds DCP_SHARDING_INFO, DCP_VERSION and format to __metadata__. Streams;
 * fsyncs. hash (33 bytes) may be NULL. */
tt_status tt_st_write(const char *path, const tt_st_tensor *tensors, size_t n, bool with_offsets,
                      const char *const *metadata_keys, const char *const *metadata_values,
                      size_t n_metadata, char *hash, tt_error *err);

#endif
