/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu.h"
#include <string.h>

/* scan: h[t] = a[t] h[t-1] + x[t], and its derivative. x, h [T, n * m], a [T or 1, n]: m states in a
 * row share a decay. A task has BLOCK states and walks over all tokens, so that what it reads of the
 * token before is in the first-level cache; a row of more states is cut, and then the parts of da are
 * summed in order. cumsum: a task has CPU_LANES independent sums, in f64. Naive twins:
 * backends/reference/scan.c. */
#define BLOCK 512

typedef struct scan {
    const cpu_isa *isa;
    const float *x, *a, *h, *dh;
    float *y, *dx, *da; /* y: h, the result */
    const int32_t *seg, *pos;
    int64_t tokens, n, m, ld_a;
    int64_t rows, cuts; /* rows per task; tasks per row */
    float *parts;       /* [cuts][T * n] the parts of da, if cuts > 1 */
} scan;

static scan scan_of(void *self, const tt_kernel_call *c, int at_seg)
{
    const tt_tensor *x = &c->in[0], *a = &c->in[1];
    scan w = {.isa = self ? ((const cpu_backend *)self)->isa : NULL,
              .a = a->data,
              .seg = c->in[at_seg].data,
              .pos = c->in[at_seg + 1].data,
              .tokens = x->shape[0],
              .n = 1,
              .m = 1};
    int d = x->n_dims - 1;
    for (; d > 0 && a->shape[d] == 1; d--)
        w.m *= x->shape[d];
    for (; d > 0; d--)
        w.n *= x->shape[d];
    w.ld_a = a->global[0] == 1 ? 0 : w.n;
    w.cuts = cpu_max(1, (w.m + BLOCK - 1) / BLOCK);
    w.rows = cpu_max(1, BLOCK / cpu_max(1, w.m));
    return w;
}

static int64_t n_tasks(const scan *w)
{
    return (w->n + w->rows - 1) / w->rows * w->cuts;
}

/* Task i has the rows [first, first + rows) of a, and of each the states [at, at + m). */
typedef struct piece {
    int64_t first, rows, at, m;
} piece;

static piece piece_of(const scan *w, int64_t i)
{
    const int64_t first = i / w->cuts * w->rows, at = i % w->cuts * BLOCK;
    return (piece){first, cpu_min(w->rows, w->n - first), at,
                   w->cuts > 1 ? cpu_min(BLOCK, w->m - at) : w->m};
}

static bool continues(const scan *w, int64_t t) /* token t the segment of token t - 1 */
{
    return t > 0 && t < w->tokens && w->seg[t - 1] == w->seg[t] && w->pos[t - 1] == w->pos[t] - 1;
}

static void scan_forward(void *arg, int64_t begin, int64_t end, int thread)
{
    const scan *w = arg;
    const int64_t width = w->n * w->m;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const piece p = piece_of(w, i);
        for (int64_t t = 0; t < w->tokens; t++) {
            const int64_t at = t * width + p.first * w->m + p.at;
            if (continues(w, t))
                w->isa->scan(p.rows, p.m, w->a + t * w->ld_a + p.first, w->y + at - width,
                             w->x + at, w->y + at);
            else if (w->y != w->x)
                memcpy(w->y + at, w->x + at, (size_t)(p.rows * p.m) * sizeof(float));
        }
    }
}

static void scan_backward(void *arg, int64_t begin, int64_t end, int thread)
{
    const scan *w = arg;
    const int64_t width = w->n * w->m;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const piece p = piece_of(w, i);
        float *da = w->cuts > 1 ? w->parts + i % w->cuts * w->tokens * w->n : w->da;
        for (int64_t t = w->tokens - 1; t >= 0; t--) {
            const int64_t at = t * width + p.first * w->m + p.at;
            const bool more = continues(w, t + 1);
            w->isa->scan_bwd(p.rows, p.m, w->a + (t + more) * w->ld_a + p.first,
                             more ? w->dx + at + width : NULL,
                             continues(w, t) ? w->h + at - width : NULL, w->dh + at, w->dx + at,
                             da + t * w->n + p.first);
        }
    }
}

static void sum_parts(void *arg, int64_t begin, int64_t end, int thread)
{
    const scan *w = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        float sum = 0;
        for (int64_t k = 0; k < w->cuts; k++)
            sum += w->parts[k * w->tokens * w->n + i];
        w->da[i] = sum;
    }
}

static tt_status run_scan(void *self, const tt_kernel_call *c, tt_error *err)
{
    scan w = scan_of(self, c, 2);
    (void)err;
    w.x = c->in[0].data;
    w.y = c->out[0].data;
    tt_parallel_for(c->pool, n_tasks(&w), 1, scan_forward, &w);
    return TT_OK;
}

static size_t scan_bwd_scratch(const tt_kernel_call *c, int n_threads)
{
    const scan w = scan_of(NULL, c, 3);
    (void)n_threads;
    return w.cuts > 1 ? (size_t)(w.cuts * w.tokens * w.n) * sizeof(float) : 0;
}

/* h, a, dh, seg, pos -> dx, da [T, n] */
static tt_status run_scan_bwd(void *self, const tt_kernel_call *c, tt_error *err)
{
    scan w = scan_of(self, c, 3);
    (void)err;
    w.h = c->in[0].data;
    w.dh = c->in[2].data;
    w.dx = c->out[0].data;
    w.da = c->out[1].data;
    w.parts = c->scratch;
    tt_parallel_for(c->pool, n_tasks(&w), 1, scan_backward, &w);
    if (w.cuts > 1)
        tt_parallel_for(c->pool, w.tokens * w.n, 16384, sum_parts, &w);
    return TT_OK;
}

