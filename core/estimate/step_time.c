/* SPDX-License-Identifier: Apache-2.0 */
#include "estimate/estimate.h"
#include "plan/hidden.h"

/* How long a step takes on a machine, from the plan alone: the time of every instruction list of a
 * rank, without the communication that computing hides, summed over the schedule's actions. */

typedef struct sums {              /* the times of one stage, on its rank with the largest boxes */
    double part[TT_N_PARTS], once; /* per micro-batch; per step (epilogue and update) */
    tt_list_seconds micro, step;   /* the communication in these */
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

/* The nodes of a stage, in order. */
typedef struct nodes {
    tt_node **items;
    int n;
} nodes;

static nodes *by_stage(const tt_graph *g, tt_arena *a)
{
    nodes *of = tt_arena_array(a, (size_t)g->n_stages, sizeof *of);
    for (size_t i = 0; i < g->nodes.n; i++)
        of[g->nodes.items[i]->stage].n++;
    for (int s = 0; s < g->n_stages; s++) {
        of[s].items = tt_arena_array(a, (size_t)of[s].n + 1, sizeof *of[s].items);
        of[s].n = 0;
    }
    for (size_t i = 0; i < g->nodes.n; i++) {
        nodes *s = &of[g->nodes.items[i]->stage];
        s->items[s->n++] = g->nodes.items[i];
    }
    return of;
}

/* The times of a stage's lists: of each part, or of all parts as one list if they follow each
 * other, and of epilogue and update. */
static void sum_list(const tt_graph *g, const nodes *stage, int which, const tt_machine *m,
                     tt_arena *a, sums *out)
{
    tt_node **l = tt_arena_array(a, (size_t)stage->n + 1, sizeof *l);
    double *at = tt_arena_array(a, (size_t)stage->n + 1, sizeof *at);
    int n = 0;
    for (int i = 0; i < stage->n; i++) {
        tt_node *x = stage->items[i];
        const int list = x->region > TT_BACKWARD   ? TT_N_PARTS
                         : tt_plan_one_timeline(g) ? 0
                                                   : (int)tt_node_part(x);
        if (list == which)
            l[n++] = x;
    }
    const tt_list_seconds s = tt_nodes_seconds(g, l, n, m, at);
    tt_list_seconds *sum = which == TT_N_PARTS ? &out->step : &out->micro;
    sum->comm += s.comm;
    sum->exposed += s.exposed;
    for (int i = 0; i < n; i++)
        *(which == TT_N_PARTS ? &out->once : &out->part[tt_node_part(l[i])]) += at[i];
}

/* The time of a message: all values that cross a stage boundary in one direction. */
static double longest_transfer(const tt_graph *g, const tt_machine *m)
{
    double longest = 0, of[TT_MAX_STAGES][2] = {{0}};
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        if (n->op != &tt_op_transfer || n->region > TT_BACKWARD)
            continue;
        double *t = &of[n->in[0]->node->stage][n->region == TT_BACKWARD];
        *t += tt_message_seconds(g, (double)tt_plan_value_bytes(g, n->in[0]), m);
        longest = TT_MAXV(longest, *t);
    }
    return longest;
}

void tt_step_time_of(const tt_setup *s, const tt_machine *m, tt_step_time *out)
{
    const tt_graph *g = s->graph;
    tt_arena *a = tt_arena_new();
    sums *stages = tt_arena_array(a, (size_t)g->n_stages, sizeof *stages);
    *out = (tt_step_time){0};
    find_peak(g, m, out);
    const nodes *of_stage = by_stage(g, a);
    for (int i = 0; i < g->n_stages; i++)
        for (int which = 0; which <= TT_N_PARTS; which++)
            sum_list(g, &of_stage[i], which, m, a, &stages[i]);
    tt_stage_cost *cost = tt_arena_array(a, (size_t)g->n_stages, sizeof *cost);
    double *once = tt_arena_array(a, (size_t)s->schedule->n_ranks, sizeof *once);
    tt_list_seconds *of = tt_arena_array(a, (size_t)s->schedule->n_ranks, sizeof *of);
    double longest = 0;
    for (int i = 0; i < g->n_stages; i++) {
        const int rank = s->schedule->stage_rank[i];
        const sums *x = &stages[i];
        const double *part = x->part, times = (double)s->micro_batches;
        cost[i] = (tt_stage_cost){part[TT_PART_F], part[TT_PART_I], part[TT_PART_W]};
        once[rank] += x->once;
        of[rank].comm += x->micro.comm * times + x->step.comm;
        of[rank].exposed += x->micro.exposed * times + x->step.exposed;
    }
    for (int r = 0; r < s->schedule->n_ranks; r++) {
        longest = TT_MAXV(longest, once[r]);
        out->comm = TT_MAXV(out->comm, of[r].comm);
        out->exposed = TT_MAXV(out->exposed, of[r].exposed);
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
