/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/lower_impl.h"
#include <string.h>

/* lower, second half: the memory of values on this rank, slots, and the tables of states and
 * parameters. */

/* The offset of a member in the state space. Members are as large as this rank's box, not as the
 * largest box. */
static int64_t state_offset(const lowering *l, const tt_state *s, int member)
{
    const int64_t at = l->plan->state[s->id];
    if (at < 0 || member <= 0)
        return at;
    tt_box b;
    tt_box_of(l->g->mesh, s->type.dims, s->type.n_dims, &s->place, l->coords, &b);
    b.begin[0] = 0;
    b.end[0] = member;
    return at + tt_box_numel(&b, s->type.n_dims) * (int64_t)tt_dtype_size(s->type.dtype);
}

static void tensor_of(const lowering *l, const tt_type *type, const tt_placement *place,
                      tt_tensor *out)
{
    const tt_value v = {.type = *type, .place = *place};
    tt_plan_tensor(l->g, &v, l->coords, out);
}

/* Sets which number of rows the value has in each call of a decoding program, and how many rows of it
 * are one of these. */
static void find_extent(const tt_graph *g, const tt_value *v, tt_operand *o)
{
    const char *label = g->slots && v->type.n_dims > 0 ? v->type.dims[0].label : NULL;
    if (!label || v->node->op == &tt_op_param || v->node->op == &tt_op_state)
        return;
    if (!strcmp(label, TT_LABEL_TOKENS) || !strcmp(label, TT_LABEL_ROWS))
        o->extent = TT_EXTENT_TOKENS;
    else if (!strcmp(label, TT_LABEL_PICKED) || !strcmp(label, TT_LABEL_PICKED_ROWS))
        o->extent = TT_EXTENT_PICKED;
    else
        return;
    o->extent_rows = v->type.dims[0].size / (o->extent == TT_EXTENT_TOKENS ? g->tokens : g->picked);
}

static int slot_of(const lowering *l, int stage, tt_space space)
{
    for (size_t i = 0; i < l->slots.n; i++)
        if (l->slots.items[i].stage == stage && l->slots.items[i].space == space)
            return (int)i;
    return -1;
}

/* The number of a parameter or buffer in the table that has both; -1: there is none of this
 * name. */
static int number_of(const lowering *l, const char *name)
{
    return (int)(intptr_t)tt_map_get(l->numbers, name) - 1;
}

static void find_place(const lowering *l, const tt_value *v, tt_operand *o)
{
    const tt_loc *at = &l->plan->value[v->id];
    const tt_value *root = tt_plan_alias(v);
    o->space = (uint8_t)at->space;
    o->offset = at->offset;
    if (root->node->op == &tt_op_param)
        o->param = number_of(l, root->node->param->name);
    if (root->node->op == &tt_op_state && root->node->state->kind == TT_STATE_BUFFER)
        o->param = number_of(l, root->node->state->name);
    if (at->space == TT_SPACE_STATE || at->space == TT_SPACE_PINNED)
        o->offset = state_offset(l, at->state, at->member);
    if (tt_space_holds(at->space) || at->space == TT_SPACE_OFFLOADED)
        o->slot = slot_of(l, root->node->when->stage, at->space);
    o->here = at->space != TT_SPACE_NONE && o->offset >= 0 &&
              (!tt_space_holds(at->space) || o->slot >= 0);
    o->offset += tt_plan_skip(l->g, v, l->coords);
    o->bytes = root == v ? tt_plan_value_bytes(l->g, v) : tt_tensor_bytes(&o->tensor);
}

static void find_rows(const lowering *l, const tt_value *v, tt_operand *o)
{
    o->rows = l->g->chunk_rows && tt_value_per_token(l->g, v);
    o->chunk_only = tt_plan_alias(v)->chunked;
    if (!o->rows || o->chunk_only)
        return;
    o->row_bytes = (int64_t)tt_dtype_size(v->type.dtype);
    for (int d = 1; d < o->tensor.n_dims; d++)
        o->row_bytes *= o->tensor.shape[d];
}

