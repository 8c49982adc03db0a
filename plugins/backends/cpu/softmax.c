/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu.h"
#include <math.h>
#include <string.h>

/* Kernels over rows of logits: softmax, cross-entropy, and the three parts that cross-entropy is
 * made of when ranks shard the vocabulary (max_last, sum_exp, pick). Each row is computed by one
 * thread. T rows (tokens), V columns (the vocabulary, or this rank's part of it). Naive twins:
 * backends/reference/norm.c (softmax) and loss.c. */

typedef struct rows {
    const cpu_isa *isa;
    const float *x, *lse, *d;
    const int32_t *labels;
    float *y, *z;
    int64_t width, first; /* first: global index of this rank's column 0 */
} rows;

static void run_rows(void *self, const tt_kernel_call *c, tt_range_fn fn, rows *w)
{
    w->isa = ((const cpu_backend *)self)->isa;
    w->x = c->in[0].data;
    w->y = c->out[0].data;
    w->width = cpu_width(&c->in[0]);
    w->first = c->in[0].n_dims ? c->in[0].begin[c->in[0].n_dims - 1] : 0;
    int64_t n = cpu_rows(&c->in[0]);
    /* Each thread takes consecutive rows, so that the thread that reads a row has prefetched it. */
    const int64_t share = n / (8 * tt_pool_threads(c->pool));
    tt_parallel_for(c->pool, n, cpu_max(cpu_row_grain(n, w->width), cpu_min(share, 16)), fn, w);
}

/* The local column of row t's label, or -1 when another rank holds it or the label is ignored. */
static int64_t column(const rows *w, int64_t t)
{
    int64_t v = (int64_t)w->labels[t] - w->first;
    return w->labels[t] >= 0 && v >= 0 && v < w->width ? v : -1;
}

static void softmax_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const rows *w = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const float *x = w->x + r * w->width;
        float m = w->isa->max(w->width, x);
        float s = w->isa->sum_exp(w->width, x, m);
        w->isa->exp_sub(w->width, x, m, 1.0f / s, w->y + r * w->width);
    }
}
/* x [T,V] -> y [T,V] */
static tt_status softmax(void *self, const tt_kernel_call *c, tt_error *err)
{
    (void)err;
    rows w = {0};
    run_rows(self, c, softmax_rows, &w);
    return TT_OK;
}

static void softmax_bwd_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const rows *w = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        w->isa->softmax_bwd(w->width, w->x + r * w->width, w->d + r * w->width,
                            w->y + r * w->width);
}
/* y [T,V], dy [T,V] -> dx [T,V] */
static tt_status softmax_bwd(void *self, const tt_kernel_call *c, tt_error *err)
{
    (void)err;
    rows w = {.d = c->in[1].data};
    run_rows(self, c, softmax_bwd_rows, &w);
    return TT_OK;
}

static void cross_entropy_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const rows *w = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const float *x = w->x + r * w->width;
        float m = w->isa->max(w->width, x);
        float lse = m + logf(w->isa->sum_exp(w->width, x, m));
        int64_t v = column(w, r);
        w->z[r] = lse;
        w->y[r] = w->labels[r] < 0 ? 0.0f : v >= 0 ? lse - x[v] : lse;
    }
}
/* logits [T,V], labels [T] -> loss [T], lse [T] */
static tt_status cross_entropy(void *self, const tt_kernel_call *c, tt_error *err)
{
    (void)err;
    rows w = {.labels = c->in[1].data, .z = c->out[1].data};
    run_rows(self, c, cross_entropy_rows, &w);
    return TT_OK;
}

static void cross_entropy_bwd_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const rows *w = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        float *y = w->y + r * w->width;
        if (w->labels[r] < 0) {
            memset(y, 0, (size_t)w->width * sizeof *y);
            continue;
        }
        int64_t v = column(w, r);
        float target = v >= 0 ? (expf(w->x[r * w->width + v] - w->lse[r]) - 1.0f) * w->d[r] : 0.0f;
        w->isa->exp_sub(w->width, w->x + r * w->width, w->lse[r], w->d[r], y);
        if (v >= 0)
            y[v] = target;
    }
}
/* logits [T,V], labels [T], lse [T], dloss [T] -> dlogits [T,V] */
static tt_status cross_entropy_bwd(void *self, const tt_kernel_call *c, tt_error *err)
{
    (void)err;
    rows w = {.labels = c->in[1].data, .lse = c->in[2].data, .d = c->in[3].data};
    run_rows(self, c, cross_entropy_bwd_rows, &w);
    return TT_OK;
}

static void max_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const rows *w = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        w->y[r] = w->isa->max(w->width, w->x + r * w->width);
}
/* x [T,V] -> max [T] */
static tt_status max_last(void *self, const tt_kernel_call *c, tt_error *err)
{
    (void)err;
    rows w = {0};
    run_rows(self, c, max_rows, &w);
    return TT_OK;
}

static void sum_exp_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const rows *w = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        w->y[r] = w->isa->sum_exp(w->width, w->x + r * w->width, w->d[r]);
}
/* x [T,V], max [T] -> sum of exp(x - max) [T] */
static tt_status sum_exp(void *self, const tt_kernel_call *c, tt_error *err)
{
    (void)err;
    rows w = {.d = c->in[1].data};
    run_rows(self, c, sum_exp_rows, &w);
    return TT_OK;
}

static void pick_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const rows *w = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        int64_t v = column(w, r);
        w->y[r] = v >= 0 ? w->x[r * w->width + v] : 0.0f;
    }
}
/* x [T,V], labels [T] -> the label's logit [T], 0 when another rank holds it */
static tt_status pick(void *self, const tt_kernel_call *c, tt_error *err)
{
    (void)err;
    rows w = {.labels = c->in[1].data};
    run_rows(self, c, pick_rows, &w);
    return TT_OK;
}

static void pick_bwd_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const rows *w = arg;
    (void)thread;
    memset(w->y + begin * w->width, 0, (size_t)((end - begin) * w->width) * sizeof(float));
    for (int64_t r = begin; r < end; r++) {
        int64_t v = column(w, r);
        if (v >= 0)
            w->y[r * w->width + v] = w->d[r];
    }
}
/* x [T,V] (for its shape), labels [T], dy [T] -> dx [T,V] */
static tt_status pick_bwd(void *self, const tt_kernel_call *c, tt_error *err)
{
    (void)err;
    rows w = {.labels = c->in[1].data, .d = c->in[2].data};
    run_rows(self, c, pick_bwd_rows, &w);
    return TT_OK;
}

const cpu_kernel cpu_kernels_softmax[] = {
    CPU_KERNEL("softmax", softmax, NULL, 0, 1),
    CPU_KERNEL("softmax_bwd", softmax_bwd, NULL, 0, 3),
    CPU_KERNEL("cross_entropy", cross_entropy, NULL, 0, 0),
    CPU_KERNEL("cross_entropy_bwd", cross_entropy_bwd, NULL, 0, 1),
    CPU_KERNEL("max_last", max_last, NULL, 0, 0),
    CPU_KERNEL("sum_exp", sum_exp, NULL, 0, 0),
    CPU_KERNEL("pick", pick, NULL, 0, 0),
    CPU_KERNEL("pick_bwd", pick_bwd, NULL, 0, 0),
    CPU_KERNEL_END,
};
