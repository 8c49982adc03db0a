/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu.h"
#include <math.h>
#include <string.h>

/* Reductions: over the last dim, row by row; over another dim, column by column (tasks are cut
 * along the columns only; long columns are summed in tiles of ROW_TILE rows, in order). Naive
 * twins: backends/reference/shape.c. */
#define ROW_TILE 1024
#define COLUMNS 256
#define CHUNK 65536 /* elements whose squares are summed together */

typedef struct reduce {
    const cpu_isa *isa;
    const float *x;
    float *y;
    double *chunks;
    int64_t outer, n, inner, tiles;
    bool max, add; /* add to what y holds */
} reduce;

static reduce reduce_of(const tt_kernel_call *c)
{
    const tt_attrs_reduce *at = c->attrs;
    const tt_tensor *x = &c->in[0];
    reduce w = {.x = x->data, .y = c->out[0].data, .outer = 1, .n = 1, .inner = 1};
    for (int d = 0; d < x->n_dims; d++)
        *(d < at->dim ? &w.outer : d == at->dim ? &w.n : &w.inner) *= x->shape[d];
    return w;
}

static void row_pieces(void *arg, int64_t begin, int64_t end, int thread)
{
    const reduce *w = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const float v = (w->max ? w->isa->max : w->isa->sum)(w->n, w->x + r * w->n);
        w->y[r] = w->add ? w->y[r] + v : v;
    }
}

/* A piece is one outer index and COLUMNS columns. */
static void column_pieces(void *arg, int64_t begin, int64_t end, int thread)
{
    const reduce *w = arg;
    const int64_t blocks = (w->inner + COLUMNS - 1) / COLUMNS;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t o = i / blocks, j = i % blocks * COLUMNS, m = cpu_min(COLUMNS, w->inner - j);
        const float *x = w->x + o * w->n * w->inner + j;
        float *y = w->y + o * w->inner + j;
        if (w->max) {
            w->isa->column_max(w->n, m, w->inner, x, y);
            continue;
        }
        for (int64_t r = 0; r == 0 || r < w->n; r += ROW_TILE)
            w->isa->column_sum(cpu_min(ROW_TILE, w->n - r), m, w->inner, x + r * w->inner, y,
                               w->add || r > 0);
    }
}

static tt_status run_reduce(void *self, const tt_kernel_call *c, bool max)
{
    reduce w = reduce_of(c);
    w.isa = ((const cpu_backend *)self)->isa;
    w.max = max;
    w.add = c->accumulate != 0;
    if (w.inner == 1)
        tt_parallel_for(c->pool, w.outer, cpu_row_grain(w.outer, w.n), row_pieces, &w);
    else
        tt_parallel_for(c->pool, w.outer * ((w.inner + COLUMNS - 1) / COLUMNS), 1, column_pieces,
                        &w);
    return TT_OK;
}

static bool takes_doubles(const tt_kernel_call *c)
{
    return c->in[0].dtype == TT_F64 && c->out[0].dtype == TT_F64;
}

/* f64: counts, a few numbers per step. */
static tt_status sum_doubles(const tt_kernel_call *c)
{
    const reduce w = reduce_of(c);
    const double *x = c->in[0].data;
    double *y = c->out[0].data;
    for (int64_t o = 0; o < w.outer; o++)
        for (int64_t i = 0; i < w.inner; i++) {
            double sum = c->accumulate ? y[o * w.inner + i] : 0.0;
            for (int64_t r = 0; r < w.n; r++)
                sum += x[(o * w.n + r) * w.inner + i];
            y[o * w.inner + i] = sum;
        }
    return TT_OK;
}

/* x [outer,n,inner] -> y [outer,inner] */
static tt_status reduce_sum(void *self, const tt_kernel_call *c, tt_error *err)
{
    (void)err;
    if (takes_doubles(c))
        return sum_doubles(c);
    return run_reduce(self, c, false);
}
/* x [outer,n,inner] -> y [outer,inner] */
static tt_status reduce_max(void *self, const tt_kernel_call *c, tt_error *err)
{
    (void)err;
    return run_reduce(self, c, true);
}

/* argmax of the columns [j, j + m) of one outer index: the best so far of each in best[m]. A NaN is beyond
 * every number, and the first one stays. */
typedef struct arg_reduce {
    reduce w;
    float sign; /* -1: of the smallest */
} arg_reduce;

