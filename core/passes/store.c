/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/passes.h"
#include <string.h>

/* store: what the forward keeps for the backward is kept in another dtype: a cast after the node
 * that makes it, and a cast back where the backward reads it first. The forward itself computes
 * with the exact values. Which values are kept this way depends on the described graph alone,
 * never on local sizes, so every mesh rounds the same numbers. */

#define MIN_ROW 32 /* elements: fewer per row are a small value, such as a sum or maximum */

typedef struct store {
    tt_builder *b;
    tt_graph *g;
    const tt_store_opts *o;
    bool *derived;      /* by value id: the token-chunk loop makes it, so it is a derivative */
    bool *exact;        /* by value id: a reader in the backward needs it exact */
    bool *kept;         /* by value id: read by the backward */
    tt_value **narrow;  /* by value id: its copy, made in the forward */
    tt_value **widened; /* by value id: the copy as the backward reads it */
    TT_VEC(tt_node *) list;
} store;

/* An op that mixes tokens computes its probabilities again from q, k and the log-sum-exp of the
 * forward. With rounded operands they would not sum to one. */
static void mark(store *s)
{
    for (size_t i = 0; i < s->g->nodes.n; i++) {
        const tt_node *n = s->g->nodes.items[i];
        bool derived = n->when->in_chunk_loop != 0;
        for (int j = 0; j < n->n_in; j++) {
            const int v = n->in[j]->id;
            derived = derived || s->derived[v];
            if (n->when->region != TT_BACKWARD || n->role == TT_NODE_EXPANDED)
                continue;
            s->kept[v] = true;
            if (n->op->flags & TT_OP_MIXES_TOKENS || n->when->stage != n->in[j]->node->when->stage)
                s->exact[v] = true;
        }
        for (int j = 0; j < n->n_out; j++)
            s->derived[n->out[j]->id] = derived;
    }
}

static bool wanted(const store *s, const tt_value *v)
{
    const tt_node *n = v->node;
    const tt_type *t = &v->type;
    int64_t row = 1;
    for (int d = 1; d < t->n_dims; d++)
        row *= t->dims[d].size;
    return n->when->region == TT_FORWARD && n->role != TT_NODE_EXPANDED && !n->param &&
           n->op != &tt_op_input && n->op != &tt_op_state && s->kept[v->id] && !s->exact[v->id] &&
           !s->derived[v->id] && t->dtype == TT_F32 && t->n_dims >= 2 && row >= MIN_ROW &&
           !v->place.partial && !v->place.partial_max;
}

/* Makes one cast node at the end of the builder's list; the caller moves it to its position. */
static tt_value *cast(store *s, tt_value *v, tt_region region, const tt_node *at, tt_dtype to)
{
    const tt_attrs_cast a = {.to = to};
    tt_builder_at(s->b, region, at->when->stage, at->block, at->scope);
    const bool was = tt_builder_follow(s->b, true);
    tt_op(s->b, "cast", &v, 1, &a, &v, 1);
    tt_builder_follow(s->b, was);
    return v;
}

static void store_append(store *s, tt_node *n)
{
    tt_vec_push(s->g->arena, &s->list, n);
}

static tt_status read_narrow(store *s, tt_node *n, int j, tt_error *err)
{
    tt_value *v = n->in[j], *w = s->widened[v->id];
    if (!w || s->o->apart) {
        w = cast(s, s->narrow[v->id], TT_BACKWARD, n, v->type.dtype);
        TT_TRY(tt_builder_finish(s->b, err));
        store_append(s, w->node);
        s->widened[v->id] = w;
    }
    n->in[j] = w;
    return TT_OK;
}

static tt_status visit(store *s, tt_node *n, tt_error *err)
{
    for (int j = 0; n->when->region == TT_BACKWARD && n->role != TT_NODE_EXPANDED && j < n->n_in;
         j++)
        if (s->narrow[n->in[j]->id])
            TT_TRY(read_narrow(s, n, j, err));
    store_append(s, n);
    for (int j = 0; j < n->n_out; j++) {
        tt_value *v = n->out[j];
        if (!wanted(s, v))
            continue;
        tt_value *w = cast(s, v, TT_FORWARD, n, s->o->dtype);
        TT_TRY(tt_builder_finish(s->b, err));
        store_append(s, w->node);
        s->narrow[v->id] = w;
        s->g->stored += tt_max_local_numel(s->g->mesh, w->type.dims, w->type.n_dims, &w->place);
    }
    return TT_OK;
}

tt_status tt_pass_store(tt_builder *b, const tt_store_opts *o, tt_error *err)
{
    tt_graph *g = tt_builder_graph(b);
    store s = {.b = b, .g = g, .o = o};
    const size_t n_nodes = g->nodes.n, n = (size_t)g->n_values + 1;
    if (o->dtype == TT_F32)
        return TT_OK;
    s.derived = tt_arena_array(g->arena, n, sizeof *s.derived);
    s.exact = tt_arena_array(g->arena, n, sizeof *s.exact);
    s.kept = tt_arena_array(g->arena, n, sizeof *s.kept);
    s.narrow = tt_arena_array(g->arena, n, sizeof(tt_value *));
    s.widened = tt_arena_array(g->arena, n, sizeof(tt_value *));
    mark(&s);
    g->store_dtype = o->dtype;
    for (size_t i = 0; i < n_nodes; i++)
        TT_TRY(visit(&s, g->nodes.items[i], err));
    TT_ASSERT(s.list.n == g->nodes.n);
    memcpy(g->nodes.items, s.list.items, s.list.n * sizeof *s.list.items);
    return tt_graph_verify(g, "store", err);
}
