/* SPDX-License-Identifier: Apache-2.0 */
#include "rows.h"

/* cumsum, and linear recurrences along tokens, h[t] = a[t] h[t-1] + x[t], with their derivative and
 * their form for decoding. Where there are few columns, pieces of the tokens are computed side by
 * side; the pieces depend on the shape only. */
#define COLUMNS 65536 /* so many threads are enough for any device */
#define LEAST 64      /* tokens of a piece, at least */
#define WARP_N 1024   /* cumsum of rows: of at most so many elements by a warp */

static cuda_kernel cumsum_rows[2][2] = {CUDA_PAIR("scan", "cumsum_warp"),
                                        CUDA_PAIR("scan", "cumsum_block")},
                   cumsum_columns[2] = CUDA_PAIR("scan", "cumsum_columns"),
                   cumsum_parts = CUDA_KERNEL("scan", "cumsum_parts"),
                   scan_fwd[2] = CUDA_PAIR("scan", "scan"),
                   scan_bwd[2] = CUDA_PAIR("scan", "scan_bwd"),
                   scan_parts = CUDA_KERNEL("scan", "scan_parts"),
                   scan_da[2] = CUDA_PAIR("scan", "scan_da"),
                   scan_cached[2] = CUDA_PAIR("scan", "scan_cached");

/* Elements of a piece of n, so that pieces of all columns are about COLUMNS. */
static int64_t scan_piece_of(int64_t n, int64_t columns)
{
    const int64_t pieces = cuda_ceil(COLUMNS, cuda_max(columns, 1));
    return cuda_max(LEAST, cuda_ceil(n, pieces));
}
/* The most that pieces × columns can be, here and for smaller n and columns. */
static int64_t most_parts(int64_t n, int64_t columns)
{
    if (n <= LEAST)
        return 0;
    return cuda_min(cuda_ceil(n, LEAST) * columns, 2 * COLUMNS);
}

/* ---- cumsum: x [outer, n, inner] ---- */

typedef struct cumsum { /* tt_cumsum of kernels/scan.cu */
    int64_t outer, n, inner;
    int reverse, exclusive;
} cumsum;

static cumsum cumsum_of(const tt_kernel_call *c)
{
    const tt_attrs_cumsum *a = c->attrs;
    const cuda_split s = cuda_split_of(&c->in[0], a->dim);
    return (cumsum){s.outer, s.n, s.inner, a->reverse != 0, a->exclusive != 0};
}
static size_t cumsum_scratch(const tt_kernel_call *c, int n_threads)
{
    const cumsum a = cumsum_of(c);
    (void)n_threads;
    return a.inner == 1 ? 0 : (size_t)most_parts(a.n, a.outer * a.inner) * sizeof(double);
}

static tt_status run_columns(void *self, const tt_kernel_call *c, cumsum *a, tt_error *err)
{
    cuda_kernel *const k = &cumsum_columns[cuda_half(&c->in[0])];
    const void *x = c->in[0].data;
    void *y = c->out[0].data, *none = NULL, *parts = c->scratch;
    int64_t columns = a->outer * a->inner, piece = scan_piece_of(a->n, columns),
            pieces = cuda_ceil(a->n, piece);
    const cuda_grid all = {cuda_ceil(columns * pieces, CUDA_THREADS), 1, 1, CUDA_THREADS, 0},
                    once = {cuda_ceil(columns, CUDA_THREADS), 1, 1, CUDA_THREADS, 0};
    if (pieces <= 1)
        return CUDA_LAUNCH(self, c, k, all, err, a, &x, &y, &none, &piece);
    TT_TRY(CUDA_LAUNCH(self, c, k, all, err, a, &x, &none, &parts, &piece));
    TT_TRY(CUDA_LAUNCH(self, c, &cumsum_parts, once, err, &parts, &a->outer, &pieces, &a->inner));
    return CUDA_LAUNCH(self, c, k, all, err, a, &x, &y, &parts, &piece);
}

static tt_status run_cumsum(void *self, const tt_kernel_call *c, tt_error *err)
{
    const void *x = c->in[0].data;
    void *y = c->out[0].data;
    cumsum a = cumsum_of(c);
    if (a.inner != 1)
        return run_columns(self, c, &a, err);
    const int block = a.n > WARP_N;
    const cuda_grid grid = {cuda_ceil(a.outer, block ? 1 : CUDA_THREADS / 32), 1, 1, CUDA_THREADS,
                            CUDA_ROOM};
    return CUDA_LAUNCH(self, c, &cumsum_rows[block][cuda_half(&c->in[0])], grid, err, &a, &x, &y);
}

/* ---- scan ---- */

typedef struct scan { /* tt_scan of kernels/scan.cu */
    const void *a, *seg, *pos;
    int64_t tokens, n, m, ld_a, piece, pieces;
    int half_a;
} scan;

static scan scan_of(const tt_kernel_call *c, int at_seg)
{
    const tt_tensor *x = &c->in[0], *a = &c->in[1];
    scan s = {.a = a->data,
              .seg = c->in[at_seg].data,
              .pos = c->in[at_seg + 1].data,
              .tokens = x->shape[0],
              .n = 1,
              .m = 1,
              .half_a = cuda_half(a)};
    int d = x->n_dims - 1;
    for (; d > 0 && a->shape[d] == 1; d--)
        s.m *= x->shape[d];
    for (; d > 0; d--)
        s.n *= x->shape[d];
    s.ld_a = a->global[0] == 1 ? 0 : s.n;
    s.piece = scan_piece_of(s.tokens, s.n * s.m);
    s.pieces = cuda_ceil(s.tokens, s.piece);
    return s;
}

