/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/ops/internal.h"

/* linear_heads: x [T,H*i], w [H*p,R]: head h has p rows of w, of which rows [begin, begin + n) of each head
 * are multiplied. trans 0: i = n, x_h [T,n] times these rows [n,R] → [T,H*R]; trans 1: i = R, x_h [T,R] times
 * their transpose → [T,H*n]. w is read in place. */

static tt_status infer_linear_heads(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    const tt_attrs_heads *a = q->attrs;
    int64_t h = 0;
    TT_TRY(tt_want_inputs(q, 2, 2, err));
    TT_TRY(tt_want_rank(q, 1, "the weight", 2, err));
    TT_TRY(tt_want_float(q, 1, "the weight", err));
    const tt_dim *w = q->in[1]->dims;
    if (a->unit < 1 || a->begin < 0 || a->n < 1 || a->begin + a->n > a->unit)
        return tt_infer_fail(q, err, "rows %lld to %lld are not among a head's %lld",
                             (long long)a->begin, (long long)(a->begin + a->n), (long long)a->unit);
    const int64_t in = a->trans ? w[1].size : a->n, width = a->trans ? a->n : w[1].size;
    TT_TRY(tt_want_heads(q, 0, "x", in, &h, err));
    if (w[0].size != h * a->unit || w[0].unit != a->unit)
        return tt_infer_fail(q, err,
                             "the weight must have %lld rows for each of %lld heads, in "
                             "units of a head (TT_DIM_UNIT)",
                             (long long)a->unit, (long long)h);
    const tt_dim d[2] = {q->in[0]->dims[0], TT_DIM_UNIT(h * width, q->in[0]->dims[1].label, width)};
    out[0] = tt_type_make(tt_dtype_promote(q->in[0]->dtype, q->in[1]->dtype), d, 2);
    return TT_OK;
}

static void decompose_linear_heads(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                                   tt_value **outs)
{
    const tt_attrs_heads *a = q->attrs;
    const tt_dim *x = q->in[0]->dims, *w = q->in[1]->dims;
    const int64_t in_width = a->trans ? w[1].size : a->n, width = a->trans ? a->n : w[1].size;
    const tt_dim H = TT_DIM(x[1].size / in_width, x[1].label),
                 apart[3] = {x[0], H, TT_DIM(in_width, NULL)},
                 rows[3] = {TT_DIM(w[0].size / a->unit, w[0].label), TT_DIM(a->unit, NULL), w[1]},
                 joined[2] = {x[0], TT_DIM_UNIT(H.size * width, H.label, width)};
    const int swap[3] = {1, 0, 2};
    tt_value *heads = tt_transpose(b, tt_reshape(b, in[0], apart, 3), swap);
    tt_value *weights = tt_slice(b, tt_reshape(b, in[1], rows, 3), 1, a->begin, a->begin + a->n);
    tt_value *y = tt_matmul(b, heads, weights, 0, a->trans);
    outs[0] = tt_reshape(b, tt_transpose(b, y, swap), joined, 2);
}

static tt_cost cost_linear_heads(const tt_shape_query *q, const tt_type *out)
{
    const tt_attrs_heads *a = q->attrs;
    const double width = a->trans ? (double)q->in[1]->dims[1].size : (double)a->n;
    return tt_cost_make(q, out, 1, 2.0 * tt_numel(&out[0]) * width);
}

static void print_linear_heads(const void *attrs, char *text, size_t size)
{
    const tt_attrs_heads *a = attrs;
    snprintf(text, size, "rows=%lld..%lld/%lld%s", (long long)a->begin,
             (long long)(a->begin + a->n), (long long)a->unit, a->trans ? " trans" : "");
}

const tt_op_def tt_op_linear_heads = {
    .struct_size = sizeof(tt_op_def),
    .name = "linear_heads",
    .operands = "x f[T,H*i], w f[H*p,R] → [T,H*o]",
    .attributes = "tt_attrs_heads",
    .doc = "of each head, x times n of the head's p rows of w (i = n, o = R), or times their "
           "transpose (i = R, o = n)",
    .rule = "t h, h !r -> t h",
    .flags = TT_OP_HEAVY,
    .attrs_size = sizeof(tt_attrs_heads),
    .n_out = 1,
    .infer = infer_linear_heads,
    .decompose = decompose_linear_heads,
    .cost = cost_linear_heads,
    .print_attrs = print_linear_heads,
    .cls = TT_CLASS_MATMUL};
