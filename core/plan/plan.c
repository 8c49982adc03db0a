/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan_impl.h"
#include <string.h>

/* Types, states, and the order in which a plan is made. */

bool tt_plan_is_view(const tt_node *n)
{
    return (n->op->flags & TT_OP_VIEW) && n->n_in >= 1 && !n->accumulate_into;
}

const tt_value *tt_plan_alias(const tt_value *v)
{
    for (;;) {
        if (v->within)
            v = v->within;
        else if (tt_plan_is_view(v->node))
            v = v->node->in[0];
        else
            return v;
    }
}

bool tt_plan_is_slice(const tt_node *n)
{
    return n->step && n->step->kind == TT_STEP_SLICE && n->out[0]->within == n->in[0];
}

const tt_value *tt_plan_source(const tt_value *v)
{
    while (tt_plan_is_view(v->node) || tt_plan_is_slice(v->node))
        v = v->node->in[0];
    return v;
}

int64_t tt_plan_skip(const tt_graph *g, const tt_value *v, const int32_t *coords)
{
    static const int32_t origin[TT_MAX_ATOMS];
    int64_t bytes = 0;
    if (!coords)
        coords = origin;
    for (;;) {
        const tt_value *w = v->within;
        if (!w && !tt_plan_is_view(v->node))
            return bytes;
        if (w) {
            tt_box mine, its;
            int64_t row = (int64_t)tt_dtype_size(w->type.dtype);
            tt_box_of(g->mesh, v->type.dims, v->type.n_dims, &v->place, coords, &mine);
            tt_box_of(g->mesh, w->type.dims, w->type.n_dims, &w->place, coords, &its);
            for (int d = 1; d < w->type.n_dims; d++)
                row *= its.end[d] - its.begin[d];
            bytes += (mine.begin[0] - its.begin[0]) * row;
        }
        v = w ? w : v->node->in[0];
    }
}

void tt_plan_tensor(const tt_graph *g, const tt_value *v, const int32_t *coords, tt_tensor *out)
{
    memset(out, 0, sizeof *out);
    out->dtype = v->type.dtype;
    out->n_dims = v->type.n_dims;
    for (int d = 0; d < v->type.n_dims; d++) {
        const tt_dim *dim = &v->type.dims[d];
        int64_t b = 0, e = 0;
        out->global[d] = dim->size;
        if (coords) {
            tt_dim_box(g->mesh, dim, v->place.atom[d], v->place.n[d], coords, &b, &e);
            out->begin[d] = b;
            out->shape[d] = e - b;
        } else {
            out->shape[d] = tt_chunk(g->mesh, dim, v->place.atom[d], v->place.n[d]);
        }
    }
}

int64_t tt_plan_bytes(const tt_graph *g, const tt_type *t, const tt_placement *p)
{
    const int64_t n = tt_max_local_numel(g->mesh, t->dims, t->n_dims, p);
    return tt_plan_round(n * (int64_t)tt_dtype_size(t->dtype));
}

bool tt_plan_per_token(const tt_graph *g, const tt_value *v)
{
    const tt_dim *d = v->type.dims;
    return v->type.n_dims >= 1 && d->size == g->tokens && d->lines == g->lines &&
           (!d->label || !strcmp(d->label, TT_LABEL_TOKENS)); /* no table of as many rows */
}

int64_t tt_plan_value_bytes(const tt_graph *g, const tt_value *v)
{
    const int64_t whole = tt_plan_bytes(g, &v->type, &v->place);
    if (!v->chunked)
        return whole;
    const int64_t rows = tt_chunk(g->mesh, &v->type.dims[0], v->place.atom[0], v->place.n[0]);
    if (rows <= g->chunk_rows)
        return whole;
    const int64_t n =
        tt_max_local_numel(g->mesh, v->type.dims, v->type.n_dims, &v->place) / rows * g->chunk_rows;
    return tt_plan_round(n * (int64_t)tt_dtype_size(v->type.dtype));
}

/* ---- states ---- */

