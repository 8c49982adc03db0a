/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/builder_impl.h"
#include "graph/rows.h"
#include <stdlib.h>

/* tt_graph_verify: what must hold of a graph after every pass. */

static tt_status verify_fail(const tt_graph *g, const tt_node *n, const char *after,
                             const char *what, tt_error *err)
{
    tt_placement p = n->n_out ? n->out[0]->place : (tt_placement){0};
    char text[256] = "";
    if (g->placed && n->n_out)
        tt_placement_print(g->mesh, &p, n->out[0]->type.n_dims, text, sizeof text);
    return TT_FAIL(err, TT_EINTERNAL, "after %s: node %d (%s in \"%s\", %s): %s", after, n->id,
                   n->op->name, n->scope ? n->scope : "", text, what);
}

static const char *check_input(const tt_graph *g, const tt_node *n, int i)
{
    const tt_placement *p = &n->in[i]->place,
                       want = tt_place_input(g->mesh, n->rule, i, n->letters);
    if (!tt_placement_same_shards(p, &want))
        return "an input is not stored as its rule asks";
    if (p->partial & ~n->keep[i])
        return "a partial input that the op is not linear in";
    if (n->op->linear_inputs == TT_LINEAR_JOINT && p->partial != n->keep[i])
        return "operands of a sum differ in what is pending";
    return NULL;
}

/* The atoms of all letters, or (contracted) of the letters that output o does not have. */
static uint16_t atoms_used(const tt_node *n, int o, bool contracted)
{
    const tt_rule *r = n->rule;
    uint16_t used = 0;
    for (int x = 0; x < r->n_letters; x++) {
        bool mine = false;
        for (int d = 0; contracted && d < r->n_out_dims[o]; d++)
            mine = mine || r->out[o][d] == x;
        for (int i = 0; !mine && i < n->letters[x].n; i++)
            used |= (uint16_t)(1u << TT_ATOM(n->letters[x].atom[i]));
    }
    return used;
}

static const char *check_outputs(const tt_graph *g, const tt_node *n)
{
    const tt_rule *r = n->rule;
    const uint16_t used =
        atoms_used(n, 0, n->own_rows); /* the rows of a piece are not a partial sum */
    uint16_t kept = 0;
    for (int i = 0; i < n->n_in; i++)
        kept |= n->keep[i];
    if (used & kept)
        return "a pending atom is also used to shard";
    for (int o = 0; o < n->n_out; o++) {
        const tt_placement *p = &n->out[o]->place,
                           want = tt_place_output(g->mesh, r, o, n->letters);
        if (!tt_placement_same_shards(p, &want))
            return "an output is not stored as its rule says";
        const uint16_t mine = tt_placement_shard_atoms(p, r->n_out_dims[o]),
                       summed = n->own_rows ? atoms_used(n, o, true) : (uint16_t)(used & ~mine);
        if (p->partial != (summed | kept))
            return "an output is partial over other atoms than its rule says";
    }
    return NULL;
}

/* In a step that is not measured, what measured nodes write does not exist. */
static const char *check_measured(const tt_node *n)
{
    for (int j = 0; !n->when->measured && j < n->n_in; j++)
        if (n->in[j]->node->when->measured)
            return "it runs in every step and reads what only measured steps compute";
    return NULL;
}

static const char *check_identity(const tt_node *n, int i)
{
    const tt_type *a = &n->in[i]->type, *b = &n->out[0]->type;
    if (a->n_dims != b->n_dims || a->dtype != b->dtype)
        return "changes the type";
    for (int d = 0; d < a->n_dims; d++)
        if (a->dims[d].size != b->dims[d].size)
            return "changes the shape";
    return NULL;
}

