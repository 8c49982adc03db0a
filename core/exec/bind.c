/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/succeed.h"
#include <string.h>

/* Binding: each instruction gets its addresses, its kernel and the groups that it needs. */

/* A parameter or a buffer of the parent program, by name, or the average that is evaluated in its place;
 * NULL: the parent has none here. */
static void *parent_param(const tt_exec *x, const char *name)
{
    const tt_program *p = x->o.parent->p;
    const tt_program_param *found = NULL;
    for (int i = 0; i < p->n_params; i++) {
        const tt_program_param *o = &p->params[i];
        if ((o->evaluated || (!o->suffix && !found)) && !strcmp(o->name, name))
            found = o;
    }
    return !found || found->offset < 0 ? NULL : x->o.parent->space[TT_SPACE_STATE] + found->offset;
}

static void bind_operand(const tt_exec *x, const tt_operand *o, tt_bound_operand *b)
{
    char *data = NULL;
    *b = (tt_bound_operand){.tensor = o->tensor,
                            .extent = o->extent,
                            .extent_rows = o->extent_rows,
                            .rows = o->rows,
                            .row_bytes = o->row_bytes};
    if (o->param >= 0 && x->o.parent) {
        data = parent_param(x, x->p->params[o->param].name);
        if (data)
            data += o->offset - x->p->params[o->param].offset;
    } else if (o->here) {
        data = (char *)x->space[o->space] + o->offset;
    }
    if (data && o->slot >= 0) {
        const tt_slot_rule *s = &x->p->slots[o->slot];
        data += s->base;
        b->slot = s->slot;
        b->slot_bytes = s->bytes;
    }
    b->tensor.data = data;
}

/* counted: bit j: operand j has as many rows as tt_bound.counts says. */
static tt_bound_operand *bind_operands(const tt_exec *x, const int *o, int n, uint32_t counted)
{
    tt_bound_operand *b = tt_arena_array(x->arena, (size_t)n + 1, sizeof *b);
    for (int j = 0; j < n; j++) {
        bind_operand(x, &x->p->operands[o[j]], &b[j]);
        b[j].counted = j < 32 && (counted >> j & 1);
    }
    return b;
}

static tt_status bind_kernel(tt_exec *x, tt_bound *b, tt_error *err)
{
    b->kernel = tt_find_kernel(x->o.kernels, x->o.device.backend, b->instr->kernel);
    if (!b->kernel)
        return TT_FAIL(err, TT_EUNSUPPORTED, "the backend has no kernel for op %s (in \"%s\")",
                       b->instr->kernel, b->instr->scope);
    return tt_exec_ask_kernel(x, b, err);
}

static tt_status group_over(tt_exec *x, const tt_atom_list *atoms, tt_group_comm *out,
                            tt_error *err)
{
    const uint16_t mask = tt_atom_list_mask(atoms);
    for (size_t i = 0; i < x->group_atoms.n; i++)
        if (x->group_atoms.items[i] == mask) {
            *out = x->groups.items[i];
            return TT_OK;
        }
    if (x->o.from && tt_mesh_degree(x->p->mesh, atoms) > 1)
        return tt_exec_borrow_group(x, mask, out, err);
    TT_TRY(tt_dist_group(x->o.dist, x->p->mesh, atoms, x->arena, out, err));
    tt_vec_push(x->arena, &x->groups, *out);
    tt_vec_push(x->arena, &x->group_atoms, mask);
    return out->comm && !tt_device_is_host(&x->o.device)
               ? x->o.dist->data_vt->on(out->comm, tt_exec_mover(x)->queue, err)
               : TT_OK;
}

static tt_status bind_exchange(tt_exec *x, tt_bound *b, tt_error *err)
{
    const tt_instr *i = b->instr;
    tt_exchange_opts o = {.mesh = x->p->mesh,
                          .coords = x->p->coords,
                          .step = i->step,
                          .dims = i->type->dims,
                          .in = b->n_in ? &b->in[0].tensor : NULL,
                          .n_in = b->n_in,
                          .out = &b->out[0].tensor};
    if (b->n_in && tt_exchange_has_group(i->step->kind))
        TT_TRY(group_over(x, &i->step->atoms, &o.group, err));
    b->exchange = tt_arena_alloc(x->arena, sizeof *b->exchange);
    return tt_exchange_make(&o, x->arena, b->exchange, err);
}

/* What an event stands for, on the way through the program: the collective before its RECORD. */
typedef struct events {
    const tt_bound *last[UINT8_MAX + 1]; /* by queue */
    const tt_bound **of;                 /* by event */
} events;