static void arg_pieces(void *arg, int64_t begin, int64_t end, int thread)
{
    const arg_reduce *a = arg;
    const reduce *w = &a->w;
    const int64_t blocks = (w->inner + COLUMNS - 1) / COLUMNS;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t o = i / blocks, j = i % blocks * COLUMNS, m = cpu_min(COLUMNS, w->inner - j);
        const float *x = w->x + o * w->n * w->inner + j;
        int32_t *y = (int32_t *)(void *)w->y + o * w->inner + j;
        float best[COLUMNS];
        for (int64_t k = 0; k < m; k++) {
            best[k] = a->sign * x[k];
            y[k] = 0;
        }
        for (int64_t r = 1; r < w->n; r++)
            for (int64_t k = 0; k < m; k++) {
                const float v = a->sign * x[r * w->inner + k];
                if (v <= best[k] || best[k] != best[k])
                    continue;
                best[k] = v;
                y[k] = (int32_t)r;
            }
    }
}

/* x [outer,n,inner] -> y i32 [outer,inner] */
static tt_status argmax(void *self, const tt_kernel_call *c, tt_error *err)
{
    const tt_attrs_arg *at = c->attrs;
    const tt_attrs_reduce dim = {.dim = at->dim};
    tt_kernel_call of = *c;
    (void)self;
    (void)err;
    of.attrs = &dim;
    arg_reduce a = {.w = reduce_of(&of), .sign = at->smallest ? -1.0f : 1.0f};
    const int64_t blocks = (a.w.inner + COLUMNS - 1) / COLUMNS,
                  columns = cpu_min(a.w.inner, COLUMNS);
    tt_parallel_for(c->pool, a.w.outer * blocks, cpu_row_grain(a.w.outer * blocks, a.w.n * columns),
                    arg_pieces, &a);
    return TT_OK;
}

/* A sequence ("line") is found by its global index, because a mesh axis that cuts within sequences
 * (context parallelism) leaves this rank parts of some and nothing of others. */
typedef struct lines {
    const reduce *w;
    const tt_tensor *x, *y;
} lines;

static void line_pieces(void *arg, int64_t begin, int64_t end, int thread)
{
    const lines *l = arg;
    const reduce *w = l->w;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const int64_t first = (l->y->begin[0] + r) * w->n - l->x->begin[0];
        const int64_t b = cpu_max(first, 0), e = cpu_min(first + w->n, l->x->shape[0]);
        w->y[r] = e > b ? w->isa->sum(e - b, w->x + b) : 0.0f;
    }
}

/* x [T] -> y [sequences] */
static tt_status line_sum(void *self, const tt_kernel_call *c, tt_error *err)
{
    reduce w = {.isa = ((const cpu_backend *)self)->isa, .x = c->in[0].data, .y = c->out[0].data};
    const lines l = {&w, &c->in[0], &c->out[0]};
    (void)err;
    w.n = l.y->global[0] > 0 ? l.x->global[0] / l.y->global[0] : 0;
    tt_parallel_for(c->pool, l.y->shape[0], 1, line_pieces, (void *)(uintptr_t)&l);
    return TT_OK;
}

/* Sums of a sequence's tokens by their numbers, in f64 and in the order of the tokens. A task has one sequence. */
typedef struct segments {
    const float *x;
    const int32_t *number;
    float *y;
    double *sums;          /* [pieces][line] */
    int64_t n, line, skip; /* skip: tokens of the first sequence that this rank lacks */
} segments;

static void segment_pieces(void *arg, int64_t begin, int64_t end, int thread)
{
    const segments *w = arg;
    (void)thread;
    for (int64_t p = begin; p < end; p++) {
        double *sums = w->sums + p * w->line;
        const int64_t from = cpu_max(p * w->line - w->skip, 0),
                      to = cpu_min((p + 1) * w->line - w->skip, w->n);
        for (int64_t i = 0; i < w->line; i++)
            sums[i] = 0;
        for (int64_t i = from; i < to; i++)
            if (w->number[i] >= 0 && w->number[i] < w->line)
                sums[w->number[i]] += (double)w->x[i];
        for (int64_t i = from; i < to; i++)
            w->y[i] = w->number[i] >= 0 && w->number[i] < w->line ? (float)sums[w->number[i]] : 0;
    }
}

static segments segments_of(const tt_kernel_call *c)
{
    segments w = {.x = c->in[0].data,
                  .number = c->in[1].data,
                  .y = c->out[0].data,
                  .sums = c->scratch,
                  .n = c->in[0].shape[0],
                  .line = ((const tt_attrs_dims *)c->attrs)->dims[0].size};
    w.skip = w.line > 0 ? c->in[0].begin[0] % w.line : 0;
    return w;
}

static int64_t n_segment_pieces(const segments *w)
{
    return w->n > 0 && w->line > 0 ? (w->skip + w->n + w->line - 1) / w->line : 0;
}

static size_t segment_sum_scratch(const tt_kernel_call *c, int n_threads)
{
    const segments w = segments_of(c);
    (void)n_threads;
    return (size_t)(n_segment_pieces(&w) * w.line) * sizeof(double);
}

/* x [T], number [T] -> y [T] */
static tt_status segment_sum(void *self, const tt_kernel_call *c, tt_error *err)
{
    segments w = segments_of(c);
    (void)self;
    (void)err;
    tt_parallel_for(c->pool, n_segment_pieces(&w), 1, segment_pieces, &w);
    return TT_OK;
}

