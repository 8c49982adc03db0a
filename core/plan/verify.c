/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/owners.h"
#include "plan/plan_impl.h"
#include <stdlib.h>
#include <string.h>

/* Proves that a program uses memory correctly, by an abstract run. Memory is a map from bytes to
 * the value that wrote them last. A reader must find its own value in every byte that it reads,
 * and a collective on a queue of its own must find all its operands unchanged when it is waited
 * for. The proof does not depend on how the planner chose offsets and events. */

#define SCRATCH (-1) /* of a collective that is not over: SCRATCH_OF(its event) */
#define SCRATCH_OF(event) (-3 - (event))
#define UNFINISHED(o) (INT32_MIN + (o)) /* the output of a collective until its wait */

typedef struct flight { /* a collective on a queue of its own, from its begin to its wait */
    const tt_instr *instr;
    int event; /* 0: no event is recorded after it yet */
    int began; /* the number of those before it */
} flight;

typedef struct checker {
    const tt_program *p;
    int stage;                    /* the stage whose slots are checked; -1: epilogue and update */
    tt_owners space[TT_N_SPACES]; /* of a slot space: the slots of one micro-batch on the stage */
    flight *flights;
    int n_flights, n_began;
    int *recorded;   /* by event of queue 0: 1 + the number of its instructions before it */
    int ran;         /* instructions of queue 0 so far */
    int synced[256]; /* by queue: for how many of these it has waited */
    bool later_micro, later_chunk;
} checker;

typedef struct extent { /* of a value's own memory */
    tt_owners *m;       /* NULL: it is not checked */
    int64_t begin, bytes;
} extent;

static extent extent_of(checker *c, int operand)
{
    const tt_operand *o = &c->p->operands[operand];
    const bool mine = o->slot < 0 || c->p->slots[o->slot].stage == c->stage;
    const bool value = o->space >= TT_SPACE_SLOT || o->space == TT_SPACE_OFFLOADED;
    tt_owners *m = o->here && mine && value ? &c->space[o->space] : NULL;
    return (extent){m, o->offset, o->bytes};
}

static bool overlap(const extent *a, const extent *b)
{
    return a->m && a->m == b->m && a->begin < b->begin + b->bytes && b->begin < a->begin + a->bytes;
}

static const char *write_value(checker *c, int operand, bool unfinished)
{
    const int o = c->p->operands[operand].writer;
    const extent e = extent_of(c, o);
    return !e.m || tt_owners_write(e.m, e.begin, e.bytes, unfinished ? UNFINISHED(o) : o)
               ? NULL
               : "a value lies outside its space";
}

static const char *read_value(checker *c, int operand)
{
    const int o = c->p->operands[operand].writer;
    const extent e = extent_of(c, o);
    if (!c->p->operands[o].here && c->p->operands[o].param < 0)
        return "a value that is read has no place";
    if (!e.m || tt_owners_hold(e.m, e.begin, e.bytes, o))
        return NULL;
    return tt_owner_at(e.m, e.begin) == UNFINISHED(o) ? "a collective is not waited for"
                                                      : "a value is overwritten before it is read";
}

/* ---- states: only their order is checked; a collective has them to itself until its wait ---- */

static bool same_state(const checker *c, const int *a, int n_a, const int *b, int n_b)
{
    for (int i = 0; i < n_a; i++)
        for (int j = 0; j < n_b; j++) {
            const tt_operand *x = &c->p->operands[a[i]], *y = &c->p->operands[b[j]];
            if (x->space == y->space && x->space != TT_SPACE_NONE && x->space <= TT_SPACE_STATE &&
                x->here && y->here && x->offset < y->offset + y->bytes &&
                y->offset < x->offset + x->bytes)
                return true;
        }
    return false;
}

static const char *check_states(const checker *c, const tt_instr *i)
{
    for (int k = 0; k < c->n_flights; k++) {
        const tt_instr *f = c->flights[k].instr;
        if (same_state(c, f->out, f->n_out, i->in, i->n_in) ||
            same_state(c, f->out, f->n_out, i->out, i->n_out) ||
            same_state(c, f->in, f->n_in, i->out, i->n_out))
            return "a collective is not waited for";
    }
    return NULL;
}

/* ---- instructions ---- */

/* Is the operand a piece of the value that a join makes? */
static bool inside(checker *c, const tt_instr *i, int operand)
{
    const extent e = extent_of(c, operand);
    const extent whole = i->n_out ? extent_of(c, i->out[0]) : (extent){0};
    return (i->kind == TT_INSTR_ADOPT || (i->step && i->step->kind == TT_STEP_JOIN)) &&
           overlap(&e, &whole);
}

static const char *read_inputs(checker *c, const tt_instr *i, bool pieces)
{
    const char *bad = i->counts < 0 ? NULL : read_value(c, i->counts);
    for (int j = 0; !bad && j < i->n_in; j++)
        if (j != i->in_place && inside(c, i, i->in[j]) == pieces &&
            (c->p->operands[i->in[j]].here || i->kind != TT_INSTR_STAGE_SUM))
            bad = read_value(c, i->in[j]);
    return bad;
}

