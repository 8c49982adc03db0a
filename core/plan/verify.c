/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/programs.h"
#include "plan/plan_impl.h"
#include <stdlib.h>
#include <string.h>

/* Proof of a plan by an abstract run: memory is a map from bytes to the value that wrote them last;
 * a reader must find its own value in every byte it covers. Independent of how the planner chose
 * offsets. */

#define SCRATCH (-1)
#define UNKNOWN (-2)

typedef struct segment { /* from `begin` to the next one's begin */
    int64_t begin;
    int owner; /* value id, SCRATCH, UNKNOWN */
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
    memory work, slot; /* slot: of one micro-batch */
} checker;

static memory *space_of(checker *c, const tt_loc *l)
{
    return l->space == TT_SPACE_WORK ? &c->work : l->space == TT_SPACE_SLOT ? &c->slot : NULL;
}

static const char *write_value(checker *c, const tt_value *v)
{
    v = tt_plan_alias(v);
    const tt_loc *l = &c->p->value[v->id];
    memory *m = space_of(c, l);
    if (!m)
        return NULL;
    return memory_write(m, l->offset, tt_plan_value_bytes(c->p->graph, v), v->id)
               ? NULL
               : "a value lies outside its space";
}

static const char *read_value(checker *c, const tt_value *v)
{
    v = tt_plan_alias(v);
    const tt_loc *l = &c->p->value[v->id];
    const memory *m = space_of(c, l);
    if (l->space == TT_SPACE_NONE)
        return "a value that is read has no place";
    if (!m)
        return NULL;
    return memory_holds(m, l->offset, tt_plan_value_bytes(c->p->graph, v), v->id)
               ? NULL
               : "a value is overwritten before it is read";
}

/* Outputs are written before inputs are looked at: an output on top of an input is caught too. */
static const char *run_node(checker *c, const tt_node *e)
{
    const char *bad = NULL;
    const int64_t at = c->p->scratch[e->id], bytes = tt_plan_round(c->p->scratch_bytes[e->id]);
    if (at >= 0 && !memory_write(&c->work, at, bytes, SCRATCH))
        return "scratch lies outside its space";
    for (int j = 0; !bad && j < e->n_out; j++)
        bad = write_value(c, e->out[j]);
    if (!bad && at >= 0 && !memory_holds(&c->work, at, bytes, SCRATCH))
        return "an output lies on scratch";
    for (int j = 0; !bad && j < e->n_in; j++)
        if (e->op != &tt_op_transfer && /* read where it is made, by sent_values */
            (e->op != &tt_op_stage_sum || tt_plan_here(c->p, e->in[j]->node->stage)))
            bad = read_value(c, e->in[j]);
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

static const char *run_list(checker *c, tt_node *const *nodes, int n, const tt_node **where)
{
    const char *bad = NULL;
    for (int i = 0; i < n && !bad; i++)
        if (nodes[i]->op == &tt_op_input)
            bad = write_value(c, nodes[i]->out[0]);
    for (int i = 0; i < n && !bad; i++) {
        *where = nodes[i];
        if (nodes[i]->op != &tt_op_input)
            bad = run_node(c, nodes[i]);
        if (!bad && nodes[i]->map && (i + 1 == n || !nodes[i + 1]->map))
            bad = loop_again(c, nodes, n);
    }
    return bad;
}

static const char *sent_values(checker *c, const tt_stage_plan *s, tt_region region,
                               const tt_node **where)
{
    const tt_graph *g = c->p->graph;
    const char *bad = NULL;
    for (size_t i = 0; !bad && i < g->nodes.n; i++) {
        const tt_node *t = g->nodes.items[i];
        if (t->op != &tt_op_transfer || t->region != region || t->in[0]->node->stage != s->stage)
            continue;
        *where = t;
        bad = read_value(c, t->in[0]);
    }
    return bad;
}

static const char *run_stage(checker *c, const tt_stage_plan *s, const tt_node **where)
{
    const char *bad = run_list(c, s->forward, s->n_forward, where);
    if (!bad)
        bad = sent_values(c, s, TT_FORWARD, where);
    if (s->in_slots)
        memory_forget(&c->work); /* between them other micro-batches use it */
    if (!bad)
        bad = run_list(c, s->backward, s->n_backward, where);
    if (!bad)
        bad = sent_values(c, s, TT_BACKWARD, where);
    if (!bad)
        bad = run_list(c, s->epilogue, s->n_epilogue, where);
    if (!bad)
        bad = run_list(c, s->update, s->n_update, where);
    return bad;
}

/* The schedule against the slots: each forward finds its slot free, each backward finds its own
 * micro-batch in it. A stage without slots runs its backward right after its forward, nothing
 * between. */
static const char *check_slots(const tt_plan *p, const tt_stage_plan *s)
{
    const tt_schedule *sc = p->schedule;
    const int rank = sc->stage_rank[s->stage];
    int *held = malloc(((size_t)s->n_slots + 1) * sizeof *held);
    const char *bad = held && s->n_slots > 0 ? NULL : "a stage has no slot";
    for (int k = 0; !bad && k < s->n_slots; k++)
        held[k] = -1;
    for (int i = 0; !bad && i < sc->n_actions[rank]; i++) {
        const tt_action *a = &sc->actions[rank][i];
        if (a->stage != s->stage) {
            if (!s->in_slots && held[0] >= 0)
                bad = "another stage runs while values live in work memory";
            continue;
        }
        if (a->kind == TT_ACTION_B && !s->n_backward)
            continue; /* a program of forwards alone */
        int *h = &held[a->micro % s->n_slots];
        if (*h != (a->kind == TT_ACTION_F ? -1 : a->micro))
            bad = "a slot is reused before its backward";
        *h = a->kind == TT_ACTION_F && s->n_backward ? a->micro : -1;
    }
    free(held);
    return bad;
}

#define BUFFERED 2 /* sends a direction that do not wait for their receiver (comm.h) */

/* The most values that cross one stage border in one direction. */
static int crossing(const tt_graph *g)
{
    int count[2][64] = {{0}}, most = 0;
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        const int from = n->op == &tt_op_transfer ? n->in[0]->node->stage : 64;
        if (from >= 64 || n->region > TT_BACKWARD)
            continue;
        const int k = ++count[n->region][from];
        most = TT_MAXV(most, k);
    }
    return most;
}

