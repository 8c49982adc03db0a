/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/ops/internal.h"
#include <string.h>
#include <ttrun/backend.h>

/* linear_fused, linear_dx_fused: a product and the pointwise program that reads it, in one kernel
 * (R11): bias, residual, activation, the sum of several products. linear_fused_rope then applies
 * rotary positions. Only the epilogue pass builds these ops. The program need not be linear in the
 * product, so the dim over which the product sums must be whole. */

/* The shape query of the program alone: its first operand is the product. */
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
        return tt_infer_fail(q, err, "the program must have 1 to %d inputs, not %d", TT_MAX_INS - 1,
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
            return tt_infer_fail(q, err, "the program must not stretch the product");
    if (f->into < 0 || f->into >= f->program.n_out || out[f->into].dtype != p.product.dtype)
        return tt_infer_fail(q, err, "output %d must have the dtype of the product", f->into);
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

/* The rule: the `operands` of the product, then operands that broadcast to its dims a b, then `last`. */
static void rule_from(const tt_shape_query *q, const char *operands, const char *last, char *rule,
                      size_t size)
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
    tt_rule_add(&t, "%s", last);
    for (int o = 0; o < program_of(q->attrs)->n_out; o++)
        tt_rule_add(&t, "%s a b", o ? "," : " ->");
}

static void rule_linear(const tt_shape_query *q, char *rule, size_t size)
{
    rule_from(q, "a !k, b !k", "", rule, size);
}

static void rule_dx(const tt_shape_query *q, char *rule, size_t size)
{
    rule_from(q, "a !k, !k b", "", rule, size);
}

static tt_cost cost_linear_fused(const tt_shape_query *q, const tt_type *out)
{
    const tt_fused *f = program_of(q->attrs);
    return tt_cost_make(q, out, f->n_out,
                        2.0 * tt_numel(&out[0]) *
                            ((double)q->in[0]->dims[1].size + (double)f->n_instr));
}

/* ---- linear_fused_rope: linear_fused of all inputs but pos, then rope of the result ---- */

static tt_shape_query without_pos(const tt_shape_query *q)
{
    tt_shape_query p = *q;
    p.n_in = TT_MAXV(0, q->n_in - 1);
    p.attrs = &((const tt_fused_rope *)q->attrs)->product;
    return p;
}

static tt_shape_query rope_query(const tt_shape_query *q, const tt_type *in[2])
{
    tt_shape_query r = *q;
    in[1] = q->in[q->n_in - 1];
    r.in = in;
    r.n_in = 2;
    r.attrs = &((const tt_fused_rope *)q->attrs)->rope;
    return r;
}

static tt_status infer_rope(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    const tt_fused_product *f = &((const tt_fused_rope *)q->attrs)->product;
    const tt_shape_query p = without_pos(q);
    tt_type made;
    const tt_type *in[2] = {&made};
    if (f->program.n_out != 1)
        return tt_infer_fail(q, err, "the program must have one output, not %d", f->program.n_out);
    TT_TRY(infer_linear(&p, &made, err));
    const tt_shape_query r = rope_query(q, in);
    return tt_op_rope.infer(&r, out, err);
}

static void rule_rope(const tt_shape_query *q, char *rule, size_t size)
{
    const tt_shape_query p = without_pos(q);
    rule_from(&p, "a !k, b !k", ", a", rule, size);
}

static tt_cost cost_rope(const tt_shape_query *q, const tt_type *out)
{
    const tt_shape_query p = without_pos(q);
    const tt_type *in[2] = {out};
    const tt_shape_query r = rope_query(q, in);
    return tt_cost_make(q, out, 1,
                        cost_linear_fused(&p, out).flops + tt_op_rope.cost(&r, out).flops);
}

static void print_linear_fused(const void *attrs, char *text, size_t size)
{
    tt_op_fused.print_attrs(program_of(attrs), text, size);
}

static void print_rope(const void *attrs, char *text, size_t size)
{
    const tt_fused_rope *f = attrs;
    size_t n;
    text[0] = 0;
    print_linear_fused(&f->product, text, size);
    n = strlen(text);
    if (n && n + 1 < size)
        text[n++] = ' ';
    tt_op_rope.print_attrs(&f->rope, text + n, size - n);
}

/* the program says how many outputs a node has */
const tt_op_def tt_op_linear_fused = {
    .struct_size = sizeof(tt_op_def),
    .name = "linear_fused",
    .operands = "x f[T,i], w f[o,i], other operands of the program → results of the program",
    .attributes = "tt_fused_product (backend.h)",
    .doc = "linear and the pointwise program that reads its result, in one kernel",
    .attrs_size = sizeof(tt_fused_product),
    .n_out = 1,
    .infer = infer_linear,
    .rule_for = rule_linear,
    .cost = cost_linear_fused,
    .print_attrs = print_linear_fused,
    .cls = TT_CLASS_MATMUL,
    .rope_form = "linear_fused_rope"};
const tt_op_def tt_op_linear_dx_fused = {
    .struct_size = sizeof(tt_op_def),
    .name = "linear_dx_fused",
    .operands = "dy f[T,o], w f[o,i], other operands of the program → results of the program",
    .attributes = "tt_fused_product (backend.h)",
    .doc = "linear_dx and the pointwise program that reads its result, in one kernel",
    .attrs_size = sizeof(tt_fused_product),
    .n_out = 1,
    .infer = infer_dx,
    .rule_for = rule_dx,
    .cost = cost_linear_fused,
    .print_attrs = print_linear_fused,
    .cls = TT_CLASS_MATMUL};
const tt_op_def tt_op_linear_fused_rope = {
    .struct_size = sizeof(tt_op_def),
    .name = "linear_fused_rope",
    .operands = "x f[T,i], w f[o,i], other operands of the program, pos i[T] → [T,o]",
    .attributes = "tt_fused_rope (backend.h)",
    .doc = "linear, the pointwise program that reads its result, and rope of what that gives, in "
           "one kernel",
    .attrs_size = sizeof(tt_fused_rope),
    .n_out = 1,
    .infer = infer_rope,
    .rule_for = rule_rope,
    .cost = cost_rope,
    .print_attrs = print_rope,
    .cls = TT_CLASS_MATMUL};
