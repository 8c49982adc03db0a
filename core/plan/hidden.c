/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/hidden.h"
#include "plan/plan.h"

/* Simulates the time of a program on a machine: collectives on their queues run concurrently
 * with the computation. */

typedef struct clock {
    const tt_program *p;
    const tt_machine *m;
    double now;
    double free[UINT8_MAX + 1]; /* by queue: the time at which its last collective is over */
    double rate[UINT8_MAX + 1]; /* by queue: how fast that is, 1: as fast as a node's links */
    double *over;               /* by event: the time at which it happens */
    bool *of_copy;              /* by event: it is a copy's end */
    tt_list_seconds sum;
} clock;

/* Copies between device and host take no processor. */
static bool is_copy_queue(const clock *c, int queue)
{
    return queue && c->p->queues[queue - 1].copies;
}

static void wait_until(clock *c, double t, bool copy)
{
    *(copy ? &c->sum.copies_exposed : &c->sum.exposed) += TT_MAXV(t - c->now, 0.0);
    c->now = TT_MAXV(c->now, t);
}

/* While a collective runs concurrently, computing is slower: it loses processors and bandwidth to the
 * fastest one. */
static void compute(clock *c, double seconds)
{
    const double lost = c->m->overlap_efficiency > 0 ? 1 - c->m->overlap_efficiency : 0;
    double busy = 0, rate = 0;
    for (int q = 1; q <= c->p->n_queues && lost > 0; q++)
        if (c->free[q] > c->now && !is_copy_queue(c, q)) {
            busy = TT_MAXV(busy, c->free[q] - c->now);
            rate = TT_MAXV(rate, c->rate[q]);
        }
    const double speed = 1 - lost * TT_MIN(rate, 1.0), beside = TT_MIN(busy, seconds / speed);
    c->now += beside + (seconds - beside * speed);
}

static void pass(clock *c, const tt_instr *i)
{
    const tt_seconds t = tt_node_seconds(c->p->graph, i->node, c->m);
    *(is_copy_queue(c, i->queue) ? &c->sum.copies : &c->sum.comm) += t.comm;
    if (i->queue) {
        const double link = c->m->link_bandwidth * c->m->network_efficiency * t.comm;
        c->free[i->queue] = TT_MAXV(c->free[i->queue], c->now) + t.comm;
        c->rate[i->queue] = link > 0 ? tt_node_work(c->p->graph, i->node).sent / link : 0;
        return;
    }
    wait_until(c, c->now + t.comm, false);
    compute(c, t.compute);
}

static void pass_section(clock *c, const tt_section *s)
{
    for (const tt_instr *i = c->p->instrs + s->begin; i < c->p->instrs + s->end; i++) {
        if (!tt_predicate_usual(i->predicate, false, false))
            continue;
        if (i->kind == TT_INSTR_RECORD) {
            c->over[i->event] = i->queue ? c->free[i->queue] : c->now;
            c->of_copy[i->event] = is_copy_queue(c, i->queue);
        } else if (i->kind == TT_INSTR_WAIT && i->queue)
            c->free[i->queue] = TT_MAXV(c->free[i->queue], c->over[i->event]);
        else if (i->kind == TT_INSTR_WAIT)
            wait_until(c, c->over[i->event], c->of_copy[i->event]);
        else if (i->node)
            pass(c, i);
    }
}

tt_list_seconds tt_program_seconds(const tt_program *p, const tt_section *const *sections, int n,
                                   const tt_machine *m, double *of)
{
    tt_arena *a = tt_arena_new();
    clock *c = tt_arena_alloc(a, sizeof *c);
    *c = (clock){.p = p, .m = m};
    c->over = tt_arena_array(a, (size_t)p->n_events + 1, sizeof *c->over);
    c->of_copy = tt_arena_array(a, (size_t)p->n_events + 1, sizeof *c->of_copy);
    for (int k = 0; k < n; k++) {
        const double before = c->now;
        pass_section(c, sections[k]);
        of[k] = c->now - before;
    }
    c->sum.total = c->now;
    const tt_list_seconds sum = c->sum;
    tt_arena_free(a);
    return sum;
}
