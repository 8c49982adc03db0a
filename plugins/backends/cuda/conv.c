/* SPDX-License-Identifier: Apache-2.0 */
#include "rows.h"

/* conv1d, its derivative and its form for decoding; scan.c has their rows. T tokens, D channels, K
 * taps. The weight's gradient is summed over pieces of the tokens, which depend on the shape only. */
#define FORWARD 16 /* tokens of a thread */
#define PIECES 256 /* of the weight's gradient, at most */
#define LEAST 32   /* tokens of one */

static cuda_kernel conv[2] = CUDA_PAIR("conv", "conv"), conv_dx[2] = CUDA_PAIR("conv", "conv_dx"),
                   conv_dw[2] = CUDA_PAIR("conv", "conv_dw"),
                   conv_cached[2] = CUDA_PAIR("conv", "conv_cached");

typedef struct conv_args { /* tt_conv of kernels/conv.cu */
    const void *w, *seg, *pos;
    int64_t tokens, width, piece;
    int half_w, taps;
} conv_args;

static conv_args conv_of(const tt_kernel_call *c, int64_t piece)
{
    return (conv_args){.w = c->in[1].data,
                       .seg = c->in[2].data,
                       .pos = c->in[3].data,
                       .tokens = c->in[0].shape[0],
                       .width = c->in[0].shape[1],
                       .piece = piece,
                       .half_w = cuda_half(&c->in[1]),
                       .taps = (int)c->in[1].shape[1]};
}
static cuda_grid grid_of(const conv_args *a)
{
    return (cuda_grid){cuda_ceil(a->tokens, a->piece) * cuda_ceil(a->width, CUDA_THREADS), 1, 1,
                       CUDA_THREADS, 0};
}

/* x [T,D], w [D,K], seg [T], pos [T] -> y [T,D] */
tt_status cuda_conv1d(void *self, const tt_kernel_call *c, tt_error *err)
{
    const void *x = c->in[0].data;
    void *y = c->out[0].data;
    conv_args a = conv_of(c, FORWARD);
    return CUDA_LAUNCH(self, c, &conv[cuda_half(&c->in[0])], grid_of(&a), err, &a, &x, &y);
}

size_t cuda_conv1d_bwd_scratch(const tt_kernel_call *c, int n_threads)
{
    const int64_t pieces = cuda_min(PIECES, cuda_ceil(c->in[0].shape[0], LEAST));
    (void)n_threads;
    return (size_t)(pieces * tt_tensor_numel(&c->in[1])) * sizeof(float);
}

/* x [T,D], w [D,K], seg [T], pos [T], dy [T,D] -> dx [T,D], dw [D,K] */
tt_status cuda_conv1d_bwd(void *self, const tt_kernel_call *c, tt_error *err)
{
    const int half = cuda_half(&c->in[0]);
    const void *x = c->in[0].data, *dy = c->in[4].data;
    void *dx = c->out[0].data, *partial = c->scratch;
    conv_args a = conv_of(c, FORWARD);
    TT_TRY(CUDA_LAUNCH(self, c, &conv_dx[half], grid_of(&a), err, &a, &dy, &dx));
    a.piece = cuda_max(LEAST, cuda_ceil(a.tokens, PIECES));
    TT_TRY(CUDA_LAUNCH(self, c, &conv_dw[half], grid_of(&a), err, &a, &x, &dy, &partial));
    const int64_t n = a.width * a.taps;
    return cuda_column_sum(self, c->queue, partial, cuda_ceil(a.tokens, a.piece), n, n,
                           c->out[1].data, err);
}

/* x [T,D], w [D,K], slot [T], pos [T], state [S,max(K-1,1),D] -> y [T,D], state */
tt_status cuda_conv1d_cached(void *self, const tt_kernel_call *c, tt_error *err)
{
    const tt_tensor *state = &c->out[1];
    const void *x = c->in[0].data;
    void *y = c->out[0].data, *to = state->data;
    int half = cuda_half(state);
    int64_t slots = state->shape[0], rows = state->shape[1];
    conv_args a = conv_of(c, 1);
    const cuda_grid grid = {cuda_ceil(a.width, CUDA_THREADS), 1, 1, CUDA_THREADS, 0};
    TT_TRY(cuda_copy(self, c->queue, to, c->in[4].data,
                     (size_t)tt_tensor_numel(state) * tt_dtype_size(state->dtype), err));
    return CUDA_LAUNCH(self, c, &conv_cached[cuda_half(&c->in[0])], grid, err, &a, &x, &y, &to,
                       &half, &slots, &rows);
}
