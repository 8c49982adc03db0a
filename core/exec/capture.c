/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/exec_impl.h"

/* Sections as graphs of a device (R21): a part of a section is captured when it runs for the second
 * time and launched from then on, by one call instead of one per instruction. A section ends a part
 * where the host must act for each micro-batch: inputs, and calls of a communicator that cannot be
 * captured. Micro-batches whose values lie in the same slots share a graph. */

enum { LEAST_WORK = 3 }; /* instructions that put work on a queue: of fewer a graph saves nothing */

static bool puts_work(const tt_instr *i)
{
    return i->kind < TT_INSTR_ADOPT;
}

static bool has_extents(const tt_program *p)
{
    for (int i = 0; i < p->n_operands; i++)
        if (p->operands[i].extent)
            return true;
    return false;
}

static bool can_capture(const tt_exec *x, const tt_instr *i)
{
    return i->kind != TT_INSTR_INPUT && (!tt_instr_communicates(i) || tt_dist_captures(x->o.dist));
}

/* The first instruction behind the one at i; behind a loop that behind its end. *can: all of them. */
static int next_instr(const tt_exec *x, int i, bool *can)
{
    const int end = x->p->instrs[i].kind == TT_INSTR_LOOP ? x->p->instrs[i].end : i;
    *can = true;
    for (; i <= end; i++)
        *can &= can_capture(x, &x->p->instrs[i]);
    return end + 1;
}

/* The part that begins at `begin`, and whether it becomes a graph. */
static tt_graph_part part_at(const tt_exec *x, int begin, int end, int most)
{
    bool all, can;
    int n_work = 0, next;
    tt_graph_part p = {.begin = begin, .end = next_instr(x, begin, &all)};
    while (p.end < end && p.end - begin < most && (next = next_instr(x, p.end, &can), can == all))
        p.end = next;
    for (int i = p.begin; all && i < p.end; i++) {
        n_work += puts_work(&x->p->instrs[i]);
        p.communicates |= tt_instr_communicates(&x->p->instrs[i]);
    }
    p.captured = n_work >= LEAST_WORK;
    return p;
}

static void cut_sections(tt_exec *x, int most)
{
    const tt_program *p = x->p;
    tt_graphs *g = &x->graphs;
    g->first_part = tt_arena_array(x->arena, (size_t)p->n_sections + 1, sizeof *g->first_part);
    for (int s = 0; s < p->n_sections; s++) {
        g->first_part[s] = (int)g->parts.n;
        for (int i = p->sections[s].begin; i < p->sections[s].end;) {
            const tt_graph_part part = part_at(x, i, p->sections[s].end, most);
            tt_vec_push(x->arena, &g->parts, part);
            i = part.end;
        }
    }
    g->first_part[p->n_sections] = (int)g->parts.n;
}

/* Does the part find its operands of both micro-batches in the same places? */
static bool same_places(const tt_program *p, const tt_graph_part *part, int micro, int other)
{
    for (int i = part->begin; i < part->end; i++)
        for (int k = 0; k < p->instrs[i].n_in + p->instrs[i].n_out; k++) {
            const tt_instr *n = &p->instrs[i];
            const tt_operand *o = &p->operands[k < n->n_in ? n->in[k] : n->out[k - n->n_in]];
            const int *slot = o->slot < 0 ? NULL : p->slots[o->slot].slot;
            if (slot && slot[micro] != slot[other])
                return false;
        }
    return true;
}

/* The graph of a part for a call, which may be that of an earlier call. */
static int graph_of(tt_exec *x, int part, const tt_call *c)
{
    tt_graphs *g = &x->graphs;
    for (size_t i = 0; i < g->graphs.n; i++) {
        const tt_captured *k = &g->graphs.items[i];
        if (k->part == part && k->first == c->first &&
            (k->micro == c->micro || same_places(x->p, &g->parts.items[part], k->micro, c->micro)))
            return (int)i;
    }
    const tt_captured new = {
        .part = part, .section = c->section, .micro = c->micro, .first = c->first};
    tt_vec_push(x->arena, &g->graphs, new);
    return (int)g->graphs.n - 1;
}

static void find_graphs(tt_exec *x, int call, const tt_call *c)
{
    tt_graphs *g = &x->graphs;
    g->first_use[call] = (int)g->uses.n;
    for (int k = g->first_part[c->section]; k < g->first_part[c->section + 1]; k++) {
        const int use = g->parts.items[k].captured ? graph_of(x, k, c) : -1;
        tt_vec_push(x->arena, &g->uses, use);
    }
}

