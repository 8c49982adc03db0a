/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/passes.h"
#include <string.h>
#include <ttrun/backend.h>

/* epilogue: pointwise nodes that read a matrix product (bias, residual, activation, the sum of
 * several products) become part of its kernel, which has the product in registers or in the
 * cache. The product is rounded as if it stood alone, so no bit changes (R11). The fused node
 * runs where its first reader stood; later readers join it where their other operands are known
 * by then. */

#define MAX_INSTR 64

typedef struct finder {
    tt_graph *g;
    const tt_fuse_opts *o;
    tt_readers readers;
    int *moved; /* by position: the position to which its node has moved */
} finder;

typedef struct epilogue {
    tt_node *product;
    int at;                       /* the position where it will run */
    tt_node *members[TT_MAX_INS]; /* ascending */
    int n_members;
    int n_known[TT_MAX_INS];      /* by member: registers of in[] before it was taken */
    tt_value *in[TT_MAX_INS + 1]; /* registers: the product, then operands */
    int n_in, n_instr, n_out;
} epilogue;

static void index_nodes(finder *f)
{
    const size_t n = f->g->nodes.n;
    f->readers = tt_find_readers(f->g);
    f->moved = tt_arena_array(f->g->arena, n + 1, sizeof *f->moved);
    for (size_t i = 0; i < n; i++)
        f->moved[i] = (int)i;
}

/* The program of a fused node; NULL: another one. */
static const tt_fused *program_of(const tt_node *n)
{
    return n->op == &tt_op_fused ? n->attrs : NULL;
}

static const tt_op_def *fused_form(const finder *f, const tt_node *n)
{
    if (n->when->region > TT_BACKWARD || n->accumulate_into || n->assign_to || n->n_in != 2)
        return NULL;
    const tt_op_def *form = tt_op_epilogue_form(f->g->ops, n->op);
    return form && (!f->o->has_kernel || f->o->has_kernel(f->o->user, form->name)) ? form : NULL;
}

/* Is this a pointwise node, or a fused program of them, that no other pass has changed? */
static bool is_pointwise(const tt_graph *g, const tt_node *n)
{
    return tt_op_is_fusible(g->ops, n->op) && n->n_in >= 1 && !n->accumulate_into && !n->assign_to;
}

/* Is a state that n reads written between the two positions? The value of a state is its memory. */
static bool reads_what_changes(const finder *f, const tt_node *n, int a, int b)
{
    bool state = false;
    for (int j = 0; j < n->n_in; j++)
        state = state || n->in[j]->node->op == &tt_op_state;
    for (int i = TT_MIN(a, b); state && i <= TT_MAXV(a, b); i++) {
        const tt_node *w = f->g->nodes.items[i];
        if (w && (w->op == &tt_op_assign || w->assign_to || (w->op->flags & TT_OP_UPDATES)))
            return true;
    }
    return false;
}

static int program_length(const tt_node *n)
{
    const tt_fused *f = program_of(n);
    return f ? f->n_instr : 1;
}

static bool known(const epilogue *e, const tt_value *v)
{
    for (int i = 0; i < e->n_in; i++)
        if (e->in[i] == v)
            return true;
    return false;
}

/* Adds node m to the epilogue if it fits and everything it reads is known at e->at. */
static bool take(const finder *f, epilogue *e, tt_node *m, int place)
{
    const int n_in = e->n_in;
    if (e->n_members == TT_MAX_INS || e->n_instr + program_length(m) > MAX_INSTR ||
        e->n_out + m->n_out > TT_MAX_OUTS || reads_what_changes(f, m, e->at, place))
        return false;
    for (int j = 0; j < m->n_in; j++) {
        if (known(e, m->in[j]))
            continue;
        if (f->readers.index[m->in[j]->id] >= e->at || e->n_in + 1 >= TT_MAX_INS) {
            e->n_in = n_in;
            return false;
        }
        e->in[e->n_in++] = m->in[j];
    }
    e->n_instr += program_length(m);
    e->n_out += m->n_out;
    e->n_known[e->n_members] = n_in;
    e->members[e->n_members++] = m;
    return true;
}

/* Do nodes other than the members read the product? */
static bool read_elsewhere(const finder *f, const epilogue *e)
{
    return f->readers.n[e->product->out[0]->id] > e->n_members;
}

/* The output in whose memory the product can be summed; -1: there is none. */
static int home_of(const tt_node *p, tt_value *const *out, int n)
{
    for (int j = 0; j < n; j++)
        if (out[j]->type.dtype == p->out[0]->type.dtype)
            return j;
    return -1;
}

static bool has_room(const finder *f, const epilogue *e)
{
    bool home = read_elsewhere(f, e); /* then the product is an output itself */
    if (e->n_out + home > TT_MAX_OUTS)
        return false;
    for (int k = 0; k < e->n_members; k++)
        home = home || home_of(e->product, e->members[k]->out, e->members[k]->n_out) >= 0;
    return home;
}

static int first_reader(const finder *f, const tt_value *v)
{
    int first = (int)f->g->nodes.n;
    for (int r = 0; r < f->readers.n[v->id]; r++)
        first = TT_MIN(first, f->moved[f->readers.of[v->id][r]]);
    return first;
}

static bool may_join(const finder *f, const tt_node *p, int place)
{
    const tt_node *m = f->g->nodes.items[place];
    return m && is_pointwise(f->g, m) && tt_fuse_same_iteration(p, m);
}

/* Tries to move the product to its first reader, or the readers to the product. Readers of the
 * second kind may have one output, so that no more memory is in use in between than the product
 * took. */
