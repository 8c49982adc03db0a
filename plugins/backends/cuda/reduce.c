/* SPDX-License-Identifier: Apache-2.0 */
#include "rows.h"

/* Reductions over one dim, x [outer, n, inner] -> y [outer, inner], and sums of all elements. Where
 * one block per result would be too little, pieces of n are reduced into scratch first; the pieces
 * depend on the shape only. */
#define THREAD_N 64       /* n of at most so many: a thread per result, if inner > 1 */
#define WARP_N 2048       /* inner = 1 and n of at most so many: a warp per result */
#define BLOCKS 1024       /* enough of them for any device */
#define CHUNK 16384       /* elements whose squares one block sums */
#define SEGMENT_BLOCKS 32 /* of a sequence in segment_sum */

enum { SUM, MAX, ARG };
static cuda_kernel by_thread[3][2] = {CUDA_PAIR("reduce", "sum_threads"),
                                      CUDA_PAIR("reduce", "max_threads"),
                                      CUDA_PAIR("reduce", "arg_threads")},
                   by_row[3][2] = {CUDA_PAIR("reduce", "sum_rows"), CUDA_PAIR("reduce", "max_rows"),
                                   CUDA_PAIR("reduce", "arg_rows")},
                   by_column[3][2] = {CUDA_PAIR("reduce", "sum_columns"),
                                      CUDA_PAIR("reduce", "max_columns"),
                                      CUDA_PAIR("reduce", "arg_columns")},
                   column_sum = CUDA_KERNEL("reduce", "column_sum"),
                   line_sum[2] = CUDA_PAIR("reduce", "line_sum"),
                   segment_sum[2] = CUDA_PAIR("reduce", "segment_sum"),
                   squares[2] = CUDA_PAIR("reduce", "squares"),
                   sum_chunks = CUDA_KERNEL("reduce", "sum_chunks"),
                   sum_doubles = CUDA_KERNEL("reduce", "sum_doubles");

typedef struct reduction { /* tt_reduction of kernels/reduce.cu */
    int64_t outer, n, inner, piece;
    float sign;
    int half_out, add, indices;
} reduction;

/* Columns of inner that a block has: a power of two. */
static int columns_of(int64_t inner)
{
    int columns = 1;
    while (columns < 32 && columns < inner)
        columns *= 2;
    return columns;
}

static reduction reduction_of(const tt_kernel_call *c, int dim)
{
    const cuda_split s = cuda_split_of(&c->in[0], dim);
    reduction r = {.outer = s.outer, .n = s.n, .inner = s.inner, .piece = s.n, .sign = 1.0f};
    const int64_t columns = columns_of(s.inner),
                  blocks = cuda_max(1, s.outer * cuda_ceil(s.inner, columns)),
                  least = 16 * (CUDA_THREADS / columns);
    if (blocks < BLOCKS / 2)
        r.piece = cuda_max(least, cuda_ceil(s.n, cuda_ceil(BLOCKS, blocks)));
    r.piece = cuda_max(r.piece, 1);
    r.half_out = cuda_half(&c->out[0]);
    r.add = c->accumulate;
    r.indices = c->out[0].dtype == TT_I32;
    return r;
}
static bool has_pieces(const reduction *r)
{
    return r->n > (r->inner == 1 ? WARP_N : THREAD_N) && r->n > r->piece;
}

/* For these and all smaller shapes, though a smaller one may have more pieces: fewer than BLOCKS / 2
 * blocks become at most 3 BLOCKS / 2, of up to 32 columns. */
static size_t reduce_scratch(const tt_kernel_call *c, int dim)
{
    const reduction r = reduction_of(c, dim);
    const int64_t parts = r.outer * r.inner * cuda_ceil(r.n, 16 * (CUDA_THREADS / 32));
    const size_t n = (size_t)cuda_min(parts, BLOCKS / 2 * 3 * 32);
    if (r.n <= THREAD_N)
        return 0;
    return cuda_align(n * sizeof(float)) + (r.indices ? n * sizeof(int64_t) : 0);
}

