/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/expert_copy.h"
#include "passes/passes.h"
#include <string.h>

/* expert_passes: computes the rows of experts in several passes of bounded size (R8; docs/design/experts.md).
 * In the described graph an expert layer is expert_route, then what depends on it, up to expert_slots. Each
 * further pass is a copy of these nodes with another route: it has the slots that the passes before it have
 * left over. A slot has a row in one pass, and the others give 0 for it, so the sum of the passes is the
 * result to the bit. The backward computes the rows of further passes again: kept, those of all layers would
 * take the memory that the bound saves. */

typedef struct splitting {
    tt_expert_copy copy;
    int n_passes;
} splitting;

static const void *attrs_of_pass(const splitting *s, const tt_node *route, int pass)
{
    tt_attrs_dims *a = tt_arena_dup(s->copy.g->arena, route->attrs, sizeof *a);
    a->n_dims = 3;
    a->dims[1] = TT_DIM(pass, NULL);
    a->dims[2] = TT_DIM(s->n_passes, NULL);
    return a;
}

/* The number of slots of the further passes is logged with the load of the layer's experts. */
static void log_overflow(tt_graph *g, const tt_node *route, tt_value *overflow)
{
    for (size_t i = 0; i < g->loads.n; i++) {
        const tt_expert_load *l = &g->loads.items[i];
        if ((l->assign != route->in[0] && l->sent != route->in[0]) || !l->name || l->of != TT_LOAD)
            continue;
        const tt_expert_load made = {
            .assign = l->assign, .counts = overflow, .name = l->name, .of = TT_LOAD_OVERFLOW};
        tt_vec_push(g->arena, &g->loads, made);
        return;
    }
}

/* The further passes of the layer whose nodes are [route, end], all of which are in the list. */
static void add_passes(splitting *p, size_t route, size_t end)
{
    tt_expert_copy *s = &p->copy;
    tt_node *const *nodes = s->g->nodes.items;
    tt_node *first = nodes[route], *slots = nodes[end];
    tt_value *sum = slots->out[0], *overflow = NULL;
    const size_t mark = s->g->nodes.n;
    first->attrs = attrs_of_pass(p, first, 0);
    tt_builder_at(s->b, TT_FORWARD, 0, slots->block, slots->scope);
    for (int pass = 1; pass < p->n_passes; pass++) {
        memset(s->copy, 0, (size_t)s->n_values * sizeof(tt_value *));
        tt_expert_copy_node(s, first, attrs_of_pass(p, first, pass), false);
        tt_value *left = NULL;
        tt_op(s->b, "expert_placed", &s->copy[first->out[0]->id], 1, NULL, &left, 1);
        for (size_t k = route + 1; k < end; k++)
            if (tt_expert_copy_has(s, s->g->nodes.items[k]))
                tt_expert_copy_node(s, s->g->nodes.items[k], s->g->nodes.items[k]->attrs, true);
        tt_expert_copy_node(s, slots, slots->attrs, true);
        const bool follow = tt_builder_follow(s->b, true);
        sum = tt_add(s->b, sum, s->copy[slots->out[0]->id]);
        overflow = overflow ? tt_add(s->b, overflow, left) : left;
        tt_builder_follow(s->b, follow);
    }
    tt_expert_copy_take(s, mark);
    s->instead[slots->out[0]->id] = sum;
    log_overflow(s->g, first, overflow);
}

tt_status tt_pass_expert_passes(tt_builder *b, int n_passes, tt_error *err)
{
    tt_graph *g = tt_builder_graph(b);
    const size_t n = g->nodes.n;
    if (n_passes < 2)
        return TT_OK;
    splitting p = {tt_expert_copy_make(b), n_passes};
    size_t route = 0, end = 0;
    for (size_t i = 0; i < n; i++) {
        tt_node *e = g->nodes.items[i];
        tt_expert_copy_now_all(&p.copy, e);
        tt_vec_push(g->arena, &p.copy.list, e);
        if (e->op == &tt_op_expert_route && !tt_routes_to_replicas(e->attrs)) {
            route = i;
            end = tt_expert_copy_find(&p.copy, i, n);
        } else if (end && i == end) {
            add_passes(&p, route, end);
            end = 0;
        }
    }
    tt_expert_copy_finish(&p.copy);
    return tt_builder_finish(b, err);
}
