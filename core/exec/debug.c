/* SPDX-License-Identifier: Apache-2.0 */
#include "base/bf16.h"
#include "exec/exec_impl.h"
#include <math.h>
#include <string.h>

/* Two bytes that are a NaN in every width: f32 0x7fff7fff, bf16 0x7fff, f64. */
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

/* ---- death: a value's bytes are overwritten right after its last reader ---- */

/* Part of a micro-batch, epilogue, update: later ones may still read what is alive in an earlier
 * one. */
static int phase_of(const tt_node *n)
{
    return n->region <= TT_BACKWARD ? (int)tt_node_part(n) : TT_N_PARTS + (n->region >= TT_UPDATE);
}

typedef struct deaths {
    tt_exec *x;
    uint8_t *phases;  /* by value id: where it is read */
    bool *seen;       /* by value id: its last reader is known */
    tt_instr **begun; /* by node id: the instruction of an async collective */
} deaths;

/* What e, which nothing of this phase follows that is not done yet, is the last to read. */
static void find_instr_deaths(const deaths *d, tt_instr *e, int phase)
{
    if (!e->dead)
        e->dead = tt_arena_array(d->x->arena, (size_t)e->n_in + 1, sizeof *e->dead);
    for (int j = 0; j < e->n_in && j < e->node->n_in; j++) {
        const int root = tt_plan_alias(e->node->in[j])->id;
        const tt_loc *l = &d->x->o.plan->value[root];
        if (l->space != TT_SPACE_WORK || d->phases[root] >> (phase + 1) || d->seen[root])
            continue;
        d->seen[root] = true;
        if (j == d->x->o.plan->in_place[e->node->id])
            continue; /* its bytes live on */
        e->dead[e->n_dead++] = tt_plan_alias(e->node->in[j]);
    }
}

/* An async collective reads up to its wait. */
static void find_wait_deaths(const deaths *d, tt_flight *const *fs, int n, int phase)
{
    for (int k = 0; k < n; k++)
        find_instr_deaths(d, d->begun[fs[k]->node->id], phase);
}

static void find_list_deaths(const deaths *d, tt_instr_list *list, int phase)
{
    find_wait_deaths(d, list->waits, list->n_waits, phase);
    for (int i = list->n - 1; i >= 0; i--) {
        tt_instr *e = &list->items[i];
        if (!e->flight)
            find_instr_deaths(d, e, phase);
        find_wait_deaths(d, e->waits, e->n_waits, phase);
    }
}

void tt_exec_find_deaths(tt_exec *x)
{
    const tt_graph *g = x->o.plan->graph;
    const deaths d = {
        .x = x,
        .phases = tt_arena_array(x->arena, (size_t)g->n_values + 1, sizeof *d.phases),
        .seen = tt_arena_array(x->arena, (size_t)g->n_values + 1, sizeof *d.seen),
        .begun = tt_arena_array(x->arena, (size_t)g->n_ids + 1, sizeof *d.begun),
    };
    for (int k = 0; k < x->n_lists; k++)
        for (int i = 0; i < x->lists[k]->n; i++)
            if (x->lists[k]->items[i].flight)
                d.begun[x->lists[k]->items[i].node->id] = &x->lists[k]->items[i];
    for (size_t i = 0; i < g->nodes.n; i++)
        for (int j = 0; j < g->nodes.items[i]->n_in; j++)
            d.phases[tt_plan_alias(g->nodes.items[i]->in[j])->id] |=
                (uint8_t)(1u << phase_of(g->nodes.items[i]));
    find_list_deaths(&d, &x->update, TT_N_PARTS + 1);
    find_list_deaths(&d, &x->epilogue, TT_N_PARTS);
    for (int s = 0; s < x->n_code; s++)
        for (int k = TT_N_PARTS - 1; k >= 0; k--)
            find_list_deaths(&d, &x->code[s].part[k], k);
}

void tt_exec_bury(const tt_exec *x, const tt_instr *i)
{
    for (int k = 0; k < i->n_dead; k++)
        tt_exec_poison(x->space[TT_SPACE_WORK] + x->o.plan->value[i->dead[k]->id].offset,
                       (size_t)tt_plan_value_bytes(x->o.plan->graph, i->dead[k]));
}

/* ---- what nobody may touch ---- */

static void note(tt_exec *x, const void *data, int64_t bytes)
{
    const uint8_t *w = x->space[TT_SPACE_WORK], *d = data;
    if (!d || d < w || d >= w + x->mapped[TT_SPACE_WORK])
        return;
    const int64_t end = (d - w + bytes + 63) / 64 * 64; /* a plan's unit */
    x->high_water = TT_MAXV(x->high_water, end);
}

tt_status tt_exec_after(tt_exec *x, const tt_instr *i, const tt_tensor *out, bool bury,
                        tt_error *err)
{
    static const char *const names[] = {"", "state", "slot", "keep", "wgrad", "work"};
    for (int o = 0; o < i->n_out; o++)
        note(x, out[o].data, tt_tensor_numel(&out[o]) * (int64_t)tt_dtype_size(out[o].dtype));
    if (i->scratch) {
        note(x, i->scratch, (int64_t)i->scratch_bytes);
        tt_exec_poison(i->scratch, i->scratch_bytes);
    }
    for (int sp = TT_SPACE_STATE; sp < TT_N_SPACES; sp++)
        if (!is_poison(x->space[sp] + x->o.plan->bytes[sp], 256))
            return TT_FAIL(err, TT_EINTERNAL,
                           "debug.poison: %s in \"%s\" wrote behind the %s memory",
                           i->node->op->name, i->node->scope ? i->node->scope : "", names[sp]);
    if (bury)
        tt_exec_bury(x, i);
    return TT_OK;
}

tt_status tt_exec_check_untouched(const tt_exec *x, tt_error *err)
{
    for (int sp = TT_SPACE_STATE; sp < TT_N_SPACES; sp++) {
        const size_t from = (size_t)(sp == TT_SPACE_WORK ? x->high_water : x->o.plan->bytes[sp]);
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

/* -inf is a legal maximum and log-sum of nothing. */
static bool may_be_infinite(const tt_node *n)
{
    return (n->op->flags & TT_OP_MAY_BE_INFINITE) || (n->n_out && n->out[0]->place.partial_max);
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
            if (!finite_at(&out[o], k, &v) && !(v < 0 && isinf(v) && may_be_infinite(i->node)))
                return TT_FAIL(err, TT_ENUMERIC,
                               "debug.detect_nan: step %lld, rank %d, micro-batch %d: %s in \"%s\" "
                               "wrote %s at element %lld of output %d (value %%%d)",
                               (long long)x->step, x->o.dist->rank, micro, i->node->op->name,
                               i->node->scope ? i->node->scope : "", isnan(v) ? "NaN" : "Inf",
                               (long long)k, o, i->node->n_out > o ? i->node->out[o]->id : -1);
    }
    return TT_OK;
}
