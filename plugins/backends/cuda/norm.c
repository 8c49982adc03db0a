/* SPDX-License-Identifier: Apache-2.0 */
#include "rows.h"

/* rms_norm and layer_norm over rows of the weight's size, which is that of the last dim or of a head,
 * and their derivatives. The weight's gradient is summed over tiles of rows into scratch, then over
 * the tiles; the tiles depend on the shape only. */
#define TILES 768     /* at most: two waves of 3 blocks on 132 multiprocessors */
#define WARP_BWD 2048 /* derivatives: a row of at most so many elements is a warp's */

static cuda_kernel forward[2][2][2] = {
    {CUDA_PAIR("norm", "rms_norm_warp"),   CUDA_PAIR("norm", "rms_norm_block")  },
    {CUDA_PAIR("norm", "layer_norm_warp"), CUDA_PAIR("norm", "layer_norm_block")}
};
static cuda_kernel backward[2][2][2] = {
    {CUDA_PAIR("norm", "rms_norm_bwd_warp"),   CUDA_PAIR("norm", "rms_norm_bwd_block")  },
    {CUDA_PAIR("norm", "layer_norm_bwd_warp"), CUDA_PAIR("norm", "layer_norm_bwd_block")}
};

typedef struct norm {
    const void *x, *w, *b;
    int64_t rows, n, tile, tiles;
    int length; /* n */
    struct {
        float per_element, eps;
    } how;
    int half_w, half_b, wide, cached, shared_sums, size; /* size: of an element of x */
} norm;

/* Rows of a tile: fewer where a row is long, so that there are enough tiles. */
static int64_t least_tile(int64_t n)
{
    return n <= 256 ? 64 : 8;
}

static norm norm_of(const tt_kernel_call *c)
{
    norm o = {.x = c->in[0].data,
              .w = c->in[1].data,
              .n = c->in[1].shape[0],
              .half_w = cuda_half(&c->in[1]),
              .size = (int)tt_dtype_size(c->in[0].dtype)};
    o.rows = o.n > 0 ? tt_tensor_numel(&c->in[0]) / o.n : 0;
    o.length = (int)o.n;
    o.how.per_element = o.n > 0 ? (float)(1.0 / (double)o.n) : 0.0f;
    o.how.eps = (float)((const tt_attrs_norm *)c->attrs)->eps;
    o.wide = cuda_is_wide(&c->in[0], o.n) && cuda_is_wide(&c->out[0], o.n) &&
             cuda_alignment_of(o.w, 16) == 16;
    o.tile = cuda_max(least_tile(o.n), cuda_ceil(o.rows, TILES));
    o.tiles = cuda_ceil(o.rows, o.tile);
    return o;
}

/* x [R,D], w [D], and b [D] of layer_norm -> y [R,D] */
static tt_status run_norm(void *self, const tt_kernel_call *c, tt_error *err)
{
    norm o = norm_of(c);
    const bool layer = c->n_in == 3, warp = o.n <= CUDA_WARP_ROW;
    const int64_t groups = warp ? CUDA_THREADS / 32 : 1, bytes = groups * o.n * o.size;
    void *y = c->out[0].data;
    TT_TRY(cuda_row_fits(c, o.n, err));
    if (layer) {
        o.b = c->in[2].data;
        o.half_b = cuda_half(&c->in[2]);
        o.wide = o.wide && cuda_alignment_of(o.b, 16) == 16;
    }
    o.cached = bytes <= CUDA_CACHE - CUDA_ROOM;
    const cuda_grid grid = {cuda_ceil(o.rows, groups), 1, 1, CUDA_THREADS,
                            CUDA_ROOM + (o.cached ? (int)bytes : 0)};
    return CUDA_LAUNCH(self, c, &forward[layer][!warp][cuda_half(&c->in[0])], grid, err, &o.x, &o.w,
                       &o.half_w, &o.b, &o.half_b, &y, &o.rows, &o.length, &o.how, &o.cached,
                       &o.wide);
}

static size_t bwd_scratch(const tt_kernel_call *c, int n_threads)
{
    const norm o = norm_of(c);
    (void)n_threads; /* fewer rows may be more tiles */
    return (size_t)(cuda_min(TILES, cuda_ceil(o.rows, least_tile(o.n))) * o.n * (c->n_out - 1)) *
           sizeof(float);
}

static int64_t shared_room(const cuda_backend *b)
{
    return cuda_max(CUDA_CACHE, cuda_min(b->chip.shared_bytes, 2 * CUDA_CACHE)) - CUDA_ROOM;
}

/* What fits into shared memory: the sums first, then the rows. Where they are does not change them. */
static int place_bwd(const cuda_backend *b, norm *o, int64_t groups, int64_t n_sums)
{
    const int64_t sums = groups * n_sums * o->n * (int64_t)sizeof(float),
                  caches = (groups * 2 * o->n * o->size + 15) / 16 * 16, room = shared_room(b);
    o->shared_sums = sums <= room;
    o->cached = (o->shared_sums ? sums : 0) + caches <= room;
    return (int)(CUDA_ROOM + (o->shared_sums ? sums : 0) + (o->cached ? caches : 0));
}

/* x [R,D], w [D], dy [R,D] -> dx [R,D], dw [D], and db [D] of layer_norm */
static tt_status run_bwd(void *self, const tt_kernel_call *c, tt_error *err)
{
    norm o = norm_of(c);
    const int n_sums = c->n_out - 1;
    const int64_t warps = CUDA_THREADS / 32, sums = o.n * n_sums * (int64_t)sizeof(float);
    const bool layer = n_sums == 2,
               warp = o.n * n_sums <= WARP_BWD && warps * sums <= shared_room(self);
    const void *dy = c->in[2].data;
    void *dx = c->out[0].data;
    float *partial = c->scratch;
    TT_TRY(cuda_row_fits(c, o.n, err));
    o.wide = o.wide && cuda_is_wide(&c->in[2], o.n);
    const int shared = place_bwd(self, &o, warp ? warps : 1, n_sums);
    const cuda_grid grid = {o.tiles, 1, 1, CUDA_THREADS, shared};
    TT_TRY(CUDA_LAUNCH(self, c, &backward[layer][!warp][cuda_half(&c->in[0])], grid, err, &o.x,
                       &o.w, &o.half_w, &dy, &dx, &partial, &o.rows, &o.length, &o.tile, &o.how,
                       &o.cached, &o.shared_sums, &o.wide));
    for (int i = 0; i < n_sums; i++) /* no rows: no tiles, and no scratch */
        TT_TRY(cuda_column_sum(self, c->queue, o.tiles ? partial + i * o.n : NULL, o.tiles, o.n,
                               n_sums * o.n, c->out[1 + i].data, err));
    return TT_OK;
}

static int takes_bwd(const tt_kernel_call *c)
{
    return cuda_floats(c) && c->in[2].dtype == c->in[0].dtype;
}

const tt_kernel cuda_kernels_norm[] = {
    CUDA_ROW("rms_norm", run_norm, NULL, 0, 1, cuda_floats),
    CUDA_ROW("rms_norm_bwd", run_bwd, bwd_scratch, 0, 0, takes_bwd),
    CUDA_ROW("layer_norm", run_norm, NULL, 0, 1, cuda_floats),
    CUDA_ROW("layer_norm_bwd", run_bwd, bwd_scratch, 0, 0, takes_bwd),
    {.op = NULL},
};
