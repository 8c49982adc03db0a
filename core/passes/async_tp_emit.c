/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/async_tp_impl.h"
#include <string.h>

/* async_tp, second half: emits the nodes that replace a group of products around one collective. */

void tt_async_tp_put(async_tp *p, tt_node *n, int index, int at)
{
    tt_vec_push(p->g->arena, &p->before[at], n);
    p->when[index] = 2 * at;
    p->gone[index] = true;
}

static void put_new(async_tp *p, tt_node *n, int at)
{
    tt_vec_push(p->g->arena, &p->before[at], n);
}

/* The placement of a value whose rows are sharded further, to piece i. */
static tt_placement piece_of(const async_tp *p, const group *gr, const tt_placement *whole, int i)
{
    tt_placement out = *whole;
    out.n[0] = gr->cut.n[0];
    memcpy(out.atom[0], gr->cut.atom[0], sizeof out.atom[0]);
    tt_shift_atoms(p->g->mesh, i, gr->first, out.atom[0], out.n[0]);
    return out;
}

static tt_value *value_like(async_tp *p, const tt_value *v, tt_node *n, const tt_placement *place)
{
    tt_value *w = tt_arena_dup(p->g->arena, v, sizeof *w);
    w->id = p->g->n_values++;
    w->place = *place;
    w->node = n;
    w->within = NULL;
    return w;
}

/* A single lowered step as a node. It takes the region, stage and scope of `like`; its first
 * input says from which placement it starts. */
static tt_node *step_node(async_tp *p, const group *gr, const tt_node *like, tt_step_kind kind,
                          tt_value *const *in, int n_in, const tt_placement *to)
{
    tt_arena *a = p->g->arena;
    tt_node *n = tt_arena_dup(a, like, sizeof *n);
    tt_lower_step *s = tt_arena_alloc(a, sizeof *s);
    const tt_type *t = &in[0]->type;
    *s =
        (tt_lower_step){.kind = kind, .atoms = gr->c->step->atoms, .src = in[0]->place, .dst = *to};
    if (kind == TT_STEP_SHIFT)
        s->cost = (double)tt_max_local_numel(p->g->mesh, t->dims, t->n_dims, &in[0]->place);
    n->id = p->g->n_ids++;
    n->op = &tt_op_collective;
    n->step = s;
    n->attrs = NULL;
    n->rule = NULL;
    n->letters = NULL;
    n->keep = NULL;
    n->param = NULL;
    n->n_in = n_in;
    n->n_out = 1;
    n->in = tt_arena_dup(a, in, (size_t)n_in * sizeof *n->in);
    n->out = tt_arena_array(a, 2, sizeof *n->out);
    return n;
}

static tt_value *step_to(async_tp *p, const group *gr, const tt_node *like, tt_step_kind kind,
                         tt_value *v, const tt_placement *to, int at)
{
    tt_node *n = step_node(p, gr, like, kind, &v, 1, to);
    n->out[0] = value_like(p, v, n, to);
    n->out[0]->out = 0;
    put_new(p, n, at);
    return n->out[0];
}

/* The rows of v that belong to piece i. They lie in v's memory. */
static tt_value *slice(async_tp *p, const group *gr, const tt_node *reader, tt_value *v, int i,
                       int at)
{
    const tt_placement to = piece_of(p, gr, &v->place, i);
    tt_value *part = step_to(p, gr, reader, TT_STEP_SLICE, v, &to, at);
    part->within = v;
    part->node->own_rows = true;
    return part;
}

/* Makes v of its pieces. Pieces that are new are written to v's memory. */
static void join(async_tp *p, const group *gr, const tt_node *like, tt_value *v, tt_value **of,
                 int at)
{
    tt_node *n = step_node(p, gr, like, TT_STEP_JOIN, of, gr->n_pieces, &v->place);
    for (int i = 0; i < gr->n_pieces; i++)
        if (of[i] != gr->c->in[0]) /* its own rows lie elsewhere: they are copied */
            of[i]->within = v;
    n->out[0] = v;
    v->node = n;
    v->out = 0;
    put_new(p, n, at);
}

/* A value of the group, and its pieces. */
typedef struct made {
    const tt_value *v;
    tt_value **of; /* [n_pieces] */
} made;

typedef struct emitter {
    async_tp *p;
    const group *gr;
    int at;
    made *made;
    int n_made;
} emitter;

static tt_value **pieces_of(emitter *e, const tt_value *v, bool make)
{
    for (int k = 0; k < e->n_made; k++)
        if (e->made[k].v == v)
            return e->made[k].of;
    if (!make)
        return NULL;
    made *m = &e->made[e->n_made++];
    m->v = v;
    m->of = tt_arena_array(e->p->g->arena, (size_t)e->gr->n_pieces, sizeof(tt_value *));
    return m->of;
}