static bool find(const finder *f, int i, epilogue *e)
{
    tt_node *p = f->g->nodes.items[i];
    const tt_value *v = p->out[0];
    const int first = first_reader(f, v);
    *e = (epilogue){.product = p, .at = first, .in = {p->out[0]}, .n_in = 1};
    if (first == (int)f->g->nodes.n)
        return false;
    if (!may_join(f, p, first) || reads_what_changes(f, p, i, first) ||
        !take(f, e, f->g->nodes.items[first], first))
        e->at = i;
    for (int r = 0; r < f->readers.n[v->id]; r++) {
        const int place = f->readers.of[v->id][r];
        tt_node *m = f->g->nodes.items[place];
        if (place != e->at && may_join(f, p, place) && m->n_out == 1)
            take(f, e, m, place);
    }
    return e->n_members && has_room(f, e);
}

static int16_t register_of(const epilogue *e, const tt_node *m, int src, int base)
{
    const tt_fused *f = program_of(m);
    const int n_in = f ? f->n_in : m->n_in;
    for (int i = 0; src < n_in && i < e->n_in; i++)
        if (e->in[i] == m->in[src])
            return (int16_t)i;
    return (int16_t)(e->n_in + base + src - n_in);
}

static void add_member(const epilogue *e, tt_node *m, tt_fused_instr *instr, int base)
{
    const tt_fused *f = program_of(m);
    for (int k = 0; k < program_length(m); k++) {
        tt_fused_instr *s = &instr[base + k];
        *s = f ? f->instr[k] : tt_fuse_instr(m);
        for (int j = 0; j < s->n_src; j++)
            s->src[j] = register_of(e, m, f ? s->src[j] : j, base);
    }
}

/* The product with its epilogue, not yet in the graph. */
static tt_node *build(const finder *f, const epilogue *e)
{
    tt_arena *a = f->g->arena;
    tt_node *p = e->product, *n = tt_arena_dup(a, p, sizeof *n);
    tt_fused_product *prog = tt_arena_alloc(a, sizeof *prog);
    tt_fused_instr *instr = tt_arena_array(a, MAX_INSTR, sizeof *instr);
    int16_t *outs = tt_arena_array(a, TT_MAX_OUTS, sizeof *outs);
    n->op = fused_form(f, p);
    n->attrs = prog;
    n->rule = NULL;
    n->in = tt_arena_array(a, TT_MAX_INS + 1, sizeof *n->in);
    n->out = tt_arena_array(a, TT_MAX_OUTS, sizeof *n->out);
    n->n_out = 0;
    memcpy(n->in, p->in, 2 * sizeof *n->in);
    memcpy(n->in + 2, e->in + 1, (size_t)(e->n_in - 1) * sizeof *n->in);
    n->n_in = e->n_in + 1;
    if (read_elsewhere(f, e)) {
        outs[n->n_out] = 0;
        n->out[n->n_out++] = p->out[0];
    }
    for (int k = 0, base = 0; k < e->n_members; k++) {
        tt_node *m = e->members[k];
        const tt_fused *own = program_of(m);
        add_member(e, m, instr, base);
        for (int j = 0; j < m->n_out; j++) {
            outs[n->n_out] = register_of(e, m, own ? own->out[j] : m->n_in, base);
            n->out[n->n_out++] = m->out[j];
        }
        base += program_length(m);
    }
    prog->program = (tt_fused){e->n_in, e->n_instr, n->n_out, instr, outs};
    prog->into =
        home_of(p, n->out, n->n_out); /* if the product is an output, it is the first one */
    return n;
}

/* Leaves out the member that was taken last, with the operands that only it reads. */
static void drop_last(epilogue *e)
{
    const tt_node *m = e->members[--e->n_members];
    e->n_instr -= program_length(m);
    e->n_out -= m->n_out;
    e->n_in = e->n_known[e->n_members];
}

/* The product with the longest epilogue that the backend takes; NULL: it takes none. */
static tt_node *build_supported(const finder *f, epilogue *e)
{
    for (; e->n_members; drop_last(e)) {
        if (!has_room(f, e))
            continue;
        tt_node *n = build(f, e);
        if (tt_pass_supports(f->o->supports, f->o->user, n, false))
            return n;
    }
    return NULL;
}

static void replace(finder *f, int i, const epilogue *e, tt_node *n)
{
    tt_node **items = f->g->nodes.items;
    for (int j = 0; j < n->n_out; j++) {
        n->out[j]->node = n;
        n->out[j]->out = j;
    }
    for (int k = 0; k < e->n_members; k++) {
        const int place = f->readers.index[e->members[k]->out[0]->id];
        items[place] = NULL;
        f->moved[place] = e->at;
    }
    items[i] = NULL;
    items[e->at] = n;
    f->moved[i] = e->at;
    for (int j = 0; j < n->n_out; j++)
        f->readers.index[n->out[j]->id] = e->at;
}

tt_status tt_pass_epilogue(tt_graph *g, const tt_fuse_opts *o, tt_error *err)
{
    finder f = {.g = g, .o = o};
    epilogue e;
    if (!o->pointwise)
        return TT_OK;
    index_nodes(&f);
    for (size_t i = g->nodes.n;
         i-- > 0;) { /* so that the last of several summed products is first */
        tt_node *p = g->nodes.items[i], *n = NULL;
        if (p && fused_form(&f, p) && find(&f, (int)i, &e))
            n = build_supported(&f, &e);
        if (n)
            replace(&f, (int)i, &e, n);
    }
    size_t n = 0;
    for (size_t i = 0; i < g->nodes.n; i++)
        if (g->nodes.items[i])
            g->nodes.items[n++] = g->nodes.items[i];
    g->nodes.n = n;
    return tt_graph_verify(g, "epilogue", err);
}
