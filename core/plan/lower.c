/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/lower_impl.h"
#include <string.h>

/* lower: turns the plan's lists of nodes into instructions. Only this file knows which
 * instruction a node becomes, where messages stand, and which event orders which instructions. */

/* When a node runs: in the step's first micro-batch only, or in each; in measured steps only, or in all. */
static tt_predicate predicate_of(const tt_node *n)
{
    return (n->when->per_step ? TT_PRED_FIRST_MICRO : TT_PRED_ALWAYS) &
           (n->when->measured ? TT_PRED_MEASURED : TT_PRED_ALWAYS);
}

/* Where a node is, for people: its scope or, outside of all scopes, the layer of the parameter that it reads, else the
 * place of what it reads first. */
static const char *lowered_place(lowering *l, const tt_node *n)
{
    enum {
        FAR = 16
    }; /* nodes of no place in a row: casts and steps of a fetch, the ops of a loss */
    for (int far = 0; n && far < FAR; far++) {
        if (n->scope && *n->scope)
            return n->scope;
        if (n->when->region != TT_FORWARD && n->when->region != TT_BACKWARD)
            break; /* the optimizer's are of whole stacks */
        const tt_param_info *p = n->param;
        for (int k = 0; !p && k < n->n_in; k++)
            p = n->in[k]->node ? n->in[k]->node->param : NULL;
        if (p) {
            const char *dot = strrchr(p->name, '.');
            return dot ? tt_arena_strn(l->a, p->name, (size_t)(dot - p->name)) : p->name;
        }
        n = n->n_in ? n->in[0]->node : NULL;
    }
    return "";
}

static tt_instr *emit(lowering *l, tt_instr_kind kind, const tt_node *n)
{
    const tt_instr i = {.kind = (uint8_t)kind,
                        .predicate = n ? predicate_of(n) : TT_PRED_ALWAYS,
                        .in_place = -1,
                        .scratch = -1,
                        .counts = -1,
                        .id = n ? n->id : -1,
                        .stage = n ? n->when->stage : -1,
                        .op = n ? n->op->name : tt_instr_kind_name(kind),
                        .scope = lowered_place(l, n),
                        .scaled = n && n->scaled,
                        .node = n};
    tt_vec_push(l->a, &l->instrs, i);
    return &l->instrs.items[l->instrs.n - 1];
}

static const int *operands_of(lowering *l, tt_value *const *v, int n)
{
    int *o = tt_arena_array(l->a, (size_t)n + 1, sizeof *o);
    for (int j = 0; j < n; j++)
        o[j] = tt_lower_operand(l, v[j]);
    return o;
}

static void set_in(lowering *l, tt_instr *i, const int *in, int n)
{
    i->in = in;
    i->n_in = (int16_t)n;
    if (i->in_place >= n)
        i->in_place = -1;
    l->most_operands = TT_MAXV(l->most_operands, i->n_in + i->n_out);
}

static void set_out(lowering *l, tt_instr *i, const int *out, int n)
{
    i->out = out;
    i->n_out = (int16_t)n;
    l->most_operands = TT_MAXV(l->most_operands, i->n_in + i->n_out);
}

/* Is out[0] of a loop's node a sum over the chunks? */
static bool sums(const lowering *l, const tt_node *n)
{
    bool in = false, out = false;
    for (int j = 0; n->when->in_chunk_loop && j < n->n_in; j++)
        in = in || tt_value_per_token(l->g, n->in[j]);
    for (int j = 0; n->when->in_chunk_loop && j < n->n_out; j++)
        out = out || tt_value_per_token(l->g, n->out[j]);
    return in && !out;
}

static tt_predicate adds(const lowering *l, const tt_node *n)
{
    tt_predicate w = TT_PRED_NEVER;
    if (n->accumulate_into || n->op == &tt_op_accumulate)
        w = n->accumulates ? TT_PRED_ALWAYS : TT_PRED_LATER_MICRO;
    return sums(l, n) ? w | TT_PRED_LATER_CHUNK : w;
}

