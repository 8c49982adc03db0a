/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/builder_impl.h"
#include <string.h>

/* Local decompositions (TT_OP_LOCAL): the op's rule has placed its operands; now its decomposition is
 * written on them. The inner ops keep the cuts of their operands (tt_builder_finest). The rule promises
 * that this needs no communication: a redistribute that is more than a rank's slice of what it has is
 * an error. */

/* ---- errors ---- */

static const char *rule_text(tt_builder *b, const tt_local *l)
{
    char text[512];
    if (l->def->rule)
        return l->def->rule;
    l->def->rule_for(l->q, text, sizeof text);
    return tt_arena_str(b->arena, text);
}

/* The letter of the op's rule that has this atom, in t=(b q) b or q rather than t; NULL: none has it. */
static const char *letter_of(const tt_local *l, unsigned atom)
{
    const tt_rule *r = l->placing->rule;
    const tt_atom_list *ax = l->placing->letters;
    for (int i = 0; i < r->n_groups; i++)
        if (tt_atom_list_mask(&ax[r->groups[i].x]) >> TT_ATOM(atom) & 1u) {
            const bool first = tt_atom_list_mask(&ax[r->groups[i].first]) >> TT_ATOM(atom) & 1u;
            return r->name[first ? r->groups[i].first : r->groups[i].rest];
        }
    for (int x = 0; x < r->n_letters; x++)
        if (tt_atom_list_mask(&ax[x]) >> TT_ATOM(atom) & 1u)
            return r->name[x];
    return NULL;
}

static bool pending_operand(const tt_local *l, unsigned atom)
{
    for (int i = 0; i < l->q->n_in; i++)
        if (l->placing->keep[i] >> TT_ATOM(atom) & 1u)
            return true;
    return false;
}

/* The first atom of v that `to` lacks at that place; -1: there is none. */
static int lost_atom(const tt_value *v, const tt_placement *to)
{
    for (int d = 0; d < v->type.n_dims; d++)
        for (int i = 0; i < v->place.n[d]; i++)
            if (i >= to->n[d] || v->place.atom[d][i] != to->atom[d][i])
                return v->place.atom[d][i];
    return -1;
}

static int lowest_bit(unsigned mask)
{
    return mask ? __builtin_ctz(mask) : -1;
}

static void fail_cut(tt_builder *b, const tt_local *l, const tt_value *v, unsigned atom)
{
    const char *axis = b->g->mesh->atom_name[TT_ATOM(atom)], *x = letter_of(l, atom);
    char type[256];
    tt_type_print(&v->type, type, sizeof type);
    if (x)
        tt_builder_fail(b, TT_EINVAL,
                        "op %s (TT_OP_LOCAL): its rule \"%s\" lets %s cut letter %s, but %s in its "
                        "decomposition needs %s in another placement: write !%s in the rule, or a "
                        "decomposition that keeps the cut",
                        l->def->name, rule_text(b, l), axis, x, l->placed_op, type, x);
    else
        tt_builder_fail(b, TT_EINVAL,
                        "op %s (TT_OP_LOCAL): %s in its decomposition needs %s whole, of which a "
                        "rank has the part of its %s: make the value an operand of %s, so that "
                        "its rule places it",
                        l->def->name, l->placed_op, type, axis, l->def->name);
}

static void fail_sum(tt_builder *b, const tt_local *l, unsigned atom)
{
    const char *axis = b->g->mesh->atom_name[TT_ATOM(atom)], *x = letter_of(l, atom);
    if (pending_operand(l, atom))
        tt_builder_fail(b, TT_EINVAL,
                        "op %s (TT_OP_LOCAL): its linear_inputs let an operand be a partial sum "
                        "over %s, but %s in its decomposition needs the sum: clear the bit, or "
                        "write a decomposition that is linear in the operand",
                        l->def->name, axis, l->placed_op);
    else
        tt_builder_fail(b, TT_EINVAL,
                        "op %s (TT_OP_LOCAL): its rule \"%s\" lets %s cut letter %s, which makes "
                        "a partial sum, but %s in its decomposition needs the sum: write !%s in "
                        "the rule, or a decomposition that is linear in the sum",
                        l->def->name, rule_text(b, l), axis, x ? x : "?", l->placed_op,
                        x ? x : "?");
}

