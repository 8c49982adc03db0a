/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu.h"
#include <math.h>
#include <string.h>

/* attention_merge: combines the results of attention over two sets of keys, weighted by exp(lse -
 * the larger lse). A query that saw no key of either set keeps out 0 and lse -inf. T tokens, h
 * heads, dv elements of a head's value. Naive twin: ref_attention_merge in
 * backends/reference/attention.c. */

typedef struct merge {
    const float *out[2], *lse[2];
    float *y, *y_lse;
    int64_t dv; /* elements per head */
} merge;

static void merge_heads(void *arg, int64_t begin, int64_t end, int thread)
{
    const merge *w = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++) { /* i counts (token, head) */
        const float a = w->lse[0][i], b = w->lse[1][i], top = a >= b ? a : b;
        const float *x = w->out[0] + i * w->dv, *z = w->out[1] + i * w->dv;
        float *y = w->y + i * w->dv;
        if (top == -INFINITY) {
            memset(y, 0, (size_t)w->dv * sizeof *y);
            w->y_lse[i] = top;
            continue;
        }
        const float p = expf(a - top), q = expf(b - top), sum = p + q, f = p / sum, g = q / sum;
        w->y_lse[i] = top + logf(sum);
        for (int64_t d = 0; d < w->dv; d++)
            y[d] = x[d] * f + z[d] * g;
    }
}

/* out [T,h*dv], lse [T,h] of the first set, the same of the second -> out [T,h*dv], lse [T,h] */
static tt_status attention_merge(void *self, const tt_kernel_call *c, tt_error *err)
{
    (void)self, (void)err;
    merge w = {
        .out = {cpu_f32(&c->in[0]), cpu_f32(&c->in[2])},
        .lse = {cpu_f32(&c->in[1]), cpu_f32(&c->in[3])},
        .y = c->out[0].data,
        .y_lse = c->out[1].data
    };
    const int64_t n = tt_tensor_numel(&c->in[1]);
    w.dv = n ? tt_tensor_numel(&c->in[0]) / n : 0;
    tt_parallel_for(c->pool, n, cpu_row_grain(n, w.dv), merge_heads, &w);
    return TT_OK;
}

const cpu_kernel cpu_kernels_attention_merge[] = {
    CPU_KERNEL("attention_merge", attention_merge, NULL, 0, 0),
    CPU_KERNEL_END,
};