/* Emits an instruction with the node's operands and scratch. */
static tt_instr *emit_node(lowering *l, tt_instr_kind kind, const tt_node *n)
{
    const int *in = operands_of(l, n->in, n->n_in), *out = operands_of(l, n->out, n->n_out);
    const int counts = n->counts ? tt_lower_operand(l, n->counts) : -1;
    tt_instr *i = emit(l, kind, n);
    l->computed++;
    set_in(l, i, in, n->n_in);
    set_out(l, i, out, n->n_out);
    i->attrs = n->attrs;
    if (l->bare)
        return i;
    if (n->counts) {
        i->counts = counts;
        i->counted_in = n->counted_in;
        i->counted_out = n->counted_out;
    }
    i->scratch = l->plan->scratch[n->id];
    i->scratch_bytes = i->scratch < 0 ? 0 : l->plan->scratch_bytes[n->id];
    i->in_place = l->plan->in_place[n->id];
    return i;
}

/* ---- nodes ---- */

/* A kernel that adds, and a copy that stores. */
static void lower_accumulate(lowering *l, const tt_node *n)
{
    const int acc = tt_lower_state(l, n->state, n->accumulate_index, n->in[0]);
    const tt_predicate adding = adds(l, n), runs = predicate_of(n);
    tt_instr *i;
    if (runs & ~adding) {
        i = emit_node(l, TT_INSTR_COPY, n);
        i->predicate = runs & (tt_predicate)~adding;
        set_out(l, i, tt_arena_dup(l->a, &acc, sizeof acc), 1);
    }
    if (!(runs & adding))
        return;
    i = emit_node(l, TT_INSTR_KERNEL, n);
    i->predicate = runs & adding;
    i->kernel = tt_accumulate_kernel(n->state);
    const int both[2] = {acc, i->in[0]};
    set_in(l, i, tt_arena_dup(l->a, both, sizeof both), 2);
    set_out(l, i, tt_arena_dup(l->a, &acc, sizeof acc), 1);
}

/* Emits one end of a transfer, or a copy where both stages are on this rank. */
static void lower_transfer(lowering *l, const tt_node *n)
{
    const tt_plan *p = l->plan;
    const int from = n->in[0]->node->when->stage, to = n->when->stage;
    const bool gives = tt_plan_here(p, from), takes = tt_plan_here(p, to);
    tt_instr *i = emit_node(l,
                            gives && takes ? TT_INSTR_COPY
                            : gives        ? TT_INSTR_SEND
                                           : TT_INSTR_RECV,
                            n);
    set_in(l, i, i->in, gives);
    set_out(l, i, i->out, takes);
    i->peer = p->schedule->stage_rank[gives ? to : from];
}

/* Each stage reads the same sum; the ranks of the pipeline exchange it once. */
static void lower_stage_sum(lowering *l, const tt_node *n)
{
    for (size_t k = l->first; k < l->instrs.n; k++) {
        const tt_instr *o = &l->instrs.items[k];
        if (o->kind != TT_INSTR_STAGE_SUM || !o->n_in || o->n_in != n->n_in ||
            memcmp(o->node->in, n->in, sizeof *n->in * (size_t)n->n_in))
            continue;
        const int event = o->event;
        tt_instr *same = emit_node(l, TT_INSTR_STAGE_SUM, n);
        set_in(l, same, NULL, 0);
        same->event = event;
        return;
    }
    emit_node(l, TT_INSTR_STAGE_SUM, n)->event = ++l->n_sums;
}

/* The queue of a group, or of copies in one direction. */
static int queue_of(lowering *l, const tt_atom_list *atoms, int copies)
{
    const uint16_t mask = tt_atom_list_mask(atoms);
    for (size_t i = 0; i < l->queues.n; i++)
        if (tt_atom_list_mask(&l->queues.items[i].atoms) == mask &&
            l->queues.items[i].copies == copies)
            return (int)i + 1;
    const tt_program_queue q = {.atoms = *atoms, .copies = (uint8_t)copies};
    TT_ASSERT(l->queues.n < UINT8_MAX);
    tt_vec_push(l->a, &l->queues, q);
    return (int)l->queues.n;
}

