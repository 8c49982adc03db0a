/* SPDX-License-Identifier: Apache-2.0 */
#include "train/train.h"

/* How long a step takes on a machine, from the plan alone: each node's time, summed over the
 * actions of the schedule. Communication is not hidden behind compute here, as the executor does
 * not hide it. */

typedef struct sums { /* of one stage, on its rank with the largest boxes */
    tt_seconds region[TT_UPDATE + 1];
    double part[TT_N_PARTS]; /* of a micro-batch */
} sums;

static double all(const tt_seconds *t)
{
    return t->compute + t->comm;
}

static void sum_nodes(const tt_graph *g, const tt_machine *m, sums *stages, tt_step_time *out)
{
    double by_dtype[TT_N_DTYPES] = {0};
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        if (n->virtual_)
            continue;
        const tt_seconds t = tt_node_seconds(g, n, m);
        stages[n->stage].region[n->region].compute += t.compute;
        stages[n->stage].region[n->region].comm += t.comm;
        if (n->region <= TT_BACKWARD)
            stages[n->stage].part[tt_node_part(n)] += all(&t);
        if (n->n_in)
            by_dtype[n->in[0]->type.dtype] += tt_node_cost(g, n).flops;
    }
    tt_dtype most = TT_F32;
    for (int t = 0; t < TT_N_DTYPES; t++)
        if (by_dtype[t] > by_dtype[most])
            most = (tt_dtype)t;
    out->peak = tt_machine_flops(m, most);
}

/* One message a boundary and direction: all values that cross it. */
static double longest_transfer(const tt_graph *g, const tt_machine *m)
{
    double longest = 0;
    for (int s = 0; s < g->n_stages; s++)
        for (int r = TT_FORWARD; r <= TT_BACKWARD; r++) {
            double t = 0;
            for (size_t i = 0; i < g->nodes.n; i++) {
                const tt_node *n = g->nodes.items[i];
                if (n->op == &tt_op_transfer && n->in[0]->node->stage == s && (int)n->region == r)
                    t += tt_transfer_seconds(g, n->in[0], m);
            }
            longest = TT_MAXV(longest, t);
        }
    return longest;
}

void tt_step_time_of(const tt_setup *s, const tt_machine *m, tt_step_time *out)
{
    const tt_graph *g = s->graph;
    tt_arena *a = tt_arena_new();
    sums *stages = tt_arena_array(a, (size_t)g->n_stages, sizeof *stages);
    *out = (tt_step_time){0};
    sum_nodes(g, m, stages, out);
    tt_stage_cost *cost = tt_arena_array(a, (size_t)g->n_stages, sizeof *cost);
    double *once = tt_arena_array(a, (size_t)s->schedule->n_ranks, sizeof *once);
    double *comm = tt_arena_array(a, (size_t)s->schedule->n_ranks, sizeof *comm), longest = 0;
    for (int i = 0; i < g->n_stages; i++) {
        const tt_seconds *r = stages[i].region;
        const int rank = s->schedule->stage_rank[i];
        const double *part = stages[i].part;
        cost[i] = (tt_stage_cost){part[TT_PART_F], part[TT_PART_I], part[TT_PART_W]};
        once[rank] += all(&r[TT_EPILOGUE]) + all(&r[TT_UPDATE]);
        comm[rank] += (r[TT_FORWARD].comm + r[TT_BACKWARD].comm) * (double)s->micro_batches +
                      r[TT_EPILOGUE].comm + r[TT_UPDATE].comm;
    }
    for (int r = 0; r < s->schedule->n_ranks; r++) {
        longest = TT_MAXV(longest, once[r]);
        out->comm = TT_MAXV(out->comm, comm[r]);
    }
    const tt_costs costs = {cost, longest_transfer(g, m)};
    tt_run run = {0};
    if (tt_schedule_run(s->schedule, &costs, a, &run, NULL) == TT_OK)
        out->bubble = tt_schedule_bubble(s->schedule, &costs);
    out->step = run.makespan + longest;
    const double flops =
        s->size.flops_per_token * (double)s->global_batch * (double)s->core.training.seq_len;
    if (out->peak > 0 && out->step > 0)
        out->mfu = flops / (out->step * out->peak * s->world);
    out->tokens_per_second = (double)s->global_batch * (double)s->core.training.seq_len / out->step;
    tt_arena_free(a);
}
