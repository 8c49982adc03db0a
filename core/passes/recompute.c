/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/recompute_impl.h"
#include <string.h>

/* recompute: what the backward reads of its own block's forward is computed there again instead
 * of being kept. The same marks serve activation checkpointing and FSDP's reshard-after-forward,
 * where a fetch is done again. Clones are the same ops on the same values, so their results have
 * the same bits (R11). Chen et al. 2016, arXiv:1604.06174. Which values are cheap to compute again for
 * the bytes that they free is found by recompute_cut.c and recompute_levels.c; what costs nothing is
 * computed again in every mode. */

typedef struct redo {
    tt_graph *g;
    const tt_recompute_opts *o;
    const bool *redo; /* by node id: it is computed again; only for CUT */
    bool *free;       /* by node id: computing it again costs nothing, see find_free */
    tt_value **clone; /* by id of a value that existed before the pass: its clone in the backward */
    TT_VEC(tt_node *) list;
} redo;

/* Does n sum over ranks? Its result is kept rather than its operand, which is larger, so nothing
 * is reduced twice. */
static bool sums(const tt_node *n)
{
    return n->op == &tt_op_redistribute && n->in[0]->place.partial && !n->out[0]->place.partial;
}

bool tt_recompute_can(const tt_node *n)
{
    return n->when->region == TT_FORWARD && n->op != &tt_op_input && n->op != &tt_op_param &&
           n->op != &tt_op_state && n->op != &tt_op_transfer && !n->param && n->block >= 0;
}

/* Is its result one that SELECTIVE keeps? */
static bool kept_by_op(const tt_recompute_opts *o, const tt_node *n)
{
    if (!o->n_keep)
        return (n->op->flags & TT_OP_HEAVY) || sums(n);
    for (size_t i = 0; i < o->n_keep; i++)
        if (o->keep[i] == n->op)
            return true;
    return false;
}

/* Does n make a weight of its codes? A block's are made again for the backward, whatever the mode: kept,
 * they would take the memory that codes save. */
static bool decodes(const tt_node *n)
{
    return n->param && n->param->codes && n->block >= 0 && n->when->region == TT_FORWARD &&
           n->op != &tt_op_param && n->op != &tt_op_fetch && n->op != &tt_op_transfer;
}

static bool any_codes(const tt_graph *g)
{
    for (size_t i = 0; i < g->params.n; i++)
        if (g->params.items[i]->codes)
            return true;
    return false;
}

static bool any_again(const tt_graph *g)
{
    for (size_t i = 0; i < g->nodes.n; i++)
        if (g->nodes.items[i]->again)
            return true;
    return false;
}

static bool in_backward_of(const tt_node *reader, const tt_node *n)
{
    return reader->when->region == TT_BACKWARD && reader->block == n->block &&
           reader->when->stage == n->when->stage && reader->role != TT_NODE_EXPANDED;
}

static bool is_pointwise(const tt_graph *g, const tt_node *n)
{
    return tt_op_is_fusible(g->ops, n->op) && n->n_out == 1;
}

/* Is n a pointwise function of one value that the backward reads anyway, and do only pointwise ops of the
 * backward read the result? fuse then computes it inside of them, from an operand that is read there
 * as it is: silu(gate), where silu's derivative reads gate. One value less is written, kept and read. */
static bool is_free(const redo *r, const tt_readers *readers, const tt_node *n)
{
    const tt_graph *g = r->g;
    bool kept = false, read = false;
    if (!tt_recompute_can(n) || !is_pointwise(g, n) || n->n_in != 1 ||
        r->free[n->in[0]->node->id] ||
        tt_type_numel(&n->in[0]->type) != tt_type_numel(&n->out[0]->type))
        return false;
    for (int k = 0; k < readers->n[n->in[0]->id]; k++)
        kept |= in_backward_of(g->nodes.items[readers->of[n->in[0]->id][k]], n);
    for (int k = 0; k < readers->n[n->out[0]->id]; k++) {
        const tt_node *m = g->nodes.items[readers->of[n->out[0]->id][k]];
        if (m->when->region == TT_FORWARD)
            continue;
        if (!in_backward_of(m, n) || !is_pointwise(g, m))
            return false;
        read = true;
    }
    return kept && read;
}