void tt_exec_graphs_open(tt_exec *x, int most)
{
    const tt_program *p = x->p;
    tt_graphs *g = &x->graphs;
    if (x->o.no_capture || x->o.poison || x->o.detect_nan || x->o.sync ||
        !tt_device_captures(&x->o.device) || has_extents(p))
        return;
    g->on = true;
    cut_sections(x, most);
    g->first_use = tt_arena_array(x->arena, (size_t)p->n_calls + 2, sizeof *g->first_use);
    for (int i = 0; i < p->n_calls; i++)
        find_graphs(x, i, &p->calls[i]);
    if (p->epilogue >= 0)
        find_graphs(x, p->n_calls, &(tt_call){.section = p->epilogue, .first = true});
    if (p->update >= 0)
        find_graphs(x, p->n_calls + 1, &(tt_call){.section = p->update, .first = true});
}

void tt_exec_graphs_free(tt_exec *x)
{
    for (size_t i = 0; i < x->graphs.graphs.n; i++)
        tt_device_graph_free(&x->o.device, x->graphs.graphs.items[i].graph);
}

tt_captured *tt_exec_graph(tt_exec *x, int use)
{
    tt_captured *c = use < 0 ? NULL : &x->graphs.graphs.items[use];
    if (!c || c->refused)
        return NULL;
    if (c->used)
        return c;
    c->used = true; /* the first time kernels load, tables are made: outside of graphs */
    return NULL;
}

/* ---- capturing ---- */

static void refuse(tt_exec *x, tt_captured *c, const tt_error *why)
{
    const tt_section *s = &x->p->sections[c->section];
    c->refused = true;
    x->graphs.n_refused++;
    char stage[32] = "";
    if (s->stage >= 0)
        snprintf(stage, sizeof stage, " of stage %d", s->stage);
    tt_log(TT_WARN, "exec", "the %s%s is not captured as a graph: %s", tt_section_phase(s->kind),
           stage, why->text);
}

tt_status tt_exec_capture_begin(tt_exec *x, tt_captured *c, tt_error *err)
{
    tt_error why = {0};
    TT_TRY(tt_exec_join_queues(x, err));
    if (tt_device_capture_begin(&x->o.device, tt_exec_mover(x)->queue, &why) == TT_OK)
        x->graphs.capturing = true;
    else
        refuse(x, c, &why);
    return TT_OK;
}

void tt_exec_capture_end(tt_exec *x, tt_captured *c, tt_status s, tt_error *why)
{
    tt_error ignored = {0};
    tt_device_queue *q = tt_exec_mover(x)->queue;
    if (s == TT_OK)
        s = tt_exec_join_queues(x, why);
    const tt_status ended =
        tt_device_capture_end(&x->o.device, q, &c->graph, s == TT_OK ? why : &ignored);
    x->epoch++; /* whatever has happened: what the capture recorded is not waited for */
    x->graphs.capturing = false;
    if (s == TT_OK && ended == TT_OK) {
        const tt_section *of = &x->p->sections[c->section];
        x->graphs.n_graphs++;
        tt_log(TT_DEBUG, "exec",
               "captured the %s of stage %d, micro-batch %d: instructions %d to %d",
               tt_section_phase(of->kind), of->stage, c->micro,
               x->graphs.parts.items[c->part].begin, x->graphs.parts.items[c->part].end - 1);
        return;
    }
    tt_device_graph_free(&x->o.device, c->graph);
    c->graph = NULL;
    refuse(x, c, why);
}

tt_status tt_exec_launch(tt_exec *x, const tt_captured *c, tt_error *err)
{
    x->graphs.n_launches++;
    x->graphs.comm |= x->graphs.parts.items[c->part].communicates;
    TT_TRY(tt_exec_join_queues(x, err));
    if (tt_device_launch(&x->o.device, c->graph, tt_exec_mover(x)->queue, err) == TT_OK)
        return TT_OK;
    return tt_error_context(
        err, "step %lld, rank %d: a captured graph (--debug.capture off runs ops one by one)",
        (long long)x->step, x->o.dist->rank);
}

tt_exec_graph_counts tt_exec_count_graphs(const tt_exec *x)
{
    const tt_graphs *g = &x->graphs;
    return (tt_exec_graph_counts){g->graphs.n, g->n_graphs, g->n_refused, g->n_launches};
}
