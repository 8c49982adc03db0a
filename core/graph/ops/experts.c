/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/graph.h"
#include "graph/ops/internal.h"
#include <string.h>

/* Mixture of experts without shapes that depend on data (R8): expert_sort sorts the slots (a token times
 * one of its k experts) by expert, and grouped_linear multiplies the sorted rows. The whole layer is in
 * expert_rows.c. */

tt_dim tt_slots_dim(const tt_dim *tokens, int64_t k)
{
    const bool picked = tokens->label && !strcmp(tokens->label, TT_LABEL_PICKED);
    return TT_DIM(tokens->size * k, picked ? TT_LABEL_PICKED_ROWS : TT_LABEL_ROWS);
}

static tt_status infer_sort(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    const tt_dim *e = &((const tt_attrs_dims *)q->attrs)->dims[0];
    int64_t slots = 0;
    TT_TRY(tt_want_inputs(q, 1, 1, err));
    TT_TRY(tt_want_rank(q, 0, "the assignment", 2, err));
    TT_TRY(tt_want_i32(q, 0, "the assignment", err));
    if (e->size < 1)
        return tt_infer_fail(q, err, "there must be at least 1 expert, not %lld",
                             (long long)e->size);
    if (!tt_mul_i64(q->in[0]->dims[0].size, q->in[0]->dims[1].size, &slots) || slots > INT32_MAX)
        return tt_infer_fail(q, err, "there are more slots (tokens times k) than an i32 can count");
    tt_dim rows = tt_slots_dim(&q->in[0]->dims[0], q->in[0]->dims[1].size);
    out[0] = tt_type_make(TT_I32, &rows, 1);
    out[1] = tt_type_make(TT_I32, e, 1);
    return TT_OK;
}

/* counts [E], or [G,P,E] with G equal groups of rows */
static tt_status want_counts(const tt_shape_query *q, tt_error *err)
{
    const tt_type *t = q->in[2];
    TT_TRY(tt_want_expert_counts(q, 2, true, err));
    if (t->n_dims == 3 && (t->dims[0].size < 1 || q->in[0]->dims[0].size % t->dims[0].size != 0))
        return tt_infer_fail(q, err, "the rows are not %lld equal groups",
                             (long long)t->dims[0].size);
    return TT_OK;
}

static const tt_dim *experts_of(const tt_shape_query *q)
{
    return &q->in[2]->dims[q->in[2]->n_dims - 1];
}

/* x [R,i], w [E,o,i] → [R,o], or dy [R,o] → [R,i]: `in` is the dim of w that the rows' last dim
 * equals. */
static tt_status infer_rows(const tt_shape_query *q, int in, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 3, 3, err));
    TT_TRY(tt_want_rank(q, 0, "the rows", 2, err));
    TT_TRY(tt_want_rank(q, 1, "the weight", 3, err));
    TT_TRY(tt_want_float(q, 0, "the rows", err));
    TT_TRY(tt_want_float(q, 1, "the weight", err));
    TT_TRY(tt_want_equal(q, 0, 1, 1, in, err));
    TT_TRY(want_counts(q, err));
    if (experts_of(q)->size != q->in[1]->dims[0].size)
        return tt_infer_fail(q, err, "counts must have %lld elements, one per expert",
                             (long long)q->in[1]->dims[0].size);
    tt_dim d[2] = {q->in[0]->dims[0], q->in[1]->dims[3 - in]};
    out[0] = tt_type_make(tt_dtype_promote(q->in[0]->dtype, q->in[1]->dtype), d, 2);
    return TT_OK;
}

static tt_status infer_grouped(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    return infer_rows(q, 2, out, err);
}

static tt_status infer_dx(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    return infer_rows(q, 1, out, err);
}

static tt_status infer_dw(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 3, 3, err));
    TT_TRY(tt_want_rank(q, 0, "dy", 2, err));
    TT_TRY(tt_want_rank(q, 1, "x", 2, err));
    TT_TRY(tt_want_equal(q, 0, 0, 1, 0, err));
    TT_TRY(want_counts(q, err));
    tt_dim d[3] = {*experts_of(q), q->in[0]->dims[1], q->in[1]->dims[1]};
    out[0] = tt_type_make(tt_dtype_accumulate(q->in[0]->dtype), d, 3);
    return TT_OK;
}

/* Rows of one group are sorted by expert, so none may cut them; of several the groups may be cut, and in
 * each the experts. */
static void rule_rows(const tt_shape_query *q, const char *in, const char *out, char *rule,
                      size_t size)
{
    const bool groups = q->in[2]->n_dims == 3;
    snprintf(rule, size, "%s %s, %se o i, %s -> %s %s", groups ? "r=(g e)" : "!r", in,
             groups ? "" : "!", groups ? "g !s e" : "!e", groups ? "r=(g e)" : "r", out);
}

static void rule_grouped(const tt_shape_query *q, char *rule, size_t size)
{
    rule_rows(q, "i", "o", rule, size);
}

static void rule_dx(const tt_shape_query *q, char *rule, size_t size)
{
    rule_rows(q, "o", "i", rule, size);
}

