/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/exec.h"
#include <string.h>

/* What bounds an op: memory, or arithmetic. Machines multiply matrices faster than they do anything
 * else (tiles, tensor cores), so products have a limit of their own, a dtype each. */

static bool multiplies_matrices(const tt_op_def *op)
{
    static const char *const families[] = {"linear", "grouped_linear", "matmul"};
    for (size_t i = 0; i < TT_COUNT(families); i++)
        if (!strncmp(op->name, families[i], strlen(families[i])))
            return true;
    return false;
}

/* Operands of two dtypes are multiplied as f32. */
static double flops_of(const tt_roofline *r, const tt_node *n)
{
    if (!n->op || n->n_in < 2 || !multiplies_matrices(n->op))
        return r->vector;
    const tt_dtype a = n->in[0]->type.dtype, b = n->in[1]->type.dtype;
    return r->product[a == b ? a : TT_F32];
}

double tt_roofline_seconds(const tt_roofline *r, const tt_node *n, tt_cost c)
{
    const double flops = flops_of(r, n), compute = flops > 0 ? c.flops / flops : 0;
    const double memory = r->bandwidth > 0 ? c.bytes / r->bandwidth : 0;
    return TT_MAXV(compute, memory);
}
