/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/rewrite.h"
#include "passes/narrow.h"
#include <string.h>
#include <ttrun/ops.h>

/* merge_max: maxima over ranks of which none depends on another are reduced as one vector per stage and
 * group of ranks, by one all-reduce, not one each. In the forward these are the maxima that depend on
 * parameters alone (the scales of rounded weights); with several micro-batches the vector is a state that
 * the step's first one fills, because parameters change between steps only. In the epilogue they are what
 * the micro-batches have accumulated (statistics of delayed scaling). A maximum does not depend on its
 * neighbours, so no bit changes. */

typedef struct maxima { /* reductions of one stage over one group of ranks */
    TT_VEC(tt_node *) nodes;
    bool built;
} maxima;

typedef struct merger {
    tt_builder *b;
    tt_graph *g;
    tt_region region;
    bool once; /* copies run with the first micro-batch alone */
    tt_map *groups;
    maxima **of;        /* by node id; NULL: it is no such reduction */
    tt_value **instead; /* by value id */
    tt_node **copy;     /* by node id: runs once per step */
    bool *placed;       /* by node id: it is in `list` */
    int n_ids;          /* entries of these tables */
    TT_VEC(tt_node *) list;
} merger;

/* Is n built by the pass narrow, outside of the blocks, or in the epilogue of what the micro-batches have
 * accumulated? Is its result whole on every rank? */
static bool is_maximum(const tt_node *n, tt_region region)
{
    if (n->op != &tt_op_redistribute || n->when->region != region || n->when->measured)
        return false;
    const tt_placement *p = &n->in[0]->place;
    const bool free = region == TT_FORWARD ? n->block < 0 && n->param != NULL
                                           : n->in[0]->node->op == &tt_op_state;
    if (!free || !p->partial_max || n->out[0]->place.partial || n->out[0]->type.dtype != TT_F32)
        return false;
    for (int d = 0; d < n->out[0]->type.n_dims; d++)
        if (p->n[d] || n->out[0]->place.n[d])
            return false;
    return true;
}

static void find_groups(merger *m)
{
    for (size_t i = 0; i < m->g->nodes.n; i++) {
        tt_node *n = m->g->nodes.items[i];
        if (!is_maximum(n, m->region))
            continue;
        const char *key = tt_arena_printf(m->g->arena, "%d.%x", n->when->stage,
                                          (unsigned)n->in[0]->place.partial);
        maxima *s = tt_map_get(m->groups, key);
        if (!s) {
            s = tt_arena_alloc(m->g->arena, sizeof *s);
            tt_map_set(m->groups, key, s);
        }
        tt_vec_push(m->g->arena, &s->nodes, n);
        m->of[n->id] = s;
    }
}

static tt_value *flat(tt_builder *b, tt_value *v)
{
    const tt_dim dim = TT_DIM(tt_type_numel(&v->type), NULL);
    return tt_reshape(b, v, &dim, 1);
}

/* v as a node computes it that runs with the first micro-batch alone. */
static tt_value *copy_of(merger *m, tt_value *v)
{
    tt_node *n = v->node, *c;
    if (!m->once || n->op == &tt_op_param)
        return v;
    if (n->id < m->n_ids && m->copy[n->id])
        return m->copy[n->id]->out[0];
    tt_value *in[TT_MAX_INS];
    for (int j = 0; j < n->n_in; j++)
        in[j] = copy_of(m, n->in[j]);
    c = tt_node_new(m->b, n->op, in, n->n_in, &v->type, &v->place, 1);
    c->attrs = n->attrs;
    c->rule = n->rule;
    c->letters = n->letters;
    c->keep = n->keep;
    c->state = n->state;
    m->copy[n->id] = c;
    return c->out[0];
}

/* Keeps the vector for the step's other micro-batches. */
static tt_value *keep_vector(merger *m, const tt_node *like, tt_value *v)
{
    tt_graph *g = m->g;
    tt_state *s = tt_state_new(
        g, TT_STATE_GATHERED,
        tt_arena_printf(g->arena, "maxima.%d.%x", like->when->stage, like->in[0]->place.partial),
        &v->type, &v->place);
    s->stages = UINT64_C(1) << like->when->stage;
    tt_state_assign(m->b, s, v);
    return tt_state_read(m->b, s);
}

