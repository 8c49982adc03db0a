/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan_impl.h"
#include <string.h>

/* What all ranks of a mesh say to each other in a step, from the lists that their programs are
 * bound from: in the order in which core/exec runs them, by the same communicators. */

typedef struct comm { /* of a group, as all ranks know it */
    uint16_t atoms;
    bool beside;
    int begun; /* by the rank that is written, in these strips */
} comm;

typedef struct code { /* strips of the ranks of a pipeline coordinate whose loops turn as often */
    int pp;
    uint64_t turns;
    const tt_plan *plan;
    tt_strip *part; /* [stage of the plan][TT_N_PARTS][first micro-batch, others] */
    tt_strip *recv; /* [stage of the plan][forward, backward] */
    tt_strip epilogue, update;
} code;

typedef struct writer {
    const tt_graph *g;
    const tt_wires_opts *o;
    tt_arena *a;
    tt_mesh few;   /* the ranks that stand for all: those of some atoms */
    uint16_t kept; /* which */
    int atom[TT_MAX_ATOMS], of[TT_MAX_ATOMS]; /* of few in the mesh; the other way, -1 = not kept */
    const tt_plan *lists;                     /* by pipeline coordinate */
    TT_VEC(comm) comms;
    TT_VEC(code *) codes;
    TT_VEC(const tt_node *) transfers; /* of micro-batches */
    int *under_way; /* by node id: 1 + how many of its group were begun before it */
    int n_under_way;
    int32_t coords[TT_MAX_ATOMS]; /* of the rank that is written, in the mesh */
    code *now;
    TT_VEC(tt_wire) strip;
    tt_wires *out;
} writer;

static void choose_ranks(writer *x)
{
    const tt_mesh *m = x->g->mesh;
    const tt_axis *pp = tt_mesh_axis(m, "pp");
    uint16_t keep = x->o->all ? UINT16_MAX : tt_loop_atoms(x->g);
    if (pp)
        keep |= (uint16_t)(1u << TT_ATOM(pp->atoms.atom[0]));
    x->kept = keep;
    x->few = (tt_mesh){.world = 1};
    for (int i = 0; i < m->n_atoms; i++) {
        x->of[i] = keep >> i & 1 ? x->few.n_atoms : -1;
        if (x->of[i] < 0)
            continue;
        x->atom[x->few.n_atoms] = i;
        x->few.atom_size[x->few.n_atoms++] = m->atom_size[i];
        x->few.world *= m->atom_size[i];
    }
}

/* ---- one list ---- */

static int comm_of(writer *x, const tt_atom_list *atoms, bool beside)
{
    comm c = {.beside = beside};
    for (int i = 0; i < atoms->n; i++)
        c.atoms |= (uint16_t)(1u << TT_ATOM(atoms->atom[i]));
    for (size_t i = 0; i < x->comms.n; i++)
        if (x->comms.items[i].atoms == c.atoms && x->comms.items[i].beside == beside)
            return (int)i;
    tt_vec_push(x->a, &x->comms, c);
    return (int)x->comms.n - 1;
}

/* A collective among ranks of which one stands for all is met when that one comes. */
static void put(writer *x, tt_wire_kind kind, int to, int64_t tag, int back, const tt_node *n)
{
    if (kind >= TT_WIRE_MEET && !(x->comms.items[to].atoms & x->kept))
        return;
    const tt_wire w = {kind, to, tag, back, n};
    tt_vec_push(x->a, &x->strip, w);
}

/* One of a stage's ends of a transfer in the step's regions. */
static void put_transfer(writer *x, const tt_node *t)
{
    const tt_plan *p = x->now->plan;
    const bool gives = tt_plan_here(p, t->in[0]->node->stage), takes = tt_plan_here(p, t->stage);
    const int *rank = p->schedule->stage_rank;
    if (gives != takes)
        put(x, gives ? TT_WIRE_SEND : TT_WIRE_RECV, rank[gives ? t->stage : t->in[0]->node->stage],
            t->id, 0, t);
}

/* A sum over stages is made once for all of a rank's, and on every rank by a node of its own: what
 * it adds tells which it is. */
