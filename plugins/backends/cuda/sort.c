/* SPDX-License-Identifier: Apache-2.0 */
#include "rows.h"

/* Sorting of 64-bit keys for index.c and experts.c. */
#define TILE 2048

static cuda_kernel sort_tiles = CUDA_KERNEL("sort", "sort_tiles"),
                   sort_merge = CUDA_KERNEL("sort", "sort_merge");

size_t cuda_sort_bytes(int64_t rows, int64_t n)
{
    return 2 * cuda_align((size_t)(rows * n) * sizeof(uint64_t));
}

tt_status cuda_sort(cuda_backend *b, tt_device_queue *q, void *keys, int64_t rows, int64_t n,
                    const void **sorted, tt_error *err)
{
    void *from = keys, *to = (char *)keys + cuda_align((size_t)(rows * n) * sizeof(uint64_t));
    int tiles = (int)cuda_min(cuda_ceil(n, TILE), INT32_MAX);
    int threads = 32;
    while (threads < 1024 && 2 * threads < n)
        threads *= 2;
    const cuda_grid grid = {rows * tiles, 1, 1, threads, 2 * threads * (int)sizeof(uint64_t)};
    TT_TRY(cuda_launch(b, q, &sort_tiles, grid, (void *const[]){&from, &n, &tiles}, err));
    for (int64_t run = TILE; run < n; run *= 2) {
        const cuda_grid all = {cuda_ceil(rows * n, CUDA_THREADS), 1, 1, CUDA_THREADS, 0};
        void *other = from;
        TT_TRY(
            cuda_launch(b, q, &sort_merge, all, (void *const[]){&from, &to, &rows, &n, &run}, err));
        from = to;
        to = other;
    }
    *sorted = from;
    return TT_OK;
}
