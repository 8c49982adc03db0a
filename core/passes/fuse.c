/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/passes.h"
#include <string.h>
#include <ttrun/backend.h>

/* fuse: pointwise ops over the same elements, a chain or readers of the same value, become one node,
 * which runs where the last of them stood or, if what follows cannot wait so long, where the last but
 * one did. A fused program rounds every value as the separate ops would (R11). After
 * that, an accumulation or assignment whose operand has no other reader is done by the node that
 * makes the operand. */

#define MAX_INSTR 48

typedef struct group {
    int n, at;              /* the node index at which it runs */
    int members[MAX_INSTR]; /* node indices, ascending */
} group;

typedef struct fuser {
    tt_graph *g;
    const tt_fuse_opts *o;
    group **of; /* by node index */
    tt_readers readers;
    int *assigned; /* by state id and stage: first node that assigns it, or the number of nodes */
} fuser;

static int *assigned_at(const fuser *f, const tt_state *s, int stage)
{
    return &f->assigned[(size_t)s->id * (size_t)f->g->n_stages + (size_t)stage];
}

static void index_assignments(fuser *f)
{
    const tt_graph *g = f->g;
    const size_t n = g->states.n * (size_t)g->n_stages;
    f->assigned = tt_arena_array(g->arena, n + 1, sizeof *f->assigned);
    for (size_t i = 0; i < n; i++)
        f->assigned[i] = (int)g->nodes.n;
    for (size_t i = g->nodes.n; i-- > 0;)
        if (g->nodes.items[i]->op == &tt_op_assign &&
            g->nodes.items[i]->state->kind != TT_STATE_GATHERED) /* read after the write */
            *assigned_at(f, g->nodes.items[i]->state, g->nodes.items[i]->when->stage) = (int)i;
}

static void index_nodes(fuser *f)
{
    index_assignments(f);
    f->readers = tt_find_readers(f->g);
}

static bool fusible(const tt_graph *g, const tt_node *n)
{
    return tt_op_is_fusible(g->ops, n->op) && n->n_out == 1 && n->n_in <= 3 && n->n_in >= 1;
}

bool tt_fuse_same_iteration(const tt_node *a, const tt_node *b)
{
    const tt_type *s = &a->out[0]->type, *t = &b->out[0]->type;
    if (!tt_when_same_times(a->when, b->when) || s->n_dims != t->n_dims)
        return false;
    for (int i = 0; i < s->n_dims; i++)
        if (s->dims[i].size != t->dims[i].size)
            return false;
    return !memcmp(a->out[0]->place.n, b->out[0]->place.n, sizeof a->out[0]->place.n) &&
           !memcmp(a->out[0]->place.atom, b->out[0]->place.atom, sizeof a->out[0]->place.atom);
}

static bool any_not_later(const fuser *f, const group *p)
{
    for (int k = 0; k < p->n; k++)
        if (f->g->nodes.items[p->members[k]]->not_later)
            return true;
    return false;
}

/* The earliest position at which node i runs as things are; the latest one. */
static int runs_from(const fuser *f, int i)
{
    return f->of[i] ? TT_MIN(i, f->of[i]->at) : i;
}

static int runs_until(const fuser *f, int i)
{
    return f->of[i] ? TT_MAXV(i, f->of[i]->at) : i;
}

static bool contains(const group *p, int i)
{
    for (int k = 0; k < p->n; k++)
        if (p->members[k] == i)
            return true;
    return false;
}

/* Can the group run as late as node `at`? Not if a reader outside the group and outside `with`
 * stands before `at`, and not if a state that the group reads is assigned before: the value of a
 * state is its memory. */
static bool can_wait(const fuser *f, const group *p, const group *with, int at)
{
    for (int k = 0; k < p->n; k++) {
        const tt_node *m = f->g->nodes.items[p->members[k]];
        for (int j = 0; j < m->n_in; j++)
            if (m->in[j]->node->op == &tt_op_state &&
                *assigned_at(f, m->in[j]->node->state, m->when->stage) < at)
                return false;
        const int v = m->out[0]->id;
        for (int r = 0; r < f->readers.n[v]; r++) {
            const int i = f->readers.of[v][r];
            if (runs_from(f, i) < at && !contains(p, i) && !(with && contains(with, i)))
                return false;
        }
    }
    return true;
}

