/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/rewrite.h"
#include "passes/async_tp_impl.h"
#include <string.h>

/* async_tp: asynchronous tensor parallelism. Under sequence parallelism the matrix products of a
 * layer wait for a gather of their rows, or their result waits for a reduce-scatter. This pass
 * splits both into pieces, one for each rank's rows, so that one piece is communicated while
 * another is multiplied:
 *
 *   y = linear(gather(x), w)      x1 = shift(x): the rows of the next rank
 *                                 y0 = linear(x, w): its own meanwhile; x2 = shift(x); …
 *                                 y = join(y0, y1, …): where they lie
 *   z = reduce_scatter(linear(a)) p1 = linear(rows of a for the next rank), q1 = shift(p1) there;
 *                                 p2, … meanwhile; p0, its own, last; z = sum(p0, q1, …)
 *
 * PyTorch has the same in fused_all_gather_matmul and fused_matmul_reduce_scatter. Pieces have
 * ring-shifted placements, so their boxes say which rows they are on each rank, even if ranks have
 * different numbers of rows. The rows of a product do not depend on each other, and the sum adds in
 * the order of the group's members, so no bit changes.
 *
 * The products that read one gather form a group, and so do those whose results are summed before
 * one reduce-scatter. If a node outside the group needs such a value (the gradient of a weight
 * does), the whole value exists in memory, and its pieces are written there. */

/* ---- what may be cut ---- */

static bool has_letter(const int8_t *names, int n, int letter, int from)
{
    for (int d = from; d < n; d++)
        if (names[d] == letter)
            return true;
    return false;
}

static bool in_groups(const tt_rule *r, int letter)
{
    for (int i = 0; i < r->n_groups; i++)
        if (r->groups[i].x == letter || r->groups[i].first == letter || r->groups[i].rest == letter)
            return true;
    return false;
}

/* Does the rule sum over a letter? Only such an op runs long enough to hide a message. */
static bool contracts(const tt_rule *r)
{
    for (int x = 0; x < r->n_letters; x++) {
        bool in = false, out = false;
        for (int i = 0; i < r->n_in; i++)
            in = in || has_letter(r->in[i], r->n_in_dims[i], x, 0);
        for (int o = 0; o < r->n_out; o++)
            out = out || has_letter(r->out[o], r->n_out_dims[o], x, 0);
        if (in && !out)
            return true;
    }
    return false;
}

static bool same_rows(const tt_value *a, const tt_value *b)
{
    const tt_dim *x = &a->type.dims[0], *y = &b->type.dims[0];
    return x->size == y->size && x->unit == y->unit && a->place.n[0] == b->place.n[0] &&
           !memcmp(a->place.atom[0], b->place.atom[0], sizeof a->place.atom[0]);
}

bool tt_async_tp_rows(const tt_node *n, rows *out)
{
    tt_rule own;
    const tt_rule *r;
    bool any = false;
    if (n->n_in < 1 || n->n_out < 1 || n->accumulate_into || n->assign_to || n->when->per_step ||
        n->step || (n->op->flags & (TT_OP_MIXES_TOKENS | TT_OP_UPDATES | TT_OP_VIEW)))
        return false;
    if (!(r = tt_node_rule(n, &own)) || !r->n_out_dims[0])
        return false;
    *out = (rows){.letter = r->out[0][0], .product = contracts(r)};
    if (r->whole >> out->letter & 1 || in_groups(r, out->letter) ||
        !(out->product || (n->op->flags & TT_OP_POINTWISE)))
        return false;
    for (int o = 0; o < n->n_out; o++)
        if (!r->n_out_dims[o] || r->out[o][0] != out->letter || r->out_shift[o] ||
            has_letter(r->out[o], r->n_out_dims[o], out->letter, 1) ||
            !same_rows(n->out[o], n->out[0]))
            return false;
    for (int i = 0; i < n->n_in; i++) {
        if (has_letter(r->in[i], r->n_in_dims[i], out->letter, 1) || r->in_shift[i])
            return false;
        out->in[i] = r->n_in_dims[i] && r->in[i][0] == out->letter;
        any = any || (out->in[i] && tt_dtype_is_float(n->in[i]->type.dtype));
        if (out->in[i] && !same_rows(n->in[i], n->out[0]))
            return false;
    }
    return any && n->out[0]->type.dims[0].size > 1;
}

static bool together(const tt_node *a, const tt_node *b)
{
    return tt_when_same_part(a->when, b->when) && !a->when->in_chunk_loop &&
           !b->when->in_chunk_loop;
}

/* ---- groups ---- */

