/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu.h"
#include <string.h>

/* conv1d: y[t] = Σ_j w[:, K-1-j] · x[t-j] over the taps that count. Tasks are ranges of channels. T
 * tokens, D channels, K taps. Naive twins: ref_conv1d and ref_conv1d_bwd in
 * backends/reference/attention.c, ref_conv1d_cached in scan.c. */
#define CHANNELS 64

typedef struct conv {
    const float *x, *w, *dy;
    float *y, *dx, *dw;
    const int32_t *seg, *pos;
    int64_t tokens, width, taps;
} conv;

static conv conv_of(const tt_kernel_call *c)
{
    return (conv){.x = c->in[0].data,
                  .w = c->in[1].data,
                  .seg = c->in[2].data,
                  .pos = c->in[3].data,
                  .tokens = c->in[0].shape[0],
                  .width = c->in[0].shape[1],
                  .taps = c->in[1].shape[1]};
}

/* Does tap j count for token t? Only if token t - j is in the same segment, j positions earlier. */
static bool counts(const conv *w, int64_t t, int64_t j)
{
    return j <= t && w->seg[t - j] == w->seg[t] && w->pos[t - j] == w->pos[t] - j;
}

static void forward(void *arg, int64_t begin, int64_t end, int thread)
{
    const conv *w = arg;
    (void)thread;
    for (int64_t t = 0; t < w->tokens; t++) {
        float *y = w->y + t * w->width;
        memset(y + begin, 0, (size_t)(end - begin) * sizeof(float));
        for (int64_t j = 0; j < w->taps; j++) {
            if (!counts(w, t, j))
                continue;
            for (int64_t d = begin; d < end; d++)
                y[d] += w->w[d * w->taps + w->taps - 1 - j] * w->x[(t - j) * w->width + d];
        }
    }
}

static void backward(void *arg, int64_t begin, int64_t end, int thread)
{
    const conv *w = arg;
    (void)thread;
    memset(w->dw + begin * w->taps, 0, (size_t)((end - begin) * w->taps) * sizeof(float));
    for (int64_t t = 0; t < w->tokens; t++) {
        const float *dy = w->dy + t * w->width;
        memset(w->dx + t * w->width + begin, 0, (size_t)(end - begin) * sizeof(float));
        for (int64_t j = 0; j < w->taps; j++) {
            if (!counts(w, t, j))
                continue;
            for (int64_t d = begin; d < end; d++) {
                int64_t tap = d * w->taps + w->taps - 1 - j, at = (t - j) * w->width + d;
                w->dx[at] += w->w[tap] * dy[d];
                w->dw[tap] += w->x[at] * dy[d];
            }
        }
    }
}

/* x [T,D], w [D,K], seg [T], pos [T] -> y [T,D] */
static tt_status conv1d(void *self, const tt_kernel_call *c, tt_error *err)
{
    conv w = conv_of(c);
    (void)self;
    (void)err;
    w.y = c->out[0].data;
    tt_parallel_for(c->pool, w.width, CHANNELS, forward, &w);
    return TT_OK;
}
/* x [T,D], w [D,K], seg [T], pos [T], dy [T,D] -> dx [T,D], dw [D,K] */
static tt_status conv1d_bwd(void *self, const tt_kernel_call *c, tt_error *err)
{
    conv w = conv_of(c);
    (void)self;
    (void)err;
    w.dy = c->in[4].data;
    w.dx = c->out[0].data;
    w.dw = c->out[1].data;
    tt_parallel_for(c->pool, w.width, CHANNELS, backward, &w);
    return TT_OK;
}

/* Decoding: seg holds the slot of each token's sequence; dx the state [S,rows,D]. */
static void cached_conv(void *arg, int64_t begin, int64_t end, int thread)
{
    const conv *w = arg;
    const int64_t rows = cpu_max(w->taps - 1, 1);
    (void)thread;
    for (int64_t t = 0; t < w->tokens; t++) {
        const float *x = w->x + t * w->width;
        float *y = w->y + t * w->width;
        memset(y + begin, 0, (size_t)(end - begin) * sizeof(float));
        if (w->seg[t] < 0)
            continue;
        float *state = w->dx + w->seg[t] * rows * w->width;
        for (int64_t j = 0; j < w->taps && j <= w->pos[t]; j++) {
            const float *from = j ? state + (w->pos[t] - j) % rows * w->width : x;
            for (int64_t d = begin; d < end; d++)
                y[d] += w->w[d * w->taps + w->taps - 1 - j] * from[d];
        }
        memcpy(state + w->pos[t] % rows * w->width + begin, x + begin,
               (size_t)(end - begin) * sizeof(float));
    }
}

/* x [T,D], w [D,K], slot [T], pos [T], state [S,max(K-1,1),D] -> y [T,D], state */
static tt_status conv1d_cached(void *self, const tt_kernel_call *c, tt_error *err)
{
    conv w = conv_of(c);
    (void)self;
    TT_TRY(cpu_begin_cached(c, 2, err));
    w.y = c->out[0].data;
    w.dx = c->out[1].data;
    tt_parallel_for(c->pool, w.width, CHANNELS, cached_conv, &w);
    return TT_OK;
}

const cpu_kernel cpu_kernels_conv[] = {
    CPU_KERNEL("conv1d", conv1d, NULL, 0, 0),
    CPU_KERNEL("conv1d_bwd", conv1d_bwd, NULL, 0, 0),
    CPU_KERNEL("conv1d_cached", conv1d_cached, NULL, 0, 0),
    CPU_KERNEL_END,
};
