/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan_impl.h"
#include <string.h>

/* The messages and collectives of all ranks of a mesh in a step, taken from the programs that
 * the ranks run: the same instructions in the same order, on the same communicators. */

typedef struct comm { /* of a group; its number is the same on all ranks */
    uint16_t atoms;
    bool concurrent;
    int begun; /* by the rank whose trace is being written, in the parts so far */
} comm;

typedef struct begun { /* a collective that has begun and is not over */
    const tt_instr *instr;
    int comm, before; /* how many of its group began before it */
} begun;

typedef struct code { /* of ranks with one pipeline coordinate whose loops run equally often */
    const tt_program *p;
    uint64_t iterations;
    tt_trace_part *of; /* [section][first micro-batch, others] */
} code;

typedef struct writer {
    const tt_graph *g;
    const tt_messages_opts *o;
    tt_arena *a;
    tt_mesh few;   /* the ranks that are simulated for all: they differ in these atoms only */
    uint16_t kept; /* the atoms of few */
    int atom[TT_MAX_ATOMS];     /* by atom of few: its number in the mesh */
    const tt_program *outlines; /* by pipeline coordinate */
    tt_call **calls;            /* likewise */
    int *n_calls;
    TT_VEC(comm) comms;
    TT_VEC(code *) codes;
    begun last[UINT8_MAX + 1];    /* by queue: the last collective, before it has an event */
    begun *under_way;             /* by event */
    int32_t coords[TT_MAX_ATOMS]; /* in the mesh, of the rank whose trace is being written */
    code *now;
    TT_VEC(tt_message) messages;
    tt_messages *out;
} writer;

static void choose_ranks(writer *x)
{
    const tt_mesh *m = x->g->mesh;
    const tt_axis *pp = tt_mesh_axis(m, "pp");
    uint16_t keep = x->o->all ? UINT16_MAX : 0;
    for (int r = 0; !x->o->all && r < x->o->programs->schedule->n_ranks; r++)
        keep |= tt_loop_atoms(&x->outlines[r]);
    if (pp)
        keep |= (uint16_t)(1u << TT_ATOM(pp->atoms.atom[0]));
    x->kept = keep;
    x->few = (tt_mesh){.world = 1};
    for (int i = 0; i < m->n_atoms; i++) {
        if (!(keep >> i & 1))
            continue;
        x->atom[x->few.n_atoms] = i;
        x->few.atom_size[x->few.n_atoms++] = m->atom_size[i];
        x->few.world *= m->atom_size[i];
    }
}

/* ---- one section ---- */

static int comm_of(writer *x, const tt_atom_list *atoms, bool concurrent)
{
    const comm c = {.atoms = tt_atom_list_mask(atoms), .concurrent = concurrent};
    for (size_t i = 0; i < x->comms.n; i++)
        if (x->comms.items[i].atoms == c.atoms && x->comms.items[i].concurrent == concurrent)
            return (int)i;
    tt_vec_push(x->a, &x->comms, c);
    return (int)x->comms.n - 1;
}

/* Writes a message. A collective over ranks of which only one is simulated takes place when this
 * rank arrives. */
static void write_message(writer *x, tt_message_kind kind, int to, int64_t tag, int back,
                          const tt_instr *i)
{
    if (kind >= TT_MESSAGE_COLLECTIVE && !(x->comms.items[to].atoms & x->kept))
        return;
    const tt_message w = {kind, to, tag, back, i};
    tt_vec_push(x->a, &x->messages, w);
}

/* On every rank a sum over stages is a node of its own. The value that it adds identifies it. */
static void put_stage_sum(writer *x, const tt_instr *i)
{
    int64_t tag = 0;
    if (!i->n_in)
        return; /* its message exists already */
    for (int j = 0; j < i->n_in; j++) {
        const int value = x->now->p->operands[i->in[j]].value;
        tag = (int64_t)tt_hash64(&value, sizeof value, (uint64_t)tag);
    }
    write_message(x, TT_MESSAGE_COLLECTIVE,
                  comm_of(x, &tt_mesh_axis(x->g->mesh, "pp")->atoms, false), tag | INT64_MIN, 0, i);
}

static void put_collective(writer *x, const tt_instr *i)
{
    const bool concurrent = i->queue && x->o->concurrency == TT_CONCURRENT_QUEUES;
    const int c = comm_of(x, &i->step->atoms, concurrent);
    if (i->queue && x->o->concurrency != TT_CONCURRENT_AT_BEGIN)
        x->last[i->queue] = (begun){i, c, x->comms.items[c].begun++};
    if (!i->queue || x->o->concurrency != TT_CONCURRENT_AT_WAIT)
        write_message(x, concurrent ? TT_MESSAGE_BEGIN : TT_MESSAGE_COLLECTIVE, c, i->id, 0, i);
}

static void put_wait(writer *x, int event)
{
    const begun b = x->under_way[event];
    const bool concurrent = x->o->concurrency == TT_CONCURRENT_QUEUES;
    if (b.instr)
        write_message(x, concurrent ? TT_MESSAGE_WAIT : TT_MESSAGE_COLLECTIVE, b.comm, b.instr->id,
                      x->comms.items[b.comm].begun - 1 - b.before, b.instr);
    x->under_way[event] = (begun){0};
}