/* Is `cut` placed as `whole` is, but with its rows sharded further, over the atoms of c? */
static bool cuts_rows(const tt_graph *g, const tt_node *c, const tt_value *whole,
                      const tt_value *cut)
{
    const tt_dim *d = whole->type.dims;
    tt_placement p = whole->place;
    if (whole->type.n_dims < 1 || !d->label || strcmp(d->label, TT_LABEL_TOKENS) || g->slots)
        return false;
    if (c->when->region > TT_BACKWARD || c->when->per_step || c->assign_to || c->accumulate_into)
        return false;
    if (cut->place.n[0] != p.n[0] + c->step->atoms.n)
        return false;
    memcpy(p.atom[0], cut->place.atom[0], sizeof p.atom[0]); /* everything else must be equal */
    p.n[0] = cut->place.n[0];
    p.partial = cut->place.partial;
    p.partial_max = cut->place.partial_max;
    return tt_placement_equal(&p, &cut->place) && !memcmp(whole->place.atom[0], cut->place.atom[0],
                                                          whole->place.n[0] * sizeof p.atom[0][0]);
}

static group group_of(const async_tp *p, tt_node *c, const tt_value *cut)
{
    group gr = {.c = c, .n_pieces = tt_mesh_degree(p->g->mesh, &c->step->atoms)};
    gr.cut = cut->place;
    gr.first = cut->place.n[0] - c->step->atoms.n;
    gr.products = tt_arena_array(p->g->arena, p->g->nodes.n + 1, sizeof *gr.products);
    return gr;
}

static void add(async_tp *p, group *gr, int index)
{
    gr->products[gr->n++] = index;
    p->taken[index] = true;
}

/* Can node i stand before index `at`? It can if it depends on parameters alone, and so do the
 * nodes that lead to it. With `really`, this function moves them there. */
static bool bring(async_tp *p, int i, int at, bool really)
{
    tt_node *n = p->g->nodes.items[i];
    const bool gathered = n->state && n->state->kind == TT_STATE_GATHERED;
    if (p->when[i] <= 2 * at)
        return true;
    if (n->op == &tt_op_state && gathered) {
        if (p->filler[n->state->id] >= 0 && !bring(p, p->filler[n->state->id], at, really))
            return false;
    } else if (n->op != &tt_op_param &&
               !(n->op == &tt_op_state && n->state->kind == TT_STATE_PARAM) &&
               !(n->op == &tt_op_assign && gathered) &&
               !(n->n_in == 1 && (n->step || tt_node_is_cast(n)))) {
        return false;
    }
    for (int j = 0; j < n->n_in; j++)
        if (!bring(p, p->readers.index[n->in[j]->id], at, really))
            return false;
    if (really)
        tt_async_tp_put(p, n, i, at);
    return true;
}

/* Can product i run at `at`, together with the group's products? */
static bool joins(async_tp *p, const group *gr, int i, int at, bool really)
{
    const tt_node *n = p->g->nodes.items[i];
    for (int j = 0; j < n->n_in; j++) {
        bool inside = n->in[j] == gr->c->out[0];
        for (int k = 0; k < gr->n; k++)
            inside = inside || p->readers.index[n->in[j]->id] == gr->products[k];
        if (!inside && !bring(p, p->readers.index[n->in[j]->id], at, really))
            return false;
    }
    return true;
}

static bool gather(async_tp *p, int index)
{
    tt_node *c = p->g->nodes.items[index];
    const tt_value *whole = c->out[0];
    const int *of = p->readers.of[whole->id], n = p->readers.n[whole->id];
    group gr = group_of(p, c, c->in[0]);
    bool some = false;
    if (!n)
        return true;
    const int at = of[0];
    for (int k = 0; k < n; k++) {
        const tt_node *e = p->g->nodes.items[of[k]];
        rows r;
        bool reads = false;
        if (p->taken[of[k]] || !tt_async_tp_rows(e, &r) || !r.product)
            continue;
        for (int j = 0; j < e->n_in; j++)
            reads = reads || (r.in[j] && e->in[j] == whole);
        some = some || reads;
        if (!reads || !together(c, e) || gr.n_pieces > TT_MAX_PIECES ||
            !joins(p, &gr, of[k], at, false))
            continue;
        (void)joins(p, &gr, of[k], at, true);
        add(p, &gr, of[k]);
    }
    if (gr.n)
        tt_async_tp_emit_gather(p, &gr, index, at);
    return gr.n || !some;
}

/* Do only products of the group read v? */
bool tt_async_tp_read_inside(const async_tp *p, const group *gr, const tt_value *v)
{
    for (int k = 0; k < p->readers.n[v->id]; k++) {
        bool inside = false;
        for (int j = 0; j < gr->n; j++)
            inside = inside || gr->products[j] == p->readers.of[v->id][k];
        if (!inside)
            return false;
    }
    return true;
}

