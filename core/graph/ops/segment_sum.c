/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/ops/internal.h"

/* segment_sum: sums over tokens of one sequence that have the same number, such as those of a preference pair. Each
 * of these tokens gets the sum, so the op is its own derivative, and their order does not matter. */

static int64_t sequence_of(const tt_shape_query *q)
{
    return ((const tt_attrs_dims *)q->attrs)->dims[0].size;
}

static tt_status infer_segment_sum(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 2, 2, err));
    TT_TRY(tt_want_rank(q, 0, "x", 1, err));
    TT_TRY(tt_want_float(q, 0, "x", err));
    TT_TRY(tt_want_rank(q, 1, "the numbers", 1, err));
    TT_TRY(tt_want_i32(q, 1, "the numbers", err));
    TT_TRY(tt_want_equal(q, 0, 0, 1, 0, err));
    const int64_t n = q->in[0]->dims[0].size, lines = q->in[0]->dims[0].lines,
                  tokens = sequence_of(q);
    if (lines > 1 && tokens * lines != n)
        return tt_infer_fail(q, err, "%lld tokens are not %lld sequences of %lld", (long long)n,
                             (long long)lines, (long long)tokens);
    out[0] = *q->in[0];
    return TT_OK;
}

static void vjp_segment_sum(tt_builder *b, tt_vjp *c)
{
    if (c->want[0])
        c->din[0] = tt_emit2(b, "segment_sum", c->dout[0], c->in[1], c->attrs);
}

static tt_cost cost_segment_sum(const tt_shape_query *q, const tt_type *out)
{
    return tt_cost_make(q, out, 1, tt_numel(q->in[0]));
}

static void print_sequence(const void *attrs, char *text, size_t size)
{
    snprintf(text, size, "sequence=%lld", (long long)((const tt_attrs_dims *)attrs)->dims[0].size);
}

const tt_op_def tt_op_segment_sum = {
    .struct_size = sizeof(tt_op_def),
    .name = "segment_sum",
    .operands = "x f[T], number i[T] → [T]",
    .attributes = "tt_attrs_dims (tokens of a sequence)",
    .doc = "for each token the sum of x over the tokens of its sequence that have its number; 0 "
           "where the number is negative, or not less than the tokens of a sequence",
    .rule = "t=(b !q), t -> t",
    .flags = TT_OP_MIXES_TOKENS,
    .linear_inputs = 1,
    .attrs_size = sizeof(tt_attrs_dims),
    .n_out = 1,
    .infer = infer_segment_sum,
    .vjp = vjp_segment_sum,
    .cost = cost_segment_sum,
    .print_attrs = print_sequence};

tt_value *tt_segment_sum(tt_builder *b, tt_value *x, tt_value *number)
{
    const tt_type *t = tt_value_type(x);
    const tt_dim d = t->n_dims ? t->dims[0] : TT_DIM(1, NULL);
    tt_attrs_dims a = {.n_dims = 1, .dims = {TT_DIM(d.size / TT_MAXV(d.lines, 1), NULL)}};
    return tt_emit2(b, "segment_sum", x, number, &a);
}