/* Is `to` a part of what each rank has of v, or (a mask) v on one rank and 0 on the others? */
static bool is_free(const tt_builder *b, const tt_value *v, const tt_placement *to)
{
    tt_lower_step steps[TT_MAX_STEPS];
    const int n = tt_lower(b->g->mesh, v->type.dims, v->type.n_dims, &v->place, to, steps);
    for (int i = 0; i < n; i++)
        if (steps[i].kind != TT_STEP_SLICE && steps[i].kind != TT_STEP_MASK)
            return false;
    return true;
}

bool tt_local_allows(tt_builder *b, const tt_value *v, const tt_placement *to)
{
    const tt_local *l = b->local;
    if (!l || is_free(b, v, to))
        return true;
    const int atom = lost_atom(v, to), sum = lowest_bit(v->place.partial & (unsigned)~to->partial);
    if (atom >= 0 || sum < 0)
        fail_cut(b, l, v, atom >= 0 ? (unsigned)atom : 0);
    else
        fail_sum(b, l, (unsigned)sum);
    return false;
}

bool tt_local_refuses(tt_builder *b, const char *what)
{
    if (!b->failed && b->local)
        tt_builder_fail(
            b, TT_EINVAL,
            "op %s (TT_OP_LOCAL): its decomposition calls %s, which only describe() may "
            "call: make the value an operand of the op",
            b->local->def->name, what);
    return b->failed;
}

/* ---- values without operands ---- */

#define SOURCE_DEPTH 16

/* Is v whole and computed, in at most `depth` steps, from scalars, constants and attributes alone? Random
 * numbers are, and what is compared with them. */
static bool is_source(const tt_value *v, int depth)
{
    const tt_node *n = v->node;
    if (v->place.partial || tt_placement_shard_atoms(&v->place, v->type.n_dims))
        return false;
    if (n->op == &tt_op_state)
        return n->state->values != NULL;
    if (depth == 0 || !n->rule || n->rule->n_groups || n->n_out != 1 || n->role == TT_NODE_EXPANDED)
        return false;
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i]->type.n_dims && !is_source(n->in[i], depth - 1))
            return false;
    return true;
}

tt_value *tt_local_source(tt_builder *b, tt_value *v, const tt_placement *to)
{
    const tt_node *n = v->node;
    tt_atom_list letters[TT_MAX_LETTERS];
    tt_value *in[TT_MAX_INS];
    if (!b->local || to->partial || n->op == &tt_op_state || !is_source(v, SOURCE_DEPTH))
        return NULL;
    memset(letters, 0, sizeof letters);
    for (int d = 0; d < v->type.n_dims; d++) {
        const int x = n->rule->out[0][d];
        if (to->n[d] && (n->rule->whole >> x & 1u))
            return NULL;
        letters[x].n = to->n[d];
        memcpy(letters[x].atom, to->atom[d], sizeof letters[x].atom);
    }
    for (int i = 0; i < n->n_in; i++) {
        const tt_placement part = tt_place_input(b->g->mesh, n->rule, i, letters);
        in[i] = tt_redistribute(b, n->in[i], &part);
    }
    tt_node *part = tt_node_new(b, n->op, in, n->n_in, &v->type, to, 1);
    part->role = n->role; /* readers outside may share it, as a redistribute */
    part->attrs = n->attrs;
    part->rule = n->rule;
    part->letters = tt_arena_dup(b->arena, letters, sizeof letters);
    part->keep = n->keep;
    return part->out[0];
}

/* ---- results ---- */

static bool same_label(const char *a, const char *b)
{
    return a == b || (a && b && !strcmp(a, b));
}

/* Do the dims say the same to placement: unit, label and the number of sequences? */
static bool same_meaning(const tt_type *a, const tt_type *b)
{
    for (int d = 0; d < a->n_dims; d++)
        if (a->dims[d].unit != b->dims[d].unit || a->dims[d].lines != b->dims[d].lines ||
            !same_label(a->dims[d].label, b->dims[d].label))
            return false;
    return true;
}

static bool same_sizes(const tt_type *a, const tt_type *b)
{
    bool same = a->n_dims == b->n_dims && a->dtype == b->dtype;
    for (int d = 0; same && d < a->n_dims; d++)
        same = a->dims[d].size == b->dims[d].size;
    return same;
}