/* ---- decoding: x, a, slot, pos, state [S, n * m] -> h, state ---- */

static void scan_continue(void *arg, int64_t begin, int64_t end, int thread)
{
    const scan *w = arg; /* seg: the slot of each token's sequence; dx: the state */
    const int64_t width = w->n * w->m;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const piece p = piece_of(w, i);
        const size_t bytes = (size_t)(p.rows * p.m) * sizeof(float);
        for (int64_t t = 0; t < w->tokens; t++) {
            const int64_t column = p.first * w->m + p.at, at = t * width + column;
            if (w->seg[t] < 0) {
                memset(w->y + at, 0, bytes);
                continue;
            }
            float *state = w->dx + w->seg[t] * width + column;
            if (w->pos[t] > 0)
                w->isa->scan(p.rows, p.m, w->a + t * w->ld_a + p.first, state, w->x + at,
                             w->y + at);
            else if (w->y != w->x)
                memcpy(w->y + at, w->x + at, bytes);
            memcpy(state, w->y + at, bytes);
        }
    }
}

tt_status cpu_begin_cached(const tt_kernel_call *c, int at_slot, tt_error *err)
{
    const tt_tensor *state = &c->out[1], *from = &c->in[at_slot + 2];
    const int32_t *slot = cpu_i32(&c->in[at_slot]), *pos = cpu_i32(&c->in[at_slot + 1]);
    for (int64_t t = 0; t < c->in[0].shape[0]; t++)
        if (slot[t] >= state->shape[0] || (slot[t] >= 0 && pos[t] < 0))
            return TT_FAIL(err, TT_EINVAL,
                           "%s: token %lld is number %d of sequence %d, there is room for %lld "
                           "sequences",
                           c->op, (long long)t, (int)pos[t], (int)slot[t],
                           (long long)state->shape[0]);
    if (state->data != from->data)
        memcpy(state->data, from->data, (size_t)tt_tensor_numel(state) * sizeof(float));
    return TT_OK;
}

static tt_status run_scan_cached(void *self, const tt_kernel_call *c, tt_error *err)
{
    scan w = scan_of(self, c, 2);
    TT_TRY(cpu_begin_cached(c, 2, err));
    w.x = c->in[0].data;
    w.y = c->out[0].data;
    w.dx = c->out[1].data;
    tt_parallel_for(c->pool, n_tasks(&w), 1, scan_continue, &w);
    return TT_OK;
}

/* ---- cumsum: x [outer, n, inner] ---- */

typedef struct cumsum {
    const cpu_isa *isa;
    const float *x;
    float *y;
    int64_t outer, n, inner;
    bool reverse, exclusive;
} cumsum;

/* The sums of `lanes` lanes, which are `apart` elements apart; a step is `inner` elements. */
static void sum_lanes(const cumsum *w, const float *x, float *y, int64_t lanes, int64_t apart)
{
    double sum[CPU_LANES] = {0};
    for (int64_t k = 0; k < w->n; k++) {
        const int64_t at = (w->reverse ? w->n - 1 - k : k) * w->inner;
        for (int64_t l = 0; l < lanes; l++) {
            const double next = sum[l] + (double)x[at + l * apart];
            y[at + l * apart] = (float)(w->exclusive ? sum[l] : next);
            sum[l] = next;
        }
    }
}

static void cumsum_pieces(void *arg, int64_t begin, int64_t end, int thread)
{
    const cumsum *w = arg;
    const int64_t blocks = (w->inner + CPU_LANES - 1) / CPU_LANES;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const bool rows = w->inner == 1; /* the lanes are rows, else columns */
        const int64_t lane = i % blocks * CPU_LANES,
                      at = rows ? i * CPU_LANES * w->n : i / blocks * w->n * w->inner + lane,
                      first = w->reverse && w->n ? at + (w->n - 1) * w->inner : at;
        if (!rows && w->inner - lane >= CPU_LANES)
            w->isa->columns(w->n, w->reverse ? -w->inner : w->inner, w->x + first, w->y + first,
                            w->exclusive);
        else
            sum_lanes(w, w->x + at, w->y + at,
                      cpu_min(CPU_LANES, rows ? w->outer - i * CPU_LANES : w->inner - lane),
                      rows ? w->n : 1);
    }
}

static tt_status run_cumsum(void *self, const tt_kernel_call *c, tt_error *err)
{
    const tt_attrs_cumsum *a = c->attrs;
    const tt_tensor *x = &c->in[0];
    cumsum w = {((const cpu_backend *)self)->isa,
                x->data,
                c->out[0].data,
                1,
                1,
                1,
                a->reverse != 0,
                a->exclusive != 0};
    const int dim = a->dim < 0 ? a->dim + x->n_dims : a->dim;
    (void)err;
    for (int d = 0; d < x->n_dims; d++)
        *(d < dim ? &w.outer : d == dim ? &w.n : &w.inner) *= x->shape[d];
    const int64_t tasks = w.inner == 1 ? (w.outer + CPU_LANES - 1) / CPU_LANES
                                       : w.outer * ((w.inner + CPU_LANES - 1) / CPU_LANES);
    tt_parallel_for(c->pool, tasks, cpu_row_grain(tasks, CPU_LANES * w.n), cumsum_pieces, &w);
    return TT_OK;
}

const cpu_kernel cpu_kernels_scan[] = {
    CPU_KERNEL("cumsum", run_cumsum, NULL, 0, 1),
    CPU_KERNEL("scan", run_scan, NULL, 0, 1),
    CPU_KERNEL("scan_bwd", run_scan_bwd, scan_bwd_scratch, 0, 4),
    CPU_KERNEL("scan_cached", run_scan_cached, NULL, 0, 1),
    CPU_KERNEL_END,
};