static tt_instr *emit_event(lowering *l, tt_instr_kind kind, int queue, int event,
                            tt_predicate predicate)
{
    tt_instr *i = emit(l, kind, NULL);
    i->queue = (uint8_t)queue;
    i->event = event;
    i->predicate = predicate;
    return i;
}

/* Makes the queue wait for all that queue 0 has computed so far, unless it has waited for that. */
static void synchronize(lowering *l, int queue, tt_predicate predicate)
{
    sync *s = &l->synced[queue];
    if (s->at == l->computed && !(predicate & ~s->predicate))
        return;
    const int ready = ++l->n_events;
    emit_event(l, TT_INSTR_RECORD, 0, ready, predicate);
    emit_event(l, TT_INSTR_WAIT, queue, ready, predicate);
    *s = (sync){l->computed, predicate};
}

/* Puts the last instruction, the node's, on a queue of its own; lower_waits waits for the event at its
 * end. */
static void put_on_queue(lowering *l, const tt_node *n, int q)
{
    tt_instr *i = &l->instrs.items[l->instrs.n - 1];
    l->computed--; /* queue 0 does not run it */
    i->queue = (uint8_t)q;
    l->queues.items[q - 1].n_collectives++;
    if (l->implied[n->id])
        return;
    l->over[n->id] = ++l->n_events;
    emit_event(l, TT_INSTR_RECORD, q, l->over[n->id], i->predicate);
}

/* Begins the collective here, on the queue of its group, after all that was computed before. */
static void lower_async(lowering *l, const tt_node *n)
{
    const int q = queue_of(l, &n->step->atoms, 0);
    synchronize(l, q, predicate_of(n));
    tt_instr *i = emit_node(l, TT_INSTR_COLLECTIVE, n);
    i->step = n->step;
    i->type = &n->out[0]->type;
    put_on_queue(l, n, q);
}

/* A copy of a state from or to host memory. */
static void lower_state_copy(lowering *l, const tt_node *n)
{
    static const tt_atom_list none;
    const bool load = n->op == &tt_op_load;
    const int q = n->async ? queue_of(l, &none, load ? 1 : 2) : 0;
    if (q)
        synchronize(l, q, predicate_of(n));
    const int state = tt_lower_state(l, n->state, n->accumulate_index, load ? n->out[0] : n->in[0]);
    const int *at = tt_arena_dup(l->a, &state, sizeof state);
    tt_instr *i = emit_node(l, TT_INSTR_COPY, n);
    if (load)
        set_in(l, i, at, 1);
    else
        set_out(l, i, at, 1);
    if (q)
        put_on_queue(l, n, q);
}

/* A copy of a value of the forward to host memory, or of such a copy back. */
static void lower_offload(lowering *l, const tt_node *n)
{
    static const tt_atom_list none;
    const int q = queue_of(l, &none, n->op == &tt_op_reload ? 1 : 2);
    synchronize(l, q, predicate_of(n));
    emit_node(l, TT_INSTR_COPY, n);
    put_on_queue(l, n, q);
}

/* Is the node a join whose pieces all lie in its output? */
static bool is_joined(const tt_node *n)
{
    for (int j = 0; j < n->n_in; j++)
        if (n->in[j]->within != n->out[0])
            return false;
    return true;
}

static bool has_coordinate(const lowering *l, const tt_atom_list *atoms)
{
    for (int k = 0; k < atoms->n; k++)
        if (l->coords[TT_ATOM(atoms->atom[k])])
            return true;
    return false;
}

