/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/ops/internal.h"
#include <math.h>
#include <string.h>

/* The derivatives of pointwise ops that have a kernel of their own. They have no derivative
 * themselves. */

static tt_status infer_pointwise_bwd(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    int n = strcmp(q->op, "max_bwd") == 0 ? 3 : 2; /* (x, y, dy) */
    tt_type t;
    TT_TRY(tt_want_inputs(q, n, n, err));
    TT_TRY(tt_broadcast_type(q, false, &t, err));
    if (n == 3)
        t.dtype = q->in[2]->dtype;
    if (!tt_dtype_is_float(t.dtype))
        return tt_infer_fail(q, err, "needs a floating dtype");
    out[0] = t;
    return TT_OK;
}

static void rule_broadcast(const tt_shape_query *q, char *rule, size_t size)
{
    tt_rule_broadcast(q, 1, rule, size);
}

static tt_cost cost_pointwise_bwd(const tt_shape_query *q, const tt_type *out)
{
    return tt_cost_make(q, out, 1, 15.0 * tt_numel(&out[0]));
}

static tt_dtype result_dtype(const tt_shape_query *q)
{
    return tt_dtype_promote(q->in[0]->dtype, q->in[1]->dtype);
}

static tt_value *one(tt_builder *b, tt_value *x)
{
    return tt_const(b, 1.0, tt_value_type(x)->dtype);
}

static void decompose_silu_bwd(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                               tt_value **outs)
{ /* dy s (1 + x (1 - s)) */
    tt_value *x = tt_cast_up(b, in[0]), *dy = tt_cast_up(b, in[1]), *s = tt_sigmoid(b, x);
    tt_value *t = tt_add(b, tt_mul(b, x, tt_sub(b, one(b, s), s)), one(b, s));
    outs[0] = tt_cast(b, tt_mul(b, tt_mul(b, dy, s), t), result_dtype(q));
}

static void decompose_relu_bwd(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                               tt_value **outs)
{
    tt_value *dy = tt_select(b, tt_less(b, tt_zero_like_dtype(b, in[0]), in[0]), in[1],
                             tt_zero_like_dtype(b, in[1]));
    outs[0] = tt_cast(b, dy, result_dtype(q));
}

static void decompose_tanh_bwd(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                               tt_value **outs)
{ /* dy (1 - y²) */
    tt_value *y = tt_cast_up(b, in[0]), *dy = tt_cast_up(b, in[1]);
    outs[0] = tt_cast(b, tt_mul(b, dy, tt_sub(b, one(b, y), tt_mul(b, y, y))), result_dtype(q));
}

static void decompose_sigmoid_bwd(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                                  tt_value **outs)
{ /* dy y (1 - y) */
    tt_value *y = tt_cast_up(b, in[0]), *dy = tt_cast_up(b, in[1]);
    outs[0] = tt_cast(b, tt_mul(b, dy, tt_mul(b, y, tt_sub(b, one(b, y), y))), result_dtype(q));
}

static void decompose_gelu_tanh_bwd(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                                    tt_value **outs)
{ /* u = c (x + a x³), t = tanh u: dy ((1 + t) + x (1 - t²) c (1 + 3 a x²)) / 2 */
    const double c = sqrt(2.0 / 3.14159265358979323846), a = 0.044715;
    tt_value *x = tt_cast_up(b, in[0]), *dy = tt_cast_up(b, in[1]), *x2 = tt_mul(b, x, x);
    tt_value *t = tt_tanh(b, tt_scale(b, tt_add(b, x, tt_scale(b, tt_mul(b, x2, x), a)), c));
    tt_value *du = tt_scale(b, tt_add(b, tt_scale(b, x2, 3.0 * a), one(b, x)), c);
    tt_value *right = tt_mul(b, tt_mul(b, x, tt_sub(b, one(b, t), tt_mul(b, t, t))), du);
    tt_value *sum = tt_add(b, tt_add(b, t, one(b, t)), right);
    outs[0] = tt_cast(b, tt_scale(b, tt_mul(b, dy, sum), 0.5), result_dtype(q));
}

static void decompose_max_bwd(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                              tt_value **outs)
{
    (void)q;
    outs[0] = tt_select(b, tt_less_equal(b, in[1], in[0]), in[2], tt_zero_like_dtype(b, in[2]));
}

#define BWD(id, operands_, doc_, decompose_)                                                       \
    const tt_op_def tt_op_##id = {.struct_size = sizeof(tt_op_def),                                \
                                  .name = #id,                                                     \
                                  .operands = operands_,                                           \
                                  .doc = doc_,                                                     \
                                  .flags = TT_OP_POINTWISE,                                        \
                                  .n_out = 1,                                                      \
                                  .infer = infer_pointwise_bwd,                                    \
                                  .rule_for = rule_broadcast,                                      \
                                  .decompose = decompose_,                                         \
                                  .cost = cost_pointwise_bwd}

BWD(silu_bwd, "x, dy → dx", "derivative of silu to x", decompose_silu_bwd);
BWD(relu_bwd, "x, dy → dx", "derivative of relu to x", decompose_relu_bwd);
BWD(gelu_bwd, "x, dy → dx", "derivative of gelu to x", NULL);
BWD(gelu_tanh_bwd, "x, dy → dx", "derivative of gelu_tanh to x", decompose_gelu_tanh_bwd);
BWD(tanh_bwd, "y, dy → dx", "derivative of tanh to x, from its result y: dy (1 - y²)",
    decompose_tanh_bwd);
BWD(sigmoid_bwd, "y, dy → dx", "derivative of sigmoid to x, from its result y: dy y (1 - y)",
    decompose_sigmoid_bwd);
BWD(max_bwd, "x, y, dy → dx", "derivative of maximum(x, y) to x: dy where x >= y, else 0",
    decompose_max_bwd);
