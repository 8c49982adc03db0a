/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/ops/internal.h"
#include <math.h>

/* Pointwise ops of one operand: rule "* -> *". The math is in f32 (f64 for f64) and rounded once
 * to the dtype. */

static tt_status infer_float(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 1, 1, err));
    TT_TRY(tt_want_float(q, 0, "the operand", err));
    out[0] = *q->in[0];
    return TT_OK;
}

static tt_status infer_signed(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 1, 1, err));
    if (tt_dtype_is_float8(q->in[0]->dtype))
        return tt_want_float(q, 0, "the operand", err);
    if (q->in[0]->dtype == TT_BOOL || q->in[0]->dtype == TT_U8)
        return tt_infer_fail(q, err, "the operand must have a sign; cast it");
    out[0] = *q->in[0];
    return TT_OK;
}

static tt_status infer_is_finite(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(infer_float(q, out, err));
    out[0].dtype = TT_BOOL;
    return TT_OK;
}

static tt_cost cost_cheap(const tt_shape_query *q, const tt_type *out)
{
    return tt_cost_make(q, out, 1, tt_numel(&out[0]));
}

static tt_cost cost_transcendental(const tt_shape_query *q, const tt_type *out)
{
    return tt_cost_make(q, out, 1, 10.0 * tt_numel(&out[0]));
}

/* ---- derivatives ---- */

static void vjp_neg(tt_builder *b, tt_vjp *c)
{
    c->din[0] = tt_neg(b, c->dout[0]);
}

static void vjp_exp(tt_builder *b, tt_vjp *c)
{
    c->din[0] = tt_mul(b, c->dout[0], c->out[0]);
}

static void vjp_log(tt_builder *b, tt_vjp *c)
{
    c->din[0] = tt_div(b, c->dout[0], c->in[0]);
}

static void vjp_sqrt(tt_builder *b, tt_vjp *c) /* dy / (2 sqrt(x)) */
{
    c->din[0] = tt_scale(b, tt_div(b, c->dout[0], c->out[0]), 0.5);
}

static void vjp_rsqrt(tt_builder *b, tt_vjp *c) /* -dy y³ / 2 */
{
    tt_value *y = c->out[0];
    c->din[0] = tt_scale(b, tt_mul(b, c->dout[0], tt_mul(b, y, tt_mul(b, y, y))), -0.5);
}

static void vjp_abs(tt_builder *b, tt_vjp *c) /* 0 at 0 */
{
    tt_value *x = c->in[0], *dy = c->dout[0], *zero = tt_zero_like_dtype(b, x),
             *none = tt_zero_like_dtype(b, dy);
    tt_value *positive = tt_select(b, tt_less(b, zero, x), dy, none);
    c->din[0] = tt_select(b, tt_less(b, x, zero), tt_neg(b, dy), positive);
}

static void vjp_tanh(tt_builder *b, tt_vjp *c)
{
    c->din[0] = tt_emit2(b, "tanh_bwd", c->out[0], c->dout[0], NULL);
}

static void vjp_sigmoid(tt_builder *b, tt_vjp *c)
{
    c->din[0] = tt_emit2(b, "sigmoid_bwd", c->out[0], c->dout[0], NULL);
}

static void vjp_silu(tt_builder *b, tt_vjp *c)
{
    c->din[0] = tt_emit2(b, "silu_bwd", c->in[0], c->dout[0], NULL);
}

static void vjp_relu(tt_builder *b, tt_vjp *c)
{
    c->din[0] = tt_emit2(b, "relu_bwd", c->in[0], c->dout[0], NULL);
}

static void vjp_gelu(tt_builder *b, tt_vjp *c)
{
    c->din[0] = tt_emit2(b, "gelu_bwd", c->in[0], c->dout[0], NULL);
}

static void vjp_softplus(tt_builder *b, tt_vjp *c)
{
    c->din[0] = tt_mul(b, c->dout[0], tt_sigmoid(b, c->in[0]));
}

