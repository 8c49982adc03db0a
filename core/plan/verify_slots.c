/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan_impl.h"
#include <string.h>

/* Checks a program's schedule against its slots: a writer must find its micro-batch's slot free
 * or its own, and a reader must find its own micro-batch there. */

enum { WRITES = 1, READS = 2 };

typedef struct holder {
    const tt_program *p;
    int **held;    /* by slot rule and slot: the micro-batch in it, -1 = none */
    uint8_t *uses; /* by section and slot rule */
    const char *bad;
} holder;

static void note(holder *h, int section, const int *operands, int n, uint8_t use)
{
    for (int j = 0; j < n; j++) {
        const int slot = h->p->operands[operands[j]].slot;
        if (slot >= 0)
            h->uses[section * h->p->n_slots + slot] |= use;
    }
}

static void find_uses(holder *h)
{
    for (int s = 0; s < h->p->n_sections; s++)
        for (int i = h->p->sections[s].begin; i < h->p->sections[s].end; i++) {
            note(h, s, h->p->instrs[i].out, h->p->instrs[i].n_out, WRITES);
            note(h, s, h->p->instrs[i].in, h->p->instrs[i].n_in, READS);
        }
}

static void use(holder *h, const tt_call *c, int rule)
{
    const tt_slot_rule *r = &h->p->slots[rule];
    const uint8_t how = h->uses[c->section * h->p->n_slots + rule];
    const int k = r->slot[c->micro];
    if (!how)
        return;
    if (k < 0 || k >= r->n) {
        h->bad = "a stage has no such slot";
        return;
    }
    int *at = &h->held[rule][k];
    if (how & WRITES && *at >= 0 && *at != c->micro)
        h->bad = "a slot is reused before its last reader";
    else if (!(how & WRITES) && *at != c->micro)
        h->bad = "a slot holds another micro-batch than its reader's";
    *at = c->micro;
}

static void release(holder *h, const tt_call *c)
{
    for (int i = 0; i < h->p->n_slots; i++) {
        const tt_slot_rule *r = &h->p->slots[i];
        const int k = r->slot[c->micro];
        if (r->stage == h->p->sections[c->section].stage && c->ends >> r->hold & 1 && k >= 0 &&
            k < r->n)
            h->held[i][k] = -1;
    }
}

const char *tt_program_check_slots(const tt_program *p)
{
    tt_arena *a = tt_arena_new();
    holder h = {.p = p};
    h.held = tt_arena_array(a, (size_t)p->n_slots + 1, sizeof *h.held);
    h.uses = tt_arena_array(a, (size_t)(p->n_sections * p->n_slots) + 1, sizeof *h.uses);
    for (int i = 0; i < p->n_slots; i++) {
        h.held[i] = tt_arena_array(a, (size_t)p->slots[i].n + 1, sizeof **h.held);
        memset(h.held[i], 0xff, ((size_t)p->slots[i].n + 1) * sizeof **h.held);
    }
    find_uses(&h);
    for (int k = 0; !h.bad && k < p->n_calls; k++) {
        for (int i = 0; !h.bad && i < p->n_slots; i++)
            use(&h, &p->calls[k], i);
        release(&h, &p->calls[k]);
    }
    tt_arena_free(a);
    return h.bad;
}

/* An accumulation is two instructions; in each situation exactly one of them must run. */
const char *tt_program_check_forms(const tt_program *p, const tt_instr **where)
{
    for (const tt_instr *i = p->instrs; i + 1 < p->instrs + p->n; i++) {
        const tt_instr *j = i + 1;
        if (i->kind != TT_INSTR_COPY || j->kind != TT_INSTR_KERNEL || i->id != j->id)
            continue;
        *where = i;
        const tt_predicate both = i->predicate | j->predicate;
        if ((i->predicate & j->predicate) || (both != TT_PRED_ALWAYS && both != TT_PRED_MEASURED))
            return "a sum is not stored or added to exactly once";
    }
    return NULL;
}
