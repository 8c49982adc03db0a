/* SPDX-License-Identifier: Apache-2.0 */
#include "rows.h"

/* Rows of experts that are cut over ranks (docs/design/experts.md). Each op makes an index of rows, which
 * read_rows then follows, so no two threads write to one row. B parts of the tokens in G groups of S; M
 * places per part in P bins; N experts, of which a bin has N/P. Here P counts the bins of the local shard. */

static cuda_kernel sort_keys = CUDA_KERNEL("experts", "dispatch_keys"),
                   sort_places = CUDA_KERNEL("experts", "dispatch_places"),
                   of_places = CUDA_KERNEL("experts", "dispatch_from_places"),
                   of_slots = CUDA_KERNEL("experts", "dispatch_from_slots"),
                   of_rows = CUDA_KERNEL("experts", "dispatch_from_rows"),
                   of_bins = CUDA_KERNEL("experts", "dispatch_from_bins");

static cuda_grid one_thread_each(int64_t n)
{
    return (cuda_grid){cuda_ceil(n, CUDA_THREADS), 1, 1, CUDA_THREADS, 0};
}

/* Indices are i32. */
static tt_status dispatch_fits(const tt_kernel_call *c, int64_t n, tt_error *err)
{
    if (n >= INT32_MAX)
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "cuda: %s: %lld rows are too many; use a smaller batch", c->op,
                       (long long)n);
    return TT_OK;
}

/* ---- dispatch_sort ---- */

static size_t places_scratch(const tt_kernel_call *c, int n_threads)
{
    (void)n_threads;
    return cuda_sort_bytes(1, tt_tensor_numel(&c->in[0]));
}

/* assign [T,k] -> places [B,M], counts [G,S,N] */
static tt_status run_dispatch_sort(void *self, const tt_kernel_call *c, tt_error *err)
{
    const void *assign = c->in[0].data, *sorted = c->scratch;
    void *places = c->out[0].data, *counts = c->out[1].data, *keys = c->scratch;
    int64_t n = tt_tensor_numel(&c->in[0]), parts = c->out[0].shape[0], m = c->out[0].shape[1],
            experts = c->out[1].shape[2], bins = c->out[1].global[1],
            slots = parts > 0 ? n / parts : 0, all = cuda_max(parts * m, parts * experts),
            begin = ((const tt_attrs_dims *)c->attrs)->dims[4].size;
    TT_TRY(dispatch_fits(c, cuda_max(n, parts * (experts + 1)), err));
    if (n > 0) {
        TT_TRY(CUDA_LAUNCH(self, c, &sort_keys, one_thread_each(n), err, &assign, &keys, &n, &slots,
                           &experts));
        TT_TRY(cuda_sort(self, c->queue, keys, 1, n, &sorted, err));
    }
    return CUDA_LAUNCH(self, c, &sort_places, one_thread_each(all), err, &sorted, &places, &counts,
                       &n, &parts, &m, &bins, &experts, &begin);
}

/* ---- rows at places: places [B,M] ---- */

static size_t gather_scratch(const tt_kernel_call *c, int n_threads)
{
    (void)n_threads;
    return cuda_align((size_t)tt_tensor_numel(&c->in[1]) * sizeof(int32_t));
}

/* x [T,D] or [T,k,D] -> [B,M,D] or [B M,D] */
static tt_status run_dispatch_gather(void *self, const tt_kernel_call *c, tt_error *err)
{
    const tt_tensor *x = &c->in[0];
    const void *places = c->in[1].data;
    void *index = c->scratch;
    int64_t parts = c->in[1].shape[0], m = c->in[1].shape[1], n = parts * m, rows = cuda_rows(x),
            each = parts > 0 ? rows / parts : 0;
    TT_TRY(dispatch_fits(c, cuda_max(n, rows), err));
    TT_TRY(
        CUDA_LAUNCH(self, c, &of_places, one_thread_each(n), err, &places, &index, &n, &m, &each));
    return cuda_read_rows(self, c, x, rows, index, n, 0, err);
}

static size_t scatter_scratch(const tt_kernel_call *c, int n_threads)
{
    (void)n_threads;
    return cuda_align((size_t)cuda_rows(&c->out[0]) * sizeof(int32_t));
}

