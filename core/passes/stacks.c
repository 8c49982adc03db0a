/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/passes.h"
#include <string.h>

/* stacks: in programs without gradients (validation, generation) every parameter has a stack of
 * its own. Autodiff makes the stacks of training programs, because these depend on the
 * gradients' placements, too (R13). */

tt_type tt_stack_type(const tt_type *t, int n)
{
    tt_type s = {.dtype = t->dtype, .n_dims = t->n_dims + 1};
    s.dims[0] = TT_DIM(n, "stack");
    memcpy(s.dims + 1, t->dims, sizeof *t->dims * (size_t)t->n_dims);
    return s;
}

tt_placement tt_stack_placement(const tt_placement *p)
{
    tt_placement s = *p;
    memmove(s.n + 1, s.n, sizeof s.n - 1);
    memmove(s.atom + 1, s.atom, sizeof s.atom - sizeof s.atom[0]);
    s.n[0] = 0;
    memset(s.atom[0], 0, sizeof s.atom[0]);
    return s;
}

void tt_pass_stacks(tt_graph *g, bool own)
{
    for (size_t i = 0; i < g->params.n; i++) {
        tt_param_info *p = g->params.items[i];
        if (p->stack)
            continue;
        tt_stack *s = p->stack = tt_arena_alloc(g->arena, sizeof *s);
        const tt_type t = tt_stack_type(&p->type, 1);
        const tt_placement place = tt_stack_placement(&p->stored);
        *s = (tt_stack){.id = (int)g->stacks.n, .n = 1, .group = p->group};
        s->members = tt_arena_dup(g->arena, &p, sizeof p);
        s->param = tt_state_new(g, TT_STATE_PARAM, tt_arena_printf(g->arena, "stack.%d", s->id), &t,
                                &place);
        s->param->stack = s;
        s->param->stages = own ? p->stages : 0; /* 0: another program has its memory */
        tt_vec_push(g->arena, &g->stacks, s);
    }
}
