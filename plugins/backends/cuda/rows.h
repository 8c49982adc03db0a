/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_BACKEND_CUDA_ROWS_H
#define TT_BACKEND_CUDA_ROWS_H
#include "cuda.h"

/* What the launchers over rows share: norm.c, softmax.c, reduce.c, rope.c, index.c, experts.c, dispatch.c,
 * scan.c. */

#define CUDA_THREADS 256   /* of every kernel of these files, if not said otherwise */
#define CUDA_ROOM 128      /* bytes of shared memory for a block's sums */
#define CUDA_WARP_ROW 1024 /* a row of at most so many elements is a warp's, else a block's */
#define CUDA_CACHE 49152   /* bytes of shared memory that hold rows between passes */

/* The kernels of f32 and bf16. */
#define CUDA_PAIR(file, name)                                                                      \
    {                                                                                              \
        CUDA_KERNEL(file, name "_f32"), CUDA_KERNEL(file, name "_bf16")                            \
    }
#define CUDA_ROW(op_, run_, scratch_, add_, place_, supports_)                                     \
    {                                                                                              \
        .struct_size = sizeof(tt_kernel), .op = op_, .run = run_, .scratch_bytes = scratch_,       \
        .can_accumulate = add_, .in_place = place_, .supports = supports_                          \
    }

static inline int64_t cuda_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static inline int64_t cuda_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
static inline int64_t cuda_ceil(int64_t n, int64_t by)
{
    return n / by + (n % by != 0);
}
static inline size_t cuda_align(size_t n) /* of parts of scratch */
{
    return (n + 255) / 256 * 256;
}
static inline int cuda_half(const tt_tensor *t)
{
    return t->dtype == TT_BF16;
}
static inline int64_t cuda_width(const tt_tensor *t) /* of the last dim */
{
    return t->n_dims > 0 ? t->shape[t->n_dims - 1] : 1;
}
static inline int64_t cuda_rows(const tt_tensor *t)
{
    const int64_t n = cuda_width(t);
    return n > 0 ? tt_tensor_numel(t) / n : 0;
}
static inline int64_t cuda_row_size(const tt_tensor *t) /* elements behind the first dim */
{
    int64_t n = 1;
    for (int d = 1; d < t->n_dims; d++)
        n *= t->shape[d];
    return n;
}
/* t as [outer, n, inner] around dim. */
typedef struct cuda_split {
    int64_t outer, n, inner;
} cuda_split;
static inline cuda_split cuda_split_of(const tt_tensor *t, int dim)
{
    cuda_split s = {1, 1, 1};
    const int at = dim < 0 ? dim + t->n_dims : dim;
    for (int d = 0; d < t->n_dims; d++)
        *(d < at ? &s.outer : d == at ? &s.n : &s.inner) *= t->shape[d];
    return s;
}
/* Whether rows of n elements of this dtype may be read in accesses of 16 bytes. */
static inline int cuda_is_wide(const tt_tensor *t, int64_t n)
{
    return n % (16 / (int64_t)tt_dtype_size(t->dtype)) == 0 && cuda_alignment_of(t->data, 16) == 16;
}
/* Kernels that have a group of threads for each row count a row's elements in 31 bits. */
static inline tt_status cuda_row_fits(const tt_kernel_call *c, int64_t n, tt_error *err)
{
    if (n > INT32_MAX - 8 * CUDA_THREADS)
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "cuda: %s: a row of %lld elements is too long; split the dim in the model",
                       c->op, (long long)n);
    return TT_OK;
}
/* `supports` of an op whose floating operands may each be f32 or bf16. */
static inline int cuda_floats(const tt_kernel_call *c)
{
    for (int i = 0; i < c->n_in; i++)
        if (tt_dtype_is_float(c->in[i].dtype) && cuda_float_index(c->in[i].dtype) < 0)
            return 0;
    for (int i = 0; i < c->n_out; i++)
        if (tt_dtype_is_float(c->out[i].dtype) && cuda_float_index(c->out[i].dtype) < 0)
            return 0;
    return 1;
}

/* reduce.c: out f32 [n] = Σ over tiles of partial f32 [tiles, ld], from element 0. */
tt_status cuda_column_sum(cuda_backend *b, tt_device_queue *q, const void *partial, int64_t tiles,
                          int64_t n, int64_t ld, void *out, tt_error *err);

/* sort.c: sorts each of `rows` rows of n different 64-bit keys in ascending order. keys has
 * cuda_sort_bytes, aligned to 8; *sorted is where they are then, in it. */
size_t cuda_sort_bytes(int64_t rows, int64_t n);
tt_status cuda_sort(cuda_backend *b, tt_device_queue *q, void *keys, int64_t rows, int64_t n,
                    const void **sorted, tt_error *err);

/* index.c: row i of c's first result = row index[i] - first of the table's `rows` rows, zeros where it has no
 * such row. index: i32 [n] on the device. */
tt_status cuda_read_rows(void *self, const tt_kernel_call *c, const tt_tensor *table, int64_t rows,
                         const void *index, int64_t n, int64_t first, tt_error *err);

/* conv.c; the rows are in scan.c. */
tt_status cuda_conv1d(void *self, const tt_kernel_call *c, tt_error *err);
tt_status cuda_conv1d_bwd(void *self, const tt_kernel_call *c, tt_error *err);
tt_status cuda_conv1d_cached(void *self, const tt_kernel_call *c, tt_error *err);
size_t cuda_conv1d_bwd_scratch(const tt_kernel_call *c, int n_threads);

#endif