/* An output that takes over an operand must have the operand's place and size, and no other
 * operand may lie there. If the operand is a view, the size is that of the viewed value, which
 * the plan rounds up. */
static const char *take_over(checker *c, const tt_instr *i)
{
    const tt_operand *taken = &c->p->operands[i->in[i->in_place]];
    const extent in = extent_of(c, taken->writer), out = extent_of(c, i->out[0]);
    if (i->queue || in.m != out.m || in.begin != out.begin || in.bytes != out.bytes)
        return "an output in place does not lie on its operand";
    for (int j = 0; j < i->n_in; j++) {
        const extent other = extent_of(c, i->in[j]);
        if (j != i->in_place && overlap(&in, &other))
            return "an operand that is overwritten is read twice";
    }
    return read_value(c, i->in[i->in_place]);
}

/* Outputs are written before inputs are checked. So an output that overlaps an input is found,
 * too, except for the input that it takes over. A later chunk finds the values that earlier ones
 * wrote. */
static const char *run_instr(checker *c, const tt_instr *i)
{
    const int64_t at = i->scratch, bytes = tt_plan_round(c->p->graph, i->scratch_bytes);
    const int scratch = i->queue ? SCRATCH_OF(i->id) : SCRATCH;
    const char *bad = check_states(c, i);
    for (int j = 0; !bad && c->later_chunk && j < i->n_out; j++)
        if (!c->p->operands[i->out[j]].chunk_only)
            bad = read_value(c, i->out[j]);
    if (!bad && i->in_place >= 0)
        bad = take_over(c, i);
    if (!bad && at >= 0 && !tt_owners_write(&c->space[TT_SPACE_WORK], at, bytes, scratch))
        return "scratch lies outside its space";
    if (!bad)
        bad = read_inputs(c, i, true);
    for (int j = 0; !bad && j < i->n_out; j++)
        bad = write_value(c, i->out[j], i->queue);
    if (!bad && at >= 0 && !tt_owners_hold(&c->space[TT_SPACE_WORK], at, bytes, scratch))
        return "an output lies on scratch";
    return bad ? bad : read_inputs(c, i, false);
}

/* Ends the collective: its inputs, outputs and scratch must have been left alone since it began. */
static const char *finish(checker *c, const tt_instr *i)
{
    const int64_t at = i->scratch, bytes = tt_plan_round(c->p->graph, i->scratch_bytes);
    const char *bad = NULL;
    if (at >= 0 && !tt_owners_hold(&c->space[TT_SPACE_WORK], at, bytes, SCRATCH_OF(i->id)))
        return "scratch is overwritten by an instruction that runs concurrently";
    for (int j = 0; !bad && j < i->n_in; j++)
        bad = read_value(c, i->in[j]);
    for (int j = 0; !bad && j < i->n_out; j++) {
        const int o = c->p->operands[i->out[j]].writer;
        const extent e = extent_of(c, o);
        if (e.m && !tt_owners_hold(e.m, e.begin, e.bytes, UNFINISHED(o)))
            return "a value is overwritten before it is whole";
        bad = write_value(c, i->out[j], false);
    }
    return bad;
}

static const char *record(checker *c, const tt_instr *i)
{
    if (!i->queue) {
        c->recorded[i->event] = 1 + c->ran;
        return NULL;
    }
    for (int k = c->n_flights - 1; k >= 0; k--) {
        if (c->flights[k].instr->queue != i->queue || c->flights[k].event)
            continue;
        c->flights[k].event = i->event;
        return NULL;
    }
    return "an event is recorded on a queue that has begun no collective";
}

/* Ends a collective; or a copy, and with it those that its queue has done before. */
static const char *finish_all(checker *c, flight last)
{
    const bool copies = c->p->queues[last.instr->queue - 1].copies != 0;
    const char *bad = NULL;
    c->ran++; /* a queue that reads the result waits for queue 0 after this */
    for (int k = 0; !bad && k < c->n_flights;) {
        const flight f = c->flights[k];
        if (f.began != last.began &&
            (!copies || f.instr->queue != last.instr->queue || f.began > last.began)) {
            k++;
            continue;
        }
        c->flights[k] = c->flights[--c->n_flights];
        bad = finish(c, f.instr);
    }
    return bad;
}

static const char *wait(checker *c, const tt_instr *i)
{
    if (i->queue) {
        if (!c->recorded[i->event])
            return "a queue waits for an event that did not happen";
        c->synced[i->queue] = c->recorded[i->event];
        return NULL;
    }
    for (int k = 0; k < c->n_flights; k++)
        if (c->flights[k].event == i->event)
            return finish_all(c, c->flights[k]);
    return "a wait for a collective that was not begun";
}

static const char *step(checker *c, const tt_instr *i)
{
    const char *bad;
    if (!tt_predicate_holds(i->predicate, c->later_micro, c->later_chunk))
        return NULL;
    if (i->kind == TT_INSTR_RECORD)
        return record(c, i);
    if (i->kind == TT_INSTR_WAIT)
        return wait(c, i);
    if (!i->queue) {
        c->ran++;
        return run_instr(c, i);
    }
    if (c->synced[i->queue] != 1 + c->ran)
        return "a collective does not wait for what is computed before it";
    bad = run_instr(c, i);
    c->flights[c->n_flights++] = (flight){i, 0, c->n_began++};
    return bad;
}

