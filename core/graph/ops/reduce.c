/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/ops/internal.h"

/* reduce_sum, reduce_max over one dim; line_sum over the sequences of the token dim; sum_squares over
 * everything. Sums run in f32 at least, in a tree fixed by the shape. */

static tt_status infer_reduce(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    const tt_attrs_reduce *a = q->attrs;
    int dim = 0;
    TT_TRY(tt_want_inputs(q, 1, 1, err));
    TT_TRY(tt_want_dim(q, 0, a->dim, &dim, err));
    TT_TRY(tt_want_float(q, 0, "the operand", err));
    tt_type t = *q->in[0];
    if (a->keep)
        t.dims[dim] = TT_DIM(1, NULL);
    else {
        for (int i = dim; i + 1 < t.n_dims; i++)
            t.dims[i] = t.dims[i + 1];
        t.n_dims--;
    }
    out[0] = tt_type_make(t.dtype, t.dims, t.n_dims);
    return TT_OK;
}

static void rule_reduce(const tt_shape_query *q, char *rule, size_t size)
{
    const tt_attrs_reduce *a = q->attrs;
    tt_rule_text t = {.s = rule, .size = size};
    int n = q->in[0]->n_dims, dim = a->dim < 0 ? a->dim + n : a->dim;
    tt_rule_dims(&t, n, dim, "r");
    tt_rule_add(&t, " ->");
    for (int i = 0; i < n; i++) {
        if (i != dim)
            tt_rule_add(&t, " %c", 'a' + i);
        else if (a->keep)
            tt_rule_add(&t, " !one");
    }
}

/* Gives y, which lacks the dim, that dim with size 1, so that y broadcasts against x. */
static tt_value *with_dim(tt_builder *b, const tt_vjp *c, tt_value *y)
{
    const tt_attrs_reduce *a = c->attrs;
    tt_type t = *tt_value_type(c->in[0]);
    if (a->keep)
        return y;
    t.dims[a->dim < 0 ? a->dim + t.n_dims : a->dim] = TT_DIM(1, NULL);
    return tt_reshape(b, y, t.dims, t.n_dims);
}

static void vjp_sum(tt_builder *b, tt_vjp *c)
{
    const tt_type *x = tt_value_type(c->in[0]);
    tt_value *d = tt_broadcast_to(b, with_dim(b, c, c->dout[0]), x->dims, x->n_dims);
    c->din[0] = tt_vjp_fit(b, d, c->in[0]);
}

static void vjp_max(tt_builder *b, tt_vjp *c) /* equal maxima share the cotangent evenly */
{
    const tt_attrs_reduce *a = c->attrs;
    tt_value *x = c->in[0], *dy = with_dim(b, c, c->dout[0]);
    tt_value *hit = tt_equal(b, x, with_dim(b, c, c->out[0]));
    tt_value *n = tt_sum(b, tt_cast(b, hit, TT_F32), a->dim, 1);
    tt_value *share = tt_div(b, dy, n);
    c->din[0] = tt_vjp_fit(b, tt_select(b, hit, share, tt_zero_like_dtype(b, share)), x);
}

static tt_status infer_line_sum(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 1, 1, err));
    TT_TRY(tt_want_rank(q, 0, "x", 1, err));
    TT_TRY(tt_want_float(q, 0, "x", err));
    const tt_dim *d = &q->in[0]->dims[0];
    int64_t n = d->lines > 1 ? d->lines : 1;
    if (d->size % n != 0)
        return tt_infer_fail(q, err, "%lld tokens are not %lld equal sequences", (long long)d->size,
                             (long long)n);
    tt_dim o = TT_DIM(n, NULL);
    out[0] = tt_type_make(q->in[0]->dtype, &o, 1);
    return TT_OK;
}

static void vjp_line_sum(tt_builder *b, tt_vjp *c)
{
    const tt_dim *d = &tt_value_type(c->in[0])->dims[0];
    int64_t n = d->lines > 1 ? d->lines : 1;
    tt_dim dims[2] = {TT_DIM(n, NULL), TT_DIM(d->size / n, NULL)};
    tt_value *spread = tt_broadcast_to(b, tt_unsqueeze_last(b, c->dout[0]), dims, 2);
    c->din[0] = tt_reshape(b, spread, d, 1);
}

static void decompose_line_sum(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                               tt_value **outs)
{
    const tt_dim *d = &q->in[0]->dims[0];
    int64_t n = d->lines > 1 ? d->lines : 1;
    tt_dim dims[2] = {TT_DIM(n, NULL), TT_DIM(d->size / n, NULL)};
    outs[0] = tt_sum(b, tt_reshape(b, in[0], dims, 2), 1, 0);
}

static tt_status infer_sum_squares(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 1, 1, err));
    TT_TRY(tt_want_float(q, 0, "the operand", err));
    out[0] = tt_type_make(tt_dtype_accumulate(q->in[0]->dtype), NULL, 0);
    return TT_OK;
}