static int external_inputs(const fuser *f, const group *p)
{
    int ids[TT_MAX_INS * 4], n = 0;
    for (int k = 0; k < p->n; k++) {
        const tt_node *m = f->g->nodes.items[p->members[k]];
        for (int j = 0; j < m->n_in; j++) {
            const int id = m->in[j]->id;
            bool known = contains(p, f->readers.index[id]);
            for (int q = 0; !known && q < n; q++)
                known = ids[q] == id;
            if (known)
                continue;
            if (n == TT_MAX_INS * 4)
                return n;
            ids[n++] = id;
        }
    }
    return n;
}

static bool read_outside(const fuser *f, const group *p, int k)
{
    const int v = f->g->nodes.items[p->members[k]]->out[0]->id;
    for (int r = 0; r < f->readers.n[v]; r++)
        if (!contains(p, f->readers.of[v][r]))
            return true;
    return false;
}

static int external_outputs(const fuser *f, const group *p)
{
    int n = 0;
    for (int k = 0; k < p->n; k++)
        n += read_outside(f, p, k);
    return n;
}

static group *merged(const fuser *f, const group *a, const group *b)
{
    group *m = tt_arena_alloc(f->g->arena, sizeof *m);
    int i = 0, j = 0;
    m->at = TT_MAXV(a->at, b->at);
    while (i < a->n || j < b->n) {
        if (j == b->n || (i < a->n && a->members[i] < b->members[j]))
            m->members[m->n++] = a->members[i++];
        else
            m->members[m->n++] = b->members[j++];
    }
    return m;
}

/* `mine`, whose last member is i, with the group of node d if that can run as late as i; else mine. */
static group *with_group_of(const fuser *f, group *mine, int d, int i, int most_outputs)
{
    const group *p = f->of[d];
    if (!p || contains(mine, d) || any_not_later(f, p) ||
        !tt_fuse_same_iteration(f->g->nodes.items[d], f->g->nodes.items[i]) ||
        mine->n + p->n > MAX_INSTR || !can_wait(f, p, mine, i))
        return mine;
    group *m = merged(f, mine, p);
    return external_inputs(f, m) > TT_MAX_INS || external_outputs(f, m) > most_outputs ? mine : m;
}

/* Groups that read a value of all elements which `mine` reads, too: it is read once. */
static group *with_readers_beside(const fuser *f, group *mine, int i)
{
    const tt_node *n = f->g->nodes.items[i];
    const group *began = mine;
    for (int k = 0; k < began->n; k++) {
        const tt_node *m = f->g->nodes.items[began->members[k]];
        for (int j = 0; j < m->n_in; j++) {
            const tt_value *v = m->in[j];
            if (contains(mine, f->readers.index[v->id]) ||
                tt_type_numel(&v->type) != tt_type_numel(&n->out[0]->type))
                continue;
            for (int r = 0; r < f->readers.n[v->id] && f->readers.of[v->id][r] < i; r++)
                mine = with_group_of(f, mine, f->readers.of[v->id][r], i, TT_MAX_OUTS);
        }
    }
    return mine;
}

/* Can node i run as early as `at`, with p, of whose values it reads some? */
static bool can_hurry(const fuser *f, const group *p, int i, int at)
{
    const tt_node *n = f->g->nodes.items[i];
    for (int j = 0; j < n->n_in; j++) {
        const int d = f->readers.index[n->in[j]->id];
        if (contains(p, d))
            continue;
        if (runs_until(f, d) >= at || (n->in[j]->node->op == &tt_op_state &&
                                       *assigned_at(f, n->in[j]->node->state, n->when->stage) < i))
            return false;
    }
    return true;
}

/* The group of an operand of node i, which has to run before i, with i; NULL: there is none. */
static group *with_group_before(const fuser *f, int i)
{
    const tt_node *n = f->g->nodes.items[i];
    for (int j = 0; j < n->n_in; j++) {
        const int d = f->readers.index[n->in[j]->id];
        const group *p = f->of[d];
        if (!p || p->n < 2 || p->n == MAX_INSTR || !can_hurry(f, p, i, p->at) ||
            !tt_fuse_same_iteration(f->g->nodes.items[d], n))
            continue;
        group *m = merged(f, p, &(group){.n = 1, .at = p->at, .members = {i}});
        if (external_inputs(f, m) <= TT_MAX_INS && external_outputs(f, m) <= TT_MAX_OUTS)
            return m;
    }
    return NULL;
}

