/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/passes.h"
#include <string.h>

/* lower: every redistribute and fetch (from, to) becomes a sequence of collectives and local
 * copies, each of one kind (R1). Equal placements need none. If an input is redistributed to a
 * part of what its data rank has, the input itself gets that placement: the loader can fill any
 * part. */

typedef struct lowerer {
    tt_graph *g;
    tt_value **now; /* by value id: what replaces it */
    int n_values;   /* when the pass began */
    TT_VEC(tt_node *) list;
} lowerer;

static tt_value *replaced(lowerer *l, tt_value *v)
{
    while (v->id < l->n_values && l->now[v->id])
        v = l->now[v->id];
    return v;
}

/* `rows`: it is the only step of `from`, and has its counts of rows, if there are any. */
static tt_value *emit_step(lowerer *l, const tt_node *from, tt_value *v, const tt_lower_step *s,
                           bool rows)
{
    tt_node *n = tt_arena_dup(l->g->arena, from, sizeof *from);
    n->id = l->g->n_ids++;
    n->op = &tt_op_collective;
    n->step = tt_arena_dup(l->g->arena, s, sizeof *s);
    n->n_in = rows && s->kind == TT_STEP_ALL_TO_ALL ? from->n_in : 1;
    n->in = tt_arena_array(l->g->arena, (size_t)n->n_in + 1, sizeof *n->in);
    n->in[0] = v;
    for (int i = 1; i < n->n_in; i++)
        n->in[i] = replaced(l, from->in[i]);
    n->out = tt_arena_array(l->g->arena, 2, sizeof *n->out);
    tt_value *w = tt_arena_dup(l->g->arena, from->out[0], sizeof *w);
    w->id = l->g->n_values++;
    w->place = s->dst;
    w->node = n;
    n->out[0] = w;
    tt_vec_push(l->g->arena, &l->list, n);
    return w;
}

/* Is this placement a part of what a data rank has? It is if the tokens are sharded
 * over the atoms of the batch first. */
static bool part_of_input(const tt_value *input, const tt_placement *to)
{
    const tt_placement *data = &input->place;
    return to->n[0] >= data->n[0] && !to->partial &&
           !memcmp(to->atom[0], data->atom[0], data->n[0] * sizeof data->atom[0][0]);
}

static void lower_node(lowerer *l, tt_node *n)
{
    tt_value *v = replaced(l, n->in[0]);
    const tt_value *root = tt_value_root(n->in[0]);
    if (n->op == &tt_op_redistribute && root->node->op == &tt_op_input &&
        part_of_input(root, &n->out[0]->place)) {
        tt_node *in = tt_arena_dup(l->g->arena, root->node, sizeof *in);
        in->id = l->g->n_ids++;
        tt_when w = *in->when;
        w.region = n->when->region;
        in->when = tt_when_intern(l->g, w);
        in->out = n->out;
        n->out[0]->node = in;
        tt_vec_push(l->g->arena, &l->list, in);
        return;
    }
    tt_lower_step steps[TT_MAX_STEPS];
    const tt_type *t = &n->out[0]->type;
    const int k = tt_lower(l->g->mesh, t->dims, t->n_dims, &v->place, &n->out[0]->place, steps);
    for (int i = 0; i < k; i++)
        v = emit_step(l, n, v, &steps[i], k == 1);
    l->now[n->out[0]->id] = v;
}

tt_status tt_pass_lower(tt_graph *g, tt_error *err)
{
    lowerer l = {.g = g, .n_values = g->n_values};
    l.now = tt_arena_array(g->arena, (size_t)g->n_values + 1, sizeof *l.now);
    for (size_t i = 0; i < g->nodes.n; i++) {
        tt_node *n = g->nodes.items[i];
        if (n->op == &tt_op_redistribute || n->op == &tt_op_fetch) {
            lower_node(&l, n);
            continue;
        }
        for (int j = 0; j < n->n_in; j++)
            n->in[j] = replaced(&l, n->in[j]);
        tt_vec_push(g->arena, &l.list, n);
    }
    g->nodes.items = l.list.items;
    g->nodes.n = l.list.n;
    g->nodes.cap = l.list.cap;
    return tt_graph_verify(g, "lower", err);
}
