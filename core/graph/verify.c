/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/builder_impl.h"
#include <stdlib.h>
#include <string.h>

/* tt_graph_verify: what every pass must leave true. */

static tt_status complain(const tt_graph *g, const tt_node *n, const char *after, const char *what,
                          tt_error *err)
{
    tt_placement p = n->n_out ? n->out[0]->place : (tt_placement){0};
    char text[256] = "";
    if (g->placed && n->n_out)
        tt_placement_print(g->mesh, &p, n->out[0]->type.n_dims, text, sizeof text);
    return TT_FAIL(err, TT_EINTERNAL, "after %s: node %d (%s in \"%s\", %s): %s", after, n->id,
                   n->op->name, n->scope ? n->scope : "", text, what);
}

static bool same_dims(const tt_placement *a, const tt_placement *b)
{
    return !memcmp(a->n, b->n, sizeof a->n) && !memcmp(a->atom, b->atom, sizeof a->atom);
}

static const char *check_input(const tt_graph *g, const tt_node *n, int i)
{
    const tt_placement *p = &n->in[i]->place,
                       want = tt_place_input(g->mesh, n->rule, i, n->letters);
    if (!same_dims(p, &want))
        return "an input is not stored as its rule asks";
    if (p->partial & ~n->keep[i])
        return "a partial input that the op is not linear in";
    if (n->op->linear_inputs == TT_LINEAR_JOINT && p->partial != n->keep[i])
        return "operands of a sum differ in what is pending";
    return NULL;
}

static const char *check_outputs(const tt_graph *g, const tt_node *n)
{
    const tt_rule *r = n->rule;
    uint16_t used = 0, kept = 0;
    for (int x = 0; x < r->n_letters; x++)
        for (int i = 0; i < n->letters[x].n; i++)
            used |= (uint16_t)(1u << TT_ATOM(n->letters[x].atom[i]));
    for (int i = 0; i < n->n_in; i++)
        kept |= n->keep[i];
    if (used & kept)
        return "a pending atom is also used to shard";
    for (int o = 0; o < n->n_out; o++) {
        const tt_placement *p = &n->out[o]->place,
                           want = tt_place_output(g->mesh, r, o, n->letters);
        if (!same_dims(p, &want))
            return "an output is not stored as its rule says";
        const uint16_t mine = tt_placement_shard_atoms(p, r->n_out_dims[o]);
        if (p->partial != (uint16_t)((used & ~mine) | kept))
            return "an output is partial over other atoms than its rule says";
    }
    return NULL;
}

static const char *check_identity(const tt_node *n)
{
    const tt_type *a = &n->in[0]->type, *b = &n->out[0]->type;
    if (a->n_dims != b->n_dims || a->dtype != b->dtype)
        return "changes the type";
    for (int d = 0; d < a->n_dims; d++)
        if (a->dims[d].size != b->dims[d].size)
            return "changes the shape";
    return NULL;
}

tt_status tt_graph_verify(const tt_graph *g, const char *after, tt_error *err)
{
    bool *defined = calloc((size_t)g->n_values + 1, 1);
    const char *bad = NULL;
    const tt_node *n = NULL;
    for (size_t i = 0; !bad && i < g->nodes.n; i++) {
        n = g->nodes.items[i];
        for (int j = 0; !bad && j < n->n_in; j++)
            if (n->in[j]->id < 0 || !defined[n->in[j]->id])
                bad = "an input is not defined before";
        for (int j = 0; !bad && j < n->n_out; j++) {
            if (!n->virtual_ && defined[n->out[j]->id])
                bad = "a value is defined twice";
            defined[n->out[j]->id] = true;
            if (g->placed &&
                tt_placement_check(g->mesh, &n->out[j]->place, n->out[j]->type.n_dims, NULL))
                bad = "an atom is used twice";
        }
        if (bad || !g->placed || n->virtual_)
            continue;
        for (int j = 0; !bad && n->rule && j < n->n_in; j++)
            bad = check_input(g, n, j);
        if (!bad && n->rule)
            bad = check_outputs(g, n);
        if (!bad &&
            (n->op == &tt_op_redistribute || n->op == &tt_op_fetch || n->op == &tt_op_transfer))
            bad = check_identity(n);
    }
    free(defined);
    return bad ? complain(g, n, after, bad, err) : TT_OK;
}