static void multiply(emitter *e, const tt_node *product, int i)
{
    async_tp *p = e->p;
    tt_arena *a = p->g->arena;
    tt_node *n = tt_arena_dup(a, product, sizeof *n);
    rows r;
    (void)tt_async_tp_rows(product, &r);
    n->id = p->g->n_ids++;
    n->own_rows = true;
    n->in = tt_arena_array(a, (size_t)n->n_in + 1, sizeof *n->in);
    n->out = tt_arena_array(a, (size_t)n->n_out + 1, sizeof *n->out);
    for (int j = 0; j < n->n_in; j++) {
        tt_value **of = pieces_of(e, product->in[j], false);
        n->in[j] = !r.in[j] ? product->in[j]
                   : of     ? of[i]
                            : slice(p, e->gr, product, product->in[j], i, e->at);
    }
    for (int o = 0; o < n->n_out; o++) {
        const tt_placement place = piece_of(p, e->gr, &product->out[o]->place, i);
        n->out[o] = pieces_of(e, product->out[o], true)[i] =
            value_like(p, product->out[o], n, &place);
    }
    if (n->rule) {
        tt_atom_list *l = tt_arena_dup(a, n->letters, sizeof *l * (size_t)n->rule->n_letters);
        l[r.letter].n = n->out[0]->place.n[0];
        memcpy(l[r.letter].atom, n->out[0]->place.atom[0], sizeof l->atom);
        n->letters = l;
    }
    put_new(p, n, e->at);
}

static emitter begin(async_tp *p, const group *gr, int at)
{
    emitter e = {p, gr, at, NULL, 0};
    e.made = tt_arena_array(p->g->arena, (size_t)gr->n * TT_MAX_OUTS + 1, sizeof *e.made);
    return e;
}

static const tt_node *product_at(const emitter *e, int k)
{
    return e->p->g->nodes.items[e->gr->products[k]];
}

/* Joins the products that nodes outside the group read, so that these nodes find them whole. */
static void end(emitter *e)
{
    for (int k = 0; k < e->gr->n; k++) {
        const tt_node *n = product_at(e, k);
        for (int o = 0; o < n->n_out; o++)
            if (n->out[o] != e->gr->c->in[0] && !tt_async_tp_read_inside(e->p, e->gr, n->out[o]))
                join(e->p, e->gr, n, n->out[o], pieces_of(e, n->out[o], false), e->at);
        e->p->gone[e->gr->products[k]] = true;
        e->p->when[e->gr->products[k]] = 2 * e->at;
    }
}

void tt_async_tp_emit_gather(async_tp *p, const group *gr, int index, int at)
{
    emitter e = begin(p, gr, at);
    tt_value *whole = gr->c->out[0], **x = pieces_of(&e, whole, true);
    x[0] = gr->c->in[0];
    for (int i = 0; i < gr->n_pieces; i++) {
        if (i + 1 < gr->n_pieces) { /* the message is under way while this piece is multiplied */
            const tt_placement next = piece_of(p, gr, &whole->place, i + 1);
            x[i + 1] = step_to(p, gr, gr->c, TT_STEP_SHIFT, x[0], &next, at);
        }
        for (int k = 0; k < gr->n; k++)
            multiply(&e, product_at(&e, k), i);
    }
    end(&e);
    if (!tt_async_tp_read_inside(p, gr, whole))
        join(p, gr, gr->c, whole, x, at);
    p->gone[index] = true;
    p->when[index] = 2 * at;
    p->g->async_tp.gathers++;
}

void tt_async_tp_emit_reduction(async_tp *p, const group *gr, int index, int at)
{
    emitter e = begin(p, gr, at);
    tt_value *sum = gr->c->out[0];
    tt_value **given = tt_arena_array(p->g->arena, (size_t)gr->n_pieces, sizeof(tt_value *));
    const tt_placement home = piece_of(p, gr, &gr->c->in[0]->place, 0);
    for (int k = 1; k <= gr->n_pieces; k++) {
        const int i = k % gr->n_pieces; /* its own rows come last, since they need no message */
        for (int j = 0; j < gr->n; j++)
            multiply(&e, product_at(&e, j), i);
        given[i] = pieces_of(&e, gr->c->in[0], false)[i];
        if (i) {
            given[i] = step_to(p, gr, gr->c, TT_STEP_SHIFT, given[i], &home, at);
            given[i]->node->own_rows = true;
        }
    }
    end(&e);
    tt_node *n = step_node(p, gr, gr->c, TT_STEP_SUM, given, gr->n_pieces, &sum->place);
    n->out[0] = sum;
    sum->node = n;
    p->g->nodes.items[index] = n;
    p->g->async_tp.reductions++;
}
