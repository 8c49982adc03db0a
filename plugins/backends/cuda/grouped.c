/* SPDX-License-Identifier: Apache-2.0 */
#include "gemm.h"
#include "rows.h"
#include <string.h>

/* grouped_linear and its derivatives: R rows, E experts; rows beyond the sum of the counts are zero, or in no
 * sum. counts [E], or of experts that are cut over ranks [G,S,E] (docs/design/experts.md): then the rows are G P
 * parts, part (g, p) those of group g for bin p of E/P experts, from all S senders. */

static cuda_kernel sum_senders = CUDA_KERNEL("experts", "dispatch_sums");

typedef struct expert_parts {
    int64_t groups, bins, local; /* local: experts of a bin */
    const int32_t *counts;       /* [groups,E] */
    void *scratch;               /* for one product */
} expert_parts;

static expert_parts parts_of(const tt_tensor *counts)
{
    if (counts->n_dims == 1)
        return (expert_parts){1, 1, counts->shape[0], counts->data, NULL};
    const int64_t local =
        counts->global[1] > 0 ? cuda_max(counts->global[2] / counts->global[1], 1) : 1;
    return (expert_parts){counts->shape[0], counts->shape[2] / local, local, NULL, NULL};
}

/* Where a product's own scratch begins, behind the sums over senders. */
static size_t sums_bytes(const tt_tensor *counts)
{
    const size_t n = (size_t)(counts->shape[0] * counts->shape[counts->n_dims - 1]);
    return counts->n_dims == 1 ? 0 : cuda_align(n * sizeof(int32_t));
}

static tt_status open_parts(void *self, const tt_kernel_call *c, expert_parts *out, tt_error *err)
{
    const tt_tensor *t = &c->in[2];
    *out = parts_of(t);
    out->scratch = (char *)c->scratch + sums_bytes(t);
    if (t->n_dims == 1)
        return TT_OK;
    const void *counts = t->data;
    void *sums = c->scratch;
    int64_t groups = t->shape[0], senders = t->shape[1], experts = t->shape[2];
    const cuda_grid grid = {cuda_ceil(groups * experts, CUDA_THREADS), 1, 1, CUDA_THREADS, 0};
    out->counts = sums;
    return CUDA_LAUNCH(self, c, &sum_senders, grid, err, &counts, &sums, &groups, &senders,
                       &experts);
}

static const void *row_of(const tt_tensor *t, int64_t row)
{
    return (const char *)t->data + (size_t)(row * t->shape[1]) * tt_dtype_size(t->dtype);
}

static const void *expert_of(const tt_tensor *t, int64_t e)
{
    return (const char *)t->data +
           (size_t)(e * t->shape[1] * t->shape[2]) * tt_dtype_size(t->dtype);
}

/* x [R,i], w [E,o,i], counts -> y [R,o] = x wᵀ; dx: dy [R,o], w [E,o,i], counts -> [R,i] = dy w */
static tt_status by_rows(void *self, const tt_kernel_call *c, tt_error *err)
{
    const tt_tensor *x = &c->in[0], *w = &c->in[1], *y = &c->out[0];
    expert_parts e;
    TT_TRY(open_parts(self, c, &e, err));
    const int64_t parts = e.groups * e.bins, rows = parts > 0 ? y->shape[0] / parts : 0;
    for (int64_t i = 0; i < parts; i++) {
        const int64_t first = i % e.bins * e.local;
        const cuda_product p = {.m = rows,
                                .n = y->shape[1],
                                .k = x->shape[1],
                                .batch = e.local,
                                .a = row_of(x, i * rows),
                                .b = expert_of(w, first),
                                .c = (void *)(uintptr_t)row_of(y, i * rows),
                                .b_t = strcmp(c->op, "grouped_linear") == 0,
                                .add = c->accumulate != 0,
                                .a_type = x->dtype,
                                .b_type = w->dtype,
                                .c_type = y->dtype};
        TT_TRY(cuda_own_grouped(self, c->queue, &p, CUDA_BY_ROWS,
                                e.counts + i / e.bins * e.bins * e.local + first, e.scratch, err));
    }
    return TT_OK;
}

/* dy [R,o], x [R,i], counts -> dw [E,o,i]; each expert's sum over the groups is added up in their order */
static tt_status by_sums(void *self, const tt_kernel_call *c, tt_error *err)
{
    const tt_tensor *dy = &c->in[0], *x = &c->in[1], *dw = &c->out[0];
    expert_parts e;
    TT_TRY(open_parts(self, c, &e, err));
    const int64_t parts = e.groups * e.bins, rows = parts > 0 ? dy->shape[0] / parts : 0;
    for (int64_t i = 0; i < parts; i++) {
        const int64_t first = i % e.bins * e.local;
        const cuda_product p = {.m = dw->shape[1],
                                .n = dw->shape[2],
                                .k = rows,
                                .batch = e.local,
                                .a = row_of(dy, i * rows),
                                .b = row_of(x, i * rows),
                                .c = (void *)(uintptr_t)expert_of(dw, first),
                                .a_t = true,
                                .add = c->accumulate != 0 || i >= e.bins,
                                .a_type = dy->dtype,
                                .b_type = x->dtype,
                                .c_type = dw->dtype};
        TT_TRY(cuda_own_grouped(self, c->queue, &p, CUDA_BY_SUMS,
                                e.counts + i / e.bins * e.bins * e.local + first, e.scratch, err));
    }
    return TT_OK;
}

static size_t grouped_scratch(const tt_kernel_call *c, int n_threads)
{
    (void)n_threads;
    cuda_need_own_products(c, true);
    if (c->in[2].n_dims != 1 && c->backend)
        cuda_files_need(c->backend, "experts");
    return sums_bytes(&c->in[2]) + cuda_own_grouped_scratch(parts_of(&c->in[2]).local);
}

const tt_kernel cuda_kernels_grouped[] = {
    CUDA_ROW("grouped_linear", by_rows, grouped_scratch, 1, 0, cuda_product_supports),
    CUDA_ROW("grouped_linear_dx", by_rows, grouped_scratch, 1, 0, cuda_product_supports),
    CUDA_ROW("grouped_linear_dw", by_sums, grouped_scratch, 1, 0, cuda_product_supports),
    {.op = NULL},
};