/* x [B,M,D] or [B M,D] -> [T,k,D]. The index of a slot is its place + 1, 0: it has none. */
static tt_status run_dispatch_scatter(void *self, const tt_kernel_call *c, tt_error *err)
{
    const void *places = c->in[1].data;
    void *index = c->scratch;
    int64_t parts = c->in[1].shape[0], m = c->in[1].shape[1], n = parts * m,
            slots = cuda_rows(&c->out[0]), each = parts > 0 ? slots / parts : 0;
    TT_TRY(dispatch_fits(c, cuda_max(n, slots), err));
    TT_TRY(cuda_zero(self, c->queue, index, (size_t)slots * sizeof(int32_t), err));
    TT_TRY(
        CUDA_LAUNCH(self, c, &of_slots, one_thread_each(n), err, &places, &index, &n, &m, &each));
    return cuda_read_rows(self, c, &c->in[0], n, index, slots, 1, err);
}

/* ---- rows by counts: counts [G,S,N] ---- */

typedef struct bins_of {
    int64_t groups, senders, experts, local, bins;
} bins_of;

static bins_of bins_by(const tt_tensor *counts)
{
    bins_of b = {.groups = counts->shape[0],
                 .senders = counts->shape[1],
                 .experts = counts->shape[2],
                 .local = counts->global[2] / cuda_max(counts->global[1], 1)};
    b.local = cuda_max(b.local, 1);
    b.bins = b.experts / b.local;
    return b;
}

/* index [rows]: the place of each row, or with m = 0 its expert, counted from `first`; -1: none. */
static tt_status index_rows(void *self, const tt_kernel_call *c, const tt_tensor *counts_t,
                            void *index, int64_t rows, int64_t m, int64_t first, tt_error *err)
{
    const void *counts = counts_t->data;
    bins_of b = bins_by(counts_t);
    const int64_t parts = b.groups * b.bins;
    int64_t each = parts > 0 ? rows / parts : 0;
    return CUDA_LAUNCH(self, c, &of_rows, one_thread_each(rows), err, &counts, &index, &rows, &each,
                       &b.senders, &b.experts, &b.local, &m, &first);
}

static size_t pack_scratch(const tt_kernel_call *c, int n_threads)
{
    (void)n_threads;
    return cuda_align((size_t)cuda_rows(&c->out[0]) * sizeof(int32_t));
}

/* x [B,M,D], counts -> [B M,D] */
static tt_status run_dispatch_pack(void *self, const tt_kernel_call *c, tt_error *err)
{
    const int64_t rows = cuda_rows(&c->out[0]), places = cuda_rows(&c->in[0]);
    TT_TRY(dispatch_fits(c, cuda_max(rows, places), err));
    TT_TRY(index_rows(self, c, &c->in[1], c->scratch, rows, c->in[0].shape[1], 0, err));
    return cuda_read_rows(self, c, &c->in[0], places, c->scratch, rows, 0, err);
}

/* x [B M,D], counts -> [B,M,D] */
static tt_status run_dispatch_unpack(void *self, const tt_kernel_call *c, tt_error *err)
{
    const int64_t rows = cuda_rows(&c->in[0]);
    const void *counts = c->in[1].data;
    void *index = c->scratch;
    bins_of b = bins_by(&c->in[1]);
    const int64_t parts = b.groups * b.bins;
    int64_t n = cuda_rows(&c->out[0]), m = c->out[0].shape[1], each = parts > 0 ? rows / parts : 0;
    TT_TRY(dispatch_fits(c, cuda_max(rows, n), err));
    TT_TRY(CUDA_LAUNCH(self, c, &of_bins, one_thread_each(n), err, &counts, &index, &n, &m, &each,
                       &b.senders, &b.experts, &b.local));
    return cuda_read_rows(self, c, &c->in[0], rows, index, n, 0, err);
}

/* counts -> [R] */
static tt_status run_dispatch_expert(void *self, const tt_kernel_call *c, tt_error *err)
{
    return index_rows(self, c, &c->in[0], c->out[0].data, tt_tensor_numel(&c->out[0]), 0,
                      c->in[0].begin[2], err);
}

const tt_kernel cuda_kernels_dispatch[] = {
    CUDA_ROW("dispatch_sort", run_dispatch_sort, places_scratch, 0, 0, NULL),
    CUDA_ROW("dispatch_gather", run_dispatch_gather, gather_scratch, 0, 0, NULL),
    CUDA_ROW("dispatch_scatter", run_dispatch_scatter, scatter_scratch, 0, 0, NULL),
    CUDA_ROW("dispatch_pack", run_dispatch_pack, pack_scratch, 0, 0, NULL),
    CUDA_ROW("dispatch_unpack", run_dispatch_unpack, pack_scratch, 0, 0, NULL),
    CUDA_ROW("dispatch_expert", run_dispatch_expert, NULL, 0, 0, NULL),
    {.op = NULL},
};
