/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu.h"
#include <string.h>

/* Rows by index: embedding, gather, their derivatives, top_k. Additions into rows are split by
 * ranges of target rows: each thread lists the indices that point to its rows, in ascending order,
 * and sums a row in f64, so that a frequent token's thousand gradients are rounded once. N indices,
 * V rows of the table, D elements per row, k picks. Naive twins: backends/reference/indexing.c. */
#define RANGES 16
#define COLUMNS 64
#define MOST_INSERTED                                                                              \
    32 /* top_k: for larger k sorting the row is faster than inserting each element */

typedef struct rows {
    const int32_t *index;
    /* head: per row of the table, the first index that points to it, or -1; next: per index, the
     * next one */
    int32_t *head, *next;
    const float *x;
    float *y;
    int64_t n, width, first,
        /* number of indices; elements per row; global index of the table's local row 0; its
         * number of local rows */
        count;
    bool keep; /* add to what y holds */
} rows;

static int64_t width_after(const tt_tensor *t) /* elements of one row */
{
    int64_t n = 1;
    for (int d = 1; d < t->n_dims; d++)
        n *= t->shape[d];
    return n;
}

static void read_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const rows *w = arg;
    const size_t bytes = (size_t)w->width * sizeof(float);
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t r = (int64_t)w->index[i] - w->first;
        if (r >= 0 && r < w->count)
            memcpy(w->y + i * w->width, w->x + r * w->width, bytes);
        else
            memset(w->y + i * w->width, 0, bytes);
    }
}

static void run_read(const tt_kernel_call *c, const tt_tensor *table, const tt_tensor *index)
{
    rows w = {
        .index = index->data, .x = table->data, .y = c->out[0].data, .n = tt_tensor_numel(index)};
    w.width = width_after(table);
    w.first = table->begin[0];
    w.count = table->shape[0];
    tt_parallel_for(c->pool, w.n, cpu_max(1, 16384 / cpu_max(1, w.width)), read_rows, &w);
}

/* ids [N], table [V,D] -> y [N,D] */
static tt_status embedding(void *self, const tt_kernel_call *c, tt_error *err)
{
    (void)self;
    (void)err;
    run_read(c, &c->in[1], &c->in[0]);
    return TT_OK;
}
/* x [V,D], index [N] -> y [N,D] */
static tt_status gather(void *self, const tt_kernel_call *c, tt_error *err)
{
    (void)self;
    (void)err;
    run_read(c, &c->in[0], &c->in[1]);
    return TT_OK;
}

/* Adds the sum of x over the list that begins at `head` to y[0, n) of one row. The sum is rounded
 * on its own first, so accumulating into y gives the same bits as adding a separate result to y. */
static void add_row(const rows *w, int32_t head, const float *x, float *y, int64_t n)
{
    double sum[COLUMNS];
    for (int64_t j = 0; j < n; j++)
        sum[j] = 0.0;
    for (int32_t i = head; i >= 0; i = w->next[i])
        for (int64_t j = 0; j < n; j++)
            sum[j] += (double)x[i * w->width + j];
    for (int64_t j = 0; j < n; j++)
        y[j] = w->keep ? y[j] + (float)sum[j] : (float)sum[j];
}

static void add_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const rows *w = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        w->head[r] = -1;
    for (int64_t i = w->n - 1; i >= 0; i--) {
        int64_t r = (int64_t)w->index[i] - w->first;
        if (r < begin || r >= end)
            continue;
        w->next[i] = w->head[r];
        w->head[r] = (int32_t)i;
    }
    for (int64_t r = begin; r < end; r++)
        for (int64_t c = 0; c < w->width && (w->head[r] >= 0 || !w->keep); c += COLUMNS)
            add_row(w, w->head[r], w->x + c, w->y + r * w->width + c,
                    w->width - c < COLUMNS ? w->width - c : COLUMNS);
}

static void run_add(const tt_kernel_call *c, const tt_tensor *x, const tt_tensor *index)
{
    const tt_tensor *y = &c->out[0];
    rows w = {.index = index->data, .x = x->data, .y = y->data, .head = c->scratch};
    w.n = tt_tensor_numel(index);
    w.width = width_after(y);
    w.first = y->begin[0];
    w.count = y->shape[0];
    w.keep = c->accumulate != 0;
    w.next = w.head + w.count;
    if (w.count)
        tt_parallel_for(c->pool, w.count, (w.count + RANGES - 1) / RANGES, add_rows, &w);
}

static size_t add_scratch(const tt_tensor *y, const tt_tensor *index)
{
    return (size_t)(y->shape[0] + tt_tensor_numel(index)) * sizeof(int32_t);
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

/* ids [N], dy [N,D] -> dtable [V,D] */
static tt_status embedding_dw(void *self, const tt_kernel_call *c, tt_error *err)
{
    (void)self;
    (void)err;
    run_add(c, &c->in[1], &c->in[0]);
    return TT_OK;
}
/* x [N,D], index [N] -> y [V,D] */
static tt_status scatter_add(void *self, const tt_kernel_call *c, tt_error *err)
{
    (void)self;
    (void)err;
    run_add(c, &c->in[0], &c->in[1]);
    return TT_OK;
}

/* ---- top_k ---- */
typedef struct top {
    const float *x;
    float *values;
    int32_t *indices;
    const int32_t *picked;
    int64_t n, k;
    struct keyed *rows; /* 2 n of each thread, if rows are sorted */
} top;

/* Does value a sort before value b, which has a lower index? The larger value sorts first, equal
 * values by index, NaN last. */
static bool before(float a, float b)
{
    return a > b || (b != b && a == a);
}

static void top_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const top *w = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const float *x = w->x + r * w->n;
        float *v = w->values + r * w->k;
        int32_t *index = w->indices + r * w->k;
        int64_t have = 0;
        for (int64_t i = 0; i < w->n; i++) {
            if (have == w->k && !before(x[i], v[have - 1]))
                continue;
            int64_t at = have < w->k ? have++ : have - 1;
            for (; at > 0 && before(x[i], v[at - 1]); at--) {
                v[at] = v[at - 1];
                index[at] = index[at - 1];
            }
            v[at] = x[i];
            index[at] = (int32_t)i;
        }
    }
}

