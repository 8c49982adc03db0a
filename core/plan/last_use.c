/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/program.h"

/* Finds where values in work memory are read for the last time, so that debug.poison can
 * overwrite them there. Goes from the end of the program to its begin. A value that a later part
 * of the micro-batch reads stays alive. */

typedef struct last_uses {
    tt_program *p;
    tt_arena *a;
    const int *root;    /* by value number: the operand that stands for its memory; -1: none */
    tt_predicate *seen; /* by operand: in which situations its last reader is known */
    const tt_instr **pending; /* by event: the collective that ends with it */
    TT_VEC(int) found;
} last_uses;

/* A value that nobody reads, as a sum of squares on a rank that holds no first replica, is dead as soon as it is there. */
static void look_at_outputs(last_uses *d, const tt_instr *i)
{
    for (int j = 0; j < i->n_out; j++) {
        const int root = d->p->operands[i->out[j]].root;
        if (d->p->operands[root].space == TT_SPACE_WORK && !(d->seen[root] & i->predicate))
            tt_vec_push(d->a, &d->found, root);
        if (j == 0 && i->adds) /* it reads what is there */
            d->seen[root] |= i->adds;
    }
}

/* Marks the operands of i that no instruction reads later. All later instructions have been
 * visited. */
static void look(last_uses *d, const tt_instr *i)
{
    look_at_outputs(d, i);
    for (int j = i->counts < 0 ? 0 : -1; j < i->n_in; j++) {
        const int root = d->p->operands[j < 0 ? i->counts : i->in[j]].root;
        if (d->p->operands[root].space != TT_SPACE_WORK)
            continue;
        const bool last = !(d->seen[root] & i->predicate);
        d->seen[root] |= i->predicate;
        if (last && j != i->in_place) /* an operand whose bytes are taken over stays alive */
            tt_vec_push(d->a, &d->found, root);
    }
}

static void note_last_used(last_uses *d, tt_instr *at)
{
    if (d->found.n)
        at->last_used = tt_arena_dup(d->a, d->found.items, d->found.n * sizeof *d->found.items);
    at->n_last_used = (int16_t)d->found.n;
    d->found.n = 0;
}

/* A collective on a queue of its own reads its operands until its wait; a copy
 * is done at once while memory is poisoned. An operand that a loop reads lives until the loop ends. */
static void look_at_section(last_uses *d, const tt_section *s)
{
    tt_instr *loop_end = NULL;
    for (int k = s->end - 1; k >= s->begin; k--) {
        tt_instr *i = &d->p->instrs[k];
        if (i->kind == TT_INSTR_END_LOOP)
            loop_end = i;
        if (i->kind == TT_INSTR_WAIT && !i->queue && d->pending[i->event])
            look(d, d->pending[i->event]);
        else if ((!i->queue || i->kind == TT_INSTR_COPY) && i->kind != TT_INSTR_LOOP)
            look(d, i);
        if (i->kind == TT_INSTR_LOOP) {
            note_last_used(d, loop_end);
            loop_end = NULL;
        } else if (!loop_end && d->found.n) {
            note_last_used(d, i);
        }
    }
}

void tt_program_find_last_uses(tt_program *p, tt_arena *a)
{
    const tt_instr *last[256] = {NULL}; /* by queue */
    last_uses d = {.p = p, .a = a};
    d.seen = tt_arena_array(a, (size_t)p->n_operands + 1, sizeof *d.seen);
    d.pending = tt_arena_array(a, (size_t)p->n_events + 1, sizeof *d.pending);
    for (int i = 0; i < p->n; i++) {
        const tt_instr *x = &p->instrs[i];
        if (x->kind == TT_INSTR_COLLECTIVE)
            last[x->queue] = x;
        if (x->kind == TT_INSTR_RECORD && x->queue)
            d.pending[x->event] = last[x->queue];
    }
    look_at_section(&d, &p->sections[p->update]);
    look_at_section(&d, &p->sections[p->epilogue]);
    for (int s = p->epilogue - 1; s >= 0; s--)
        if (p->sections[s].kind <= TT_SECTION_W)
            look_at_section(&d, &p->sections[s]);
}
