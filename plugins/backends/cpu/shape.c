/* SPDX-License-Identifier: Apache-2.0 */
#include "fused.h"
#include <string.h>

/* Kernels that only move elements: reshape, transpose, slice, concat, roll, broadcast. Shapes are those
 * of the ops (docs/ops.md). Naive twins: backends/reference/shape.c. */

/* A copy with strides: the output's element at indices i is read from Σ i[d] * stride[d] of the
 * source. */
typedef struct walk {
    int n_dims;
    int64_t shape[TT_MAX_DIMS], stride[TT_MAX_DIMS]; /* in elements */
    size_t size;                                     /* bytes per element */
    const char *src;
    char *dst;
} walk;

static void shape_fill(char *dst, const char *one, int64_t n, size_t size)
{
    switch (size) {
    case 1:
        memset(dst, one[0], (size_t)n);
        break;
    default: /* what is filled is copied, so that twice as much is */
        if (n > 0)
            memcpy(dst, one, size);
        for (int64_t done = 1; done < n; done *= 2)
            memcpy(dst + (size_t)done * size, dst, (size_t)cpu_min(done, n - done) * size);
        break;
    }
}

static void copy_run(char *dst, const char *src, int64_t n, int64_t stride, size_t size)
{
    if (stride == 1)
        memcpy(dst, src, (size_t)n * size);
    else if (stride == 0)
        shape_fill(dst, src, n, size);
    else if (size == 4)
        for (int64_t i = 0; i < n; i++)
            ((uint32_t *)(void *)dst)[i] = ((const uint32_t *)(const void *)src)[i * stride];
    else
        for (int64_t i = 0; i < n; i++)
            memcpy(dst + (size_t)i * size, src + (size_t)(i * stride) * size, size);
}

/* Writes elements [begin, begin + n), in the output's order, to dst. */
static void walk_copy(const walk *w, int64_t begin, int64_t n, char *dst)
{
    if (w->n_dims == 0) {
        if (n > 0)
            memcpy(dst, w->src, w->size);
        return;
    }
    const int last = w->n_dims - 1;
    int64_t index[TT_MAX_DIMS], rest = begin;
    for (int d = last; d >= 0; d--) {
        index[d] = rest % w->shape[d];
        rest /= w->shape[d];
    }
    while (n > 0) {
        int64_t at = 0, run = cpu_min(n, w->shape[last] - index[last]);
        for (int d = 0; d <= last; d++)
            at += index[d] * w->stride[d];
        copy_run(dst, w->src + at * (int64_t)w->size, run, w->stride[last], w->size);
        dst += (size_t)run * w->size;
        n -= run;
        index[last] = 0;
        for (int d = last - 1; d >= 0; d--) {
            if (++index[d] < w->shape[d])
                break;
            index[d] = 0;
        }
    }
}

static void walk_pieces(void *arg, int64_t begin, int64_t end, int thread)
{
    const walk *w = arg;
    (void)thread;
    walk_copy(w, begin, end - begin, w->dst + (size_t)begin * w->size);
}

static void run_walk(const walk *w, const tt_kernel_call *c)
{
    tt_parallel_for(c->pool, tt_tensor_numel(&c->out[0]), 32768, walk_pieces, (void *)(uintptr_t)w);
}

static void strides_of(const tt_tensor *x, int64_t *stride)
{
    int64_t n = 1;
    for (int d = x->n_dims - 1; d >= 0; d--) {
        stride[d] = n;
        n *= x->shape[d];
    }
}

static walk broadcast_walk(const tt_tensor *x, const int64_t *shape, int n_dims)
{
    walk w = {.n_dims = n_dims, .size = tt_dtype_size(x->dtype), .src = x->data};
    int64_t own[TT_MAX_DIMS];
    strides_of(x, own);
    for (int d = 0; d < n_dims; d++) {
        int e = d - (n_dims - x->n_dims);
        w.shape[d] = shape[d];
        w.stride[d] = e < 0 || x->shape[e] == 1 ? 0 : own[e];
    }
    return w;
}

void cpu_broadcast_load(const tt_tensor *x, const int64_t *shape, int n_dims, int64_t begin,
                        int64_t n, void *dst)
{
    walk w = broadcast_walk(x, shape, n_dims);
    walk_copy(&w, begin, n, dst);
}

static tt_status broadcast(void *self, const tt_kernel_call *c, tt_error *err)
{
    (void)self;
    (void)err;
    walk w = broadcast_walk(&c->in[0], c->out[0].shape, c->out[0].n_dims);
    w.dst = c->out[0].data;
    run_walk(&w, c);
    return TT_OK;
}

static tt_status transpose(void *self, const tt_kernel_call *c, tt_error *err)
{
    const tt_attrs_perm *at = c->attrs;
    walk w = {.n_dims = c->out[0].n_dims,
              .size = tt_dtype_size(c->in[0].dtype),
              .src = c->in[0].data,
              .dst = c->out[0].data};
    int64_t own[TT_MAX_DIMS];
    (void)self;
    (void)err;
    strides_of(&c->in[0], own);
    for (int d = 0; d < w.n_dims; d++) {
        w.shape[d] = c->out[0].shape[d];
        w.stride[d] = own[at->perm[d]];
    }
    run_walk(&w, c);
    return TT_OK;
}