static void join(fuser *f, int i)
{
    const tt_node *n = f->g->nodes.items[i];
    group *mine = tt_arena_alloc(f->g->arena, sizeof *mine);
    mine->at = i;
    mine->members[mine->n++] = i;
    for (int j = 0; j < n->n_in; j++) /* one more: its last reader may be about to join */
        mine = with_group_of(f, mine, f->readers.index[n->in[j]->id], i, TT_MAX_OUTS + 1);
    mine = with_readers_beside(f, mine, i);
    group *before = mine->n == 1 ? with_group_before(f, i) : NULL;
    if (before)
        mine = before;
    for (int k = 0; k < mine->n; k++)
        f->of[mine->members[k]] = mine;
}

tt_fused_instr tt_fuse_instr(const tt_node *n)
{
    const tt_fused_instr i = {.op = n->op->name,
                              .n_src = (int16_t)n->n_in,
                              .dtype = n->out[0]->type.dtype,
                              .imm = tt_op_immediate(n->op, n->attrs)};
    TT_ASSERT(n->n_out == 1 && n->n_in <= (int)TT_COUNT(i.src)); /* no pointwise op has more */
    return i;
}

/* The group as one node; NULL: it has too many outputs, or the backend does not take the program. */
static tt_node *build(fuser *f, const group *p)
{
    tt_arena *a = f->g->arena;
    const tt_node *last = f->g->nodes.items[p->members[p->n - 1]];
    if (external_outputs(f, p) > TT_MAX_OUTS)
        return NULL;
    tt_node *n = tt_arena_dup(a, last, sizeof *n);
    tt_fused *prog = tt_arena_alloc(a, sizeof *prog);
    tt_fused_instr *instr = tt_arena_array(a, (size_t)p->n, sizeof *instr);
    int16_t *outs = tt_arena_array(a, TT_MAX_OUTS, sizeof *outs);
    n->in = tt_arena_array(a, TT_MAX_INS + 1, sizeof *n->in);
    n->out = tt_arena_array(a, TT_MAX_OUTS + 1, sizeof *n->out);
    n->n_in = n->n_out = 0;
    for (int k = 0; k < p->n; k++) /* external inputs come first: registers 0 … n_in-1 */
        for (int j = 0; j < f->g->nodes.items[p->members[k]]->n_in; j++) {
            tt_value *v = f->g->nodes.items[p->members[k]]->in[j];
            bool known = contains(p, f->readers.index[v->id]);
            for (int q = 0; !known && q < n->n_in; q++)
                known = n->in[q] == v;
            if (!known)
                n->in[n->n_in++] = v;
        }
    for (int k = 0; k < p->n; k++) {
        tt_node *m = f->g->nodes.items[p->members[k]];
        instr[k] = tt_fuse_instr(m);
        for (int j = 0; j < m->n_in; j++) {
            int reg = -1;
            for (int q = 0; q < n->n_in; q++)
                if (n->in[q] == m->in[j])
                    reg = q;
            for (int q = 0; q < k; q++)
                if (f->g->nodes.items[p->members[q]]->out[0] == m->in[j])
                    reg = n->n_in + q;
            instr[k].src[j] = (int16_t)reg;
        }
        if (read_outside(f, p, k)) {
            outs[n->n_out] = (int16_t)(n->n_in + k);
            n->out[n->n_out++] = m->out[0];
        }
    }
    *prog = (tt_fused){n->n_in, p->n, n->n_out, instr, outs};
    n->op = &tt_op_fused;
    n->attrs = prog;
    n->rule = NULL;
    if (!tt_pass_supports(f->o->supports, f->o->user, n, false))
        return NULL;
    for (int j = 0; j < n->n_out; j++) {
        n->out[j]->node = n;
        n->out[j]->out = j;
    }
    return n;
}

