/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_TENSOR_H
#define TTRUN_TENSOR_H
#include <stddef.h>
#include <stdint.h>
#include <ttrun/status.h>

/* dtypes, labelled dims of the graph's values, and the local tensors that kernels receive. */

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
    TT_BOOL = 7,   /* one byte, 0 or 1 */
    TT_F8E4M3 = 8, /* OCP e4m3fn: finite up to 448, no infinity. One byte; casts to it saturate */
    TT_F8E5M2 = 9, /* OCP e5m2: finite up to 57344. One byte; casts to it saturate */
    TT_N_DTYPES
} tt_dtype;

/* All [any-thread]; a value that this core does not know gives 0, "?", 0 and itself. */
TT_EXPORT size_t tt_dtype_size(tt_dtype t);      /* bytes per element                     */
TT_EXPORT const char *tt_dtype_name(tt_dtype t); /* "f32", "bf16", … as printed in graphs */
TT_EXPORT int tt_dtype_is_float(tt_dtype t);     /* 1: floating point, of any width       */
/* 1: a float8, which holds numbers and computes nothing: ops that compute refuse it, casts, copies and
 * reshapes take it. */
static inline int tt_dtype_is_float8(tt_dtype t)
{
    return t == TT_F8E4M3 || t == TT_F8E5M2;
}
/* The dtype in which values of t are summed and their gradients are kept: f64 for f64, f32 for all
 * narrower floats, t itself for integers. */
TT_EXPORT tt_dtype tt_dtype_accumulate(tt_dtype t);

/* tt_dim: one dim of a global tensor.
 *   size   elements
 *   label  the dim's meaning ("embed", "heads", "tokens"; NULL = none); a table maps it to mesh
 *          axes. A string literal, or a string that outlives the graph.
 *   unit   shards begin at multiples of it ("heads" of head_dim elements); 1 = anywhere
 *   lines  equal outer blocks of the dim: a token dim holds this many sequences; 1 = no blocks
 * Frozen: it is passed by value between core and plugins and grows through `reserved` only. Always
 * build it with TT_DIM…(). */
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

/* tt_tensor: an operand of a kernel. Row-major and contiguous; it holds exactly this rank's box of
 * the global tensor, without padding.
 *   data    aligned to 64 bytes, or to what the backend asks; parts of a tensor (chunks of rows, pieces
 *           of asynchronous TP) to one element only. The core owns it
 *   shape   local sizes; any may be 0
 *   begin   global index of element 0 in each dim
 *   global  sizes of the whole tensor */
typedef struct tt_tensor {
    void *data;
    tt_dtype dtype;
    int32_t n_dims; /* 0 = scalar, one element */
    int64_t shape[TT_MAX_DIMS];
    int64_t begin[TT_MAX_DIMS];
    int64_t global[TT_MAX_DIMS];
} tt_tensor;

/* The number of local elements. [any-thread] */
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