static tt_status columns(void *self, const tt_kernel_call *c, cuda_kernel *k, reduction r,
                         const void *x, const int64_t *in_at, void *out, int64_t *out_at,
                         tt_error *err)
{
    int columns = columns_of(r.inner);
    const int64_t tiles = cuda_ceil(r.inner, columns),
                  pieces = r.n > 0 ? cuda_ceil(r.n, r.piece) : 1;
    const cuda_grid grid = {r.outer * pieces * tiles, 1, 1, CUDA_THREADS, CUDA_THREADS * 12};
    return CUDA_LAUNCH(self, c, k, grid, err, &r, &x, &in_at, &out, &out_at, &columns);
}

static tt_status reduce(void *self, const tt_kernel_call *c, reduction r, int how, tt_error *err)
{
    const int half = cuda_half(&c->in[0]);
    const void *x = c->in[0].data;
    void *y = c->out[0].data;
    if (r.inner == 1 && r.n <= WARP_N) {
        const cuda_grid grid = {cuda_ceil(r.outer, 8), 1, 1, CUDA_THREADS, 0};
        return CUDA_LAUNCH(self, c, &by_row[how][half], grid, err, &r, &x, &y);
    }
    if (r.inner != 1 && r.n <= THREAD_N) {
        const cuda_grid grid = {cuda_ceil(r.outer * r.inner, CUDA_THREADS), 1, 1, CUDA_THREADS, 0};
        return CUDA_LAUNCH(self, c, &by_thread[how][half], grid, err, &r, &x, &y);
    }
    if (!has_pieces(&r)) {
        r.piece = r.n;
        return columns(self, c, &by_column[how][half], r, x, NULL, y, NULL, err);
    }
    const int64_t pieces = cuda_ceil(r.n, r.piece);
    float *parts = c->scratch;
    int64_t *at =
        how == ARG
            ? (int64_t *)(void *)((char *)c->scratch +
                                  cuda_align((size_t)(r.outer * pieces * r.inner) * sizeof(float)))
            : NULL;
    reduction first = r;
    first.half_out = first.add = first.indices = 0;
    TT_TRY(columns(self, c, &by_column[how][half], first, x, NULL, parts, at, err));
    r.n = r.piece = pieces;
    r.sign = 1.0f;
    return columns(self, c, &by_column[how][0], r, parts, at, y, NULL, err);
}

static size_t sum_scratch(const tt_kernel_call *c, int n_threads)
{
    (void)n_threads;
    return reduce_scratch(c, ((const tt_attrs_reduce *)c->attrs)->dim);
}
/* f64: counts, a few numbers per step. */
static tt_status run_sum_doubles(void *self, const tt_kernel_call *c, int dim, tt_error *err)
{
    const cuda_split s = cuda_split_of(&c->in[0], dim);
    const cuda_grid grid = {cuda_ceil(s.outer * s.inner, CUDA_THREADS), 1, 1, CUDA_THREADS, 0};
    const void *x = c->in[0].data;
    void *y = c->out[0].data;
    int64_t outer = s.outer, n = s.n, inner = s.inner;
    int add = c->accumulate;
    return CUDA_LAUNCH(self, c, &sum_doubles, grid, err, &x, &y, &outer, &n, &inner, &add);
}
static int sums(const tt_kernel_call *c)
{
    return cuda_floats(c) || (c->in[0].dtype == TT_F64 && c->out[0].dtype == TT_F64);
}
static tt_status run_sum(void *self, const tt_kernel_call *c, tt_error *err)
{
    const tt_attrs_reduce *a = c->attrs;
    if (c->in[0].dtype == TT_F64)
        return run_sum_doubles(self, c, a->dim, err);
    return reduce(self, c, reduction_of(c, a->dim), SUM, err);
}
static tt_status run_max(void *self, const tt_kernel_call *c, tt_error *err)
{
    const tt_attrs_reduce *a = c->attrs;
    return reduce(self, c, reduction_of(c, a->dim), MAX, err);
}

static size_t argmax_scratch(const tt_kernel_call *c, int n_threads)
{
    (void)n_threads;
    return reduce_scratch(c, ((const tt_attrs_arg *)c->attrs)->dim);
}
/* x [outer,n,inner] -> y i32 [outer,inner] */
static tt_status run_argmax(void *self, const tt_kernel_call *c, tt_error *err)
{
    const tt_attrs_arg *a = c->attrs;
    reduction r = reduction_of(c, a->dim);
    r.sign = a->smallest ? -1.0f : 1.0f;
    return reduce(self, c, r, ARG, err);
}

