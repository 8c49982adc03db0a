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

/* The number of rows of expert e, which begin at `row`, clipped to the `rows` that exist. */
static int64_t expert_rows(const int32_t *counts, int64_t e, int64_t row, int64_t rows)
{
    return cpu_max(0, cpu_min(counts[e], rows - row));
}

/* Over each expert's rows, x [R,i], w [E,o,i], counts [E] -> y [R,o] = x wᵀ; with dx: dy [R,o], w
 * [E,o,i], counts [E] -> dx [R,i] = dy w. */
static tt_status by_rows(void *self, const tt_kernel_call *c, bool dx)
{
    const tt_tensor *x = &c->in[0], *w = &c->in[1];
    const int64_t rows = x->shape[0], k = x->shape[1], n = c->out[0].shape[1];
    float *y = c->out[0].data;
    int64_t row = 0;
    for (int64_t e = 0; e < w->shape[0]; e++) {
        int64_t m = expert_rows(c->in[2].data, e, row, rows);
        const float *we = cpu_f32(w) + e * n * k;
        cpu_gemm_call g = {
            .m = m, .n = n, .k = k, .a = {cpu_f32(x) + row * k, k, 1},
                       .c = y + row * n, .ldc = n
        };
        g.b = dx ? (cpu_mat){we, n, 1} : (cpu_mat){we, 1, k};
        cpu_gemm(self, c->pool, &g, c->scratch);
        row += m;
    }
    memset(y + row * n, 0, (size_t)((rows - row) * n) * sizeof(float));
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
    const int64_t rows = dy->shape[0], m = out->shape[1], n = out->shape[2];
    int64_t row = 0;
    (void)err;
    for (int64_t e = 0; e < out->shape[0]; e++) {
        int64_t k = expert_rows(c->in[2].data, e, row, rows);
        cpu_gemm_call g = {.m = m,
                           .n = n,
                           .k = k,
                           .c = (float *)out->data + e * m * n,
                           .ldc = n,
                           .add = c->accumulate != 0};
        g.a = (cpu_mat){cpu_f32(dy) + row * m, 1, m};
        g.b = (cpu_mat){cpu_f32(x) + row * n, n, 1};
        cpu_gemm(self, c->pool, &g, c->scratch);
        row += k;
    }
    return TT_OK;
}

const cpu_kernel cpu_kernels_experts[] = {
    CPU_KERNEL("expert_sort", expert_sort, sort_scratch, 0, 0),
    CPU_KERNEL("grouped_linear", grouped_linear, rows_scratch, 0, 0),
    CPU_KERNEL("grouped_linear_dx", grouped_linear_dx, rows_scratch, 0, 0),
    CPU_KERNEL("grouped_linear_dw", grouped_linear_dw, dw_scratch, 1, 0),
    CPU_KERNEL_END,
};
