/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/graph.h"
#include "graph/ops/internal.h"

/* member_stats: of each member of a stack four sums, for norms and for checks of weights and gradients. */

#define SUMS 4
#define SATURATED 65504.0 /* the largest finite float16 */

static tt_status infer_member_stats(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 1, 1, err));
    TT_TRY(tt_want_float(q, 0, "the operand", err));
    if (q->in[0]->n_dims < 1)
        return tt_infer_fail(q, err, "a stack has a dim of members");
    const tt_dim d[2] = {q->in[0]->dims[0], TT_DIM(SUMS, NULL)};
    out[0] = tt_type_make(tt_dtype_accumulate(q->in[0]->dtype), d, 2);
    return TT_OK;
}

static void rule_member_stats(const tt_shape_query *q, char *rule, size_t size)
{
    tt_rule_text t = {.s = rule, .size = size};
    tt_rule_dims(&t, q->in[0]->n_dims, -1, NULL);
    tt_rule_add(&t, " -> a !sums");
}

/* [n, 1] of x [n, ...] */
static tt_value *sum_members(tt_builder *b, tt_value *x)
{
    for (int d = tt_value_type(x)->n_dims - 1; d > 0; d--)
        x = tt_sum(b, x, d, 0);
    return tt_unsqueeze_last(b, x);
}

static void decompose_member_stats(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                                   tt_value **outs)
{
    tt_value *x = tt_cast_up(b, in[0]);
    const tt_dtype f = tt_value_type(x)->dtype;
    tt_value *zero = tt_const(b, 0, f), *one = tt_const(b, 1, f);
    tt_value *finite = tt_is_finite(b, x), *size = tt_abs(b, x);
    tt_value *large = tt_cast(b, tt_less_equal(b, tt_const(b, SATURATED, f), size), f);
    (void)q;
    tt_value *parts[SUMS] = {
        sum_members(b, tt_mul(b, x, x)),
        sum_members(b, tt_sub(b, one, tt_cast(b, finite, f))),
        sum_members(b, tt_cast(b, tt_equal(b, x, zero), f)),
        sum_members(b, tt_select(b, finite, large, zero)),
    };
    outs[0] = tt_concat(b, parts, SUMS, 1);
}

static tt_cost cost_member_stats(const tt_shape_query *q, const tt_type *out)
{
    return tt_cost_make(q, out, 1, 5.0 * tt_numel(q->in[0]));
}

const tt_op_def tt_op_member_stats = {
    .struct_size = sizeof(tt_op_def),
    .name = "member_stats",
    .operands = "x f[N,..] → f32 [N,4]",
    .doc = "of each x[n] in f32: the sum of squares, and how many elements are NaN or infinite, "
           "how many 0, and how many finite ones at least 65504, the largest float16",
    .flags = TT_OP_NO_GRADIENT,
    .rule_for = rule_member_stats,
    .n_out = 1,
    .infer = infer_member_stats,
    .decompose = decompose_member_stats,
    .cost = cost_member_stats};
