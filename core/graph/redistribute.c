/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/builder_impl.h"
#include "graph/rows.h"

/* Nodes that give the same value elsewhere: in another placement (redistribute, R1) or on another stage
 * (transfer). Also the nodes that read state and add to it (R7). */

static tt_versions *versions_of(tt_builder *b, tt_value *root)
{
    while ((int)b->versions.n <= root->id)
        tt_vec_push(b->arena, &b->versions, NULL);
    tt_versions **slot = &b->versions.items[root->id];
    if (!*slot) {
        *slot = tt_arena_alloc(b->arena, sizeof **slot);
        tt_vec_push(b->arena, &(*slot)->items, root);
    }
    return *slot;
}

tt_node *tt_identity_node(tt_builder *b, const tt_op_def *op, tt_value *v, const tt_placement *to)
{
    tt_node *n = tt_node_new(b, op, &v, 1, &v->type, to, 1);
    n->role = TT_NODE_PLAIN;
    return n;
}

/* A version can be read here if its node is on this stage and runs before: one that an epilogue
 * computes does not exist in a forward. */
static bool version_usable(const tt_builder *b, const tt_value *w)
{
    return (!w->node->when->measured || b->when->measured) &&
           w->node->when->stage == b->when->stage && w->node->when->region <= b->when->region &&
           (w->node->when->region == b->when->region || b->when->region <= TT_BACKWARD);
}

tt_value *tt_redistribute(tt_builder *b, tt_value *v, const tt_placement *to)
{
    if (b->failed || tt_placement_equal(&v->place, to) || !tt_local_allows(b, v, to))
        return v;
    tt_value *root = tt_value_root(v), *best = NULL;
    tt_versions *vs = versions_of(b, root);
    double best_cost = 0;
    for (size_t i = 0; i < vs->items.n; i++) {
        tt_value *w = vs->items.items[i];
        if (!version_usable(b, w))
            continue;
        if (tt_placement_equal(&w->place, to))
            return w;
        const double c =
            tt_lower_cost(b->g->mesh, root->type.dims, root->type.n_dims, &w->place, to);
        if (!best || c < best_cost)
            best = w, best_cost = c;
    }
    if (!best)
        best = v;
    tt_value *made = tt_local_source(b, root, to);
    if (!made)
        made = tt_identity_node(b, &tt_op_redistribute, best, to)->out[0];
    tt_vec_push(b->arena, &vs->items, made);
    return made;
}

tt_value *tt_redistribute_rows(tt_builder *b, tt_value *v, const tt_placement *to, tt_value *sent,
                               tt_value *received)
{
    tt_value *w = tt_redistribute(b, v, to);
    tt_node *n = w->node;
    if (b->failed || b->opts.device || n->op != &tt_op_redistribute || n->in[0] != v ||
        n->n_in != 1)
        return w;
    tt_value *in[3] = {v, sent, received};
    n->in = tt_arena_dup(b->arena, in, sizeof in);
    n->n_in = 3;
    return w;
}

bool tt_node_sends_rows(const tt_node *n)
{
    return n->op == &tt_op_collective && n->step->kind == TT_STEP_ALL_TO_ALL && n->n_in == 3;
}

double tt_step_elements(const tt_graph *g, const tt_node *n)
{
    const bool later = n->out[0]->type.n_dims > 1 && n->out[0]->type.dims[1].label != NULL;
    return n->step->cost *
           (tt_node_sends_rows(n) ? tt_expert_rows_share(g, g->expert_skew, later) : 1);
}

void tt_redistribute_from(tt_builder *b, tt_node *r, tt_value *v)
{
    r->in[0] = v;
    tt_vec_push(b->arena, &versions_of(b, tt_value_root(v))->items, r->out[0]);
}

/* v on a stage next to its own. All readers on that stage share the transfer. */
static tt_value *transfer_once(tt_builder *b, tt_value *v, int to)
{
    for (size_t i = 0; i < b->transfers.n; i++) {
        tt_value *t = b->transfers.items[i];
        if (t->node->in[0] == v && t->node->when->stage == to)
            return t;
    }
    tt_node *n = tt_identity_node(b, &tt_op_transfer, v, &v->place);
    tt_when w = *n->when;
    w.stage = to;
    n->when = tt_when_intern(b->g, w);
    n->block = -1;
    tt_vec_push(b->arena, &b->transfers, n->out[0]);
    return n->out[0];
}

tt_value *tt_transfer_direct(tt_builder *b, tt_value *v, int to_stage)
{
    return b->failed || v->node->when->stage == to_stage ? v : transfer_once(b, v, to_stage);
}

tt_value *tt_transfer(tt_builder *b, tt_value *v, int to_stage)
{
    while (v->node->when->stage != to_stage)
        v = transfer_once(b, v, v->node->when->stage + (to_stage > v->node->when->stage ? 1 : -1));
    return v;
}

/* ---- named state ---- */

tt_value *tt_state_read(tt_builder *b, tt_state *s)
{
    tt_node *n = tt_node_new(b, &tt_op_state, NULL, 0, &s->type, &s->place, 1);
    n->state = s;
    s->stages |= UINT64_C(1) << b->when->stage;
    return n->out[0];
}

tt_value *tt_load(tt_builder *b, tt_value *v, int first, int n)
{
    if (b->failed)
        return v;
    tt_node *l = tt_identity_node(b, &tt_op_load, v, &v->place);
    l->state = v->node->state;
    l->accumulate_index = first;
    l->out[0]->type.dims[0].size = n;
    return l->out[0];
}

void tt_accumulate(tt_builder *b, tt_state *s, int index, tt_value *v)
{
    if (b->failed)
        return;
    tt_node *n = tt_node_new(b, &tt_op_accumulate, &v, 1, NULL, NULL, 0);
    n->state = s;
    n->accumulate_index = index;
    s->stages |= UINT64_C(1) << b->when->stage;
}

tt_value *tt_stage_sum(tt_builder *b, tt_value *const *xs, int n)
{
    if (b->failed)
        return tt_placeholder(b);
    if (n == 1 && b->g->n_stages == 1)
        return xs[0];
    tt_placement whole = {0};
    tt_node *s = tt_node_new(b, &tt_op_stage_sum, xs, n, &xs[0]->type, &whole, 1);
    return s->out[0];
}
