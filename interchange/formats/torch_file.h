/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TORCH_FILE_H
#define TT_TORCH_FILE_H
#include "checkpoint/formats/safetensors.h"
#include "interchange/formats/pickle.h"

/* Reads what torch.save writes of a dict of tensors (pytorch_model.bin), a zip file with a pickle and the
 * bytes of storages, without running the pickle (pickle.h). Source: torch/serialization.py,
 * torch/_utils.py. */

/* An entry of a zip file whose bytes are stored as they are. */
typedef struct tt_zip_entry {
    const char *name;
    const uint8_t *data;
    size_t bytes;
    size_t begin, end; /* in the file, with its local header */
} tt_zip_entry;

/* torch_zip.c: reads the directory of a zip file in memory. Refuses compressed, encrypted and overlapping
 * entries and those that leave the file, and two of one name. zip64. */
tt_status tt_zip_parse(const char *path, const uint8_t *bytes, size_t n, tt_arena *a,
                       tt_zip_entry **out, size_t *n_out, tt_error *err);

/* The tensors of a file, as tt_st_open() gives those of a safetensors file; close it with tt_st_close().
 * Tensors that are not contiguous are copied. tt_torch_parse: as tt_st_parse(). */
tt_status tt_torch_open(const char *path, tt_arena *a, tt_st_file *out, tt_error *err);
tt_status tt_torch_parse(const char *path, const uint8_t *bytes, size_t n, tt_arena *a,
                         tt_st_file *out, tt_error *err);
/* A file of torch.save that holds one tensor, as the items of torch.distributed.checkpoint do; it gets
 * `name`. path and name must outlive `out`. */
tt_status tt_torch_parse_tensor(const char *path, const char *name, const uint8_t *bytes, size_t n,
                                tt_arena *a, tt_st_file *out, tt_error *err);
/* A file of torch.save that holds numbers, texts or containers of them. */
tt_status tt_torch_parse_value(const char *path, const uint8_t *bytes, size_t n, tt_arena *a,
                               const tt_pickle_value **out, tt_error *err);
/* "FloatStorage" or "float32" → "F32"; NULL: none of torch's dtypes. */
const char *tt_torch_dtype_name(const char *global);

#endif