static void lower_step(lowering *l, const tt_node *n)
{
    tt_instr_kind kind = TT_INSTR_LOCAL;
    if (n->async) {
        lower_async(l, n);
        return;
    }
    if (!tt_step_is_local(n->step->kind))
        kind = TT_INSTR_COLLECTIVE;
    else if (n->step->kind == TT_STEP_JOIN && is_joined(n))
        kind = TT_INSTR_ADOPT;
    else if (n->step->kind == TT_STEP_MASK) /* one rank keeps the value, the others add zero */
        kind = has_coordinate(l, &n->step->atoms) ? TT_INSTR_FILL : TT_INSTR_COPY;
    tt_instr *i = emit_node(l, kind, n);
    i->step = n->step;
    i->type = &n->out[0]->type;
    if (kind == TT_INSTR_FILL)
        set_in(l, i, NULL, 0);
}

static void lower_node(lowering *l, const tt_node *n)
{
    if (n->op == &tt_op_param || n->op == &tt_op_state || tt_plan_is_view(n))
        return;
    if (n->op == &tt_op_accumulate) {
        lower_accumulate(l, n);
    } else if (n->op == &tt_op_assign || n->op == &tt_op_load) {
        lower_state_copy(l, n);
    } else if (n->op == &tt_op_offload || n->op == &tt_op_reload) {
        lower_offload(l, n);
    } else if (n->op == &tt_op_transfer) {
        if (n->when->region > TT_BACKWARD) /* else it is received before a part */
            lower_transfer(l, n);
    } else if (n->op == &tt_op_input) {
        emit_node(l, TT_INSTR_INPUT, n)->input = n->input_name;
    } else if (n->op == &tt_op_stage_sum) {
        lower_stage_sum(l, n);
    } else if (n->op == &tt_op_collective) {
        lower_step(l, n);
    } else {
        tt_instr *i = emit_node(l, TT_INSTR_KERNEL, n);
        i->kernel = n->op->name;
        i->adds = adds(l, n);
        i->fused = n->op == &tt_op_fused;
        i->take_infinity =
            (n->op->flags & TT_OP_MAY_BE_INFINITE) || (n->n_out && n->out[0]->place.partial_max);
    }
}

/* ---- lists ---- */

/* Does the node become an instruction of its list? */
static bool runs(const tt_node *n)
{
    return tt_plan_runs(n) && !(n->op == &tt_op_transfer && n->when->region <= TT_BACKWARD);
}

static void begin_loop(lowering *l)
{
    l->loop = (int)l->instrs.n;
    emit(l, TT_INSTR_LOOP, NULL);
}

/* Ends the loop. It runs as often as the first operand with its rows requires. */
static void end_loop(lowering *l)
{
    tt_instr *loop = &l->instrs.items[l->loop];
    loop->end = (int)l->instrs.n;
    for (int i = l->loop + 1; !loop->n_in && i < loop->end; i++) {
        const tt_instr *e = &l->instrs.items[i];
        for (int j = 0; !loop->n_in && j < e->n_in; j++)
            if (l->operands.items[e->in[j]].rows)
                set_in(l, loop, &e->in[j], 1);
    }
    emit(l, TT_INSTR_END_LOOP, NULL);
    l->loop = -1;
}

static void lower_waits(lowering *l, const tt_nodes *nodes, int before, int *next)
{
    for (; *next < nodes->n_waits && nodes->waits[*next].before == before; ++*next) {
        const tt_node *n = nodes->waits[*next].node;
        tt_predicate predicate = predicate_of(n);
        if (!l->over[n->id])
            continue;
        if (l->loop >= 0)
            predicate &= TT_PRED_FIRST_CHUNK;
        tt_instr *i = emit_event(l, TT_INSTR_WAIT, 0, l->over[n->id], predicate);
        i->id = n->id;
        i->stage = n->when->stage;
        l->computed++; /* what another queue reads next may be what queue 0 has waited for */
    }
}

