/* SPDX-License-Identifier: Apache-2.0 */
#include "report/report.h"
#include <string.h>

/* What is alive while each instruction of a step runs, by class: the plan's lifetimes on the order
 * in which the schedule runs its lists. Activations are what a backward reads of its forward;
 * everything else in work memory, the kernels' scratch included, is workspace. */

#define MOST_POINTS 4000 /* of a step; beyond, the highest of every few */

typedef struct life {
    int first, last; /* on forward + backward, or epilogue + update */
    bool known, forward, backward;
} life;

typedef struct walk {
    const tt_plan *p;
    life *lives; /* by value id */
    int n;       /* instructions on the timeline so far */
    double *scratch;
} walk;

static void touch(walk *w, const tt_value *v, int at, bool backward)
{
    const tt_value *root = tt_plan_alias(v);
    const tt_space space = w->p->value[root->id].space;
    life *l = &w->lives[root->id];
    if (space != TT_SPACE_WORK && space != TT_SPACE_SLOT)
        return;
    if (!l->known)
        *l = (life){.known = true, .first = at, .last = at};
    l->first = TT_MIN(l->first, at);
    l->last = TT_MAXV(l->last, at);
    l->forward |= !backward;
    l->backward |= backward;
}

static void walk_list(walk *w, tt_node *const *nodes, int n, bool backward)
{
    const int at = w->n;
    int loop_first = -1,
        loop_last = -1; /* what crosses the token-chunk loop lives all through it */
    for (int i = 0; i < n; i++)
        if (nodes[i]->map) {
            loop_first = loop_first < 0 ? at + i : loop_first;
            loop_last = at + i;
        }
    for (int i = 0; i < n; i++) {
        const tt_node *e = nodes[i];
        for (int j = 0; j < e->n_in; j++)
            touch(w, e->in[j], e->map && !e->in[j]->chunked ? loop_last : at + i, backward);
        for (int j = 0; j < e->n_out; j++) {
            touch(w, e->out[j], e->op == &tt_op_input ? at : at + i, backward);
            if (e->map && !e->out[j]->chunked) {
                touch(w, e->out[j], loop_first, backward);
                touch(w, e->out[j], loop_last, backward);
            }
        }
        w->scratch[at + i] = (double)w->p->scratch_bytes[e->id];
    }
    w->n += n;
}

typedef struct stage_line { /* one micro-batch's forward and backward, or epilogue and update */
    tt_memory_point *points;
    int n_first, n;
    double kept; /* activations between the two lists */
} stage_line;

static stage_line make_line(const tt_plan *p, tt_arena *a, tt_node *const *first, int n_first,
                            tt_node *const *second, int n_second, bool step)
{
    const tt_graph *g = p->graph;
    const int n = n_first + n_second;
    walk w = {.p = p,
              .lives = tt_arena_array(a, (size_t)g->n_values + 1, sizeof *w.lives),
              .scratch = tt_arena_array(a, (size_t)n + 1, sizeof *w.scratch)};
    walk_list(&w, first, n_first, false);
    walk_list(&w, second, n_second, !step);
    stage_line l = {tt_arena_array(a, (size_t)n + 2, sizeof *l.points), n_first, n, 0};
    for (size_t i = 0; i < g->nodes.n; i++)
        for (int j = 0; j < g->nodes.items[i]->n_out; j++) {
            const tt_value *v = g->nodes.items[i]->out[j];
            const life *e = &w.lives[v->id];
            if (!e->known)
                continue;
            const double bytes = (double)tt_plan_value_bytes(g, v);
            const bool kept = !step && e->forward && e->backward;
            if (kept) {
                l.points[e->first].activations += bytes;
                l.points[e->last + 1].activations -= bytes;
                l.kept += bytes;
            } else {
                l.points[e->first].workspace += bytes;
                l.points[e->last + 1].workspace -= bytes;
            }
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

/* The actions of the plan's pipeline rank in order; slots of micro-batches in flight are whole. */
static void add_actions(line *o, const tt_plan *p, const stage_line *lines, int pp_rank)
{
    const tt_schedule *s = p->schedule;
    double held = 0; /* activations of micro-batches between their forward and their backward */
    for (int i = 0; i < s->n_actions[pp_rank]; i++) {
        const tt_action *a = &s->actions[pp_rank][i];
        const stage_line *l = &lines[stage_at(p, a->stage)];
        if (a->kind == TT_ACTION_F) {
            add_points(o, l->points, l->n_first, held, "forward");
            held += l->kept;
        } else {
            held = TT_MAXV(held - l->kept, 0.0);
            add_points(o, l->points + l->n_first, l->n - l->n_first, held, "backward");
        }
    }
}

tt_memory_line *tt_report_memory(const tt_plan *p, tt_arena *a)
{
    tt_memory_line *m = tt_arena_alloc(a, sizeof *m);
    stage_line *lines = tt_arena_array(a, (size_t)p->n_stages + 1, sizeof *lines);
    const int pp_rank = p->n_stages ? p->schedule->stage_rank[p->stages[0].stage] : 0;
    size_t total = 1;
    for (int i = 0; i < p->n_stages; i++) {
        const tt_stage_plan *s = &p->stages[i];
        lines[i] = make_line(p, a, s->forward, s->n_forward, s->backward, s->n_backward, false);
        total += (size_t)(s->n_epilogue + s->n_update);
    }
    for (int i = 0; i < p->schedule->n_actions[pp_rank]; i++) {
        const tt_action *e = &p->schedule->actions[pp_rank][i];
        const stage_line *l = &lines[stage_at(p, e->stage)];
        total += (size_t)(e->kind == TT_ACTION_F ? l->n_first : l->n - l->n_first);
    }
    line o = {m, 0, (total - 1) / MOST_POINTS + 1};
    m->points = tt_arena_array(a, total / o.every + 2, sizeof *m->points);
    add_actions(&o, p, lines, pp_rank);
    for (int i = 0; i < p->n_stages; i++) {
        const tt_stage_plan *s = &p->stages[i];
        const stage_line l =
            make_line(p, a, s->epilogue, s->n_epilogue, s->update, s->n_update, true);
        add_points(&o, l.points, l.n_first, 0, "epilogue");
        add_points(&o, l.points + l.n_first, l.n - l.n_first, 0, "optimizer");
    }
    m->params = (double)p->state_bytes_by_kind[TT_STATE_PARAM];
    m->optimizer = (double)p->state_bytes_by_kind[TT_STATE_OPTIMIZER];
    m->gradients = (double)p->state_bytes_by_kind[TT_STATE_ACCUMULATOR];
    m->other =
        (double)(p->state_bytes_by_kind[TT_STATE_METRIC] + p->state_bytes_by_kind[TT_STATE_SCALAR]);
    m->planned =
        (double)(p->bytes[TT_SPACE_STATE] + p->bytes[TT_SPACE_SLOT] + p->bytes[TT_SPACE_WORK]);
    return m;
}