static tt_status slice(void *self, const tt_kernel_call *c, tt_error *err)
{
    const tt_attrs_slice *at = c->attrs;
    const tt_tensor *x = &c->in[0];
    walk w = {.n_dims = c->out[0].n_dims, .size = tt_dtype_size(x->dtype), .dst = c->out[0].data};
    (void)self;
    (void)err;
    strides_of(x, w.stride);
    memcpy(w.shape, c->out[0].shape, sizeof w.shape);
    w.src = (const char *)x->data + (at->begin * w.stride[at->dim]) * (int64_t)w.size;
    run_walk(&w, c);
    return TT_OK;
}

static void copy_pieces(void *arg, int64_t begin, int64_t end, int thread)
{
    const walk *w = arg;
    (void)thread;
    memcpy(w->dst + begin, w->src + begin, (size_t)(end - begin));
}

static tt_status reshape(void *self, const tt_kernel_call *c, tt_error *err)
{
    walk w = {.src = c->in[0].data, .dst = c->out[0].data};
    (void)self;
    (void)err;
    if (w.src != w.dst)
        tt_parallel_for(c->pool,
                        tt_tensor_numel(&c->in[0]) * (int64_t)tt_dtype_size(c->in[0].dtype), 131072,
                        copy_pieces, &w);
    return TT_OK;
}

/* Copies the rows of x to rows [at, at + n) of dim `dim` of the output. */
typedef struct place {
    const char *src;
    char *dst;
    size_t src_row, dst_row, offset; /* bytes per outer index, and the offset within it */
} place;

static void place_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const place *p = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        memcpy(p->dst + (size_t)i * p->dst_row + p->offset, p->src + (size_t)i * p->src_row,
               p->src_row);
}

/* The product of the dims before `dim`, and the bytes of the dims from `dim` on. */
static void split(const tt_tensor *x, int dim, int64_t *outer, size_t *row)
{
    int64_t o = 1, r = 1;
    for (int d = 0; d < x->n_dims; d++)
        *(d < dim ? &o : &r) *= x->shape[d];
    *outer = o;
    *row = (size_t)r * tt_dtype_size(x->dtype);
}

static void put_at(const tt_kernel_call *c, const tt_tensor *x, int dim, int64_t at)
{
    place p = {.src = x->data, .dst = c->out[0].data};
    int64_t outer;
    split(x, dim, &outer, &p.src_row);
    split(&c->out[0], dim, &outer, &p.dst_row);
    if (!p.src_row || !p.dst_row)
        return;
    p.offset = p.dst_row / (size_t)c->out[0].shape[dim] * (size_t)at;
    tt_parallel_for(c->pool, outer, cpu_max(1, 65536 / (int64_t)p.src_row), place_rows, &p);
}

static tt_status concat(void *self, const tt_kernel_call *c, tt_error *err)
{
    const tt_attrs_concat *a = c->attrs;
    int64_t at = 0;
    (void)self;
    (void)err;
    for (int i = 0; i < c->n_in; i++) {
        put_at(c, &c->in[i], a->dim, at);
        at += c->in[i].shape[a->dim];
    }
    return TT_OK;
}

static void zero_pieces(void *arg, int64_t begin, int64_t end, int thread)
{
    const place *p = arg;
    (void)thread;
    memset(p->dst + begin, 0, (size_t)(end - begin));
}

static tt_status slice_bwd(void *self, const tt_kernel_call *c, tt_error *err)
{
    const tt_attrs_slice *at = c->attrs;
    place p = {.dst = c->out[0].data};
    (void)self;
    (void)err;
    tt_parallel_for(c->pool, tt_tensor_numel(&c->out[0]) * (int64_t)tt_dtype_size(c->out[0].dtype),
                    131072, zero_pieces, &p);
    put_at(c, &c->in[0], at->dim, at->begin);
    return TT_OK;
}

/* The first `head` bytes of each row of dim come last in x. */
typedef struct turn {
    const char *src;
    char *dst;
    size_t row, head;
} turn;

static void turn_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const turn *w = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const char *src = w->src + (size_t)i * w->row;
        char *dst = w->dst + (size_t)i * w->row;
        memcpy(dst, src + (w->row - w->head), w->head);
        memcpy(dst + w->head, src, w->row - w->head);
    }
}

static tt_status roll(void *self, const tt_kernel_call *c, tt_error *err)
{
    const tt_attrs_roll *a = c->attrs;
    turn w = {.src = c->in[0].data, .dst = c->out[0].data};
    int64_t outer;
    (void)self;
    (void)err;
    split(&c->in[0], a->dim, &outer, &w.row);
    if (w.row == 0)
        return TT_OK;
    w.head = w.row / (size_t)c->in[0].shape[a->dim] * (size_t)a->shift;
    tt_parallel_for(c->pool, outer, cpu_max(1, 65536 / (int64_t)w.row), turn_rows, &w);
    return TT_OK;
}

#define MOVE(op_, run_, in_place_) CPU_KERNEL_ANY(op_, run_, NULL, in_place_)
const cpu_kernel cpu_kernels_shape[] = {
    MOVE("broadcast", broadcast, 0), MOVE("reshape", reshape, 1),
    MOVE("transpose", transpose, 0), MOVE("slice", slice, 0),
    MOVE("slice_bwd", slice_bwd, 0), MOVE("concat", concat, 0),
    MOVE("roll", roll, 0),           CPU_KERNEL_END,
};
