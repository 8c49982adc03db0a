/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan_impl.h"
#include <stdlib.h>
#include <string.h>

/* Proof of a plan by an abstract run: memory is a map from bytes to the value that wrote them last;
 * a reader must find its own value in every byte it covers, and a collective that runs beside the
 * program must find all it has there again when it is waited for. Independent of how the planner
 * chose offsets and waits. */

#define SCRATCH (-1) /* of an async collective: SCRATCH_OF(its node) */
#define UNKNOWN (-2)
#define SCRATCH_OF(n) (-3 - (n)->id)
#define UNFINISHED(v) (INT32_MIN + (v)->id) /* what an async collective writes, until its wait */

typedef struct segment { /* from `begin` to the next one's begin */
    int64_t begin;
    int owner; /* value id, SCRATCH, SCRATCH_OF(), UNKNOWN */
} segment;

typedef struct memory { /* sorted segments; the last one begins at the end of the space */
    segment *s;
    size_t n, cap;
    int64_t bytes;
} memory;

static void memory_forget(memory *m)
{
    m->s[0] = (segment){0, UNKNOWN};
    m->s[1] = (segment){m->bytes, UNKNOWN};
    m->n = 2;
}

static bool memory_init(memory *m, int64_t bytes, size_t n_values)
{
    m->bytes = bytes;
    m->cap = 2 * n_values + 8; /* each begin and end of a value or scratch cuts at most once */
    m->s = malloc(m->cap * sizeof *m->s);
    if (m->s)
        memory_forget(m);
    return m->s != NULL;
}

