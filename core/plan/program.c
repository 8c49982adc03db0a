/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/program.h"

/* Answers about a program that need no look at its instructions. */

const char *tt_space_name(tt_space s)
{
    static const char *const names[] = {"none", "pinned", "offloaded", "state",
                                        "slot", "keep",   "wgrad",     "work"};
    return names[s];
}

const char *tt_instr_kind_name(tt_instr_kind k)
{
    static const char *const names[] = {"kernel",    "collective", "local", "send",    "recv",
                                        "stage_sum", "copy",       "fill",  "input",   "adopt",
                                        "record",    "wait",       "loop",  "end_loop"};
    _Static_assert(TT_COUNT(names) == TT_N_INSTR_KINDS, "a name per kind");
    return names[k];
}

const char *tt_section_phase(tt_section_kind k)
{
    static const char *const names[] = {"forward",  "backward", "backward", "forward",
                                        "backward", "epilogue", "update"};
    _Static_assert(TT_COUNT(names) == TT_N_SECTION_KINDS, "a name per kind");
    return names[k];
}

static int section_at(const tt_program *p, int stage, tt_section_kind kind)
{
    for (int i = 0; i < p->n_sections; i++)
        if (p->sections[i].stage == stage && p->sections[i].kind == kind)
            return i;
    return -1;
}

const tt_section *tt_program_section(const tt_program *p, int stage, tt_section_kind kind)
{
    const int i = section_at(p, stage, kind);
    return i < 0 ? NULL : &p->sections[i];
}

int64_t tt_program_bytes(const tt_program *p)
{
    int64_t n = p->kept;
    for (int s = TT_SPACE_STATE; s < TT_N_SPACES; s++)
        n += p->bytes[s];
    return n;
}

typedef struct calls {
    const tt_program *p;
    tt_arena *a;
    TT_VEC(tt_call) list;
} calls;

static void call(calls *c, const tt_item *item, int stage, tt_section_kind kind, int ends)
{
    const int s = section_at(c->p, stage, kind);
    if (s < 0)
        return;
    const int micro = item->action.micro;
    const tt_call x = {s, micro, micro == c->p->sections[s].first_micro,
                       c->p->n_slots ? (uint8_t)ends : 0, item};
    tt_vec_push(c->a, &c->list, x);
}

static bool forward_alone(const tt_program *p, int stage)
{
    const tt_section *i = tt_program_section(p, stage, TT_SECTION_I),
                     *w = tt_program_section(p, stage, TT_SECTION_W);
    return i && i->begin == i->end && w->begin == w->end;
}

/* After the last part of a backward, all slots of the micro-batch are free. After an I that has
 * a W, those are free that W does not read. */
static void call_item(calls *c, const tt_item *i)
{
    const tt_action *a = &i->action;
    const bool forward = a->kind == TT_ACTION_F;
    const int all = (1 << TT_N_HOLDS) - 1, slot = 1 << TT_HOLD_SLOT;
    if (i->kind == TT_ITEM_RECV)
        call(c, i, a->stage + (forward ? 1 : -1), forward ? TT_SECTION_RECV_F : TT_SECTION_RECV_B,
             0);
    if (i->kind != TT_ITEM_RUN) /* a part sends its results when it ends */
        return;
    if (forward)
        call(c, i, a->stage, TT_SECTION_F, forward_alone(c->p, a->stage) ? all : 0);
    if (a->kind == TT_ACTION_B || a->kind == TT_ACTION_I)
        call(c, i, a->stage, TT_SECTION_I, a->kind == TT_ACTION_I ? slot : 0);
    if (a->kind == TT_ACTION_B || a->kind == TT_ACTION_W)
        call(c, i, a->stage, TT_SECTION_W, a->kind == TT_ACTION_B ? all : all & ~slot);
}

tt_call *tt_program_calls(const tt_program *p, const tt_programs *items, tt_arena *a, int *n)
{
    calls c = {.p = p, .a = a};
    for (int i = 0; i < items->n_items[p->pp_rank]; i++)
        call_item(&c, &items->items[p->pp_rank][i]);
    *n = (int)c.list.n;
    return c.list.items;
}