static bool find_free(redo *r)
{
    const tt_readers readers = tt_find_readers(r->g);
    bool any = false;
    r->free = tt_arena_array(r->g->arena, (size_t)r->g->n_ids + 1, sizeof *r->free);
    for (size_t i = 0; i < r->g->nodes.n; i++) {
        const tt_node *n = r->g->nodes.items[i];
        any |= r->free[n->id] = is_free(r, &readers, n);
    }
    return any;
}

static bool wanted(const redo *r, const tt_node *n)
{
    const tt_recompute_opts *o = r->o;
    if (decodes(n) || r->free[n->id] || (n->again && tt_recompute_can(n)))
        return true;
    if (n->param && n->when->region == TT_FORWARD) /* a fetch, or the cast before it */
        return o->fetches && n->block >= 0 && n->op != &tt_op_param && n->op != &tt_op_transfer &&
               (n->op != &tt_op_fetch || n->in[0]->node->op != &tt_op_param ||
                !tt_placement_equal(&n->in[0]->place, &n->out[0]->place));
    if (!tt_recompute_can(n) || o->mode == TT_RECOMPUTE_NONE)
        return false;
    if (o->every > 0 && (n->block + 1) % o->every)
        return false;
    int level = o->mode == TT_RECOMPUTE_FULL ? TT_CUT_FULL : TT_CUT_SELECTIVE;
    if (o->mode == TT_RECOMPUTE_CUT)
        level = o->cut->level ? o->cut->level[o->cut->stage_rank[n->when->stage]] : 0;
    return level == TT_CUT_FULL || (level == TT_CUT_SELECTIVE ? !kept_by_op(o, n) : r->redo[n->id]);
}

static tt_value *redo_value(redo *r, tt_value *v, const tt_node *reader)
{
    tt_node *n = v->node;
    if (r->clone[v->id])
        return r->clone[v->id];
    if (!wanted(r, n) || n->block != reader->block || n->when->stage != reader->when->stage)
        return v;
    tt_node *c = tt_arena_dup(r->g->arena, n, sizeof *n);
    c->id = r->g->n_ids++;
    tt_when when = *n->when;
    when.region = TT_BACKWARD;
    when.recomputed = !r->free[n->id]; /* a part of the derivative, in whatever mode */
    c->when = tt_when_intern(r->g, when);
    c->in = tt_arena_array(r->g->arena, (size_t)n->n_in + 1, sizeof *c->in);
    for (int i = 0; i < n->n_in; i++)
        c->in[i] = redo_value(r, n->in[i], reader);
    c->out = tt_arena_array(r->g->arena, (size_t)n->n_out + 1, sizeof *c->out);
    for (int i = 0; i < n->n_out; i++) {
        tt_value *w = tt_arena_dup(r->g->arena, n->out[i], sizeof *w);
        w->id = r->g->n_values++;
        w->node = c;
        c->out[i] = w;
        r->clone[n->out[i]->id] = w;
    }
    tt_vec_push(r->g->arena, &r->list, c);
    return r->clone[v->id];
}

tt_status tt_pass_recompute(tt_graph *g, const tt_recompute_opts *o, tt_error *err)
{
    redo r = {.g = g, .o = o};
    r.clone = tt_arena_array(g->arena, (size_t)g->n_values + 1, sizeof *r.clone);
    const bool any_free = find_free(&r);
    if (o->mode == TT_RECOMPUTE_CUT)
        r.redo = tt_recompute_levels(g, o, r.free);
    if (!any_free && o->mode == TT_RECOMPUTE_NONE && !o->fetches && !o->found && !any_codes(g) &&
        !any_again(g))
        return TT_OK;
    const size_t n = g->nodes.n;
    for (size_t i = 0; i < n; i++) {
        tt_node *e = g->nodes.items[i];
        for (int j = 0;
             e->when->region == TT_BACKWARD && e->role != TT_NODE_EXPANDED && j < e->n_in; j++)
            e->in[j] = redo_value(&r, e->in[j], e);
        tt_vec_push(g->arena, &r.list, e);
    }
    g->nodes.items = r.list.items;
    g->nodes.n = r.list.n;
    g->nodes.cap = r.list.cap;
    if (o->found)
        tt_recompute_describe(g, o);
    return tt_graph_verify(g, "recompute", err);
}