typedef struct keyed {
    uint32_t key;
    int32_t index;
} keyed;

/* Keys ascend in the order of `before`: the bits of -x, of a positive float with the sign bit set and of a
 * negative float inverted, order floats as unsigned numbers. -0 is 0, all NaNs are one. */
static uint32_t key_of(float x)
{
    uint32_t bits;
    x = x == 0.0f ? 0.0f : -x;
    if (x != x)
        return UINT32_MAX;
    memcpy(&bits, &x, sizeof bits);
    return bits >> 31 ? ~bits : bits | UINT32_C(1) << 31;
}

/* Sorts by one byte of the keys after the other, lowest first. Each pass keeps the order of equal bytes,
 * so equal keys stay in the order of their indices. */
static void sort_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const top *w = arg;
    for (int64_t r = begin; r < end; r++) {
        keyed *from = w->rows + 2 * w->n * thread, *to = from + w->n;
        int32_t count[4][256] = {{0}};
        for (int64_t i = 0; i < w->n; i++) {
            from[i] = (keyed){key_of(w->x[r * w->n + i]), (int32_t)i};
            for (int b = 0; b < 4; b++)
                count[b][from[i].key >> 8 * b & 255]++;
        }
        for (int b = 0; b < 4; b++) {
            int32_t at = 0;
            for (int v = 0; v < 256; v++) {
                const int32_t n = count[b][v];
                count[b][v] = at;
                at += n;
            }
            for (int64_t i = 0; i < w->n; i++)
                to[count[b][from[i].key >> 8 * b & 255]++] = from[i];
            keyed *other = from;
            from = to;
            to = other;
        }
        for (int64_t i = 0; i < w->k; i++) {
            w->values[r * w->k + i] = w->x[r * w->n + from[i].index];
            w->indices[r * w->k + i] = from[i].index;
        }
    }
}

static size_t top_k_scratch(const tt_kernel_call *c, int n_threads)
{
    if (cpu_width(&c->out[0]) <= MOST_INSERTED)
        return 0;
    return (size_t)n_threads * 2 * (size_t)cpu_width(&c->in[0]) * sizeof(keyed);
}

/* x [R,n] -> values [R,k], indices [R,k] */
static tt_status top_k(void *self, const tt_kernel_call *c, tt_error *err)
{
    top w = {.x = c->in[0].data, .values = c->out[0].data, .indices = c->out[1].data};
    (void)self;
    (void)err;
    w.n = cpu_width(&c->in[0]);
    w.k = cpu_width(&c->out[0]);
    w.rows = c->scratch;
    if (w.k > 0)
        tt_parallel_for(c->pool, cpu_rows(&c->in[0]), cpu_max(1, 4096 / cpu_max(1, w.n)),
                        w.k > MOST_INSERTED ? sort_rows : top_rows, &w);
    return TT_OK;
}

static void top_bwd_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const top *w = arg;
    (void)thread;
    memset(w->values + begin * w->n, 0, (size_t)((end - begin) * w->n) * sizeof(float));
    for (int64_t r = begin; r < end; r++)
        for (int64_t i = 0; i < w->k; i++) {
            int32_t at = w->picked[r * w->k + i];
            if (at >= 0 && at < w->n)
                w->values[r * w->n + at] += w->x[r * w->k + i];
        }
}

/* indices [R,k], dvalues [R,k] -> dx [R,n] */
static tt_status top_k_bwd(void *self, const tt_kernel_call *c, tt_error *err)
{
    top w = {.picked = c->in[0].data, .x = c->in[1].data, .values = c->out[0].data};
    (void)self;
    (void)err;
    w.n = cpu_width(&c->out[0]);
    w.k = cpu_width(&c->in[0]);
    tt_parallel_for(c->pool, cpu_rows(&c->out[0]), cpu_max(1, 4096 / cpu_max(1, w.n)), top_bwd_rows,
                    &w);
    return TT_OK;
}

const cpu_kernel cpu_kernels_index[] = {
    CPU_KERNEL("embedding", embedding, NULL, 0, 0),
    CPU_KERNEL("embedding_dw", embedding_dw, embedding_dw_scratch, 1, 0),
    CPU_KERNEL("gather", gather, NULL, 0, 0),
    CPU_KERNEL("scatter_add", scatter_add, scatter_add_scratch, 1, 0),
    CPU_KERNEL("top_k", top_k, top_k_scratch, 0, 0),
    CPU_KERNEL("top_k_bwd", top_k_bwd, NULL, 0, 0),
    CPU_KERNEL_END,
};