static void place_states(planner *p)
{
    const tt_graph *g = p->plan->graph;
    uint64_t mine = 0;
    int64_t at = 0;
    for (int s = 0; s < p->plan->n_stages; s++)
        mine |= UINT64_C(1) << p->plan->stages[s].stage;
    p->plan->state = tt_arena_array(p->a, g->states.n + 1, sizeof *p->plan->state);
    for (size_t i = 0; i < g->states.n; i++) {
        const tt_state *s = g->states.items[i];
        const bool here = (s->stages & mine) || (!s->stages && s->kind == TT_STATE_SCALAR);
        p->plan->state[i] = here ? at : -1;
        if (!here)
            continue;
        const int64_t bytes = tt_plan_bytes(g, &s->type, &s->place);
        p->plan->state_bytes_by_kind[s->kind] += bytes;
        at += bytes;
    }
    p->plan->bytes[TT_SPACE_STATE] = at;
}

static void finish_locations(planner *p)
{
    const tt_graph *g = p->plan->graph;
    for (size_t i = 0; i < g->nodes.n; i++)
        for (int j = 0; j < g->nodes.items[i]->n_out; j++) {
            const tt_value *v = g->nodes.items[i]->out[j], *r = tt_plan_alias(v);
            const tt_node *n = r->node;
            tt_loc *l = &p->plan->value[v->id];
            if (n->op == &tt_op_param)
                *l = (tt_loc){TT_SPACE_STATE, 0, n->param->stack->param, n->param->index};
            else if (n->op == &tt_op_state)
                *l = (tt_loc){TT_SPACE_STATE, 0, n->state, -1};
            else if (n->accumulate_into && r->out == 0)
                *l = (tt_loc){TT_SPACE_STATE, 0, n->accumulate_into, n->accumulate_index};
            else if (n->assign_to && n->assign_to[r->out])
                *l = (tt_loc){TT_SPACE_STATE, 0, n->assign_to[r->out], -1};
            else
                *l = p->plan->value[r->id];
        }
}

static uint64_t hash_of(const tt_plan *p)
{
    tt_str text = {0};
    tt_graph_print(p->graph, &text);
    tt_programs_print(p->programs, &text);
    const uint64_t h =
        tt_hash64(tt_str_get(&text), text.n, p->hash + (uint64_t)p->schedule->n_micro);
    tt_str_free(&text);
    return h;
}

tt_status tt_plan_make(const tt_graph *g, const tt_plan_opts *o, tt_arena *a, tt_plan **out,
                       tt_error *err)
{
    planner p = {.o = o, .a = a};
    tt_plan *plan = p.plan = tt_arena_alloc(a, sizeof *plan);
    if (o->schedule->n_stages != g->n_stages)
        return TT_FAIL(err, TT_EINTERNAL, "a schedule of %d stages for a graph of %d",
                       o->schedule->n_stages, g->n_stages);
    tt_plan_lists(g, o->schedule, o->pp_rank, a, plan);
    plan->value = tt_arena_array(a, (size_t)g->n_values + 1, sizeof *plan->value);
    plan->scratch = tt_arena_array(a, (size_t)g->n_ids + 1, sizeof *plan->scratch);
    plan->scratch_bytes = tt_arena_array(a, (size_t)g->n_ids + 1, sizeof *plan->scratch_bytes);
    plan->in_place = tt_arena_array(a, (size_t)g->n_ids + 1, sizeof *plan->in_place);
    memset(plan->scratch, 0xff, ((size_t)g->n_ids + 1) * sizeof *plan->scratch);
    memset(plan->in_place, 0xff, ((size_t)g->n_ids + 1) * sizeof *plan->in_place);
    p.live = tt_arena_array(a, (size_t)g->n_values + 1, sizeof *p.live);
    TT_TRY(tt_plan_programs(&p, err));
    place_states(&p);
    for (int i = 0; i < plan->n_stages; i++)
        tt_plan_stage_lives(&p, &plan->stages[i]);
    tt_plan_step_lives(&p);
    finish_locations(&p);
    plan->program = tt_arena_alloc(a, sizeof *plan->program);
    tt_program_make(plan, o->coords, a, plan->program);
    plan->hash = o->like ? o->like->hash : hash_of(plan);
    TT_TRY(tt_program_verify(plan->program, err));
    *out = plan;
    return TT_OK;
}
