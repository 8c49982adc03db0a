/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/rewrite.h"
#include "passes/convert_impl.h"
#include <string.h>

/* convert: the job's converters are asked about each product of the placed graph: of a layer's forward
 * and, because autodiff has run, of its derivatives. What a converter builds is placed by the rules of
 * its ops, so a maximum over a tensor is that of the whole tensor on every mesh. The readers of a
 * product that is replaced keep the placement for which they were built: where the new value has
 * another one, it is redistributed. */

#define DOUT 5 /* of attention_bwd: the operand dout */

typedef struct converting {
    tt_builder *b;
    tt_graph *g;
    const tt_convert_opts *o;
    tt_value **instead; /* by id of a replaced value: the new one, placed like it */
    tt_value **raw;     /* the same, in the placement in which it was made */
    tt_value **dout;    /* by id of a gradient of attention's output: as converted */
    size_t room;        /* entries of the three */
    const tt_node *now; /* the node that is converted */
    bool *placed;       /* by node id: it is in `list` */
    TT_VEC(tt_node *) list;
} converting;

/* ---- finding products ---- */

static const tt_op_def *const ops[2][3] = {
  /* by layer and role */
    {&tt_op_linear,         &tt_op_linear_dx,         &tt_op_linear_dw        },
    {&tt_op_grouped_linear, &tt_op_grouped_linear_dx, &tt_op_grouped_linear_dw}
};

static bool find_role(const tt_node *n, tt_product *p)
{
    for (int layer = 0; layer < 2; layer++)
        for (int role = 0; role < 3; role++)
            if (n->op == ops[layer][role]) {
                p->layer = (tt_product_layer)layer;
                p->role = (tt_product_role)role;
                return true;
            }
    return false;
}

/* The parameter that v is, or is made of by ops of one operand (a cast, a transpose). */
static const tt_param_info *param_of(const tt_value *v)
{
    while (v->node->op != &tt_op_fetch && v->node->n_in == 1)
        v = v->node->in[0];
    const bool decoded = v->node->param && v->node->param->codes;
    return v->node->op == &tt_op_fetch || decoded ? v->node->param : NULL;
}

/* Describes the product that n computes. The weight is an operand of the layer's forward. */
static const tt_param_info *describe(const tt_node *n, tt_product *p)
{
    *p = (tt_product){.struct_size = sizeof *p};
    if (n->role == TT_NODE_EXPANDED || !find_role(n, p))
        return NULL;
    const tt_node *forward = p->role == TT_PRODUCT_FORWARD ? n : n->derivative_of;
    if (!forward || forward->op != ops[p->layer][TT_PRODUCT_FORWARD])
        return NULL;
    const tt_param_info *info = param_of(forward->in[1]);
    if (!info)
        return NULL;
    const tt_type *w = &forward->in[1]->type;
    p->param = info->name;
    p->tags = info->tags ? info->tags : "";
    p->out = w->dims[w->n_dims - 2].size;
    p->in = w->dims[w->n_dims - 1].size;
    p->a = n->in[0];
    p->b = n->in[1];
    p->counts = n->n_in > 2 ? n->in[2] : NULL;
    return info;
}

/* ---- asking ---- */

static void build_at(const converting *c, const tt_node *n)
{
    tt_builder_at(c->b, n->when->region, n->when->stage, n->block, n->scope);
    tt_builder_chunk_loop(c->b, n->when->in_chunk_loop);
    tt_builder_inner(c->b, n->role == TT_NODE_INNER);
    tt_builder_follow(c->b, n->follow);
    tt_builder_finest(c->b, n->finest);
}

static void build_nowhere(const converting *c)
{
    tt_builder_chunk_loop(c->b, false);
    tt_builder_inner(c->b, false);
    tt_builder_follow(c->b, false);
    tt_builder_finest(c->b, false);
}

static bool replace(converting *c, tt_node *n, const tt_product *p, const tt_param_info *info,
                    int first);

