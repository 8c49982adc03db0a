/* SPDX-License-Identifier: Apache-2.0 */
#include "rows.h"

/* Rows by index: read, or added up in ascending order; and the k largest elements of rows. */

/* ---- out[i] = table[index[i] - first], zeros where the table has no such row ----
 * Rows are `units` units; `group` threads, a power of two, have a row. */
template <class U>
TT_DEV void read_rows(const U *table, const int *index, U *out, i64 n, i64 units, i64 first,
                      i64 count, int group)
{
    const i64 i = (i64)blockIdx.x * (256 / group) + (int)threadIdx.x / group;
    if (i >= n)
        return;
    const i64 r = (i64)index[i] - first;
    const bool has = r >= 0 && r < count;
    U none = {};
    TT_UNROLL(4)
    for (i64 u = (int)threadIdx.x % group; u < units; u += group)
        out[i * units + u] = has ? table[r * units + u] : none;
}

#define READ(U, bytes)                                                                             \
    TT_KERNEL(256, read_rows_##bytes, const U *table, const int *index, U *out, i64 n, i64 units,  \
              i64 first, i64 count, int group)                                                     \
    {                                                                                              \
        read_rows(table, index, out, n, units, first, count, group);                               \
    }
READ(u8, 1)
READ(u16, 2)
READ(u32, 4)
READ(tt_pair, 8)
READ(tt_wide, 16)

/* ---- out[r] = Σ x[i] over the i with index[i] - first = r, in ascending i ----
 * keys: r << 32 | i, sorted; TT_NO_ROW: of no row. The list of a row is summed in pieces of TT_PIECE:
 * a row of one piece directly, else its piece 0 goes to slot p / TT_PIECE of parts0, its others to
 * parts1, where p is the piece's place among the keys; then the pieces are summed in order. Two pieces
 * never have one slot, because pieces 0 of such rows, and pieces k > 0, begin at least TT_PIECE apart. */
#define TT_PIECE 128
#define TT_NO_ROW 0x7fffffffu

TT_KERNEL(256, row_keys, const int *index, u64 *keys, i64 n, i64 first, i64 count)
{
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i >= n)
        return;
    const i64 r = (i64)index[i] - first;
    keys[i] = (u64)(r >= 0 && r < count ? (u32)r : TT_NO_ROW) << 32 | (u64)i;
}

/* The row of the key at p, or -1. */
TT_DEV i64 row_at(const u64 *keys, i64 n, i64 p)
{
    return p >= 0 && p < n && (u32)(keys[p] >> 32) != TT_NO_ROW ? (i64)(keys[p] >> 32) : -1;
}

