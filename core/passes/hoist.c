/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/passes.h"
#include <string.h>

/* hoist: parameters are fetched once per step instead of once per micro-batch (R6), and so are, of experts with
 * replicas, the weights that replica_weight gives. The cast and
 * the fetch run with the first forward of a stage and write a state; every reader of the stage,
 * in any micro-batch or block, reads that state. Sinking is the counterpart for gradients and is
 * done by autodiff: gradients are accumulated unreduced, and the epilogue reduces them once. */

typedef struct hoister {
    tt_graph *g;
    tt_value **now; /* by value id: what replaces it */
    tt_map *states; /* "param@stage" → its state */
    TT_VEC(tt_node *) list;
} hoister;

/* Does the fetch cast or communicate? If it does neither, hoisting saves nothing. */
static bool moves(const tt_node *n)
{
    return n->op == &tt_op_fetch && n->when->region == TT_FORWARD &&
           (n->in[0]->node->op != &tt_op_param ||
            !tt_placement_equal(&n->in[0]->place, &n->out[0]->place));
}

static void run_per_step(tt_graph *g, tt_node *n)
{
    tt_when w = *n->when;
    w.per_step = true;
    n->when = tt_when_intern(g, w);
}

/* The fetch and what it reads: all is made of parameters alone. */
static void run_all_per_step(tt_graph *g, tt_node *n)
{
    if (n->when->per_step || !n->param || n->op == &tt_op_param)
        return;
    run_per_step(g, n);
    for (int j = 0; j < n->n_in; j++)
        run_all_per_step(g, n->in[j]->node);
}

/* What an expansion computes `v` with, up to parameters and `but`. */
static void run_expansion_per_step(tt_graph *g, tt_value *v, const tt_value *but)
{
    tt_node *n = v->node;
    if (n->when->per_step || v == but || n->param ||
        (n->role != TT_NODE_INNER && n->op != &tt_op_redistribute))
        return;
    run_per_step(g, n);
    for (int j = 0; j < n->n_in; j++)
        run_expansion_per_step(g, n->in[j], but);
}

static tt_node *node_like(hoister *h, const tt_node *like, const tt_op_def *op, tt_value *in,
                          const tt_value *out)
{
    tt_graph *g = h->g;
    tt_node *n = tt_arena_alloc(g->arena, sizeof *n);
    n->id = g->n_ids++;
    n->op = op;
    n->when = tt_when_intern(g, (tt_when){.region = TT_FORWARD, .stage = like->when->stage});
    n->block = like->block;
    n->scope = like->scope;
    n->accumulate_index = -1;
    n->in = tt_arena_array(g->arena, 2, sizeof *n->in);
    n->out = tt_arena_array(g->arena, 2, sizeof *n->out);
    if (in)
        n->in[n->n_in++] = in;
    if (out) {
        tt_value *v = tt_arena_alloc(g->arena, sizeof *v);
        v->id = g->n_values++;
        v->type = out->type;
        v->place = out->place;
        v->node = n;
        n->out[n->n_out++] = v;
    }
    tt_vec_push(g->arena, &h->list, n);
    return n;
}

/* The fetch stays a node: it fills the state. If several blocks of a stage fetch the parameter,
 * the first of them fills it. */
static void hoist(hoister *h, tt_node *n)
{
    tt_graph *g = h->g;
    const tt_value *out = n->out[0];
    const char *name = n->param->name;
    const tt_node *from = n->in[0]->node;
    if (from->op != &tt_op_param &&
        from->in[0]->node->op != &tt_op_param) /* not the parameter itself */
        name = tt_arena_printf(g->arena, "%s.%d", name, n->in[0]->id);
    const char *key = tt_arena_printf(g->arena, "%s@%d", name, n->when->stage);
    tt_state *s = tt_map_get(h->states, key);
    if (!s) {
        s = tt_state_new(g, TT_STATE_GATHERED, tt_arena_printf(g->arena, "gathered.%s", name),
                         &out->type, &out->place);
        s->gathered = n->param;
        s->stages = UINT64_C(1) << n->when->stage;
        tt_map_set(h->states, key, s);
        run_all_per_step(g, n);
        tt_vec_push(g->arena, &h->list, n);
        tt_node *write = node_like(h, n, &tt_op_assign, n->out[0], NULL);
        write->state = s;
        run_per_step(g, write);
    }
    tt_node *read = node_like(h, n, &tt_op_state, NULL, out);
    read->state = s;
    h->now[out->id] = read->out[0];
}

static bool is_replica(const tt_node *n)
{
    return n->op == &tt_op_replica_weight && n->role == TT_NODE_EXPANDED;
}

/* The weights of replicas, in a state of their own. */
static void hoist_replica(hoister *h, tt_node *n)
{
    tt_graph *g = h->g;
    tt_value *out = n->out[0];
    tt_state *s =
        tt_state_new(g, TT_STATE_GATHERED, tt_arena_printf(g->arena, "replicas.%d", n->id),
                     &out->type, &out->place);
    s->stages = UINT64_C(1) << n->when->stage;
    tt_vec_push(g->arena, &h->list, n);
    run_expansion_per_step(g, out, tt_value_root(n->in[2]));
    tt_node *write = node_like(h, n, &tt_op_assign, out, NULL);
    write->state = s;
    run_per_step(g, write);
    tt_node *read = node_like(h, n, &tt_op_state, NULL, out);
    read->state = s;
    h->now[out->id] = read->out[0];
}

tt_status tt_pass_hoist(tt_graph *g, bool replicas, tt_error *err)
{
    hoister h = {.g = g, .states = tt_map_new(g->arena)};
    h.now = tt_arena_array(g->arena, (size_t)g->n_values + 1, sizeof *h.now);
    const size_t n = g->nodes.n;
    for (size_t i = 0; i < n; i++) {
        tt_node *e = g->nodes.items[i];
        for (int j = 0; j < e->n_in; j++)
            if (h.now[e->in[j]->id])
                e->in[j] = h.now[e->in[j]->id];
        if (replicas && is_replica(e))
            hoist_replica(&h, e);
        else if (!replicas && moves(e))
            hoist(&h, e);
        else
            tt_vec_push(g->arena, &h.list, e);
    }
    g->nodes.items = h.list.items;
    g->nodes.n = h.list.n;
    g->nodes.cap = h.list.cap;
    return tt_graph_verify(g, "hoist", err);
}