/* Offers the products of the same role that converter i left to the converters after it. */
static void offer_rest(converting *c, const tt_node *n, size_t from, const tt_product *p,
                       const tt_param_info *info, int i)
{
    const size_t to = c->g->nodes.n;
    for (size_t k = from; k < to && i + 1 < c->o->n; k++) {
        tt_node *m = c->g->nodes.items[k];
        tt_product inner = *p;
        if (m->op != n->op || m->role == TT_NODE_EXPANDED)
            continue;
        inner.a = m->in[0];
        inner.b = m->in[1];
        inner.counts = m->n_in > 2 ? m->in[2] : NULL;
        replace(c, m, &inner, info, i + 1);
    }
}

/* Grows the tables by value id, which get an entry for each value that the pass makes. */
static void grow_tables(converting *c)
{
    const size_t n = (size_t)c->g->n_values + 1;
    if (n <= c->room)
        return;
    tt_value **instead = tt_arena_array(c->g->arena, 2 * n, sizeof(tt_value *));
    tt_value **raw = tt_arena_array(c->g->arena, 2 * n, sizeof(tt_value *));
    tt_value **dout = tt_arena_array(c->g->arena, 2 * n, sizeof(tt_value *));
    if (c->room) {
        memcpy(instead, c->instead, c->room * sizeof *instead);
        memcpy(raw, c->raw, c->room * sizeof *raw);
        memcpy(dout, c->dout, c->room * sizeof *dout);
    }
    c->dout = dout;
    c->instead = instead;
    c->raw = raw;
    c->room = 2 * n;
}

/* Asks the converters from `first` on about the product of n. */
static bool replace(converting *c, tt_node *n, const tt_product *p, const tt_param_info *info,
                    int first)
{
    for (int i = first; i < c->o->n; i++) {
        build_at(c, n);
        const size_t from = c->g->nodes.n;
        tt_value *y = c->o->product(c->o->user, i, c->b, p, info);
        if (tt_builder_error(c->b) || !y)
            continue;
        if (!tt_convert_has_shape(c->b, c->o, i, p, y, &n->out[0]->type))
            return false;
        if (c->o->is_final(c->o->user, i))
            tt_convert_check_final(c->b, c->o, i, p, info);
        y = tt_convert_with_dtype(c->b, y, n->out[0]->type.dtype);
        offer_rest(c, n, from, p, info, i);
        build_at(c, n);
        tt_value *same = tt_redistribute(c->b, y, &n->out[0]->place);
        grow_tables(c);
        c->raw[n->out[0]->id] = y;
        c->instead[n->out[0]->id] = same;
        return true;
    }
    return false;
}

/* The gradient of attention's output, as the products of attention's derivative read it. The steps of a
 * ring share it. */
static void replace_dout(converting *c, tt_node *n)
{
    const bool is = n->op == &tt_op_attention_bwd || n->op == &tt_op_attention_bias_bwd;
    if (!is || n->role == TT_NODE_EXPANDED || !n->derivative_of)
        return;
    tt_product p;
    tt_value *v = n->in[DOUT], *y = c->dout[v->id];
    if (!y) {
        build_at(c, n);
        tt_convert_describe_operand(c->b, 3, v, n->scope, &p);
        y = tt_convert_ask_operand(c->b, c->o, &p);
        grow_tables(c);
        c->dout[v->id] = y = y ? tt_redistribute(c->b, y, &v->place) : v;
    }
    n->in[DOUT] = y;
}

/* ---- putting the nodes in order ---- */

static tt_value *latest(const void *converting_graph, tt_value *v)
{
    const converting *c = converting_graph;
    while (c->instead[v->id])
        v = c->instead[v->id];
    return v;
}

static tt_value *latest_raw(const converting *c, tt_value *v)
{
    while (c->raw[v->id])
        v = c->raw[v->id];
    return v;
}

/* A redistribute of a replaced product starts from the new value as it was made, so that nothing is
 * reduced or gathered twice. */
