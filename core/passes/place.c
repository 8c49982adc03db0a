/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/copies.h"
#include "graph/rewrite.h"
#include "passes/passes.h"
#include <string.h>

/* place: emits the nodes that describe() wrote again, through the placed builder. A parameter
 * becomes a fetch by each block that reads it, and a value that another stage reads becomes a
 * transfer. The builder adds all other redistributes (R3). */

typedef struct placer {
    const tt_graph *src;
    const tt_place_opts *o;
    tt_builder *b;
    tt_value **map; /* by value id of the described graph */
    int last_block;
    int end_block; /* the last that has nodes: what comes after it is in the last stage */
} placer;

static int stage_of(const placer *p, int block)
{
    if (p->o->n_stages <= 1)
        return 0;
    if (block < 0) {
        if (p->last_block < 0)
            return 0;
        if (p->last_block == p->end_block)
            return p->o->n_stages - 1;
        block = p->last_block;
    }
    return p->o->block_stage ? p->o->block_stage[block] : 0;
}

static tt_value *mapped(const placer *p, tt_value *v)
{
    if (v->node->op == &tt_op_param)
        return tt_fetch(p->b, v->node->param);
    if (v->node->op == &tt_op_input)
        return tt_input(p->b, v->node->input_name);
    if (v->node->op == &tt_op_state) /* a buffer */
        return tt_state_read(
            p->b, tt_graph_state(tt_builder_graph(p->b), TT_STATE_BUFFER, v->node->state->name));
    return p->map[v->id];
}

static tt_value *mapped_copy(const void *placing, tt_value *v)
{
    return mapped(placing, v);
}

/* A value that the described graph names, with its copies. */
static tt_value *named(placer *p, tt_value *v)
{
    tt_value *w = mapped(p, v);
    tt_value_copy_from(tt_builder_graph(p->b), w, v, mapped_copy, p);
    return w;
}

static void emit_expanded(placer *p, const tt_node *n)
{
    tt_value *in[TT_MAX_INS];
    for (int i = 0; i < n->n_in; i++)
        in[i] = tt_to_stage(p->b, mapped(p, n->in[i]));
    tt_node *v = tt_node_new(p->b, n->op, in, n->n_in, NULL, NULL, 0);
    v->role = TT_NODE_EXPANDED;
    v->custom_vjp = n->custom_vjp;
    v->custom_user = n->custom_user;
    v->attrs = n->attrs;
    v->n_out = n->n_out;
    for (int i = 0; i < n->n_out; i++)
        v->out[i] = mapped(p, n->out[i]);
}

/* Attention over sharded sequences runs as ring attention if the job says so. */
static const char *placed_name(const placer *p, const tt_node *n)
{
    const tt_graph *g = tt_builder_graph(p->b);
    const bool ring = g->context == TT_CONTEXT_RING && tt_mesh_axis(g->mesh, "cp");
    const tt_op_def *form = ring ? tt_op_ring_form(g->ops, n->op) : NULL;
    return form ? form->name : n->op->name;
}

/* The attributes. Where the first operand has another number of rows than it was described with (the rows of
 * experts on a mesh), so have the result's dims that they name. */
static const void *placed_attrs(placer *p, const tt_node *n, tt_value *const *in)
{
    const bool names = (n->op->flags & TT_OP_NAMES_DIMS) != 0;
    if (!names || !n->n_in || !in[0] || !in[0]->type.n_dims) /* NULL: decoding left it out */
        return n->attrs;
    const tt_dim *now = &in[0]->type.dims[0], *was = &n->in[0]->type.dims[0];
    const tt_attrs_dims *named = n->attrs;
    if (now->size == was->size || !named->n_dims || named->dims[0].size != was->size)
        return n->attrs;
    tt_attrs_dims *a = tt_arena_dup(tt_builder_graph(p->b)->arena, named, sizeof *a);
    a->dims[0] = *now;
    return a;
}

static void emit_op(placer *p, const tt_node *n)
{
    tt_value *in[TT_MAX_INS], *out[TT_MAX_OUTS];
    for (int i = 0; i < n->n_in; i++)
        in[i] = mapped(p, n->in[i]);
    const void *attrs = placed_attrs(p, n, in);
    const bool converts = p->o->convert && p->o->convert->n && n->op == &tt_op_attention;
    for (int i = 0; converts && i < 3; i++)
        in[i] = tt_convert_operand(p->b, p->o->convert, i, in[i]);
    if (!p->o->replace || !p->o->replace(p->o->replace_user, p->b, n, in, out))
        tt_op(p->b, placed_name(p, n), in, n->n_in, attrs, out, n->n_out);
    for (int i = 0; i < n->n_out; i++)
        p->map[n->out[i]->id] = out[i];
}

static bool computes(const tt_node *n)
{
    return n->op != &tt_op_param && n->op != &tt_op_input && n->op != &tt_op_state;
}

static void emit(placer *p, const tt_node *n)
{
    if (!computes(n))
        return;
    if (n->block >= 0)
        p->last_block = n->block;
    tt_builder_at(p->b, TT_FORWARD, stage_of(p, n->block), n->block, n->scope);
    tt_builder_inner(p->b, n->role == TT_NODE_INNER);
    tt_builder_follow(p->b, n->follow);
    tt_builder_again(p->b, n->again);
    if (n->role != TT_NODE_EXPANDED)
        emit_op(p, n);
    else if (!p->o->replace) /* a derivative is kept; a replaced node is never differentiated */
        emit_expanded(p, n);
    tt_builder_again(p->b, false);
    tt_builder_follow(p->b, false);
    tt_builder_inner(p->b, false);
}

static void uncut(tt_placement *p, int d)
{
    p->n[d] = 0;
    memset(p->atom[d], 0, sizeof p->atom[d]);
}

