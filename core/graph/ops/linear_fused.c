/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/ops/internal.h"
#include <ttrun/backend.h>

/* linear_fused, linear_dx_fused: a product and the pointwise program that reads it, in one kernel
 * (R11): bias, residual, activation, the sum of several products. Made by the epilogue pass alone.
 * Not linear in the product, so what is summed over is whole. */

/* The program as a question of its own: the product in place of the two operands. */
typedef struct program_query {
    tt_type product;
    const tt_type *in[TT_MAX_INS];
    tt_shape_query q;
} program_query;

static const tt_fused *program_of(const void *attrs)
{
    return &((const tt_fused_product *)attrs)->program;
}

static tt_status ask(const tt_shape_query *q, const tt_op_def *product, program_query *p,
                     tt_error *err)
{
    const tt_fused *f = program_of(q->attrs);
    tt_shape_query two = *q;
    TT_TRY(tt_want_inputs(q, f->n_in + 1, f->n_in + 1, err));
    if (f->n_in < 1 || q->n_in > TT_MAX_INS)
        return tt_infer_fail(q, err, "a program of 1 to %d inputs, not %d", TT_MAX_INS - 1,
                             f->n_in);
    two.n_in = 2;
    TT_TRY(product->infer(&two, &p->product, err));
    p->in[0] = &p->product;
    for (int i = 1; i < f->n_in; i++)
        p->in[i] = q->in[i + 1];
    p->q = *q;
    p->q.in = p->in;
    p->q.n_in = f->n_in;
    p->q.attrs = f;
    return TT_OK;
}

static tt_status infer_from(const tt_shape_query *q, const tt_op_def *product, tt_type *out,
                            tt_error *err)
{
    const tt_fused_product *f = q->attrs;
    program_query p;
    TT_TRY(ask(q, product, &p, err));
    TT_TRY(tt_op_fused.infer(&p.q, out, err));
    for (int i = 0; i < f->program.n_out; i++)
        if (out[i].n_dims != 2 || !tt_dim_same_size(&out[i].dims[0], &p.product.dims[0]) ||
            !tt_dim_same_size(&out[i].dims[1], &p.product.dims[1]))
            return tt_infer_fail(q, err, "the program stretches the product");
    if (f->into < 0 || f->into >= f->program.n_out || out[f->into].dtype != p.product.dtype)
        return tt_infer_fail(q, err, "output %d has not the product's dtype", f->into);
    return TT_OK;
}

static tt_status infer_linear(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    return infer_from(q, &tt_op_linear, out, err);
}

static tt_status infer_dx(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    return infer_from(q, &tt_op_linear_dx, out, err);
}

/* `operands` of the product, then what is broadcast to its dims a b. */
static void rule_from(const tt_shape_query *q, const char *operands, char *rule, size_t size)
{
    tt_rule_text t = {.s = rule, .size = size};
    int own = 0;
    tt_rule_add(&t, "%s", operands);
    for (int i = 2; i < q->n_in; i++) {
        tt_rule_add(&t, ",");
        for (int d = 0; d < q->in[i]->n_dims; d++) {
            if (q->in[i]->dims[d].size == 1)
                tt_rule_add(&t, " !u%d", own++);
            else
                tt_rule_add(&t, " %c", 'a' + 2 - q->in[i]->n_dims + d);
        }
    }
    for (int o = 0; o < program_of(q->attrs)->n_out; o++)
        tt_rule_add(&t, "%s a b", o ? "," : " ->");
}

static void rule_linear(const tt_shape_query *q, char *rule, size_t size)
{
    rule_from(q, "a !k, b !k", rule, size);
}

static void rule_dx(const tt_shape_query *q, char *rule, size_t size)
{
    rule_from(q, "a !k, !k b", rule, size);
}

static tt_cost cost(const tt_shape_query *q, const tt_type *out)
{
    const tt_fused *f = program_of(q->attrs);
    return tt_cost_make(q, out, f->n_out,
                        2.0 * tt_numel(&out[0]) *
                            ((double)q->in[0]->dims[1].size + (double)f->n_instr));
}

static void print(const void *attrs, char *text, size_t size)
{
    tt_op_fused.print_attrs(program_of(attrs), text, size);
}

/* n_out is the program's */
const tt_op_def tt_op_linear_fused = {.struct_size = sizeof(tt_op_def),
                                      .name = "linear_fused",
                                      .doc = "a linear and the pointwise chain that reads it",
                                      .attrs_size = sizeof(tt_fused_product),
                                      .n_out = 1,
                                      .infer = infer_linear,
                                      .rule_for = rule_linear,
                                      .cost = cost,
                                      .print_attrs = print};
const tt_op_def tt_op_linear_dx_fused = {.struct_size = sizeof(tt_op_def),
                                         .name = "linear_dx_fused",
                                         .doc = "a linear_dx and the pointwise chain that reads it",
                                         .attrs_size = sizeof(tt_fused_product),
                                         .n_out = 1,
                                         .infer = infer_dx,
                                         .rule_for = rule_dx,
                                         .cost = cost,
                                         .print_attrs = print};