static void reconnect_move(converting *c, tt_node *n)
{
    tt_value *v = latest_raw(c, n->in[0]);
    if (v == n->in[0])
        return;
    if (tt_placement_equal(&v->place, &n->out[0]->place)) {
        c->instead[n->out[0]->id] = c->raw[n->out[0]->id] = v;
        c->placed[n->id] = true; /* it is dropped */
        return;
    }
    tt_redistribute_from(c->b, n, v);
}

static void reconnect(converting *c, tt_node *n)
{
    if (n->op == &tt_op_redistribute) {
        reconnect_move(c, n);
        return;
    }
    for (int j = 0; j < n->n_in; j++)
        n->in[j] = latest(c, n->in[j]);
}

/* A new node is in the loop over token chunks if it reads rows that the loop makes, or makes rows as
 * long as those of the product. What a converter makes of other operands runs once, before the loop. */
static void settle_loop(const converting *c, tt_node *n)
{
    const tt_type *t = &c->now->out[0]->type;
    bool rows = n->n_out && tt_value_per_token(c->g, n->out[0]) &&
                tt_type_has_dims(&n->out[0]->type, t->dims, t->n_dims);
    bool early = true;
    for (int j = 0; j < n->n_in; j++) {
        const tt_when *w = n->in[j]->node->when;
        rows = rows || (w->in_chunk_loop && tt_value_per_token(c->g, n->in[j]));
        early = early && w->region == TT_FORWARD;
    }
    if (!n->when->in_chunk_loop || rows)
        return;
    tt_when w = *n->when;
    w.in_chunk_loop = false;
    if (early)
        w.region = TT_FORWARD;
    n->when = tt_when_intern(c->g, w);
}

/* Puts n behind the nodes that it reads: a new node may read a redistribute that was built for a
 * later one. */
static void put(converting *c, tt_node *n, int first_new)
{
    if (c->placed[n->id])
        return;
    c->placed[n->id] = true;
    reconnect(c, n);
    if (n->op == &tt_op_redistribute && c->instead[n->out[0]->id])
        return; /* it is dropped */
    for (int j = 0; j < n->n_in; j++) {
        put(c, n->in[j]->node, first_new);
        n->in[j] = latest(c, n->in[j]);
        put(c, n->in[j]->node, first_new);
    }
    if (n->id >= first_new)
        settle_loop(c, n);
    tt_vec_push(c->g->arena, &c->list, n);
}

static void grow_placed(converting *c, size_t *cap)
{
    const size_t n = (size_t)c->g->n_ids + 1;
    if (n <= *cap)
        return;
    bool *placed = tt_arena_array(c->g->arena, 2 * n, sizeof *placed);
    if (*cap)
        memcpy(placed, c->placed, *cap * sizeof *placed);
    c->placed = placed;
    *cap = 2 * n;
}

tt_status tt_pass_convert(tt_builder *b, const tt_convert_opts *o, tt_error *err)
{
    tt_graph *g = tt_builder_graph(b);
    converting c = {.b = b, .g = g, .o = o};
    const size_t n_nodes = g->nodes.n;
    const int first_new = g->n_ids;
    size_t cap = 0;
    if (!o->n)
        return TT_OK;
    grow_tables(&c);
    for (size_t i = 0; i < n_nodes; i++) {
        tt_node *n = g->nodes.items[i];
        tt_product p;
        const size_t made = g->nodes.n;
        c.now = n;
        grow_placed(&c, &cap);
        if (c.placed[n->id])
            continue;
        reconnect(&c, n);
        const tt_param_info *info = describe(n, &p);
        if (info && replace(&c, n, &p, info, 0))
            c.placed[n->id] = true; /* it is dropped */
        replace_dout(&c, n);
        grow_placed(&c, &cap);
        grow_tables(&c);
        for (size_t k = made; k < g->nodes.n; k++)
            put(&c, g->nodes.items[k], first_new);
        put(&c, n, first_new);
        TT_TRY(tt_builder_finish(b, err));
    }
    build_nowhere(&c);
    g->nodes.items = c.list.items;
    g->nodes.n = c.list.n;
    g->nodes.cap = c.list.cap;
    tt_graph_replace_named(g, latest, &c);
    return tt_graph_verify(g, "convert", err);
}