static void put_stage_sum(writer *x, const tt_nodes *l, int at)
{
    const tt_node *n = l->items[at];
    int64_t tag = 0;
    for (int i = 0; i < at; i++) {
        const tt_node *o = l->items[i];
        if (o->op == &tt_op_stage_sum && o->n_in == n->n_in &&
            !memcmp(o->in, n->in, sizeof *n->in * (size_t)n->n_in))
            return;
    }
    for (int j = 0; j < n->n_in; j++)
        tag = (int64_t)tt_hash64(&n->in[j]->id, sizeof n->in[j]->id, (uint64_t)tag);
    put(x, TT_WIRE_MEET, comm_of(x, &tt_mesh_axis(x->g->mesh, "pp")->atoms, false), tag | INT64_MIN,
        0, n);
}

static void put_node(writer *x, const tt_nodes *l, int i)
{
    const tt_node *n = l->items[i];
    if (n->op == &tt_op_transfer && n->region > TT_BACKWARD)
        put_transfer(x, n);
    if (n->op == &tt_op_stage_sum)
        put_stage_sum(x, l, i);
    if (!n->step || !tt_plan_communicates(n))
        return;
    const bool beside = n->async && x->o->beside == TT_BESIDE_QUEUES;
    const int c = comm_of(x, &n->step->atoms, beside);
    if (n->async && x->o->beside != TT_BESIDE_BEGIN)
        x->under_way[n->id] = 1 + x->comms.items[c].begun++, x->n_under_way++;
    if (!n->async || x->o->beside != TT_BESIDE_WAIT)
        put(x, beside ? TT_WIRE_BEGIN : TT_WIRE_MEET, c, n->id, 0, n);
}

static void put_waits(writer *x, const tt_nodes *l, int before)
{
    for (int k = 0; k < l->n_waits; k++) {
        const tt_node *n = l->waits[k].node;
        if (l->waits[k].before != before || !x->under_way[n->id])
            continue;
        const bool beside = x->o->beside == TT_BESIDE_QUEUES;
        const int c = comm_of(x, &n->step->atoms, beside);
        put(x, beside ? TT_WIRE_WAIT : TT_WIRE_MEET, c, n->id,
            x->comms.items[c].begun - x->under_way[n->id], n);
        x->under_way[n->id] = 0;
        x->n_under_way--;
    }
}

static void put_list(writer *x, const tt_nodes *l, bool first)
{
    for (int i = 0; i < l->n; i++) {
        const int end = tt_loop_end(l, i);
        const int64_t turns = end > i ? tt_loop_turns(x->g, l, i, end, x->coords) : 1;
        for (int64_t t = 0; t < TT_MAXV(turns, 1); t++)
            for (int k = i; k < TT_MAXV(end, i + 1); k++) {
                if (t == 0)
                    put_waits(x, l, k);
                if (turns && (first || !l->items[k]->once))
                    put_node(x, l, k);
            }
        i = TT_MAXV(end, i + 1) - 1;
    }
    put_waits(x, l, l->n);
}

static tt_strip cut_strip(writer *x)
{
    const tt_strip s = {.items =
                            tt_arena_dup(x->a, x->strip.items, x->strip.n * sizeof *x->strip.items),
                        .n = (int)x->strip.n};
    x->strip.n = 0;
    return s;
}

/* ---- the strips of a rank ---- */

/* What a part sends when it is done, or a stage receives where its program says: in node order. */
static void put_messages(writer *x, int stage, int part, int region)
{
    const tt_plan *p = x->now->plan;
    const int *rank = p->schedule->stage_rank;
    for (size_t i = 0; i < x->transfers.n; i++) {
        const tt_node *t = x->transfers.items[i];
        const int from = t->in[0]->node->stage;
        if (part >= 0 && from == stage && (int)tt_node_part(t) == part &&
            !tt_plan_here(p, t->stage))
            put(x, TT_WIRE_SEND, rank[t->stage], t->id, 0, t);
        if (part < 0 && t->stage == stage && (int)t->region == region && !tt_plan_here(p, from))
            put(x, TT_WIRE_RECV, rank[from], t->id, 0, t);
    }
}

