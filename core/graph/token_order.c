/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/builder_impl.h"
#include <string.h>

/* Does a described graph need the tokens of a sequence in their order? The core may permute them
 * (core/setup/token_order.c), and ids, labels, pos and seg with them. This file follows the token dim of
 * these inputs through the graph, by the letters of each op's sharding rule. A dim of a value either
 *
 *   moves     its elements move with the tokens,
 *   is even   all its elements are equal: a broadcast, or size 1,
 *   is fixed  its elements have places of their own: of parameters, constants, iota, random numbers.
 *
 * An op that only computes along the other dims, or that sums over a dim that moves, gives the same for
 * every order. The order is needed
 *
 *   - if an op says so (TT_OP_ORDERED; emit.c), also in the decomposition of another;
 *   - if a letter that moves must be whole ("!t"), because the op then does more than the same to each
 *     element: slice, concat, roll, cumsum, sort, gather from tokens, reshape of tokens to sequences;
 *   - if a letter moves in one operand and is fixed in another: x [T,D] times a constant [T,1];
 *   - if a letter that moves is contracted by an op that has an integer without that letter, which may
 *     be an index of a token: argmax over tokens, a lookup in a table of tokens.
 *
 * The last three do not hold for an op with TT_OP_MIXES_TOKENS and not TT_OP_ORDERED, which reads a token's
 * position from pos, and for one with TT_OP_PLACES_OPERANDS, which says that it needs no order. The test may find too much, such as a softmax over all tokens: then the order is kept for
 * nothing, which costs time, and changes no number. */

typedef struct dims_state { /* bit d: dim d of a value */
    unsigned moves, even;
} dims_state;

typedef struct walk {
    tt_builder *b;
    dims_state *of; /* by value id */
} walk;

typedef struct letters_state { /* bit x: letter x of a rule */
    uint32_t in, out, moves, fixed, even;
} letters_state;

static unsigned size_one(const tt_type *t)
{
    unsigned even = 0;
    for (int d = 0; d < t->n_dims; d++)
        even |= (unsigned)(t->dims[d].size <= 1) << d;
    return even;
}

static bool any_moves(const walk *w, const tt_node *n)
{
    bool moves = false;
    for (int i = 0; i < n->n_in; i++)
        moves = moves || w->of[n->in[i]->id].moves;
    return moves;
}

/* What the operands say of each letter of the rule. */
static letters_state letters_of(const walk *w, const tt_node *n, const tt_rule *r)
{
    letters_state s = {0};
    for (int i = 0; i < r->n_in; i++) {
        const dims_state v = w->of[n->in[i]->id];
        for (int d = 0; d < r->n_in_dims[i]; d++) {
            const uint32_t x = UINT32_C(1) << r->in[i][d];
            s.in |= x;
            if (v.moves >> d & 1u)
                s.moves |= x;
            else if (!(v.even >> d & 1u))
                s.fixed |= x;
        }
    }
    for (int o = 0; o < r->n_out; o++)
        for (int d = 0; d < r->n_out_dims[o]; d++)
            s.out |= UINT32_C(1) << r->out[o][d];
    s.even = s.in & ~(s.moves | s.fixed);
    if (n->op == &tt_op_broadcast)
        s.even |= s.out & ~s.in;
    return s;
}

/* The letters that must be whole, and those of which a factor must: t of "t=(b !q)". */
static uint32_t whole_letters(const tt_rule *r)
{
    uint32_t whole = r->whole;
    for (int i = 0; i < r->n_groups; i++)
        if (r->whole >> r->groups[i].rest & 1u)
            whole |= UINT32_C(1) << r->groups[i].x | UINT32_C(1) << r->groups[i].first;
    return whole;
}

static bool is_integer(const tt_type *t)
{
    return !tt_dtype_is_float(t->dtype) && t->dtype != TT_BOOL;
}

