/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/builder_impl.h"
#include <string.h>

/* Leaves and the nodes that are the identity in meaning: fetch, state, redistribute, transfer; and
 * the only two that write: accumulate and assign (R1, R6, R7). */

static tt_status no_infer(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    (void)out;
    return TT_FAIL(err, TT_EINVAL, "op %s is built by the core alone", q->op);
}

#define SPECIAL(name_, doc_)                                                                       \
    {                                                                                              \
        .struct_size = sizeof(tt_op_def), .name = (name_), .doc = (doc_), .rule = "", .n_out = 1,  \
        .infer = no_infer                                                                          \
    }
const tt_op_def tt_op_param = SPECIAL("param", "a parameter as stored");
const tt_op_def tt_op_input =
    SPECIAL("input", "an input of the step: each data rank has its sequences");
const tt_op_def tt_op_state = SPECIAL("state", "read named state");
const tt_op_def tt_op_fetch = SPECIAL("fetch", "a parameter as computed with");
const tt_op_def tt_op_redistribute = SPECIAL("redistribute", "the same value, stored otherwise");
const tt_op_def tt_op_transfer = SPECIAL("transfer", "the same value on another stage");
const tt_op_def tt_op_accumulate = SPECIAL("accumulate", "add to an accumulator");
const tt_op_def tt_op_assign = SPECIAL("assign", "write state");
const tt_op_def tt_op_custom = SPECIAL("custom", "ops with a derivative of their own");
const tt_op_def tt_op_stage_sum = SPECIAL("stage_sum", "the sum of one scalar a stage");
const tt_op_def tt_op_collective = SPECIAL("collective", "one step of a lowered redistribute");

bool tt_node_is_cast(const tt_node *n)
{
    return (n->op->flags & TT_OP_CAST) != 0;
}

tt_value *tt_value_root(tt_value *v)
{
    while (v->node && v->node->op == &tt_op_redistribute)
        v = v->node->in[0];
    return v;
}

bool tt_value_per_token(const tt_graph *g, const tt_value *v)
{
    const tt_dim *d = v->type.dims;
    return v->type.n_dims >= 1 && d->size == g->tokens && d->lines == g->sequences &&
           (!d->label || !strcmp(d->label, TT_LABEL_TOKENS)); /* no table of as many rows */
}

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

/* A node that is the identity in meaning. It is shared by all who want the value so, and so has a
 * derivative even where the first of them is inside an expansion or a tt_custom_vjp. */
static tt_node *identity_node(tt_builder *b, const tt_op_def *op, tt_value *v,
                              const tt_placement *to)
{
    tt_node *n = tt_node_new(b, op, &v, 1, &v->type, to, 1);
    n->role = TT_NODE_PLAIN;
    return n;
}

/* A version made in an epilogue is not there in a forward: reuse only what ran before on the same
 * stage. */
static bool version_usable(const tt_builder *b, const tt_value *w)
{
    return w->node->when->stage == b->when->stage && w->node->when->region <= b->when->region &&
           (w->node->when->region == b->when->region || b->when->region <= TT_BACKWARD);
}

tt_value *tt_redistribute(tt_builder *b, tt_value *v, const tt_placement *to)
{
    if (b->failed || tt_placement_equal(&v->place, to))
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
    tt_node *n = identity_node(b, &tt_op_redistribute, best, to);
    tt_vec_push(b->arena, &vs->items, n->out[0]);
    return n->out[0];
}

tt_value *tt_fetch(tt_builder *b, tt_param_info *p)
{
    const int last = (int)(intptr_t)tt_map_get(b->last_fetch, p->name);
    for (int i = last; i > 0; i = b->fetches.items[i - 1].before) {
        const tt_fetch_key *k = &b->fetches.items[i - 1];
        if (k->param == p && k->block == b->block && k->when == b->when)
            return k->value;
    }
    tt_node *leaf = tt_node_new(b, &tt_op_param, NULL, 0, &p->type, &p->stored, 1);
    leaf->param = p;
    tt_value *v = leaf->out[0];
    if (p->type.dtype != b->g->precision.compute) { /* on the shard: the gather moves the cast */
        const bool was = tt_builder_follow(b, true), inner = b->inner;
        b->inner = false; /* as the fetch */
        v = tt_cast(b, v, b->g->precision.compute);
        b->inner = inner;
        tt_builder_follow(b, was);
        if (b->failed)
            return v;
        v->node->param = p;
    }
    tt_node *n = identity_node(b, &tt_op_fetch, v, &p->compute);
    n->param = p;
    p->stages |= UINT64_C(1) << b->when->stage;
    tt_fetch_key k = {p, b->block, b->when, n->out[0], last};
    tt_vec_push(b->arena, &b->fetches, k);
    tt_map_set(b->last_fetch, p->name, (void *)(intptr_t)b->fetches.n);
    return n->out[0];
}

tt_value *tt_state_read(tt_builder *b, tt_state *s)
{
    tt_node *n = tt_node_new(b, &tt_op_state, NULL, 0, &s->type, &s->place, 1);
    n->state = s;
    s->stages |= UINT64_C(1) << b->when->stage;
    return n->out[0];
}