static tt_status all_waited(const writer *x, tt_error *err)
{
    for (size_t i = 0; x->n_under_way && i < x->g->nodes.n; i++)
        if (x->under_way[x->g->nodes.items[i]->id])
            return TT_FAIL(err, TT_EINTERNAL, "%s in \"%s\" is begun and never waited for",
                           tt_step_kind_name(x->g->nodes.items[i]->step->kind),
                           x->g->nodes.items[i]->scope);
    return TT_OK;
}

static tt_status write_code(writer *x, tt_error *err)
{
    code *c = x->now;
    const tt_plan *p = c->plan;
    c->part = tt_arena_array(x->a, (size_t)p->n_stages * TT_N_PARTS * 2, sizeof *c->part);
    c->recv = tt_arena_array(x->a, (size_t)p->n_stages * 2, sizeof *c->recv);
    for (int s = 0; s < p->n_stages; s++) {
        for (int other = 0; other < 2; other++) {
            for (int k = 0; k < TT_N_PARTS; k++) {
                put_list(x, &p->stages[s].part[k], !other);
                put_messages(x, p->stages[s].stage, k, -1);
                c->part[(s * TT_N_PARTS + k) * 2 + other] = cut_strip(x);
            }
            TT_TRY(all_waited(x, err));
        }
        for (int r = TT_FORWARD; r <= TT_BACKWARD; r++) {
            put_messages(x, p->stages[s].stage, -1, r);
            c->recv[s * 2 + (r == TT_BACKWARD)] = cut_strip(x);
        }
    }
    put_list(x, &p->epilogue, true);
    c->epilogue = cut_strip(x);
    put_list(x, &p->update, true);
    c->update = cut_strip(x);
    return all_waited(x, err);
}

static uint64_t list_turns(const writer *x, const tt_nodes *l, uint64_t h)
{
    for (int i = 0, end; i < l->n; i = TT_MAXV(end, i + 1)) {
        end = tt_loop_end(l, i);
        const int64_t turns = end > i ? tt_loop_turns(x->g, l, i, end, x->coords) : 0;
        if (turns)
            h = tt_hash64(&turns, sizeof turns, h);
    }
    return h;
}

/* Of a rank at x->coords: made when the first of its kind comes. */
static tt_status find_code(writer *x, int pp, tt_error *err)
{
    code c = {.pp = pp, .plan = &x->lists[pp]};
    for (int s = 0; s < c.plan->n_stages; s++)
        for (int k = 0; k < TT_N_PARTS; k++)
            c.turns = list_turns(x, &c.plan->stages[s].part[k], c.turns);
    for (size_t i = 0; i < x->codes.n; i++)
        if (x->codes.items[i]->pp == pp && x->codes.items[i]->turns == c.turns) {
            x->now = x->codes.items[i];
            return TT_OK;
        }
    x->now = tt_arena_dup(x->a, &c, sizeof c);
    tt_vec_push(x->a, &x->codes, x->now);
    return write_code(x, err);
}

typedef struct strips {
    TT_VEC(tt_strip) of;
} strips;

static void add_strip(writer *x, strips *to, const tt_strip *s, int64_t micro)
{
    tt_strip own = *s;
    own.micro = micro;
    if (own.n)
        tt_vec_push(x->a, &to->of, own);
}

static void add_item(writer *x, strips *to, const tt_item *i)
{
    const tt_action *a = &i->action;
    const tt_plan *p = x->now->plan;
    const bool forward = a->kind == TT_ACTION_F;
    const int at = i->kind == TT_ITEM_RECV ? a->stage + (forward ? 1 : -1) : a->stage;
    const tt_stage_plan *s = tt_plan_stage(p, at);
    if (!s || (i->kind != TT_ITEM_RUN && i->kind != TT_ITEM_RECV)) /* a part sends by itself */
        return;
    const int k = (int)(s - p->stages);
    if (i->kind == TT_ITEM_RECV) {
        add_strip(x, to, &x->now->recv[k * 2 + !forward], a->micro);
        return;
    }
    for (int part = TT_PART_F; part < TT_N_PARTS; part++) {
        const bool runs = part == TT_PART_F   ? forward
                          : part == TT_PART_I ? a->kind == TT_ACTION_B || a->kind == TT_ACTION_I
                                              : a->kind == TT_ACTION_B || a->kind == TT_ACTION_W;
        const bool other = a->micro != s->first[!forward];
        if (runs)
            add_strip(x, to, &x->now->part[(k * TT_N_PARTS + part) * 2 + other], a->micro);
    }
}

