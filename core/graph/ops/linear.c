/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/ops/internal.h"

/* linear: x [T,i] · w [o,i]ᵀ → [T,o], and its two derivatives. The sum over i runs in f32 at least.
 *   By the rule "t i, o i -> t o" the result is a partial sum if i is cut. */

static tt_status infer_linear(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 2, 2, err));
    TT_TRY(tt_want_rank(q, 0, "x", 2, err));
    TT_TRY(tt_want_rank(q, 1, "the weight", 2, err));
    TT_TRY(tt_want_float(q, 0, "x", err));
    TT_TRY(tt_want_float(q, 1, "the weight", err));
    if (!tt_dim_same_size(&q->in[0]->dims[1], &q->in[1]->dims[1]))
        return tt_infer_fail(q, err, "x [T,in] and the weight [out,in] differ in their last dim");
    tt_dim d[2] = {q->in[0]->dims[0], q->in[1]->dims[0]};
    out[0] = tt_type_make(tt_dtype_promote(q->in[0]->dtype, q->in[1]->dtype), d, 2);
    return TT_OK;
}

static tt_status infer_dx(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 2, 2, err));
    TT_TRY(tt_want_rank(q, 0, "dy", 2, err));
    TT_TRY(tt_want_rank(q, 1, "the weight", 2, err));
    TT_TRY(tt_want_equal(q, 0, 1, 1, 0, err));
    tt_dim d[2] = {q->in[0]->dims[0], q->in[1]->dims[1]};
    out[0] = tt_type_make(tt_dtype_promote(q->in[0]->dtype, q->in[1]->dtype), d, 2);
    return TT_OK;
}

static tt_status infer_dw(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 2, 2, err));
    TT_TRY(tt_want_rank(q, 0, "dy", 2, err));
    TT_TRY(tt_want_rank(q, 1, "x", 2, err));
    TT_TRY(tt_want_equal(q, 0, 0, 1, 0, err));
    tt_dim d[2] = {q->in[0]->dims[1], q->in[1]->dims[1]};
    tt_dtype both = tt_dtype_promote(q->in[0]->dtype, q->in[1]->dtype);
    out[0] = tt_type_make(tt_dtype_accumulate(both), d, 2);
    return TT_OK;
}

static void vjp_linear(tt_builder *b, tt_vjp *c)
{
    if (c->want[0])
        c->din[0] = tt_vjp_fit(b, tt_emit2(b, "linear_dx", c->dout[0], c->in[1], NULL), c->in[0]);
    if (c->want[1])
        c->din[1] = tt_emit2(b, "linear_dw", c->dout[0], c->in[0], NULL);
}

static void decompose_linear(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                             tt_value **outs)
{
    (void)q;
    outs[0] = tt_matmul(b, in[0], in[1], 0, 1);
}

static void decompose_dx(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                         tt_value **outs)
{
    (void)q;
    outs[0] = tt_matmul(b, in[0], in[1], 0, 0);
}

static void decompose_dw(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                         tt_value **outs)
{
    (void)q;
    outs[0] = tt_matmul(b, tt_cast_up(b, in[0]), tt_cast_up(b, in[1]), 1, 0);
}

static tt_cost cost_linear(const tt_shape_query *q, const tt_type *out)
{
    return tt_cost_make(q, out, 1, 2.0 * tt_numel(&out[0]) * (double)q->in[0]->dims[1].size);
}

static tt_cost cost_dw(const tt_shape_query *q, const tt_type *out)
{
    return tt_cost_make(q, out, 1, 2.0 * tt_numel(&out[0]) * (double)q->in[0]->dims[0].size);
}

const tt_op_def tt_op_linear = {.struct_size = sizeof(tt_op_def),
                                .name = "linear",
                                .operands = "x f[T,i], w f[o,i] → [T,o]",
                                .doc = "x times the transpose of w",
                                .rule = "t i, o i -> t o",
                                .flags = TT_OP_HEAVY | TT_OP_PROJECTION,
                                .n_out = 1,
                                .infer = infer_linear,
                                .vjp = vjp_linear,
                                .decompose = decompose_linear,
                                .cost = cost_linear,
                                .cls = TT_CLASS_MATMUL,
                                .epilogue_form = "linear_fused"};
const tt_op_def tt_op_linear_dx = {.struct_size = sizeof(tt_op_def),
                                   .name = "linear_dx",
                                   .operands = "dy f[T,o], w f[o,i] → [T,i]",
                                   .doc = "derivative of linear to x: dy times w",
                                   .rule = "t o, o i -> t i",
                                   .linear_inputs = 1,
                                   .n_out = 1,
                                   .infer = infer_dx,
                                   .decompose = decompose_dx,
                                   .cost = cost_linear,
                                   .cls = TT_CLASS_MATMUL,
                                   .epilogue_form = "linear_dx_fused"};
const tt_op_def tt_op_linear_dw = {.struct_size = sizeof(tt_op_def),
                                   .name = "linear_dw",
                                   .operands = "dy f[T,o], x f[T,i] → [o,i]",
                                   .doc = "derivative of linear to w: the transpose of dy times x",
                                   .rule = "t o, t i -> o i",
                                   .linear_inputs = 1,
                                   .n_out = 1,
                                   .infer = infer_dw,
                                   .decompose = decompose_dw,
                                   .cost = cost_dw,
                                   .cls = TT_CLASS_MATMUL};

tt_value *tt_linear_w(tt_builder *b, tt_value *x, tt_value *w)
{
    tt_value *y = tt_builder_convert_nested(b, x, w);
    return y ? y : tt_emit2(b, "linear", x, w, NULL);
}

tt_value *tt_linear(tt_builder *b, tt_value *x, const char *name, tt_dim out,
                    const tt_linear_opts *opts)
{
    char param[256];
    tt_linear_opts o = {0};
    if (opts != NULL)
        o = *opts;
    if (tt_builder_lacks(b, name, "tt_linear: the name"))
        return tt_placeholder(b);
    if (tt_value_type(x)->n_dims != 2)
        return tt_builder_fail(b, TT_EINVAL, "linear %s: x must be [tokens, in], got %d dims", name,
                               tt_value_type(x)->n_dims);
    if (snprintf(param, sizeof param, "%s.weight", name) >= (int)sizeof param)
        return tt_builder_fail(b, TT_EINVAL, "linear: the name \"%.60s…\" is too long", name);
    tt_dim dims[2] = {out, tt_last_dim(x)};
    tt_param_opts weight = {.init = o.init, .tags = o.tags};
    tt_value *w = tt_param(b, param, dims, 2, &weight);
    tt_value *y = tt_builder_convert_linear(b, param, x, w);
    if (y == NULL)
        y = tt_emit2(b, "linear", x, w, NULL);
    if (!o.bias)
        return y;
    snprintf(param, sizeof param, "%.240s.bias", name);
    tt_param_opts bias = {.init = {.kind = TT_INIT_CONSTANT}, .tags = "bias"};
    return tt_add(b, y, tt_param(b, param, &out, 1, &bias));
}