/* Lowers a list. Inputs are filled first, because the plan's lifetimes assume it. */
static void lower_list(lowering *l, const tt_nodes *nodes)
{
    int next = 0;
    l->loop = -1;
    for (int i = 0; i < nodes->n; i++)
        if (nodes->items[i]->op == &tt_op_input)
            lower_node(l, nodes->items[i]);
    for (int i = 0; i < nodes->n; i++) {
        const tt_node *n = nodes->items[i];
        const bool here = runs(n) && n->op != &tt_op_input;
        if (here && !n->when->in_chunk_loop && l->loop >= 0)
            end_loop(l);
        lower_waits(l, nodes, i, &next);
        if (!here)
            continue;
        if (n->when->in_chunk_loop && l->loop < 0)
            begin_loop(l);
        lower_node(l, n);
    }
    if (l->loop >= 0)
        end_loop(l);
    lower_waits(l, nodes, nodes->n, &next);
}

static void begin_section(lowering *l, tt_section_kind kind, int stage, int first_micro)
{
    const tt_state *ok = kind == TT_SECTION_UPDATE ? l->g->ok : NULL;
    const tt_section s = {kind, stage, first_micro, ok ? ok->id : -1, (int)l->instrs.n, 0};
    l->first = l->instrs.n;
    memset(l->synced, 0, sizeof l->synced);
    tt_vec_push(l->a, &l->sections, s);
}

/* Ends a section. Values that cross stages are sent, or handed over, when the part that makes
 * them is done, in node order on both ends. They are received where the schedule says so. */
static void end_section(lowering *l, const tt_stage_plan *s, tt_section_kind kind)
{
    for (size_t i = 0; s && i < l->transfers.n; i++) {
        const tt_node *t = l->transfers.items[i];
        const bool from = t->in[0]->node->when->stage == s->stage, to = t->when->stage == s->stage;
        if (kind <= TT_SECTION_W && from && tt_node_part(t) == (tt_stage_part)kind)
            lower_transfer(l, t);
        if (kind >= TT_SECTION_RECV_F && to &&
            !tt_plan_here(l->plan, t->in[0]->node->when->stage) &&
            (t->when->region == TT_BACKWARD) == (kind == TT_SECTION_RECV_B))
            lower_transfer(l, t);
    }
    l->sections.items[l->sections.n - 1].end = (int)l->instrs.n;
}

static void lower_sections(lowering *l)
{
    const tt_plan *p = l->plan;
    const tt_graph *g = l->g;
    for (size_t i = 0; i < g->nodes.n; i++)
        if (g->nodes.items[i]->op == &tt_op_transfer &&
            g->nodes.items[i]->when->region <= TT_BACKWARD)
            tt_vec_push(l->a, &l->transfers, g->nodes.items[i]);
    for (int s = 0; s < p->n_stages; s++)
        for (int k = TT_SECTION_F; k <= TT_SECTION_RECV_B; k++) {
            begin_section(l, (tt_section_kind)k, p->stages[s].stage,
                          k > TT_SECTION_W ? -1 : p->stages[s].first[k != TT_SECTION_F]);
            if (k <= TT_SECTION_W)
                lower_list(l, &p->stages[s].part[k]);
            end_section(l, &p->stages[s], (tt_section_kind)k);
        }
    for (int k = TT_SECTION_EPILOGUE; k <= TT_SECTION_UPDATE; k++) {
        begin_section(l, (tt_section_kind)k, -1, 0);
        lower_list(l, k == TT_SECTION_EPILOGUE ? &p->epilogue : &p->update);
        end_section(l, NULL, (tt_section_kind)k);
    }
}

