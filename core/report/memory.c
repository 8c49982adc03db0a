/* SPDX-License-Identifier: Apache-2.0 */
#include "report/report.h"
#include <string.h>

/* The live bytes of each class while each instruction of a step runs: the plan's lifetimes, in the
 * order in which the schedule runs its lists. Activations are the forward values that a backward
 * reads; everything else in work memory, including the kernels' scratch, is workspace. */

#define MOST_POINTS 4000 /* of a step; beyond, the highest of every few */

#define LISTS TT_N_PARTS /* of one timeline: F, I, W of a micro-batch; or epilogue, update */

typedef struct life {
    int first, last; /* on the timeline */
    int first_list, last_list;
    bool known;
    bool taken; /* the last reader's output takes over its bytes */
} life;

typedef struct walk {
    const tt_plan *p;
    life *lives; /* by value id */
    int n;       /* instructions on the timeline so far */
    double *scratch;
} walk;

static void touch(walk *w, const tt_value *v, int at, int list)
{
    const tt_value *root = tt_plan_alias(v);
    const tt_space space = w->p->value[root->id].space;
    life *l = &w->lives[root->id];
    if (space != TT_SPACE_WORK && !tt_space_holds(space))
        return;
    if (!l->known)
        *l = (life){at, at, list, list, true, false};
    l->first = TT_MIN(l->first, at);
    l->last = TT_MAXV(l->last, at);
    l->first_list = TT_MIN(l->first_list, list);
    l->last_list = TT_MAXV(l->last_list, list);
}

static void walk_list(walk *w, const tt_nodes *nodes, int list)
{
    const int at = w->n;
    int loop_first = -1,
        loop_last = -1; /* what crosses the token-chunk loop lives all through it */
    for (int i = 0; i < nodes->n; i++)
        if (nodes->items[i]->map) {
            loop_first = loop_first < 0 ? at + i : loop_first;
            loop_last = at + i;
        }
    for (int i = 0; i < nodes->n; i++) {
        const tt_node *e = nodes->items[i];
        for (int j = 0; j < e->n_in; j++)
            touch(w, e->in[j], e->map && !e->in[j]->chunked ? loop_last : at + i, list);
        if (w->p->in_place[e->id] >= 0)
            w->lives[tt_plan_alias(e->in[w->p->in_place[e->id]])->id].taken = true;
        for (int j = 0; j < e->n_out; j++) {
            touch(w, e->out[j], e->op == &tt_op_input ? at : at + i, list);
            if (e->map && !e->out[j]->chunked) {
                touch(w, e->out[j], loop_first, list);
                touch(w, e->out[j], loop_last, list);
            }
        }
        w->scratch[at + i] = (double)w->p->scratch_bytes[e->id];
    }
    w->n += nodes->n;
}

typedef struct timeline {
    tt_memory_point *points;
    int begin[LISTS + 1];
    double carried[LISTS]; /* activations that outlive each list */
} timeline;

/* micro: a value of the forward that a later list reads is an activation. */
static timeline make_line(const tt_plan *p, tt_arena *a, const tt_nodes *lists, int n_lists,
                          bool micro)
{
    const tt_graph *g = p->graph;
    timeline l = {0};
    int n = 0;
    for (int k = 0; k < n_lists; k++)
        l.begin[k + 1] = n += lists[k].n;
    walk w = {.p = p,
              .lives = tt_arena_array(a, (size_t)g->n_values + 1, sizeof *w.lives),
              .scratch = tt_arena_array(a, (size_t)n + 1, sizeof *w.scratch)};
    for (int k = 0; k < n_lists; k++)
        walk_list(&w, &lists[k], k);
    l.points = tt_arena_array(a, (size_t)n + 2, sizeof *l.points);
    for (size_t i = 0; i < g->nodes.n; i++)
        for (int j = 0; j < g->nodes.items[i]->n_out; j++) {
            const tt_value *v = g->nodes.items[i]->out[j];
            const life *e = &w.lives[v->id];
            if (!e->known)
                continue;
            const double bytes = (double)tt_plan_value_bytes(g, v);
            const int end = e->taken ? e->last : e->last + 1;
            const bool kept = micro && e->last_list > e->first_list;
            if (kept) {
                l.points[e->first].activations += bytes;
                l.points[end].activations -= bytes;
            } else {
                l.points[e->first].workspace += bytes;
                l.points[end].workspace -= bytes;
            }
            for (int k = e->first_list; kept && k < e->last_list; k++)
                l.carried[k] += bytes;
        }
    for (int i = 1; i < n; i++) {
        l.points[i].activations += l.points[i - 1].activations;
        l.points[i].workspace += l.points[i - 1].workspace;
    }
    for (int i = 0; i < n; i++)
        l.points[i].workspace += w.scratch[i];
    return l;
}

