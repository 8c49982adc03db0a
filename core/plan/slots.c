/* SPDX-License-Identifier: Apache-2.0 */
#include "cost/cost.h"
#include "plan/plan_impl.h"
#include <string.h>

/* Makes the programs of all ranks from the schedule and the graph's costs, and finds the slots
 * of this rank. */

static double message_cost(const tt_graph *g, const tt_value *v)
{
    return tt_message_seconds(g, (double)tt_plan_bytes(g, &v->type, &v->place), &tt_machine_order);
}

/* The time of F, I and W of each stage, and of a message. The order of all ranks' programs
 * follows from it, so it must depend on the graph alone: it is estimated on tt_machine_order
 * (P2). */
static void plan_costs(const tt_graph *g, tt_arena *a, tt_costs *out)
{
    tt_stage_cost *s = tt_arena_array(a, (size_t)g->n_stages, sizeof *s);
    double message = 0;
    for (int i = 0; i < g->n_stages; i++)
        s[i] = (tt_stage_cost){1, 1, 1}; /* no stage takes zero time */
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        if (n->when->region > TT_BACKWARD)
            continue;
        if (n->op == &tt_op_transfer)
            message = TT_MAXV(message, message_cost(g, n->out[0]));
        const tt_stage_part part = tt_node_part(n);
        const tt_seconds t = tt_node_seconds(g, n, &tt_machine_order);
        *(part == TT_PART_F   ? &s[n->when->stage].f
          : part == TT_PART_I ? &s[n->when->stage].i
                              : &s[n->when->stage].w) += t.compute + t.comm;
    }
    *out = (tt_costs){s, message};
}

/* The most values that a message has: they share the buffered sends. */
static int most_values(const tt_graph *g)
{
    int count[2][TT_MAX_STAGES] = {{0}}, most = 1;
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        if (n->op == &tt_op_transfer && n->when->region <= TT_BACKWARD) {
            const int k = ++count[n->when->region == TT_BACKWARD][n->in[0]->node->when->stage];
            most = TT_MAXV(most, k);
        }
    }
    return most;
}

static void find_slots(planner *p, tt_stage_plan *s, const tt_slots *slots)
{
    const tt_schedule *sc = p->plan->schedule;
    s->in_slots = p->plan->graph->n_stages > 1;
    for (int h = 0; h < TT_N_HOLDS; h++) {
        s->n_slots[h] = slots->count[s->stage * TT_N_LIVES + h];
        s->slot[h] = tt_arena_array(p->a, (size_t)sc->n_micro, sizeof *s->slot[h]);
    }
    for (int i = 0; i < slots->n; i++)
        if (slots->lives[i].stage == s->stage && slots->lives[i].hold < TT_N_HOLDS)
            s->slot[slots->lives[i].hold][slots->lives[i].micro] = slots->lives[i].slot;
}

static tt_status make_programs(planner *p, tt_arena *scratch, tt_error *err)
{
    tt_plan *plan = p->plan;
    const tt_graph *g = plan->graph;
    tt_run run;
    plan_costs(g, p->a, &plan->costs);
    TT_TRY(tt_schedule_run(plan->schedule, &plan->costs, scratch, &run, err));
    const tt_issue issue = {.n_buffers = TT_BUFFERED_SENDS / most_values(g)}, unbuffered = {0};
    plan->programs = tt_programs_make(plan->schedule, &run, &issue, p->a);
    plan->buffered_messages = issue.n_buffers;
    const tt_program *outlines = tt_program_outlines(g, plan->schedule, scratch);
    for (int r = 0; r < plan->schedule->n_ranks; r++)
        plan->hash = tt_program_hash(&outlines[r], plan->hash);
    TT_TRY(tt_plan_check_ranks(g, plan->programs,
                               tt_programs_make(plan->schedule, &run, &unbuffered, scratch),
                               outlines, err));
    return tt_programs_bubble(plan->programs, &plan->costs, issue.n_buffers, scratch, &plan->bubble,
                              err);
}

tt_status tt_plan_programs(planner *p, tt_error *err)
{
    tt_plan *plan = p->plan;
    const tt_plan *like = p->o->like;
    tt_slots slots;
    if (like) {
        TT_ASSERT(like->graph == plan->graph && like->schedule == plan->schedule);
        plan->costs = like->costs;
        plan->programs = like->programs;
        plan->buffered_messages = like->buffered_messages;
        plan->bubble = like->bubble;
    } else {
        tt_arena *scratch = tt_arena_new();
        const tt_status st = make_programs(p, scratch, err);
        tt_arena_free(scratch);
        TT_TRY(st);
    }
    tt_arena *a = tt_arena_new();
    tt_slots_make(plan->programs, plan->pp_rank, a, &slots);
    for (int i = 0; i < plan->n_stages; i++)
        find_slots(p, &plan->stages[i], &slots);
    tt_arena_free(a);
    return TT_OK;
}
