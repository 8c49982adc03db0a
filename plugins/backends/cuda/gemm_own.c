/* SPDX-License-Identifier: Apache-2.0 */
#include "gemm.h"

/* Launches of kernels/gemm.cu and kernels/gemm_f32.cu. */

/* [side 64, 128][a_t][b_t]: bf16 times bf16 */
static cuda_kernel half[2][2][2] = {
    {{CUDA_KERNEL("gemm", "gemm_64_nn"), CUDA_KERNEL("gemm", "gemm_64_nt")},
     {CUDA_KERNEL("gemm", "gemm_64_tn"), CUDA_KERNEL("gemm", "gemm_64_tt")}  },
    {{CUDA_KERNEL("gemm", "gemm_128_nn"), CUDA_KERNEL("gemm", "gemm_128_nt")},
     {CUDA_KERNEL("gemm", "gemm_128_tn"), CUDA_KERNEL("gemm", "gemm_128_tt")}}
};
static cuda_kernel mixed[2] = {CUDA_KERNEL("gemm_f32", "gemm_64_hf"),
                               CUDA_KERNEL("gemm_f32", "gemm_64_fh")};
static cuda_kernel whole[2] = {CUDA_KERNEL("gemm_f32", "gemm_64_ff"),
                               CUDA_KERNEL("gemm_f32", "gemm_128_ff")};
static cuda_kernel groups_kernel = CUDA_KERNEL("gemm", "gemm_groups");

enum {
    ENOUGH_TILES = 64,            /* of 128 × 128 elements, so that large tiles pay */
    HALF_SHARED = 2 * 3 * 40 * 2, /* bytes per row of a tile: operands, stages, elements, bytes */
    F32_STEP = 16,
    F32_PAD = 4,
};

static int64_t parts(int64_t n, int64_t size)
{
    return n / size + (n % size != 0);
}

/* The rows of tiles; of grouped products the most that there may be. mode: 0 or cuda_grouping. */
static int64_t tile_rows(const cuda_product *p, int mode, int64_t side)
{
    return mode == CUDA_BY_ROWS ? p->m / side + p->batch + 1 : parts(p->m, side);
}

static int64_t tiles_of(const cuda_product *p, int mode, int64_t side)
{
    return tile_rows(p, mode, side) * parts(p->n, side) * (mode == CUDA_BY_ROWS ? 1 : p->batch);
}

/* Does the product run in tiles of 128 rather than 64? Its bits do not depend on it. */
static int is_large(const cuda_product *p, int mode)
{
    const int64_t rows = mode == CUDA_BY_ROWS && p->batch ? p->m / p->batch : p->m;
    if ((p->a_type == TT_BF16) != (p->b_type == TT_BF16)) /* mixed: there is one size only */
        return 0;
    return rows > 64 && p->n > 64 && tiles_of(p, mode, 128) >= ENOUGH_TILES;
}

static tt_status launch(cuda_backend *b, tt_device_queue *q, const cuda_product *p, int mode,
                        const void *groups, tt_error *err)
{
    const int large = is_large(p, mode), side = large ? 128 : 64;
    int64_t m = p->m, n = p->n, k = p->k, batch = p->batch;
    int half_out = p->c_type == TT_BF16, add = p->add, a_t = p->a_t, b_t = p->b_t;
    cuda_grid g = {.x = tiles_of(p, mode, side), .y = 1, .z = 1};
    if (g.x > INT32_MAX)
        g.x = INT32_MAX;
    if (p->a_type == TT_BF16 && p->b_type == TT_BF16) {
        void *const params[] = {(void *)(uintptr_t)&p->a,
                                (void *)(uintptr_t)&p->b,
                                (void *)(uintptr_t)&p->c,
                                &m,
                                &n,
                                &k,
                                &batch,
                                &half_out,
                                &add,
                                &mode,
                                &groups};
        g.threads = 2 * side;
        g.shared = side * HALF_SHARED;
        return cuda_launch(b, q, &half[large][a_t][b_t], g, params, err);
    }
    void *const params[] = {(void *)(uintptr_t)&p->a,
                            (void *)(uintptr_t)&p->b,
                            (void *)(uintptr_t)&p->c,
                            &m,
                            &n,
                            &k,
                            &batch,
                            &add,
                            &mode,
                            &groups,
                            &a_t,
                            &b_t};
    cuda_kernel *kernel = p->a_type == p->b_type ? &whole[large] : &mixed[p->a_type == TT_F32];
    g.threads = 256;
    g.shared = 2 * 2 * F32_STEP * (side + F32_PAD) * (int)sizeof(float);
    return cuda_launch(b, q, kernel, g, params, err);
}

tt_status cuda_own_product(cuda_backend *b, tt_device_queue *q, const cuda_product *p,
                           tt_error *err)
{
    return launch(b, q, p, 0, NULL, err);
}

size_t cuda_own_grouped_scratch(int64_t experts)
{
    return 2 * (size_t)(experts + 2) * sizeof(int64_t);
}

tt_status cuda_own_grouped(cuda_backend *b, tt_device_queue *q, const cuda_product *p,
                           cuda_grouping how, const void *counts, void *scratch, tt_error *err)
{
    int64_t experts = p->batch, rows = how == CUDA_BY_ROWS ? p->m : p->k,
            side = is_large(p, how) ? 128 : 64;
    const cuda_grid one = {.x = 1, .y = 1, .z = 1, .threads = 256, .shared = 256 * sizeof(int32_t)};
    void *const params[] = {&counts, &experts, &rows, &side, &scratch};
    if (!tiles_of(p, how, side))
        return TT_OK;
    TT_TRY(cuda_launch(b, q, &groups_kernel, one, params, err));
    return launch(b, q, p, how, scratch, err);
}
