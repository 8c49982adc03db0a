/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu.h"
#include <string.h>

/* rms_norm and layer_norm over the last dim, or over each head when the weight is as long as a
 * head. The weight's gradient is summed over tiles of ROW_TILE rows into scratch, then over the
 * tiles: the order of the sum depends on the shape only. R rows, D elements of the weight. Naive
 * twins: backends/reference/norm.c. */
#define ROW_TILE 64

typedef struct norm {
    const cpu_isa *isa;
    const float *x, *w, *b, *dy;
    float *y, *partial; /* partial [tiles][n_weights * width] */
    int64_t rows, width, n_weights;
    float eps;
} norm;

static norm norm_of(void *self, const tt_kernel_call *c)
{
    norm n = {.isa = ((const cpu_backend *)self)->isa,
              .x = c->in[0].data,
              .w = c->in[1].data,
              .y = c->out[0].data};
    n.width = c->in[1].shape[0];
    n.rows = n.width ? tt_tensor_numel(&c->in[0]) / n.width : 0;
    n.eps = (float)((const tt_attrs_norm *)c->attrs)->eps;
    return n;
}

static void rms_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const norm *n = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        n->isa->rms_norm(n->width, n->x + r * n->width, n->w, n->y + r * n->width, n->eps);
}
static void layer_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const norm *n = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        n->isa->layer_norm(n->width, n->x + r * n->width, n->w, n->b, n->y + r * n->width, n->eps);
}

/* x [R,D], w [D] -> y [R,D] */
static tt_status rms_norm(void *self, const tt_kernel_call *c, tt_error *err)
{
    (void)err;
    norm n = norm_of(self, c);
    tt_parallel_for(c->pool, n.rows, cpu_row_grain(n.rows, n.width), rms_rows, &n);
    return TT_OK;
}
/* x [R,D], w [D], b [D] -> y [R,D] */
static tt_status layer_norm(void *self, const tt_kernel_call *c, tt_error *err)
{
    (void)err;
    norm n = norm_of(self, c);
    n.b = c->in[2].data;
    tt_parallel_for(c->pool, n.rows, cpu_row_grain(n.rows, n.width), layer_rows, &n);
    return TT_OK;
}

static void bwd_tiles(void *arg, int64_t begin, int64_t end, int thread)
{
    const norm *n = arg;
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        float *dw = n->partial + t * n->n_weights * n->width;
        memset(dw, 0, (size_t)(n->n_weights * n->width) * sizeof(float));
        for (int64_t r = t * ROW_TILE; r < cpu_min(n->rows, (t + 1) * ROW_TILE); r++) {
            int64_t at = r * n->width;
            if (n->n_weights == 2)
                n->isa->layer_norm_bwd(n->width, n->x + at, n->w, n->dy + at, n->y + at, dw,
                                       dw + n->width, n->eps);
            else
                n->isa->rms_norm_bwd(n->width, n->x + at, n->w, n->dy + at, n->y + at, dw, n->eps);
        }
    }
}

static size_t bwd_scratch(const tt_kernel_call *c, int n_threads)
{
    (void)n_threads;
    int64_t width = c->in[1].shape[0], rows = width ? tt_tensor_numel(&c->in[0]) / width : 0;
    return (size_t)((rows + ROW_TILE - 1) / ROW_TILE * 2 * width) * sizeof(float);
}

/* x [R,D], w [D], dy [R,D] -> dx [R,D], dw [D], and db [D] of layer_norm */
static tt_status norm_bwd(void *self, const tt_kernel_call *c, tt_error *err)
{
    (void)err;
    norm n = norm_of(self, c);
    n.dy = c->in[2].data;
    n.partial = c->scratch;
    n.n_weights = c->n_out - 1;
    int64_t tiles = (n.rows + ROW_TILE - 1) / ROW_TILE;
    tt_parallel_for(c->pool, tiles, 1, bwd_tiles, &n);
    for (int i = 0; i < n.n_weights; i++)
        n.isa->column_sum(tiles, n.width, n.n_weights * n.width, n.partial + i * n.width,
                          c->out[1 + i].data, false);
    return TT_OK;
}

const cpu_kernel cpu_kernels_norm[] = {
    CPU_KERNEL("rms_norm", rms_norm, NULL, 0, 1),
    CPU_KERNEL("rms_norm_bwd", norm_bwd, bwd_scratch, 0, 0),
    CPU_KERNEL("layer_norm", layer_norm, NULL, 0, 1),
    CPU_KERNEL("layer_norm_bwd", norm_bwd, bwd_scratch, 0, 0),
    CPU_KERNEL_END,
};