static void finish(lowering *l, tt_program *out)
{
    const tt_graph *g = l->g;
    *out = (tt_program){
        .mesh = g->mesh,
        .graph = g,
        .pp_rank = l->plan->pp_rank,
        .n_micro = l->plan->schedule->n_micro,
        .instrs = l->instrs.items,
        .n = (int)l->instrs.n,
        .operands = l->operands.items,
        .n_operands = (int)l->operands.n,
        .most_operands = l->most_operands,
        .sections = l->sections.items,
        .n_sections = (int)l->sections.n,
        .epilogue = (int)l->sections.n - 2,
        .update = (int)l->sections.n - 1,
        .seed = g->seed ? g->seed->id : -1,
        .step = g->step ? g->step->id : -1,
        .slots = l->slots.items,
        .n_slots = (int)l->slots.n,
        .queues = l->queues.items,
        .n_queues = (int)l->queues.n,
        .n_events = l->n_events,
        .n_sums = l->n_sums,
        .states = l->states.items,
        .n_states = (int)l->states.n,
        .params = l->params.items,
        .n_params = (int)l->params.n,
        .chunk_rows = g->chunk_rows,
        .most_chunks = g->chunk_rows ? (g->tokens + g->chunk_rows - 1) / g->chunk_rows : 1,
        .most_rows = {0, g->tokens, g->picked},
        .alignment = g->alignment,
        .written_end = l->plan->written_end,
        .read_end = l->plan->read_end
    };
    memcpy(out->coords, l->coords, sizeof out->coords);
    memcpy(out->bytes, l->plan->bytes, sizeof out->bytes);
}

static lowering new_lowering(const tt_plan *p, const int32_t *coords, bool bare, tt_arena *a)
{
    const tt_graph *g = p->graph;
    lowering l = {.plan = p, .g = g, .bare = bare, .a = a, .loop = -1};
    const tt_axis *pp = tt_mesh_axis(g->mesh, "pp");
    if (coords)
        memcpy(l.coords, coords, sizeof l.coords);
    else if (pp)
        l.coords[TT_ATOM(pp->atoms.atom[0])] = p->pp_rank;
    l.most_operands = 1;
    l.operand_of = tt_arena_array(a, (size_t)g->n_values + 1, sizeof *l.operand_of);
    memset(l.operand_of, 0xff, ((size_t)g->n_values + 1) * sizeof *l.operand_of);
    l.over = tt_arena_array(a, (size_t)g->n_ids + 1, sizeof *l.over);
    l.implied = tt_arena_array(a, (size_t)g->n_ids + 1, sizeof *l.implied);
    for (int s = 0; s < p->n_stages; s++)
        for (int k = 0; k < TT_N_PARTS; k++)
            for (int w = 0; w < p->stages[s].part[k].n_waits; w++)
                l.implied[p->stages[s].part[k].waits[w].node->id] =
                    p->stages[s].part[k].waits[w].implied;
    return l;
}

void tt_program_make(const tt_plan *p, const int32_t *coords, tt_arena *a, tt_program *out)
{
    lowering l = new_lowering(p, coords, false, a);
    tt_lower_slots(&l);
    tt_lower_tables(&l);
    lower_sections(&l);
    finish(&l, out);
    tt_program_find_last_uses(out, a);
    out->calls = tt_program_calls(out, p->programs, a, &out->n_calls);
}

tt_program *tt_program_outlines(const tt_graph *g, const tt_schedule *schedule, tt_arena *a)
{
    tt_program *all = tt_arena_array(a, (size_t)schedule->n_ranks, sizeof *all);
    for (int r = 0; r < schedule->n_ranks; r++) {
        tt_plan *lists = tt_arena_alloc(a, sizeof *lists);
        tt_plan_lists(g, schedule, r, a, lists);
        lowering l = new_lowering(lists, NULL, true, a);
        lower_sections(&l);
        finish(&l, &all[r]);
    }
    return all;
}

uint64_t tt_program_hash(const tt_program *p, uint64_t h)
{
    for (int k = 0; k < p->n; k++) {
        const tt_instr *i = &p->instrs[k];
        const int all[] = {i->kind, i->queue, i->predicate, i->adds,
                           i->id,   i->event, i->peer,      i->stage};
        h = tt_hash64(all, sizeof all, h);
    }
    for (int s = 0; s < p->n_sections; s++)
        h = tt_hash64(&p->sections[s].only_if, sizeof p->sections[s].only_if, h);
    return h;
}