/* n messages between an action and its neighbours' on other ranks: received before it, sent after
 * it. */
static void add_wires(const tt_schedule *s, const tt_action *a, bool incoming, int n, tt_wire *out,
                      int *n_out)
{
    const int other = a->stage + ((a->kind == TT_ACTION_F) == incoming ? -1 : 1);
    if (other < 0 || other >= s->n_stages || s->stage_rank[other] == s->stage_rank[a->stage])
        return;
    const int from = incoming ? other : a->stage;
    for (int v = 0; v < n; v++)
        out[(*n_out)++] = (tt_wire){
            incoming ? TT_WIRE_RECV : TT_WIRE_SEND, s->stage_rank[other],
            (((int64_t)a->micro * s->n_stages + from) * 2 + (a->kind == TT_ACTION_F)) * n + v};
}

/* Ranks must not wait for each other for ever: every rank's list is run, sends waiting as they do.
 */
static tt_status check_messages(const tt_plan *p, tt_error *err)
{
    const tt_schedule *s = p->schedule;
    const int n = s->n_stages > 1 ? crossing(p->graph) : 0;
    tt_arena *a = tt_arena_new();
    tt_wires w = {.n_ranks = s->n_ranks,
                  .items = tt_arena_array(a, (size_t)s->n_ranks, sizeof *w.items),
                  .n_items = tt_arena_array(a, (size_t)s->n_ranks, sizeof *w.n_items)};
    for (int r = 0; r < s->n_ranks; r++) {
        w.items[r] =
            tt_arena_array(a, 2 * (size_t)n * (size_t)s->n_actions[r] + 1, sizeof(tt_wire));
        for (int i = 0; i < s->n_actions[r]; i++) {
            add_wires(s, &s->actions[r][i], true, n, w.items[r], &w.n_items[r]);
            add_wires(s, &s->actions[r][i], false, n, w.items[r], &w.n_items[r]);
        }
    }
    tt_error why = {0};
    const tt_status st = tt_wires_run(&w, BUFFERED, &why);
    tt_arena_free(a);
    if (st == TT_OK)
        return TT_OK;
    return TT_FAIL(err, TT_EUNSUPPORTED,
                   "parallelism.pipeline_parallel_schedule: %s would deadlock, %d values cross "
                   "from stage to stage and %d are buffered (%s); use GPipe",
                   s->name, n, BUFFERED, why.text);
}

tt_status tt_plan_verify(const tt_plan *p, tt_error *err)
{
    TT_TRY(check_messages(p, err));
    const char *bad = NULL;
    const tt_node *where = NULL;
    for (int i = 0; !bad && i < p->n_stages; i++) {
        const tt_stage_plan *s = &p->stages[i];
        checker c = {.p = p};
        const size_t n = (size_t)p->graph->n_values + p->graph->nodes.n;
        if (memory_init(&c.work, p->bytes[TT_SPACE_WORK], n) &&
            memory_init(&c.slot, s->slot_bytes, n)) {
            bad = check_slots(p, s);
            if (!bad)
                bad = run_stage(&c, s, &where);
        } else {
            bad = "no memory to check it";
        }
        free(c.work.s);
        free(c.slot.s);
    }
    if (!bad)
        return TT_OK;
    return TT_FAIL(err, TT_EINTERNAL, "memory plan: %s, at %s in \"%s\"", bad,
                   where ? where->op->name : "the schedule",
                   where && where->scope ? where->scope : "");
}
