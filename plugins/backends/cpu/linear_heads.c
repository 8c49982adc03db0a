/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu.h"
#include "gemm.h"

/* linear_heads: a product per head, which reads the head's rows of the weight in place; a head is one task.
 * Never by BLAS, whose bits would depend on how many texts are written at once. Shapes, and the naive twin, in
 * backends/reference/matmul.c. */

typedef struct heads {
    cpu_backend own; /* without BLAS */
    const tt_kernel_call *c;
    size_t per_thread;
} heads;

static cpu_gemm_call call_of(const tt_kernel_call *c, int64_t head)
{
    const tt_attrs_heads *a = c->attrs;
    const tt_tensor *x = &c->in[0], *w = &c->in[1], *y = &c->out[0];
    const int64_t latent = w->shape[1], k = a->trans ? latent : a->n, n = a->trans ? a->n : latent;
    cpu_gemm_call g = {
        .m = y->shape[0],
        .n = n,
        .k = k,
        .a = {x->data, x->shape[1],           1                    },
        .b = {w->data, a->trans ? 1 : latent, a->trans ? latent : 1},
        .c = y->data,
        .ldc = y->shape[1],
        .add = c->accumulate != 0,
        .checks = c->checks
    };
    if (x->data) {
        g.a.p += head * k;
        g.b.p += (head * a->unit + a->begin) * latent;
        g.c += head * n;
    }
    return g;
}

static void run_heads(void *arg, int64_t begin, int64_t end, int thread)
{
    const heads *w = arg;
    for (int64_t h = begin; h < end; h++) {
        const cpu_gemm_call g = call_of(w->c, h);
        cpu_gemm(&w->own, NULL, &g, (char *)w->c->scratch + (size_t)thread * w->per_thread);
    }
}

static size_t head_scratch(const tt_kernel_call *c)
{
    const cpu_gemm_call g = call_of(c, 0);
    return cpu_align(cpu_gemm_scratch(g.m, g.n, g.k, 1));
}

static size_t linear_heads_scratch(const tt_kernel_call *c, int n_threads)
{
    return head_scratch(c) * (size_t)n_threads;
}

static tt_status linear_heads(void *self, const tt_kernel_call *c, tt_error *err)
{
    const tt_attrs_heads *a = c->attrs;
    heads w = {*(const cpu_backend *)self, c, head_scratch(c)};
    (void)err;
    w.own.blas = false;
    tt_parallel_for(c->pool, c->in[1].shape[0] / a->unit, 1, run_heads, &w);
    return TT_OK;
}

const cpu_kernel cpu_kernels_linear_heads[] = {
    CPU_KERNEL("linear_heads", linear_heads, linear_heads_scratch, 1, 0),
    CPU_KERNEL_END,
};
