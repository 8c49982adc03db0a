/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu.h"
#include <string.h>

/* Mixture of experts: sorting slots by expert, and one matrix product per expert over its rows.
 * Rows past the sum of the counts are never read, and are zero in the outputs. R rows, E experts, i
 * and o: input and output width. Naive twins: backends/reference/matmul.c. */

static size_t sort_scratch(const tt_kernel_call *c, int n_threads)
{
    (void)n_threads;
    return (size_t)(c->out[1].shape[0] + 1) * sizeof(int32_t);
}

/* assign [R] -> order [R], counts [E]. A slot assigned to no expert (outside [0, E)) sorts after
 * all others. */
static tt_status expert_sort(void *self, const tt_kernel_call *c, tt_error *err)
{
    const int32_t *assign = c->in[0].data;
    int32_t *order = c->out[0].data, *counts = c->out[1].data, *next = c->scratch;
    const int64_t n = tt_tensor_numel(&c->in[0]), experts = c->out[1].shape[0];
    int32_t at = 0;
    (void)self;
    (void)err;
    memset(counts, 0, (size_t)experts * sizeof *counts);
    for (int64_t i = 0; i < n; i++)
        if (assign[i] >= 0 && assign[i] < experts)
            counts[assign[i]]++;
    for (int64_t e = 0; e < experts; e++) {
        next[e] = at;
        at += counts[e];
    }
    next[experts] = at;
    for (int64_t i = 0; i < n; i++) {
        int64_t e = assign[i] >= 0 && assign[i] < experts ? assign[i] : experts;
        order[next[e]++] = (int32_t)i;
    }
    return TT_OK;
}

/* assign [R] -> counts f64 [E] */
static tt_status expert_count(void *self, const tt_kernel_call *c, tt_error *err)
{
    const int32_t *assign = c->in[0].data;
    double *counts = c->out[0].data;
    const int64_t n = tt_tensor_numel(&c->in[0]), experts = c->out[0].shape[0];
    (void)self;
    (void)err;
    memset(counts, 0, (size_t)experts * sizeof *counts);
    for (int64_t i = 0; i < n; i++)
        if (assign[i] >= 0 && assign[i] < experts)
            counts[assign[i]]++;
    return TT_OK;
}

/* The rows of one expert of one part. */
typedef struct expert_part {
    int64_t e, row, n, end; /* local expert; first row, number of rows, end of its part's rows */
    bool first, last;       /* of the expert's parts; of the part's experts */
} expert_part;

typedef struct expert_walk {
    const int32_t *counts;
    int64_t senders, experts, local, parts, each, at;
    expert_part now;
} expert_walk;

/* counts [E], or [G,P,E]: the rows are G·P equal parts, of which part (g, p) has those of E/P experts; an
 * expert has the sum over P. */
static expert_walk walk_experts(const tt_tensor *counts, int64_t rows)
{
    const bool grouped = counts->n_dims == 3;
    const int64_t groups = grouped ? counts->shape[0] : 1;
    expert_walk w = {.counts = counts->data,
                     .senders = grouped ? counts->shape[1] : 1,
                     .experts = counts->shape[counts->n_dims - 1],
                     .at = -1};
    w.local = cpu_max(grouped ? counts->global[2] / counts->global[1] : w.experts, 1);
    w.parts = groups * (w.experts / w.local);
    w.each = rows / cpu_max(w.parts, 1);
    return w;
}

/* The next expert and part; false: there is none. */
static bool next_expert(expert_walk *w)
{
    if (++w->at == w->parts * w->local)
        return false;
    const int64_t part = w->at / w->local, bins = w->experts / w->local, g = part / bins;
    expert_part *n = &w->now;
    n->e = part % bins * w->local + w->at % w->local;
    n->row = w->at % w->local ? n->row + n->n : part * w->each;
    n->end = (part + 1) * w->each;
    n->first = g == 0;
    n->last = (w->at + 1) % w->local == 0;
    n->n = 0;
    for (int64_t p = 0; p < w->senders; p++)
        n->n += cpu_max(0, w->counts[(g * w->senders + p) * w->experts + n->e]);
    n->n = cpu_max(0, cpu_min(n->n, n->end - n->row));
    return true;
}