static void vjp_gelu_tanh(tt_builder *b, tt_vjp *c)
{
    c->din[0] = tt_emit2(b, "gelu_tanh_bwd", c->in[0], c->dout[0], NULL);
}

static void vjp_erf(tt_builder *b, tt_vjp *c) /* dy 2/√π e^(-x²); x² is not rounded to a half */
{
    tt_value *x = tt_cast_up(b, c->in[0]), *bell = tt_exp(b, tt_neg(b, tt_mul(b, x, x)));
    tt_value *dx = tt_scale(b, tt_mul(b, c->dout[0], bell), 2.0 / sqrt(3.14159265358979323846));
    c->din[0] = tt_vjp_fit(b, dx, c->in[0]);
}

static void vjp_sin(tt_builder *b, tt_vjp *c)
{
    c->din[0] = tt_mul(b, c->dout[0], tt_emit1(b, "cos", c->in[0], NULL));
}

static void vjp_cos(tt_builder *b, tt_vjp *c)
{
    c->din[0] = tt_neg(b, tt_mul(b, c->dout[0], tt_emit1(b, "sin", c->in[0], NULL)));
}

/* ---- decompositions, in f32 when the operand is a half ---- */

static tt_value *one(tt_builder *b, tt_value *x)
{
    return tt_const(b, 1.0, tt_value_type(x)->dtype);
}

static void decompose_neg(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                          tt_value **outs)
{
    (void)q;
    outs[0] = tt_scale(b, in[0], -1.0);
}

static void decompose_rsqrt(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                            tt_value **outs)
{
    tt_value *x = tt_cast_up(b, in[0]);
    outs[0] = tt_cast(b, tt_div(b, one(b, x), tt_sqrt(b, x)), q->in[0]->dtype);
}

static void decompose_abs(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                          tt_value **outs)
{
    (void)q;
    outs[0] = tt_maximum(b, in[0], tt_neg(b, in[0]));
}

static tt_value *sigmoid_of(tt_builder *b, tt_value *x)
{
    return tt_div(b, one(b, x), tt_add(b, tt_exp(b, tt_neg(b, x)), one(b, x)));
}

static void decompose_sigmoid(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                              tt_value **outs)
{
    outs[0] = tt_cast(b, sigmoid_of(b, tt_cast_up(b, in[0])), q->in[0]->dtype);
}

static void decompose_tanh(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                           tt_value **outs)
{ /* 2 sigmoid(2x) - 1 */
    tt_value *x = tt_cast_up(b, in[0]);
    tt_value *s = tt_scale(b, tt_sigmoid(b, tt_scale(b, x, 2.0)), 2.0);
    outs[0] = tt_cast(b, tt_sub(b, s, one(b, x)), q->in[0]->dtype);
}

static void decompose_silu(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                           tt_value **outs)
{
    tt_value *x = tt_cast_up(b, in[0]);
    outs[0] = tt_cast(b, tt_mul(b, x, tt_sigmoid(b, x)), q->in[0]->dtype);
}

static void decompose_relu(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                           tt_value **outs)
{
    (void)q;
    outs[0] = tt_maximum(b, in[0], tt_zero_like_dtype(b, in[0]));
}

static void decompose_gelu_tanh(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                                tt_value **outs)
{ /* x/2 (1 + tanh(√(2/π) (x + 0.044715 x³))) */
    tt_value *x = tt_cast_up(b, in[0]);
    tt_value *cube = tt_mul(b, x, tt_mul(b, x, x));
    tt_value *u =
        tt_scale(b, tt_add(b, x, tt_scale(b, cube, 0.044715)), sqrt(2.0 / 3.14159265358979323846));
    outs[0] = tt_cast(b, tt_mul(b, tt_scale(b, x, 0.5), tt_add(b, tt_tanh(b, u), one(b, x))),
                      q->in[0]->dtype);
}

