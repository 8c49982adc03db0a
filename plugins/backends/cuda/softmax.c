/* SPDX-License-Identifier: Apache-2.0 */
#include "rows.h"

/* softmax, cross-entropy, and the three parts that cross-entropy is made of when ranks share a
 * vocabulary (max_last, sum_exp, pick). T rows (tokens), V columns (the vocabulary, or this rank's
 * part of it). */
#define PIECE 8192 /* elements of a row that one block writes, where nothing is summed */

/* [warp or block][f32 or bf16] */
static cuda_kernel softmax_kernels[2][2] = {CUDA_PAIR("softmax", "softmax_warp"),
                                            CUDA_PAIR("softmax", "softmax_block")},
                   softmax_bwd_kernels[2][2] = {CUDA_PAIR("softmax", "softmax_bwd_warp"),
                                                CUDA_PAIR("softmax", "softmax_bwd_block")},
                   cross_entropy_kernels[2][2] = {CUDA_PAIR("softmax", "cross_entropy_warp"),
                                                  CUDA_PAIR("softmax", "cross_entropy_block")},
                   vocabulary_kernels[2][2] = {CUDA_PAIR("softmax", "vocabulary_warp"),
                                               CUDA_PAIR("softmax", "vocabulary_block")},
                   cross_entropy_bwd_kernels[2] = CUDA_PAIR("softmax", "cross_entropy_bwd"),
                   pick_kernels[2] = CUDA_PAIR("softmax", "pick"),
                   pick_bwd_kernels[2] = CUDA_PAIR("softmax", "pick_bwd");

typedef struct rows {
    const void *x;
    void *y;
    int64_t rows, begin; /* begin: the global index of column 0 */
    int n, wide, cached, block, pieces;
    cuda_grid grid;
} rows;

/* The rows of in[0]; n_cached of them are kept between two passes. */
static tt_status rows_of(const tt_kernel_call *c, int64_t n_cached, rows *o, tt_error *err)
{
    const tt_tensor *x = &c->in[0];
    const int64_t n = cuda_width(x), size = (int64_t)tt_dtype_size(x->dtype);
    TT_TRY(cuda_row_fits(c, n, err));
    *o = (rows){.x = x->data, .y = c->out[0].data, .rows = cuda_rows(x), .n = (int)n};
    o->begin = x->n_dims > 0 ? x->begin[x->n_dims - 1] : 0;
    if (n == 0 && x->n_dims == 2)
        o->rows = x->shape[0]; /* an empty part of a vocabulary */
    o->wide = cuda_is_wide(x, n);
    o->block = n > CUDA_WARP_ROW;
    const int64_t groups = o->block ? 1 : CUDA_THREADS / 32, bytes = groups * n_cached * n * size;
    o->cached = bytes > 0 && bytes <= CUDA_CACHE - CUDA_ROOM;
    o->pieces = (int)cuda_max(1, cuda_ceil(n, PIECE));
    o->grid = (cuda_grid){cuda_ceil(o->rows, groups), 1, 1, CUDA_THREADS,
                          CUDA_ROOM + (o->cached ? (int)bytes : 0)};
    return TT_OK;
}

/* x [..,V] -> y [..,V] */
static tt_status run_softmax(void *self, const tt_kernel_call *c, tt_error *err)
{
    rows o;
    TT_TRY(rows_of(c, 1, &o, err));
    o.wide = o.wide && cuda_is_wide(&c->out[0], o.n);
    return CUDA_LAUNCH(self, c, &softmax_kernels[o.block][cuda_half(&c->in[0])], o.grid, err, &o.x,
                       &o.y, &o.rows, &o.n, &o.cached, &o.wide);
}

/* y [..,V], dy [..,V] -> dx [..,V] */
static tt_status run_softmax_bwd(void *self, const tt_kernel_call *c, tt_error *err)
{
    const void *dy = c->in[1].data;
    rows o;
    TT_TRY(rows_of(c, 2, &o, err));
    o.wide = o.wide && cuda_is_wide(&c->in[1], o.n) && cuda_is_wide(&c->out[0], o.n);
    return CUDA_LAUNCH(self, c, &softmax_bwd_kernels[o.block][cuda_half(&c->in[0])], o.grid, err,
                       &o.x, &dy, &o.y, &o.rows, &o.n, &o.cached, &o.wide);
}

