/* SPDX-License-Identifier: Apache-2.0 */
#include "rows.h"

/* Mixture of experts: the order and the numbers of the slots. The products are in grouped.c. */

static cuda_kernel expert_keys = CUDA_KERNEL("experts", "expert_keys"),
                   expert_order = CUDA_KERNEL("experts", "expert_order"),
                   expert_counts = CUDA_KERNEL("experts", "expert_count");

/* assign [T,k] -> counts f64 [E] */
static tt_status run_expert_count(void *self, const tt_kernel_call *c, tt_error *err)
{
    const void *assign = c->in[0].data;
    void *counts = c->out[0].data;
    int64_t n = tt_tensor_numel(&c->in[0]);
    const cuda_grid each = {c->out[0].shape[0], 1, 1, CUDA_THREADS,
                            CUDA_THREADS * (int)sizeof(int)};
    return CUDA_LAUNCH(self, c, &expert_counts, each, err, &assign, &counts, &n);
}

static size_t sort_scratch(const tt_kernel_call *c, int n_threads)
{
    (void)n_threads;
    return cuda_sort_bytes(1, tt_tensor_numel(&c->in[0]));
}

/* assign [T,k] -> order [T k], counts [E]. A slot assigned to no expert (outside [0, E)) comes after
 * all others. */
static tt_status run_expert_sort(void *self, const tt_kernel_call *c, tt_error *err)
{
    const void *assign = c->in[0].data, *sorted = NULL;
    void *order = c->out[0].data, *counts = c->out[1].data, *keys = c->scratch;
    int64_t n = tt_tensor_numel(&c->in[0]), experts = c->out[1].shape[0];
    const cuda_grid each = {cuda_ceil(n, CUDA_THREADS), 1, 1, CUDA_THREADS, 0},
                    last = {cuda_ceil(cuda_max(n, experts), CUDA_THREADS), 1, 1, CUDA_THREADS, 0};
    TT_TRY(CUDA_LAUNCH(self, c, &expert_keys, each, err, &assign, &keys, &n, &experts));
    TT_TRY(cuda_sort(self, c->queue, keys, 1, n, &sorted, err));
    return CUDA_LAUNCH(self, c, &expert_order, last, err, &sorted, &order, &counts, &n, &experts);
}

const tt_kernel cuda_kernels_experts[] = {
    CUDA_ROW("expert_count", run_expert_count, NULL, 0, 0, NULL),
    CUDA_ROW("expert_sort", run_expert_sort, sort_scratch, 0, 0, NULL),
    {.op = NULL},
};