static void decompose_softplus(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                               tt_value **outs)
{ /* max(x, 0) + log u - ((u - 1) - e) / u with e = exp(-|x|), u = 1 + e: the quotient corrects
   * the rounding of u */
    tt_value *x = tt_cast_up(b, in[0]), *e = tt_exp(b, tt_neg(b, tt_abs(b, x)));
    tt_value *u = tt_add(b, one(b, x), e), *excess = tt_sub(b, tt_sub(b, u, one(b, x)), e);
    tt_value *log1p = tt_sub(b, tt_log_e(b, u), tt_div(b, excess, u));
    outs[0] = tt_cast(b, tt_add(b, tt_relu(b, x), log1p), q->in[0]->dtype);
}

static void decompose_is_finite(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                                tt_value **outs)
{ /* a comparison with NaN is false */
    outs[0] = tt_less(b, tt_abs(b, in[0]), tt_const(b, (double)INFINITY, q->in[0]->dtype));
}

/* ---- scale: a product with a number that is known when the graph is built ---- */

static void vjp_scale(tt_builder *b, tt_vjp *c)
{
    c->din[0] = tt_scale(b, c->dout[0], ((const tt_attrs_scale *)c->attrs)->factor);
}

static void decompose_scale(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                            tt_value **outs)
{
    const tt_attrs_scale *a = q->attrs;
    const tt_dtype x = q->in[0]->dtype, f = tt_dtype_is_float(x) ? tt_dtype_accumulate(x) : TT_F32;
    tt_value *factor = tt_const(b, a->factor, f);
    outs[0] = tt_emit2(b, "scale_by", in[0], factor, NULL);
}

static void print_scale(const void *attrs, char *text, size_t size)
{
    snprintf(text, size, "factor=%.9g", ((const tt_attrs_scale *)attrs)->factor);
}

static double factor_of(const void *attrs)
{
    return ((const tt_attrs_scale *)attrs)->factor;
}

const tt_op_def tt_op_scale = {.struct_size = sizeof(tt_op_def),
                               .name = "scale",
                               .operands = "x → as x",
                               .attributes = "tt_attrs_scale",
                               .doc = "x times the factor of the attributes",
                               .rule = "* -> *",
                               .flags = TT_OP_POINTWISE,
                               .linear_inputs = 1,
                               .attrs_size = sizeof(tt_attrs_scale),
                               .n_out = 1,
                               .infer = infer_signed,
                               .vjp = vjp_scale,
                               .decompose = decompose_scale,
                               .cost = cost_cheap,
                               .print_attrs = print_scale,
                               .immediate = factor_of};

/* The function that puts op_ into a graph. ops.h declares it, once `make docs` has seen it here. */
#define FUNCTION(function_, op_)                                                                   \
    TT_EXPORT tt_value *function_(tt_builder *b, tt_value *x);                                     \
    tt_value *function_(tt_builder *b, tt_value *x)                                                \
    {                                                                                              \
        return tt_emit1(b, op_, x, NULL);                                                          \
    }