typedef struct line {
    tt_memory_line *m;
    size_t n, every; /* instructions so far; of `every` the highest is kept */
} line;

static void add_points(line *o, const tt_memory_point *points, int n, double base,
                       const char *phase)
{
    for (int i = 0; i < n; i++, o->n++) {
        tt_memory_point p = points[i];
        p.activations += base;
        p.phase = phase;
        const size_t at = o->n / o->every;
        tt_memory_point *q = &o->m->points[at];
        if (at >= o->m->n || p.activations + p.workspace > q->activations + q->workspace)
            *q = p;
        o->m->n = at + 1;
    }
}

static int stage_at(const tt_plan *p, int stage)
{
    for (int i = 0; i < p->n_stages; i++)
        if (p->stages[i].stage == stage)
            return i;
    return 0;
}

/* Lists [first, end) that an action runs. */
static void lists_of(const tt_action *a, int *first, int *end)
{
    *first = a->kind == TT_ACTION_F ? TT_PART_F : a->kind == TT_ACTION_W ? TT_PART_W : TT_PART_I;
    *end = a->kind == TT_ACTION_F ? TT_PART_I : a->kind == TT_ACTION_I ? TT_PART_W : TT_N_PARTS;
}

/* The actions of the plan's pipeline rank in order; slots of micro-batches in flight are whole. */
static void add_actions(line *o, const tt_plan *p, const timeline *lines)
{
    static const char *const phases[] = {"forward", "backward", "backward"};
    const tt_schedule *s = p->schedule;
    double held = 0; /* activations of micro-batches between their actions */
    for (int i = 0; i < s->n_actions[p->pp_rank]; i++) {
        const tt_action *a = &s->actions[p->pp_rank][i];
        const timeline *l = &lines[stage_at(p, a->stage)];
        int first, end;
        lists_of(a, &first, &end);
        for (int k = first; k < end; k++) {
            if (k > 0)
                held = TT_MAXV(held - l->carried[k - 1], 0.0);
            add_points(o, l->points + l->begin[k], l->begin[k + 1] - l->begin[k], held, phases[k]);
            held += l->carried[k];
        }
    }
}

tt_memory_line *tt_report_memory(const tt_plan *p, tt_arena *a)
{
    tt_memory_line *m = tt_arena_alloc(a, sizeof *m);
    timeline *lines = tt_arena_array(a, (size_t)p->n_stages + 1, sizeof *lines);
    const tt_schedule *s = p->schedule;
    const tt_nodes step[] = {p->epilogue, p->update};
    size_t total = 1 + (size_t)(p->epilogue.n + p->update.n);
    for (int i = 0; i < p->n_stages; i++)
        lines[i] = make_line(p, a, p->stages[i].part, TT_N_PARTS, true);
    for (int i = 0; i < s->n_actions[p->pp_rank]; i++) {
        const tt_action *e = &s->actions[p->pp_rank][i];
        const timeline *l = &lines[stage_at(p, e->stage)];
        int first, end;
        lists_of(e, &first, &end);
        total += (size_t)(l->begin[end] - l->begin[first]);
    }
    line o = {m, 0, (total - 1) / MOST_POINTS + 1};
    m->points = tt_arena_array(a, total / o.every + 2, sizeof *m->points);
    add_actions(&o, p, lines);
    const timeline l = make_line(p, a, step, 2, false);
    add_points(&o, l.points, l.begin[1], 0, "epilogue");
    add_points(&o, l.points + l.begin[1], l.begin[2] - l.begin[1], 0, "optimizer");
    m->params = (double)(p->state_bytes_by_kind[TT_STATE_PARAM] +
                         p->state_bytes_by_kind[TT_STATE_GATHERED]); /* as stored and as gathered */
    m->optimizer = (double)p->state_bytes_by_kind[TT_STATE_OPTIMIZER];
    m->gradients = (double)p->state_bytes_by_kind[TT_STATE_ACCUMULATOR];
    m->other =
        (double)(p->state_bytes_by_kind[TT_STATE_METRIC] + p->state_bytes_by_kind[TT_STATE_SCALAR]);
    for (int k = TT_SPACE_STATE; k < TT_N_SPACES; k++)
        m->planned += (double)p->bytes[k];
    return m;
}
