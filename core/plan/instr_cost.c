/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/machine.h"
#include "plan/plan.h"

/* What an instruction computes and moves, by the ops' cost rules, for the rank's own shapes. */

/* The operand as the instruction has it: one chunk's rows in a loop. */
static tt_tensor tensor_of(const tt_program *p, int operand, int64_t rows)
{
    const tt_operand *o = &p->operands[operand];
    tt_tensor t = o->tensor;
    if (o->rows && rows >= 0)
        t.shape[0] = rows;
    return t;
}

static double bytes_of(const tt_program *p, int operand, int64_t rows)
{
    const tt_tensor t = tensor_of(p, operand, rows);
    return (double)tt_tensor_numel(&t) * (double)tt_dtype_size(t.dtype);
}

static tt_cost kernel_cost(const tt_program *p, const tt_instr *i, int64_t rows, bool adds)
{
    const tt_node *n = i->node;
    tt_type in[TT_MAX_INS], out[TT_MAX_OUTS];
    const tt_type *ins[TT_MAX_INS];
    tt_cost c = {0, 0};
    for (int j = 0; j < i->n_in; j++) {
        in[j] = tt_local_type(p->graph, n->in[j], tensor_of(p, i->in[j], rows).shape);
        ins[j] = &in[j];
        c.bytes += bytes_of(p, i->in[j], rows);
    }
    for (int j = 0; j < i->n_out; j++) {
        out[j] = tt_local_type(p->graph, n->out[j], tensor_of(p, i->out[j], rows).shape);
        c.bytes += bytes_of(p, i->out[j], rows);
    }
    const tt_shape_query q = {sizeof q, i->n_in, ins, i->attrs, n->op->name};
    if (n->op->cost)
        c = n->op->cost(&q, out);
    if (adds && (n->op->flags & TT_OP_ADDS_ROWS))
        c.bytes += 2 * TT_MAXV(bytes_of(p, i->in[0], rows), bytes_of(p, i->in[1], rows)) -
                   bytes_of(p, i->out[0], rows);
    else if (adds && i->n_out)
        c.bytes += bytes_of(p, i->out[0], rows); /* what was there is read */
    return c;
}

/* A step that sends nothing: what it reads and writes. A join copies what does not lie there. */
static tt_cost moved_by(const tt_program *p, const tt_instr *i, int64_t rows)
{
    const bool join = i->step->kind == TT_STEP_JOIN;
    double bytes = join ? 0 : bytes_of(p, i->out[0], rows);
    for (int j = 0; j < i->n_in; j++)
        if (!join || i->node->in[j]->within != i->node->out[0])
            bytes += (join ? 2 : 1) * bytes_of(p, i->in[j], rows);
    return (tt_cost){0, bytes};
}

tt_cost tt_instr_cost(const tt_program *p, const tt_instr *i, int64_t rows, bool adds)
{
    const double in = i->n_in ? bytes_of(p, i->in[0], rows) : 0;
    const double out = i->n_out ? bytes_of(p, i->out[0], rows) : 0;
    if (i->kind == TT_INSTR_COLLECTIVE) /* what this rank sends */
        return (tt_cost){0, i->step->cost *
                                (double)tt_dtype_size(p->operands[i->out[0]].tensor.dtype)};
    if (i->step)
        return moved_by(p, i, rows);
    if (i->kind != TT_INSTR_KERNEL)
        return (tt_cost){0, in + out};
    if (i->node->op != &tt_op_accumulate)
        return kernel_cost(p, i, rows, adds);
    return (tt_cost){out / (double)tt_dtype_size(p->operands[i->out[0]].tensor.dtype),
                     bytes_of(p, i->in[1], rows) + 2 * out};
}