#define UNARY(id, function_, doc_, linear_, flags_, infer_, vjp_, decompose_, cost_)               \
    const tt_op_def tt_op_##id = {.struct_size = sizeof(tt_op_def),                                \
                                  .name = #id,                                                     \
                                  .operands = "x → as x",                                          \
                                  .doc = doc_,                                                     \
                                  .rule = "* -> *",                                                \
                                  .flags = TT_OP_POINTWISE | (flags_),                             \
                                  .linear_inputs = linear_,                                        \
                                  .n_out = 1,                                                      \
                                  .infer = infer_,                                                 \
                                  .vjp = vjp_,                                                     \
                                  .decompose = decompose_,                                         \
                                  .cost = cost_,                                                   \
                                  .function = #function_};                                         \
    FUNCTION(function_, #id)

UNARY(neg, tt_neg, "-x", 1, 0, infer_signed, vjp_neg, decompose_neg, cost_cheap)
UNARY(exp, tt_exp, "e to the power of x", 0, 0, infer_float, vjp_exp, NULL, cost_transcendental)
UNARY(log, tt_log_e, "natural logarithm; `tt_log_e`", 0, 0, infer_float, vjp_log, NULL,
      cost_transcendental)
UNARY(sqrt, tt_sqrt, "square root", 0, 0, infer_float, vjp_sqrt, NULL, cost_cheap)
UNARY(rsqrt, tt_rsqrt, "1 / square root", 0, 0, infer_float, vjp_rsqrt, decompose_rsqrt, cost_cheap)
UNARY(abs, tt_abs, "|x|", 0, 0, infer_signed, vjp_abs, decompose_abs, cost_cheap)
UNARY(round, tt_round, "nearest integer, halves to even", 0, TT_OP_NO_GRADIENT, infer_float, NULL,
      NULL, cost_cheap)
UNARY(floor_pow2, tt_floor_pow2, "largest power of 2 up to |x|", 0, TT_OP_NO_GRADIENT, infer_float,
      NULL, NULL, cost_cheap)
UNARY(tanh, tt_tanh, "hyperbolic tangent", 0, 0, infer_float, vjp_tanh, decompose_tanh,
      cost_transcendental)
UNARY(sigmoid, tt_sigmoid, "1 / (1 + e^-x)", 0, 0, infer_float, vjp_sigmoid, decompose_sigmoid,
      cost_transcendental)
UNARY(silu, tt_silu, "x times sigmoid(x)", 0, 0, infer_float, vjp_silu, decompose_silu,
      cost_transcendental)
UNARY(relu, tt_relu, "max(x, 0)", 0, 0, infer_float, vjp_relu, decompose_relu, cost_cheap)
UNARY(gelu, tt_gelu, "x times the normal CDF of x", 0, 0, infer_float, vjp_gelu, NULL,
      cost_transcendental)
UNARY(gelu_tanh, tt_gelu_tanh, "gelu approximated by tanh", 0, 0, infer_float, vjp_gelu_tanh,
      decompose_gelu_tanh, cost_transcendental)
UNARY(softplus, tt_softplus, "log(1 + e^x)", 0, 0, infer_float, vjp_softplus, decompose_softplus,
      cost_transcendental)
UNARY(erf, tt_erf, "error function", 0, 0, infer_float, vjp_erf, NULL, cost_transcendental)
UNARY(sin, tt_sin, "sine of radians", 0, 0, infer_float, vjp_sin, NULL, cost_transcendental)
UNARY(cos, tt_cos, "cosine of radians", 0, 0, infer_float, vjp_cos, NULL, cost_transcendental)
/* Ops of states in dynamic codes, which optimizers have through tt_optimizer_state_as(). */
#define CODES8(id, doc_, cost_)                                                                    \
    const tt_op_def tt_op_##id = {.struct_size = sizeof(tt_op_def),                                \
                                  .name = #id,                                                     \
                                  .operands = "x → as x",                                          \
                                  .doc = doc_,                                                     \
                                  .rule = "* -> *",                                                \
                                  .flags = TT_OP_POINTWISE | TT_OP_NO_GRADIENT,                    \
                                  .n_out = 1,                                                      \
                                  .infer = infer_float,                                            \
                                  .cost = cost_};
CODES8(encode8, "byte of the dynamic code of x", cost_transcendental)
CODES8(encode8u, "the same in [0, 1]", cost_transcendental)
CODES8(decode8, "number of a dynamic code", cost_cheap)
CODES8(decode8u, "the same in [0, 1]", cost_cheap)
const tt_op_def tt_op_is_finite = {.struct_size = sizeof(tt_op_def),
                                   .name = "is_finite",
                                   .operands = "x → bool",
                                   .doc = "neither infinite nor NaN",
                                   .rule = "* -> *",
                                   .flags = TT_OP_POINTWISE | TT_OP_NO_GRADIENT,
                                   .n_out = 1,
                                   .infer = infer_is_finite,
                                   .decompose = decompose_is_finite,
                                   .cost = cost_cheap,
                                   .function = "tt_is_finite"};
FUNCTION(tt_is_finite, "is_finite")

tt_value *tt_scale(tt_builder *b, tt_value *x, double factor)
{
    tt_attrs_scale a = {.factor = factor};
    return tt_emit1(b, "scale", x, &a);
}
