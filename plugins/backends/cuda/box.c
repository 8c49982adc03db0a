/* SPDX-License-Identifier: Apache-2.0 */
#include "box.h"
#include "kernels/box.h"
#include <string.h>

/* Copies of boxes: as one piece where they are one, in units of up to 16 bytes where sizes, strides and
 * addresses allow, as tiles where rows become columns. */

#define MOST_BLOCKS 16384
#define LEAST_SIDE 8 /* of a matrix that is copied as tiles */

/* Leaves out dims of one element and joins those that go on from each other. */
static void join(const cuda_box *box, box_copy *c)
{
    int n = 0;
    c->n = 1;
    for (int d = 0; d < box->n_dims; d++) {
        const int64_t size = box->size[d], from = box->from_stride[d], to = box->to_stride[d];
        c->n *= size;
        if (size == 1)
            continue;
        const bool joins = n > 0 && c->to_stride[n - 1] == to * size &&
                           (!box->from || c->from_stride[n - 1] == from * size);
        n += !joins;
        c->size[n - 1] = joins ? c->size[n - 1] * size : size;
        c->from_stride[n - 1] = box->from ? from : 0;
        c->to_stride[n - 1] = to;
    }
    if (n == 0) {
        c->size[0] = c->from_stride[0] = c->to_stride[0] = 1;
        n = 1;
    }
    c->n_dims = n;
    c->from = box->from;
    c->to = box->to;
}

/* Is the last dim a row in both? */
static bool has_rows(const box_copy *c)
{
    return c->to_stride[c->n_dims - 1] == 1 && (!c->from || c->from_stride[c->n_dims - 1] == 1);
}

/* Counts in units of bytes instead of elements. */
static size_t box_widen(box_copy *c, size_t element)
{
    const int last = c->n_dims - 1;
    size_t unit = 16;
    if (!has_rows(c))
        return element;
    unit = cuda_alignment_of(c->from, cuda_alignment_of(c->to, unit));
    while (unit > element && (size_t)c->size[last] * element % unit)
        unit /= 2;
    for (int d = 0; d < last; d++)
        while (unit > element && ((size_t)c->from_stride[d] * element % unit ||
                                  (size_t)c->to_stride[d] * element % unit))
            unit /= 2;
    const int64_t by = (int64_t)(unit / element);
    c->size[last] /= by;
    c->n /= by;
    for (int d = 0; d < last; d++) {
        c->from_stride[d] /= by;
        c->to_stride[d] /= by;
    }
    return unit;
}

/* The dim that is a row of `from`, if it is not one of `to`: then rows and columns are exchanged. */
static int turned_dim(const box_copy *c)
{
    const int last = c->n_dims - 1;
    if (!c->from || c->to_stride[last] != 1 || c->size[last] < LEAST_SIDE)
        return -1;
    for (int d = 0; d < last; d++)
        if (c->from_stride[d] == 1 && c->size[d] >= LEAST_SIDE && c->from_stride[last] != 1)
            return d;
    return -1;
}

static tt_status turn(cuda_backend *b, tt_device_queue *q, const box_copy *c, int row, size_t size,
                      tt_error *err)
{
    static cuda_kernel kernels[4] = {
        CUDA_KERNEL("copy", "tt_turn_1"), CUDA_KERNEL("copy", "tt_turn_2"),
        CUDA_KERNEL("copy", "tt_turn_4"), CUDA_KERNEL("copy", "tt_turn_8")};
    const int last = c->n_dims - 1;
    box_turn t = {.from = c->from,
                  .to = c->to,
                  .rows = c->size[row],
                  .cols = c->size[last],
                  .from_stride = c->from_stride[last],
                  .to_stride = c->to_stride[row]};
    t.n_tiles = cuda_blocks(t.rows, BOX_TILE, INT64_MAX) * cuda_blocks(t.cols, BOX_TILE, INT64_MAX);
    for (int d = 0; d < last; d++) {
        if (d == row)
            continue;
        t.size[t.n_dims] = c->size[d];
        t.from_step[t.n_dims] = c->from_stride[d];
        t.to_step[t.n_dims++] = c->to_stride[d];
        t.n_tiles *= c->size[d];
    }
    const cuda_grid g = {t.n_tiles < (1 << 20) ? t.n_tiles : 1 << 20, 1, 1, BOX_THREADS,
                         BOX_TILE * (BOX_TILE + 1) * (int)size};
    return cuda_launch(b, q,
                       &kernels[size == 1   ? 0
                                : size == 2 ? 1
                                : size == 4 ? 2
                                            : 3],
                       g, (void *const[]){&t}, err);
}

static cuda_grid grid_of(int64_t n)
{
    return (cuda_grid){cuda_blocks(n, BOX_THREADS, MOST_BLOCKS), 1, 1, BOX_THREADS, 0};
}

tt_status cuda_box_copy(cuda_backend *b, tt_device_queue *q, const cuda_box *box, tt_error *err)
{
    static cuda_kernel kernels[5] = {
        CUDA_KERNEL("copy", "tt_copy_1"), CUDA_KERNEL("copy", "tt_copy_2"),
        CUDA_KERNEL("copy", "tt_copy_4"), CUDA_KERNEL("copy", "tt_copy_8"),
        CUDA_KERNEL("copy", "tt_copy_16")};
    static cuda_kernel convert = CUDA_KERNEL("copy", "tt_copy_convert");
    box_copy c = {.from_dtype = (int)box->from_dtype, .to_dtype = (int)box->to_dtype};
    join(box, &c);
    if (c.n == 0)
        return TT_OK;
    if (box->from && box->from_dtype != box->to_dtype)
        return cuda_launch(b, q, &convert, grid_of(c.n), (void *const[]){&c}, err);
    const size_t size = tt_dtype_size(box->to_dtype);
    if (c.n_dims == 1 && has_rows(&c) && !c.from)
        return cuda_zero(b, q, c.to, (size_t)c.n * size, err);
    if (c.n_dims == 1 && has_rows(&c))
        return cuda_copy(b, q, c.to, c.from, (size_t)c.n * size, err);
    const int row = turned_dim(&c);
    if (row >= 0)
        return turn(b, q, &c, row, size, err);
    const size_t unit = box_widen(&c, size);
    return cuda_launch(b, q,
                       &kernels[unit == 1   ? 0
                                : unit == 2 ? 1
                                : unit == 4 ? 2
                                : unit == 8 ? 3
                                            : 4],
                       grid_of(c.n), (void *const[]){&c}, err);
}
