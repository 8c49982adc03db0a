/* SPDX-License-Identifier: Apache-2.0 */
#include "rows.h"

/* Rows by index: embedding, gather, their derivatives, top_k. Additions into rows sort the indices by
 * row, so that each row's list is summed in ascending order, without atomics. N indices, V rows of the
 * table, D elements of a row, k picks. */
#define PIECE 128      /* rows of a list that are summed together */
#define MOST_PICKED 32 /* top_k: for larger k the rows are sorted */

static cuda_kernel read_kernels[5] = {CUDA_KERNEL("index", "read_rows_1"),
                                      CUDA_KERNEL("index", "read_rows_2"),
                                      CUDA_KERNEL("index", "read_rows_4"),
                                      CUDA_KERNEL("index", "read_rows_8"),
                                      CUDA_KERNEL("index", "read_rows_16")},
                   row_keys = CUDA_KERNEL("index", "row_keys"),
                   add_pieces[2][2] = {CUDA_PAIR("index", "add_pieces_warp"),
                                       CUDA_PAIR("index", "add_pieces_block")},
                   add_parts = CUDA_KERNEL("index", "add_parts"),
                   top_k_kernels[2][2] = {CUDA_PAIR("index", "top_k_warp"),
                                          CUDA_PAIR("index", "top_k_block")},
                   top_keys[2] = CUDA_PAIR("index", "top_keys"),
                   top_sorted[2] = CUDA_PAIR("index", "top_sorted"),
                   top_k_bwd[2] = CUDA_PAIR("index", "top_k_bwd");

tt_status cuda_read_rows(void *self, const tt_kernel_call *c, const tt_tensor *table, int64_t rows,
                         const void *index, int64_t n, int64_t first, tt_error *err)
{
    const void *t = table->data, *i = index;
    void *y = c->out[0].data;
    const int64_t bytes =
        rows > 0 ? tt_tensor_numel(table) / rows * (int64_t)tt_dtype_size(table->dtype)
        : n > 0  ? tt_tensor_numel(&c->out[0]) / n * (int64_t)tt_dtype_size(table->dtype)
                 : 0;
    int unit = 0, group = 1;
    while (unit < 4 && bytes % (2 << unit) == 0 && cuda_alignment_of(t, 16) >= (size_t)2 << unit &&
           cuda_alignment_of(y, 16) >= (size_t)2 << unit)
        unit++;
    int64_t units = bytes >> unit;
    while (group < CUDA_THREADS && group < units)
        group *= 2;
    const cuda_grid grid = {units > 0 ? cuda_ceil(n, CUDA_THREADS / group) : 0, 1, 1, CUDA_THREADS,
                            0};
    return CUDA_LAUNCH(self, c, &read_kernels[unit], grid, err, &t, &i, &y, &n, &units, &first,
                       &rows, &group);
}

/* out[i] = table[index[i] - begin of the table] */
static tt_status index_read(void *self, const tt_kernel_call *c, const tt_tensor *table,
                            const tt_tensor *index, tt_error *err)
{
    return cuda_read_rows(self, c, table, table->shape[0], index->data, tt_tensor_numel(index),
                          table->begin[0], err);
}

/* ids [N], table [V,D] -> y [N,D] */
static tt_status run_embedding(void *self, const tt_kernel_call *c, tt_error *err)
{
    return index_read(self, c, &c->in[1], &c->in[0], err);
}
/* x [V,..], index [N] -> y [N,..] */
static tt_status run_gather(void *self, const tt_kernel_call *c, tt_error *err)
{
    return index_read(self, c, &c->in[0], &c->in[1], err);
}

static size_t parts_bytes(int64_t n, int64_t width) /* of one of the two arrays of pieces */
{
    return cuda_align((size_t)(cuda_ceil(n, PIECE) * width) * sizeof(float));
}
static size_t add_scratch(const tt_tensor *y, const tt_tensor *index)
{
    const int64_t n = tt_tensor_numel(index);
    return cuda_sort_bytes(1, n) + 2 * parts_bytes(n, cuda_row_size(y));
}
static size_t embedding_dw_scratch(const tt_kernel_call *c, int n_threads)
{
    (void)n_threads;
    return add_scratch(&c->out[0], &c->in[0]);
}
static size_t scatter_add_scratch(const tt_kernel_call *c, int n_threads)
{
    (void)n_threads;
    return add_scratch(&c->out[0], &c->in[1]);
}

