/* SPDX-License-Identifier: Apache-2.0 */
/* @NAME@: y = max(x, 0)^2. A model uses it with tt_op(b, "@NAME@", &x, 1, NULL, &y, 1). */
#include <ttrun/op.h>
#include <ttrun/plugin.h>

/* The output's type, from the input's. */
static tt_status infer(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    if (q->n_in != 1)
        return TT_FAIL(err, TT_EINVAL, "%s takes one operand, not %d", q->op, q->n_in);
    out[0] = *q->in[0];
    return TT_OK;
}

/* dx = 2 max(x, 0) dy */
static void vjp(tt_builder *b, tt_vjp *c)
{
    if (c->want[0] && c->dout[0])
        c->din[0] = tt_mul(b, tt_scale(b, tt_relu(b, c->in[0]), 2.0), c->dout[0]);
}

/* The same in other ops, for a backend without a kernel of this name. */
static void decompose(tt_builder *b, const tt_shape_query *q, tt_value *const *in, tt_value **outs)
{
    tt_value *y = tt_relu(b, in[0]);
    (void)q;
    outs[0] = tt_mul(b, y, y);
}

static tt_cost cost(const tt_shape_query *q, const tt_type *out)
{
    tt_cost c = TT_ZERO;
    double n = 1;
    for (int i = 0; i < out->n_dims; i++)
        n *= (double)out->dims[i].size;
    c.flops = 2 * n;
    c.bytes = 2 * n * (double)tt_dtype_size(q->in[0]->dtype);
    return c;
}

static const tt_op_def def =
    TT_OP_DEF("@NAME@", "squared relu", "* -> *", TT_OP_POINTWISE, infer, vjp, decompose, cost);
static const tt_op_vt vt = {sizeof(vt), &def};
static const tt_component components[] = {
    TT_COMPONENT_PLAIN(TT_KIND_OP, "@NAME@", "squared relu", &vt),
};
TT_PLUGIN("@NAME@", "0.1", components);
