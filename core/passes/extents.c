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

static bool reads(const tt_node *n, const tt_value *v)
{
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] == v)
            return true;
    return false;
}

/* The bit of each input, or output, of n whose first dim is letter x; *elsewhere: another dim of one is. */
static uint32_t with_letter(const tt_rule *r, bool out, int x, bool *elsewhere)
{
    uint32_t bits = 0;
    for (int i = 0; i < (out ? r->n_out : r->n_in); i++)
        for (int d = 0; d < (out ? r->n_out_dims[i] : r->n_in_dims[i]); d++) {
            const bool is = (out ? r->out[i][d] : r->in[i][d]) == x;
            bits |= is && d == 0 ? 1u << i : 0u;
            *elsewhere = *elsewhere || (is && d > 0);
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

static bool reads_counted(const extents *e, const tt_node *n)
{
    for (int i = 0; i < n->n_in; i++)
        if (e->counts[n->in[i]->id])
            return true;
    return false;
}

static void refuse_operands(extents *e, const tt_node *n)
{
    for (int i = 0; i < n->n_in; i++)
        if (e->counts[n->in[i]->id])
            refuse_counts(e, e->counts[n->in[i]->id]);
}

/* The counts and the letter of n's counted rows; NULL: they are not one letter. */
static tt_value *counted_letter(const extents *e, const tt_node *n, const tt_rule *r, int *x)
{
    tt_value *counts = NULL;
    for (int i = 0; i < n->n_in; i++) {
        tt_value *of = e->counts[n->in[i]->id];
        if (of && counts && r->in[i][0] != *x)
            return NULL;
        if (of && !counts) {
            counts = of;
            *x = r->in[i][0];
        }
    }
    return counts;
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
    tt_rule room;
    bool elsewhere = false;
    int x = -1;
    if (!reads_counted(e, n))
        return;
    const tt_rule *r = tt_node_rule(n, &room);
    tt_value *counts = r ? counted_letter(e, n, r, &x) : NULL;
    if (!counts) {
        refuse_operands(e, n);
        return;
    }
    const uint32_t in = with_letter(r, false, x, &elsewhere),
                   out = with_letter(r, true, x, &elsewhere);
    if (elsewhere || !by_rows(n, r, x, counts))
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