static void put_instr(writer *x, const tt_instr *i)
{
    switch ((tt_instr_kind)i->kind) {
    case TT_INSTR_SEND:
        write_message(x, TT_MESSAGE_SEND, i->peer, i->id, 0, i);
        break;
    case TT_INSTR_RECV:
        write_message(x, TT_MESSAGE_RECV, i->peer, i->id, 0, i);
        break;
    case TT_INSTR_STAGE_SUM:
        put_stage_sum(x, i);
        break;
    case TT_INSTR_COLLECTIVE:
        put_collective(x, i);
        break;
    case TT_INSTR_RECORD:
        if (i->queue)
            x->under_way[i->event] = x->last[i->queue];
        x->last[i->queue] = (begun){0};
        break;
    case TT_INSTR_WAIT:
        if (!i->queue)
            put_wait(x, i->event);
        break;
    default:
        break;
    }
}

static tt_trace_part write_section(writer *x, const tt_section *s, bool later_micro)
{
    const tt_program *p = x->now->p;
    int64_t left = 0; /* iterations of the loop */
    int loop = -1;
    bool later_chunk = false;
    x->messages.n = 0;
    for (int k = s->begin; k < s->end; k++) {
        const tt_instr *i = &p->instrs[k];
        if (i->kind == TT_INSTR_LOOP) {
            loop = k;
            left = tt_loop_iterations(p, i, x->coords);
            later_chunk = false;
        } else if (i->kind == TT_INSTR_END_LOOP) {
            later_chunk = --left > 0;
            k = later_chunk ? loop : k;
        } else if (tt_predicate_holds(i->predicate, later_micro, later_chunk)) {
            put_instr(x, i);
        }
    }
    return (tt_trace_part){
        .items = tt_arena_dup(x->a, x->messages.items, x->messages.n * sizeof *x->messages.items),
        .n = (int)x->messages.n};
}

/* ---- the trace of a rank ---- */

static tt_status all_waited(const writer *x, tt_error *err)
{
    for (int e = 0; e <= x->now->p->n_events; e++)
        if (x->under_way[e].instr)
            return TT_FAIL(err, TT_EINTERNAL, "%s in \"%s\" is begun and never waited for",
                           tt_step_kind_name(x->under_way[e].instr->step->kind),
                           x->under_way[e].instr->scope);
    return TT_OK;
}

/* Writes the sections of a stage in the order of a micro-batch, because a collective may begin
 * in one and be waited for in another. */
static tt_status write_code(writer *x, tt_error *err)
{
    const tt_program *p = x->now->p;
    x->now->of = tt_arena_array(x->a, (size_t)p->n_sections * 2, sizeof *x->now->of);
    x->under_way = tt_arena_array(x->a, (size_t)p->n_events + 1, sizeof *x->under_way);
    for (int later = 0; later < 2; later++) {
        for (int s = 0; s < p->n_sections; s++)
            x->now->of[s * 2 + later] = write_section(x, &p->sections[s], later);
        TT_TRY(all_waited(x, err));
    }
    return TT_OK;
}

/* Finds the code of the rank at x->coords, or makes it for the first rank of its kind. */
static tt_status find_code(writer *x, int pp, tt_error *err)
{
    code c = {.p = &x->outlines[pp]};
    for (int i = 0; i < c.p->n; i++)
        if (c.p->instrs[i].kind == TT_INSTR_LOOP) {
            const int64_t iterations = tt_loop_iterations(c.p, &c.p->instrs[i], x->coords);
            c.iterations = tt_hash64(&iterations, sizeof iterations, c.iterations);
        }
    for (size_t i = 0; i < x->codes.n; i++)
        if (x->codes.items[i]->p == c.p && x->codes.items[i]->iterations == c.iterations) {
            x->now = x->codes.items[i];
            return TT_OK;
        }
    x->now = tt_arena_dup(x->a, &c, sizeof c);
    tt_vec_push(x->a, &x->codes, x->now);
    return write_code(x, err);
}

typedef struct rank_trace {
    TT_VEC(tt_trace_part) parts;
} rank_trace;

static void add_part(writer *x, rank_trace *to, int section, bool later, int64_t micro)
{
    tt_trace_part own = x->now->of[section * 2 + later];
    own.micro = micro;
    if (own.n)
        tt_vec_push(x->a, &to->parts, own);
}

static tt_status write_rank(writer *x, int r, tt_error *err)
{
    const tt_axis *pp = tt_mesh_axis(x->g->mesh, "pp");
    int32_t c[TT_MAX_ATOMS];
    rank_trace all = {0};
    tt_mesh_coords(&x->few, r, c);
    memset(x->coords, 0, sizeof x->coords);
    for (int i = 0; i < x->few.n_atoms; i++)
        x->coords[x->atom[i]] = c[i];
    const int at = pp ? x->coords[TT_ATOM(pp->atoms.atom[0])] : 0;
    TT_TRY(find_code(x, at, err));
    for (int i = 0; i < x->n_calls[at]; i++) {
        const tt_call *call = &x->calls[at][i];
        add_part(x, &all, call->section, !call->first, call->micro);
    }
    add_part(x, &all, x->now->p->epilogue, false, 0);
    add_part(x, &all, x->now->p->update, false, 0);
    x->out->traces[r] = all.parts.items;
    x->out->n_parts[r] = (int)all.parts.n;
    return TT_OK;
}

