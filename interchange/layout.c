/* SPDX-License-Identifier: Apache-2.0 */
#include "interchange/interchange_impl.h"
#include <string.h>

/* Orders the elements of a tensor as another program's files have them. */

#define SWAP_ROWS 16

tt_status tt_layout_of(const tt_setup *s, const tt_titan_name *row, const char *param,
                       tt_layout *out, tt_error *err)
{
    *out = (tt_layout){.transpose = row->transpose != 0};
    return row->name.pairs ? tt_head_dim_of(s, param, &out->head_dim, err) : TT_OK;
}

bool tt_layout_differs(const tt_layout *l)
{
    return l->head_dim || l->transpose;
}

void tt_layout_shape(const tt_layout *l, int n_dims, const int64_t *from, int64_t *to)
{
    for (int d = 0; d < n_dims; d++)
        to[d] = from[d];
    if (l->transpose && n_dims >= 2) {
        to[n_dims - 1] = from[n_dims - 2];
        to[n_dims - 2] = from[n_dims - 1];
    }
}

/* Row r of a head's halves is this row of its pairs. */
static int64_t row_of_pairs(int64_t r, int64_t head_dim)
{
    const int64_t at = r % head_dim, half = head_dim / 2;
    return r - at + (at < half ? 2 * at : 2 * (at - half) + 1);
}

/* from [n,rows,cols] → to [n,cols,rows] */
static void swap_last(uint8_t *to, const uint8_t *from, int64_t n, int64_t rows, int64_t cols,
                      size_t size)
{
    for (int64_t i = 0; i < n * rows; i += SWAP_ROWS) /* so that lines of `to` stay in cache */
        for (int64_t c = 0; c < cols; c++)
            for (int64_t r = i; r < TT_MIN(i + SWAP_ROWS, n * rows); r++)
                memcpy(to + (size_t)((r / rows * cols + c) * rows + r % rows) * size,
                       from + (size_t)(r * cols + c) * size, size);
}

/* load: from the order there to the order here, else back */
static void layout_copy(const tt_layout *l, bool load, uint8_t *to, const uint8_t *from, int n_dims,
                        const int64_t *dims, size_t size)
{
    int64_t outer = 1, inner = 1;
    for (int d = 1; d < n_dims; d++)
        inner *= dims[d];
    for (int d = 0; d < n_dims - 2; d++)
        outer *= dims[d];
    if (l->head_dim && n_dims >= 1) {
        const size_t row = (size_t)inner * size;
        for (int64_t r = 0; r < dims[0]; r++) {
            const int64_t pair = row_of_pairs(r, l->head_dim);
            memcpy(to + (size_t)(load ? r : pair) * row, from + (size_t)(load ? pair : r) * row,
                   row);
        }
    } else if (l->transpose && n_dims >= 2) {
        const int64_t a = dims[n_dims - 2], b = dims[n_dims - 1];
        swap_last(to, from, outer, load ? b : a, load ? a : b, size);
    } else {
        memcpy(to, from, (size_t)(n_dims ? dims[0] * inner : 1) * size);
    }
}

void tt_layout_store(const tt_layout *l, uint8_t *there, const uint8_t *here, int n_dims,
                     const int64_t *dims, size_t size)
{
    layout_copy(l, false, there, here, n_dims, dims, size);
}

void tt_layout_load(const tt_layout *l, uint8_t *here, const uint8_t *there, int n_dims,
                    const int64_t *dims, size_t size)
{
    layout_copy(l, true, here, there, n_dims, dims, size);
}
