/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/graph.h"
#include "graph/ops/internal.h"
#include <string.h>

/* cumsum: cumulative sum along one dim, of x or of x reversed. The dim must be whole. */

/* A sum along the token dim would run from one sequence into the next, and in decoding and in the
 * loop over token chunks the op would get a part of the tokens only (R4). */
static tt_status infer_cumsum(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    const tt_attrs_cumsum *a = q->attrs;
    int dim = 0;
    TT_TRY(tt_want_inputs(q, 1, 1, err));
    TT_TRY(tt_want_dim(q, 0, a->dim, &dim, err));
    TT_TRY(tt_want_float(q, 0, "the operand", err));
    const tt_dim *d = &q->in[0]->dims[dim];
    if (d->lines > 1 || (d->label && !strcmp(d->label, TT_LABEL_TOKENS)))
        return tt_infer_fail(q, err,
                             "dim %d holds the tokens of all sequences: split the sequences off "
                             "with tt_reshape, or use tt_scan, which stays inside a segment",
                             dim);
    out[0] = *q->in[0];
    return TT_OK;
}

static void rule_cumsum(const tt_shape_query *q, char *rule, size_t size)
{
    const tt_attrs_cumsum *a = q->attrs;
    tt_rule_text t = {.s = rule, .size = size};
    const int n = q->in[0]->n_dims, dim = a->dim < 0 ? a->dim + n : a->dim;
    tt_rule_dims(&t, n, dim, "!n");
    tt_rule_add(&t, " ->");
    tt_rule_dims(&t, n, dim, "n");
}

/* x[i] is in the sums of all later elements, so its cotangent is the cumulative sum from the end. */
static void vjp_cumsum(tt_builder *b, tt_vjp *c)
{
    tt_attrs_cumsum a = *(const tt_attrs_cumsum *)c->attrs;
    a.reverse = !a.reverse;
    c->din[0] = tt_emit1(b, "cumsum", c->dout[0], &a);
}

static tt_cost cost_cumsum(const tt_shape_query *q, const tt_type *out)
{
    return tt_cost_make(q, out, 1, tt_numel(out));
}

static void print_cumsum(const void *attrs, char *text, size_t size)
{
    const tt_attrs_cumsum *a = attrs;
    snprintf(text, size, "dim=%d%s%s", (int)a->dim, a->reverse ? " reverse" : "",
             a->exclusive ? " exclusive" : "");
}

const tt_op_def tt_op_cumsum = {.struct_size = sizeof(tt_op_def),
                                .name = "cumsum",
                                .operands = "x → as x",
                                .attributes = "tt_attrs_cumsum",
                                .doc = "cumulative sum along one dim, forwards or backwards",
                                .linear_inputs = 1,
                                .attrs_size = sizeof(tt_attrs_cumsum),
                                .n_out = 1,
                                .infer = infer_cumsum,
                                .rule_for = rule_cumsum,
                                .vjp = vjp_cumsum,
                                .cost = cost_cumsum,
                                .print_attrs = print_cumsum};

tt_value *tt_cumsum(tt_builder *b, tt_value *x, int dim, const tt_cumsum_opts *opts)
{
    const int n = tt_value_type(x)->n_dims;
    const tt_attrs_cumsum a = {.dim = tt_dim_index(dim, n),
                               .reverse = opts && opts->reverse,
                               .exclusive = opts && opts->exclusive};
    return tt_emit1(b, "cumsum", x, &a);
}