static tt_status write_rank(writer *x, int r, tt_error *err)
{
    const tt_programs *p = x->o->programs;
    const tt_axis *pp = tt_mesh_axis(x->g->mesh, "pp");
    int32_t c[TT_MAX_ATOMS];
    strips all = {0};
    tt_mesh_coords(&x->few, r, c);
    memset(x->coords, 0, sizeof x->coords);
    for (int i = 0; i < x->few.n_atoms; i++)
        x->coords[x->atom[i]] = c[i];
    const int at = pp ? x->coords[TT_ATOM(pp->atoms.atom[0])] : 0;
    TT_TRY(find_code(x, at, err));
    for (int i = 0; i < p->n_items[at]; i++)
        add_item(x, &all, &p->items[at][i]);
    add_strip(x, &all, &x->now->epilogue, 0);
    add_strip(x, &all, &x->now->update, 0);
    x->out->strips[r] = all.of.items;
    x->out->n_strips[r] = (int)all.of.n;
    return TT_OK;
}

/* ---- who is who ---- */

/* The ranks of few that differ from r only in these atoms of the mesh; returns how many. */
static int members_of(const writer *x, int r, uint16_t atoms, int *ranks)
{
    tt_atom_list l = {0};
    for (int i = 0; i < x->few.n_atoms; i++)
        if (atoms >> x->atom[i] & 1)
            l.atom[l.n++] = (uint16_t)i;
    return tt_mesh_group(&x->few, r, &l, ranks);
}

/* A group is its communicator and its first member. */
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

static void describe(const void *user, const tt_wire *w, tt_str *out)
{
    const tt_graph *g = user;
    const tt_node *n = w->what;
    char axes[128] = "pp";
    if (n->op == &tt_op_transfer) {
        tt_str_printf(out, "%s of stage %d for stage %d",
                      n->region == TT_BACKWARD ? "gradient" : "value", n->in[0]->node->stage,
                      n->stage);
    } else {
        if (n->step)
            tt_mesh_print_axes(g->mesh, &n->step->atoms, axes, sizeof axes);
        tt_str_printf(out, "%s over %s", n->step ? tt_step_kind_name(n->step->kind) : n->op->name,
                      axes);
    }
    tt_str_printf(out, " (%%%d in \"%s\")", n->n_out ? n->out[0]->id : n->id,
                  n->scope ? n->scope : "");
}

tt_status tt_plan_wires(const tt_graph *g, const tt_wires_opts *o, tt_arena *a, tt_wires *out,
                        tt_error *err)
{
    writer x = {.g = g, .o = o, .a = a, .out = out};
    choose_ranks(&x);
    x.lists = o->lists ? o->lists : tt_plan_all_lists(g, o->programs->schedule, a);
    for (size_t i = 0; i < g->nodes.n; i++)
        if (g->nodes.items[i]->op == &tt_op_transfer && g->nodes.items[i]->region <= TT_BACKWARD)
            tt_vec_push(a, &x.transfers, g->nodes.items[i]);
    *out = (tt_wires){.n_ranks = x.few.world, .describe = describe, .user = g};
    out->strips = tt_arena_array(a, (size_t)x.few.world, sizeof *out->strips);
    out->n_strips = tt_arena_array(a, (size_t)x.few.world, sizeof *out->n_strips);
    x.under_way = tt_arena_array(a, (size_t)g->n_ids + 1, sizeof *x.under_way);
    for (int r = 0; r < x.few.world; r++)
        TT_TRY(write_rank(&x, r, err));
    name_groups(&x);
    return TT_OK;
}
