/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_PLAN_JUDGE_H
#define TT_TESTS_PLAN_JUDGE_H
#include "plan/program.h"
#include <string.h>

/* A second, naive judge of programs beside tt_program_verify. It runs a whole step's instructions in the
 * order in which they are issued and knows of each what must have happened before it: what stands before it
 * on its queue, and what a RECORD and a WAIT put before it (program.h). Two instructions, neither of
 * which happens before the other, must not share a byte that one of them writes. Nothing may be under way when
 * the step is over. */

enum { JUDGE_QUEUES = 32, JUDGE_TEXT = 400 };

typedef struct judged { /* an instruction that a queue has run */
    const tt_instr *instr;
    int micro;
} judged;

typedef struct judge {
    const tt_program *p;
    tt_arena *a;
    TT_VEC(judged) ran[JUDGE_QUEUES];
    int before[JUDGE_QUEUES]
              [JUDGE_QUEUES];   /* [q][r]: so many of r's instructions happen before q's next */
    int (*event)[JUDGE_QUEUES]; /* the same, of what waits for it */
    int micro;
    bool later_micro, later_chunk;
    int n_beside; /* pairs under way at once that have been compared */
    char why[JUDGE_TEXT];
} judge;

typedef struct judge_bytes {
    int space;
    int64_t begin, end;
} judge_bytes;

static inline judge_bytes judge_operand(const tt_program *p, int operand, int micro)
{
    const tt_operand *o = &p->operands[operand];
    if (!o->here || o->space == TT_SPACE_NONE)
        return (judge_bytes){0};
    int64_t at = o->offset;
    if (o->slot >= 0 && micro >= 0)
        at += p->slots[o->slot].base + p->slots[o->slot].bytes * p->slots[o->slot].slot[micro];
    return (judge_bytes){o->space, at, at + o->bytes};
}

/* The k-th range that the instruction reads or writes; space < 0: there are no more. */
static inline judge_bytes judge_touched(const tt_program *p, const judged *x, int k, bool *writes)
{
    const tt_instr *i = x->instr;
    *writes = k < i->n_out;
    if (k < i->n_out)
        return judge_operand(p, i->out[k], x->micro);
    if ((k -= i->n_out) < i->n_in)
        return judge_operand(p, i->in[k], x->micro);
    if ((k -= i->n_in) == 0)
        return i->counts < 0 ? (judge_bytes){0} : judge_operand(p, i->counts, x->micro);
    *writes = true;
    if (k == 1)
        return i->scratch < 0
                   ? (judge_bytes){0}
                   : (judge_bytes){TT_SPACE_WORK, i->scratch, i->scratch + i->scratch_bytes};
    return (judge_bytes){.space = -1};
}

static inline bool judge_conflict(const tt_program *p, const judged *x, const judged *y)
{
    judge_bytes a, b;
    bool a_writes, b_writes;
    for (int i = 0; (a = judge_touched(p, x, i, &a_writes)).space >= 0; i++)
        for (int j = 0; (b = judge_touched(p, y, j, &b_writes)).space >= 0; j++)
            if ((a_writes || b_writes) && a.space == b.space && a.begin < b.end && b.begin < a.end)
                return true;
    return false;
}

static inline void judge_run(judge *g, const tt_instr *i)
{
    const judged x = {i, g->micro};
    const int q = i->queue;
    for (int r = 0; r <= g->p->n_queues; r++)
        for (int k = (int)g->ran[r].n; r != q && k-- > g->before[q][r];) {
            const judged *y = &g->ran[r].items[k];
            g->n_beside++;
            if (!*g->why && judge_conflict(g->p, &x, y))
                snprintf(g->why, sizeof g->why,
                         "%s %d in \"%s\" (queue %d, micro-batch %d) may run beside %s %d in "
                         "\"%s\" (queue %d, micro-batch %d)",
                         i->op, i->id, i->scope, q, x.micro, y->instr->op, y->instr->id,
                         y->instr->scope, r, y->micro);
        }
    tt_vec_push(g->a, &g->ran[q], x);
    g->before[q][q] = (int)g->ran[q].n;
}

static inline void judge_instr(judge *g, const tt_instr *i)
{
    int *own = g->before[i->queue], *event = g->event[i->event];
    if (!tt_predicate_holds(i->predicate, g->later_micro, g->later_chunk))
        return;
    if (i->kind == TT_INSTR_RECORD)
        memcpy(event, own, sizeof *g->event);
    else if (i->kind == TT_INSTR_WAIT)
        for (int r = 0; r <= g->p->n_queues; r++)
            own[r] = TT_MAXV(own[r], event[r]);
    else
        judge_run(g, i);
}

/* A loop runs twice. */
static inline void judge_section(judge *g, const tt_section *s)
{
    int loop = -1;
    g->later_chunk = false;
    for (int k = s->begin; k < s->end; k++) {
        const tt_instr *i = &g->p->instrs[k];
        if (i->kind == TT_INSTR_LOOP) {
            loop = k;
        } else if (i->kind == TT_INSTR_END_LOOP) {
            k = g->later_chunk ? k : loop;
            g->later_chunk = !g->later_chunk;
        } else {
            judge_instr(g, i);
        }
    }
}

/* Runs a step; `why` says what is wrong, if anything is. Returns how many pairs were under way at once. */
static inline int judge_program(const tt_program *p, char why[JUDGE_TEXT])
{
    tt_arena *a = tt_arena_new();
    judge *g = tt_arena_alloc(a, sizeof *g);
    *g = (judge){.p = p, .a = a, .micro = -1};
    TT_ASSERT(p->n_queues < JUDGE_QUEUES);
    g->event = tt_arena_array(a, (size_t)p->n_events + 1, sizeof *g->event);
    for (int c = 0; c < p->n_calls; c++) {
        g->micro = p->calls[c].micro;
        g->later_micro = !p->calls[c].first;
        judge_section(g, &p->sections[p->calls[c].section]);
    }
    g->micro = -1;
    g->later_micro = false;
    judge_section(g, &p->sections[p->epilogue]);
    judge_section(g, &p->sections[p->update]);
    for (int r = 1; r <= p->n_queues; r++)
        if (!*g->why && (size_t)g->before[0][r] < g->ran[r].n)
            snprintf(g->why, sizeof g->why, "%s in \"%s\" is under way when the step is over",
                     g->ran[r].items[g->ran[r].n - 1].instr->op,
                     g->ran[r].items[g->ran[r].n - 1].instr->scope);
    memcpy(why, g->why, sizeof g->why);
    const int n = g->n_beside;
    tt_arena_free(a);
    return n;
}

#endif
