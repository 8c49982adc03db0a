/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/debug.h"

/* What a rank contributes to sums over an axis, as hashes: another rank of that axis that computes the same
 * micro-batches contributes the same bits. What comes after such a sum depends on the rank's place in it. */

int tt_exec_trail_length(const tt_exec *x)
{
    return x->p->n + x->p->n_states;
}

void tt_exec_leave_trail(tt_exec *x, uint16_t atoms, uint64_t *hashes)
{
    x->trail = hashes;
    x->trail_atoms = atoms;
    for (int i = 0; hashes && i < tt_exec_trail_length(x); i++)
        hashes[i] = 0;
}

/* It sums over the axis. */
static bool sums_over(const tt_exec *x, const tt_bound *b)
{
    const tt_lower_step *s = b->instr->step;
    return b->kind == TT_INSTR_COLLECTIVE &&
           (s->kind == TT_STEP_REDUCE_SCATTER || s->kind == TT_STEP_ALL_REDUCE) &&
           tt_atom_list_mask(&s->atoms) & x->trail_atoms;
}

static tt_status add_to_trail(tt_exec *x, int i, const tt_tensor *t, tt_error *err)
{
    return t->data ? tt_exec_hash(x, t, x->trail[i] + 1, &x->trail[i], err) : TT_OK;
}

tt_status tt_exec_add_to_trail(tt_exec *x, const tt_bound *b, const tt_tensor *in, tt_error *err)
{
    return b->n_in && sums_over(x, b) ? add_to_trail(x, (int)(b - x->code), in, err) : TT_OK;
}

tt_status tt_exec_end_trail(tt_exec *x, int *n, tt_error *err)
{
    for (int i = 0; i < x->p->n_states; i++) {
        const tt_program_state *s = &x->p->states[i];
        tt_tensor t = s->tensor;
        if (!s->fresh || s->for_host || s->offset < 0 ||
            (s->partial & x->trail_atoms) != x->trail_atoms)
            continue;
        t.data = x->space[s->space] + s->offset;
        TT_TRY(add_to_trail(x, x->p->n + i, &t, err));
    }
    *n = 0;
    for (int i = 0; i < tt_exec_trail_length(x); i++)
        *n += x->trail[i] != 0;
    x->trail = NULL;
    return TT_OK;
}

const char *tt_exec_trail_name(const tt_exec *x, int i, const char **scope)
{
    *scope = i < x->p->n ? x->p->instrs[i].scope : x->p->states[i - x->p->n].name;
    return i < x->p->n ? x->p->instrs[i].op : "sum";
}