static void fuse_pointwise(tt_graph *g, const tt_fuse_opts *o)
{
    fuser f = {.g = g, .o = o};
    index_nodes(&f);
    f.of = tt_arena_array(g->arena, g->nodes.n + 1, sizeof *f.of);
    for (size_t i = 0; i < g->nodes.n; i++)
        if (fusible(g, g->nodes.items[i]))
            join(&f, (int)i);
    size_t n = 0;
    tt_node **out = tt_arena_array(g->arena, g->nodes.n + 1, sizeof *out);
    for (size_t i = 0; i < g->nodes.n; i++) {
        group *p = f.of[i];
        tt_node *whole = NULL;
        if (p && p->n > 1 && p->at == (int)i) {
            whole = build(&f, p);
            if (!whole) /* its members stay, in their order */
                for (int k = 0; k < p->n; k++)
                    out[n++] = g->nodes.items[p->members[k]];
        }
        if (whole || !p || p->n == 1)
            out[n++] = whole ? whole : g->nodes.items[i];
    }
    memcpy(g->nodes.items, out, n * sizeof *out);
    g->nodes.n = n;
}

/* ---- producers that write to states ---- */

/* By state and stage: the last node that reads the state; -1: none. */
typedef struct last_reads {
    int *at, n_stages;
} last_reads;

static last_reads find_last_reads(const tt_graph *g)
{
    last_reads l = {.n_stages = 1};
    for (size_t i = 0; i < g->nodes.n; i++)
        l.n_stages = TT_MAXV(l.n_stages, g->nodes.items[i]->when->stage + 1);
    const size_t n = g->states.n * (size_t)l.n_stages;
    l.at = tt_arena_array(g->arena, n + 1, sizeof *l.at);
    for (size_t i = 0; i < n; i++)
        l.at[i] = -1;
    for (size_t i = 0; i < g->nodes.n; i++)
        for (int j = 0; j < g->nodes.items[i]->n_in; j++) {
            const tt_node *p = g->nodes.items[i]->in[j]->node;
            if (p->op == &tt_op_state)
                l.at[p->state->id * l.n_stages + p->when->stage] = (int)i;
        }
    return l;
}

static bool written_by_producer(tt_graph *g, const fuser *f, const last_reads *reads, tt_node *w,
                                const tt_fuse_opts *o)
{
    tt_value *v = w->in[0];
    tt_node *p = v->node;
    /* a product of the loop may add to an accumulator that is stored once, after the loop */
    if (f->readers.n[v->id] != 1 || !tt_when_same_part(p->when, w->when))
        return false;
    if (w->op == &tt_op_accumulate) {
        if (v->out != 0 || p->n_out != 1 || p->accumulate_into || w->state->accumulate_max ||
            !o->can_accumulate || !o->can_accumulate(o->user, p->op->name) ||
            !tt_pass_supports(o->supports, o->user, p, true))
            return false;
        p->accumulate_into = w->state;
        p->accumulate_index = w->accumulate_index;
        p->accumulates = w->accumulates;
        return true;
    }
    if (w->state->offloaded || tt_type_numel(&v->type) != tt_type_numel(&w->state->type) ||
        p->when->in_chunk_loop != w->when->in_chunk_loop)
        return false; /* kernels do not write to host memory, nor to some members or rows only */
    const bool gathered = w->state->kind == TT_STATE_GATHERED;
    const bool updates = (p->op->flags & TT_OP_UPDATES) && v->out > 0;
    if (!tt_op_is_fusible(g->ops, p->op) && !updates && !(gathered && p->op == &tt_op_collective))
        return false;
    if (!gathered &&
        reads->at[w->state->id * reads->n_stages + w->when->stage] > f->readers.index[v->id])
        return false;
    if (!p->assign_to)
        p->assign_to = tt_arena_array(g->arena, (size_t)p->n_out, sizeof *p->assign_to);
    p->assign_to[v->out] = w->state;
    return true;
}

static void fuse_writes(tt_graph *g, const tt_fuse_opts *o)
{
    fuser f = {.g = g};
    index_nodes(&f);
    const last_reads reads = find_last_reads(g);
    size_t n = 0;
    tt_node **out = tt_arena_array(g->arena, g->nodes.n + 1, sizeof *out);
    for (size_t i = 0; i < g->nodes.n; i++) {
        tt_node *w = g->nodes.items[i];
        const bool write = w->op == &tt_op_accumulate || w->op == &tt_op_assign;
        if (write && written_by_producer(g, &f, &reads, w, o))
            continue;
        out[n++] = w;
    }
    memcpy(g->nodes.items, out, n * sizeof *out);
    g->nodes.n = n;
}

tt_status tt_pass_fuse(tt_graph *g, const tt_fuse_opts *o, tt_error *err)
{
    if (o->pointwise)
        fuse_pointwise(g, o);
    fuse_writes(g, o);
    return tt_graph_verify(g, "fuse", err);
}