/* y[r] = or += Σ x[i] over the i with index[i] - begin of y = r */
static tt_status add_rows(void *self, const tt_kernel_call *c, const tt_tensor *xt,
                          const tt_tensor *it, tt_error *err)
{
    const tt_tensor *yt = &c->out[0];
    const void *x = xt->data, *index = it->data, *sorted = NULL;
    void *y = yt->data, *keys = c->scratch;
    int64_t n = tt_tensor_numel(it), width = cuda_row_size(yt), first = yt->begin[0],
            count = yt->shape[0];
    int half_out = cuda_half(yt), add = c->accumulate, wide = cuda_is_wide(xt, width);
    float *parts0 = (float *)(void *)((char *)c->scratch + cuda_sort_bytes(1, n)),
          *parts1 = (float *)(void *)((char *)(void *)parts0 + parts_bytes(n, width));
    if (!add)
        TT_TRY(cuda_zero(self, c->queue, y, (size_t)tt_tensor_numel(yt) * tt_dtype_size(yt->dtype),
                         err));
    if (n == 0 || width == 0 || count == 0)
        return TT_OK;
    if (count > INT32_MAX || n > UINT32_MAX)
        return TT_FAIL(
            err, TT_EUNSUPPORTED,
            "cuda: %s: %lld rows of a table and %lld indices are too many; cut the table "
            "with tensor parallelism, or use a smaller batch",
            c->op, (long long)count, (long long)n);
    const cuda_grid each = {cuda_ceil(n, CUDA_THREADS), 1, 1, CUDA_THREADS, 0};
    TT_TRY(CUDA_LAUNCH(self, c, &row_keys, each, err, &index, &keys, &n, &first, &count));
    TT_TRY(cuda_sort(self, c->queue, keys, 1, n, &sorted, err));
    const int block = width > CUDA_WARP_ROW / 2;
    const cuda_grid pieces = {cuda_ceil(n, block ? 1 : CUDA_THREADS / 32), 1, 1, CUDA_THREADS, 0};
    TT_TRY(CUDA_LAUNCH(self, c, &add_pieces[block][cuda_half(xt)], pieces, err, &x, &sorted, &y,
                       &half_out, &add, &parts0, &parts1, &n, &width, &wide));
    const cuda_grid slots = {n > PIECE ? cuda_ceil(n, PIECE) : 0, 1, 1, CUDA_THREADS, CUDA_ROOM};
    return CUDA_LAUNCH(self, c, &add_parts, slots, err, &sorted, &y, &half_out, &add, &parts0,
                       &parts1, &n, &width);
}

/* ids [N], dy [N,D] -> dtable [V,D] */
static tt_status run_embedding_dw(void *self, const tt_kernel_call *c, tt_error *err)
{
    return add_rows(self, c, &c->in[1], &c->in[0], err);
}
/* x [N,..], index [N] -> y [V,..] */
static tt_status run_scatter_add(void *self, const tt_kernel_call *c, tt_error *err)
{
    return add_rows(self, c, &c->in[0], &c->in[1], err);
}

static size_t top_k_scratch(const tt_kernel_call *c, int n_threads)
{
    (void)n_threads;
    if (cuda_width(&c->out[0]) <= MOST_PICKED)
        return 0;
    return cuda_sort_bytes(cuda_rows(&c->in[0]), cuda_width(&c->in[0]));
}
/* x [R,n] -> values [R,k], indices [R,k] */
static tt_status run_top_k(void *self, const tt_kernel_call *c, tt_error *err)
{
    const void *x = c->in[0].data, *sorted = NULL;
    void *values = c->out[0].data, *indices = c->out[1].data, *keys = c->scratch;
    int64_t n = cuda_width(&c->in[0]), k = cuda_width(&c->out[0]), rows = cuda_rows(&c->in[0]);
    const int half = cuda_half(&c->in[0]), block = n > CUDA_WARP_ROW;
    TT_TRY(cuda_row_fits(c, n, err));
    if (k == 0)
        return TT_OK;
    if (k <= MOST_PICKED) {
        const cuda_grid grid = {cuda_ceil(rows, block ? 1 : CUDA_THREADS / 32), 1, 1, CUDA_THREADS,
                                CUDA_ROOM * 2};
        return CUDA_LAUNCH(self, c, &top_k_kernels[block][half], grid, err, &x, &values, &indices,
                           &rows, &n, &k);
    }
    const cuda_grid all = {cuda_ceil(rows * n, CUDA_THREADS), 1, 1, CUDA_THREADS, 0};
    TT_TRY(CUDA_LAUNCH(self, c, &top_keys[half], all, err, &x, &keys, &rows, &n));
    TT_TRY(cuda_sort(self, c->queue, keys, rows, n, &sorted, err));
    const cuda_grid picks = {cuda_ceil(rows * k, CUDA_THREADS), 1, 1, CUDA_THREADS, 0};
    return CUDA_LAUNCH(self, c, &top_sorted[half], picks, err, &x, &sorted, &values, &indices,
                       &rows, &n, &k);
}

/* indices [R,k], dvalues [R,k] -> dx [R,n] */
static tt_status run_top_k_bwd(void *self, const tt_kernel_call *c, tt_error *err)
{
    const tt_tensor *o = &c->out[0];
    const void *index = c->in[0].data, *dy = c->in[1].data;
    void *dx = o->data;
    int half = cuda_half(&c->in[1]);
    int64_t n = cuda_width(o), k = cuda_width(&c->in[0]), rows = cuda_rows(o);
    const cuda_grid grid = {cuda_ceil(rows, CUDA_THREADS), 1, 1, CUDA_THREADS, 0};
    TT_TRY(
        cuda_zero(self, c->queue, dx, (size_t)tt_tensor_numel(o) * tt_dtype_size(o->dtype), err));
    return CUDA_LAUNCH(self, c, &top_k_bwd[cuda_half(o)], grid, err, &index, &dy, &half, &dx, &rows,
                       &n, &k);
}

static int takes_any(const tt_kernel_call *c)
{
    (void)c;
    return 1;
}

const tt_kernel cuda_kernels_index[] = {
    CUDA_ROW("embedding", run_embedding, NULL, 0, 0, takes_any),
    CUDA_ROW("embedding_dw", run_embedding_dw, embedding_dw_scratch, 1, 0, cuda_floats),
    CUDA_ROW("gather", run_gather, NULL, 0, 0, takes_any),
    CUDA_ROW("scatter_add", run_scatter_add, scatter_add_scratch, 1, 0, cuda_floats),
    CUDA_ROW("top_k", run_top_k, top_k_scratch, 0, 0, cuda_floats),
    CUDA_ROW("top_k_bwd", run_top_k_bwd, NULL, 0, 0, cuda_floats),
    {.op = NULL},
};
