/* SPDX-License-Identifier: Apache-2.0 */
#include "device/device.h"
#include <string.h>

/* Copies, sums and fills of tensors, which redistributes are made of: on the host by core functions, on
 * a device by its kernels. */

#define REDUCE_GRAIN 16384 /* elements of a sum that a thread takes at a time */
#define MINUS_INFINITY UINT32_C(0xff800000)

tt_status tt_move_copy(const tt_mover *m, void *to, const void *from, size_t bytes, tt_error *err)
{
    return tt_device_copy(&m->device, m->queue, to, from, bytes, err);
}

/* ---- boxes ---- */

/* Strides of a contiguous tensor that holds `whole`, and where `box` begins in it. */
static int64_t strides_in(const tt_box *whole, const tt_box *box, int n_dims, int64_t *stride)
{
    int64_t step = 1, at = 0;
    for (int d = n_dims - 1; d >= 0; d--) {
        stride[d] = step;
        at += (box->begin[d] - whole->begin[d]) * step;
        step *= whole->end[d] - whole->begin[d];
    }
    return at;
}

static tt_tensor flat(void *data, tt_dtype dtype, int64_t n)
{
    tt_tensor t = {.data = data, .dtype = dtype, .n_dims = 1};
    t.shape[0] = t.global[0] = n;
    return t;
}

tt_status tt_move_kernel(const tt_mover *m, const tt_kernel *k, const tt_tensor *in, int n_in,
                         tt_tensor *out, const void *attrs, tt_error *err)
{
    const tt_kernel_call c = {.struct_size = sizeof c,
                              .op = k->op,
                              .in = in,
                              .n_in = n_in,
                              .out = out,
                              .n_out = 1,
                              .attrs = attrs,
                              .pool = m->pool,
                              .queue = m->queue,
                              .backend = m->device.backend};
    return TT_PLUGIN_CALL(k->run(m->device.backend, &c, err), err, "kernel", k->op);
}

tt_status tt_move_box(const tt_mover *m, const tt_box *box, const void *from,
                      const tt_box *from_box, void *to, const tt_box *to_box, int n_dims,
                      tt_dtype dtype, tt_error *err)
{
    if (tt_device_is_host(&m->device)) {
        tt_box_copy(box, from, from_box, to, to_box, n_dims, tt_dtype_size(dtype));
        return TT_OK;
    }
    if (!tt_box_numel(box, n_dims))
        return TT_OK;
    tt_attrs_copy_box a = {.n_dims = n_dims};
    for (int d = 0; d < n_dims; d++)
        a.size[d] = box->end[d] - box->begin[d];
    a.from = strides_in(from_box, box, n_dims, a.from_stride);
    a.to = strides_in(to_box, box, n_dims, a.to_stride);
    const tt_tensor in = flat((void *)from, dtype, tt_box_numel(from_box, n_dims));
    tt_tensor out = flat(to, dtype, tt_box_numel(to_box, n_dims));
    return tt_move_kernel(m, m->copy_box, &in, 1, &out, &a, err);
}

/* ---- sums ---- */

typedef struct reduce_job {
    char *out;
    const void *const *xs;
    int n_members;
    tt_dtype dtype;
    tt_reduce op;
} reduce_job;

static void reduce_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const reduce_job *j = arg;
    const size_t at = (size_t)begin * tt_dtype_size(j->dtype);
    const void *parts[TT_MAX_PIECES];
    (void)thread;
    for (int i = 0; i < j->n_members; i++)
        parts[i] = (const char *)j->xs[i] + at;
    (void)tt_reduce_members(j->out + at, parts, j->n_members, end - begin, j->dtype, j->op, NULL);
}

tt_status tt_move_reduce(const tt_mover *m, void *out, const void *const *xs, int n_members,
                         int64_t n, tt_dtype dtype, tt_reduce op, tt_error *err)
{
    tt_tensor in[TT_MAX_PIECES];
    TT_ASSERT(n_members > 0 && n_members <= TT_MAX_PIECES);
    TT_TRY(tt_reduce_members(NULL, NULL, 0, 0, dtype, op, err)); /* can it be reduced? */
    if (tt_device_is_host(&m->device)) {
        reduce_job j = {out, xs, n_members, dtype, op};
        tt_parallel_for(m->pool, n, REDUCE_GRAIN, reduce_range, &j);
        return TT_OK;
    }
    if (!n)
        return TT_OK;
    for (int i = 0; i < n_members; i++)
        in[i] = flat((void *)xs[i], dtype, n);
    tt_tensor sum = flat(out, dtype, n);
    const tt_attrs_reduce_members a = {.op = op};
    return tt_move_kernel(m, m->reduce_members, in, n_members, &sum, &a, err);
}

tt_status tt_move_fill(const tt_mover *m, const tt_tensor *t, tt_reduce op, tt_error *err)
{
    const bool lowest = op == TT_MAX && t->dtype == TT_F32;
    return tt_device_fill(&m->device, m->queue, t->data, lowest ? MINUS_INFINITY : 0,
                          (size_t)tt_tensor_numel(t) * tt_dtype_size(t->dtype), err);
}
