/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/ops/internal.h"

/* Functions that derivatives and expansions share. They build ops that other files of this folder
 * define. */

tt_value *tt_unsqueeze_last(tt_builder *b, tt_value *v)
{
    const tt_type *t = tt_value_type(v);
    tt_dim dims[TT_MAX_DIMS];
    if (t->n_dims == TT_MAX_DIMS)
        return tt_builder_fail(b, TT_EINVAL, "a value has at most %d dims", TT_MAX_DIMS);
    for (int i = 0; i < t->n_dims; i++)
        dims[i] = t->dims[i];
    dims[t->n_dims] = TT_DIM(1, NULL);
    return tt_reshape(b, v, dims, t->n_dims + 1);
}

tt_value *tt_cast_up(tt_builder *b, tt_value *x)
{
    return tt_cast(b, x, tt_dtype_accumulate(tt_value_type(x)->dtype));
}

tt_value *tt_zero_like_dtype(tt_builder *b, tt_value *x)
{
    return tt_const(b, 0.0, tt_value_type(x)->dtype);
}

tt_value *tt_vjp_fit(tt_builder *b, tt_value *d, tt_value *like)
{
    const tt_type *to = tt_value_type(like), *from = tt_value_type(d);
    int extra = from->n_dims - to->n_dims;
    bool reduce = extra > 0;
    for (int i = 0; i < to->n_dims && extra >= 0; i++)
        reduce |= to->dims[i].size == 1 && from->dims[extra + i].size != 1;
    if (!reduce)
        return from->dtype == to->dtype ? d : tt_cast(b, d, to->dtype);
    d = tt_cast_up(b, d);
    for (; extra > 0; extra--)
        d = tt_sum(b, d, 0, 0);
    for (int i = 0; i < to->n_dims; i++)
        if (to->dims[i].size == 1 && tt_value_type(d)->n_dims > i &&
            tt_value_type(d)->dims[i].size != 1)
            d = tt_sum(b, d, i, 1);
    return d;
}
