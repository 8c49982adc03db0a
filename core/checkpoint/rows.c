/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/checkpoint.h"
#include <stdlib.h>

/* Pieces without memory of their own: they are loaded in runs of rows. */

#define RUN_BYTES ((int64_t)16 << 20)

tt_status tt_ckpt_by_rows(const tt_ckpt_piece *p, tt_ckpt_rows_fn load, void *user, tt_error *err)
{
    int64_t row = (int64_t)tt_dtype_size(p->dtype);
    for (int d = 1; d < p->n_dims; d++)
        row *= p->box.end[d] - p->box.begin[d];
    const int64_t all = p->box.end[0] - p->box.begin[0],
                  most = TT_MIN(all, TT_MAXV(RUN_BYTES / TT_MAXV(row, (int64_t)1), (int64_t)1));
    if (all <= 0 || !row)
        return TT_OK;
    tt_ckpt_piece part = *p;
    tt_status s = TT_OK;
    part.take = NULL;
    part.data = malloc((size_t)(most * row));
    if (!part.data)
        return TT_FAIL(err, TT_ENOMEM, "no memory for %lld bytes of '%s'", (long long)(most * row),
                       p->name);
    for (int64_t at = p->box.begin[0]; s == TT_OK && at < p->box.end[0]; at += most) {
        part.box.begin[0] = at;
        part.box.end[0] = TT_MIN(p->box.end[0], at + most);
        s = load(user, &part, err);
        if (s == TT_OK)
            s = p->take(p->taker, &part, err);
    }
    free(part.data);
    return s;
}

size_t tt_ckpt_at_once(const tt_ckpt_piece *p, size_t n, size_t most)
{
    size_t bytes = 0, i = 0;
    for (; i < n && (!i || bytes < most); i++)
        bytes += p[i].take
                     ? 0
                     : (size_t)tt_box_numel(&p[i].box, p[i].n_dims) * tt_dtype_size(p[i].dtype);
    return i;
}
