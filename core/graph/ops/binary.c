/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/ops/internal.h"

/* Pointwise ops of two and three operands. The operands broadcast: a dim that is missing or has size 1
 * is stretched. */

/* The broadcast type of two operands that hold numbers to compute with. */
static tt_status infer_both(const tt_shape_query *q, tt_type *t, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 2, 2, err));
    for (int i = 0; i < 2; i++)
        if (tt_dtype_is_float8(q->in[i]->dtype))
            TT_TRY(tt_want_float(q, i, i ? "the second operand" : "the first operand", err));
    return tt_broadcast_type(q, false, t, err);
}

static tt_status infer_arithmetic(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    tt_type t;
    TT_TRY(infer_both(q, &t, err));
    if (t.dtype == TT_BOOL)
        return tt_infer_fail(q, err, "booleans have no arithmetic; cast or select");
    out[0] = t;
    return TT_OK;
}

static tt_status infer_float(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    tt_type t;
    TT_TRY(infer_both(q, &t, err));
    if (!tt_dtype_is_float(t.dtype))
        return tt_infer_fail(q, err, "needs a floating dtype; cast an operand");
    out[0] = t;
    return TT_OK;
}

static tt_status infer_compare(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    tt_type t;
    TT_TRY(infer_both(q, &t, err));
    t.dtype = TT_BOOL;
    out[0] = t;
    return TT_OK;
}

static tt_status infer_scale_by(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(infer_arithmetic(q, out, err));
    if (!tt_type_has_dims(&out[0], q->in[0]->dims, q->in[0]->n_dims))
        return tt_infer_fail(q, err, "the factor must broadcast to the shape of x");
    return TT_OK;
}

static tt_status infer_select(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 3, 3, err));
    if (q->in[0]->dtype != TT_BOOL)
        return tt_infer_fail(q, err, "the condition must be bool; compare first");
    return tt_broadcast_type(q, true, out, err);
}

static void rule_broadcast(const tt_shape_query *q, char *rule, size_t size)
{
    tt_rule_broadcast(q, 1, rule, size);
}

static tt_cost cost_cheap(const tt_shape_query *q, const tt_type *out)
{
    return tt_cost_make(q, out, 1, tt_numel(&out[0]));
}

static tt_cost cost_pow(const tt_shape_query *q, const tt_type *out)
{
    return tt_cost_make(q, out, 1, 20.0 * tt_numel(&out[0]));
}

/* If autodiff wants the cotangent of input i, writes it, summed to the dims of the input. */
#define PUT(i, value)                                                                              \
    do {                                                                                           \
        if (c->want[i])                                                                            \
            c->din[i] = tt_vjp_fit(b, (value), c->in[i]);                                          \
    } while (0)

static void vjp_add(tt_builder *b, tt_vjp *c)
{
    PUT(0, c->dout[0]);
    PUT(1, c->dout[0]);
}

static void vjp_sub(tt_builder *b, tt_vjp *c)
{
    PUT(0, c->dout[0]);
    PUT(1, tt_neg(b, c->dout[0]));
}

static void vjp_mul(tt_builder *b, tt_vjp *c)
{
    PUT(0, tt_mul(b, c->dout[0], c->in[1]));
    PUT(1, tt_mul(b, c->dout[0], c->in[0]));
}

static void vjp_scale_by(tt_builder *b, tt_vjp *c)
{
    PUT(0, tt_emit2(b, "scale_by", c->dout[0], c->in[1], NULL));
    PUT(1, tt_mul(b, c->dout[0], c->in[0]));
}

static void vjp_div(tt_builder *b, tt_vjp *c)
{
    PUT(0, tt_div(b, c->dout[0], c->in[1]));
    PUT(1, tt_neg(b, tt_div(b, tt_mul(b, c->dout[0], c->out[0]), c->in[1])));
}

static void vjp_maximum(tt_builder *b, tt_vjp *c) /* if x == y, x gets the cotangent */
{
    tt_value *x = c->in[0], *y = c->in[1], *dy = c->dout[0];
    PUT(0, tt_emit3(b, "max_bwd", x, y, dy, NULL));
    PUT(1, tt_select(b, tt_less(b, x, y), dy, tt_zero_like_dtype(b, dy)));
}

static void vjp_minimum(tt_builder *b, tt_vjp *c)
{
    tt_value *x = c->in[0], *y = c->in[1], *dy = c->dout[0], *zero = tt_zero_like_dtype(b, dy);
    PUT(0, tt_select(b, tt_less_equal(b, x, y), dy, zero));
    PUT(1, tt_select(b, tt_less(b, y, x), dy, zero));
}

static void vjp_pow(tt_builder *b, tt_vjp *c)
{ /* dx = y x^(y-1); dy = x^y ln x, 0 where x is not positive */
    tt_value *x = c->in[0], *y = c->in[1], *dy = c->dout[0];
    if (c->want[0]) {
        tt_value *less = tt_pow(b, x, tt_sub(b, y, tt_const(b, 1.0, tt_value_type(y)->dtype)));
        PUT(0, tt_mul(b, dy, tt_mul(b, y, less)));
    }
    if (c->want[1]) {
        tt_value *zero = tt_zero_like_dtype(b, x), *one = tt_const(b, 1.0, tt_value_type(x)->dtype);
        tt_value *safe = tt_select(b, tt_less(b, zero, x), x, one);
        PUT(1, tt_mul(b, dy, tt_mul(b, c->out[0], tt_log_e(b, safe))));
    }
}

