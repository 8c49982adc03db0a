/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/rewrite.h"
#include "graph/rows.h"
#include "passes/narrow.h"
#include <string.h>

/* convert_tidy: of what converters have built, values that several products need are computed once (the
 * input of three projections is rounded once, and so is a gradient that two products read), and a value
 * that was widened after it was rounded is moved to other ranks as it was before: a cast gives the same
 * bits on every rank, so no bit changes. */

typedef struct tidier {
    tt_builder *b;
    tt_graph *g;
    int first;          /* ids from here on are of nodes that converters have built */
    int n_values;       /* entries of `instead` */
    tt_value **instead; /* by value id; NULL: itself */
    tt_map *known;      /* text of a node → the first one like it */
    int cap;
    bool *placed; /* by node id: it is in `list` */
    TT_VEC(tt_node *) list;
} tidier;

/* ---- equal nodes ---- */

static bool can_share(const tidier *t, const tt_node *n)
{
    return n->id >= t->first && n->n_out == 1 && n->out[0]->id < t->n_values &&
           n->role != TT_NODE_EXPANDED && n->when->region <= TT_BACKWARD &&
           (n->rule || n->op == &tt_op_redistribute) &&
           !(n->op->flags & (TT_OP_BY_PLACE | TT_OP_UPDATES));
}

static const char *tidy_text(const tidier *t, const tt_node *n)
{
    const size_t size = n->attrs ? n->op->attrs_size : 0;
    tt_str s = {0};
    tt_str_printf(&s, "%s %llx %p %d", n->op->name,
                  (unsigned long long)(size ? tt_hash64(n->attrs, size, 0) : 0),
                  (const void *)n->when, n->block);
    for (int j = 0; j < n->n_in; j++)
        tt_str_printf(&s, " %d", n->in[j]->id);
    const char *text = tt_arena_str(t->g->arena, tt_str_get(&s));
    tt_str_free(&s);
    return text;
}

static bool is_equal(const tt_node *a, const tt_node *b)
{
    const size_t size = a->attrs ? a->op->attrs_size : 0;
    return a->out[0]->type.dtype == b->out[0]->type.dtype &&
           tt_placement_equal(&a->out[0]->place, &b->out[0]->place) &&
           a->before_gather == b->before_gather &&
           (!size || (b->attrs && !memcmp(a->attrs, b->attrs, size)));
}

/* Is n like a node before it? Then its readers read that one. */
static bool tidy_share(tidier *t, tt_node *n)
{
    if (!can_share(t, n))
        return false;
    const char *text = tidy_text(t, n);
    tt_node *like = tt_map_get(t->known, text);
    if (!like)
        tt_map_set(t->known, text, n);
    if (!like || !is_equal(n, like))
        return false;
    t->instead[n->out[0]->id] = like->out[0];
    return true;
}

/* ---- redistributes of widened values ---- */

static bool moves_widened(const tt_node *n)
{
    if (n->op != &tt_op_redistribute || n->in[0]->place.partial || n->out[0]->place.partial)
        return false;
    const tt_node *cast = n->in[0]->node;
    return tt_node_is_cast(cast) && cast->when == n->when &&
           tt_dtype_is_float(cast->in[0]->type.dtype) &&
           tt_dtype_size(cast->in[0]->type.dtype) < tt_dtype_size(cast->out[0]->type.dtype);
}

/* The narrow value is redistributed, and widened then. */
static tt_value *widen_after(tidier *t, const tt_node *n)
{
    tt_node *cast = n->in[0]->node;
    tt_builder_at(t->b, n->when->region, n->when->stage, n->block, n->scope);
    tt_builder_chunk_loop(t->b, n->when->in_chunk_loop);
    const tt_placement *to = &n->out[0]->place;
    tt_value *narrow = cast->in[0], *out = NULL,
             *v = n->n_in == 3 ? tt_redistribute_rows(t->b, narrow, to, n->in[1], n->in[2])
                               : tt_redistribute(t->b, narrow, to);
    const char *key = tt_arena_printf(t->g->arena, "widened %d %d %d", v->id,
                                      (int)n->out[0]->type.dtype, n->block);
    out = tt_map_get(t->known, key);
    if (!out) {
        tt_op(t->b, cast->op->name, &v, 1, cast->attrs, &out, 1);
        tt_map_set(t->known, key, out);
    }
    tt_builder_chunk_loop(t->b, false);
    return out;
}

/* ---- the list ---- */

static void tidy_grow(tidier *t)
{
    if (t->g->n_ids < t->cap)
        return;
    const int n = 2 * t->g->n_ids + 2;
    bool *placed = tt_arena_array(t->g->arena, (size_t)n, sizeof *placed);
    if (t->cap)
        memcpy(placed, t->placed, (size_t)t->cap * sizeof *placed);
    t->placed = placed;
    t->cap = n;
}

static tt_value *tidy_latest(const void *tidying, tt_value *v)
{
    const tidier *t = tidying;
    while (v->id < t->n_values && t->instead[v->id])
        v = t->instead[v->id];
    return v;
}

static void tidy_put(tidier *t, tt_node *n)
{
    tidy_grow(t);
    if (t->placed[n->id])
        return;
    t->placed[n->id] = true;
    for (int j = 0; j < n->n_in; j++) {
        tidy_put(t, n->in[j]->node);
        n->in[j] = tidy_latest(t, n->in[j]);
    }
    if (tidy_share(t, n))
        return;
    if (n->id >= t->first && n->n_out == 1 && n->out[0]->id < t->n_values && moves_widened(n)) {
        tt_value *v = widen_after(t, n);
        t->instead[n->out[0]->id] = v;
        tidy_put(t, v->node);
        return;
    }
    tt_vec_push(t->g->arena, &t->list, n);
}

tt_status tt_pass_convert_tidy(tt_builder *b, int first, tt_error *err)
{
    tt_graph *g = tt_builder_graph(b);
    const size_t n = g->nodes.n;
    tidier t = {.b = b, .g = g, .first = first, .n_values = g->n_values};
    t.instead = tt_arena_array(g->arena, (size_t)g->n_values + 1, sizeof *t.instead);
    t.known = tt_map_new(g->arena);
    tt_builder_follow(b, true);
    tt_builder_finest(b, true);
    for (size_t i = 0; i < n && !tt_builder_error(b); i++)
        tidy_put(&t, g->nodes.items[i]);
    tt_builder_follow(b, false);
    tt_builder_finest(b, false);
    TT_TRY(tt_builder_finish(b, err));
    g->nodes.items = t.list.items;
    g->nodes.n = t.list.n;
    g->nodes.cap = t.list.cap;
    tt_graph_replace_named(g, tidy_latest, &t);
    return tt_graph_verify(g, "convert_tidy", err);
}
