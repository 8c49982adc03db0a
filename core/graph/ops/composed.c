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

/* idx == 0, 1, … depth - 1, without the indices of depth stored for every idx */
tt_value *tt_one_hot(tt_builder *b, tt_value *idx, tt_dim depth, tt_dtype dtype)
{
    if (tt_value_type(idx)->dtype != TT_I32)
        return tt_builder_fail(b, TT_EINVAL, "one_hot: the indices must be i32, not %s",
                               tt_dtype_name(tt_value_type(idx)->dtype));
    tt_value *places = tt_iota(b, &depth, 1, 0, TT_I32);
    return tt_cast(b, tt_equal(b, tt_unsqueeze_last(b, idx), places), dtype);
}

/* `value` in the dims of x, with n elements in dim */
static tt_value *filled(tt_builder *b, tt_value *x, int dim, int64_t n, double value)
{
    tt_type t = *tt_value_type(x);
    tt_dim *d = &t.dims[dim];
    *d = tt_dim_make(n, d->label, n % d->unit == 0 ? d->unit : 1, 1);
    return tt_broadcast_to(b, tt_const(b, value, t.dtype), t.dims, t.n_dims);
}

tt_value *tt_pad(tt_builder *b, tt_value *x, int dim, int64_t before, int64_t after, double value)
{
    const tt_type *t = tt_value_type(x);
    const int at = dim < 0 ? dim + t->n_dims : dim;
    tt_value *parts[3];
    int n = 0;
    if (at < 0 || at >= t->n_dims)
        return tt_builder_fail(b, TT_EINVAL, "pad: there is no dim %d among %d", dim, t->n_dims);
    if (before < 0 || after < 0)
        return tt_builder_fail(b, TT_EINVAL,
                               "pad: %lld elements before and %lld after dim %d: neither may be "
                               "negative; use tt_slice to cut elements off",
                               (long long)before, (long long)after, dim);
    if (before > 0)
        parts[n++] = filled(b, x, at, before, value);
    parts[n++] = x;
    if (after > 0)
        parts[n++] = filled(b, x, at, after, value);
    return tt_concat(b, parts, n, at);
}

/* Adds a dim of size n beside dim `at` by a broadcast, and merges the two dims. With the new dim in front
 * the whole sequence of elements is repeated n times: a b a b. With the new dim behind (`each`) every
 * element is repeated n times: a a b b. */
static tt_value *repeat(tt_builder *b, const char *what, tt_value *x, int dim, int64_t n, bool each)
{
    tt_type t = *tt_value_type(x), split = t, merged = t;
    const int at = dim < 0 ? dim + t.n_dims : dim;
    if (at < 0 || at >= t.n_dims)
        return tt_builder_fail(b, TT_EINVAL, "%s: there is no dim %d among %d", what, dim,
                               t.n_dims);
    tt_dim *d = &merged.dims[at], whole = *d;
    if (n < 1 || !tt_mul_i64(whole.size, n, &d->size))
        return tt_builder_fail(b, TT_EINVAL, "%s: cannot repeat %lld elements %lld times", what,
                               (long long)whole.size, (long long)n);
    if (n == 1)
        return x;
    if (t.n_dims == TT_MAX_DIMS)
        return tt_builder_fail(b, TT_EINVAL, "%s: takes values of at most %d dims, not %d", what,
                               TT_MAX_DIMS - 1, t.n_dims);
    *d = tt_dim_make(d->size, whole.label, each ? whole.unit * n : whole.unit, 1);
    for (int i = t.n_dims++; i > at + each; i--)
        split.dims[i] = split.dims[i - 1];
    split.dims[at + each] = TT_DIM(1, NULL);
    x = tt_reshape(b, x, split.dims, t.n_dims);
    split.dims[at + each].size = n;
    x = tt_broadcast_to(b, x, split.dims, t.n_dims);
    return tt_reshape(b, x, merged.dims, merged.n_dims);
}

tt_value *tt_repeat(tt_builder *b, tt_value *x, int dim, int64_t n)
{
    return repeat(b, "repeat", x, dim, n, false);
}

tt_value *tt_repeat_interleave(tt_builder *b, tt_value *x, int dim, int64_t n)
{
    return repeat(b, "repeat_interleave", x, dim, n, true);
}

/* The whole row as its largest elements; ascending, those of -x, for equal elements and NaNs have the
 * same order in both. */
void tt_sort(tt_builder *b, tt_value *x, int descending, tt_value **values, tt_value **indices)
{
    const bool lacks = tt_builder_lacks_result(b, values, "tt_sort: the pointer to the values");
    if (tt_builder_lacks_result(b, indices, "tt_sort: the pointer to the indices") || lacks)
        return;
    tt_value *from = descending ? x : tt_neg(b, x);
    tt_top_k(b, from, tt_last_dim(x).size, values, indices);
    if (!descending)
        *values = tt_neg(b, *values);
}
