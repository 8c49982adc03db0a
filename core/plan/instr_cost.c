/* SPDX-License-Identifier: Apache-2.0 */
#include "cost/cost.h"
#include "plan/plan.h"

/* How much an instruction computes and moves, by the ops' cost rules, for this rank's shapes. */

/* The operand with the shape that the instruction sees: inside a loop, the rows of one chunk. */
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

static tt_work kernel_work(const tt_program *p, const tt_instr *i, int64_t rows, bool adds)
{
    const tt_op_def *op = i->node->op;
    tt_tensor in[TT_MAX_INS], out[TT_MAX_OUTS];
    double bytes = 0;
    for (int j = 0; j < i->n_in; j++) {
        in[j] = tensor_of(p, i->in[j], rows);
        bytes += bytes_of(p, i->in[j], rows);
    }
    for (int j = 0; j < i->n_out; j++) {
        out[j] = tensor_of(p, i->out[j], rows);
        bytes += bytes_of(p, i->out[j], rows);
    }
    tt_work w = tt_node_work_of(p->graph, i->node, in, out);
    if (!op->cost)
        w.bytes = bytes;
    if (adds && (op->flags & TT_OP_ADDS_ROWS))
        w.bytes += 2 * TT_MAXV(bytes_of(p, i->in[0], rows), bytes_of(p, i->in[1], rows)) -
                   bytes_of(p, i->out[0], rows);
    else if (adds && i->n_out)
        w.bytes += bytes_of(p, i->out[0], rows); /* it reads what out[0] held */
    return w;
}

/* Bytes that a step without messages reads and writes. A join copies only pieces that lie
 * elsewhere. */
static double moved_by(const tt_program *p, const tt_instr *i, int64_t rows)
{
    const bool join = i->step->kind == TT_STEP_JOIN;
    double bytes = join ? 0 : bytes_of(p, i->out[0], rows);
    for (int j = 0; j < i->n_in; j++)
        if (!join || i->node->in[j]->within != i->node->out[0])
            bytes += (join ? 2 : 1) * bytes_of(p, i->in[j], rows);
    return bytes;
}

static tt_work work_of(const tt_program *p, const tt_instr *i, int64_t rows, bool adds)
{
    const double in = i->n_in ? bytes_of(p, i->in[0], rows) : 0;
    const double out = i->n_out ? bytes_of(p, i->out[0], rows) : 0;
    if (i->kind == TT_INSTR_COLLECTIVE) /* the bytes that this rank sends */
        return (tt_work){.bytes = tt_node_work(p->graph, i->node).sent};
    if (i->step)
        return (tt_work){.bytes = moved_by(p, i, rows)};
    if (i->kind != TT_INSTR_KERNEL)
        return (tt_work){.bytes = in + out};
    if (i->node->op != &tt_op_accumulate)
        return kernel_work(p, i, rows, adds);
    return (tt_work){.flops = out / (double)tt_dtype_size(p->operands[i->out[0]].tensor.dtype),
                     .bytes = bytes_of(p, i->in[1], rows) + 2 * out};
}

tt_instr_cost tt_instr_cost_of(const tt_program *p, const tt_instr *i, int64_t rows, bool adds,
                               const tt_machine *m)
{
    const tt_work w = work_of(p, i, rows, adds);
    return (tt_instr_cost){w.flops, w.bytes,
                           m && !tt_instr_communicates(i) ? tt_work_seconds(&w, m) : 0};
}
