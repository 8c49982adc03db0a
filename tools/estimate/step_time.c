/* SPDX-License-Identifier: Apache-2.0 */
#include "estimate/estimate.h"
#include "plan/hidden.h"

/* How long a step takes on a machine, from the plan alone: the time of every instruction list of a
 * rank, without the communication that computing hides, summed over the schedule's actions. */

typedef struct sums {            /* the times of a pipeline rank, with the largest boxes */
    double once;                 /* per step: epilogue and update */
    tt_list_seconds micro, step; /* communication: per micro-batch; in the epilogue and update */
} sums;

static void find_peak(const tt_graph *g, const tt_machine *m, tt_step_time *out)
{
    double by_dtype[TT_N_DTYPES] = {0};
    tt_dtype most = TT_F32;
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_work w = tt_node_work(g, g->nodes.items[i]);
        by_dtype[w.dtype] += w.flops;
    }
    for (int t = 0; t < TT_N_DTYPES; t++)
        if (by_dtype[t] > by_dtype[most])
            most = (tt_dtype)t;
    out->peak = tt_machine_flops(m, most);
}

static void add(tt_list_seconds *to, const tt_list_seconds *s)
{
    to->comm += s->comm;
    to->exposed += s->exposed;
    to->copies += s->copies;
    to->copies_exposed += s->copies_exposed;
}

/* The times of a stage's parts: each by itself, or as one list if they follow each other. */
static void sum_stage(const tt_program *p, int stage, bool one_timeline, const tt_machine *m,
                      tt_stage_cost *cost, sums *out)
{
    const tt_section *part[TT_N_PARTS];
    double of[TT_N_PARTS];
    for (int k = 0; k < TT_N_PARTS; k++)
        part[k] = tt_program_section(p, stage, (tt_section_kind)(TT_SECTION_F + k));
    for (int k = 0; k < TT_N_PARTS; k += one_timeline ? TT_N_PARTS : 1) {
        const tt_list_seconds s =
            tt_program_seconds(p, part + k, one_timeline ? TT_N_PARTS : 1, m, of + k);
        add(&out->micro, &s);
    }
    *cost = (tt_stage_cost){of[TT_PART_F], of[TT_PART_I], of[TT_PART_W]};
}

static void sum_rank(const tt_program *p, const tt_schedule *schedule, const tt_machine *m,
                     tt_stage_cost *cost, sums *out)
{
    const tt_section *const step[] = {&p->sections[p->epilogue], &p->sections[p->update]};
    double of[2];
    const tt_list_seconds s = tt_program_seconds(p, step, 2, m, of);
    out->once = of[0] + of[1];
    add(&out->step, &s);
    for (int i = 0; i < schedule->n_stages; i++)
        if (schedule->stage_rank[i] == p->pp_rank)
            sum_stage(p, i, schedule->n_stages == 1, m, &cost[i], out);
}

/* The time of a message: all values that cross a stage boundary in one direction. */
static double longest_transfer(const tt_graph *g, const tt_machine *m)
{
    double longest = 0, of[TT_MAX_STAGES][2] = {{0}};
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        if (n->op != &tt_op_transfer || n->when->region > TT_BACKWARD)
            continue;
        double *t = &of[n->in[0]->node->when->stage][n->when->region == TT_BACKWARD];
        *t += tt_message_seconds(g, (double)tt_plan_value_bytes(g, n->in[0]), m);
        longest = TT_MAXV(longest, *t);
    }
    return longest;
}

void tt_step_time_of(const tt_setup *s, const tt_machine *m, tt_step_time *out)
{
    const tt_graph *g = s->graph;
    tt_arena *a = tt_arena_new();
    const tt_schedule *schedule = s->schedule;
    const tt_program *outlines = tt_program_outlines(g, schedule, a);
    tt_stage_cost *cost = tt_arena_array(a, (size_t)g->n_stages, sizeof *cost);
    double longest = 0;
    *out = (tt_step_time){0};
    find_peak(g, m, out);
    for (int r = 0; r < schedule->n_ranks; r++) {
        const double times = (double)s->calls;
        sums of = {0};
        sum_rank(&outlines[r], schedule, m, cost, &of);
        longest = TT_MAXV(longest, of.once);
        out->comm = TT_MAXV(out->comm, of.micro.comm * times + of.step.comm);
        out->exposed = TT_MAXV(out->exposed, of.micro.exposed * times + of.step.exposed);
        out->copies = TT_MAXV(out->copies, of.micro.copies * times + of.step.copies);
        out->copies_exposed =
            TT_MAXV(out->copies_exposed, of.micro.copies_exposed * times + of.step.copies_exposed);
    }
    const tt_costs costs = {cost, longest_transfer(g, m)};
    double makespan = 0;
    const tt_status ran = tt_schedule_time(s->schedule, &costs, &makespan, &out->bubble, NULL);
    TT_ASSERT(ran == TT_OK); /* the checker has run it, and durations do not change dependencies */

    out->step = makespan + longest;
    const double flops =
        s->size.flops_per_token * (double)s->global_batch * (double)s->core.training.seq_len;
    if (out->peak > 0 && out->step > 0)
        out->mfu = flops / (out->step * out->peak * s->world);
    out->tokens_per_second = (double)s->global_batch * (double)s->core.training.seq_len / out->step;
    tt_arena_free(a);
}
