/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/ops/internal.h"
#include <ttrun/backend.h>

/* fused: a program of pointwise ops in one kernel (R11). Only the fuse pass builds it, after autodiff
 * and lowering. All outputs have the dims to which the inputs broadcast. */

static tt_status infer_fused(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    const tt_fused *f = q->attrs;
    tt_type t;
    TT_TRY(tt_want_inputs(q, f->n_in, f->n_in, err));
    TT_TRY(tt_broadcast_type(q, false, &t, err));
    if (f->n_out < 1 || f->n_out > TT_MAX_OUTS)
        return tt_infer_fail(q, err, "at most %d outputs, not %d", TT_MAX_OUTS, f->n_out);
    for (int i = 0; i < f->n_out; i++) {
        int r = f->out[i];
        if (r < 0 || r >= f->n_in + f->n_instr)
            return tt_infer_fail(q, err, "output %d reads register %d", i, r);
    }
    for (int i = 0; i < f->n_out; i++) {
        int r = f->out[i];
        out[i] = t;
        out[i].dtype = r < f->n_in ? q->in[r]->dtype : f->instr[r - f->n_in].dtype;
    }
    return TT_OK;
}

static void rule_fused(const tt_shape_query *q, char *rule, size_t size)
{
    tt_rule_broadcast(q, ((const tt_fused *)q->attrs)->n_out, rule, size);
}

static tt_cost cost_fused(const tt_shape_query *q, const tt_type *out)
{
    const tt_fused *f = q->attrs;
    return tt_cost_make(q, out, f->n_out, 2.0 * (double)f->n_instr * tt_numel(&out[0]));
}

static void print_fused(const void *attrs, char *text, size_t size)
{
    const tt_fused *f = attrs;
    size_t n = 0;
    for (int i = 0; i < f->n_instr && n < size; i++) {
        int k = snprintf(text + n, size - n, "%s%s", i ? " " : "", f->instr[i].op);
        n += k > 0 ? (size_t)k : 0;
    }
}

/* the program says how many outputs a node has */
const tt_op_def tt_op_fused = {.struct_size = sizeof(tt_op_def),
                               .name = "fused",
                               .operands = "operands of the program → results of the program",
                               .attributes = "tt_fused (backend.h)",
                               .doc = "a pointwise program: several pointwise ops in one kernel",
                               .flags = TT_OP_POINTWISE,
                               .attrs_size = sizeof(tt_fused),
                               .n_out = 1,
                               .infer = infer_fused,
                               .rule_for = rule_fused,
                               .cost = cost_fused,
                               .print_attrs = print_fused};
