/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/debug.h"
#include <math.h>
#include <string.h>
#include <ttrun/narrow.h>

/* debug.poison and debug.detect_nan. */

/* Two bytes that, repeated, are a NaN of every width: bf16 0x7fff, f32 0x7fff7fff, f64. */
static const uint8_t poison_bytes[2] = {0xff, 0x7f};
#define POISON UINT32_C(0x7fff7fff)

tt_status tt_exec_poison(const tt_exec *x, void *p, size_t bytes, tt_error *err)
{
    return tt_device_fill(&x->o.device, tt_exec_mover(x)->queue, p, POISON, bytes, err);
}

/* ---- searching memory: on a device by its kernel ---- */

static tt_status find_on_device(tt_exec *x, const tt_tensor *t, const tt_attrs_find_bad *a,
                                int64_t *found, tt_error *err)
{
    const tt_mover *m = tt_exec_mover(x);
    const tt_kernel *k = tt_find_kernel(x->o.kernels, m->device.backend, TT_OP_FIND_BAD);
    tt_tensor in = *t, out = {.data = x->bad_at, .dtype = TT_I64};
    in.n_dims = 1;
    in.shape[0] = in.global[0] = tt_tensor_numel(t);
    in.begin[0] = 0;
    if (!k)
        return TT_FAIL(err, TT_EUNSUPPORTED, "the backend has a device, but no kernel %s",
                       TT_OP_FIND_BAD);
    TT_TRY(tt_move_kernel(m, k, &in, 1, &out, a, err));
    return tt_exec_read(x, found, x->bad_at, sizeof *found, err);
}

static bool finite_at(const tt_tensor *t, int64_t i, double *value)
{
    if (t->dtype == TT_BF16)
        *value = (double)tt_from_bf16(((const uint16_t *)t->data)[i]);
    else if (t->dtype == TT_F16)
        *value = (double)tt_from_f16(((const uint16_t *)t->data)[i]);
    else
        *value =
            t->dtype == TT_F64 ? ((const double *)t->data)[i] : (double)((const float *)t->data)[i];
    return isfinite(*value);
}

/* *found: the first element that is not finite, or -1. */
static tt_status find_not_finite(tt_exec *x, const tt_tensor *t, bool minus_infinity,
                                 int64_t *found, tt_error *err)
{
    const tt_attrs_find_bad a = {.what = minus_infinity ? TT_FIND_NOT_FINITE_NOR_MINUS_INF
                                                        : TT_FIND_NOT_FINITE};
    double v;
    *found = -1;
    if (tt_dtype_is_float8(
            t->dtype)) /* what was cast to it has been searched: such a cast saturates */
        return TT_OK;
    if (!tt_device_is_host(&x->o.device))
        return tt_tensor_numel(t) ? find_on_device(x, t, &a, found, err) : TT_OK;
    for (int64_t i = 0; *found < 0 && i < tt_tensor_numel(t); i++)
        if (!finite_at(t, i, &v) && !(v < 0 && isinf(v) && minus_infinity))
            *found = i;
    return TT_OK;
}

static tt_status is_poison(tt_exec *x, const uint8_t *p, size_t bytes, bool *is, tt_error *err)
{
    const tt_attrs_find_bad a = {.what = TT_FIND_NOT_PATTERN, .pattern = POISON};
    tt_tensor t = {.data = (void *)(uintptr_t)p, .dtype = TT_U8, .n_dims = 1};
    int64_t found = -1;
    t.shape[0] = t.global[0] = (int64_t)bytes;
    if (bytes && !tt_device_is_host(&x->o.device))
        TT_TRY(find_on_device(x, &t, &a, &found, err));
    else if (memcmp(p, poison_bytes, TT_MIN(bytes, sizeof poison_bytes)) ||
             (bytes > 2 && memcmp(p + 2, p, bytes - 2))) /* each byte is that of two before it */
        found = 0;
    *is = found < 0;
    return TT_OK;
}

/* ---- a value's bytes are overwritten right after the last instruction that reads it ---- */

tt_status tt_exec_poison_last_used(const tt_exec *x, const tt_instr *i, tt_error *err)
{
    for (int k = 0; k < i->n_last_used; k++) {
        const tt_operand *o = &x->p->operands[i->last_used[k]];
        TT_TRY(tt_exec_poison(x, x->space[o->space] + o->offset, (size_t)o->bytes, err));
    }
    return TT_OK;
}

