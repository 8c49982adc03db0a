/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/ops/internal.h"

/* matmul: a [..,m,k] · b [..,k,n] with the same leading batch dims, or none; trans_a, trans_b: that
 * operand's last two dims are swapped in memory. */

typedef struct shape {
    int batch;          /* number of batch dims */
    int am, ak, bk, bn; /* the dims of a and b that are m, k and n */
} shape;

static shape shape_of(const tt_shape_query *q)
{
    const tt_attrs_matmul *t = q->attrs;
    int o = q->in[0]->n_dims - 2;
    return (shape){.batch = o,
                   .am = o + !!t->trans_a,
                   .ak = o + !t->trans_a,
                   .bk = o + !!t->trans_b,
                   .bn = o + !t->trans_b};
}

static tt_status infer_matmul(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 2, 2, err));
    const tt_type *x = q->in[0], *y = q->in[1];
    if (x->n_dims != y->n_dims || x->n_dims < 2)
        return tt_infer_fail(q, err,
                             "both operands must have 2 dims, or as many leading batch dims each "
                             "before them, they have %d and %d dims",
                             x->n_dims, y->n_dims);
    TT_TRY(tt_want_float(q, 0, "the first operand", err));
    TT_TRY(tt_want_float(q, 1, "the second operand", err));
    shape s = shape_of(q);
    tt_dim d[TT_MAX_DIMS];
    int n = 0;
    for (; n < s.batch; n++) {
        TT_TRY(tt_want_equal(q, 0, n, 1, n, err));
        d[n] = x->dims[n];
    }
    TT_TRY(tt_want_equal(q, 0, s.ak, 1, s.bk, err));
    d[n++] = x->dims[s.am];
    d[n++] = y->dims[s.bn];
    out[0] = tt_type_make(tt_dtype_promote(x->dtype, y->dtype), d, n);
    return TT_OK;
}

static void rule_matmul(const tt_shape_query *q, char *rule, size_t size)
{
    const tt_attrs_matmul *t = q->attrs;
    char z[4 * TT_MAX_DIMS] = "";
    for (int i = 0; i < q->in[0]->n_dims - 2; i++)
        snprintf(z + 3 * i, sizeof z - (size_t)(3 * i), "z%d ", i);
    snprintf(rule, size, "%s%s, %s%s -> %sm n", z, t->trans_a ? "k m" : "m k", z,
             t->trans_b ? "n k" : "k n", z);
}

/* y = A·B with A = a or aᵀ, B = b or bᵀ: dA = dy·Bᵀ, dB = Aᵀ·dy; transposed again where the operand
 * was. */
static void vjp_matmul(tt_builder *b, tt_vjp *c)
{
    const tt_attrs_matmul *t = c->attrs;
    tt_value *x = c->in[0], *y = c->in[1], *d = c->dout[0];
    if (c->want[0]) {
        tt_value *dx =
            t->trans_a ? tt_matmul(b, y, d, t->trans_b, 1) : tt_matmul(b, d, y, 0, !t->trans_b);
        c->din[0] = tt_vjp_fit(b, dx, x);
    }
    if (c->want[1]) {
        tt_value *dy =
            t->trans_b ? tt_matmul(b, d, x, 1, t->trans_a) : tt_matmul(b, x, d, !t->trans_a, 0);
        c->din[1] = tt_vjp_fit(b, dy, y);
    }
}

static tt_cost cost_matmul(const tt_shape_query *q, const tt_type *out)
{
    shape s = shape_of(q);
    return tt_cost_make(q, out, 1, 2.0 * tt_numel(&out[0]) * (double)q->in[0]->dims[s.ak].size);
}

static void print_matmul(const void *attrs, char *text, size_t size)
{
    const tt_attrs_matmul *t = attrs;
    snprintf(text, size, "%s%s%s", t->trans_a ? "trans_a" : "", t->trans_a && t->trans_b ? " " : "",
             t->trans_b ? "trans_b" : "");
}

const tt_op_def tt_op_matmul = {
    .struct_size = sizeof(tt_op_def),
    .name = "matmul",
    .operands = "a f[..,m,k], b f[..,k,n] → [..,m,n]",
    .attributes = "tt_attrs_matmul",
    .doc = "matrix product over the last two dims; trans_a, trans_b: those of the operand are "
           "swapped first; leading batch dims are the same in both or missing in both",
    .attrs_size = sizeof(tt_attrs_matmul),
    .flags = TT_OP_HEAVY,
    .n_out = 1,
    .infer = infer_matmul,
    .rule_for = rule_matmul,
    .vjp = vjp_matmul,
    .cost = cost_matmul,
    .print_attrs = print_matmul,
    .cls = TT_CLASS_MATMUL};

tt_value *tt_matmul(tt_builder *b, tt_value *x, tt_value *y, int trans_x, int trans_y)
{
    tt_attrs_matmul a = {.trans_a = !!trans_x, .trans_b = !!trans_y};
    return tt_emit2(b, "matmul", x, y, &a);
}