/* ---- groups and their members ---- */

/* Finds the ranks of few that differ from r only in these atoms of the mesh; returns how many. */
static int members_of(const writer *x, int r, uint16_t atoms, int *ranks)
{
    tt_atom_list l = {0};
    for (int i = 0; i < x->few.n_atoms; i++)
        if (atoms >> x->atom[i] & 1)
            l.atom[l.n++] = (uint16_t)i;
    return tt_mesh_group(&x->few, r, &l, ranks);
}

/* Numbers the groups. A group is identified by its communicator and its first member. */
static void name_groups(writer *x)
{
    const int n = x->few.world, n_own = (int)x->comms.n;
    const tt_axis *pp = tt_mesh_axis(x->g->mesh, "pp");
    int *ranks = tt_arena_array(x->a, (size_t)n, sizeof *ranks);
    int *size = tt_arena_array(x->a, (size_t)n * (size_t)n_own + 1, sizeof *size);
    int *group = tt_arena_array(x->a, (size_t)n * (size_t)n_own + 1, sizeof *group);
    const int n_peers = x->o->programs->schedule->n_ranks;
    int *peer = tt_arena_array(x->a, (size_t)n * (size_t)n_peers, sizeof *peer);
    int *name = tt_arena_array(x->a, (size_t)n, sizeof *name);
    for (int r = 0; r < n; r++) {
        int32_t c[TT_MAX_ATOMS], whole[TT_MAX_ATOMS] = {0};
        for (int k = 0; k < n_own; k++) {
            const int members = members_of(x, r, x->comms.items[k].atoms, ranks);
            group[r * n_own + k] = k * n + ranks[0];
            size[k * n + ranks[0]] = members;
        }
        const uint16_t over = pp ? (uint16_t)(1u << TT_ATOM(pp->atoms.atom[0])) : 0;
        for (int i = members_of(x, r, over, ranks) - 1; i >= 0; i--)
            peer[r * n_peers + i] = ranks[i];
        tt_mesh_coords(&x->few, r, c);
        for (int i = 0; i < x->few.n_atoms; i++)
            whole[x->atom[i]] = c[i];
        name[r] = tt_mesh_rank(x->g->mesh, whole);
    }
    x->out->n_groups = n * n_own;
    x->out->group_size = size;
    x->out->n_own = n_own;
    x->out->group = group;
    x->out->n_peers = n_peers;
    x->out->peer = peer;
    x->out->name = name;
}

static void describe(const void *user, const tt_message *w, tt_str *out)
{
    const tt_graph *g = user;
    const tt_instr *i = w->what;
    const tt_node *n = i->node;
    char axes[128] = "pp";
    if (n->op == &tt_op_transfer) {
        tt_str_printf(out, "%s of stage %d for stage %d",
                      n->when->region == TT_BACKWARD ? "gradient" : "value",
                      n->in[0]->node->when->stage, n->when->stage);
    } else {
        if (i->step)
            tt_mesh_print_axes(g->mesh, &i->step->atoms, axes, sizeof axes);
        tt_str_printf(out, "%s over %s", i->step ? tt_step_kind_name(i->step->kind) : i->op, axes);
    }
    tt_str_printf(out, " (%%%d in \"%s\")", n->n_out ? n->out[0]->id : n->id, i->scope);
}

tt_status tt_plan_messages(const tt_graph *g, const tt_messages_opts *o, tt_arena *a,
                           tt_messages *out, tt_error *err)
{
    const int n_ranks = o->programs->schedule->n_ranks;
    writer *x = tt_arena_alloc(a, sizeof *x);
    *x = (writer){.g = g, .o = o, .a = a, .out = out};
    x->outlines = o->outlines ? o->outlines : tt_program_outlines(g, o->programs->schedule, a);
    choose_ranks(x);
    x->calls = tt_arena_array(a, (size_t)n_ranks, sizeof *x->calls);
    x->n_calls = tt_arena_array(a, (size_t)n_ranks, sizeof *x->n_calls);
    for (int r = 0; r < n_ranks; r++)
        x->calls[r] = tt_program_calls(&x->outlines[r], o->programs, a, &x->n_calls[r]);
    *out = (tt_messages){.n_ranks = x->few.world, .describe = describe, .user = g};
    out->traces = tt_arena_array(a, (size_t)x->few.world, sizeof *out->traces);
    out->n_parts = tt_arena_array(a, (size_t)x->few.world, sizeof *out->n_parts);
    for (int r = 0; r < x->few.world; r++)
        TT_TRY(write_rank(x, r, err));
    name_groups(x);
    return TT_OK;
}
