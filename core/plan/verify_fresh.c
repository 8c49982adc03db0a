/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/owners.h"
#include "plan/plan_impl.h"
#include <stdlib.h>

/* Checks the states that each step writes anew, and what runs only if the step is finite. */

enum { OLD, STORED }; /* owners: the value of the previous step, the value that this step stored */

typedef struct fresh {
    const tt_program *p;
    tt_owners m; /* the state space; TT_OWNER_UNKNOWN: a state that keeps its value between steps */
    bool in_step; /* epilogue and update: stages of one rank may repeat a message */
    bool later_micro, later_chunk;
} fresh;

/* The owner number of the operand's state; -1: each step does not write this state anew, or it
 * is on another rank. */
static int owner_of(const fresh *f, const tt_operand *o, int64_t *bytes)
{
    *bytes = tt_tensor_bytes(&o->tensor);
    if (o->space != TT_SPACE_STATE || !o->here || !*bytes)
        return -1;
    const int owner = tt_owner_at(&f->m, o->offset);
    return owner == TT_OWNER_UNKNOWN ? -1 : owner;
}

static const char *store(fresh *f, const tt_instr *i, int operand)
{
    const tt_operand *o = &f->p->operands[operand];
    const bool adds = tt_predicate_holds(i->adds, f->later_micro, f->later_chunk) ||
                      (i->n_in == 2 && i->in[0] == operand);
    int64_t bytes;
    const int owner = owner_of(f, o, &bytes);
    if (owner < 0)
        return NULL;
    if (adds && !tt_owners_hold(&f->m, o->offset, bytes, STORED))
        return "a sum is added to before it is stored";
    if (!adds && !f->in_step && !tt_owners_hold(&f->m, o->offset, bytes, OLD))
        return "a sum is stored twice";
    return tt_owners_write(&f->m, o->offset, bytes, STORED) ? NULL
                                                            : "a state lies outside its space";
}

static const char *store_all(fresh *f, const tt_instr *i)
{
    const char *bad = NULL;
    if (!tt_predicate_holds(i->predicate, f->later_micro, f->later_chunk))
        return NULL;
    for (int j = 0; !bad && j < i->n_in; j++) {
        const tt_operand *o = &f->p->operands[i->in[j]];
        int64_t bytes;
        const bool sum = i->n_out && i->in[j] == i->out[0];
        if (!sum && owner_of(f, o, &bytes) >= 0 && !tt_owners_hold(&f->m, o->offset, bytes, STORED))
            bad = "a state is read before the step writes it";
    }
    for (int j = 0; !bad && j < i->n_out; j++)
        bad = store(f, i, i->out[j]);
    return bad;
}

/* Does it lie in a buffer that each step may write, such as the loss scale? */
static bool is_of_trainer(const tt_program *p, const tt_operand *o)
{
    for (int i = 0; o->space == TT_SPACE_STATE && i < p->n_params; i++)
        if (p->params[i].of_trainer && p->params[i].offset == o->offset)
            return true;
    return false;
}

/* A section must depend on the state that the graph names, and the step must have written this
 * state before the section begins. A section that depends on none must not write a state that
 * outlives the step: a step whose numbers are not finite must not change parameters, optimizer
 * states and buffers. */
static const char *check_only_if(const fresh *f, const tt_section *s)
{
    const tt_program *p = f->p;
    const tt_state *ok = s->kind == TT_SECTION_UPDATE ? p->graph->ok : NULL;
    if (s->only_if != (ok ? ok->id : -1))
        return "a section does not depend on the state that the graph names";
    if (s->only_if >= 0) {
        const tt_program_state *t = &p->states[s->only_if];
        const int64_t bytes = (int64_t)tt_dtype_size(t->tensor.dtype);
        if (t->tensor.dtype != TT_F32 || t->tensor.n_dims || t->offset < 0 ||
            !tt_owners_hold(&f->m, t->offset, bytes, STORED))
            return "a section depends on a state that the step has not written";
        return NULL;
    }
    for (int k = s->begin; f->in_step && k < s->end; k++)
        for (int j = 0; j < p->instrs[k].n_out; j++) {
            const tt_operand *o = &p->operands[p->instrs[k].out[j]];
            if (o->here && tt_tensor_numel(&o->tensor) && !is_of_trainer(p, o) &&
                (o->space == TT_SPACE_PINNED ||
                 (o->space == TT_SPACE_STATE && tt_owner_at(&f->m, o->offset) == TT_OWNER_UNKNOWN)))
                return "a state that outlives the step is written even if the step is not finite";
        }
    return NULL;
}

static const char *store_section(fresh *f, const tt_section *s, bool later, const tt_instr **where)
{
    int loop = -1;
    f->later_micro = later;
    f->in_step = s->kind >= TT_SECTION_EPILOGUE;
    const char *bad = check_only_if(f, s);
    for (int k = s->begin; !bad && k < s->end; k++) {
        const tt_instr *i = *where = &f->p->instrs[k];
        if (i->kind == TT_INSTR_LOOP) {
            loop = k;
        } else if (i->kind == TT_INSTR_END_LOOP) {
            k = f->later_chunk ? k : loop;
            f->later_chunk = !f->later_chunk;
        } else {
            bad = store_all(f, i);
        }
    }
    return bad;
}

static bool lies_outside(const tt_program *p, const tt_operand *o)
{
    const bool state = o->space == TT_SPACE_STATE || o->space == TT_SPACE_PINNED;
    const int64_t bytes = tt_tensor_bytes(&o->tensor);
    return state && o->here && bytes && (o->offset < 0 || o->offset > p->bytes[o->space] - bytes);
}

/* Runs a step: of each section, the first micro-batch and one later one. */
const char *tt_program_check_fresh(const tt_program *p, const tt_instr **where)
{
    const char *bad = NULL;
    fresh f = {.p = p};
    bool *done = calloc((size_t)p->n_sections * 2, sizeof *done);
    tt_arena *a = tt_arena_new();
    tt_owners_init(&f.m, a, p->bytes[TT_SPACE_STATE]);
    if (!done)
        bad = "no memory to check it";
    for (int i = 0; !bad && i < p->n_operands; i++)
        if (lies_outside(p, &p->operands[i]))
            bad = "a state lies outside its space";
    for (int i = 0; !bad && i < p->n_states; i++)
        if (p->states[i].fresh && p->states[i].offset >= 0 &&
            !tt_owners_write(&f.m, p->states[i].offset, tt_tensor_bytes(&p->states[i].tensor), OLD))
            bad = "a state lies outside its space";
    for (int i = 0; !bad && i < p->n_calls; i++) {
        const tt_call *c = &p->calls[i];
        bool *once = &done[c->section * 2 + !c->first];
        if (!*once)
            bad = store_section(&f, &p->sections[c->section], !c->first, where);
        *once = true;
    }
    if (!bad)
        bad = store_section(&f, &p->sections[p->epilogue], false, where);
    if (!bad)
        bad = store_section(&f, &p->sections[p->update], false, where);
    free(done);
    tt_arena_free(a);
    return bad;
}
