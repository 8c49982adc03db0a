/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan_impl.h"
#include <string.h>

/* Finds the lifetimes of values on a timeline, then their offsets. */

static tt_live *live_of(planner *p, const tt_value *v)
{
    v = tt_plan_alias(v);
    return &p->live[v->id];
}

/* Does v need memory of its own? Not if it is a state or parameter, which has its own space, or
 * if it is accumulated or assigned to one in place. */
static bool owns_memory(const tt_value *v)
{
    const tt_node *n = v->node;
    if (n->op == &tt_op_param || n->op == &tt_op_state)
        return false;
    if (n->accumulate_into && v->out == 0)
        return false;
    if (n->assign_to && n->assign_to[v->out])
        return false;
    return true;
}

static void touch(planner *p, const tt_value *v, int at, tt_stage_part part)
{
    tt_live *l = live_of(p, v);
    const tt_value *root = tt_plan_alias(v);
    if (!owns_memory(root))
        return;
    if (!l->known) {
        *l = (tt_live){.known = true,
                       .first = at,
                       .last = at,
                       .value = root,
                       .received = root->node->op == &tt_op_transfer &&
                                   root->node->when->region <= TT_BACKWARD,
                       .bytes = tt_plan_value_bytes(p->plan->graph, root)};
    }
    l->first = TT_MIN(l->first, at);
    l->last = TT_MAXV(l->last, at);
    l->parts |= (uint8_t)(1u << part);
}

/* The largest operand that the kernel sees: for a node of the chunk loop, one chunk. */
static void chunk_tensor(const tt_graph *g, const tt_node *n, const tt_value *v, tt_tensor *out)
{
    tt_plan_tensor(g, v, NULL, out);
    if (n->when->in_chunk_loop && tt_value_per_token(g, v))
        out->shape[0] = TT_MIN(out->shape[0], g->chunk_rows);
}

const char *tt_accumulate_kernel(const tt_state *s)
{
    return s->accumulate_max ? "maximum" : "add";
}

static size_t scratch_of(planner *p, const tt_node *n)
{
    tt_tensor in[TT_MAX_INS], out[TT_MAX_OUTS];
    if (n->step && (tt_plan_is_slice(n) || n->step->kind >= TT_STEP_JOIN))
        return 0;
    if (n->op == &tt_op_collective)
        return (size_t)(tt_plan_bytes(p->plan->graph, &n->in[0]->type, &n->in[0]->place) +
                        tt_plan_bytes(p->plan->graph, &n->out[0]->type, &n->out[0]->place));
    if (n->op == &tt_op_stage_sum)
        return (size_t)TT_MAX_STAGES * 16; /* a number per stage, and room to spare */
    if (!p->o->scratch)
        return 0;
    for (int i = 0; i < n->n_in; i++)
        chunk_tensor(p->plan->graph, n, n->in[i], &in[i]);
    for (int i = 0; i < n->n_out; i++)
        chunk_tensor(p->plan->graph, n, n->out[i], &out[i]);
    if (n->op == &tt_op_accumulate) { /* it runs as acc = acc + x */
        in[1] = out[0] = in[0];
        const tt_kernel_call acc = {.struct_size = sizeof acc,
                                    .in = in,
                                    .n_in = 2,
                                    .out = out,
                                    .n_out = 1,
                                    .op = tt_accumulate_kernel(n->state)};
        return p->o->scratch(p->o->user, &acc);
    }
    const tt_kernel_call c = {.struct_size = sizeof c,
                              .op = n->op->name,
                              .in = in,
                              .n_in = n->n_in,
                              .out = out,
                              .n_out = n->n_out,
                              .attrs = n->attrs};
    return p->o->scratch(p->o->user, &c);
}

/* Does another rank compute this operand of a step-region or transfer node, or is it sent where
 * it is made? */
static bool elsewhere(const planner *p, const tt_node *n, const tt_value *v)
{
    if (n->op == &tt_op_transfer && n->when->region <= TT_BACKWARD)
        return true; /* keep_sent keeps it alive */
    return !tt_plan_here(p->plan, v->node->when->stage);
}

