/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CONVERT_H
#define TT_CONVERT_H
#include "base/base.h"

/* Dtypes of safetensors, in the reference's order (which is also its order in files, last first). */

typedef struct tt_st_dtype {
    const char *name; /* "BF16" */
    int bits;         /* an element */
    tt_dtype dtype;   /* TT_N_DTYPES where tt_dtype has no value for it */
} tt_st_dtype;
const tt_st_dtype *
tt_st_dtype_by_name(const char *name); /* NULL = unknown; pointers compare as the order does */
const tt_st_dtype *tt_st_dtype_of(tt_dtype dtype); /* NULL = out of range */
/* Bytes of a tensor; false on overflow, a negative size, or a part of a byte. */
bool tt_st_bytes(const tt_st_dtype *t, const int64_t *shape, int n_dims, size_t *bytes);
/* F32, BF16, F16 and F64 convert into each other, every dtype into itself. */
bool tt_can_convert(tt_dtype to, tt_dtype from);
/* n elements, either side unaligned; rounds to nearest even, f64 by way of f32 to the 16-bit ones
 * (as PyTorch does). */
void tt_convert(void *to, tt_dtype to_dtype, const void *from, tt_dtype from_dtype, size_t n);

#endif
