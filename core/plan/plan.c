/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/memory.h"
#include "plan/plan_impl.h"
#include <string.h>

/* Makes a plan step by step, and finds the offsets of states. */

/* What the host writes and what it reads each step come first, so that one copy each is enough. */
typedef enum state_order { WRITTEN_BY_HOST, READ_BY_HOST, OTHER_STATE, N_STATE_ORDERS } state_order;

static state_order order_of(const tt_state *s)
{
    if (s->kind == TT_STATE_SCALAR)
        return WRITTEN_BY_HOST;
    return s->kind == TT_STATE_METRIC && (!s->type.n_dims || s->for_host) ? READ_BY_HOST
                                                                          : OTHER_STATE;
}

static void place_states(planner *p)
{
    const tt_graph *g = p->plan->graph;
    uint64_t mine = 0;
    int64_t at = 0,
            *end[] = {&p->plan->written_end, &p->plan->read_end, &p->plan->bytes[TT_SPACE_STATE]};
    for (int s = 0; s < p->plan->n_stages; s++)
        mine |= UINT64_C(1) << p->plan->stages[s].stage;
    p->plan->state = tt_arena_array(p->a, g->states.n + 1, sizeof *p->plan->state);
    for (int o = 0; o < N_STATE_ORDERS; o++) {
        for (size_t i = 0; i < g->states.n; i++) {
            const tt_state *s = g->states.items[i];
            const bool here = (s->stages & mine) || (!s->stages && s->kind == TT_STATE_SCALAR);
            if (order_of(s) != (state_order)o)
                continue;
            p->plan->state[i] = here ? at : -1;
            if (!here)
                continue;
            const int64_t bytes = tt_plan_bytes(g, &s->type, &s->place);
            if (s->offloaded) {
                p->plan->state[i] = p->plan->bytes[TT_SPACE_PINNED];
                p->plan->bytes[TT_SPACE_PINNED] += bytes;
                continue;
            }
            p->plan->state_bytes_by_kind[s->kind] += bytes;
            at += bytes;
        }
        *end[o] = at;
    }
}

tt_space tt_plan_state_space(const tt_state *s)
{
    return s->offloaded ? TT_SPACE_PINNED : TT_SPACE_STATE;
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
                *l = (tt_loc){tt_plan_state_space(n->state), 0, n->state, -1};
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
    plan->program->kept = o->replays ? tt_program_most_written(plan->program) : 0;
    plan->hash = o->like ? o->like->hash : hash_of(plan);
    TT_TRY(tt_program_verify(plan->program, err));
    *out = plan;
    return TT_OK;
}