tt_status tt_exec_poison_slots(const tt_exec *x, const tt_call *c, tt_error *err)
{
    for (int i = 0; i < x->p->n_slots; i++) {
        const tt_slot_rule *s = &x->p->slots[i];
        const bool device = s->space != TT_SPACE_OFFLOADED; /* else a fill is no kernel's */
        if (device && s->stage == x->p->sections[c->section].stage && c->ends >> s->hold & 1)
            TT_TRY(tt_exec_poison(x, x->space[s->space] + s->base + s->slot[c->micro] * s->bytes,
                                  (size_t)s->bytes, err));
    }
    return TT_OK;
}

/* ---- bytes that no instruction was given stay as they are ---- */

static void note_high_water(tt_exec *x, const void *data, int64_t bytes)
{
    const uint8_t *w = x->space[TT_SPACE_WORK], *d = data;
    if (!d || d < w || d >= w + x->mapped[TT_SPACE_WORK])
        return;
    const int64_t a = x->p->alignment, end = (d - w + bytes + a - 1) / a * a;
    x->high_water = TT_MAXV(x->high_water, end);
}

tt_status tt_exec_after(tt_exec *x, const tt_bound *b, const tt_tensor *out, tt_error *err)
{
    bool untouched;
    for (int o = 0; o < b->n_out; o++)
        note_high_water(x, out[o].data, tt_tensor_bytes(&out[o]));
    if (b->scratch) {
        note_high_water(x, b->scratch, b->instr->scratch_bytes);
        TT_TRY(tt_exec_poison(x, b->scratch, (size_t)b->instr->scratch_bytes, err));
    }
    for (int sp = TT_SPACE_STATE; sp < TT_N_SPACES; sp++) {
        TT_TRY(is_poison(x, x->space[sp] + x->p->bytes[sp], 256, &untouched, err));
        if (!untouched)
            return TT_FAIL(err, TT_EINTERNAL,
                           "debug.poison: %s in \"%s\" wrote behind the %s memory", b->instr->op,
                           b->instr->scope, tt_space_name((tt_space)sp));
    }
    return TT_OK;
}

tt_status tt_exec_check_untouched(tt_exec *x, tt_error *err)
{
    bool untouched;
    for (int sp = TT_SPACE_STATE; sp < TT_N_SPACES; sp++) {
        const size_t from = (size_t)(sp == TT_SPACE_WORK ? x->high_water : x->p->bytes[sp]);
        TT_TRY(is_poison(x, x->space[sp] + from, x->mapped[sp] - from, &untouched, err));
        if (!untouched)
            return TT_FAIL(err, TT_EINTERNAL,
                           "debug.poison: step %lld wrote memory that it was not given, behind "
                           "byte %zu of %zu",
                           (long long)x->step, from, x->mapped[sp]);
    }
    return TT_OK;
}

/* ---- detect_nan ---- */

static tt_status name_value(tt_exec *x, const tt_instr *i, const tt_tensor *t, int output,
                            int64_t element, int micro, tt_error *err)
{
    uint8_t bytes[sizeof(double)] = {0};
    const size_t size = tt_dtype_size(t->dtype);
    tt_tensor one = {.data = bytes, .dtype = t->dtype};
    double v;
    TT_TRY(tt_exec_read(x, bytes, (const char *)t->data + (size_t)element * size, size, err));
    (void)finite_at(&one, 0, &v);
    return TT_FAIL(err, TT_ENUMERIC,
                   "debug.detect_nan: step %lld, rank %d, micro-batch %d: %s in \"%s\" "
                   "wrote %s at element %lld of output %d (value %%%d)",
                   (long long)x->step, x->o.dist->rank, micro, i->op, i->scope,
                   isnan(v) ? "NaN" : "Inf", (long long)element, output,
                   x->p->operands[i->out[output]].value);
}

tt_status tt_exec_check_finite(tt_exec *x, const tt_instr *i, const tt_tensor *out, int n,
                               int micro, tt_error *err)
{
    int64_t at;
    for (int o = 0; o < n; o++) {
        const int space = x->p->operands[i->out[o]].space;
        if (!out[o].data || space == TT_SPACE_PINNED || space == TT_SPACE_OFFLOADED || /* a copy */
            (out[o].dtype != TT_F32 && out[o].dtype != TT_F64 && out[o].dtype != TT_BF16 &&
             out[o].dtype != TT_F16))
            continue;
        TT_TRY(find_not_finite(x, &out[o], i->take_infinity, &at, err));
        if (at < 0)
            continue;
        if (!i->scaled)
            return name_value(x, i, &out[o], o, at, micro, err);
        if (!x->overflow.code)
            x->overflow.code = name_value(x, i, &out[o], o, at, micro, &x->overflow);
    }
    return TT_OK;
}

tt_status tt_exec_overflow(const tt_exec *x, tt_error *err)
{
    return x->overflow.code ? TT_FAIL(err, x->overflow.code, "%s", x->overflow.text) : TT_OK;
}
