/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/ops/internal.h"

/* Builder functions that build several ops and have no op of their own. */

tt_value *tt_logsumexp(tt_builder *b, tt_value *x)
{
    tt_value *m = tt_emit1(b, "max_last", tt_stop_gradient(b, x), NULL);
    return tt_add(b, tt_log_e(b, tt_emit2(b, "sum_exp", x, m, NULL)), m);
}

tt_value *tt_log_softmax(tt_builder *b, tt_value *x)
{
    return tt_sub(b, tt_cast_up(b, x), tt_unsqueeze_last(b, tt_logsumexp(b, x)));
}

tt_value *tt_clamp(tt_builder *b, tt_value *x, double low, double high)
{
    const tt_dtype dtype = tt_value_type(x)->dtype;
    if (!(low <= high))
        return tt_builder_fail(
            b, TT_EINVAL, "clamp: %g to %g is not a range; low must not be above high", low, high);
    return tt_minimum(b, tt_maximum(b, x, tt_const(b, low, dtype)), tt_const(b, high, dtype));
}

tt_value *tt_floor(tt_builder *b, tt_value *x)
{
    tt_value *near = tt_round(b, x);
    return tt_sub(b, near, tt_cast(b, tt_less(b, x, near), tt_value_type(x)->dtype));
}

tt_value *tt_sign(tt_builder *b, tt_value *x)
{
    const tt_dtype dtype = tt_value_type(x)->dtype;
    tt_value *zero = tt_const(b, 0.0, dtype);
    return tt_sub(b, tt_cast(b, tt_less(b, zero, x), dtype),
                  tt_cast(b, tt_less(b, x, zero), dtype));
}
