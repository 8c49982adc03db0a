/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/ops/internal.h"

/* argmax: the index of the largest or smallest element of one dim. A NaN is beyond all others in both
 * directions, as in PyTorch. If the dim is cut, the op expands (R5) into maxima, which redistributes of
 * the builder reduce: first of the elements, then of the places that hold the maximum, so that a rank
 * sends two numbers per row and not its part of the row. The places are f32 there and thus exact up to
 * 2^24; a longer dim is made whole. */

#define LONGEST_CUT (INT64_C(1) << 24)

static const tt_dim *dim_of(const tt_shape_query *q)
{
    const tt_attrs_arg *a = q->attrs;
    return &q->in[0]->dims[a->dim < 0 ? a->dim + q->in[0]->n_dims : a->dim];
}

static tt_status infer_arg(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    const tt_attrs_arg *a = q->attrs;
    int dim = 0;
    TT_TRY(tt_want_inputs(q, 1, 1, err));
    TT_TRY(tt_want_dim(q, 0, a->dim, &dim, err));
    TT_TRY(tt_want_float(q, 0, "the operand", err));
    tt_type t = *q->in[0];
    if (t.dims[dim].size < 1 || t.dims[dim].size > INT32_MAX)
        return tt_infer_fail(q, err, "dim %d must have from 1 to %d elements, not %lld", dim,
                             INT32_MAX, (long long)t.dims[dim].size);
    if (a->keep)
        t.dims[dim] = TT_DIM(1, NULL);
    else {
        for (int i = dim; i + 1 < t.n_dims; i++)
            t.dims[i] = t.dims[i + 1];
        t.n_dims--;
    }
    out[0] = tt_type_make(TT_I32, t.dims, t.n_dims);
    return TT_OK;
}

static void rule_arg(const tt_shape_query *q, char *rule, size_t size)
{
    const tt_attrs_arg *a = q->attrs;
    tt_rule_text t = {.s = rule, .size = size};
    int n = q->in[0]->n_dims, dim = a->dim < 0 ? a->dim + n : a->dim;
    tt_rule_dims(&t, n, dim, dim_of(q)->size > LONGEST_CUT ? "!w" : "!r");
    tt_rule_add(&t, " ->");
    for (int i = 0; i < n; i++) {
        if (i != dim)
            tt_rule_add(&t, " %c", 'a' + i);
        else if (a->keep)
            tt_rule_add(&t, " !one");
    }
}

static void by_maxima(tt_builder *b, const tt_shape_query *q, tt_value *const *in, tt_value **outs)
{
    const tt_attrs_arg *a = q->attrs;
    const tt_dim *d = dim_of(q);
    const int n = q->in[0]->n_dims, dim = a->dim < 0 ? a->dim + n : a->dim;
    if (d->size > LONGEST_CUT) { /* no cut dim: rule_arg makes it whole */
        outs[0] = tt_builder_fail(b, TT_EUNSUPPORTED,
                                  "argmax: the backend has no kernel for it, and without one a dim "
                                  "has at most %lld elements, not %lld",
                                  (long long)LONGEST_CUT, (long long)d->size);
        return;
    }
    tt_dim row[TT_MAX_DIMS]; /* size 1 but for dim: it broadcasts and is not stored in full */
    for (int i = 0; i < n; i++)
        row[i] = i == dim ? *d : TT_DIM(1, NULL);
    tt_value *x = tt_cast_up(b, tt_stop_gradient(b, in[0])), *number = tt_equal(b, x, x);
    tt_value *zero = tt_zero_like_dtype(b, x), *none = tt_const(b, -(double)d->size, TT_F32);
    tt_value *from = tt_select(b, number, a->smallest ? tt_neg(b, x) : x, zero);
    tt_value *most = tt_max(b, from, dim, 1);
    tt_value *nan = tt_select(b, number, tt_const(b, 0.0, TT_F32), tt_const(b, 1.0, TT_F32));
    tt_value *any = tt_less(b, tt_const(b, 0.0, TT_F32), tt_max(b, nan, dim, 1));
    /* the lowest place is the largest of the negative ones */
    tt_value *place = tt_neg(b, tt_iota(b, row, n, dim, TT_F32));
    tt_value *holds = tt_select(b, tt_equal(b, from, most), place, none);
    tt_value *odd = tt_select(b, number, none, place);
    tt_value *first = tt_max(b, tt_select(b, any, odd, holds), dim, a->keep);
    outs[0] = tt_cast(b, tt_neg(b, first), TT_I32);
}

static tt_cost cost_arg(const tt_shape_query *q, const tt_type *out)
{
    return tt_cost_make(q, out, 1, tt_numel(q->in[0]));
}

static void print_arg(const void *attrs, char *text, size_t size)
{
    const tt_attrs_arg *a = attrs;
    snprintf(text, size, "dim=%d%s%s", (int)a->dim, a->keep ? " keep" : "",
             a->smallest ? " smallest" : "");
}

const tt_op_def tt_op_argmax = {.struct_size = sizeof(tt_op_def),
                                .name = "argmax",
                                .operands = "x f[..] → i32, one dim removed, or kept with size 1",
                                .attributes = "tt_attrs_arg",
                                .doc = "index of the largest or smallest element of one dim",
                                .flags = TT_OP_NO_GRADIENT,
                                .attrs_size = sizeof(tt_attrs_arg),
                                .n_out = 1,
                                .infer = infer_arg,
                                .rule_for = rule_arg,
                                .decompose = by_maxima,
                                .expand_letters = "r",
                                .expand = by_maxima,
                                .cost = cost_arg,
                                .print_attrs = print_arg};

static tt_value *emit_arg(tt_builder *b, const char *what, tt_value *x, int dim, int keep,
                          int smallest)
{
    const int n = tt_value_type(x)->n_dims;
    tt_attrs_arg a = {.dim = dim < 0 ? dim + n : dim, .keep = !!keep, .smallest = smallest};
    if (a.dim < 0 || a.dim >= n)
        return tt_builder_fail(b, TT_EINVAL, "%s: there is no dim %d among %d", what, dim, n);
    return tt_emit1(b, "argmax", x, &a);
}

tt_value *tt_argmax(tt_builder *b, tt_value *x, int dim, int keep)
{
    return emit_arg(b, "argmax", x, dim, keep, 0);
}

tt_value *tt_argmin(tt_builder *b, tt_value *x, int dim, int keep)
{
    return emit_arg(b, "argmin", x, dim, keep, 1);
}