static void square_pieces(void *arg, int64_t begin, int64_t end, int thread)
{
    const reduce *w = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i += CHUNK)
        w->chunks[i / CHUNK] = w->isa->sum_squares(cpu_min(CHUNK, end - i), w->x + i);
}
static size_t squares_scratch(const tt_kernel_call *c, int n_threads)
{
    (void)n_threads;
    return (size_t)(tt_tensor_numel(&c->in[0]) / CHUNK + 1) * sizeof(double);
}
/* x of any shape -> y, one element */
static tt_status sum_squares(void *self, const tt_kernel_call *c, tt_error *err)
{
    reduce w = {.isa = ((const cpu_backend *)self)->isa, .x = c->in[0].data, .chunks = c->scratch};
    int64_t n = tt_tensor_numel(&c->in[0]);
    double total = 0;
    (void)err;
    tt_parallel_for(c->pool, n, CHUNK, square_pieces, &w);
    for (int64_t i = 0; i * CHUNK < n; i++)
        total += w.chunks[i];
    *(float *)c->out[0].data = (float)total;
    return TT_OK;
}

/* ---- member_stats: x [n, ...] -> y [n, 4] ---- */

enum { STATS = 4 };

typedef struct stats {
    const float *x;
    int64_t size, chunks; /* of a member: elements, and chunks of them */
    double *parts;        /* [n][chunks][STATS] */
} stats;

/* Of a few thousand elements at a time, whose squares are summed in eight lanes. */
static void stats_of(const float *x, int64_t n, double *out)
{
    const uint32_t infinity = 0x7f800000u, saturated = 0x477fe000u; /* 65504 */
    double squares[8] = {0};
    int64_t bad = 0, zero = 0, large = 0;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; j++)
            squares[j] += (double)x[i + j] * (double)x[i + j];
    for (; i < n; i++)
        squares[0] += (double)x[i] * (double)x[i];
    for (i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bits &= 0x7fffffffu;
        bad += bits >= infinity;
        zero += bits == 0;
        large += bits >= saturated;
    }
    for (int j = 1; j < 8; j++)
        squares[0] += squares[j];
    out[0] = squares[0];
    out[1] = (double)bad;
    out[2] = (double)zero;
    out[3] = (double)(large - bad);
}

static void stats_pieces(void *arg, int64_t begin, int64_t end, int thread)
{
    const stats *w = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++) { /* i counts (member, chunk) */
        const int64_t at = i % w->chunks * CHUNK;
        stats_of(w->x + i / w->chunks * w->size + at, cpu_min(CHUNK, w->size - at),
                 w->parts + i * STATS);
    }
}

static int64_t member_size(const tt_tensor *x)
{
    return x->shape[0] ? tt_tensor_numel(x) / x->shape[0] : 0;
}

static int64_t member_chunks(const tt_tensor *x)
{
    return cpu_max(1, (member_size(x) + CHUNK - 1) / CHUNK);
}

static size_t stats_scratch(const tt_kernel_call *c, int n_threads)
{
    (void)n_threads;
    return (size_t)(c->in[0].shape[0] * member_chunks(&c->in[0]) * STATS + 1) * sizeof(double);
}

static tt_status member_stats(void *self, const tt_kernel_call *c, tt_error *err)
{
    const tt_tensor *x = &c->in[0];
    const stats w = {x->data, member_size(x), member_chunks(x), c->scratch};
    float *y = c->out[0].data;
    (void)self, (void)err;
    tt_parallel_for(c->pool, x->shape[0] * w.chunks, 1, stats_pieces, (void *)(uintptr_t)&w);
    for (int64_t i = 0; i < x->shape[0] * STATS; i++) {
        const double *part = w.parts + i / STATS * w.chunks * STATS + i % STATS;
        double sum = 0;
        for (int64_t k = 0; k < w.chunks; k++)
            sum += part[k * STATS];
        y[i] = (float)sum;
    }
    return TT_OK;
}

const cpu_kernel cpu_kernels_reduce[] = {
    CPU_KERNEL_TAKES("reduce_sum", reduce_sum, NULL, 1, 0, takes_doubles),
    CPU_KERNEL("reduce_max", reduce_max, NULL, 0, 0),
    CPU_KERNEL("argmax", argmax, NULL, 0, 0),
    CPU_KERNEL("line_sum", line_sum, NULL, 0, 0),
    CPU_KERNEL("segment_sum", segment_sum, segment_sum_scratch, 0, 1),
    CPU_KERNEL("sum_squares", sum_squares, squares_scratch, 0, 0),
    CPU_KERNEL("member_stats", member_stats, stats_scratch, 0, 0),
    CPU_KERNEL_END,
};