int tt_lower_operand(lowering *l, const tt_value *v)
{
    if (l->operand_of[v->id] >= 0)
        return l->operand_of[v->id];
    tt_operand o = {.value = v->id, .slot = -1, .param = -1, .of = v};
    const tt_value *source = tt_plan_source(v);
    const int writer = source == v ? -1 : tt_lower_operand(l, source);
    const tt_value *alias = tt_plan_alias(v);
    const int root = alias == v ? -1 : tt_lower_operand(l, alias);
    const int self = (int)l->operands.n;
    o.writer = source == v ? self : writer;
    o.root = alias == v ? self : root;
    if (!l->bare) {
        tensor_of(l, &v->type, &v->place, &o.tensor);
        find_extent(l->g, v, &o);
        find_place(l, v, &o);
    }
    find_rows(l, v, &o);
    l->operand_of[v->id] = (int)l->operands.n;
    tt_vec_push(l->a, &l->operands, o);
    return l->operand_of[v->id];
}

int tt_lower_state(lowering *l, const tt_state *s, int member, const tt_value *like)
{
    tt_operand o = {.value = -1, .slot = -1, .param = -1};
    o.writer = o.root = (int)l->operands.n;
    if (!l->bare) {
        o.space = (uint8_t)tt_plan_state_space(s);
        tensor_of(l, &like->type, &like->place, &o.tensor);
        o.offset = state_offset(l, s, member);
        o.here = o.offset >= 0;
        o.bytes = tt_tensor_bytes(&o.tensor);
    }
    tt_vec_push(l->a, &l->operands, o);
    return (int)l->operands.n - 1;
}

static void add_slots(lowering *l, const tt_stage_plan *s, tt_space space, tt_hold hold,
                      int64_t base, int64_t bytes)
{
    const tt_slot_rule r = {.space = (uint8_t)space,
                            .hold = (uint8_t)hold,
                            .stage = s->stage,
                            .base = base,
                            .bytes = bytes,
                            .n = s->n_slots[hold],
                            .slot = s->slot[hold]};
    tt_vec_push(l->a, &l->slots, r);
}

void tt_lower_slots(lowering *l)
{
    for (int i = 0; i < l->plan->n_stages; i++) {
        const tt_stage_plan *s = &l->plan->stages[i];
        for (int h = 0; s->in_slots && h < TT_N_HOLDS; h++)
            add_slots(l, s, (tt_space)(TT_SPACE_SLOT + h), (tt_hold)h, s->slot_base[h],
                      s->slot_bytes[h]);
        if (s->in_slots && s->offloaded_bytes)
            add_slots(l, s, TT_SPACE_OFFLOADED, tt_plan_offloaded_hold(l->plan->schedule),
                      s->offloaded_base, s->offloaded_bytes);
    }
}

/* ---- tables ---- */

/* Does this rank write the value to checkpoints? Among its replicas, the rank does whose
 * coordinates over all atoms that do not shard it, and over which it is no sum, are 0. */
static bool owns(const lowering *l, const tt_placement *p, int n_dims)
{
    const uint16_t mine = tt_placement_shard_atoms(p, n_dims) | p->partial;
    const tt_axis *pp = tt_mesh_axis(l->g->mesh, "pp");
    for (int a = 0; a < l->g->mesh->n_atoms; a++) {
        const bool stage = pp && TT_ATOM(pp->atoms.atom[0]) == (unsigned)a;
        if (!stage && !(mine >> a & 1u) && l->coords[a])
            return false;
    }
    return true;
}

/* The type and the placement of a stack's member: an optimizer's state need not have the parameter's
 * dims. */
static void member_of(const tt_state *s, const tt_param_info *p, tt_type *type, tt_placement *place)
{
    *type = (tt_type){.dtype = s->type.dtype, .n_dims = p->type.n_dims};
    *place = p->stored;
    memcpy(type->dims, s->type.dims + 1, (size_t)type->n_dims * sizeof type->dims[0]);
    for (int d = 0; d < type->n_dims; d++) {
        place->n[d] = s->place.n[d + 1];
        memcpy(place->atom[d], s->place.atom[d + 1], sizeof place->atom[d]);
    }
}

/* The first member that this rank holds of those of the state: ranks may share them out. */
static int first_here(const lowering *l, const tt_state *s)
{
    tt_box b;
    if (!s->place.n[0])
        return 0;
    tt_box_of(l->g->mesh, s->type.dims, s->type.n_dims, &s->place, l->coords, &b);
    return (int)b.begin[0];
}

