/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/ops/internal.h"

/* top_k, gather, scatter_add: ops that compute indices or read and write by them. The indexed dim must
 * be whole. */

static int64_t first_size(const void *attrs)
{
    return ((const tt_attrs_dims *)attrs)->dims[0].size;
}

static tt_status infer_top_k(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    int64_t k = first_size(q->attrs);
    TT_TRY(tt_want_inputs(q, 1, 1, err));
    TT_TRY(tt_want_min_rank(q, 0, "x", 1, err));
    TT_TRY(tt_want_float(q, 0, "x", err));
    const tt_type *x = q->in[0];
    int last = x->n_dims - 1;
    if (k > x->dims[last].size || (k < 1 && x->dims[last].size > 0))
        return tt_infer_fail(q, err, "k %lld must be from 1 to the last dim's %lld", (long long)k,
                             (long long)x->dims[last].size);
    out[0] = *x;
    out[0].dims[last] = TT_DIM(k, NULL);
    out[1] = out[0];
    out[1].dtype = TT_I32;
    return TT_OK;
}

static tt_status infer_top_k_bwd(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 2, 2, err));
    TT_TRY(tt_want_min_rank(q, 0, "the indices", 1, err));
    TT_TRY(tt_want_i32(q, 0, "the indices", err));
    TT_TRY(tt_want_same(q, 0, 1, err));
    out[0] = *q->in[1];
    out[0].dims[out[0].n_dims - 1] = ((const tt_attrs_dims *)q->attrs)->dims[0];
    return TT_OK;
}

static void rule_top_k(const tt_shape_query *q, char *rule, size_t size)
{
    tt_rule_text t = {.s = rule, .size = size};
    int n = q->in[0]->n_dims;
    tt_rule_dims(&t, n, n - 1, "!n");
    tt_rule_add(&t, " ->");
    tt_rule_dims(&t, n, n - 1, "!k");
    tt_rule_add(&t, ",");
    tt_rule_dims(&t, n, n - 1, "k");
}

static void rule_top_k_bwd(const tt_shape_query *q, char *rule, size_t size)
{
    tt_rule_text t = {.s = rule, .size = size};
    int n = q->in[0]->n_dims;
    tt_rule_dims(&t, n, n - 1, "!k");
    tt_rule_add(&t, ",");
    tt_rule_dims(&t, n, n - 1, "k");
    tt_rule_add(&t, " ->");
    tt_rule_dims(&t, n, n - 1, "!n");
}

static void vjp_top_k(tt_builder *b, tt_vjp *c)
{
    tt_attrs_dims a = {.n_dims = 1, .dims = {tt_last_dim(c->in[0])}};
    if (c->dout[0] != NULL && c->want[0])
        c->din[0] = tt_emit2(b, "top_k_bwd", c->out[1], c->dout[0], &a);
}

static tt_status infer_gather(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 2, 2, err));
    TT_TRY(tt_want_min_rank(q, 0, "x", 1, err));
    TT_TRY(tt_want_rank(q, 1, "the indices", 1, err));
    TT_TRY(tt_want_i32(q, 1, "the indices", err));
    out[0] = *q->in[0];
    out[0].dims[0] = q->in[1]->dims[0];
    return TT_OK;
}

static tt_status infer_scatter(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(infer_gather(q, out, err));
    TT_TRY(tt_want_float(q, 0, "x", err));
    TT_TRY(tt_want_equal(q, 0, 0, 1, 0, err));
    out[0].dims[0] = ((const tt_attrs_dims *)q->attrs)->dims[0];
    return TT_OK;
}

static void rule_gather(const tt_shape_query *q, char *rule, size_t size)
{
    tt_rule_text t = {.s = rule, .size = size};
    tt_rule_dims(&t, q->in[0]->n_dims, 0, "!r");
    tt_rule_add(&t, ", n ->");
    tt_rule_dims(&t, q->in[0]->n_dims, 0, "n");
}

static void rule_scatter(const tt_shape_query *q, char *rule, size_t size)
{
    tt_rule_text t = {.s = rule, .size = size};
    tt_rule_dims(&t, q->in[0]->n_dims, 0, "n");
    tt_rule_add(&t, ", n ->");
    tt_rule_dims(&t, q->in[0]->n_dims, 0, "!r");
}

static void vjp_gather(tt_builder *b, tt_vjp *c)
{
    if (!c->want[0])
        return;
    tt_value *d =
        tt_scatter_add(b, tt_cast_up(b, c->dout[0]), c->in[1], tt_value_type(c->in[0])->dims[0]);
    c->din[0] = tt_cast(b, d, tt_value_type(c->in[0])->dtype);
}

static void vjp_scatter(tt_builder *b, tt_vjp *c)
{
    if (c->want[0])
        c->din[0] = tt_gather(b, c->dout[0], c->in[1]);
}

