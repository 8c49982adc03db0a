/* SPDX-License-Identifier: Apache-2.0 */
#include "rows.h"

/* Reductions of x [outer, n, inner] over n, and sums over all elements. */

/* What is reduced: a value, and for argmax its index in n. */
struct tt_best {
    float v;
    i64 i; /* TT_NONE: of no element */
};
#define TT_NONE 0x7fffffffffffffffll

/* How two are joined; only the order of `join`s of a sum matters, and that is fixed by the shape. */
struct tt_add {
    TT_DEV static tt_best none(void)
    {
        return {0.0f, TT_NONE};
    }
    TT_DEV static tt_best join(tt_best a, tt_best b)
    {
        return {a.v + b.v, TT_NONE};
    }
};
struct tt_most {
    TT_DEV static tt_best none(void)
    {
        return {-TT_INFINITY, TT_NONE};
    }
    TT_DEV static tt_best join(tt_best a, tt_best b)
    {
        return {tt_max(a.v, b.v), TT_NONE};
    }
};
/* The largest with its index; NaN is beyond every number, and of equal ones the first is taken. */
struct tt_arg {
    TT_DEV static tt_best none(void)
    {
        return {-TT_INFINITY, TT_NONE};
    }
    TT_DEV static tt_best join(tt_best a, tt_best b)
    {
        const bool nan_a = a.v != a.v, nan_b = b.v != b.v;
        const bool same = a.v == b.v || (nan_a && nan_b);
        return (same ? a.i < b.i : nan_a || (!nan_b && a.v > b.v)) ? a : b;
    }
};

struct tt_reduction {
    i64 outer, n, inner;
    i64 piece;    /* elements of n per block */
    float sign;   /* -1: of -x */
    int half_out; /* the result is bf16, else f32 */
    int add;      /* to what the result holds */
    int indices;  /* the result is i32: indices */
};

template <class P, class T>
TT_DEV tt_best best_at(const tt_reduction &r, const T *x, const i64 *in_at, i64 at, i64 j)
{
    const float v = tt_load(x + at);
    return {r.sign < 0.0f ? -v : v, in_at ? in_at[at] : j};
}

/* Writes a result: of a piece to parts (out_at, if there are indices), or the end's. */
TT_DEV void put_best(const tt_reduction &r, void *out, i64 *out_at, i64 at, tt_best b)
{
    if (out_at) {
        ((float *)out)[at] = b.v;
        out_at[at] = b.i;
    } else if (r.indices) {
        ((int *)out)[at] = b.i == TT_NONE ? 0 : (int)b.i;
    } else {
        tt_store_any(out, at, r.half_out, r.add ? tt_load_any(out, at, r.half_out) + b.v : b.v);
    }
}

/* inner = 1: a warp per row of n. */
template <class P, class T> TT_DEV void reduce_row(const tt_reduction &r, const T *x, void *out)
{
    const i64 row = tt_group_row<32>(r.outer);
    const int lane = (int)threadIdx.x % 32;
    tt_best b = P::none();
    if (row < 0)
        return;
    TT_UNROLL(4)
    for (i64 j = lane; j < r.n; j += 32)
        b = P::join(b, best_at<P>(r, x, (const i64 *)0, row * r.n + j, j));
    for (int o = 16; o > 0; o >>= 1) {
        const tt_best other = {tt_shuffle_xor(b.v, o), tt_shuffle_xor(b.i, o)};
        b = lane & o ? P::join(other, b) : P::join(b, other);
    }
    if (lane == 0)
        put_best(r, out, (i64 *)0, row, b);
}

/* A thread per result: for short n. */
template <class P, class T> TT_DEV void reduce_thread(const tt_reduction &r, const T *x, void *out)
{
    const i64 at = (i64)blockIdx.x * 256 + threadIdx.x;
    if (at >= r.outer * r.inner)
        return;
    const i64 first = at / r.inner * r.n * r.inner + at % r.inner;
    tt_best b = P::none();
    TT_UNROLL(4)
    for (i64 j = 0; j < r.n; j++)
        b = P::join(b, best_at<P>(r, x, (const i64 *)0, first + j * r.inner, j));
    put_best(r, out, (i64 *)0, at, b);
}

/* A block has `columns` (a power of two up to 32) of inner and a piece of n: threads with the same
 * column read its rows in turn, and are joined in a tree. Blocks: [outer, pieces, tiles of inner];
 * out [outer, pieces, inner]. */
