/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/rewrite.h"
#include "passes/passes.h"
#include <string.h>

/* extents: finds which operands have rows that the graph counts (R8). The rows of experts on a rank have
 * room for the worst case, and an input of the op that makes them says how many there are
 * (tt_op_def.counted_by). What is computed from them row by row has as many, and kernels get operands with
 * so many rows. The rows after them are not defined, so no op may read them. Where one would, all rows that
 * these counts tell of are made, as if nobody had counted them. */

typedef struct extents {
    tt_graph *g;
    tt_value **counts; /* by value id: what counts its rows; NULL: it has all */
    bool *off;         /* by id of such a value: an op cannot work on a part of the rows */
    bool again;        /* the last round has found one more of these */
} extents;

static void refuse_counts(extents *e, const tt_value *counts)
{
    e->again = e->again || !e->off[counts->id];
    e->off[counts->id] = true;
}

/* Has each rank the rows of one part alone? Only then do the sum of its counts and its rows agree. */
static bool one_part(const tt_graph *g, const tt_value *rows, const tt_value *counts)
{
    const tt_dim *r = &rows->type.dims[0];
    int64_t parts = 1;
    for (int d = 0; d + 1 < counts->type.n_dims; d++)
        parts *= counts->type.dims[d].size;
    return counts->type.n_dims > 1 &&
           tt_chunk(g->mesh, r, rows->place.atom[0], rows->place.n[0]) * parts == r->size;
}

/* The node's rule: nodes that fuse and other late passes made have none. */
static bool rule_of_node(const tt_node *n, tt_rule *rule)
{
    char text[512] = "";
    const tt_type *in[TT_MAX_INS];
    int ranks[TT_MAX_INS], out_ranks[TT_MAX_OUTS];
    tt_error why = {0};
    if (n->rule) {
        *rule = *n->rule;
        return true;
    }
    if ((!n->op->rule && !n->op->rule_for) || n->n_in > TT_MAX_INS || n->n_out > TT_MAX_OUTS)
        return false;
    for (int i = 0; i < n->n_in; i++) {
        in[i] = &n->in[i]->type;
        ranks[i] = in[i]->n_dims;
    }
    for (int i = 0; i < n->n_out; i++)
        out_ranks[i] = n->out[i]->type.n_dims;
    const tt_shape_query q = {sizeof q, n->n_in, in, n->attrs, n->op->name};
    if (n->op->rule)
        snprintf(text, sizeof text, "%s", n->op->rule);
    else
        n->op->rule_for(&q, text, sizeof text);
    return tt_rule_parse(text, ranks, n->n_in, out_ranks, n->n_out, rule, &why) == TT_OK;
}

static bool reads(const tt_node *n, const tt_value *v)
{
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] == v)
            return true;
    return false;
}

/* The bit of each operand whose first dim is letter x; *elsewhere: another dim of one is. */
static uint32_t with_letter(int8_t (*letters)[TT_MAX_DIMS], const int8_t *n_dims, int n, int x,
                            bool *elsewhere)
{
    uint32_t bits = 0;
    for (int i = 0; i < n; i++)
        for (int d = 0; d < n_dims[i]; d++) {
            bits |= d == 0 && letters[i][d] == x ? 1u << i : 0u;
            *elsewhere = *elsewhere || (d > 0 && letters[i][d] == x);
        }
    return bits;
}

/* Can n work on a part of the rows, letter x of its rule? An op that reads the counts can; another one
 * must have a row of its results for each row, or sum over rows. */
static bool by_rows(const tt_node *n, const tt_rule *r, int x, const tt_value *counts)
{
    if (reads(n, counts))
        return true;
    for (int i = 0; i < r->n_groups; i++)
        if (r->groups[i].x == x || r->groups[i].first == x || r->groups[i].rest == x)
            return false;
    for (int i = 0; i < n->n_in; i++)
        if (r->in_shift[i])
            return false;
    return !(r->whole >> x & 1u);
}

/* The counts and the letter of n's counted rows; NULL: it has none, or not one letter of them. */
static tt_value *counted_letter(extents *e, const tt_node *n, const tt_rule *r, int *x)
{
    tt_value *counts = NULL;
    bool differ = false;
    for (int i = 0; i < n->n_in; i++) {
        tt_value *of = e->counts[n->in[i]->id];
        if (!of)
            continue;
        if (!counts) {
            counts = of;
            *x = r->in[i][0];
        }
        differ = differ || r->in[i][0] != *x;
    }
    for (int i = 0; differ && i < n->n_in; i++)
        if (e->counts[n->in[i]->id])
            refuse_counts(e, e->counts[n->in[i]->id]);
    return differ ? NULL : counts;
}

static void set_counts(extents *e, tt_node *n, tt_value *counts, uint32_t in, uint32_t out)
{
    n->counts = counts;
    n->counted_in = in;
    n->counted_out = out;
    for (int i = 0; i < n->n_out; i++)
        if (out >> i & 1u)
            e->counts[n->out[i]->id] = counts;
}

static void follow(extents *e, tt_node *n)
{
    tt_rule r;
    bool any = false, elsewhere = false;
    int x = -1;
    for (int i = 0; i < n->n_in; i++)
        any = any || e->counts[n->in[i]->id];
    if (!any)
        return;
    if (n->n_in > TT_MAX_INS || !rule_of_node(n, &r)) {
        for (int i = 0; i < n->n_in; i++)
            if (e->counts[n->in[i]->id])
                refuse_counts(e, e->counts[n->in[i]->id]);
        return;
    }
    tt_value *counts = counted_letter(e, n, &r, &x);
    if (!counts)
        return;
    const uint32_t in = with_letter(r.in, r.n_in_dims, n->n_in, x, &elsewhere),
                   out = with_letter(r.out, r.n_out_dims, n->n_out, x, &elsewhere);
    if (elsewhere || !by_rows(n, &r, x, counts))
        refuse_counts(e, counts);
    else
        set_counts(e, n, counts, in, out);
}

static void visit(extents *e, tt_node *n)
{
    const int k = tt_op_counted_by(n->op);
    n->counts = NULL;
    if (n->role == TT_NODE_EXPANDED)
        return;
    if (!k || n->n_in < k || !n->n_out || e->off[n->in[k - 1]->id])
        follow(e, n);
    else if (one_part(e->g, n->out[0], n->in[k - 1]))
        set_counts(e, n, n->in[k - 1], 0, 1);
}

static bool any_counted(const tt_graph *g)
{
    for (size_t i = 0; i < g->nodes.n; i++)
        if (tt_op_counted_by(g->nodes.items[i]->op))
            return true;
    return false;
}

void tt_pass_extents(tt_graph *g)
{
    extents e = {.g = g, .again = any_counted(g)};
    const size_t room = (size_t)g->n_values + 1;
    e.off = tt_arena_array(g->arena, room, sizeof *e.off);
    e.counts = tt_arena_array(g->arena, room, sizeof *e.counts);
    while (e.again) { /* each round but the last refuses counts that the rounds before it did not */
        e.again = false;
        memset(e.counts, 0, room * sizeof *e.counts);
        for (size_t i = 0; i < g->nodes.n; i++)
            visit(&e, g->nodes.items[i]);
    }
}
