/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/passes.h"
#include <string.h>

/* share: the update of every stack computes the same scalars from the learning rate and the
 * step, AdamW about a dozen. All stacks read those of the first stack, and the order pass drops
 * the others. A scalar takes almost no memory, and the same operation on the same operands gives
 * the same bits (R11). */

typedef struct sharer {
    TT_VEC(tt_node *) kept; /* the first node of each kind */
} sharer;

/* Can this node be shared? It can if it is a scalar that the host writes before the step, a
 * constant, or a pointwise op without attributes. (The attributes of a cast are the dtype of its
 * result.) */
static bool can_share(const tt_node *n)
{
    if (n->when->region != TT_UPDATE || n->n_out != 1 || n->out[0]->type.n_dims ||
        n->role != TT_NODE_PLAIN || n->accumulate_into || n->assign_to)
        return false;
    if (n->op == &tt_op_state)
        return n->state->kind == TT_STATE_SCALAR;
    return n->op == &tt_op_const || tt_node_is_cast(n) ||
           ((n->op->flags & TT_OP_POINTWISE) && !n->op->attrs_size);
}

static bool is_same(const tt_node *a, const tt_node *b)
{
    if (a->op != b->op || a->n_in != b->n_in || a->state != b->state || a->when != b->when ||
        a->out[0]->type.dtype != b->out[0]->type.dtype ||
        !tt_placement_equal(&a->out[0]->place, &b->out[0]->place))
        return false;
    for (int j = 0; j < a->n_in; j++)
        if (a->in[j] != b->in[j])
            return false;
    const tt_attrs_const *x = a->attrs, *y = b->attrs;
    return a->op != &tt_op_const || !memcmp(&x->value, &y->value, sizeof x->value);
}

static tt_node *kept_like(const sharer *s, const tt_node *n)
{
    for (size_t i = 0; i < s->kept.n; i++)
        if (is_same(s->kept.items[i], n))
            return s->kept.items[i];
    return NULL;
}

tt_status tt_pass_share(tt_graph *g, tt_error *err)
{
    sharer s = {0};
    tt_value **instead = tt_arena_array(g->arena, (size_t)g->n_values + 1, sizeof *instead);
    for (size_t i = 0; i < g->nodes.n; i++) {
        tt_node *n = g->nodes.items[i];
        for (int j = 0; j < n->n_in; j++)
            if (instead[n->in[j]->id])
                n->in[j] = instead[n->in[j]->id];
        if (!can_share(n))
            continue;
        const tt_node *like = kept_like(&s, n);
        if (like)
            instead[n->out[0]->id] = like->out[0];
        else
            tt_vec_push(g->arena, &s.kept, n);
    }
    return tt_graph_verify(g, "share", err);
}