/* Codes are cut as their weight [out,in] is. A cut of `in` must fall on borders of its blocks and units;
 * where it does not, each rank has whole rows, of which the layer takes its part. FSDP cuts rows. */
static void place_codes(const tt_mesh *m, tt_param_info *q)
{
    const tt_dim *in = &q->whole.dims[1];
    const tt_placement whole = q->compute, stored = q->stored;
    tt_placement *s = &q->absmax->compute;
    tt_atom_list cut = {.n = whole.n[1]};
    memcpy(cut.atom, whole.atom[1], cut.n * sizeof *cut.atom);
    const int64_t n = tt_mesh_degree(m, &cut), unit = in->unit;
    const bool fits = in->size % (n * TT_NF4_BLOCK) == 0 && in->size / n % unit == 0 &&
                      (unit % TT_NF4_BLOCK == 0 || TT_NF4_BLOCK % unit == 0);
    if (q->codes == TT_CODES_NF4 && !fits)
        uncut(&q->compute, 1);
    q->stored = *s = q->compute;
    if (q->codes == TT_CODES_INT8)
        uncut(s, 1); /* one scale per row */
    for (int d = 0; d < 2; d++)
        for (int k = whole.n[d]; k < stored.n[d]; k++)
            q->stored.atom[0][q->stored.n[0]++] =
                (uint16_t)(TT_ATOM(stored.atom[d][k]) |
                           (q->whole.dims[0].unit > 1 ? TT_IGNORE_UNIT : 0u));
    q->absmax->stored = q->stored;
    if (!s->n[1])
        uncut(&q->absmax->stored, 1);
}

static tt_status place_params(placer *p, tt_error *err)
{
    tt_graph *g = tt_builder_graph(p->b);
    for (size_t i = 0; i < p->src->params.n; i++) {
        tt_param_info *q = p->src->params.items[i];
        q->stages = 0;
        if (!q->absmax_of && tt_param_placements(g->mesh, g->labels, q->whole.dims, q->whole.n_dims,
                                                 &q->compute, &q->stored, err) != TT_OK)
            return tt_error_context(err, "parameter %s", q->name);
        if (q->codes)
            place_codes(g->mesh, q);
        q->number = (int)g->params.n;
        tt_vec_push(g->arena, &g->params, q);
    }
    return TT_OK;
}

/* Buffers have the placement with which parameters are used: sharded by their labels, and
 * replicated over the data ranks. */
static tt_status place_buffers(placer *p, tt_error *err)
{
    tt_graph *g = tt_builder_graph(p->b);
    for (size_t i = 0; i < p->src->states.n; i++) {
        const tt_state *q = p->src->states.items[i];
        tt_placement compute, stored;
        if (tt_param_placements(g->mesh, g->labels, q->type.dims, q->type.n_dims, &compute, &stored,
                                err) != TT_OK)
            return tt_error_context(err, "buffer %s", q->name);
        tt_state *s = tt_state_new(g, TT_STATE_BUFFER, q->name, &q->type, &compute);
        s->init = q->init;
        s->transient = q->transient;
        s->exported = q->exported;
        s->of_trainer = q->of_trainer;
        s->values = q->values;
    }
    return TT_OK;
}

tt_status tt_pass_place(const tt_graph *described, const tt_place_opts *o, tt_builder *b,
                        tt_error *err)
{
    tt_graph *g = tt_builder_graph(b);
    placer p = {described, o, b, NULL, -1, -1};
    for (size_t i = 0; i < described->nodes.n; i++)
        if (computes(described->nodes.items[i]))
            p.end_block = TT_MAXV(p.end_block, described->nodes.items[i]->block);
    p.map = tt_arena_array(g->arena, (size_t)described->n_values + 1, sizeof *p.map);
    g->n_stages = o->n_stages > 0 ? o->n_stages : 1;
    g->n_blocks = described->n_blocks;
    g->custom_vjp = g->custom_vjp || described->custom_vjp;
    TT_TRY(place_params(&p, err));
    TT_TRY(place_buffers(&p, err));
    for (size_t i = 0; i < described->nodes.n; i++)
        emit(&p, described->nodes.items[i]);
    TT_TRY(tt_builder_finish(b, err));
    for (size_t i = 0; i < tt_map_size(described->outputs); i++)
        tt_map_set(g->outputs, tt_map_key(described->outputs, i),
                   mapped(&p, tt_map_value(described->outputs, i)));
    for (size_t i = 0; i < described->losses.n; i++) {
        tt_loss_entry e = described->losses.items[i];
        e.value = mapped(&p, e.value);
        tt_vec_push(g->arena, &g->losses, e);
    }
    for (size_t i = 0; i < described->metrics.n; i++) {
        tt_metric_entry e = described->metrics.items[i];
        e.value = named(&p, e.value);
        tt_vec_push(g->arena, &g->metrics, e);
    }
    for (size_t i = 0; i < described->loads.n; i++) {
        tt_expert_load e = described->loads.items[i];
        e.assign = mapped(&p, e.assign);
        e.counts = named(&p, e.counts);
        e.sent = e.sent ? mapped(&p, e.sent) : NULL;
        tt_vec_push(g->arena, &g->loads, e);
    }
    for (size_t i = 0; i < described->buffer_updates.n; i++) {
        tt_buffer_entry e = described->buffer_updates.items[i];
        e.stat = named(&p, e.stat);
        e.state = tt_graph_state(g, TT_STATE_BUFFER, e.state->name);
        tt_vec_push(g->arena, &g->buffer_updates, e);
    }
    if (described->loss)
        g->loss = named(&p, described->loss);
    return tt_graph_verify(g, "place", err);
}
