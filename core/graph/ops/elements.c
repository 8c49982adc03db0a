/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/graph.h"
#include "graph/ops/internal.h"
#include "graph/rewrite.h"

/* elements: from which element of an operand each element of a node's result comes, for ops that move elements
 * or multiply each by a number. A value's elements are those of one token: dim 0 is the tokens'; an operand
 * without that dim, such as a bias, has all its elements. */

/* Elements per token, or 0: the first dim is not the tokens'. */
static int64_t row_elements(const tt_type *t, int64_t tokens)
{
    return t->n_dims && t->dims[0].size == tokens ? tt_type_numel(t) / tokens : 0;
}

int64_t tt_result_elements(const tt_node *n)
{
    const tt_type *y = &n->out[0]->type;
    return y->n_dims ? row_elements(y, y->dims[0].size) : 0;
}

int64_t tt_operand_elements(const tt_node *n, int i)
{
    const tt_type *x = &n->in[i]->type;
    const bool row = x->n_dims == n->out[0]->type.n_dims || n->op == &tt_op_reshape;
    return row ? tt_type_numel(x) / x->dims[0].size : tt_type_numel(x);
}

/* The operand x broadcasts to y: pointwise ops and broadcast. */
static bool from_broadcast(const tt_type *x, const tt_type *y, int64_t *from)
{
    const int ahead = y->n_dims - x->n_dims;
    const int64_t n = row_elements(y, y->dims[0].size);
    int64_t stride[TT_MAX_DIMS] = {0}, step = 1;
    if (ahead < 0)
        return false;
    for (int d = y->n_dims - 1; d > 0; d--) {
        const int64_t size = d >= ahead ? x->dims[d - ahead].size : 1;
        stride[d] = size == 1 ? 0 : step;
        step *= size;
    }
    for (int64_t e = 0; e < n; e++) {
        int64_t rest = e;
        from[e] = 0;
        for (int d = y->n_dims - 1; d > 0; d--) {
            from[e] += rest % y->dims[d].size * stride[d];
            rest /= y->dims[d].size;
        }
    }
    return true;
}

/* Index `at` of the operand along `dim` is index at + shift of the result. The result's other indices come from
 * other operands, or from none. */
static bool from_part(const tt_type *x, const tt_type *y, int dim, int64_t shift, int64_t *from)
{
    int64_t inner = 1;
    const int64_t n = row_elements(y, y->dims[0].size), has = x->dims[dim].size,
                  size = y->dims[dim].size;
    if (dim < 1)
        return false;
    for (int d = dim + 1; d < y->n_dims; d++)
        inner *= y->dims[d].size;
    for (int64_t e = 0; e < n; e++) {
        const int64_t at = e / inner % size - shift, outer = e / inner / size;
        from[e] = at < 0 || at >= has ? -1 : (outer * has + at) * inner + e % inner;
    }
    return true;
}

static bool from_transpose(const tt_type *x, const tt_type *y, const int32_t *perm, int64_t *from)
{
    int64_t stride[TT_MAX_DIMS] = {0}, step = 1;
    if (perm[0] != 0)
        return false;
    for (int d = x->n_dims - 1; d > 0; d--) {
        stride[d] = step;
        step *= x->dims[d].size;
    }
    for (int64_t e = 0; e < step; e++) {
        int64_t rest = e;
        from[e] = 0;
        for (int d = y->n_dims - 1; d > 0; d--) {
            from[e] += rest % y->dims[d].size * stride[perm[d]];
            rest /= y->dims[d].size;
        }
    }
    return true;
}

static bool from_concat(const tt_node *n, int i, int64_t *from)
{
    const int dim = ((const tt_attrs_concat *)n->attrs)->dim;
    int64_t before = 0;
    for (int k = 0; k < i; k++)
        before += n->in[k]->type.dims[dim].size;
    return from_part(&n->in[i]->type, &n->out[0]->type, dim, before, from);
}

/* Is n a product, element by element, of operand i and others? */
static bool multiplies(const tt_op_def *op, int i)
{
    return op == &tt_op_mul || ((op == &tt_op_scale_by || op == &tt_op_div) && i == 0);
}

tt_elements tt_node_elements(const tt_node *n, int i, int64_t *from)
{
    const tt_type *x = &n->in[i]->type, *y = &n->out[0]->type;
    const tt_op_def *op = n->op;
    tt_elements none = {.kind = TT_ELEMENTS_UNKNOWN}, moved = {.kind = TT_ELEMENTS_MOVED};
    bool known = false;
    if (op == &tt_op_rms_norm || op == &tt_op_layer_norm)
        return (tt_elements){.kind = i ? TT_ELEMENTS_UNKNOWN : TT_ELEMENTS_NORMALIZED};
    if (n->n_out != 1 || !y->n_dims || !row_elements(y, y->dims[0].size))
        return none;
    if (op == &tt_op_concat)
        known = from_concat(n, i, from);
    else if (op == &tt_op_slice) {
        const tt_attrs_slice *a = n->attrs;
        known = from_part(x, y, tt_dim_index(a->dim, x->n_dims), -a->begin, from);
    } else if (op == &tt_op_transpose)
        known = from_transpose(x, y, ((const tt_attrs_perm *)n->attrs)->perm, from);
    else if (op == &tt_op_reshape || op == &tt_op_rope) {
        known = i == 0 && row_elements(x, y->dims[0].size) == row_elements(y, y->dims[0].size);
        for (int64_t e = 0; known && e < row_elements(y, y->dims[0].size); e++)
            from[e] = e;
        if (op == &tt_op_rope)
            moved.mixed = ((const tt_attrs_rope *)n->attrs)->opts.head_dim;
    } else if (op == &tt_op_add || op == &tt_op_sub) {
        moved.kind = TT_ELEMENTS_ADDED;
        known = from_broadcast(x, y, from);
    } else if (multiplies(op, i)) {
        moved.kind = TT_ELEMENTS_MULTIPLIED;
        known = from_broadcast(x, y, from);
    } else if (op == &tt_op_scale || op == &tt_op_neg || op == &tt_op_broadcast ||
               (op->flags & TT_OP_CAST))
        known = from_broadcast(x, y, from);
    return known ? moved : none;
}
