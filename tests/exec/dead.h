/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_EXEC_DEAD_H
#define TT_TESTS_EXEC_DEAD_H
#include "exec/exec_impl.h"
#include "exec/steps.h"

/* With debug.poison each value is overwritten when it is dead, and after a step all values are: no byte of work
 * memory, nor of a slot, has anything else. */

static _Atomic int64_t dead_left; /* bytes that are not poison, of all ranks */

static inline int64_t dead_count(const uint8_t *p, int64_t n)
{
    int64_t left = 0;
    for (int64_t i = 0; i < n; i++)
        left += p[i] != (i & 1 ? 0x7f : 0xff);
    return left;
}

/* Each value in work memory is overwritten by an instruction, or its bytes are taken over: whether they have another
 * value at the end of the step, which hides what was forgotten, depends on where it lies. */
static inline void dead_check(const tt_program *p)
{
    bool *ends = calloc((size_t)p->n_operands + 1, sizeof *ends);
    assert_non_null(ends);
    for (int i = p->n - 1; i >= 0; i--) {
        const tt_instr *x = &p->instrs[i];
        for (int k = 0; k < x->n_last_used; k++)
            ends[x->last_used[k]] = true;
        if (x->in_place >= 0)
            ends[p->operands[x->in[x->in_place]].root] = true;
        for (int k = 0; k < x->n_out; k++) {
            const int root = p->operands[x->out[k]].root;
            if (p->operands[root].space == TT_SPACE_WORK && !ends[root])
                fail_msg("%s in \"%s\": output %d is never overwritten", x->op, x->scope, k);
        }
    }
    free(ends);
}

/* For steps_after. */
static inline void dead_look(tt_rank *r)
{
    const tt_exec *x = r->exec;
    const tt_program *p = x->p;
    dead_check(p);
    dead_left += dead_count(x->space[TT_SPACE_WORK], p->bytes[TT_SPACE_WORK]);
    for (int i = 0; i < p->n_slots; i++)
        for (int m = 0; m < r->s->schedule->n_micro; m++) {
            const tt_slot_rule *s = &p->slots[i];
            if (s->space != TT_SPACE_OFFLOADED)
                dead_left +=
                    dead_count(x->space[s->space] + s->base + s->slot[m] * s->bytes, s->bytes);
        }
}

#endif