/* Index of the segment that holds byte `at`. */
static size_t memory_find(const memory *m, int64_t at)
{
    size_t lo = 0, hi = m->n - 1;
    while (hi - lo > 1) {
        const size_t mid = (lo + hi) / 2;
        if (m->s[mid].begin <= at)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

static size_t memory_cut(memory *m, int64_t at)
{
    if (at == m->bytes)
        return m->n - 1;
    const size_t i = memory_find(m, at);
    if (m->s[i].begin == at)
        return i;
    TT_ASSERT(m->n < m->cap);
    memmove(m->s + i + 2, m->s + i + 1, (m->n - i - 1) * sizeof *m->s);
    m->s[i + 1] = (segment){at, m->s[i].owner};
    m->n++;
    return i + 1;
}

static bool memory_write(memory *m, int64_t begin, int64_t bytes, int owner)
{
    if (begin < 0 || bytes < 0 || begin > m->bytes - bytes)
        return false;
    if (!bytes)
        return true;
    const size_t first = memory_cut(m, begin), end = memory_cut(m, begin + bytes);
    memmove(m->s + first + 1, m->s + end, (m->n - end) * sizeof *m->s);
    m->n -= end - first - 1;
    m->s[first].owner = owner;
    return true;
}

static bool memory_holds(const memory *m, int64_t begin, int64_t bytes, int owner)
{
    if (begin < 0 || bytes < 0 || begin > m->bytes - bytes)
        return false;
    for (size_t i = bytes ? memory_find(m, begin) : m->n;
         i + 1 < m->n && m->s[i].begin < begin + bytes; i++)
        if (m->s[i].owner != owner)
            return false;
    return true;
}

typedef struct checker {
    const tt_plan *p;
    memory space[TT_N_SPACES]; /* of slots: those of one micro-batch on one stage */
    const tt_node **beside;    /* collectives under way */
    int n_beside;
} checker;

static memory *space_of(checker *c, const tt_loc *l)
{
    return l->space >= TT_SPACE_SLOT ? &c->space[l->space] : NULL;
}

typedef struct extent { /* of a value's own memory; a piece's as the first rank has it */
    memory *m;          /* NULL: not of what is checked */
    int64_t begin, bytes;
} extent;

static extent extent_of(checker *c, const tt_value *v)
{
    const tt_graph *g = c->p->graph;
    const tt_loc *l = &c->p->value[v->id];
    const tt_value *root = tt_plan_alias(v);
    extent e = {space_of(c, l), l->offset, tt_plan_value_bytes(g, v)};
    if (root == v)
        return e;
    static const int32_t first[TT_MAX_ATOMS];
    tt_tensor t;
    tt_plan_tensor(g, v, first, &t);
    e.begin += tt_plan_skip(g, v, NULL);
    e.bytes = tt_tensor_numel(&t) * (int64_t)tt_dtype_size(t.dtype);
    return e;
}

static const char *write_value(checker *c, const tt_value *v, bool unfinished)
{
    v = tt_plan_source(v);
    const extent e = extent_of(c, v);
    return !e.m || memory_write(e.m, e.begin, e.bytes, unfinished ? UNFINISHED(v) : v->id)
               ? NULL
               : "a value lies outside its space";
}

static const char *read_value(checker *c, const tt_value *v)
{
    v = tt_plan_source(v);
    const extent e = extent_of(c, v);
    if (c->p->value[v->id].space == TT_SPACE_NONE)
        return "a value that is read has no place";
    return !e.m || memory_holds(e.m, e.begin, e.bytes, v->id)
               ? NULL
               : "a value is overwritten before it is read";
}

/* What an async collective wrote is whole: nobody else has written there. */
static const char *finish_value(checker *c, const tt_value *v)
{
    const extent e = extent_of(c, v);
    if (e.m && !memory_holds(e.m, e.begin, e.bytes, UNFINISHED(v)))
        return "a value is overwritten before it is whole";
    return write_value(c, v, false);
}

/* The inputs of a node that lie in the memory of its output, or those that do not; but for the one
 * whose bytes it takes over. */
static const char *read_inputs(checker *c, const tt_node *e, bool inside)
{
    const char *bad = NULL;
    for (int j = 0; !bad && j < e->n_in; j++)
        if (j != c->p->in_place[e->id] &&
            (e->op != &tt_op_transfer || e->region > TT_BACKWARD) && /* else by sent_values */
            tt_plan_here(c->p, e->in[j]->node->stage) &&
            (e->n_out && e->in[j]->within == e->out[0]) == inside)
            bad = read_value(c, e->in[j]);
    return bad;
}

/* An output that takes over operand i has its place and size, and no other operand has them. */
static const char *take_over(checker *c, const tt_node *e, int i)
{
    const tt_value *in = tt_plan_alias(e->in[i]), *out = e->out[0];
    const tt_loc *a = &c->p->value[in->id], *b = &c->p->value[out->id];
    if (e->async || a->space != b->space || a->offset != b->offset ||
        tt_plan_value_bytes(c->p->graph, in) != tt_plan_value_bytes(c->p->graph, out))
        return "an output in place lies beside its operand";
    for (int j = 0; j < e->n_in; j++)
        if (j != i && tt_plan_alias(e->in[j]) == in)
            return "an operand that is overwritten is read twice";
    return read_value(c, in);
}

/* Outputs are written before inputs are looked at: an output on top of an input is caught too, but
 * for the one that it takes over. */
static const char *run_node(checker *c, const tt_node *e)
{
    const int over = c->p->in_place[e->id];
    const char *bad = over >= 0 ? take_over(c, e, over) : NULL;
    const int64_t at = c->p->scratch[e->id], bytes = tt_plan_round(c->p->scratch_bytes[e->id]);
    const int scratch = e->async ? SCRATCH_OF(e) : SCRATCH;
    for (int k = 0; k < c->n_beside; k++)
        if (tt_plan_waits_for(e, c->beside[k]))
            return "a collective is not waited for";
    if (!tt_plan_runs(e)) /* its readers read, and wait */
        return NULL;
    if (!bad && at >= 0 && !memory_write(&c->space[TT_SPACE_WORK], at, bytes, scratch))
        return "scratch lies outside its space";
    if (!bad)
        bad = read_inputs(c, e, true); /* pieces: joined, they are their output */
    for (int j = 0; !bad && tt_plan_here(c->p, e->stage) && j < e->n_out; j++)
        bad = write_value(c, e->out[j], e->async);
    if (!bad && at >= 0 && !memory_holds(&c->space[TT_SPACE_WORK], at, bytes, scratch))
        return "an output lies on scratch";
    if (!bad)
        bad = read_inputs(c, e, false);
    if (e->async)
        c->beside[c->n_beside++] = e;
    return bad;
}

/* An async collective is over: it has had its inputs, outputs and scratch to itself all the while.
 */
static const char *wait_for(checker *c, const tt_node *n)
{
    const int64_t at = c->p->scratch[n->id], bytes = tt_plan_round(c->p->scratch_bytes[n->id]);
    const char *bad = NULL;
    int k = 0;
    while (k < c->n_beside && c->beside[k] != n)
        k++;
    if (k == c->n_beside)
        return "a wait for what was not begun";
    c->beside[k] = c->beside[--c->n_beside];
    if (at >= 0 && !memory_holds(&c->space[TT_SPACE_WORK], at, bytes, SCRATCH_OF(n)))
        return "scratch is overwritten by what runs beside it";
    for (int j = 0; !bad && j < n->n_in; j++)
        bad = read_value(c, n->in[j]);
    for (int j = 0; !bad && j < n->n_out; j++)
        bad = finish_value(c, n->out[j]);
    return bad;
}

static const char *run_waits(checker *c, const tt_nodes *l, int before, int *next,
                             const tt_node **where)
{
    const char *bad = NULL;
    for (; !bad && *next < l->n_waits && l->waits[*next].before <= before; ++*next) {
        *where = l->waits[*next].node;
        bad = wait_for(c, *where);
    }
    return bad;
}

/* The loop runs again: what it reads from outside and what it has written of its results must still
 * be there. */
static const char *loop_again(checker *c, tt_node *const *nodes, int n)
{
    const char *bad = NULL;
    for (int i = 0; !bad && i < n; i++) {
        for (int j = 0; !bad && nodes[i]->map && j < nodes[i]->n_in; j++)
            if (!nodes[i]->in[j]->chunked)
                bad = read_value(c, nodes[i]->in[j]);
        for (int j = 0; !bad && nodes[i]->map && j < nodes[i]->n_out; j++)
            if (!nodes[i]->out[j]->chunked)
                bad = read_value(c, nodes[i]->out[j]);
    }
    return bad;
}

/* Filled before the list runs: inputs and messages. */
static bool ready(const tt_node *n)
{
    return n->op == &tt_op_input || (n->op == &tt_op_transfer && n->region <= TT_BACKWARD);
}

static const char *run_list(checker *c, const tt_nodes *l, const tt_node **where)
{
    const char *bad = NULL;
    int waits = 0;
    for (int i = 0; i < l->n && !bad; i++)
        if (ready(l->items[i]))
            bad = write_value(c, l->items[i]->out[0], false);
    for (int i = 0; i < l->n && !bad; i++) {
        bad = run_waits(c, l, i, &waits, where);
        if (bad)
            break;
        *where = l->items[i];
        if (!ready(l->items[i]))
            bad = run_node(c, l->items[i]);
        if (!bad && l->items[i]->map && (i + 1 == l->n || !l->items[i + 1]->map))
            bad = loop_again(c, l->items, l->n);
    }
    return bad ? bad : run_waits(c, l, l->n, &waits, where);
}

static const char *sent_values(checker *c, const tt_stage_plan *s, tt_stage_part part,
                               const tt_node **where)
{
    const tt_graph *g = c->p->graph;
    const char *bad = NULL;
    for (size_t i = 0; !bad && i < g->nodes.n; i++) {
        const tt_node *t = g->nodes.items[i];
        if (t->op != &tt_op_transfer || t->region > TT_BACKWARD || tt_node_part(t) != part ||
            t->in[0]->node->stage != s->stage)
            continue;
        *where = t;
        bad = read_value(c, t->in[0]);
    }
    return bad;
}

static const char *run_stage(checker *c, const tt_stage_plan *s, const tt_node **where)
{
    const char *bad = NULL;
    for (int k = 0; !bad && k < TT_N_PARTS; k++) {
        bad = run_list(c, &s->part[k], where);
        if (!bad && c->n_beside && (k != TT_PART_F || !tt_plan_one_timeline(c->p->graph)))
            bad = "a collective is under way behind its list";
        if (!bad)
            bad = sent_values(c, s, (tt_stage_part)k, where);
        if (s->in_slots) /* between the parts others use it */
            memory_forget(&c->space[TT_SPACE_WORK]);
    }
    return bad;
}

static const char *with_memory(const tt_plan *p, const tt_stage_plan *s, const tt_node **where)
{
    const size_t n = (size_t)p->graph->n_values + p->graph->nodes.n;
    checker c = {.p = p, .beside = malloc((p->graph->nodes.n + 1) * sizeof *c.beside)};
    const char *bad = c.beside ? NULL : "no memory to check it";
    for (tt_space sp = TT_SPACE_SLOT; !bad && sp <= TT_SPACE_WORK; sp++) {
        const int64_t bytes = sp == TT_SPACE_WORK ? p->bytes[sp]
                              : s                 ? s->slot_bytes[sp - TT_SPACE_SLOT]
                                                  : 0;
        if (!memory_init(&c.space[sp], bytes, n))
            bad = "no memory to check it";
    }
    if (!bad && s)
        bad = run_stage(&c, s, where);
    if (!bad && !s)
        bad = run_list(&c, &p->epilogue, where);
    if (!bad && !s)
        bad = run_list(&c, &p->update, where);
    if (!bad && c.n_beside)
        bad = "a collective is under way behind its list";
    free(c.beside);
    for (tt_space sp = TT_SPACE_SLOT; sp <= TT_SPACE_WORK; sp++)
        free(c.space[sp].s);
    return bad;
}

tt_status tt_plan_verify(const tt_plan *p, tt_error *err)
{
    const tt_node *where = NULL;
    const char *bad = tt_plan_check_slots(p);
    for (int i = 0; !bad && i < p->n_stages; i++)
        bad = with_memory(p, &p->stages[i], &where);
    if (!bad)
        bad = with_memory(p, NULL, &where);
    if (!bad)
        return TT_OK;
    return TT_FAIL(err, TT_EINTERNAL, "memory plan: %s, at %s in \"%s\"", bad,
                   where ? where->op->name : "the schedule",
                   where && where->scope ? where->scope : "");
}
