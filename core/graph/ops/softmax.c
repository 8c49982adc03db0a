/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/ops/internal.h"

/* softmax over the last dim, which must be whole. The math is in f32 and rounded once. */

static tt_status infer_softmax(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 1, 1, err));
    TT_TRY(tt_want_min_rank(q, 0, "x", 1, err));
    TT_TRY(tt_want_float(q, 0, "x", err));
    out[0] = *q->in[0];
    return TT_OK;
}

static tt_status infer_softmax_bwd(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 2, 2, err));
    TT_TRY(tt_want_min_rank(q, 0, "y", 1, err));
    TT_TRY(tt_want_same(q, 0, 1, err));
    out[0] = *q->in[0];
    return TT_OK;
}

static void rule_softmax(const tt_shape_query *q, char *rule, size_t size)
{
    tt_rule_text t = {.s = rule, .size = size};
    int n = q->in[0]->n_dims;
    for (int i = 0; i < q->n_in; i++) {
        if (i > 0)
            tt_rule_add(&t, ",");
        tt_rule_dims(&t, n, n - 1, "!n");
    }
    tt_rule_add(&t, " ->");
    tt_rule_dims(&t, n, n - 1, "n");
}

static void vjp_softmax(tt_builder *b, tt_vjp *c)
{
    c->din[0] = tt_emit2(b, "softmax_bwd", c->out[0], c->dout[0], NULL);
}

static void decompose(tt_builder *b, const tt_shape_query *q, tt_value *const *in, tt_value **outs)
{
    tt_value *x = tt_cast_up(b, in[0]), *e = tt_exp(b, tt_sub(b, x, tt_max(b, x, -1, 1)));
    outs[0] = tt_cast(b, tt_div(b, e, tt_sum(b, e, -1, 1)), q->in[0]->dtype);
}

static void decompose_bwd(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                          tt_value **outs)
{ /* y (dy - Σ y dy) */
    tt_value *y = tt_cast_up(b, in[0]), *dy = tt_cast_up(b, in[1]);
    tt_value *dot = tt_sum(b, tt_mul(b, y, dy), -1, 1);
    outs[0] = tt_cast(b, tt_mul(b, y, tt_sub(b, dy, dot)), q->in[0]->dtype);
}

static tt_cost cost_softmax(const tt_shape_query *q, const tt_type *out)
{
    return tt_cost_make(q, out, 1, 12.0 * tt_numel(&out[0]));
}

const tt_op_def tt_op_softmax = {.struct_size = sizeof(tt_op_def),
                                 .name = "softmax",
                                 .operands = "x f[..,n] → [..,n]",
                                 .doc = "e^x divided by the sum of e^x along the last dim",
                                 .n_out = 1,
                                 .infer = infer_softmax,
                                 .rule_for = rule_softmax,
                                 .vjp = vjp_softmax,
                                 .decompose = decompose,
                                 .cost = cost_softmax};
const tt_op_def tt_op_softmax_bwd = {
    .struct_size = sizeof(tt_op_def),
    .name = "softmax_bwd",
    .operands = "y f[..,n], dy f[..,n] → dx",
    .doc = "derivative of softmax to x, from its result y: y (dy - Σ y dy)",
    .n_out = 1,
    .infer = infer_softmax_bwd,
    .rule_for = rule_softmax,
    .decompose = decompose_bwd,
    .cost = cost_softmax};

tt_value *tt_softmax(tt_builder *b, tt_value *x)
{
    return tt_emit1(b, "softmax", x, NULL);
}
