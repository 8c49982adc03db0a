/* SPDX-License-Identifier: Apache-2.0 */
#include "box.h"
#include "point_memory.h"

/* Kernels that only move elements. I: the type of indices, 32 bits where they suffice, because divisions by it are. */

template <class T> TT_DEV T copy_zero()
{
    return T{};
}

template <class I> TT_DEV void copy_place(const box_copy &c, i64 i, i64 *from, i64 *to)
{
    I rest = (I)i;
    *from = *to = 0;
    POINT_ROLLED
    for (int d = c.n_dims - 1; d > 0; d--) {
        const I at = rest % (I)c.size[d];
        rest /= (I)c.size[d];
        *from += (i64)at * c.from_stride[d];
        *to += (i64)at * c.to_stride[d];
    }
    *from += (i64)rest * c.from_stride[0];
    *to += (i64)rest * c.to_stride[0];
}

template <class T, class I> TT_DEV void copy_all(const box_copy &c)
{
    i64 from, to;
    for (i64 i = point_first(); i < c.n; i += point_all()) {
        copy_place<I>(c, i, &from, &to);
        ((T *)c.to)[to] = c.from ? ((const T *)c.from)[from] : copy_zero<T>();
    }
}

template <class T> TT_DEV void copy_box(const box_copy &c)
{
    if (c.n < 0x7fffffff)
        copy_all<T, u32>(c);
    else
        copy_all<T, u64>(c);
}

TT_KERNEL(BOX_THREADS, tt_copy_1, const box_copy c)
{
    copy_box<u8>(c);
}
TT_KERNEL(BOX_THREADS, tt_copy_2, const box_copy c)
{
    copy_box<u16>(c);
}
TT_KERNEL(BOX_THREADS, tt_copy_4, const box_copy c)
{
    copy_box<u32>(c);
}
TT_KERNEL(BOX_THREADS, tt_copy_8, const box_copy c)
{
    copy_box<u64>(c);
}
TT_KERNEL(BOX_THREADS, tt_copy_16, const box_copy c)
{
    copy_box<point_words4>(c);
}

/* The same from one dtype to another. */
TT_KERNEL(BOX_THREADS, tt_copy_convert, const box_copy c)
{
    i64 from, to;
    for (i64 i = point_first(); i < c.n; i += point_all()) {
        copy_place<u64>(c, i, &from, &to);
        const double v = point_is_f64(c.from_dtype)
                             ? point_read_f64(c.from_dtype, c.from, from)
                             : (double)point_read_f32(c.from_dtype, c.from, from);
        if (point_is_f64(c.to_dtype))
            point_write(c.to_dtype, c.to, to, point_round_f64(c.to_dtype, v));
        else
            point_write(c.to_dtype, c.to, to, point_round_f32(c.to_dtype, v));
    }
}

/* Tiles of 32 × 32 elements go through shared memory, so that reads and writes are of rows; shared: T[32][33]. */
template <class T> TT_DEV void copy_turn(const box_turn &t)
{
    T *tile = (T *)tt_shared;
    const int x = threadIdx.x % BOX_TILE, y = threadIdx.x / BOX_TILE;
    const i64 across = (t.cols + BOX_TILE - 1) / BOX_TILE,
              down = (t.rows + BOX_TILE - 1) / BOX_TILE;
    for (i64 n = blockIdx.x; n < t.n_tiles; n += gridDim.x) {
        const i64 col = n % across * BOX_TILE, row = n / across % down * BOX_TILE;
        i64 matrix = n / (across * down), from = 0, to = 0;
        for (int d = t.n_dims - 1; d >= 0; d--) {
            from += matrix % t.size[d] * t.from_step[d];
            to += matrix % t.size[d] * t.to_step[d];
            matrix /= t.size[d];
        }
        for (int k = y; k < BOX_TILE; k += BOX_THREADS / BOX_TILE)
            if (row + x < t.rows && col + k < t.cols)
                tile[k * (BOX_TILE + 1) + x] =
                    ((const T *)t.from)[from + row + x + (col + k) * t.from_stride];
        tt_sync();
        for (int k = y; k < BOX_TILE; k += BOX_THREADS / BOX_TILE)
            if (row + k < t.rows && col + x < t.cols)
                ((T *)t.to)[to + (row + k) * t.to_stride + col + x] = tile[x * (BOX_TILE + 1) + k];
        tt_sync();
    }
}

TT_KERNEL(BOX_THREADS, tt_turn_1, const box_turn t)
{
    copy_turn<u8>(t);
}
TT_KERNEL(BOX_THREADS, tt_turn_2, const box_turn t)
{
    copy_turn<u16>(t);
}
TT_KERNEL(BOX_THREADS, tt_turn_4, const box_turn t)
{
    copy_turn<u32>(t);
}
TT_KERNEL(BOX_THREADS, tt_turn_8, const box_turn t)
{
    copy_turn<u64>(t);
}
