/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/rewrite.h"
#include "passes/passes.h"
#include <string.h>

/* expert_passes: computes the rows of experts in several passes of bounded size (R8; docs/design/experts.md).
 * In the described graph an expert layer is expert_route, then what depends on it, up to expert_slots. Each
 * further pass is a copy of these nodes with another route: it has the slots that the passes before it have
 * left over. A slot has a row in one pass, and the others give 0 for it, so the sum of the passes is the
 * result to the bit. The backward computes the rows of further passes again: kept, those of all layers would
 * take the memory that the bound saves. */

typedef struct splitting {
    tt_builder *b;
    tt_graph *g;
    int n_passes;
    tt_value **instead; /* by id of a value of the graph as it was: what later nodes read for it */
    tt_value **copy;    /* … its copy in the pass that is made now; NULL: all passes read it */
    bool *depends, *needed;
    int n_values;
    TT_VEC(tt_node *) list;
} splitting;

static tt_value *now(const splitting *s, tt_value *v)
{
    return v && v->id < s->n_values && s->instead[v->id] ? s->instead[v->id] : v;
}

static void now_all(const splitting *s, tt_node *n)
{
    for (int i = 0; i < n->n_in; i++)
        n->in[i] = now(s, n->in[i]);
}

/* Moves the nodes that the builder has made from `first` on to the list. */
static void take_new(splitting *s, size_t first)
{
    for (size_t i = first; i < s->g->nodes.n; i++)
        tt_vec_push(s->g->arena, &s->list, s->g->nodes.items[i]);
    s->g->nodes.n = first;
}

/* The node's operands in the pass that is made. */
static tt_value **copied(const splitting *s, tt_value *const *v, int n)
{
    tt_value **to = tt_arena_array(s->g->arena, (size_t)n + 1, sizeof *to);
    for (int i = 0; i < n; i++)
        to[i] = v[i]->id < s->n_values && s->copy[v[i]->id] ? s->copy[v[i]->id] : v[i];
    return to;
}

static void copy_node(splitting *s, const tt_node *n, const void *attrs, bool again)
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

/* Finds what depends on the route, and of that what the slots need. Returns the index of expert_slots; 0:
 * there is none, or it is no part of this route's layer alone. */
static size_t find_layer(splitting *s, size_t route, size_t n)
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

static bool is_copied(const splitting *s, const tt_node *n)
{
    for (int i = 0; i < n->n_out; i++)
        if (s->depends[n->out[i]->id] && s->needed[n->out[i]->id])
            return true;
    return false;
}

static const void *attrs_of_pass(const splitting *s, const tt_node *route, int pass)
{
    tt_attrs_dims *a = tt_arena_dup(s->g->arena, route->attrs, sizeof *a);
    a->n_dims = 3;
    a->dims[1] = TT_DIM(pass, NULL);
    a->dims[2] = TT_DIM(s->n_passes, NULL);
    return a;
}

/* The number of slots of the further passes is logged with the load of the layer's experts. */
static void log_overflow(splitting *s, const tt_node *route, tt_value *overflow)
{
    for (size_t i = 0; i < s->g->loads.n; i++) {
        const tt_expert_load *l = &s->g->loads.items[i];
        if (l->assign != route->in[0] || !l->name || l->overflow)
            continue;
        const tt_expert_load made = {
            .assign = l->assign, .counts = overflow, .name = l->name, .overflow = true};
        tt_vec_push(s->g->arena, &s->g->loads, made);
        return;
    }
}

/* The further passes of the layer whose nodes are [route, end], all of which are in the list. */
static void add_passes(splitting *s, size_t route, size_t end)
{
    tt_node *const *nodes = s->g->nodes.items;
    tt_node *first = nodes[route], *slots = nodes[end];
    tt_value *sum = slots->out[0], *overflow = NULL;
    const size_t mark = s->g->nodes.n;
    first->attrs = attrs_of_pass(s, first, 0);
    tt_builder_at(s->b, TT_FORWARD, 0, slots->block, slots->scope);
    for (int pass = 1; pass < s->n_passes; pass++) {
        memset(s->copy, 0, (size_t)s->n_values * sizeof(tt_value *));
        copy_node(s, first, attrs_of_pass(s, first, pass), false);
        tt_value *left = NULL;
        tt_op(s->b, "expert_placed", &s->copy[first->out[0]->id], 1, NULL, &left, 1);
        for (size_t k = route + 1; k < end; k++)
            if (is_copied(s, s->g->nodes.items[k]))
                copy_node(s, s->g->nodes.items[k], s->g->nodes.items[k]->attrs, true);
        copy_node(s, slots, slots->attrs, true);
        const bool follow = tt_builder_follow(s->b, true);
        sum = tt_add(s->b, sum, s->copy[slots->out[0]->id]);
        overflow = overflow ? tt_add(s->b, overflow, left) : left;
        tt_builder_follow(s->b, follow);
    }
    take_new(s, mark);
    s->instead[slots->out[0]->id] = sum;
    log_overflow(s, first, overflow);
}

static void replace_results(splitting *s)
{
    tt_graph *g = s->g;
    for (size_t i = 0; i < tt_map_size(g->outputs); i++)
        tt_map_set(g->outputs, tt_map_key(g->outputs, i), now(s, tt_map_value(g->outputs, i)));
    for (size_t i = 0; i < g->losses.n; i++)
        g->losses.items[i].value = now(s, g->losses.items[i].value);
    for (size_t i = 0; i < g->metrics.n; i++)
        g->metrics.items[i].value = now(s, g->metrics.items[i].value);
    for (size_t i = 0; i < g->buffer_updates.n; i++)
        g->buffer_updates.items[i].stat = now(s, g->buffer_updates.items[i].stat);
    g->loss = now(s, g->loss);
}

tt_status tt_pass_expert_passes(tt_builder *b, int n_passes, tt_error *err)
{
    tt_graph *g = tt_builder_graph(b);
    splitting s = {.b = b, .g = g, .n_passes = n_passes, .n_values = g->n_values};
    const size_t n = g->nodes.n, room = (size_t)g->n_values + 1;
    if (n_passes < 2)
        return TT_OK;
    s.instead = tt_arena_array(g->arena, room, sizeof *s.instead);
    s.copy = tt_arena_array(g->arena, room, sizeof *s.copy);
    s.depends = tt_arena_array(g->arena, room, sizeof *s.depends);
    s.needed = tt_arena_array(g->arena, room, sizeof *s.needed);
    size_t route = 0, end = 0;
    for (size_t i = 0; i < n; i++) {
        tt_node *e = g->nodes.items[i];
        now_all(&s, e);
        tt_vec_push(g->arena, &s.list, e);
        if (e->op == &tt_op_expert_route) {
            route = i;
            end = find_layer(&s, i, n);
        } else if (end && i == end) {
            add_passes(&s, route, end);
            end = 0;
        }
    }
    g->nodes.items = s.list.items;
    g->nodes.n = s.list.n;
    g->nodes.cap = s.list.cap;
    replace_results(&s);
    return tt_builder_finish(b, err);
}