template <class P, class T>
TT_DEV void reduce_columns(const tt_reduction &r, const T *x, const i64 *in_at, void *out,
                           i64 *out_at, int columns)
{
    const i64 tiles = (r.inner + columns - 1) / columns;
    const i64 pieces = r.n > 0 ? (r.n + r.piece - 1) / r.piece : 1;
    const i64 block = blockIdx.x, tile = block % tiles, p = block / tiles % pieces,
              o = block / tiles / pieces;
    const int c = (int)threadIdx.x % columns, lane = (int)threadIdx.x / columns,
              lanes = 256 / columns;
    const i64 i = tile * columns + c, end = (p + 1) * r.piece < r.n ? (p + 1) * r.piece : r.n;
    i64 *const at = (i64 *)(void *)tt_shared;
    float *const v = (float *)(void *)(at + 256);
    tt_best b = P::none();
    if (i < r.inner) {
        TT_UNROLL(4)
        for (i64 j = p * r.piece + lane; j < end; j += lanes)
            b = P::join(b, best_at<P>(r, x, in_at, (o * r.n + j) * r.inner + i, j));
    }
    v[threadIdx.x] = b.v;
    at[threadIdx.x] = b.i;
    for (int half = lanes / 2; half > 0; half /= 2) {
        tt_sync();
        if (lane < half) {
            const int with = (int)threadIdx.x + half * columns;
            b = P::join(b, {v[with], at[with]});
            v[threadIdx.x] = b.v;
            at[threadIdx.x] = b.i;
        }
    }
    if (lane == 0 && i < r.inner)
        put_best(r, out, out_at, (o * pieces + p) * r.inner + i, b);
}

