/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/expert_copy.h"
#include <string.h>

tt_expert_copy tt_expert_copy_make(tt_builder *b)
{
    tt_graph *g = tt_builder_graph(b);
    tt_expert_copy s = {.b = b, .g = g, .n_values = g->n_values};
    const size_t room = (size_t)g->n_values + 1;
    s.instead = tt_arena_array(g->arena, room, sizeof *s.instead);
    s.copy = tt_arena_array(g->arena, room, sizeof *s.copy);
    s.depends = tt_arena_array(g->arena, room, sizeof *s.depends);
    s.needed = tt_arena_array(g->arena, room, sizeof *s.needed);
    return s;
}

tt_value *tt_expert_copy_now(const tt_expert_copy *s, tt_value *v)
{
    return v && v->id < s->n_values && s->instead[v->id] ? s->instead[v->id] : v;
}

void tt_expert_copy_now_all(const tt_expert_copy *s, tt_node *n)
{
    for (int i = 0; i < n->n_in; i++)
        n->in[i] = tt_expert_copy_now(s, n->in[i]);
}

void tt_expert_copy_take(tt_expert_copy *s, size_t first)
{
    for (size_t i = first; i < s->g->nodes.n; i++)
        tt_vec_push(s->g->arena, &s->list, s->g->nodes.items[i]);
    s->g->nodes.n = first;
}

/* The node's operands in the copy that is made. */
static tt_value **copied(const tt_expert_copy *s, tt_value *const *v, int n)
{
    tt_value **to = tt_arena_array(s->g->arena, (size_t)n + 1, sizeof *to);
    for (int i = 0; i < n; i++)
        to[i] = v[i]->id < s->n_values && s->copy[v[i]->id] ? s->copy[v[i]->id] : v[i];
    return to;
}

void tt_expert_copy_node(tt_expert_copy *s, const tt_node *n, const void *attrs, bool again)
{
    tt_type types[TT_MAX_OUTS];
    const bool expanded = n->role == TT_NODE_EXPANDED;
    for (int i = 0; i < n->n_out; i++)
        types[i] = n->out[i]->type;
    tt_builder_again(s->b, again);
    tt_node *c = tt_node_new(s->b, n->op, copied(s, n->in, n->n_in), n->n_in, types, NULL,
                             expanded ? 0 : n->n_out);
    tt_builder_again(s->b, false);
    c->attrs = attrs;
    c->role = n->role;
    c->follow = n->follow;
    c->finest = n->finest;
    c->custom_vjp = n->custom_vjp;
    c->custom_user = n->custom_user;
    if (expanded) {
        c->out = copied(s, n->out, n->n_out);
        c->n_out = n->n_out;
    }
    for (int i = 0; !expanded && i < n->n_out; i++)
        s->copy[n->out[i]->id] = c->out[i];
}

size_t tt_expert_copy_find(tt_expert_copy *s, size_t route, size_t n)
{
    tt_node *const *nodes = s->g->nodes.items;
    size_t end = 0;
    memset(s->depends, 0, (size_t)s->n_values * sizeof *s->depends);
    memset(s->needed, 0, (size_t)s->n_values * sizeof *s->needed);
    for (int i = 0; i < nodes[route]->n_out; i++)
        s->depends[nodes[route]->out[i]->id] = true;
    for (size_t k = route + 1; !end && k < n; k++) {
        bool any = false;
        for (int i = 0; i < nodes[k]->n_in; i++)
            any = any || s->depends[nodes[k]->in[i]->id];
        for (int i = 0; any && i < nodes[k]->n_out; i++)
            s->depends[nodes[k]->out[i]->id] = true;
        if (any && nodes[k]->op == &tt_op_expert_slots)
            end = k;
    }
    for (int i = 0; end && i < nodes[end]->n_in; i++)
        s->needed[nodes[end]->in[i]->id] = true;
    for (size_t k = end; k-- > route + 1;) {
        bool any = false;
        for (int i = 0; i < nodes[k]->n_out; i++)
            any = any || (s->needed[nodes[k]->out[i]->id] && s->depends[nodes[k]->out[i]->id]);
        for (int i = 0; any && i < nodes[k]->n_in; i++)
            s->needed[nodes[k]->in[i]->id] = true;
    }
    return end;
}

bool tt_expert_copy_has(const tt_expert_copy *s, const tt_node *n)
{
    for (int i = 0; i < n->n_out; i++)
        if (s->depends[n->out[i]->id] && s->needed[n->out[i]->id])
            return true;
    return false;
}

static tt_value *now_of(const void *copy, tt_value *v)
{
    return tt_expert_copy_now(copy, v);
}

void tt_expert_copy_finish(tt_expert_copy *s)
{
    tt_graph *g = s->g;
    g->nodes.items = s->list.items;
    g->nodes.n = s->list.n;
    g->nodes.cap = s->list.cap;
    tt_graph_replace_named(g, now_of, s);
}