static void touch_node(planner *p, const tt_node *e, int begin, int t, const int loop[2],
                       tt_stage_part part)
{
    const bool ready = e->op == &tt_op_input || e->op == &tt_op_transfer; /* before the list runs */
    for (int j = 0; j < e->n_in; j++)
        if (!elsewhere(p, e, e->in[j]))
            touch(p, e->in[j], e->when->in_chunk_loop && !e->in[j]->chunked ? loop[1] : t, part);
    if (e->counts && !elsewhere(p, e, e->counts))
        touch(p, e->counts, e->when->in_chunk_loop ? loop[1] : t, part);
    for (int j = 0; tt_plan_here(p->plan, e->when->stage) && j < e->n_out; j++) {
        touch(p, e->out[j], ready && e->when->region <= TT_BACKWARD ? begin : t, part);
        if (!e->when->in_chunk_loop || e->out[j]->chunked)
            continue;
        touch(p, e->out[j], loop[0], part);
        touch(p, e->out[j], loop[1], part);
    }
}

/* A collective that runs concurrently with the list keeps its operands and scratch alive up to
 * the item that waits for it. */
static void hold(planner *p, const tt_wait *w, int at, tt_stage_part part)
{
    for (int j = 0; j < w->node->n_in + w->node->n_out; j++) {
        const tt_value *v = j < w->node->n_in ? w->node->in[j] : w->node->out[j - w->node->n_in];
        touch(p, v, at + w->before, part);
        live_of(p, v)->held = TT_MAXV(live_of(p, v)->held, at + w->before);
    }
    for (size_t i = 0; i < p->scratches.n; i++)
        if (p->scratches.items[i].scratch_of == w->node)
            p->scratches.items[i].last = at + w->before;
}

/* Sets the lifetimes of one list of nodes, whose times begin at `at`; returns the time after it.
 * Inputs are filled and messages received before the list runs. */
static int walk(planner *p, const tt_nodes *l, int at, tt_stage_part part)
{
    int loop[2] = {0}; /* first and last time of the token-chunk loop */
    for (int i = 0; i < l->n; i++) {
        if (!l->items[i]->when->in_chunk_loop)
            continue;
        if (!loop[0])
            loop[0] = at + 1 + i;
        loop[1] = at + 1 + i;
    }
    for (int i = 0; i < l->n; i++) {
        const tt_node *e = l->items[i];
        const int t = at + 1 + i;
        touch_node(p, e, at, t, loop, part);
        const size_t s = scratch_of(p, e);
        p->plan->scratch_bytes[e->id] = (int64_t)s;
        if (!s)
            continue;
        tt_live scratch = {.known = true,
                           .first = t,
                           .last = t,
                           .scratch_of = e,
                           .bytes = tt_plan_round(p->plan->graph, (int64_t)s)};
        tt_vec_push(p->a, &p->scratches, scratch);
    }
    for (int i = 0; i < l->n_waits; i++)
        hold(p, &l->waits[i], at, part);
    return at + l->n + 2;
}

/* Values that another stage reads stay alive to the end of the list, where they are sent or
 * handed over. */
static void keep_sent(planner *p, const tt_stage_plan *s, tt_stage_part part, int at)
{
    const tt_graph *g = p->plan->graph;
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *t = g->nodes.items[i];
        if (t->op == &tt_op_transfer && t->when->region <= TT_BACKWARD && tt_node_part(t) == part &&
            t->in[0]->node->when->stage == s->stage)
            touch(p, t->in[0], at, part);
    }
}

/* Is it the copy of a value in host memory? */
static bool is_offloaded(const tt_live *l)
{
    return l->value->node->op == &tt_op_offload;
}

tt_space tt_plan_space_of(const tt_live *l)
{
    const bool f = l->parts >> TT_PART_F & 1, i = l->parts >> TT_PART_I & 1,
               w = l->parts >> TT_PART_W & 1;
    if (f && w)
        return TT_SPACE_KEEP;
    if (f && (i || l->received))
        return TT_SPACE_SLOT;
    return (i && w) || l->received ? TT_SPACE_WGRAD : TT_SPACE_WORK;
}

