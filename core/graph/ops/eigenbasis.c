/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/ops/internal.h"
#include <ttrun/arrays.h>

/* eigenbasis: a basis of eigenvectors of a, or a step towards one, or none, as a number for each matrix says
 * (<ttrun/eigenbasis.h>): most steps of an optimizer keep the basis, and the kernel then copies it. */

static tt_status infer_eigenbasis(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 3, 3, err));
    TT_TRY(tt_want_min_rank(q, 0, "a", 2, err));
    TT_TRY(tt_want_same(q, 0, 1, err));
    const tt_type *a = q->in[0], *how = q->in[2];
    const int last = a->n_dims - 1;
    for (int i = 0; i < 3; i++)
        if (q->in[i]->dtype != TT_F32)
            return tt_infer_fail(q, err, "the operands are f32");
    if (a->dims[last].size != a->dims[last - 1].size)
        return tt_infer_fail(q, err, "a matrix has as many rows as columns, not %lld and %lld",
                             (long long)a->dims[last - 1].size, (long long)a->dims[last].size);
    if (how->n_dims != a->n_dims || how->dims[last].size != 1 || how->dims[last - 1].size != 1)
        return tt_infer_fail(q, err, "the last operand has one number for each matrix, [..,1,1]");
    for (int d = 0; d < last - 1; d++)
        TT_TRY(tt_want_equal(q, 0, d, 2, d, err));
    out[0] = *a;
    return TT_OK;
}

static void rule_eigenbasis(const tt_shape_query *q, char *rule, size_t size)
{
    char z[4 * TT_MAX_DIMS] = "";
    for (int i = 0; i < q->in[0]->n_dims - 2; i++)
        snprintf(z + 3 * i, sizeof z - (size_t)(3 * i), "z%d ", i);
    snprintf(rule, size, "%s!i !j, %s!i !j, %s!u !v -> %s!i !j", z, z, z, z);
}

/* That of a copy, which it is in most steps. */
static tt_cost cost_eigenbasis(const tt_shape_query *q, const tt_type *out)
{
    return tt_cost_move(q, out);
}

const tt_op_def tt_op_eigenbasis = {
    .struct_size = sizeof(tt_op_def),
    .name = "eigenbasis",
    .operands = "a f32[..,n,n] symmetric, q f32[..,n,n], how f32[..,1,1] → [..,n,n]",
    .doc = "columns of a basis: how 0: q; 1: the Q of the QR decomposition of a·q; 2: eigenvectors "
           "of a, from the largest eigenvalue on (<ttrun/eigenbasis.h>)",
    .flags = TT_OP_NO_GRADIENT,
    .n_out = 1,
    .infer = infer_eigenbasis,
    .rule_for = rule_eigenbasis,
    .cost = cost_eigenbasis};

tt_value *tt_eigenbasis(tt_builder *b, tt_value *a, tt_value *q, tt_value *how)
{
    tt_value *in[] = {a, q, how};
    return tt_emit(b, "eigenbasis", in, 3, NULL);
}