static void vjp_mod(tt_builder *b, tt_vjp *c) /* x - y floor(x / y), the floor taken as constant */
{
    tt_value *x = c->in[0], *y = c->in[1], *dy = c->dout[0];
    PUT(0, dy);
    PUT(1, tt_neg(b, tt_mul(b, dy, tt_floor_div(b, x, y))));
}

static void vjp_select(tt_builder *b, tt_vjp *c)
{
    tt_value *zero = tt_zero_like_dtype(b, c->dout[0]);
    PUT(1, tt_select(b, c->in[0], c->dout[0], zero));
    PUT(2, tt_select(b, c->in[0], zero, c->dout[0]));
}

static void decompose_sub(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                          tt_value **outs)
{
    (void)q;
    outs[0] = tt_add(b, in[0], tt_neg(b, in[1]));
}

static void decompose_scale_by(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                               tt_value **outs)
{
    (void)q;
    outs[0] = tt_emit2(b, "mul", in[0], in[1], NULL);
}

static void decompose_minimum(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                              tt_value **outs)
{
    (void)q;
    outs[0] = tt_neg(b, tt_maximum(b, tt_neg(b, in[0]), tt_neg(b, in[1])));
}

#define BINARY(id, operands_, doc_, linear_, flags_, infer_, vjp_, decompose_, cost_)              \
    const tt_op_def tt_op_##id = {.struct_size = sizeof(tt_op_def),                                \
                                  .name = #id,                                                     \
                                  .operands = operands_,                                           \
                                  .doc = doc_,                                                     \
                                  .flags = TT_OP_POINTWISE | (flags_),                             \
                                  .linear_inputs = linear_,                                        \
                                  .n_out = 1,                                                      \
                                  .infer = infer_,                                                 \
                                  .rule_for = rule_broadcast,                                      \
                                  .vjp = vjp_,                                                     \
                                  .decompose = decompose_,                                         \
                                  .cost = cost_}

BINARY(add, "x, y → as both", "x + y", TT_LINEAR_JOINT, 0, infer_arithmetic, vjp_add, NULL,
       cost_cheap);
BINARY(sub, "x, y → as both", "x - y", TT_LINEAR_JOINT, 0, infer_arithmetic, vjp_sub, decompose_sub,
       cost_cheap);
BINARY(mul, "x, y → as both", "x times y", 0, 0, infer_arithmetic, vjp_mul, NULL, cost_cheap);
BINARY(scale_by, "x, s → as x",
       "x times s, which broadcasts to x; a pending sum in x stays pending", 1, 0, infer_scale_by,
       vjp_scale_by, decompose_scale_by, cost_cheap);
BINARY(div, "x, y → as both", "x / y", 0, 0, infer_float, vjp_div, NULL, cost_cheap);
BINARY(maximum, "x, y → as both", "the larger of x and y; NaN if one is NaN", 0, 0,
       infer_arithmetic, vjp_maximum, NULL, cost_cheap);
BINARY(minimum, "x, y → as both", "the smaller of x and y; NaN if one is NaN", 0, 0,
       infer_arithmetic, vjp_minimum, decompose_minimum, cost_cheap);
BINARY(pow, "x, y → as both", "x to the power of y", 0, 0, infer_float, vjp_pow, NULL, cost_pow);
BINARY(less, "x, y → bool", "whether x < y", 0, TT_OP_NO_GRADIENT, infer_compare, NULL, NULL,
       cost_cheap);
BINARY(floor_div, "x, y → as both", "floor of x / y", 0, TT_OP_NO_GRADIENT, infer_arithmetic, NULL,
       NULL, cost_cheap);
BINARY(mod, "x, y → as both", "x - y floor(x / y): the remainder with y's sign", 0, 0,
       infer_arithmetic, vjp_mod, NULL, cost_cheap);
BINARY(less_equal, "x, y → bool", "whether x <= y", 0, TT_OP_NO_GRADIENT, infer_compare, NULL, NULL,
       cost_cheap);
BINARY(equal, "x, y → bool", "whether x == y", 0, TT_OP_NO_GRADIENT, infer_compare, NULL, NULL,
       cost_cheap);
BINARY(select, "cond bool, x, y → as x and y", "x where cond is true, else y", 0, 0, infer_select,
       vjp_select, NULL, cost_cheap);

#define PUBLIC(function, op)                                                                       \
    tt_value *function(tt_builder *b, tt_value *x, tt_value *y)                                    \
    {                                                                                              \
        return tt_emit2(b, op, x, y, NULL);                                                        \
    }
PUBLIC(tt_add, "add")
PUBLIC(tt_sub, "sub")
PUBLIC(tt_div, "div")
PUBLIC(tt_floor_div, "floor_div")
PUBLIC(tt_mod, "mod")
PUBLIC(tt_maximum, "maximum")
PUBLIC(tt_minimum, "minimum")
PUBLIC(tt_pow, "pow")
PUBLIC(tt_less, "less")
PUBLIC(tt_less_equal, "less_equal")
PUBLIC(tt_equal, "equal")

tt_value *tt_mul(tt_builder *b, tt_value *x, tt_value *y)
{
    if (tt_value_type(y)->n_dims == 0)
        return tt_emit2(b, "scale_by", x, y, NULL);
    if (tt_value_type(x)->n_dims == 0)
        return tt_emit2(b, "scale_by", y, x, NULL);
    return tt_emit2(b, "mul", x, y, NULL);
}

tt_value *tt_select(tt_builder *b, tt_value *cond, tt_value *x, tt_value *y)
{
    return tt_emit3(b, "select", cond, x, y, NULL);
}
