/* SPDX-License-Identifier: Apache-2.0 */
#include "box.h"

/* Kernels that only move elements: reshape, shape_transpose, slice, concat, roll, broadcast, each as copies of
 * boxes. */

static void strides_of(const tt_tensor *x, int64_t *stride)
{
    int64_t n = 1;
    for (int d = x->n_dims - 1; d >= 0; d--) {
        stride[d] = n;
        n *= x->shape[d];
    }
}

static int dim_of(const tt_tensor *t, int dim)
{
    return dim < 0 ? dim + t->n_dims : dim;
}

/* A copy of n rows of dim `dim`, from row `at` of x on, to row `to` of y. x->data NULL: zeros. x and y have
 * equal sizes in the other dims; of zeros x is y's shape. */
static tt_status copy_rows(cuda_backend *b, const tt_kernel_call *c, const tt_tensor *x, int64_t at,
                           tt_tensor *y, int64_t to, int dim, int64_t n, tt_error *err)
{
    cuda_box box = {.from_dtype = x->dtype, .to_dtype = y->dtype, .n_dims = y->n_dims};
    strides_of(x, box.from_stride);
    strides_of(y, box.to_stride);
    for (int d = 0; d < y->n_dims; d++)
        box.size[d] = d == dim ? n : y->shape[d];
    box.to = (char *)y->data + to * box.to_stride[dim] * (int64_t)tt_dtype_size(y->dtype);
    if (x->data)
        box.from =
            (const char *)x->data + at * box.from_stride[dim] * (int64_t)tt_dtype_size(x->dtype);
    return cuda_box_copy(b, c->queue, &box, err);
}

static tt_status zero_rows(cuda_backend *b, const tt_kernel_call *c, tt_tensor *y, int64_t to,
                           int dim, int64_t n, tt_error *err)
{
    tt_tensor none = *y;
    none.data = NULL;
    return copy_rows(b, c, &none, 0, y, to, dim, n, err);
}

static tt_status reshape(void *backend, const tt_kernel_call *c, tt_error *err)
{
    return cuda_copy(backend, c->queue, c->out[0].data, c->in[0].data,
                     (size_t)tt_tensor_numel(&c->in[0]) * tt_dtype_size(c->in[0].dtype), err);
}

static tt_status broadcast(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const tt_tensor *x = &c->in[0], *y = &c->out[0];
    cuda_box box = {.from = x->data,
                    .to = y->data,
                    .from_dtype = x->dtype,
                    .to_dtype = y->dtype,
                    .n_dims = y->n_dims};
    int64_t own[TT_MAX_DIMS];
    strides_of(x, own);
    strides_of(y, box.to_stride);
    for (int d = 0; d < y->n_dims; d++) {
        const int e = d - (y->n_dims - x->n_dims);
        box.size[d] = y->shape[d];
        box.from_stride[d] = e < 0 || x->shape[e] == 1 ? 0 : own[e];
    }
    return cuda_box_copy(backend, c->queue, &box, err);
}

static tt_status shape_transpose(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const tt_attrs_perm *a = c->attrs;
    const tt_tensor *x = &c->in[0], *y = &c->out[0];
    cuda_box box = {.from = x->data,
                    .to = y->data,
                    .from_dtype = x->dtype,
                    .to_dtype = y->dtype,
                    .n_dims = y->n_dims};
    int64_t own[TT_MAX_DIMS];
    strides_of(x, own);
    strides_of(y, box.to_stride);
    for (int d = 0; d < y->n_dims; d++) {
        box.size[d] = y->shape[d];
        box.from_stride[d] = own[a->perm[d]];
    }
    return cuda_box_copy(backend, c->queue, &box, err);
}

static tt_status slice(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const tt_attrs_slice *a = c->attrs;
    return copy_rows(backend, c, &c->in[0], a->begin, &c->out[0], 0, dim_of(&c->in[0], a->dim),
                     a->end - a->begin, err);
}

static tt_status slice_bwd(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const tt_attrs_slice *a = c->attrs;
    tt_tensor *y = &c->out[0];
    const int dim = dim_of(y, a->dim);
    TT_TRY(zero_rows(backend, c, y, 0, dim, a->begin, err));
    TT_TRY(copy_rows(backend, c, &c->in[0], 0, y, a->begin, dim, a->end - a->begin, err));
    return zero_rows(backend, c, y, a->end, dim, y->shape[dim] - a->end, err);
}

static tt_status concat(void *backend, const tt_kernel_call *c, tt_error *err)
{
    tt_tensor *y = &c->out[0];
    const int dim = dim_of(y, ((const tt_attrs_concat *)c->attrs)->dim);
    int64_t at = 0;
    for (int k = 0; k < c->n_in; k++) {
        const int64_t n = c->in[k].shape[dim];
        TT_TRY(copy_rows(backend, c, &c->in[k], 0, y, at, dim, n, err));
        at += n;
    }
    return TT_OK;
}

/* Row j goes to row (j + shift) mod n. */
static tt_status roll(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const tt_attrs_roll *a = c->attrs;
    const tt_tensor *x = &c->in[0];
    const int dim = dim_of(x, a->dim);
    const int64_t n = x->shape[dim];
    if (n == 0)
        return TT_OK;
    TT_TRY(copy_rows(backend, c, x, 0, &c->out[0], a->shift, dim, n - a->shift, err));
    return copy_rows(backend, c, x, n - a->shift, &c->out[0], 0, dim, a->shift, err);
}

#define MOVE(op_, run_, in_place_)                                                                 \
    {                                                                                              \
        .struct_size = sizeof(tt_kernel), .op = op_, .run = run_, .in_place = in_place_            \
    }
const tt_kernel cuda_kernels_shape[] = {
    MOVE("broadcast", broadcast, 0),
    MOVE("reshape", reshape, 1),
    MOVE("transpose", shape_transpose, 0),
    MOVE("slice", slice, 0),
    MOVE("slice_bwd", slice_bwd, 0),
    MOVE("concat", concat, 0),
    MOVE("roll", roll, 0),
    {0},
};