/* What was built since `from` runs when? */
static void merge_label(merger *m, size_t from, const tt_node *like, bool per_step)
{
    for (size_t i = from; i < m->g->nodes.n; i++) {
        tt_node *n = m->g->nodes.items[i];
        tt_when w = *n->when;
        w.per_step = per_step && n->op != &tt_op_state;
        n->when = tt_when_intern(m->g, w);
        n->param = n->op == &tt_op_assign ? NULL : like->param;
    }
}

static void build_group(merger *m, maxima *s)
{
    const size_t n = s->nodes.n, first = m->g->nodes.n;
    const tt_node *like = s->nodes.items[0];
    const tt_placement whole = {0};
    tt_value **parts = tt_arena_array(m->g->arena, n + 1, sizeof *parts);
    s->built = true;
    tt_builder_at(m->b, m->region, like->when->stage, -1, TT_SCOPE_MAXIMA);
    for (size_t i = 0; i < n; i++)
        parts[i] = flat(m->b, copy_of(m, s->nodes.items[i]->in[0]));
    tt_value *all = tt_redistribute(m->b, tt_concat(m->b, parts, (int)n, 0), &whole);
    if (m->once)
        all = keep_vector(m, like, all);
    merge_label(m, first, like, m->once);
    const size_t rest = m->g->nodes.n;
    int64_t at = 0;
    for (size_t i = 0; i < n && !tt_builder_error(m->b); i++) {
        tt_value *out = s->nodes.items[i]->out[0];
        const int64_t numel = tt_type_numel(&out->type);
        tt_value *mine = n == 1 ? all : tt_slice(m->b, all, 0, at, at + numel);
        m->instead[out->id] = tt_reshape(m->b, mine, out->type.dims, out->type.n_dims);
        at += numel;
    }
    merge_label(m, rest, like, false);
}

static void merge_put(merger *m, tt_node *n)
{
    if (n->id < m->n_ids) {
        if (m->placed[n->id])
            return;
        m->placed[n->id] = true;
    }
    for (int j = 0; j < n->n_in; j++)
        if (n->in[j]->node->id < m->n_ids)
            merge_put(m, n->in[j]->node);
    tt_vec_push(m->g->arena, &m->list, n);
}

static void rebuild(merger *m, size_t n_nodes, int n_values)
{
    for (size_t i = 0; i < n_nodes && !tt_builder_error(m->b); i++) {
        tt_node *n = m->g->nodes.items[i];
        const size_t first = m->g->nodes.n;
        maxima *s = m->of[n->id];
        for (int j = 0; j < n->n_in; j++)
            if (n->in[j]->id < n_values && m->instead[n->in[j]->id])
                n->in[j] = m->instead[n->in[j]->id];
        if (!s || (s->nodes.n < 2 && !m->once)) {
            merge_put(m, n);
            continue;
        }
        if (!s->built)
            build_group(m, s);
        for (size_t k = first; k < m->g->nodes.n; k++)
            merge_put(m, m->g->nodes.items[k]);
    }
}

tt_status tt_pass_merge_max(tt_builder *b, tt_region region, bool once, tt_error *err)
{
    tt_graph *g = tt_builder_graph(b);
    merger m = {.b = b, .g = g, .region = region, .once = once, .n_ids = g->n_ids};
    const int n_values = g->n_values;
    m.groups = tt_map_new(g->arena);
    m.of = tt_arena_array(g->arena, (size_t)g->n_ids + 1, sizeof(maxima *));
    m.instead = tt_arena_array(g->arena, (size_t)g->n_values + 1, sizeof(tt_value *));
    m.copy = tt_arena_array(g->arena, (size_t)g->n_ids + 1, sizeof(tt_node *));
    m.placed = tt_arena_array(g->arena, (size_t)g->n_ids + 1, sizeof *m.placed);
    find_groups(&m);
    if (!tt_map_size(m.groups))
        return TT_OK;
    tt_builder_follow(b, true);
    rebuild(&m, g->nodes.n, n_values);
    tt_builder_follow(b, false);
    TT_TRY(tt_builder_finish(b, err));
    g->nodes.items = m.list.items;
    g->nodes.n = m.list.n;
    g->nodes.cap = m.list.cap;
    return tt_graph_verify(g, "merge_max", err);
}
