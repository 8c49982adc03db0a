/* SPDX-License-Identifier: Apache-2.0 */
#include "report/report.h"
#include <string.h>

/* The live bytes of each class while each instruction of a step runs: lifetimes in the program, in
 * the order in which its schedule runs the sections. Activations are the forward values that a
 * backward reads; everything else in work memory, including the kernels' scratch, is workspace. */

#define MOST_POINTS 4000 /* per step; of a longer step the highest point of every few is kept */

typedef struct life {
    int first, last; /* its first and last instruction on the timeline */
    int first_section, last_section;
    bool known;
    bool taken; /* its last reader writes its output over it */
} life;

typedef struct timeline { /* of consecutive sections: F, I, W; or epilogue, update */
    const tt_program *p;
    tt_memory_point *points;
    int n;
    int begin[TT_N_PARTS + 1];
    double carried[TT_N_PARTS]; /* activations that outlive each section */
    life *lives;                /* by operand */
    double *scratch;
} timeline;

static void touch(timeline *l, int operand, int at, int section)
{
    const int root = l->p->operands[operand].root;
    const tt_operand *o = &l->p->operands[root];
    life *e = &l->lives[root];
    if (!o->here || (o->space != TT_SPACE_WORK && !tt_space_holds((tt_space)o->space)))
        return;
    if (!e->known)
        *e = (life){at, at, section, section, true, false};
    e->first = TT_MIN(e->first, at);
    e->last = TT_MAXV(e->last, at);
    e->first_section = TT_MIN(e->first_section, section);
    e->last_section = TT_MAXV(e->last_section, section);
}

/* Records that an instruction uses its operands at a time. What a loop reads or writes as a whole
 * lives during all of the loop. */
static void touch_instr(timeline *l, const tt_instr *i, int at, const int loop[2], int section)
{
    const tt_operand *o = l->p->operands;
    for (int j = 0; j < i->n_in; j++)
        touch(l, i->in[j], loop && !o[i->in[j]].chunk_only ? loop[1] : at, section);
    if (i->in_place >= 0)
        l->lives[o[i->in[i->in_place]].root].taken = true;
    for (int j = 0; j < i->n_out; j++) {
        touch(l, i->out[j], i->kind == TT_INSTR_INPUT ? l->begin[section] : at, section);
        if (!loop || o[i->out[j]].chunk_only)
            continue;
        touch(l, i->out[j], loop[0], section);
        touch(l, i->out[j], loop[1], section);
    }
    l->scratch[at] = (double)i->scratch_bytes;
}

static bool has_operands(const tt_instr *i)
{
    return i->kind != TT_INSTR_LOOP && (i->n_in || i->n_out);
}

/* Values that a section receives are in memory from its beginning. */
static void walk_section(timeline *l, const tt_section *s, int section)
{
    const tt_program *p = l->p;
    int loop[2];
    bool in_loop = false;
    const tt_section *recv =
        s->kind == TT_SECTION_F || s->kind == TT_SECTION_I
            ? tt_program_section(p, s->stage,
                                 s->kind == TT_SECTION_F ? TT_SECTION_RECV_F : TT_SECTION_RECV_B)
            : NULL;
    l->begin[section] = l->n;
    for (int k = recv ? recv->begin : 0; recv && k < recv->end; k++)
        touch(l, p->instrs[k].out[0], l->n, section);
    for (int k = s->begin; k < s->end; k++) {
        const tt_instr *i = &p->instrs[k];
        if (i->kind == TT_INSTR_LOOP) {
            in_loop = true;
            loop[0] = loop[1] = l->n;
            for (int e = k + 1; e < i->end; e++)
                loop[1] += has_operands(&p->instrs[e]);
            loop[1]--;
        }
        in_loop = in_loop && i->kind != TT_INSTR_END_LOOP;
        if (has_operands(i))
            touch_instr(l, i, l->n++, in_loop ? loop : NULL, section);
    }
    l->begin[section + 1] = l->n;
}

/* Adds the bytes of one value. micro: the sections belong to micro-batches, so a value that a later
 * section reads is an activation. */
static void add_life(timeline *l, const life *e, double bytes, bool micro)
{
    const int end = e->taken ? e->last : e->last + 1;
    const bool kept = micro && e->last_section > e->first_section;
    if (kept) {
        l->points[e->first].activations += bytes;
        l->points[end].activations -= bytes;
    } else {
        l->points[e->first].workspace += bytes;
        l->points[end].workspace -= bytes;
    }
    for (int k = e->first_section; kept && k < e->last_section; k++)
        l->carried[k] += bytes;
}

