/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/passes.h"
#include <string.h>

/* split: divides the backward of a stage into I, for which the stage before waits, and W, the
 * rest (R10). I is the backward slice of the values that are sent to the stage before. Stage 0
 * sends none: its I is the backward slice of what its first block hands to the nodes before the
 * block, because with an empty I every value would be kept until W (P4). A stage 0 without
 * blocks keeps nothing. Only W accumulates gradients, so sums are added in the order in which W
 * runs (P5). */

static bool first_block(const tt_graph *g, int *block)
{
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        if (n->when->region == TT_FORWARD && n->when->stage == 0 && n->block >= 0) {
            *block = n->block;
            return true;
        }
    }
    return false;
}

/* Marks the values that I has to make. */
static void mark_goals(const tt_graph *g, bool *wanted)
{
    int block = -1;
    const bool any = first_block(g, &block);
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        if (n->when->region != TT_BACKWARD || n->role == TT_NODE_EXPANDED)
            continue;
        if (n->op == &tt_op_transfer) {
            wanted[n->in[0]->id] = true;
            continue;
        }
        for (int j = 0; any && n->when->stage == 0 && n->block < 0 && j < n->n_in; j++) {
            const tt_node *from = n->in[j]->node; /* it leaves the first block backwards */
            if (from->when->region != TT_BACKWARD || from->when->stage != 0 || from->block != block)
                continue;
            wanted[n->in[j]->id] = true;
            if (n->op->linear_inputs == TT_LINEAR_JOINT) /* the sum of such values is one, too */
                wanted[n->out[0]->id] = true;
        }
    }
}

tt_status tt_pass_split(tt_graph *g, tt_error *err)
{
    bool *wanted = tt_arena_array(g->arena, (size_t)g->n_values + 1, sizeof *wanted);
    tt_node **out = tt_arena_array(g->arena, g->nodes.n + 1, sizeof *out);
    size_t n_out = 0;
    mark_goals(g, wanted);
    for (size_t i = g->nodes.n; i-- > 0;) {
        tt_node *n = g->nodes.items[i];
        if (n->when->region != TT_BACKWARD)
            continue;
        bool input = n->op == &tt_op_transfer; /* a received cotangent */
        for (int j = 0; j < n->n_out; j++)
            input = input || wanted[n->out[j]->id];
        tt_when w = *n->when;
        w.is_weight_grad = !input || n->op == &tt_op_accumulate;
        n->when = tt_when_intern(g, w);
        for (int j = 0; input && j < n->n_in; j++)
            wanted[n->in[j]->id] = true;
    }
    /* I comes first, then W: no node of I reads one of W */
    for (int weight = 0; weight < 2; weight++)
        for (size_t i = 0; i < g->nodes.n; i++) {
            tt_node *n = g->nodes.items[i];
            const bool late = n->when->region > TT_BACKWARD || n->when->is_weight_grad;
            if (late == (weight == 1))
                out[n_out++] = n;
        }
    memcpy(g->nodes.items, out, n_out * sizeof *out);
    return tt_graph_verify(g, "split", err);
}