tt_value *tt_decomposed(tt_builder *b, const tt_op_def *def, int o, const tt_type *t, tt_value *v)
{
    const char *local = def->flags & TT_OP_LOCAL ? " (TT_OP_LOCAL)" : "";
    char has[256], wants[256];
    if (b->failed)
        return tt_placeholder(b);
    if (!v)
        return tt_builder_fail(b, TT_EINVAL, "op %s%s: its decomposition leaves output %d NULL",
                               def->name, local, o);
    if (same_sizes(&v->type, t))
        return v;
    tt_type_print(&v->type, has, sizeof has);
    tt_type_print(t, wants, sizeof wants);
    return tt_builder_fail(b, TT_EINVAL,
                           "op %s%s: its decomposition gives %s as output %d, but its infer says "
                           "%s: cast or reshape it",
                           def->name, local, has, o, wants);
}

static void fail_place(tt_builder *b, const tt_local *l, int o, const tt_value *v)
{
    char has[256], wants[256];
    const tt_placement *to = &l->placing->out[o];
    tt_placement_print(b->g->mesh, &v->place, v->type.n_dims, has, sizeof has);
    tt_placement_print(b->g->mesh, to, v->type.n_dims, wants, sizeof wants);
    const int cut = lost_atom(v, to), sum = lowest_bit(v->place.partial & (unsigned)~to->partial),
              atom = cut >= 0 ? cut : TT_MAXV(sum, 0);
    const char *x = letter_of(l, (unsigned)atom);
    const char *what = !x         ? "reads what is no operand and cut: make it an operand"
                       : cut >= 0 ? "cuts it in another way: change the rule or the decomposition"
                                  : "leaves a sum over ranks: change the rule or the decomposition";
    tt_builder_fail(b, TT_EINVAL,
                    "op %s (TT_OP_LOCAL): by its rule \"%s\" output %d is %s, but its "
                    "decomposition gives %s; over %s%s%s it %s",
                    l->def->name, rule_text(b, l), o, wants, has,
                    b->g->mesh->atom_name[TT_ATOM((unsigned)atom)], x ? ", letter " : "",
                    x ? x : "", what);
}

/* Output o of the decomposition, with the type and the placement that the op says. Where the op has a
 * derivative of its own, an output must be a value of its own, too: the cotangents of a value are
 * summed, and an operand has others. */
static tt_value *local_result(tt_builder *b, int o, const tt_type *t, tt_value *const *outs,
                              int first_node)
{
    tt_local *l = b->local;
    tt_value *v = tt_decomposed(b, l->def, o, t, outs[o]);
    if (b->failed)
        return v;
    bool shared = v->node->id < first_node;
    for (int k = 0; k < o; k++)
        shared = shared || outs[k] == v;
    if ((shared && b->inner) || !same_meaning(&v->type, t))
        v = tt_reshape(b, v, t->dims, t->n_dims);
    if (b->failed || tt_placement_equal(&v->place, &l->placing->out[o]))
        return v;
    if (is_free(b, v, &l->placing->out[o]))
        return tt_redistribute(b, v, &l->placing->out[o]);
    fail_place(b, l, o, v);
    return tt_placeholder(b);
}

void tt_emit_local(tt_builder *b, const tt_op_def *def, const tt_shape_query *q,
                   const tt_type *types, tt_value **args, const tt_placing *p, const void *attrs,
                   tt_value **outs)
{
    tt_local here = {.def = def, .q = q, .placing = p, .placed_op = def->name, .outer = b->local};
    const bool inner = b->inner, follow = tt_builder_follow(b, true),
               finest = tt_builder_finest(b, true);
    const int first_node = b->g->n_ids;
    tt_value *given[TT_MAX_OUTS] = {NULL};
    b->local = &here;
    b->inner = inner || def->vjp || (def->flags & TT_OP_NO_GRADIENT);
    def->decompose(b, q, args, given);
    for (int o = 0; o < def->n_out; o++)
        outs[o] = local_result(b, o, &types[o], given, first_node);
    b->local = here.outer;
    b->inner = inner;
    tt_builder_finest(b, finest);
    tt_builder_follow(b, follow);
    if (!b->failed && !inner && def->vjp)
        tt_expanded_node(b, def, args, q->n_in, attrs, outs);
}