static size_t scan_scratch(const tt_kernel_call *c, int n_threads)
{
    (void)n_threads;
    return (size_t)most_parts(c->in[0].shape[0], cuda_row_size(&c->in[0])) * 2 * sizeof(float);
}

typedef struct scan_more { /* tt_scan_more */
    const void *h;
    void *da;
    float *g;
    int half_da;
} scan_more;

/* y from x, forwards or, as k says, backwards */
static tt_status recur(void *self, const tt_kernel_call *c, cuda_kernel *k, scan *s,
                       const tt_tensor *xt, scan_more *more, tt_error *err)
{
    const void *x = xt->data;
    void *y = c->out[0].data, *none = NULL, *parts = c->scratch;
    int64_t width = s->n * s->m;
    const cuda_grid all = {s->pieces * cuda_ceil(width, CUDA_THREADS), 1, 1, CUDA_THREADS, 0},
                    once = {cuda_ceil(width, CUDA_THREADS), 1, 1, CUDA_THREADS, 0};
    TT_TRY(cuda_row_fits(c, width, err));
    if (s->pieces <= 1)
        return CUDA_LAUNCH(self, c, k, all, err, s, &x, &y, &none, more);
    TT_TRY(CUDA_LAUNCH(self, c, k, all, err, s, &x, &none, &parts, more));
    TT_TRY(CUDA_LAUNCH(self, c, &scan_parts, once, err, &parts, &s->pieces, &width));
    return CUDA_LAUNCH(self, c, k, all, err, s, &x, &y, &parts, more);
}

/* x [T,n*m], a [T or 1,n], seg [T], pos [T] -> h, as x */
static tt_status run_scan(void *self, const tt_kernel_call *c, tt_error *err)
{
    scan s = scan_of(c, 2);
    scan_more more = {.h = NULL};
    return recur(self, c, &scan_fwd[cuda_half(&c->in[0])], &s, &c->in[0], &more, err);
}

/* Of bf16, whose states share a decay: g in f32, behind the parts. */
static bool needs_g(const tt_kernel_call *c, const scan *s)
{
    return s->m != 1 && c->out[0].dtype != TT_F32;
}
static size_t scan_bwd_scratch(const tt_kernel_call *c, int n_threads)
{
    const scan s = scan_of(c, 3);
    const size_t g = (size_t)tt_tensor_numel(&c->in[0]) * sizeof(float);
    return cuda_align(scan_scratch(c, n_threads)) + (needs_g(c, &s) ? g : 0);
}

/* h, a, dh, seg, pos -> dx, da [T,n] */
static tt_status run_scan_bwd(void *self, const tt_kernel_call *c, tt_error *err)
{
    const void *h = c->in[0].data;
    void *da = c->out[1].data, *g = c->out[0].data;
    int half_da = cuda_half(&c->out[1]);
    scan s = scan_of(c, 3);
    scan_more more = {.half_da = half_da, .da = da, .h = s.m == 1 ? h : NULL};
    if (needs_g(c, &s))
        g = more.g = (float *)(void *)((char *)c->scratch + cuda_align(scan_scratch(c, 0)));
    TT_TRY(recur(self, c, &scan_bwd[cuda_half(&c->in[2])], &s, &c->in[2], &more, err));
    if (s.m == 1)
        return TT_OK;
    const cuda_grid grid = {cuda_ceil(s.tokens * s.n, CUDA_THREADS / 32), 1, 1, CUDA_THREADS, 0};
    return CUDA_LAUNCH(self, c, &scan_da[cuda_half(&c->in[0])], grid, err, &s, &h, &g, &da,
                       &half_da);
}

/* x, a, slot, pos, state [S,n*m] -> h, state */
static tt_status run_scan_cached(void *self, const tt_kernel_call *c, tt_error *err)
{
    const tt_tensor *state = &c->out[1];
    const void *x = c->in[0].data;
    void *y = c->out[0].data, *to = state->data;
    int half = cuda_half(state);
    int64_t slots = state->shape[0];
    scan s = scan_of(c, 2);
    const cuda_grid grid = {cuda_ceil(s.n * s.m, CUDA_THREADS), 1, 1, CUDA_THREADS, 0};
    TT_TRY(cuda_row_fits(c, s.n * s.m, err));
    TT_TRY(cuda_copy(self, c->queue, to, c->in[4].data,
                     (size_t)tt_tensor_numel(state) * tt_dtype_size(state->dtype), err));
    return CUDA_LAUNCH(self, c, &scan_cached[cuda_half(&c->in[0])], grid, err, &s, &x, &y, &to,
                       &half, &slots);
}

static int takes_scan_bwd(const tt_kernel_call *c)
{
    return cuda_floats(c) && c->in[2].dtype == c->in[0].dtype;
}

const tt_kernel cuda_kernels_scan[] = {
    CUDA_ROW("cumsum", run_cumsum, cumsum_scratch, 0, 1, cuda_floats),
    CUDA_ROW("scan", run_scan, scan_scratch, 0, 1, cuda_floats),
    CUDA_ROW("scan_bwd", run_scan_bwd, scan_bwd_scratch, 0, 4, takes_scan_bwd),
    CUDA_ROW("scan_cached", run_scan_cached, NULL, 0, 1, cuda_floats),
    CUDA_ROW("conv1d", cuda_conv1d, NULL, 0, 0, cuda_floats),
    CUDA_ROW("conv1d_bwd", cuda_conv1d_bwd, cuda_conv1d_bwd_scratch, 0, 0, cuda_floats),
    CUDA_ROW("conv1d_cached", cuda_conv1d_cached, NULL, 0, 0, cuda_floats),
    {.op = NULL},
};
