/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda.h"
#include "kernels/point_shape.h"
#include "kernels/random_call.h"
#include <string.h>

/* random, random_keys, initial and iota. y of any shape; random has an optional operand, the index of
 * each row. */

#define MOST_BLOCKS 8192

static cuda_grid grid_of(int64_t n)
{
    return (cuda_grid){cuda_blocks(n, POINT_THREADS, MOST_BLOCKS), 1, 1, POINT_THREADS, 0};
}

static tt_status run_random(void *backend, const tt_kernel_call *c, tt_error *err)
{
    static cuda_kernel kernel = CUDA_KERNEL("random", "tt_random");
    const tt_attrs_random *a = c->attrs;
    const tt_tensor *y = &c->out[0];
    random_call r = {.seed = c->seed,
                     .step = c->step,
                     .rows = c->n_in ? c->in[0].data : NULL,
                     .out = y->data,
                     .n = tt_tensor_numel(y),
                     .dtype = (int)y->dtype,
                     .n_dims = y->n_dims,
                     .is_normal = a->normal};
    const size_t n = a->stream ? strlen(a->stream) : 0;
    if (n > RANDOM_STREAM)
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "random: the name of stream \"%.60s…\" has %zu bytes; cuda takes %d",
                       a->stream, n, RANDOM_STREAM);
    if (!c->seed || !c->step)
        return TT_FAIL(err, TT_EINTERNAL, "random: the call has no seed and no step");
    r.stream_bytes = (int)n;
    if (n)
        memcpy(r.stream, a->stream, n);
    for (int d = 0; d < y->n_dims; d++) {
        r.shape[d] = y->shape[d];
        r.begin[d] = y->begin[d];
        r.global[d] = y->global[d] > 0 ? y->global[d] : y->shape[d];
    }
    return CUDA_LAUNCH(backend, c, &kernel, grid_of(r.n), err, &r);
}

static int random_supports(const tt_kernel_call *c)
{
    const tt_attrs_random *a = c->attrs;
    return !a->stream || strlen(a->stream) <= RANDOM_STREAM;
}

static tt_status random_keys(void *backend, const tt_kernel_call *c, tt_error *err)
{
    static cuda_kernel kernel = CUDA_KERNEL("random", "tt_random_keys");
    const tt_attrs_random_keys *a = c->attrs;
    const tt_tensor *y = &c->out[0];
    random_keys_call r = {.seed = c->seed, .step = c->step, .n = 1, .n_dims = y->n_dims - 1};
    if (!c->seed || !c->step)
        return TT_FAIL(err, TT_EINTERNAL, "random_keys: the call has no seed and no step");
    for (int d = 1; d < y->n_dims; d++) {
        r.n *= y->shape[d];
        r.shape[d - 1] = y->shape[d];
        r.begin[d - 1] = y->begin[d];
        r.global[d - 1] = y->global[d] > 0 ? y->global[d] : y->shape[d];
    }
    for (int64_t first = 0; first < y->shape[0] && r.n > 0; first += RANDOM_STREAMS) {
        const int64_t left = y->shape[0] - first;
        r.n_streams = (int)(left < RANDOM_STREAMS ? left : RANDOM_STREAMS);
        for (int i = 0; i < r.n_streams; i++)
            r.streams[i] = a->streams[y->begin[0] + first + i];
        r.out = (float *)y->data + first * r.n;
        TT_TRY(CUDA_LAUNCH(backend, c, &kernel, grid_of(r.n * r.n_streams), err, &r));
    }
    return TT_OK;
}

/* Initial values; ttrun/device.h. */
static tt_status run_initial(void *backend, const tt_kernel_call *c, tt_error *err)
{
    static cuda_kernel kernel = CUDA_KERNEL("random", "tt_initial");
    const tt_attrs_initial *a = c->attrs;
    const tt_tensor *y = &c->out[0];
    initial_call r = {.out = y->data,
                      .n = tt_tensor_numel(y),
                      .key = a->key,
                      .a = a->a,
                      .lo = a->lo,
                      .hi = a->hi,
                      .from = a->from,
                      .width = a->width,
                      .dtype = (int)y->dtype,
                      .n_dims = y->n_dims,
                      .kind = a->kind};
    for (int d = 0; d < y->n_dims; d++) {
        r.shape[d] = y->shape[d];
        r.begin[d] = y->begin[d];
        r.global[d] = y->global[d];
    }
    return CUDA_LAUNCH(backend, c, &kernel, grid_of(r.n), err, &r);
}

static tt_status iota(void *backend, const tt_kernel_call *c, tt_error *err)
{
    static cuda_kernel kernel = CUDA_KERNEL("random", "tt_iota");
    tt_tensor *y = &c->out[0];
    int dtype = (int)y->dtype;
    int64_t n = y->shape[0], begin = y->begin[0];
    return CUDA_LAUNCH(backend, c, &kernel, grid_of(n), err, &y->data, &dtype, &begin, &n);
}

const tt_kernel cuda_kernels_random[] = {
    {.struct_size = sizeof(tt_kernel), .op = "iota", .run = iota},
    {.struct_size = sizeof(tt_kernel),                     .op = TT_OP_INITIAL, .run = run_initial},
    {.struct_size = sizeof(tt_kernel), .op = "random_keys", .run = random_keys},
    {.struct_size = sizeof(tt_kernel),
     .op = "random",
     .run = run_random,
     .supports = random_supports},
    {0},
};