tt_status cuda_column_sum(cuda_backend *b, tt_device_queue *q, const void *partial, int64_t tiles,
                          int64_t n, int64_t ld, void *out, tt_error *err)
{
    const cuda_grid grid = {cuda_ceil(n, 32), 1, 1, 1024, 32 * 33 * (int)sizeof(float)};
    return cuda_launch(b, q, &column_sum, grid, (void *const[]){&partial, &tiles, &n, &ld, &out},
                       err);
}

/* x [T] -> y [sequences]: a sequence is found by its global index, because a mesh axis that cuts
 * within sequences leaves this rank parts of some and nothing of others. */
static tt_status run_line_sum(void *self, const tt_kernel_call *c, tt_error *err)
{
    const tt_tensor *t = &c->in[0], *o = &c->out[0];
    const void *x = t->data;
    void *y = o->data;
    int64_t n = t->shape[0], begin = t->begin[0], first = o->begin[0],
            line = o->global[0] > 0 ? t->global[0] / o->global[0] : 0;
    const cuda_grid grid = {o->shape[0], 1, 1, CUDA_THREADS, CUDA_ROOM};
    return CUDA_LAUNCH(self, c, &line_sum[cuda_half(t)], grid, err, &x, &n, &begin, &first, &line,
                       &y);
}

/* x [T], number [T] -> y [T]: blocks of a sequence have its numbers in turn. */
static tt_status run_segment_sum(void *self, const tt_kernel_call *c, tt_error *err)
{
    const tt_tensor *t = &c->in[0];
    const void *x = t->data, *number = c->in[1].data;
    void *y = c->out[0].data;
    int64_t n = t->shape[0], line = ((const tt_attrs_dims *)c->attrs)->dims[0].size,
            skip = line > 0 ? t->begin[0] % line : 0;
    const cuda_grid grid = {n > 0 && line > 0 ? cuda_ceil(skip + n, line) : 0, SEGMENT_BLOCKS, 1,
                            CUDA_THREADS, CUDA_ROOM};
    return CUDA_LAUNCH(self, c, &segment_sum[cuda_half(t)], grid, err, &x, &number, &n, &line,
                       &skip, &y);
}

static size_t squares_scratch(const tt_kernel_call *c, int n_threads)
{
    (void)n_threads;
    return (size_t)(cuda_ceil(tt_tensor_numel(&c->in[0]), CHUNK) + 1) * sizeof(double);
}
/* x of any shape -> y f32, one element */
static tt_status run_squares(void *self, const tt_kernel_call *c, tt_error *err)
{
    const void *x = c->in[0].data;
    void *y = c->out[0].data, *chunks = c->scratch;
    int wide = cuda_alignment_of(x, 16) == 16;
    int64_t n = tt_tensor_numel(&c->in[0]), n_chunks = cuda_ceil(n, CHUNK);
    const cuda_grid grid = {n_chunks, 1, 1, CUDA_THREADS, CUDA_ROOM * 2};
    TT_TRY(CUDA_LAUNCH(self, c, &squares[cuda_half(&c->in[0])], grid, err, &x, &n, &chunks, &wide));
    const cuda_grid last = {1, 1, 1, 1024, CUDA_ROOM * 2};
    return CUDA_LAUNCH(self, c, &sum_chunks, last, err, &chunks, &n_chunks, &y);
}

const tt_kernel cuda_kernels_reduce[] = {
    CUDA_ROW("reduce_sum", run_sum, sum_scratch, 1, 0, sums),
    CUDA_ROW("reduce_max", run_max, sum_scratch, 0, 0, cuda_floats),
    CUDA_ROW("argmax", run_argmax, argmax_scratch, 0, 0, cuda_floats),
    CUDA_ROW("line_sum", run_line_sum, NULL, 0, 0, cuda_floats),
    CUDA_ROW("segment_sum", run_segment_sum, NULL, 0, 0, cuda_floats),
    CUDA_ROW("sum_squares", run_squares, squares_scratch, 0, 0, cuda_floats),
    {.op = NULL},
};
