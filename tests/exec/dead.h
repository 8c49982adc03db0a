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

/* For steps_after. */
static inline void dead_look(tt_rank *r)
{
    const tt_exec *x = r->exec;
    const tt_program *p = x->p;
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