/* logits [T,V], labels [T] -> nll [T], lse [T] */
static tt_status run_cross_entropy(void *self, const tt_kernel_call *c, tt_error *err)
{
    const void *labels = c->in[1].data;
    void *lse = c->out[1].data;
    rows o;
    TT_TRY(rows_of(c, 0, &o, err));
    return CUDA_LAUNCH(self, c, &cross_entropy_kernels[o.block][cuda_half(&c->in[0])], o.grid, err,
                       &o.x, &labels, &o.y, &lse, &o.rows, &o.n, &o.begin, &o.wide);
}

/* x [T,V] -> max [T]; x [T,V], m [T] -> Σ e^(x - m) [T] */
static tt_status run_vocabulary(void *self, const tt_kernel_call *c, tt_error *err)
{
    const void *m = c->n_in > 1 ? c->in[1].data : NULL;
    int half = c->n_in > 1 ? cuda_half(&c->in[1]) : 0;
    rows o;
    TT_TRY(rows_of(c, 0, &o, err));
    return CUDA_LAUNCH(self, c, &vocabulary_kernels[o.block][cuda_half(&c->in[0])], o.grid, err,
                       &o.x, &m, &half, &o.y, &o.rows, &o.n, &o.wide);
}

static cuda_grid pieces_of(rows *o)
{
    if (o->rows >= INT32_MAX / o->pieces)
        o->pieces = 1;
    return (cuda_grid){o->rows * o->pieces, 1, 1, CUDA_THREADS, 0};
}

/* logits [T,V], labels [T], lse [T], dnll [T] -> dlogits [T,V] */
static tt_status run_cross_entropy_bwd(void *self, const tt_kernel_call *c, tt_error *err)
{
    const void *labels = c->in[1].data, *lse = c->in[2].data, *d = c->in[3].data;
    int half_lse = cuda_half(&c->in[2]), half_d = cuda_half(&c->in[3]);
    rows o;
    TT_TRY(rows_of(c, 0, &o, err));
    o.wide = o.wide && cuda_is_wide(&c->out[0], o.n);
    const cuda_grid grid = pieces_of(&o);
    return CUDA_LAUNCH(self, c, &cross_entropy_bwd_kernels[cuda_half(&c->in[0])], grid, err, &o.x,
                       &labels, &lse, &half_lse, &d, &half_d, &o.y, &o.n, &o.pieces, &o.begin,
                       &o.wide);
}

/* x [T,V], labels [T] -> the label's element [T], 0 where another rank has it */
static tt_status run_pick(void *self, const tt_kernel_call *c, tt_error *err)
{
    const void *labels = c->in[1].data;
    rows o;
    TT_TRY(rows_of(c, 0, &o, err));
    const cuda_grid grid = {cuda_ceil(o.rows, CUDA_THREADS), 1, 1, CUDA_THREADS, 0};
    return CUDA_LAUNCH(self, c, &pick_kernels[cuda_half(&c->in[0])], grid, err, &o.x, &labels, &o.y,
                       &o.rows, &o.n, &o.begin);
}

/* x [T,V] (its type only), labels [T], dy [T] -> dx [T,V] */
static tt_status run_pick_bwd(void *self, const tt_kernel_call *c, tt_error *err)
{
    const void *labels = c->in[1].data, *dy = c->in[2].data;
    int half = cuda_half(&c->in[2]);
    rows o;
    TT_TRY(rows_of(c, 0, &o, err));
    o.wide = cuda_is_wide(&c->out[0], o.n);
    const cuda_grid grid = pieces_of(&o);
    return CUDA_LAUNCH(self, c, &pick_bwd_kernels[cuda_half(&c->out[0])], grid, err, &labels, &dy,
                       &half, &o.y, &o.n, &o.pieces, &o.begin, &o.wide);
}

static int takes_softmax_bwd(const tt_kernel_call *c)
{
    return cuda_floats(c) && c->in[1].dtype == c->in[0].dtype;
}

const tt_kernel cuda_kernels_softmax[] = {
    CUDA_ROW("softmax", run_softmax, NULL, 0, 1, cuda_floats),
    CUDA_ROW("softmax_bwd", run_softmax_bwd, NULL, 0, 3, takes_softmax_bwd),
    CUDA_ROW("cross_entropy", run_cross_entropy, NULL, 0, 0, cuda_floats),
    CUDA_ROW("cross_entropy_bwd", run_cross_entropy_bwd, NULL, 0, 1, cuda_floats),
    CUDA_ROW("max_last", run_vocabulary, NULL, 0, 0, cuda_floats),
    CUDA_ROW("sum_exp", run_vocabulary, NULL, 0, 0, cuda_floats),
    CUDA_ROW("pick", run_pick, NULL, 0, 0, cuda_floats),
    CUDA_ROW("pick_bwd", run_pick_bwd, NULL, 0, 0, cuda_floats),
    {.op = NULL},
};
