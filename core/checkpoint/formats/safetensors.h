/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SAFETENSORS_H
#define TT_SAFETENSORS_H
#include "base/base.h"

/* Reads safetensors files by mmap with every check that the reference implementation makes, and
 * writes files whose bytes equal those of its writer. Source: huggingface/safetensors; for the DCP
 * metadata HuggingFaceStorage (torch/distributed/checkpoint/hf_storage.py). */

#define TT_ST_MAX_DIMS 8

typedef struct tt_st_tensor {
    const char *name;
    tt_dtype dtype;
    const char *dtype_name; /* "F32"; also set for dtypes that tt_dtype lacks, whose `dtype` is
                               TT_N_DTYPES */
    int n_dims;
    int64_t shape[TT_ST_MAX_DIMS];
    int64_t offset
        [TT_ST_MAX_DIMS]; /* DCP saved_offsets of this shard in the global tensor; zeros without DCP
                          metadata */
    const void *data;     /* points into the mapping; may be unaligned */
    size_t bytes;
} tt_st_tensor;

typedef struct tt_st_file {
    const char *path;
    size_t n_tensors;
    tt_st_tensor *tensors; /* in the header's order */
    size_t n_metadata;
    const char **metadata_keys, **metadata_values;
    tt_mapping map;
    void *copies; /* memory of tensors that are not in the mapping; NULL: none */
} tt_st_file;

tt_status tt_st_open(const char *path, tt_arena *a, tt_st_file *out, tt_error *err);
/* Parses bytes in memory, which must outlive `out`. path is used in errors; out->map stays empty.
 */
tt_status tt_st_parse(const char *path, const uint8_t *bytes, size_t n, tt_arena *a,
                      tt_st_file *out, tt_error *err);
void tt_st_close(tt_st_file *f);
const tt_st_tensor *tt_st_find(const tt_st_file *f, const char *name);

/* Writes a file. Tensors are sorted as the reference does: by dtype, descending, then by name; the
 * header is padded to a multiple of 8 bytes. with_offsets adds DCP_SHARDING_INFO, DCP_VERSION and
 * format to __metadata__. The data is written in blocks, and the file is synced. hash (33 bytes,
 * may be NULL) receives the file's hash. */
tt_status tt_st_write(const char *path, const tt_st_tensor *tensors, size_t n, bool with_offsets,
                      const char *const *metadata_keys, const char *const *metadata_values,
                      size_t n_metadata, char *hash, tt_error *err);

#endif
