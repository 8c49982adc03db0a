/* SPDX-License-Identifier: Apache-2.0 */
#include "base/bf16.h"
#include "exec/exec_impl.h"
#include <math.h>
#include <string.h>

/* debug.poison and debug.detect_nan. */

/* Two bytes that, repeated, are a NaN of every width: bf16 0x7fff, f32 0x7fff7fff, f64. */
static const uint8_t poison_bytes[2] = {0xff, 0x7f};

void tt_exec_poison(void *p, size_t bytes)
{
    uint8_t *b = p;
    for (size_t i = 0; i < bytes; i++)
        b[i] = poison_bytes[i & 1];
}

static bool is_poison(const uint8_t *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (p[i] != poison_bytes[i & 1])
            return false;
    return true;
}

/* ---- a value's bytes are overwritten right after the last instruction that reads it ---- */

void tt_exec_poison_last_used(const tt_exec *x, const tt_instr *i)
{
    for (int k = 0; k < i->n_last_used; k++) {
        const tt_operand *o = &x->p->operands[i->last_used[k]];
        tt_exec_poison(x->space[o->space] + o->offset, (size_t)o->bytes);
    }
}

void tt_exec_poison_slots(const tt_exec *x, const tt_call *c)
{
    for (int i = 0; i < x->p->n_slots; i++) {
        const tt_slot_rule *s = &x->p->slots[i];
        if (s->stage == x->p->sections[c->section].stage &&
            c->ends >> (s->space - TT_SPACE_SLOT) & 1)
            tt_exec_poison(x->space[s->space] + s->base + s->slot[c->micro] * s->bytes,
                           (size_t)s->bytes);
    }
}

/* ---- bytes that no instruction was given stay as they are ---- */

static void note_high_water(tt_exec *x, const void *data, int64_t bytes)
{
    const uint8_t *w = x->space[TT_SPACE_WORK], *d = data;
    if (!d || d < w || d >= w + x->mapped[TT_SPACE_WORK])
        return;
    const int64_t end = (d - w + bytes + 63) / 64 * 64; /* what plans round to */
    x->high_water = TT_MAXV(x->high_water, end);
}

tt_status tt_exec_after(tt_exec *x, const tt_bound *b, const tt_tensor *out, tt_error *err)
{
    for (int o = 0; o < b->n_out; o++)
        note_high_water(x, out[o].data, tt_tensor_bytes(&out[o]));
    if (b->scratch) {
        note_high_water(x, b->scratch, b->instr->scratch_bytes);
        tt_exec_poison(b->scratch, (size_t)b->instr->scratch_bytes);
    }
    for (int sp = TT_SPACE_STATE; sp < TT_N_SPACES; sp++)
        if (!is_poison(x->space[sp] + x->p->bytes[sp], 256))
            return TT_FAIL(err, TT_EINTERNAL,
                           "debug.poison: %s in \"%s\" wrote behind the %s memory", b->instr->op,
                           b->instr->scope, tt_space_name((tt_space)sp));
    return TT_OK;
}

tt_status tt_exec_check_untouched(const tt_exec *x, tt_error *err)
{
    for (int sp = TT_SPACE_STATE; sp < TT_N_SPACES; sp++) {
        const size_t from = (size_t)(sp == TT_SPACE_WORK ? x->high_water : x->p->bytes[sp]);
        if (!is_poison(x->space[sp] + from, x->mapped[sp] - from))
            return TT_FAIL(err, TT_EINTERNAL,
                           "debug.poison: step %lld wrote memory that it was not given, behind "
                           "byte %zu of %zu",
                           (long long)x->step, from, x->mapped[sp]);
    }
    return TT_OK;
}

/* ---- detect_nan ---- */

static bool finite_at(const tt_tensor *t, int64_t i, double *value)
{
    if (t->dtype == TT_BF16)
        *value = (double)tt_from_bf16(((const uint16_t *)t->data)[i]);
    else
        *value =
            t->dtype == TT_F64 ? ((const double *)t->data)[i] : (double)((const float *)t->data)[i];
    return isfinite(*value);
}

tt_status tt_exec_check_finite(tt_exec *x, const tt_instr *i, const tt_tensor *out, int n,
                               int micro, tt_error *err)
{
    for (int o = 0; o < n; o++) {
        double v;
        if (!out[o].data ||
            (out[o].dtype != TT_F32 && out[o].dtype != TT_F64 && out[o].dtype != TT_BF16))
            continue;
        for (int64_t k = 0; k < tt_tensor_numel(&out[o]); k++)
            if (!finite_at(&out[o], k, &v) && !(v < 0 && isinf(v) && i->take_infinity))
                return TT_FAIL(err, TT_ENUMERIC,
                               "debug.detect_nan: step %lld, rank %d, micro-batch %d: %s in \"%s\" "
                               "wrote %s at element %lld of output %d (value %%%d)",
                               (long long)x->step, x->o.dist->rank, micro, i->op, i->scope,
                               isnan(v) ? "NaN" : "Inf", (long long)k, o,
                               x->p->operands[i->out[o]].value);
    }
    return TT_OK;
}
