/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/ops/internal.h"

/* embedding: rows of w [V,D] by ids [T] → [T,D]. An id outside this rank's box of V gives zeros,
 * so the result of a cut vocabulary is a partial sum. */

static tt_status infer_embedding(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 2, 2, err));
    TT_TRY(tt_want_rank(q, 0, "ids", 1, err));
    TT_TRY(tt_want_i32(q, 0, "ids", err));
    TT_TRY(tt_want_rank(q, 1, "the table", 2, err));
    TT_TRY(tt_want_float(q, 1, "the table", err));
    tt_dim d[2] = {q->in[0]->dims[0], q->in[1]->dims[1]};
    out[0] = tt_type_make(q->in[1]->dtype, d, 2);
    return TT_OK;
}

static tt_status infer_dw(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    const tt_attrs_dims *a = q->attrs;
    TT_TRY(tt_want_inputs(q, 2, 2, err));
    TT_TRY(tt_want_rank(q, 0, "ids", 1, err));
    TT_TRY(tt_want_i32(q, 0, "ids", err));
    TT_TRY(tt_want_rank(q, 1, "dy", 2, err));
    TT_TRY(tt_want_equal(q, 0, 0, 1, 0, err));
    tt_dim d[2] = {a->dims[0], q->in[1]->dims[1]};
    out[0] = tt_type_make(tt_dtype_accumulate(q->in[1]->dtype), d, 2);
    return TT_OK;
}

static void vjp_embedding(tt_builder *b, tt_vjp *c)
{
    tt_attrs_dims a = {.n_dims = 1, .dims = {tt_value_type(c->in[1])->dims[0]}};
    if (c->want[1])
        c->din[1] = tt_emit2(b, "embedding_dw", c->in[0], c->dout[0], &a);
}

static void decompose_embedding(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                                tt_value **outs)
{
    (void)q;
    outs[0] = tt_gather(b, in[1], in[0]);
}

static void decompose_dw(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                         tt_value **outs)
{
    outs[0] =
        tt_scatter_add(b, tt_cast_up(b, in[1]), in[0], ((const tt_attrs_dims *)q->attrs)->dims[0]);
}

static tt_cost cost_embedding(const tt_shape_query *q, const tt_type *out)
{ /* it moves the rows that it reads, not the table */
    tt_cost c = {.flops = 0.0, .bytes = 4.0 * tt_numel(q->in[0])};
    c.bytes += 2.0 * tt_numel(&out[0]) * (double)tt_dtype_size(out[0].dtype);
    return c;
}

static tt_cost cost_dw(const tt_shape_query *q, const tt_type *out)
{
    return tt_cost_make(q, out, 1, tt_numel(q->in[1]));
}

static void print_rows(const void *attrs, char *text, size_t size)
{
    snprintf(text, size, "rows=%lld", (long long)((const tt_attrs_dims *)attrs)->dims[0].size);
}

const tt_op_def tt_op_embedding = {
    .struct_size = sizeof(tt_op_def),
    .name = "embedding",
    .operands = "ids i[T], w f[V,D] → [T,D]",
    .doc = "row ids[t] of w for each token t; zeros where the row is outside this rank's box of w",
    .rule = "t, v d -> t d",
    .n_out = 1,
    .infer = infer_embedding,
    .vjp = vjp_embedding,
    .decompose = decompose_embedding,
    .cost = cost_embedding,
    .cls = TT_CLASS_LOOKUP,
    .table = 1};
const tt_op_def tt_op_embedding_dw = {
    .struct_size = sizeof(tt_op_def),
    .name = "embedding_dw",
    .operands = "ids i[T], dy f[T,D] → [V,D]",
    .attributes = "tt_attrs_dims (V)",
    .doc =
        "derivative of embedding to w: row t of dy is added to row ids[t] of zeros, in ascending t",
    .rule = "t, t d -> v d",
    .flags = TT_OP_ADDS_ROWS,
    .linear_inputs = 2,
    .attrs_size = sizeof(tt_attrs_dims),
    .n_out = 1,
    .infer = infer_dw,
    .decompose = decompose_dw,
    .cost = cost_dw,
    .print_attrs = print_rows};

tt_value *tt_embedding_w(tt_builder *b, tt_value *ids, tt_value *w)
{
    return tt_emit2(b, "embedding", ids, w, NULL);
}

tt_value *tt_embedding(tt_builder *b, tt_value *ids, const char *name, tt_dim vocab, tt_dim width,
                       const tt_param_opts *opts)
{
    char param[256];
    if (tt_builder_lacks(b, name, "tt_embedding: the name"))
        return tt_placeholder(b);
    if (snprintf(param, sizeof param, "%s.weight", name) >= (int)sizeof param)
        return tt_builder_fail(b, TT_EINVAL, "embedding: the name \"%.60s…\" is too long", name);
    tt_dim dims[2] = {vocab, width};
    return tt_embedding_w(b, ids, tt_param(b, param, dims, 2, opts));
}