/* The letters that some integer operand or result of the node lacks. */
static uint32_t lacked_by_integers(const tt_node *n, const tt_rule *r)
{
    uint32_t lacked = 0;
    for (int s = 0; s < r->n_in + r->n_out; s++) {
        const int o = s < r->n_in ? s : s - r->n_in;
        const tt_value *v = s < r->n_in ? n->in[o] : n->out[o];
        const int8_t *names = s < r->n_in ? r->in[o] : r->out[o];
        uint32_t has = 0;
        for (int d = 0; d < v->type.n_dims; d++)
            has |= UINT32_C(1) << names[d];
        if (is_integer(&v->type))
            lacked |= ~has;
    }
    return lacked;
}

static bool needs_order(const tt_node *n, const tt_rule *r, const letters_state *s)
{
    if (n->op->flags & (TT_OP_MIXES_TOKENS | TT_OP_PLACES_OPERANDS))
        return false;
    return (s->moves & (s->fixed | whole_letters(r))) ||
           (s->moves & ~s->out & lacked_by_integers(n, r));
}

/* Marks the dims of the node's results. Returns whether the node needs the order. */
static bool visit_op(walk *w, const tt_node *n)
{
    const tt_rule *r = NULL;
    const tt_type *in[TT_MAX_INS];
    tt_type out[TT_MAX_OUTS];
    for (int i = 0; i < n->n_in; i++)
        in[i] = &n->in[i]->type;
    for (int o = 0; o < n->n_out; o++)
        out[o] = n->out[o]->type;
    const tt_shape_query q = {sizeof q, n->n_in, in, n->attrs, n->op->name};
    if ((!n->op->rule && !n->op->rule_for) || tt_op_rule(w->b, n->op, &q, out, &r, NULL) != TT_OK)
        return any_moves(w, n);
    const letters_state s = letters_of(w, n, r);
    for (int o = 0; o < n->n_out; o++) {
        dims_state *v = &w->of[n->out[o]->id];
        v->even = size_one(&out[o]);
        for (int d = 0; d < r->n_out_dims[o]; d++) {
            v->moves |= (s.moves >> r->out[o][d] & 1u) << d;
            v->even |= (s.even >> r->out[o][d] & 1u) << d;
        }
    }
    return needs_order(n, r, &s);
}

static bool visit(walk *w, const tt_node *n)
{
    if (n->op == &tt_op_custom) /* its derivative is any function of x, y and dy */
        return any_moves(w, n);
    if (n->role == TT_NODE_EXPANDED)
        return false;
    if (n->n_in)
        return visit_op(w, n);
    for (int o = 0; o < n->n_out; o++) {
        const tt_type *t = &n->out[o]->type;
        w->of[n->out[o]->id] = (dims_state){0, size_one(t)};
        if (n->op == &tt_op_input && t->n_dims && t->dims[0].label &&
            !strcmp(t->dims[0].label, TT_LABEL_TOKENS) && t->dims[0].size > 1)
            w->of[n->out[o]->id].moves = 1;
    }
    return false;
}

void tt_need_order(tt_builder *b, const tt_op_def *def, const char *scope)
{
    if (!b->g->ordered)
        b->g->ordered =
            tt_arena_printf(b->arena, "op %s%s%s%s", def->name, scope && scope[0] ? " (in \"" : "",
                            scope ? scope : "", scope && scope[0] ? "\")" : "");
}

void tt_graph_find_order(tt_builder *b)
{
    tt_graph *g = b->g;
    walk w = {b, tt_arena_array(b->arena, (size_t)g->n_values + 1, sizeof *w.of)};
    for (size_t i = 0; i < g->nodes.n; i++)
        if (visit(&w, g->nodes.items[i]))
            tt_need_order(b, g->nodes.items[i]->op, g->nodes.items[i]->scope);
    for (size_t i = 0; i < g->buffer_updates.n; i++) {
        const tt_buffer_entry *e = &g->buffer_updates.items[i];
        if (w.of[e->stat->id].moves)
            tt_need_order(b, e->stat->node->op, e->stat->node->scope);
    }
}