/* The number of the axes that i communicates over. */
static uint8_t axes_of(tt_exec *x, const tt_instr *i)
{
    const tt_mesh *m = x->p->mesh;
    const tt_axis *pp = tt_mesh_axis(m, "pp");
    const tt_atom_list none = {0}, *atoms = i->step ? &i->step->atoms : pp ? &pp->atoms : &none;
    const uint16_t mask = tt_atom_list_mask(atoms);
    char text[128];
    int k = 0;
    while (k < x->comm.n && x->comm.axes[k].atoms != mask)
        k++;
    if (k < x->comm.n || k == TT_MAX_COMM_AXES)
        return (uint8_t)TT_MIN(k, TT_MAX_COMM_AXES - 1);
    tt_mesh_print_axes(m, atoms, text, sizeof text);
    for (char *p = text; *p; p++)
        *p = *p == ' ' ? '.' : *p;
    const char *name = k == TT_MAX_COMM_AXES - 1 ? "others" : text;
    x->comm.axes[k] =
        (tt_exec_axes){.atoms = mask, .name = tt_arena_printf(x->arena, "time/comm/%s", name)};
    x->comm.n++;
    return (uint8_t)k;
}

const tt_exec_axes *tt_exec_comm_axes(const tt_exec *x, int *n)
{
    *n = tt_device_is_host(&x->o.device) ? x->comm.n : 0;
    return x->comm.axes;
}

static tt_status bind_instr(tt_exec *x, const tt_instr *i, tt_bound *b, events *e, tt_error *err)
{
    *b = (tt_bound){.instr = i,
                    .kind = i->kind,
                    .predicate = i->predicate,
                    .adds = i->adds,
                    .communicates = tt_instr_communicates(i) ? (uint8_t)(1 + axes_of(x, i)) : 0,
                    .n_in = i->n_in,
                    .n_out = i->n_out};
    b->in = bind_operands(x, i->in, i->n_in, i->counted_in);
    b->out = bind_operands(x, i->out, i->n_out, i->counted_out);
    if (i->counts >= 0)
        b->counts = bind_operands(x, &i->counts, 1, 0);
    b->scratch = i->scratch < 0 ? NULL : x->space[TT_SPACE_WORK] + i->scratch;
    switch ((tt_instr_kind)i->kind) {
    case TT_INSTR_KERNEL:
        return bind_kernel(x, b, err);
    case TT_INSTR_LOCAL:
    case TT_INSTR_FILL:
        return bind_exchange(x, b, err);
    case TT_INSTR_COLLECTIVE:
        TT_TRY(bind_exchange(x, b, err));
        e->last[i->queue] = b;
        if (i->queue && x->streams && tt_dist_has_queues(x->o.dist)) {
            b->queue = i->queue;
            return tt_exec_group_queue(x, i->queue, &b->exchange->group, err);
        }
        return i->queue ? tt_exec_bind_pending(x, b, err) : TT_OK;
    case TT_INSTR_COPY:
        b->queue = x->streams ? i->queue : 0;
        e->last[i->queue] = NULL;
        return b->queue ? tt_exec_copy_queue(x, b->queue, err) : TT_OK;
    case TT_INSTR_RECORD:
        e->of[i->event] = i->queue ? e->last[i->queue] : NULL;
        return TT_OK;
    case TT_INSTR_WAIT: /* work of queue 0 is done when it is issued: nobody waits for it */
        b->over = i->queue ? NULL : e->of[i->event];
        b->pending = b->over ? b->over->pending : NULL;
        return TT_OK;
    case TT_INSTR_INPUT:
        return tt_device_is_host(&x->o.device) ? TT_OK : tt_exec_bind_input(x, b, err);
    case TT_INSTR_STAGE_SUM:
        b->sum = &x->sums[i->event];
        return TT_OK;
    default:
        return TT_OK;
    }
}

tt_status tt_exec_bind(tt_exec *x, tt_error *err)
{
    const tt_program *p = x->p;
    const tt_axis *pp = tt_mesh_axis(p->mesh, "pp");
    events *e = tt_arena_alloc(x->arena, sizeof *e);
    e->of = tt_arena_array(x->arena, (size_t)p->n_events + 1, sizeof(tt_bound *));
    if (pp)
        TT_TRY(group_over(x, &pp->atoms, &x->pipeline, err));
    x->code = tt_arena_array(x->arena, (size_t)p->n + 1, sizeof *x->code);
    for (int i = 0; i < p->n; i++)
        TT_TRY(bind_instr(x, &p->instrs[i], &x->code[i], e, err));
    x->args = tt_arena_array(x->arena, (size_t)p->most_operands + 2, sizeof *x->args);
    return TT_OK;
}
