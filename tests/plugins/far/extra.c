/* SPDX-License-Identifier: Apache-2.0 */
#include "far.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The three ops that every backend with a device has, on host addresses: device.h says what they
 * compute. */

/* ---- copy_box ---- */

/* Copies dims d and later of the box. */
static void far_box_rows(const tt_attrs_copy_box *a, int d, int64_t from, int64_t to,
                         const tt_tensor *in, const tt_tensor *out)
{
    const size_t size = tt_dtype_size(in->dtype);
    if (d >= a->n_dims - 1) {
        const int64_t n = a->n_dims ? a->size[d] : 1;
        memcpy((char *)out->data + (size_t)to * size, (const char *)in->data + (size_t)from * size,
               (size_t)n * size);
        return;
    }
    for (int64_t i = 0; i < a->size[d]; i++)
        far_box_rows(a, d + 1, from + i * a->from_stride[d], to + i * a->to_stride[d], in, out);
}

static bool far_box_empty(const tt_attrs_copy_box *a)
{
    for (int d = 0; d < a->n_dims; d++)
        if (a->size[d] <= 0)
            return true;
    return false;
}

static tt_status far_copy_box(void *backend, const tt_kernel_call *c, tt_error *err)
{
    (void)backend, (void)err;
    const tt_attrs_copy_box *a = c->attrs;
    if (!far_box_empty(a))
        far_box_rows(a, 0, a->from, a->to, &c->in[0], &c->out[0]);
    return TT_OK;
}

/* One past the last element of the box. */
static int64_t far_box_end(const tt_attrs_copy_box *a, int64_t at, const int64_t *stride)
{
    for (int d = 0; d < a->n_dims; d++)
        at += (a->size[d] - 1) * stride[d];
    return at + 1;
}

static tt_status far_check_box(const tt_kernel_call *c, tt_error *err)
{
    const tt_attrs_copy_box *a = c->attrs;
    if (c->n_in != 1 || c->n_out != 1 || c->in[0].dtype != c->out[0].dtype)
        return TT_FAIL(err, TT_EINVAL, "far: copy_box wants one input and one output of its dtype");
    if (a->n_dims < 0 || a->n_dims > TT_MAX_DIMS)
        return TT_FAIL(err, TT_EINVAL, "far: copy_box of %d dims", a->n_dims);
    if (a->n_dims && (a->from_stride[a->n_dims - 1] != 1 || a->to_stride[a->n_dims - 1] != 1))
        return TT_FAIL(err, TT_EINVAL, "far: copy_box: the last stride is not 1");
    if (far_box_empty(a))
        return TT_OK;
    for (int d = 0; d < a->n_dims; d++)
        if (a->from_stride[d] < 0 || a->to_stride[d] < 0)
            return TT_FAIL(err, TT_EINVAL, "far: copy_box: a negative stride in dim %d", d);
    const int64_t from = far_box_end(a, a->from, a->from_stride),
                  to = far_box_end(a, a->to, a->to_stride);
    if (a->from < 0 || a->to < 0 || from > tt_tensor_numel(&c->in[0]) ||
        to > tt_tensor_numel(&c->out[0]))
        return TT_FAIL(err, TT_EINVAL,
                       "far: copy_box of elements %lld to %lld of %lld to %lld to %lld of %lld",
                       (long long)a->from, (long long)from, (long long)tt_tensor_numel(&c->in[0]),
                       (long long)a->to, (long long)to, (long long)tt_tensor_numel(&c->out[0]));
    return TT_OK;
}

void far_box_span(const tt_kernel_call *c, far_range *in, far_range *out)
{
    const tt_attrs_copy_box *a = c->attrs;
    const int64_t size = (int64_t)tt_dtype_size(c->in[0].dtype);
    if (far_box_empty(a)) {
        in->bytes = out->bytes = 0;
        return;
    }
    in->at = (char *)c->in[0].data + a->from * size;
    in->bytes = (size_t)((far_box_end(a, a->from, a->from_stride) - a->from) * size);
    out->at = (char *)c->out[0].data + a->to * size;
    out->bytes = (size_t)((far_box_end(a, a->to, a->to_stride) - a->to) * size);
}

/* ---- reduce_members ---- */

static tt_status far_reduce_members(void *backend, const tt_kernel_call *c, tt_error *err)
{
    (void)backend;
    const tt_attrs_reduce_members *a = c->attrs;
    const void **xs = far_calloc((size_t)c->n_in, sizeof *xs);
    for (int i = 0; i < c->n_in; i++)
        xs[i] = c->in[i].data;
    const tt_status s = tt_reduce_members(c->out[0].data, xs, c->n_in, tt_tensor_numel(&c->out[0]),
                                          c->out[0].dtype, (tt_reduce)a->op, err);
    free(xs);
    return s;
}