static tt_cost cost_top_k(const tt_shape_query *q, const tt_type *out)
{ /* the row is read once, or sorted */
    const double steps = first_size(q->attrs) > 32 ? 20.0 : 2.0;
    return tt_cost_make(q, out, 2, steps * tt_numel(q->in[0]));
}

static tt_cost cost_gather(const tt_shape_query *q, const tt_type *out)
{ /* the rows read, not all of x */
    double row = tt_numel(&out[0]) * (double)tt_dtype_size(out[0].dtype);
    return (tt_cost){.flops = 0.0, .bytes = 2.0 * row + 4.0 * tt_numel(q->in[1])};
}

static tt_cost cost_scatter(const tt_shape_query *q, const tt_type *out)
{
    return tt_cost_make(q, out, 1, tt_numel(q->in[0]));
}

static void print_k(const void *attrs, char *text, size_t size)
{
    snprintf(text, size, "k=%lld", (long long)first_size(attrs));
}

static void print_n(const void *attrs, char *text, size_t size)
{
    snprintf(text, size, "n=%lld", (long long)first_size(attrs));
}

static void print_rows(const void *attrs, char *text, size_t size)
{
    snprintf(text, size, "rows=%lld", (long long)first_size(attrs));
}

const tt_op_def tt_op_top_k = {
    .struct_size = sizeof(tt_op_def),
    .name = "top_k",
    .operands = "x f[..,n] → values [..,k], indices i[..,k]",
    .attributes = "tt_attrs_dims (k)",
    .doc = "the k largest elements along the last dim in descending order, and their indices; of "
           "equal elements the one with the lower index comes first",
    .attrs_size = sizeof(tt_attrs_dims),
    .n_out = 2,
    .infer = infer_top_k,
    .rule_for = rule_top_k,
    .vjp = vjp_top_k,
    .cost = cost_top_k,
    .print_attrs = print_k};
const tt_op_def tt_op_top_k_bwd = {
    .struct_size = sizeof(tt_op_def),
    .name = "top_k_bwd",
    .operands = "idx i[..,k], dy f[..,k] → [..,n]",
    .attributes = "tt_attrs_dims (n)",
    .doc = "derivative of top_k's values to x: dy at the indices that top_k chose, 0 elsewhere",
    .attrs_size = sizeof(tt_attrs_dims),
    .n_out = 1,
    .infer = infer_top_k_bwd,
    .rule_for = rule_top_k_bwd,
    .cost = tt_cost_move,
    .print_attrs = print_n};
const tt_op_def tt_op_gather = {.struct_size = sizeof(tt_op_def),
                                .name = "gather",
                                .operands = "x f[N,..], idx i[n] → [n,..]",
                                .doc =
                                    "row idx[i] of x for each i; zeros where idx[i] is outside x",
                                .n_out = 1,
                                .infer = infer_gather,
                                .rule_for = rule_gather,
                                .vjp = vjp_gather,
                                .cost = cost_gather,
                                .cls = TT_CLASS_LOOKUP};
const tt_op_def tt_op_scatter_add = {
    .struct_size = sizeof(tt_op_def),
    .name = "scatter_add",
    .operands = "x f[n,..], idx i[n] → [N,..]",
    .attributes = "tt_attrs_dims (N)",
    .doc = "zeros, to whose row idx[i] row i of x is added, in ascending i; a row whose idx[i] is "
           "outside 0 to N-1 is left out",
    .flags = TT_OP_ADDS_ROWS,
    .linear_inputs = 1,
    .attrs_size = sizeof(tt_attrs_dims),
    .n_out = 1,
    .infer = infer_scatter,
    .rule_for = rule_scatter,
    .vjp = vjp_scatter,
    .cost = cost_scatter,
    .print_attrs = print_rows};

tt_value *tt_gather(tt_builder *b, tt_value *x, tt_value *idx)
{
    return tt_emit2(b, "gather", x, idx, NULL);
}

tt_value *tt_scatter_add(tt_builder *b, tt_value *x, tt_value *idx, tt_dim rows)
{
    tt_attrs_dims a = {.n_dims = 1, .dims = {rows}};
    return tt_emit2(b, "scatter_add", x, idx, &a);
}

void tt_top_k(tt_builder *b, tt_value *x, int64_t k, tt_value **values, tt_value **indices)
{
    const bool lacks = tt_builder_lacks_result(b, values, "tt_top_k: the pointer to the values");
    if (tt_builder_lacks_result(b, indices, "tt_top_k: the pointer to the indices") || lacks)
        return;
    tt_attrs_dims a = {.n_dims = 1, .dims = {TT_DIM(k, NULL)}};
    tt_value *outs[2] = {NULL, NULL};
    tt_op(b, "top_k", &x, 1, &a, outs, 2);
    *values = outs[0];
    *indices = outs[1];
}