/* Over each expert's rows, x [R,i], w [E,o,i], counts [E] -> y [R,o] = x wᵀ; with dx: dy [R,o], w
 * [E,o,i], counts [E] -> dx [R,i] = dy w. */
static tt_status by_rows(void *self, const tt_kernel_call *c, bool dx)
{
    const tt_tensor *x = &c->in[0], *w = &c->in[1];
    const int64_t k = x->shape[1], n = c->out[0].shape[1];
    float *y = c->out[0].data;
    expert_walk walk = walk_experts(&c->in[2], x->shape[0]);
    while (next_expert(&walk)) {
        const expert_part *p = &walk.now;
        const float *we = cpu_f32(w) + p->e * n * k;
        cpu_gemm_call g = {
            .m = p->n,
            .n = n,
            .k = k,
            .a = {cpu_f32(x) + p->row * k, k, 1},
            .c = y + p->row * n,
            .ldc = n,
            .checks = c->checks
        };
        g.b = dx ? (cpu_mat){we, n, 1} : (cpu_mat){we, 1, k};
        cpu_gemm(self, c->pool, &g, c->scratch);
        if (p->last)
            memset(y + (p->row + p->n) * n, 0,
                   (size_t)((p->end - p->row - p->n) * n) * sizeof(float));
    }
    return TT_OK;
}

static size_t rows_scratch(const tt_kernel_call *c, int n_threads)
{
    return cpu_gemm_scratch(c->in[0].shape[0], c->out[0].shape[1], c->in[0].shape[1], n_threads);
}

static tt_status grouped_linear(void *self, const tt_kernel_call *c, tt_error *err)
{
    (void)err;
    return by_rows(self, c, false);
}
static tt_status grouped_linear_dx(void *self, const tt_kernel_call *c, tt_error *err)
{
    (void)err;
    return by_rows(self, c, true);
}

static size_t dw_scratch(const tt_kernel_call *c, int n_threads)
{
    return cpu_gemm_scratch(c->out[0].shape[1], c->out[0].shape[2], c->in[0].shape[0], n_threads);
}
/* dy [R,o], x [R,i], counts [E] -> dw [E,o,i] */
static tt_status grouped_linear_dw(void *self, const tt_kernel_call *c, tt_error *err)
{
    const tt_tensor *dy = &c->in[0], *x = &c->in[1], *out = &c->out[0];
    const int64_t m = out->shape[1], n = out->shape[2];
    expert_walk walk = walk_experts(&c->in[2], dy->shape[0]);
    (void)err;
    while (next_expert(&walk)) {
        const expert_part *p = &walk.now;
        cpu_gemm_call g = {.m = m,
                           .n = n,
                           .k = p->n,
                           .c = (float *)out->data + p->e * m * n,
                           .ldc = n,
                           .add = c->accumulate != 0 || !p->first,
                           .checks = c->checks};
        g.a = (cpu_mat){cpu_f32(dy) + p->row * m, 1, m};
        g.b = (cpu_mat){cpu_f32(x) + p->row * n, n, 1};
        cpu_gemm(self, c->pool, &g, c->scratch);
    }
    return TT_OK;
}

const cpu_kernel cpu_kernels_experts[] = {
    CPU_KERNEL_ANY("expert_count", expert_count, NULL, 0),
    CPU_KERNEL("expert_sort", expert_sort, sort_scratch, 0, 0),
    CPU_KERNEL("grouped_linear", grouped_linear, rows_scratch, 0, 0),
    CPU_KERNEL("grouped_linear_dx", grouped_linear_dx, rows_scratch, 0, 0),
    CPU_KERNEL("grouped_linear_dw", grouped_linear_dw, dw_scratch, 1, 0),
    CPU_KERNEL_END,
};
