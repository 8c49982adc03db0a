/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_TENSOR_H
#define TTRUN_TENSOR_H
#include <stddef.h>
#include <stdint.h>
#include <ttrun/status.h>

/* dtypes, labelled dims of the graph, and the local tensors kernels see. */

#ifdef __cplusplus
extern "C" {
#endif

#define TT_MAX_DIMS 6

/* Values are part of the ABI; append only. */
typedef enum tt_dtype {
    TT_F32 = 0,
    TT_BF16 = 1,
    TT_F16 = 2,
    TT_F64 = 3,
    TT_I32 = 4,
    TT_I64 = 5,
    TT_U8 = 6,
    TT_BOOL = 7, /* one byte, 0 or 1 */
    TT_N_DTYPES
} tt_dtype;

TT_EXPORT size_t tt_dtype_size(tt_dtype t);      /* bytes an element                    */
TT_EXPORT const char *tt_dtype_name(tt_dtype t); /* "f32", "bf16", … as printed in graphs */

/* tt_dim: one dim of a global tensor.
 *   label  a dim's meaning ("embed", "heads", "tokens"; NULL = none), looked up in the table
 *          label → mesh axes. A string literal or one that outlives the graph.
 *   unit   cuts fall on multiples of it ("heads" of head_dim elements); 1 = anywhere.
 *   lines  exact outer blocks (the lines of a token dim); 1 = none.
 * Frozen: crosses the border by value; grows through `reserved` only. Always build it with
 * TT_DIM…(). */
typedef struct tt_dim {
    int64_t size;
    const char *label;
    int64_t unit;
    int64_t lines;
    int64_t reserved[2];
} tt_dim;

static inline tt_dim tt_dim_make(int64_t size, const char *label, int64_t unit, int64_t lines)
{
    tt_dim d;
    d.size = size;
    d.label = label;
    d.unit = unit;
    d.lines = lines;
    d.reserved[0] = d.reserved[1] = 0;
    return d;
}
#define TT_DIM(size, label) tt_dim_make((size), (label), 1, 1)
#define TT_DIM_UNIT(size, label, unit) tt_dim_make((size), (label), (unit), 1)

/* tt_tensor: what a kernel sees. Row-major, contiguous, exactly this rank's box: no padding lanes.
 *   data    16-byte aligned at least, 64 from the planner
 *   shape   local extents, any may be 0
 *   begin   global index of element 0 in each dim
 *   global  extents of the whole tensor */
typedef struct tt_tensor {
    void *data;
    tt_dtype dtype;
    int32_t n_dims; /* 0 = scalar, one element */
    int64_t shape[TT_MAX_DIMS];
    int64_t begin[TT_MAX_DIMS];
    int64_t global[TT_MAX_DIMS];
} tt_tensor;

static inline int64_t tt_tensor_numel(const tt_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->n_dims; i++)
        n *= t->shape[i];
    return n;
}

#ifdef __cplusplus
}
#endif
#endif