/* Runs a section. A loop runs twice: values that it reads from outside must still be there. */
static const char *run_section(checker *c, const tt_section *s, const tt_instr **where)
{
    const char *bad = NULL;
    int loop = -1;
    for (int k = s->begin; !bad && k < s->end; k++) {
        const tt_instr *i = *where = &c->p->instrs[k];
        if (i->kind == TT_INSTR_LOOP) {
            loop = k;
        } else if (i->kind == TT_INSTR_END_LOOP) {
            k = c->later_chunk ? k : loop;
            c->later_chunk = !c->later_chunk;
        } else {
            bad = step(c, i);
        }
    }
    return bad;
}

/* Takes the values that another stage of this rank hands over to this stage's part. */
static const char *take_handed_over(checker *c, tt_section_kind to)
{
    const char *bad = NULL;
    for (int s = 0; s < c->p->n_sections; s++) {
        const tt_section *x = &c->p->sections[s];
        const bool forward = x->kind == TT_SECTION_F;
        if (x->kind > TT_SECTION_W || x->stage == c->stage || forward != (to == TT_SECTION_F))
            continue;
        for (int k = x->begin; !bad && k < x->end; k++)
            if (c->p->instrs[k].kind == TT_INSTR_COPY)
                bad = write_value(c, c->p->instrs[k].out[0], false);
    }
    return bad;
}

/* Runs a stage's sections in the order of a micro-batch. */
static const char *run_stage(checker *c, bool in_slots, const tt_instr **where)
{
    static const tt_section_kind order[] = {TT_SECTION_RECV_F, TT_SECTION_F, TT_SECTION_RECV_B,
                                            TT_SECTION_I, TT_SECTION_W};
    const char *bad = NULL;
    for (size_t k = 0; !bad && k < TT_COUNT(order); k++) {
        if (order[k] == TT_SECTION_RECV_F || order[k] == TT_SECTION_RECV_B)
            bad = take_handed_over(c, order[k + 1]);
        if (!bad)
            bad = run_section(c, tt_program_section(c->p, c->stage, order[k]), where);
        if (!bad && c->n_flights && (in_slots || order[k] == TT_SECTION_I))
            bad = "a collective is under way behind its list";
        if (in_slots && order[k] <= TT_SECTION_W) /* others use it between the parts */
            tt_owners_forget(&c->space[TT_SPACE_WORK]);
    }
    return bad;
}

static int64_t slot_bytes(const tt_program *p, int stage, tt_space space)
{
    for (int i = 0; i < p->n_slots; i++)
        if (p->slots[i].stage == stage && p->slots[i].space == space)
            return p->slots[i].bytes;
    return 0;
}

static const char *with_memory(const tt_program *p, int stage, bool later, const tt_instr **where)
{
    checker c = {.p = p,
                 .stage = stage,
                 .later_micro = later,
                 .flights = malloc(((size_t)p->n + 1) * sizeof *c.flights),
                 .recorded = calloc((size_t)p->n_events + 1, sizeof *c.recorded)};
    const char *bad = c.flights && c.recorded ? NULL : "no memory to check it";
    tt_arena *a = tt_arena_new();
    for (tt_space sp = TT_SPACE_OFFLOADED; sp <= TT_SPACE_WORK; sp++) {
        const bool whole = sp == TT_SPACE_WORK || (sp == TT_SPACE_OFFLOADED && !p->n_slots);
        tt_owners_init(&c.space[sp], a, whole ? p->bytes[sp] : slot_bytes(p, stage, sp));
    }
    if (!bad && stage >= 0)
        bad = run_stage(&c, p->n_slots > 0, where);
    if (!bad && stage < 0)
        bad = run_section(&c, &p->sections[p->epilogue], where);
    if (!bad && stage < 0)
        bad = run_section(&c, &p->sections[p->update], where);
    if (!bad && c.n_flights)
        bad = "a collective is under way behind its list";
    free(c.flights);
    free(c.recorded);
    tt_arena_free(a);
    return bad;
}

tt_status tt_program_verify(const tt_program *p, tt_error *err)
{
    const tt_instr *where = NULL;
    const char *bad = tt_program_check_slots(p);
    for (int s = 0; !bad && s < p->epilogue; s++)
        for (int later = 0; !bad && p->sections[s].kind == TT_SECTION_F && later < 2; later++)
            bad = with_memory(p, p->sections[s].stage, later, &where);
    if (!bad)
        bad = with_memory(p, -1, false, &where);
    if (!bad)
        bad = tt_program_check_forms(p, &where);
    if (!bad)
        bad = tt_program_check_fresh(p, &where);
    if (!bad)
        return TT_OK;
    return TT_FAIL(err, TT_EINTERNAL, "memory plan: %s, at %s in \"%s\"", bad,
                   where ? where->op : "the schedule", where ? where->scope : "");
}
