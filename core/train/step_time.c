/* SPDX-License-Identifier: Apache-2.0 */
#include "train/train.h"

/* How long a step takes on a machine, from the plan alone: each node's time, summed by the parts of
 * its stage, run in virtual time through the schedule. Communication is not hidden behind compute
 * here, as the executor does not hide it. */

typedef struct sums { /* of one stage, on its rank with the largest boxes */
    tt_seconds part[TT_N_PARTS], once;
} sums;

static void add(tt_seconds *to, tt_seconds t)
{
    to->compute += t.compute;
    to->comm += t.comm;
}

static void sum_nodes(const tt_graph *g, const tt_machine *m, sums *stages, tt_step_time *out)
{
    double by_dtype[TT_N_DTYPES] = {0};
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        sums *s = &stages[n->stage];
        if (n->virtual_)
            continue;
        add(n->region <= TT_BACKWARD ? &s->part[tt_node_part(n)] : &s->once,
            tt_node_seconds(g, n, m));
        if (n->n_in)
            by_dtype[n->in[0]->type.dtype] += tt_node_cost(g, n).flops;
    }
    tt_dtype most = TT_F32;
    for (int t = 0; t < TT_N_DTYPES; t++)
        if (by_dtype[t] > by_dtype[most])
            most = (tt_dtype)t;
    out->peak = tt_machine_flops(m, most);
}

/* All values that cross a boundary in one direction are one message. */
static double longest_message(const tt_graph *g, const tt_machine *m)
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

static double all(tt_seconds t)
{
    return t.compute + t.comm;
}

tt_status tt_step_time_of(const tt_setup *s, const tt_machine *m, tt_step_time *out, tt_error *err)
{
    const tt_graph *g = s->graph;
    tt_arena *a = tt_arena_new();
    sums *stages = tt_arena_array(a, (size_t)g->n_stages, sizeof *stages);
    tt_stage_cost *cost = tt_arena_array(a, (size_t)g->n_stages, sizeof *cost);
    tt_seconds *ranks = tt_arena_array(a, (size_t)s->pipeline_ranks, sizeof *ranks);
    double comm = 0, once = 0;
    tt_step_time t = {0};
    sum_nodes(g, m, stages, &t);
    for (int i = 0; i < g->n_stages; i++) {
        const tt_seconds *p = stages[i].part;
        tt_seconds *r = &ranks[s->schedule->stage_rank[i]];
        cost[i] = (tt_stage_cost){all(p[TT_PART_F]), all(p[TT_PART_I]), all(p[TT_PART_W])};
        for (int k = 0; k < TT_N_PARTS; k++)
            r->comm += p[k].comm * (double)s->micro_batches;
        r->comm += stages[i].once.comm;
        r->compute += all(stages[i].once);
        comm = TT_MAXV(comm, r->comm);
        once = TT_MAXV(once, r->compute);
    }
    const tt_costs costs = {cost, longest_message(g, m)};
    tt_run run;
    const tt_status st = tt_schedule_run(s->schedule, &costs, a, &run, err);
    if (st == TT_OK) {
        const double tokens = (double)s->global_batch * (double)s->core.training.seq_len;
        t.step = run.makespan + once;
        t.comm = comm;
        t.bubble = s->pipeline_ranks > 1 ? tt_schedule_bubble(s->schedule, &costs) : 0;
        t.tokens_per_second = tokens / t.step;
        if (t.peak > 0)
            t.mfu = s->size.flops_per_token * tokens / (t.step * t.peak * s->world);
        *out = t;
    }
    tt_arena_free(a);
    return st;
}