static void vjp_sum_squares(tt_builder *b, tt_vjp *c)
{
    tt_value *d = tt_mul(b, tt_scale(b, c->in[0], 2.0), c->dout[0]);
    c->din[0] = tt_vjp_fit(b, d, c->in[0]);
}

static void decompose_sum_squares(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                                  tt_value **outs)
{
    tt_value *x = tt_cast_up(b, in[0]);
    (void)q;
    outs[0] = tt_sum_all(b, tt_emit2(b, "mul", x, x, NULL));
}

static tt_cost cost_reduce(const tt_shape_query *q, const tt_type *out)
{
    return tt_cost_make(q, out, 1, tt_numel(q->in[0]));
}

static tt_cost cost_squares(const tt_shape_query *q, const tt_type *out)
{
    return tt_cost_make(q, out, 1, 2.0 * tt_numel(q->in[0]));
}

static void print_reduce(const void *attrs, char *text, size_t size)
{
    const tt_attrs_reduce *a = attrs;
    snprintf(text, size, "dim=%d%s", (int)a->dim, a->keep ? " keep" : "");
}

const tt_op_def tt_op_reduce_sum = {.struct_size = sizeof(tt_op_def),
                                    .name = "reduce_sum",
                                    .operands = "x → as x, without that dim or with size 1 there",
                                    .attributes = "tt_attrs_reduce",
                                    .doc = "sum over one dim; 0 where the dim is empty",
                                    .linear_inputs = 1,
                                    .attrs_size = sizeof(tt_attrs_reduce),
                                    .n_out = 1,
                                    .infer = infer_reduce,
                                    .rule_for = rule_reduce,
                                    .vjp = vjp_sum,
                                    .cost = cost_reduce,
                                    .print_attrs = print_reduce};
const tt_op_def tt_op_reduce_max = {.struct_size = sizeof(tt_op_def),
                                    .name = "reduce_max",
                                    .operands = "x → as x, without that dim or with size 1 there",
                                    .attributes = "tt_attrs_reduce",
                                    .doc = "maximum over one dim; -inf where the dim is empty; "
                                           "equal maxima share the cotangent evenly",
                                    .reduce_max = 1,
                                    .attrs_size = sizeof(tt_attrs_reduce),
                                    .flags = TT_OP_MAY_BE_INFINITE,
                                    .n_out = 1,
                                    .infer = infer_reduce,
                                    .rule_for = rule_reduce,
                                    .vjp = vjp_max,
                                    .cost = cost_reduce,
                                    .print_attrs = print_reduce};
const tt_op_def tt_op_line_sum = {.struct_size = sizeof(tt_op_def),
                                  .name = "line_sum",
                                  .operands = "x f[T] → [sequences]",
                                  .doc = "sum of x over the tokens of each sequence",
                                  .rule = "t=(b q) -> b",
                                  .linear_inputs = 1,
                                  .n_out = 1,
                                  .infer = infer_line_sum,
                                  .vjp = vjp_line_sum,
                                  .decompose = decompose_line_sum,
                                  .cost = cost_reduce};
const tt_op_def tt_op_sum_squares = {.struct_size = sizeof(tt_op_def),
                                     .name = "sum_squares",
                                     .operands = "x f[..] → f32 scalar",
                                     .doc = "sum of the squares of all elements, in f32",
                                     .rule = "* ->",
                                     .n_out = 1,
                                     .infer = infer_sum_squares,
                                     .vjp = vjp_sum_squares,
                                     .decompose = decompose_sum_squares,
                                     .cost = cost_squares};

tt_value *tt_sum(tt_builder *b, tt_value *x, int dim, int keep)
{
    tt_attrs_reduce a = {.dim = tt_dim_index(dim, tt_value_type(x)->n_dims), .keep = !!keep};
    return tt_emit1(b, "reduce_sum", x, &a);
}

tt_value *tt_mean(tt_builder *b, tt_value *x, int dim, int keep)
{
    const tt_type *t = tt_value_type(x);
    int d = tt_dim_index(dim, t->n_dims);
    int64_t n = d >= 0 && d < t->n_dims ? t->dims[d].size : 1;
    return tt_scale(b, tt_sum(b, x, dim, keep), 1.0 / (double)TT_MAXV(n, 1));
}

tt_value *tt_max(tt_builder *b, tt_value *x, int dim, int keep)
{
    tt_attrs_reduce a = {.dim = tt_dim_index(dim, tt_value_type(x)->n_dims), .keep = !!keep};
    return tt_emit1(b, "reduce_max", x, &a);
}

tt_value *tt_sum_all(tt_builder *b, tt_value *x)
{
    if (tt_builder_lacks(b, x, "tt_sum_all: the value"))
        return tt_placeholder(b);
    int n = tt_value_type(x)->n_dims;
    for (int i = n - 1; i >= 0; i--)
        x = tt_sum(b, x, i, 0);
    return x;
}

tt_value *tt_sum_squares(tt_builder *b, tt_value *x)
{
    return tt_emit1(b, "sum_squares", x, NULL);
}

tt_value *tt_line_sum(tt_builder *b, tt_value *x)
{
    return tt_emit1(b, "line_sum", x, NULL);
}
