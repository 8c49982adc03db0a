/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/compile.h"
#include <math.h>

/* cut: blocks to stages. The costliest stage sets the pace of a pipeline, so its cost is made as
 * small as it can be; among such cuts the one with the least sum of squares. Exact, by dynamic
 * programming over (stage, block). */

/* FLOPs of the forward by block, as if on one rank; what moves bytes only counts 4 FLOPs a byte.
 * cost[0]: before the first block, cost[n_blocks + 1]: behind the last. */
static double *block_costs(const tt_graph *g, tt_arena *a)
{
    double *cost = tt_arena_array(a, (size_t)g->n_blocks + 2, sizeof *cost);
    int last = -1;
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        const tt_type *in[TT_MAX_INS];
        tt_type out[TT_MAX_OUTS];
        if (n->block >= 0)
            last = n->block;
        if (!n->op->cost || n->virtual_)
            continue;
        for (int k = 0; k < n->n_in; k++)
            in[k] = &n->in[k]->type;
        for (int k = 0; k < n->n_out; k++)
            out[k] = n->out[k]->type;
        const tt_shape_query q = {.struct_size = sizeof q,
                                  .n_in = n->n_in,
                                  .in = in,
                                  .attrs = n->attrs,
                                  .op = n->op->name};
        const tt_cost c = n->op->cost(&q, out);
        const int at = n->block >= 0 ? n->block : last == g->n_blocks - 1 ? last + 1 : last;
        cost[at + 1] += TT_MAXV(c.flops, 4 * c.bytes);
    }
    return cost;
}

typedef struct cutter {
    int n_blocks, n_stages;
    const double *before; /* [b]: cost of the blocks before b; the ends belong to the first, last */
    double ends[2];
    double *best; /* [stage * (n_blocks + 1) + b]: of stages 0 … stage over blocks 0 … b-1 */
    int *from;    /* where the last of them begins */
} cutter;

static double stage_cost(const cutter *c, int stage, int begin, int end)
{
    return c->before[end] - c->before[begin] + (stage == 0 ? c->ends[0] : 0) +
           (stage == c->n_stages - 1 ? c->ends[1] : 0);
}

/* Over all cuts: the least maximum (limit < 0), or the least sum of squares with no stage above
 * limit. */
static double solve(cutter *c, double limit)
{
    const int w = c->n_blocks + 1;
    for (int s = 0; s < c->n_stages; s++)
        for (int b = s + 1; b <= c->n_blocks; b++) {
            double least = (double)INFINITY;
            for (int k = s; k < b && (s > 0 || k == 0); k++) {
                const double own = stage_cost(c, s, k, b),
                             so_far = s ? c->best[(s - 1) * w + k] : 0;
                const double all = limit < 0                  ? TT_MAXV(own, so_far)
                                   : own > limit * (1 + 1e-9) ? (double)INFINITY
                                                              : own * own + so_far;
                if (all < least) {
                    least = all;
                    c->from[s * w + b] = k;
                }
            }
            c->best[s * w + b] = least;
        }
    return c->best[(c->n_stages - 1) * w + c->n_blocks];
}

static void cut_by_cost(const tt_graph *g, int n_stages, tt_arena *a, int *at)
{
    const double *cost = block_costs(g, a);
    double *before = tt_arena_array(a, (size_t)g->n_blocks + 1, sizeof *before);
    for (int b = 0; b < g->n_blocks; b++)
        before[b + 1] = before[b] + cost[b + 1];
    const size_t cells = (size_t)n_stages * ((size_t)g->n_blocks + 1);
    cutter c = {
        .n_blocks = g->n_blocks,
        .n_stages = n_stages,
        .before = before,
        .ends = {cost[0], cost[g->n_blocks + 1]},
        .best = tt_arena_array(a, cells, sizeof *c.best),
        .from = tt_arena_array(a, cells, sizeof *c.from)
    };
    solve(&c, solve(&c, -1));
    for (int s = n_stages - 1, end = g->n_blocks; s >= 0; s--) {
        const int begin = c.from[s * (g->n_blocks + 1) + end];
        for (int b = begin; b < end; b++)
            at[b] = s;
        end = begin;
    }
}

tt_status tt_cut_blocks(const tt_graph *described, int n_stages, const int *begin, tt_arena *a,
                        int **block_stage, tt_error *err)
{
    const int n = described->n_blocks;
    int *at = tt_arena_array(a, (size_t)n + 1, sizeof *at);
    if (n_stages > n)
        return TT_FAIL(err, TT_EINVAL,
                       "parallelism.pipeline_parallel_degree: %d stages, but the model has %d "
                       "blocks: use at most that many",
                       n_stages, n);
    for (int s = 0; begin && s < n_stages; s++) {
        const int end = s + 1 < n_stages ? begin[s + 1] : n;
        if (begin[s] < 0 || begin[s] >= end || end > n || (s == 0 && begin[0] != 0))
            return TT_FAIL(err, TT_EINVAL,
                           "parallelism: the job puts layers %d to %d of %d on pipeline stage %d: "
                           "stages take one layer or more each, in order",
                           begin[s], end - 1, n, s);
        for (int b = begin[s]; b < end; b++)
            at[b] = s;
    }
    if (!begin)
        cut_by_cost(described, n_stages, a, at);
    *block_stage = at;
    return TT_OK;
}