static timeline make_line(const tt_program *p, tt_arena *a, const tt_section *const *sections,
                          int n_sections, bool micro)
{
    int most = 2;
    for (int k = 0; k < n_sections; k++)
        most += sections[k]->end - sections[k]->begin;
    timeline l = {.p = p,
                  .points = tt_arena_array(a, (size_t)most, sizeof *l.points),
                  .lives = tt_arena_array(a, (size_t)p->n_operands + 1, sizeof *l.lives),
                  .scratch = tt_arena_array(a, (size_t)most, sizeof *l.scratch)};
    for (int k = 0; k < n_sections; k++)
        walk_section(&l, sections[k], k);
    for (int o = 0; o < p->n_operands; o++)
        if (l.lives[o].known)
            add_life(&l, &l.lives[o], (double)p->operands[o].bytes, micro);
    for (int i = 1; i < l.n; i++) {
        l.points[i].activations += l.points[i - 1].activations;
        l.points[i].workspace += l.points[i - 1].workspace;
    }
    for (int i = 0; i < l.n; i++)
        l.points[i].workspace += l.scratch[i];
    return l;
}

typedef struct line {
    tt_memory_line *m;
    size_t n,
        every; /* instructions so far; one point per `every` instructions is kept, the highest */
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

/* Adds the schedule's calls in order. A micro-batch in flight holds its whole slot. */
static void add_calls(line *o, const tt_program *p, timeline *const *lines)
{
    double held = 0; /* activations that micro-batches hold between their sections */
    for (int i = 0; i < p->n_calls; i++) {
        const tt_section *s = &p->sections[p->calls[i].section];
        const timeline *l = lines[p->calls[i].section];
        if (!l)
            continue;
        const int k = (int)s->kind;
        if (k > 0)
            held = TT_MAXV(held - l->carried[k - 1], 0.0);
        add_points(o, l->points + l->begin[k], l->begin[k + 1] - l->begin[k], held,
                   tt_section_phase(s->kind));
        held += l->carried[k];
    }
}

/* Makes one timeline per stage; each section of the stage refers to it. */
static timeline **stage_lines(const tt_program *p, tt_arena *a)
{
    timeline **of = tt_arena_array(a, (size_t)p->n_sections + 1, sizeof *of);
    for (int s = 0; s < p->n_sections; s++) {
        if (p->sections[s].kind != TT_SECTION_F)
            continue;
        const tt_section *const parts[] = {&p->sections[s], &p->sections[s + 1],
                                           &p->sections[s + 2]};
        const timeline l = make_line(p, a, parts, TT_N_PARTS, true);
        of[s] = of[s + 1] = of[s + 2] = tt_arena_dup(a, &l, sizeof l);
    }
    return of;
}

tt_memory_line *tt_report_memory(const tt_plan *plan, tt_arena *a)
{
    const tt_program *p = plan->program;
    const int64_t *kinds = plan->state_bytes_by_kind;
    tt_memory_line *m = tt_arena_alloc(a, sizeof *m);
    timeline *const *lines = stage_lines(p, a);
    const tt_section *const step[] = {&p->sections[p->epilogue], &p->sections[p->update]};
    const timeline once = make_line(p, a, step, 2, false);
    size_t total = 1 + (size_t)once.n;
    for (int i = 0; i < p->n_calls; i++) {
        const timeline *l = lines[p->calls[i].section];
        const int k = (int)p->sections[p->calls[i].section].kind;
        total += l ? (size_t)(l->begin[k + 1] - l->begin[k]) : 0;
    }
    line o = {m, 0, (total - 1) / MOST_POINTS + 1};
    m->points = tt_arena_array(a, total / o.every + 2, sizeof *m->points);
    add_calls(&o, p, lines);
    add_points(&o, once.points, once.begin[1], 0, "epilogue");
    add_points(&o, once.points + once.begin[1], once.n - once.begin[1], 0, "optimizer");
    /* parameters as they are stored, and gathered copies */
    m->params = (double)(kinds[TT_STATE_PARAM] + kinds[TT_STATE_GATHERED]);
    m->optimizer = (double)kinds[TT_STATE_OPTIMIZER];
    m->gradients = (double)kinds[TT_STATE_ACCUMULATOR];
    m->other = (double)(kinds[TT_STATE_METRIC] + kinds[TT_STATE_SCALAR]);
    for (int k = TT_SPACE_STATE; k < TT_N_SPACES; k++)
        m->planned += (double)p->bytes[k];
    return m;
}
