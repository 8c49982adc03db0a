/* SPDX-License-Identifier: Apache-2.0 */
#include "box.h"
#include "kernels/members.h"
#include "kernels/point_shape.h"
#include <string.h>
#include <ttrun/comm.h>

/* The three ops of ttrun/device.h, which are in no graph. Operands are aligned to one element. */

#define MOST_BLOCKS 8192

static tt_status extra_copy_box(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const tt_attrs_copy_box *a = c->attrs;
    const int64_t size = (int64_t)tt_dtype_size(c->out[0].dtype);
    cuda_box box = {.from_dtype = c->in[0].dtype, .to_dtype = c->out[0].dtype, .n_dims = a->n_dims};
    for (int d = 0; d < a->n_dims; d++) {
        box.size[d] = a->size[d];
        box.from_stride[d] = a->from_stride[d];
        box.to_stride[d] = a->to_stride[d];
        if (a->size[d] == 0)
            return TT_OK;
    }
    if (box.from_dtype != box.to_dtype)
        return TT_FAIL(err, TT_EINTERNAL, "copy_box: from %s to %s", tt_dtype_name(box.from_dtype),
                       tt_dtype_name(box.to_dtype));
    box.from = (const char *)c->in[0].data + a->from * size;
    box.to = (char *)c->out[0].data + a->to * size;
    return cuda_box_copy(backend, c->queue, &box, err);
}

/* ---- reduce_members ---- */

/* The members from `first` on that one launch takes; those of many members lie at regular addresses. */
static int fill_members(const tt_kernel_call *c, int first, members_call *m)
{
    const tt_tensor *in = c->in + first;
    const int n = c->n_in - first;
    bool regular = n > 2;
    for (int i = 2; i < n && regular; i++)
        regular =
            (char *)in[i].data - (char *)in[i - 1].data == (char *)in[1].data - (char *)in[0].data;
    if (n > MEMBERS_MOST && regular) {
        m->in[0] = in[0].data;
        m->step = (char *)in[1].data - (char *)in[0].data;
        return n;
    }
    const int taken = n < MEMBERS_MOST ? n : MEMBERS_MOST;
    for (int i = 0; i < taken; i++)
        m->in[i] = in[i].data;
    return taken;
}

/* Can all members be read in pieces of 16 bytes? */
static bool members_are_aligned(const members_call *m)
{
    bool all = (uintptr_t)m->out % 16 == 0 && m->step % 16 == 0;
    for (int i = 0; i < (m->step ? 1 : m->n_members) && all; i++)
        all = (uintptr_t)m->in[i] % 16 == 0;
    return all;
}

static cuda_kernel *members_kernel(tt_dtype dtype)
{
    static cuda_kernel f32 = CUDA_KERNEL("members", "tt_members_f32"),
                       bf16 = CUDA_KERNEL("members", "tt_members_bf16"),
                       f64 = CUDA_KERNEL("members", "tt_members_f64"),
                       i32 = CUDA_KERNEL("members", "tt_members_i32"),
                       i64 = CUDA_KERNEL("members", "tt_members_i64");
    return dtype == TT_F32    ? &f32
           : dtype == TT_BF16 ? &bf16
           : dtype == TT_F64  ? &f64
           : dtype == TT_I32  ? &i32
           : dtype == TT_I64  ? &i64
                              : NULL;
}

/* Launches of at most MEMBERS_MOST members each; every one but the first begins with what is in out. */
static tt_status reduce_members(void *backend, const tt_kernel_call *c, tt_error *err)
{
    tt_tensor *y = &c->out[0];
    cuda_kernel *k = members_kernel(y->dtype);
    const int64_t n = tt_tensor_numel(y);
    if (!k)
        return TT_FAIL(err, TT_EUNSUPPORTED, "reduce_members: cuda cannot reduce %s",
                       tt_dtype_name(y->dtype));
    for (int first = 0; first < c->n_in && n > 0;) {
        members_call m = {.out = y->data,
                          .n = n,
                          .is_max = ((const tt_attrs_reduce_members *)c->attrs)->op == TT_MAX};
        tt_kernel_call rest = *c;
        tt_tensor in[MEMBERS_MOST];
        if (first > 0) { /* out, then the next ones */
            const int more = c->n_in - first < MEMBERS_MOST ? c->n_in - first : MEMBERS_MOST - 1;
            in[0] = *y;
            memcpy(in + 1, c->in + first, (size_t)more * sizeof in[0]);
            rest.in = in;
            rest.n_in = more + 1;
        }
        m.n_members = fill_members(&rest, 0, &m);
        first += first > 0 ? m.n_members - 1 : m.n_members;
        if (y->dtype == TT_BF16 && first < c->n_in)
            return TT_FAIL(err, TT_EUNSUPPORTED,
                           "reduce_members: cuda adds at most %d tensors of bf16 at irregular "
                           "addresses, not %d",
                           MEMBERS_MOST, c->n_in);
        if (members_are_aligned(&m))
            m.n_wide = n / (16 / (int64_t)tt_dtype_size(y->dtype));
        const int64_t tail = n - m.n_wide * (16 / (int64_t)tt_dtype_size(y->dtype)),
                      pieces = m.n_wide > tail ? m.n_wide : tail;
        const cuda_grid g = {cuda_blocks(pieces, MEMBERS_THREADS, MOST_BLOCKS), 1, 1,
                             MEMBERS_THREADS, 0};
        TT_TRY(CUDA_LAUNCH(backend, c, k, g, err, &m));
    }
    return TT_OK;
}

static tt_status find_bad(void *backend, const tt_kernel_call *c, tt_error *err)
{
    static cuda_kernel begin = CUDA_KERNEL("find_bad", "tt_find_bad_begin"),
                       find = CUDA_KERNEL("find_bad", "tt_find_bad"),
                       end = CUDA_KERNEL("find_bad", "tt_find_bad_end");
    const tt_attrs_find_bad *a = c->attrs;
    const cuda_grid one = {1, 1, 1, 32, 0};
    int64_t n = tt_tensor_numel(&c->in[0]);
    void *out = c->out[0].data, *x = c->in[0].data;
    int dtype = (int)c->in[0].dtype, what = a->what;
    uint32_t pattern = a->pattern;
    const cuda_grid g = {cuda_blocks(n, POINT_THREADS, MOST_BLOCKS), 1, 1, POINT_THREADS, 0};
    TT_TRY(CUDA_LAUNCH(backend, c, &begin, one, err, &out));
    TT_TRY(CUDA_LAUNCH(backend, c, &find, g, err, &out, &x, &dtype, &what, &pattern, &n));
    return CUDA_LAUNCH(backend, c, &end, one, err, &out);
}

const tt_kernel cuda_kernels_extra[] = {
    {.struct_size = sizeof(tt_kernel), .op = TT_OP_COPY_BOX, .run = extra_copy_box},
    {.struct_size = sizeof(tt_kernel),           .op = TT_OP_REDUCE_MEMBERS, .run = reduce_members},
    {.struct_size = sizeof(tt_kernel), .op = TT_OP_FIND_BAD, .run = find_bad},
    {0          },
};