/* s: as in color. */
static tt_space space_in(const tt_stage_plan *s, const tt_live *l)
{
    return is_offloaded(l)      ? TT_SPACE_OFFLOADED
           : !s || !s->in_slots ? TT_SPACE_WORK
                                : tt_plan_space_of(l);
}

static void note_peak(planner *p, tt_stage_plan *s, tt_space sp, int64_t peak)
{
    int64_t *bytes = &p->plan->bytes[sp];
    if (s && s->in_slots && sp == TT_SPACE_OFFLOADED)
        s->offloaded_bytes = peak;
    else if (sp == TT_SPACE_WORK || sp == TT_SPACE_OFFLOADED)
        *bytes = TT_MAXV(*bytes, peak);
    else if (s)
        s->slot_bytes[sp - TT_SPACE_SLOT] = peak;
}

/* Finds offsets for values that are known and have none. s: the stage in whose slots they may
 * lie, NULL = none. */
static void color(planner *p, tt_stage_plan *s)
{
    const tt_graph *g = p->plan->graph;
    const size_t most = (size_t)g->n_values + p->scratches.n + 1;
    tt_live **l = tt_arena_array(p->a, most, sizeof *l);
    for (tt_space sp = TT_SPACE_OFFLOADED; sp <= TT_SPACE_WORK; sp++) {
        size_t n = 0;
        if (sp == TT_SPACE_STATE)
            continue;
        for (int v = 0; v < g->n_values; v++)
            if (p->live[v].known && !p->live[v].placed && space_in(s, &p->live[v]) == sp)
                l[n++] = &p->live[v];
        for (size_t i = 0; sp == TT_SPACE_WORK && i < p->scratches.n; i++)
            l[n++] = &p->scratches.items[i];
        note_peak(p, s, sp, tt_plan_color_in_place(p, l, n));
        for (size_t i = 0; i < n; i++) {
            l[i]->placed = true;
            if (l[i]->scratch_of)
                p->plan->scratch[l[i]->scratch_of->id] = l[i]->offset;
            else
                p->plan->value[l[i]->value->id] = (tt_loc){sp, l[i]->offset, NULL, -1};
        }
    }
    p->scratches.n = 0;
}

void tt_plan_stage_lives(planner *p, tt_stage_plan *s)
{
    int t = 0, begin[TT_N_PARTS];
    for (int k = 0; k < TT_N_PARTS; k++) {
        begin[k] = t;
        t = walk(p, &s->part[k], t, (tt_stage_part)k);
        keep_sent(p, s, (tt_stage_part)k, t - 1);
    }
    for (int k = 0; k < TT_N_PARTS; k++)
        tt_plan_take_over(p, &s->part[k], begin[k], s->in_slots);
    color(p, s);
    for (int h = 0; h < TT_N_HOLDS; h++) {
        const tt_space sp = (tt_space)(TT_SPACE_SLOT + h);
        s->slot_base[h] = p->plan->bytes[sp];
        p->plan->bytes[sp] += s->slot_bytes[h] * s->n_slots[h];
    }
    s->offloaded_base = p->plan->bytes[TT_SPACE_OFFLOADED];
    p->plan->bytes[TT_SPACE_OFFLOADED] +=
        s->offloaded_bytes * s->n_slots[tt_plan_offloaded_hold(p->plan->schedule)];
}

/* Epilogue and update run when no micro-batch is in flight, so all stages of the rank share a
 * timeline of their own over the same bytes. */
void tt_plan_step_lives(planner *p)
{
    const int t = walk(p, &p->plan->epilogue, 0, TT_PART_F);
    walk(p, &p->plan->update, t, TT_PART_F);
    tt_plan_take_over(p, &p->plan->epilogue, 0, false);
    tt_plan_take_over(p, &p->plan->update, t, false);
    color(p, NULL);
}
