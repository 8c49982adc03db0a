/* SPDX-License-Identifier: Apache-2.0 */
#include "cost/cost.h"
#include "passes/compile.h"
#include <math.h>

/* cut: assigns blocks to stages. The stage that costs most limits the speed of a pipeline, so
 * its cost is made as small as possible; among such cuts, the one with the least sum of squared
 * costs is taken. Dynamic programming over (stage, block) finds it exactly. The first stage may
 * consist of the nodes before the first block alone (an embedding), and the last stage of the
 * nodes after the last block (a head). */

/* The cost of the forward by block, as on one rank. cost[0] is before the first block,
 * cost[n_blocks + 1] after the last one. A FLOP of attention counts as much as any other. With
 * the weights that order programs, 14 of 42 cuts of 7 models differ, at long contexts, and the
 * bubble is no smaller (8B with 32,768 tokens: 21.1 % instead of 20.6 on 2 ranks, 30.3 instead
 * of 30.7 on 4). */
static double *block_costs(const tt_graph *g, tt_arena *a)
{
    double *cost = tt_arena_array(a, (size_t)g->n_blocks + 2, sizeof *cost);
    int last = -1;
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        tt_work w = tt_node_work(g, n);
        w.cls = TT_CLASS_OTHER;
        if (n->block >= 0)
            last = n->block;
        const int at = n->block >= 0 ? n->block : last == g->n_blocks - 1 ? last + 1 : last;
        cost[at + 1] += tt_work_seconds(&w, &tt_machine_order);
    }
    return cost;
}

typedef struct cutter {
    int n_blocks, n_stages;
    const double *before; /* [b]: cost of the blocks before b */
    double ends[2];       /* of the nodes that belong to the first and to the last stage */
    double *best; /* [stage * (n_blocks + 1) + b]: of stages 0 … stage over blocks 0 … b-1 */
    int *from;    /* the first block of the last of these stages */
} cutter;

static double stage_cost(const cutter *c, int stage, int begin, int end)
{
    return c->before[end] - c->before[begin] + (stage == 0 ? c->ends[0] : 0) +
           (stage == c->n_stages - 1 ? c->ends[1] : 0);
}

static bool may_be_empty(const cutter *c, int stage)
{
    return (stage == 0 && c->ends[0] > 0) || (stage == c->n_stages - 1 && c->ends[1] > 0);
}

/* The best of all cuts: the least maximum (limit < 0), or the least sum of squares where no
 * stage costs more than limit. */
static double solve(cutter *c, double limit)
{
    const int w = c->n_blocks + 1;
    for (int s = 0; s < c->n_stages; s++)
        for (int b = 0; b <= c->n_blocks; b++) {
            const int most = s == 0 ? 0 : b;
            double least = (double)INFINITY;
            for (int k = 0; k <= most; k++) {
                if (k == b && !may_be_empty(c, s))
                    continue;
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

static void cut_by_cost(cutter *c, tt_arena *a, int *at)
{
    const int w = c->n_blocks + 1;
    c->best = tt_arena_array(a, (size_t)c->n_stages * (size_t)w, sizeof *c->best);
    c->from = tt_arena_array(a, (size_t)c->n_stages * (size_t)w, sizeof *c->from);
    solve(c, solve(c, -1));
    for (int s = c->n_stages - 1, end = c->n_blocks; s >= 0; s--) {
        const int begin = c->from[s * w + end];
        for (int b = begin; b < end; b++)
            at[b] = s;
        end = begin;
    }
}

static tt_status cut_as_told(const cutter *c, const int *begin, int *at, tt_error *err)
{
    const int n = c->n_blocks;
    for (int s = 0; s < c->n_stages; s++) {
        const int from = TT_MIN(begin[s], n),
                  end = s + 1 < c->n_stages ? TT_MIN(begin[s + 1], n) : n;
        const bool empty = from == end && may_be_empty(c, s);
        if (from < 0 || (from >= end && !empty) || (s == 0 && from != 0))
            return TT_FAIL(err, TT_EINVAL,
                           "parallelism: the job puts layers %d to %d of %d on pipeline stage %d: "
                           "stages take one layer or more each, in order; the first may be the "
                           "embedding alone, the last the head",
                           from, end - 1, n, s);
        for (int b = from; b < end; b++)
            at[b] = s;
    }
    return TT_OK;
}

tt_status tt_cut_blocks(const tt_graph *described, int n_stages, const int *begin, tt_arena *a,
                        int **block_stage, tt_error *err)
{
    const int n = described->n_blocks;
    const double *cost = block_costs(described, a);
    double *before = tt_arena_array(a, (size_t)n + 1, sizeof *before);
    for (int b = 0; b < n; b++)
        before[b + 1] = before[b] + cost[b + 1];
    cutter c = {
        .n_blocks = n, .n_stages = n_stages, .before = before, .ends = {cost[0], cost[n + 1]}
    };
    const int most = n + (cost[0] > 0) + (cost[n + 1] > 0);
    if (n_stages > most)
        return TT_FAIL(err, TT_EINVAL,
                       "parallelism.pipeline_parallel_degree: %d stages, but the model has %d "
                       "blocks: use at most %d, which leaves the nodes before and after them "
                       "stages of their own",
                       n_stages, n, most);
    *block_stage = tt_arena_array(a, (size_t)n + 1, sizeof **block_stage);
    if (begin)
        return cut_as_told(&c, begin, *block_stage, err);
    cut_by_cost(&c, a, *block_stage);
    return TT_OK;
}
