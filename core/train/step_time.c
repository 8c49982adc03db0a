/* SPDX-License-Identifier: Apache-2.0 */
#include "train/train.h"

/* How long a step takes on a machine, from the plan alone: each node's time, summed over the
 * actions of the schedule. Communication is not hidden behind compute here, as the executor does
 * not hide it. */

typedef struct sums { /* of one stage, on its rank with the largest boxes */
    tt_seconds region[TT_UPDATE + 1];
} sums;

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
    double forward = 0, backward = 0, once = 0;
    for (int i = 0; i < g->n_stages; i++) {
        const tt_seconds *r = stages[i].region;
        forward = TT_MAXV(forward, r[TT_FORWARD].compute + r[TT_FORWARD].comm);
        backward = TT_MAXV(backward, r[TT_BACKWARD].compute + r[TT_BACKWARD].comm);
        const double micro = r[TT_FORWARD].comm + r[TT_BACKWARD].comm,
                     step = r[TT_EPILOGUE].comm + r[TT_UPDATE].comm;
        out->comm = TT_MAXV(out->comm, micro * (double)s->micro_batches + step);
        once = TT_MAXV(once, r[TT_EPILOGUE].compute + r[TT_UPDATE].compute + step);
    }
    if (g->n_stages > 1) {
        const double t = longest_transfer(g, m);
        forward += t;
        backward += t;
        out->bubble = tt_schedule_bubble(s->schedule, forward, backward);
    }
    out->step = (forward + backward) * (double)s->micro_batches / (1 - out->bubble) + once;
    const double flops =
        s->size.flops_per_token * (double)s->global_batch * (double)s->core.training.seq_len;
    if (out->peak > 0 && out->step > 0)
        out->mfu = flops / (out->step * out->peak * s->world);
    out->tokens_per_second = (double)s->global_batch * (double)s->core.training.seq_len / out->step;
    tt_arena_free(a);
}
