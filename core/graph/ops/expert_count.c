/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/ops/internal.h"

/* expert_count: how many tokens go to each expert. The counts are f64, so that sums of them over ranks,
 * micro-batches and layers are exact up to 2^53. */

static tt_status infer_count(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    const tt_dim *e = &((const tt_attrs_dims *)q->attrs)->dims[0];
    TT_TRY(tt_want_inputs(q, 1, 1, err));
    TT_TRY(tt_want_rank(q, 0, "the assignment", 2, err));
    TT_TRY(tt_want_i32(q, 0, "the assignment", err));
    if (e->size < 1)
        return tt_infer_fail(q, err, "there must be at least 1 expert, not %lld",
                             (long long)e->size);
    out[0] = tt_type_make(TT_F64, e, 1);
    return TT_OK;
}

static tt_cost cost_count(const tt_shape_query *q, const tt_type *out)
{
    return tt_cost_make(q, out, 1, tt_numel(q->in[0]));
}

static void print_count(const void *attrs, char *text, size_t size)
{
    snprintf(text, size, "experts=%lld", (long long)((const tt_attrs_dims *)attrs)->dims[0].size);
}

const tt_op_def tt_op_expert_count = {
    .struct_size = sizeof(tt_op_def),
    .name = "expert_count",
    .operands = "assign i[T,k] → f64[E]",
    .attributes = "tt_attrs_dims (E)",
    .doc = "the number of slots (a token times one of its k choices) of each expert; slots of no "
           "expert do not count",
    .rule = "t !k -> !e",
    .flags = TT_OP_NO_GRADIENT,
    .attrs_size = sizeof(tt_attrs_dims),
    .n_out = 1,
    .infer = infer_count,
    .cost = cost_count,
    .print_attrs = print_count};