#define REDUCE(T, t, P, p)                                                                         \
    TT_KERNEL(256, p##_threads_##t, tt_reduction r, const T *x, void *out)                         \
    {                                                                                              \
        reduce_thread<P>(r, x, out);                                                               \
    }                                                                                              \
    TT_KERNEL(256, p##_rows_##t, tt_reduction r, const T *x, void *out)                            \
    {                                                                                              \
        reduce_row<P>(r, x, out);                                                                  \
    }                                                                                              \
    TT_KERNEL(256, p##_columns_##t, tt_reduction r, const T *x, const i64 *in_at, void *out,       \
              i64 *out_at, int columns)                                                            \
    {                                                                                              \
        reduce_columns<P>(r, x, in_at, out, out_at, columns);                                      \
    }

REDUCE(float, f32, tt_add, sum)
REDUCE(bf16, bf16, tt_add, sum)
REDUCE(float, f32, tt_most, max)
REDUCE(bf16, bf16, tt_most, max)
REDUCE(float, f32, tt_arg, arg)
REDUCE(bf16, bf16, tt_arg, arg)

/* out [n] = Σ partial [tiles, ld], 32 columns per block: thread row k has the tiles k, k + 32, … */
/* x [outer,n,inner] -> y [outer,inner]; add: to what y holds */
TT_KERNEL(256, sum_doubles, const double *x, double *y, i64 outer, i64 n, i64 inner, int add)
{
    const i64 at = (i64)blockIdx.x * 256 + threadIdx.x;
    if (at >= outer * inner)
        return;
    const double *from = x + at / inner * n * inner + at % inner;
    double sum = add ? y[at] : 0.0;
    for (i64 j = 0; j < n; j++)
        sum += from[j * inner];
    y[at] = sum;
}

TT_KERNEL(1024, column_sum, const float *partial, i64 tiles, i64 n, i64 ld, float *out)
{
    const int c = (int)threadIdx.x % 32, k = (int)threadIdx.x / 32;
    const i64 j = (i64)blockIdx.x * 32 + c;
    float *const sums = (float *)(void *)tt_shared; /* [32][33] */
    float sum = 0.0f;
    TT_UNROLL(4)
    for (i64 t = k; t < tiles && j < n; t += 32)
        sum += partial[t * ld + j];
    sums[k * 33 + c] = sum;
    tt_sync();
    sum = tt_warp_sum(sums[c * 33 + k]); /* column k of the block */
    if (c == 0 && (i64)blockIdx.x * 32 + k < n)
        out[(i64)blockIdx.x * 32 + k] = sum;
}

/* out [l] = Σ x over global elements [(first + l) line, + line), of which this rank has
 * [begin, begin + n). A block per l. */
template <class T> TT_DEV void line_sum(const T *x, i64 n, i64 begin, i64 first, i64 line, T *out)
{
    const i64 from = (first + (i64)blockIdx.x) * line - begin, to = from + line;
    float sum = 0.0f;
    TT_UNROLL(4)
    for (i64 i = (from > 0 ? from : 0) + threadIdx.x; i < (to < n ? to : n); i += 256)
        sum += tt_load(x + i);
    sum = tt_block_sum(sum, tt_room());
    if (threadIdx.x == 0)
        tt_store(out + blockIdx.x, sum);
}

/* The largest v of the block. */
TT_DEV int block_largest(int v, int *room)
{
    for (int o = 16; o > 0; o >>= 1) {
        const int other = tt_shuffle_xor(v, o);
        v = other > v ? other : v;
    }
    tt_sync();
    if (threadIdx.x % 32 == 0)
        room[threadIdx.x / 32] = v;
    tt_sync();
    for (int k = 0; k < (int)blockDim.x / 32; k++)
        v = room[k] > v ? room[k] : v;
    return v;
}

/* out [i] = Σ x over the elements of i's sequence that have i's number, 0 where it is outside [0, line). Of
 * the blocks (sequence, k) k has the numbers k, k + gridDim.y, … up to the largest that there is. */
template <class T>
TT_DEV void segment_sum(const T *x, const int *number, i64 n, i64 line, i64 skip, T *out)
{
    const i64 from = (i64)blockIdx.x * line - skip, to = from + line, end = to < n ? to : n,
              first = (from > 0 ? from : 0) + threadIdx.x;
    int most = -1;
    for (i64 i = first; i < end; i += 256) {
        most = number[i] > most && number[i] < line ? number[i] : most;
        if (blockIdx.y == 0 && (number[i] < 0 || number[i] >= line))
            tt_store(out + i, 0.0f);
    }
    most = block_largest(most, (int *)(void *)tt_shared);
    for (i64 s = blockIdx.y; s <= most; s += gridDim.y) {
        float sum = 0.0f;
        TT_UNROLL(4)
        for (i64 i = first; i < end; i += 256)
            sum += number[i] == s ? tt_load(x + i) : 0.0f;
        sum = tt_block_sum(sum, tt_room());
        for (i64 i = first; i < end; i += 256)
            if (number[i] == s)
                tt_store(out + i, sum);
    }
}

TT_DEV double block_sum(double v, double *room)
{
    v = tt_warp_sum(v);
    if (threadIdx.x % 32 == 0)
        room[threadIdx.x / 32] = v;
    tt_sync();
    return tt_warp_sum(threadIdx.x % 32 < blockDim.x / 32 ? room[threadIdx.x % 32] : 0.0);
}

/* The squares of a chunk of 64 units per thread: 64 in f32, then f64. */
template <class T, int V, bool W> TT_DEV void squares(const T *x, i64 n, double *chunks)
{
    const i64 first = (i64)blockIdx.x * 16384;
    float v[V];
    double sum = 0.0;
    for (int k = 0; k < 64 / V; k++) {
        const i64 i = first + (k * 256 + (int)threadIdx.x) * V;
        float part = 0.0f;
        if (i + V <= n) {
            tt_load_part<V, W>(v, x + i, V);
            for (int j = 0; j < V; j++)
                part += v[j] * v[j];
        } else {
            for (i64 j = i; j < n; j++)
                part += tt_load(x + j) * tt_load(x + j);
        }
        sum += (double)part;
    }
    sum = block_sum(sum, (double *)(void *)tt_shared);
    if (threadIdx.x == 0)
        chunks[blockIdx.x] = sum;
}

#define SUMS(T, t)                                                                                 \
    TT_KERNEL(256, line_sum_##t, const T *x, i64 n, i64 begin, i64 first, i64 line, T *out)        \
    {                                                                                              \
        line_sum(x, n, begin, first, line, out);                                                   \
    }                                                                                              \
    TT_KERNEL(256, segment_sum_##t, const T *x, const int *number, i64 n, i64 line, i64 skip,      \
              T *out)                                                                              \
    {                                                                                              \
        segment_sum(x, number, n, line, skip, out);                                                \
    }                                                                                              \
    TT_KERNEL(256, squares_##t, const T *x, i64 n, double *chunks, int wide)                       \
    {                                                                                              \
        if (wide)                                                                                  \
            squares<T, tt_unit<T>::n, true>(x, n, chunks);                                         \
        else                                                                                       \
            squares<T, tt_unit<T>::n, false>(x, n, chunks);                                        \
    }

SUMS(float, f32)
SUMS(bf16, bf16)

TT_KERNEL(1024, sum_chunks, const double *chunks, i64 n, float *out)
{
    double sum = 0.0;
    for (i64 i = threadIdx.x; i < n; i += 1024)
        sum += chunks[i];
    sum = block_sum(sum, (double *)(void *)tt_shared);
    if (threadIdx.x == 0)
        *out = (float)sum;
}