/* The first place in [low, high) whose row is `row` or after it, or high. */
TT_DEV i64 place_of(const u64 *keys, i64 low, i64 high, i64 row)
{
    while (low < high) {
        const i64 middle = (low + high) / 2;
        if ((i64)(keys[middle] >> 32) < row)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The sum of column j of the rows x[keys[p] … keys[p + count - 1]]. */
template <class T, int V>
TT_DEV void sum_piece(float *sum, const T *x, const u64 *keys, i64 p, int count, i64 width, i64 j)
{
    for (int k = 0; k < V; k++)
        sum[k] = 0.0f;
    TT_UNROLL(4)
    for (int i = 0; i < count; i++) {
        float v[V];
        tt_load_unit<V>(v, x + (i64)(u32)keys[p + i] * width + j);
        for (int k = 0; k < V; k++)
            sum[k] += v[k];
    }
}

/* A group of G threads per place p: it works if a piece begins at p. */
template <class T, int V, int G>
TT_DEV void add_pieces(const T *x, const u64 *keys, void *out, int half_out, int add, float *parts0,
                       float *parts1, i64 n, i64 width)
{
    const i64 p = tt_group_row<G>(n);
    const i64 r = p < 0 ? -1 : row_at(keys, n, p);
    if (r < 0)
        return;
    i64 before = 0; /* places of this row before p */
    if (row_at(keys, n, p - 1) == r) {
        if (row_at(keys, n, p - TT_PIECE) != r)
            return;
        before = p - place_of(keys, 0, p, r);
        if (before % TT_PIECE)
            return;
    }
    const int count = (int)(place_of(keys, p + 1, p + TT_PIECE < n ? p + TT_PIECE : n, r + 1) - p);
    const bool alone = before == 0 && row_at(keys, n, p + TT_PIECE) != r;
    float *const part = (before ? parts1 : parts0) + p / TT_PIECE * width;
    TT_UNROLL(1)
    for (i64 j = (i64)(threadIdx.x % G) * V; j < width; j += G * V) {
        float sum[V];
        sum_piece<T, V>(sum, x, keys, p, count, width, j);
        for (int k = 0; k < V; k++)
            if (alone)
                tt_store_any(out, r * width + j + k, half_out,
                             sum[k] + (add ? tt_load_any(out, r * width + j + k, half_out) : 0.0f));
            else
                part[j + k] = sum[k];
    }
}

/* A block per slot of parts0: finds the place p in it where a row of several pieces begins, if there is
 * one, and sums its pieces. */
TT_KERNEL(256, add_parts, const u64 *keys, void *out, int half_out, int add, const float *parts0,
          const float *parts1, i64 n, i64 width)
{
    int *const found = (int *)(void *)tt_shared;
    if (threadIdx.x == 0)
        *found = -1;
    tt_sync();
    if (threadIdx.x < TT_PIECE) {
        const i64 p = (i64)blockIdx.x * TT_PIECE + threadIdx.x, r = row_at(keys, n, p);
        if (r >= 0 && row_at(keys, n, p - 1) != r && row_at(keys, n, p + TT_PIECE) == r)
            *found = (int)threadIdx.x;
    }
    tt_sync();
    if (*found < 0)
        return;
    const i64 p = (i64)blockIdx.x * TT_PIECE + *found, r = row_at(keys, n, p);
    for (i64 j = threadIdx.x; j < width; j += 256) {
        float sum = parts0[(i64)blockIdx.x * width + j];
        for (i64 q = p + TT_PIECE; row_at(keys, n, q) == r; q += TT_PIECE)
            sum += parts1[q / TT_PIECE * width + j];
        tt_store_any(out, r * width + j, half_out,
                     sum + (add ? tt_load_any(out, r * width + j, half_out) : 0.0f));
    }
}

#define ADD(T, t, g, G)                                                                            \
    TT_KERNEL(256, add_pieces_##g##_##t, const T *x, const u64 *keys, void *out, int half_out,     \
              int add, float *parts0, float *parts1, i64 n, i64 width, int wide)                   \
    {                                                                                              \
        if (wide)                                                                                  \
            add_pieces<T, tt_unit<T>::n, G>(x, keys, out, half_out, add, parts0, parts1, n,        \
                                            width);                                                \
        else                                                                                       \
            add_pieces<T, 1, G>(x, keys, out, half_out, add, parts0, parts1, n, width);            \
    }
ADD(float, f32, warp, 32)
ADD(float, f32, block, 256)
ADD(bf16, bf16, warp, 32)
ADD(bf16, bf16, block, 256)

/* ---- top_k: the larger first, then the lower index; NaN after all others ---- */

/* Keys ascend in that order: as unsigned numbers, floats are ordered by their bits if those of
 * negative ones are inverted and the others' sign bit is set. -0 is 0, and all NaNs are one. */
TT_DEV u64 top_key(float x, i64 i)
{
    u32 bits = tt_float_bits(x == 0.0f ? 0.0f : -x);
    bits = bits >> 31 ? ~bits : bits | 0x80000000u;
    return (u64)(x != x ? 0xffffffffu : bits) << 32 | (u64)i;
}

TT_DEV u64 least(u64 a, u64 b)
{
    return a < b ? a : b;
}
template <int G> TT_DEV u64 group_least(u64 v, u64 *room)
{
    for (int o = 16; o > 0; o >>= 1)
        v = least(v, (u64)tt_shuffle_xor((i64)v, o));
    if constexpr (G > 32) {
        tt_sync();
        if (threadIdx.x % 32 == 0)
            room[threadIdx.x / 32] = v;
        tt_sync();
        v = room[threadIdx.x % 32 < G / 32 ? threadIdx.x % 32 : 0];
        for (int o = 16; o > 0; o >>= 1)
            v = least(v, (u64)tt_shuffle_xor((i64)v, o));
    }
    return v;
}

/* For small k: k times the first of those that come after the last. */
template <class T, int G>
TT_DEV void top_k(const T *x, T *values, int *indices, i64 rows, i64 n, i64 k)
{
    const i64 r = tt_group_row<G>(rows);
    u64 last = 0;
    if (r < 0)
        return;
    for (i64 i = 0; i < k; i++) {
        u64 best = ~0ull;
        TT_UNROLL(4)
        for (i64 j = (int)threadIdx.x % G; j < n; j += G) {
            const u64 key = top_key(tt_load(x + r * n + j), j);
            if (i == 0 || key > last)
                best = least(best, key);
        }
        last = group_least<G>(best, (u64 *)(void *)tt_shared);
        if (threadIdx.x % G == 0) {
            indices[r * k + i] = (int)(u32)last;
            values[r * k + i] = x[r * n + (i64)(u32)last];
        }
    }
}

/* For large k: all keys, which are then sorted. */
template <class T> TT_DEV void top_keys(const T *x, u64 *keys, i64 rows, i64 n)
{
    const i64 at = (i64)blockIdx.x * 256 + threadIdx.x;
    if (at < rows * n)
        keys[at] = top_key(tt_load(x + at), at % n);
}
template <class T>
TT_DEV void top_sorted(const T *x, const u64 *keys, T *values, int *indices, i64 rows, i64 n, i64 k)
{
    const i64 at = (i64)blockIdx.x * 256 + threadIdx.x;
    if (at >= rows * k)
        return;
    const i64 r = at / k;
    const u32 i = (u32)keys[r * n + at % k];
    indices[at] = (int)i;
    values[at] = x[r * n + (i64)i];
}

/* A thread per row; out holds zeros. */
template <class T>
TT_DEV void top_k_bwd(const int *index, const void *dy, int half, T *out, i64 rows, i64 n, i64 k)
{
    const i64 r = (i64)blockIdx.x * 256 + threadIdx.x;
    for (i64 i = 0; r < rows && i < k; i++) {
        const i64 at = index[r * k + i];
        if (at >= 0 && at < n)
            tt_store(out + r * n + at, tt_load_any(dy, r * k + i, half));
    }
}

#define TOP_K(T, t)                                                                                \
    TT_KERNEL(256, top_k_warp_##t, const T *x, T *values, int *indices, i64 rows, i64 n, i64 k)    \
    {                                                                                              \
        top_k<T, 32>(x, values, indices, rows, n, k);                                              \
    }                                                                                              \
    TT_KERNEL(256, top_k_block_##t, const T *x, T *values, int *indices, i64 rows, i64 n, i64 k)   \
    {                                                                                              \
        top_k<T, 256>(x, values, indices, rows, n, k);                                             \
    }                                                                                              \
    TT_KERNEL(256, top_keys_##t, const T *x, u64 *keys, i64 rows, i64 n)                           \
    {                                                                                              \
        top_keys(x, keys, rows, n);                                                                \
    }                                                                                              \
    TT_KERNEL(256, top_sorted_##t, const T *x, const u64 *keys, T *values, int *indices, i64 rows, \
              i64 n, i64 k)                                                                        \
    {                                                                                              \
        top_sorted(x, keys, values, indices, rows, n, k);                                          \
    }                                                                                              \
    TT_KERNEL(256, top_k_bwd_##t, const int *index, const void *dy, int half, T *out, i64 rows,    \
              i64 n, i64 k)                                                                        \
    {                                                                                              \
        top_k_bwd(index, dy, half, out, rows, n, k);                                               \
    }
TOP_K(float, f32)
TOP_K(bf16, bf16)