/* Does this rank hold the parameter's part of an optimizer's state? */
static bool is_here(const lowering *l, const tt_state *s, const tt_param_info *p)
{
    tt_box b;
    const int member = p->index - s->first;
    tt_box_of(l->g->mesh, s->type.dims, s->type.n_dims, &s->place, l->coords, &b);
    return s->stack == p->stack && member >= b.begin[0] && member < b.end[0];
}

static tt_program_param param_of(const lowering *l, const tt_param_info *p, const tt_state *s)
{
    const bool itself = s->kind == TT_STATE_PARAM;
    tt_type type;
    tt_placement place;
    member_of(s, p, &type, &place);
    tt_program_param o = {.name = p->name,
                          .suffix = itself ? NULL : s->suffix,
                          .info = p,
                          .init = itself ? &p->init : NULL,
                          .copies = s->copies,
                          .evaluated = s->evaluated,
                          /* of a tied parameter's stages, the lowest one counts and saves it */
                          .owner =
                              owns(l, &s->place, s->type.n_dims) &&
                              (!p->stages || tt_plan_here(l->plan, __builtin_ctzll(p->stages))),
                          .space = (uint8_t)tt_plan_state_space(s),
                          .offset = state_offset(l, s, p->index - s->first - first_here(l, s))};
    tensor_of(l, &type, &place, &o.tensor);
    return o;
}

static tt_program_param buffer_of(const lowering *l, const tt_state *s)
{
    tt_program_param o = {.name = s->name,
                          .init = &s->init,
                          .buffer = true,
                          .transient = s->transient,
                          .of_trainer = s->of_trainer,
                          .values = s->values,
                          .owner =
                              owns(l, &s->place, s->type.n_dims) &&
                              (!s->stages || tt_plan_here(l->plan, __builtin_ctzll(s->stages))),
                          .space = TT_SPACE_STATE,
                          .offset = l->plan->state[s->id]};
    tensor_of(l, &s->type, &s->place, &o.tensor);
    return o;
}

void tt_lower_tables(lowering *l)
{
    const tt_graph *g = l->g;
    for (size_t i = 0; i < g->states.n; i++) {
        const tt_state *s = g->states.items[i];
        tt_program_state o = {.name = s->name,
                              .offset = l->plan->state[s->id],
                              .space = (uint8_t)tt_plan_state_space(s),
                              .moments = s->kind == TT_STATE_OPTIMIZER};
        o.fresh = s->kind == TT_STATE_ACCUMULATOR || s->kind == TT_STATE_METRIC ||
                  s->kind == TT_STATE_GATHERED;
        o.for_host = s->kind == TT_STATE_SCALAR || s->kind == TT_STATE_METRIC;
        o.partial = s->place.partial;
        o.owner = owns(l, &s->place, s->type.n_dims);
        tensor_of(l, &s->type, &s->place, &o.tensor);
        tt_vec_push(l->a, &l->states, o);
    }
    const tt_state **moments = tt_arena_array(l->a, g->states.n + 1, sizeof *moments);
    size_t n_moments = 0;
    for (size_t i = 0; i < g->states.n; i++)
        if (g->states.items[i]->kind == TT_STATE_OPTIMIZER)
            moments[n_moments++] = g->states.items[i];
    l->numbers = tt_map_new(l->a);
    for (size_t i = 0; i < g->params.n; i++) {
        const tt_param_info *p = g->params.items[i];
        tt_vec_push(l->a, &l->params, param_of(l, p, p->stack->param));
        tt_map_set(l->numbers, p->name, (void *)(intptr_t)l->params.n);
        for (size_t j = 0; l->plan->state[p->stack->param->id] >= 0 && j < n_moments; j++)
            if (moments[j]->stack == p->stack && is_here(l, moments[j], p))
                tt_vec_push(l->a, &l->params, param_of(l, p, moments[j]));
    }
    for (size_t i = 0; i < g->states.n; i++)
        if (g->states.items[i]->kind == TT_STATE_BUFFER) {
            tt_vec_push(l->a, &l->params, buffer_of(l, g->states.items[i]));
            tt_map_set(l->numbers, g->states.items[i]->name, (void *)(intptr_t)l->params.n);
        }
}
