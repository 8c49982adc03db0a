/* SPDX-License-Identifier: Apache-2.0 */
#include "fused.h"
#include <ttrun/random.h>

/* random, random_keys, iota: an element's value depends on its index in the GLOBAL tensor, not on the
 * part this rank holds. y of any shape; random's optional operand is the index of each row. Naive twins:
 * backends/reference/pointwise.c. */
typedef struct draw {
    const tt_kernel_call *c;
    const tt_attrs_random *at;
    const int32_t *rows; /* NULL: the row's own index */
    uint64_t key;
    int64_t row; /* elements per row, on this rank */
} draw;

/* Row t as an index, and the element at `rest` of a row as a distance from the row's first. */
static uint64_t row_index(const draw *w, int64_t t)
{
    return w->rows ? (uint32_t)w->rows[t] : (uint64_t)(w->c->out[0].begin[0] + t);
}
static uint64_t within_row(const tt_tensor *y, int64_t rest, uint64_t *size)
{
    uint64_t index = 0, unit = 1;
    for (int d = y->n_dims - 1; d > 0; d--) {
        index += (uint64_t)(rest % y->shape[d] + y->begin[d]) * unit;
        unit *= (uint64_t)(y->global[d] > 0 ? y->global[d] : y->shape[d]);
        rest /= y->shape[d];
    }
    *size = unit;
    return index;
}

static void draw_pieces(void *arg, int64_t begin, int64_t end, int thread)
{
    const draw *w = arg;
    const tt_kernel_call *c = w->c;
    const tt_tensor *y = &c->out[0];
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        uint64_t size = 1;
        const uint64_t at = within_row(y, i % w->row, &size),
                       index = (y->n_dims ? row_index(w, i / w->row) : 0) * size + at;
        const double v =
            w->at->normal ? tt_random_at(tt_call_seed(c), tt_call_step(c), w->at->stream, index, 1)
                          : tt_random_uniform(w->key, index);
        cpu_reg r = {.p = (char *)y->data + (size_t)i * tt_dtype_size(y->dtype), .dtype = y->dtype};
        if (y->dtype == TT_F32)
            ((float *)y->data)[i] = (float)v;
        else
            cpu_pointwise_run(NULL, OP_CONST, 1, NULL, 0, &r, v);
    }
}

static tt_status run_random(void *self, const tt_kernel_call *c, tt_error *err)
{
    const tt_tensor *y = &c->out[0];
    draw w = {.c = c, .at = c->attrs, .rows = c->n_in ? cpu_i32(&c->in[0]) : NULL, .row = 1};
    (void)self;
    (void)err;
    w.key = tt_random_key(tt_call_seed(c), tt_call_step(c), w.at->stream);
    for (int d = 1; d < y->n_dims; d++)
        w.row *= y->shape[d];
    tt_parallel_for(c->pool, tt_tensor_numel(y), 1024, draw_pieces, &w);
    return TT_OK;
}

/* y f32 [streams, …] */
static void draw_keys(void *arg, int64_t begin, int64_t end, int thread)
{
    const tt_kernel_call *c = arg;
    const tt_attrs_random_keys *at = c->attrs;
    const tt_tensor *y = &c->out[0];
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t rest = i, unit = 1;
        uint64_t index = 0;
        for (int d = y->n_dims - 1; d > 0; d--) {
            index += (uint64_t)((rest % y->shape[d] + y->begin[d]) * unit);
            unit *= y->global[d] > 0 ? y->global[d] : y->shape[d];
            rest /= y->shape[d];
        }
        ((float *)y->data)[i] = tt_random_key_at(tt_call_seed(c), tt_call_step(c),
                                                 at->streams[y->begin[0] + rest], index);
    }
}

static tt_status random_keys(void *self, const tt_kernel_call *c, tt_error *err)
{
    (void)self;
    (void)err;
    tt_parallel_for(c->pool, tt_tensor_numel(&c->out[0]), 1024, draw_keys, (void *)(uintptr_t)c);
    return TT_OK;
}

static void count_pieces(void *arg, int64_t begin, int64_t end, int thread)
{
    const tt_tensor *y = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        ((int32_t *)y->data)[i] = (int32_t)(y->begin[0] + i);
}

/* y i32 [n] */
static tt_status iota(void *self, const tt_kernel_call *c, tt_error *err)
{
    (void)self;
    (void)err;
    tt_parallel_for(c->pool, c->out[0].shape[0], 65536, count_pieces, &c->out[0]);
    return TT_OK;
}

const cpu_kernel cpu_kernels_random[] = {
    CPU_KERNEL_ANY("iota", iota, NULL, 0),
    CPU_KERNEL_ANY("random", run_random, NULL, 0),
    CPU_KERNEL_ANY("random_keys", random_keys, NULL, 0),
    CPU_KERNEL_END,
};