static tt_status far_check_reduce(const tt_kernel_call *c, tt_error *err)
{
    const tt_attrs_reduce_members *a = c->attrs;
    if (c->n_in < 1 || c->n_out != 1)
        return TT_FAIL(err, TT_EINVAL, "far: reduce_members of %d inputs and %d outputs", c->n_in,
                       c->n_out);
    for (int i = 0; i < c->n_in; i++) {
        const tt_tensor *x = &c->in[i], *y = &c->out[0];
        if (x->dtype != y->dtype || tt_tensor_numel(x) != tt_tensor_numel(y))
            return TT_FAIL(err, TT_EINVAL,
                           "far: reduce_members: input %d differs from the output "
                           "in dtype or size",
                           i);
        const size_t bytes = (size_t)tt_tensor_numel(y) * tt_dtype_size(y->dtype);
        const far_range in = {.at = x->data, .bytes = bytes}, out = {.at = y->data, .bytes = bytes};
        if (far_overlap(&in, &out) && (i > 1 || x->data != y->data))
            return TT_FAIL(err, TT_EINVAL, "far: reduce_members: the output lies in input %d", i);
    }
    if (a->op != TT_SUM && a->op != TT_MAX)
        return TT_FAIL(err, TT_EINVAL, "far: reduce_members: no reduction %d", a->op);
    return tt_reduce_members(NULL, NULL, 0, 0, c->out[0].dtype, (tt_reduce)a->op, err);
}

/* ---- find_bad ---- */

static double far_element(const tt_tensor *t, int64_t i)
{
    uint32_t u = 0;
    float f;
    if (t->dtype == TT_F64)
        return ((const double *)t->data)[i];
    if (t->dtype == TT_F32)
        return (double)((const float *)t->data)[i];
    const uint16_t h = ((const uint16_t *)t->data)[i];
    if (t->dtype == TT_F16) /* finite or not, and the sign, is all that matters */
        return (h & 0x7c00) != 0x7c00 ? 0.0 : h == 0xfc00 ? -(double)INFINITY : (double)NAN;
    u = (uint32_t)h << 16;
    memcpy(&f, &u, sizeof f);
    return (double)f;
}

static bool far_is_bad(const tt_attrs_find_bad *a, const tt_tensor *t, int64_t i)
{
    if (a->what == TT_FIND_NOT_PATTERN)
        return ((const uint8_t *)t->data)[i] != ((const uint8_t *)&a->pattern)[i % 4];
    const double x = far_element(t, i);
    return !isfinite(x) && !(a->what == TT_FIND_NOT_FINITE_NOR_MINUS_INF && x == -(double)INFINITY);
}

static tt_status far_find_bad(void *backend, const tt_kernel_call *c, tt_error *err)
{
    (void)backend, (void)err;
    const int64_t n = tt_tensor_numel(&c->in[0]);
    int64_t i = 0;
    while (i < n && !far_is_bad(c->attrs, &c->in[0], i))
        i++;
    *(int64_t *)c->out[0].data = i < n ? i : -1;
    return TT_OK;
}

static tt_status far_check_find(const tt_kernel_call *c, tt_error *err)
{
    const tt_attrs_find_bad *a = c->attrs;
    if (c->n_in != 1 || c->n_out != 1 || c->out[0].dtype != TT_I64 ||
        tt_tensor_numel(&c->out[0]) != 1)
        return TT_FAIL(err, TT_EINVAL, "far: find_bad wants one input and an i64 scalar");
    const bool fits = a->what == TT_FIND_NOT_PATTERN ? c->in[0].dtype == TT_U8
                                                     : tt_dtype_is_float(c->in[0].dtype);
    if (a->what < 0 || a->what > TT_FIND_NOT_PATTERN || !fits)
        return TT_FAIL(err, TT_EINVAL, "far: find_bad: no search %d in %s", a->what,
                       tt_dtype_name(c->in[0].dtype));
    return TT_OK;
}

/* ---- the table ---- */

static const struct {
    tt_kernel kernel;
    size_t attrs;
} far_extra[] = {
#define ROW(op_, run_, attrs_)                                                                     \
    {                                                                                              \
        {.struct_size = sizeof(tt_kernel), .op = op_, .run = run_}, sizeof(attrs_)                 \
    }
    ROW(TT_OP_COPY_BOX, far_copy_box, tt_attrs_copy_box),
    ROW(TT_OP_REDUCE_MEMBERS, far_reduce_members, tt_attrs_reduce_members),
    ROW(TT_OP_FIND_BAD, far_find_bad, tt_attrs_find_bad),
#undef ROW
};

const tt_kernel *far_extra_kernel(const char *op)
{
    for (size_t i = 0; i < TT_COUNT(far_extra); i++)
        if (!strcmp(far_extra[i].kernel.op, op))
            return &far_extra[i].kernel;
    return NULL;
}

size_t far_extra_attrs(const char *op)
{
    for (size_t i = 0; i < TT_COUNT(far_extra); i++)
        if (!strcmp(far_extra[i].kernel.op, op))
            return far_extra[i].attrs;
    return 0;
}

tt_status far_extra_check(const tt_kernel_call *c, tt_error *err)
{
    if (!c->attrs)
        return TT_FAIL(err, TT_EINVAL, "far: %s without attrs", c->op);
    if (!strcmp(c->op, TT_OP_COPY_BOX))
        return far_check_box(c, err);
    if (!strcmp(c->op, TT_OP_FIND_BAD))
        return far_check_find(c, err);
    return far_check_reduce(c, err);
}