/* v one stage on: the same transfer for all uses there. */
static tt_value *transfer_once(tt_builder *b, tt_value *v, int to)
{
    for (size_t i = 0; i < b->transfers.n; i++) {
        tt_value *t = b->transfers.items[i];
        if (t->node->in[0] == v && t->node->when->stage == to)
            return t;
    }
    tt_node *n = identity_node(b, &tt_op_transfer, v, &v->place);
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

#define CLONE_DEPTH 16 /* of what is cheaper computed again than sent */

/* Is v computed from inputs and constants alone, in a few steps? */
static bool from_inputs(const tt_value *v, int depth)
{
    const tt_node *n = v->node;
    if (n->op == &tt_op_input || (!n->n_in && !v->type.n_dims && n->op != &tt_op_state))
        return true;
    if (depth == 0 || !n->n_in || n->role != TT_NODE_PLAIN || n->when->region != TT_FORWARD ||
        n->op == &tt_op_fetch || n->op == &tt_op_transfer)
        return false;
    for (int i = 0; i < n->n_in; i++)
        if (!from_inputs(tt_value_root(n->in[i]), depth - 1))
            return false;
    return true;
}

/* The same op on the same inputs, on this stage: rope tables and masks do not cross (R10). */
static tt_value *clone_here(tt_builder *b, tt_value *v)
{
    tt_value *in[TT_MAX_INS], *out[TT_MAX_OUTS] = {NULL};
    for (size_t i = 0; i < b->clones.n; i++)
        if (b->clones.items[i].of == v &&
            b->clones.items[i].value->node->when->stage == b->when->stage &&
            b->clones.items[i].value->node->when->region == b->when->region)
            return b->clones.items[i].value;
    const tt_node *n = v->node;
    for (int i = 0; i < n->n_in; i++)
        in[i] = tt_to_stage(b, n->in[i]);
    tt_op(b, n->op->name, in, n->n_in, n->attrs, out, n->n_out);
    const tt_clone c = {v, out[v->out]};
    tt_vec_push(b->arena, &b->clones, c);
    return c.value;
}

tt_value *tt_to_stage(tt_builder *b, tt_value *v)
{
    if (b->failed || v->node->when->stage == b->when->stage)
        return v;
    tt_value *root = tt_value_root(v);
    if (root->node->op == &tt_op_input)
        return tt_input(b, root->node->input_name);
    if (root->node->op == &tt_op_state)
        return tt_state_read(b, root->node->state);
    if (root->node->n_in == 0 && root->type.n_dims == 0) { /* constants are cloned */
        tt_value *out = NULL;
        tt_op(b, root->node->op->name, NULL, 0, root->node->attrs, &out, 1);
        return out;
    }
    if (from_inputs(root, CLONE_DEPTH))
        return clone_here(b, root);
    return tt_transfer(b, v, b->when->stage);
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

void tt_state_assign(tt_builder *b, tt_state *s, tt_value *v)
{
    if (b->failed)
        return;
    v = tt_redistribute(b, tt_cast(b, v, s->type.dtype), &s->place);
    tt_node *n = tt_node_new(b, &tt_op_assign, &v, 1, NULL, NULL, 0);
    n->state = s;
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

tt_state *tt_state_new(tt_graph *g, tt_state_kind kind, const char *name, const tt_type *type,
                       const tt_placement *place)
{
    tt_state *s = tt_arena_alloc(g->arena, sizeof *s);
    s->id = (int)g->states.n;
    s->kind = kind;
    s->name = tt_arena_str(g->arena, name);
    s->type = *type;
    s->place = *place;
    tt_vec_push(g->arena, &g->states, s);
    return s;
}

tt_state *tt_graph_state(const tt_graph *g, tt_state_kind kind, const char *name)
{
    for (size_t i = 0; i < g->states.n; i++)
        if (g->states.items[i]->kind == kind && !strcmp(g->states.items[i]->name, name))
            return g->states.items[i];
    return NULL;
}

tt_state *tt_stack_grad(const tt_stack *s, int stage)
{
    for (int i = 0; i < s->n_grads; i++)
        if (s->grads[i]->stages >> stage & 1)
            return s->grads[i];
    return s->grad;
}

void tt_builder_chunk_loop(tt_builder *b, bool in)
{
    tt_when w = *b->when;
    w.in_chunk_loop = in;
    b->when = tt_when_intern(b->g, w);
}

void tt_builder_inner(tt_builder *b, bool inner)
{
    b->inner = inner;
}

void tt_builder_replicated(tt_builder *b, uint64_t stages)
{
    tt_when w = *b->when;
    w.replicated_stages = stages;
    b->when = tt_when_intern(b->g, w);
}

tt_value *tt_broadcast_like(tt_builder *b, tt_value *scalar, tt_value *like)
{
    if (b->failed)
        return tt_placeholder(b);
    tt_attrs_dims a = {.n_dims = like->type.n_dims};
    memcpy(a.dims, like->type.dims, sizeof a.dims);
    tt_type t = like->type;
    t.dtype = scalar->type.dtype;
    tt_placement place = like->place;
    place.partial = 0;
    place.partial_max = 0;
    scalar = tt_to_stage(b, scalar);
    tt_node *n = tt_node_new(b, &tt_op_broadcast, &scalar, 1, &t, &place, 1);
    n->attrs = tt_arena_dup(b->arena, &a, sizeof a);
    return n->out[0];
}

tt_value *tt_pick(tt_builder *b, tt_value *x, tt_value *idx)
{
    tt_value *in[2] = {x, idx}, *y = NULL;
    tt_op(b, "pick", in, 2, NULL, &y, 1);
    return y;
}

tt_value *tt_line_sum(tt_builder *b, tt_value *x)
{
    tt_value *y = NULL;
    tt_op(b, "line_sum", &x, 1, NULL, &y, 1);
    return y;
}