static void rule_dw(const tt_shape_query *q, char *rule, size_t size)
{
    const bool groups = q->in[2]->n_dims == 3;
    snprintf(rule, size, "%s",
             groups ? "r=(g e) o, r=(g e) i, g !s e -> e o i" : "!r o, !r i, !e -> e o i");
}

static void vjp_grouped(tt_builder *b, tt_vjp *c)
{
    if (c->want[0])
        c->din[0] = tt_vjp_fit(
            b, tt_emit3(b, "grouped_linear_dx", c->dout[0], c->in[1], c->in[2], NULL), c->in[0]);
    if (c->want[1])
        c->din[1] = tt_emit3(b, "grouped_linear_dw", c->dout[0], c->in[0], c->in[2], NULL);
}

static tt_cost cost_sort(const tt_shape_query *q, const tt_type *out)
{
    return tt_cost_make(q, out, 2, 0.0);
}

static tt_cost cost_grouped(const tt_shape_query *q, const tt_type *out)
{
    return tt_cost_make(q, out, 1, 2.0 * tt_numel(&out[0]) * (double)q->in[0]->dims[1].size);
}

static tt_cost cost_dw(const tt_shape_query *q, const tt_type *out)
{
    return tt_cost_make(q, out, 1, 2.0 * tt_numel(q->in[0]) * (double)q->in[1]->dims[1].size);
}

static void print_experts(const void *attrs, char *text, size_t size)
{
    snprintf(text, size, "experts=%lld", (long long)((const tt_attrs_dims *)attrs)->dims[0].size);
}

const tt_op_def tt_op_expert_sort = {
    .struct_size = sizeof(tt_op_def),
    .name = "expert_sort",
    .operands = "assign i[T,k] → order i[T*k], counts i[E]",
    .attributes = "tt_attrs_dims (E)",
    .doc =
        "order: the slots (slot t*k+j is token t's choice j) sorted by their experts, equal ones "
        "in ascending order, those of no expert last; counts: the number of slots of each expert",
    .rule = "!t !k -> !n, !e",
    .flags = TT_OP_NO_GRADIENT,
    .attrs_size = sizeof(tt_attrs_dims),
    .n_out = 2,
    .infer = infer_sort,
    .cost = cost_sort,
    .print_attrs = print_experts};
const tt_op_def tt_op_grouped_linear = {
    .struct_size = sizeof(tt_op_def),
    .name = "grouped_linear",
    .operands = "x f[R,i], w f[E,o,i], counts i[E] or i[G,P,E] → [R,o]",
    .doc =
        "each row of x times the transpose of its expert's weight: the first counts[0] rows are "
        "expert 0's, the next counts[1] rows expert 1's, …; rows after those of the last expert "
        "are 0; with G groups of rows each is so, and an expert has the sum over P of its counts",
    .flags = TT_OP_HEAVY,
    .n_out = 1,
    .infer = infer_grouped,
    .rule_for = rule_grouped,
    .vjp = vjp_grouped,
    .cost = cost_grouped,
    .cls = TT_CLASS_MATMUL};
const tt_op_def tt_op_grouped_linear_dx = {
    .struct_size = sizeof(tt_op_def),
    .name = "grouped_linear_dx",
    .operands = "dy f[R,o], w f[E,o,i], counts i[E] or i[G,P,E] → [R,i]",
    .doc = "derivative of grouped_linear to x: each row of dy times its expert's weight; rows "
           "after those of the last expert are 0",
    .linear_inputs = 1,
    .n_out = 1,
    .infer = infer_dx,
    .rule_for = rule_dx,
    .cost = cost_grouped,
    .cls = TT_CLASS_MATMUL};
const tt_op_def tt_op_grouped_linear_dw = {
    .struct_size = sizeof(tt_op_def),
    .name = "grouped_linear_dw",
    .operands = "dy f[R,o], x f[R,i], counts i[E] or i[G,P,E] → [E,o,i]",
    .doc = "derivative of grouped_linear to w: for each expert the transpose of its rows of dy "
           "times its rows of x; 0 for an expert without rows",
    .linear_inputs = 1,
    .n_out = 1,
    .infer = infer_dw,
    .rule_for = rule_dw,
    .cost = cost_dw,
    .cls = TT_CLASS_MATMUL};

void tt_expert_sort(tt_builder *b, tt_value *assign, int64_t n_experts, tt_value **order,
                    tt_value **counts)
{
    const bool lacks =
        tt_builder_lacks_result(b, order, "tt_expert_sort: the pointer to the order");
    if (tt_builder_lacks_result(b, counts, "tt_expert_sort: the pointer to the counts") || lacks)
        return;
    tt_attrs_dims a = {.n_dims = 1, .dims = {TT_DIM(n_experts, "experts")}};
    tt_value *outs[2] = {NULL, NULL};
    tt_op(b, "expert_sort", &assign, 1, &a, outs, 2);
    *order = outs[0];
    *counts = outs[1];
}

tt_value *tt_grouped_linear(tt_builder *b, tt_value *x, tt_value *w, tt_value *counts)
{
    return tt_emit3(b, "grouped_linear", x, w, counts, NULL);
}