/* Adds a node to the group that only the group reads: a product, or a sum of products. It then
 * runs piece by piece, too. */
static bool take_one_more(async_tp *p, group *gr)
{
    for (int k = 0; k < gr->n; k++) {
        const tt_node *n = p->g->nodes.items[gr->products[k]];
        rows r, its;
        (void)tt_async_tp_rows(n, &r);
        for (int j = 0; j < n->n_in; j++) {
            const int i = p->readers.index[n->in[j]->id];
            const tt_node *e = p->g->nodes.items[i];
            if (!r.in[j] || p->taken[i] || !tt_async_tp_rows(e, &its) || !together(e, n) ||
                e->n_out != 1 || !tt_async_tp_read_inside(p, gr, n->in[j]))
                continue;
            add(p, gr, i);
            return true;
        }
    }
    return false;
}

static bool has_product(const async_tp *p, const group *gr)
{
    rows r;
    for (int k = 0; k < gr->n; k++)
        if (tt_async_tp_rows(p->g->nodes.items[gr->products[k]], &r) && r.product)
            return true;
    return false;
}

static bool reduction(async_tp *p, int index)
{
    tt_node *c = p->g->nodes.items[index];
    const tt_value *whole = c->in[0];
    const int at = p->readers.index[whole->id];
    const tt_node *e = p->g->nodes.items[at];
    rows r;
    if (!tt_async_tp_rows(e, &r))
        return true;
    group gr = group_of(p, c, c->out[0]);
    if (p->taken[at] || !together(c, e) || p->readers.n[whole->id] != 1 ||
        c->step->src.partial_max || gr.n_pieces > TT_MAX_PIECES)
        return false;
    add(p, &gr, at);
    while (take_one_more(p, &gr))
        continue;
    if (!has_product(p, &gr)) {
        for (int k = 0; k < gr.n; k++)
            p->taken[gr.products[k]] = false;
        return true;
    }
    for (int i = 1; i < gr.n; i++) /* in the order of the list */
        for (int k = i; k > 0 && gr.products[k] < gr.products[k - 1]; k--) {
            const int swap = gr.products[k];
            gr.products[k] = gr.products[k - 1];
            gr.products[k - 1] = swap;
        }
    tt_async_tp_emit_reduction(p, &gr, index, at);
    return true;
}

/* ---- the pass ---- */

static void find_fillers(async_tp *p)
{
    p->filler = tt_arena_array(p->g->arena, p->g->states.n + 1, sizeof *p->filler);
    memset(p->filler, 0xff, (p->g->states.n + 1) * sizeof *p->filler);
    for (size_t i = p->g->nodes.n; i-- > 0;) {
        const tt_node *n = p->g->nodes.items[i];
        for (int o = 0; n->assign_to && o < n->n_out; o++)
            if (n->assign_to[o])
                p->filler[n->assign_to[o]->id] = (int)i;
        if (n->op == &tt_op_assign)
            p->filler[n->state->id] = (int)i;
    }
}

static void rebuild(async_tp *p)
{
    tt_graph *g = p->g;
    tt_nodes_vec out = {0};
    for (size_t i = 0; i < g->nodes.n; i++) {
        for (size_t k = 0; k < p->before[i].n; k++)
            tt_vec_push(g->arena, &out, p->before[i].items[k]);
        if (!p->gone[i])
            tt_vec_push(g->arena, &out, g->nodes.items[i]);
    }
    g->nodes.items = out.items;
    g->nodes.n = out.n;
    g->nodes.cap = out.cap;
}

tt_status tt_pass_async_tp(tt_graph *g, tt_error *err)
{
    async_tp p = {.g = g, .readers = tt_find_readers(g)};
    const size_t n = g->nodes.n + 1;
    p.when = tt_arena_array(g->arena, n, sizeof *p.when);
    p.taken = tt_arena_array(g->arena, n, sizeof *p.taken);
    p.gone = tt_arena_array(g->arena, n, sizeof *p.gone);
    p.before = tt_arena_array(g->arena, n, sizeof *p.before);
    for (size_t i = 0; i < g->nodes.n; i++)
        p.when[i] = 2 * (int)i + 1;
    find_fillers(&p);
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *c = g->nodes.items[i];
        if (!c->step)
            continue;
        if (c->step->kind == TT_STEP_ALL_GATHER && cuts_rows(g, c, c->out[0], c->in[0]))
            g->async_tp.whole += !gather(&p, (int)i);
        if (c->step->kind == TT_STEP_REDUCE_SCATTER && cuts_rows(g, c, c->in[0], c->out[0]))
            g->async_tp.whole += !reduction(&p, (int)i);
    }
    rebuild(&p);
    return tt_graph_verify(g, "async_tp", err);
}