/* A join and a sum have as many inputs as their group has ranks, each in its place. */
static const char *check_pieces(const tt_graph *g, const tt_node *n)
{
    const tt_lower_step *s = n->step;
    const char *bad = NULL;
    if (n->n_in != tt_mesh_degree(g->mesh, &s->atoms))
        return "a piece is missing";
    for (int i = 0; !bad && i < n->n_in; i++) {
        tt_placement want = s->src;
        const int first = want.n[0] - s->atoms.n;
        if (s->kind == TT_STEP_JOIN)
            tt_shift_atoms(g->mesh, i, first, want.atom[0], want.n[0]);
        bad = check_identity(n, i);
        if (!tt_placement_equal(&n->in[i]->place, &want))
            bad = "a piece is not stored where it belongs";
    }
    return bad;
}

static int cut_degree(const tt_graph *g, const tt_value *v, int d)
{
    tt_atom_list l = {.n = v->place.n[d]};
    for (int i = 0; i < l.n; i++)
        l.atom[i] = (uint16_t)TT_ATOM(v->place.atom[d][i]);
    return tt_mesh_degree(g->mesh, &l);
}

/* Is what counts the rows of an all-to-all stored as core/comm/exchange.c reads it? */
static const char *check_rows(const tt_graph *g, const tt_node *n)
{
    const int parts = tt_mesh_degree(g->mesh, &n->step->atoms);
    if (n->n_in == 1)
        return NULL;
    if (!tt_node_sends_rows(n) || n->out[0]->type.n_dims != 3)
        return "it has an input too many";
    for (int i = 1; i < 3; i++) {
        const tt_value *c = n->in[i];
        const int cut = (i == 1 ? &n->step->src : &n->step->dst)->n[1] ? 2 : 1;
        if (c->type.dtype != TT_I32 || c->type.n_dims != 3 || c->place.partial ||
            c->type.dims[0].size != cut_degree(g, c, 0) || cut_degree(g, c, cut) != parts ||
            cut_degree(g, c, 3 - cut) != 1)
            return "its rows are not counted where they are sent and received";
    }
    return NULL;
}

/* Nodes that move a value and do not change it. */
static const char *check_move(const tt_graph *g, const tt_node *n)
{
    if (n->op == &tt_op_redistribute || n->op == &tt_op_fetch || n->op == &tt_op_transfer)
        return check_identity(n, 0);
    if (n->op != &tt_op_collective)
        return NULL;
    if (n->step->kind == TT_STEP_JOIN || n->step->kind == TT_STEP_SUM)
        return check_pieces(g, n);
    if (!tt_placement_equal(&n->in[0]->place, &n->step->src) ||
        !tt_placement_equal(&n->out[0]->place, &n->step->dst))
        return "a step is not from where its input is to where its output is";
    const char *bad = check_rows(g, n);
    return bad ? bad : check_identity(n, 0);
}

tt_status tt_graph_verify(const tt_graph *g, const char *after, tt_error *err)
{
    bool *defined = calloc((size_t)g->n_values + 1, 1);
    const char *bad = NULL;
    const tt_node *n = NULL;
    for (size_t i = 0; !bad && i < g->nodes.n; i++) {
        n = g->nodes.items[i];
        if (!tt_when_is_interned(g, n->when))
            bad = "its tt_when is not interned in this graph";
        for (int j = 0; !bad && j < n->n_in; j++)
            if (n->in[j]->id < 0 || !defined[n->in[j]->id])
                bad = "an input is not defined before";
        for (int j = 0; !bad && j < n->n_out; j++) {
            if (n->role != TT_NODE_EXPANDED && defined[n->out[j]->id])
                bad = "a value is defined twice";
            defined[n->out[j]->id] = true;
            if (g->placed && !n->own_rows &&
                tt_placement_check(g->mesh, &n->out[j]->place, n->out[j]->type.n_dims, NULL))
                bad = "an atom is used twice";
        }
        if (!bad)
            bad = check_measured(n);
        if (bad || !g->placed || n->role == TT_NODE_EXPANDED)
            continue;
        for (int j = 0; !bad && n->rule && j < n->n_in; j++)
            bad = check_input(g, n, j);
        if (!bad && n->rule)
            bad = check_outputs(g, n);
        if (!bad)
            bad = check_move(g, n);
    }
    free(defined);
    return bad ? verify_fail(g, n, after, bad, err) : TT_OK;
}
