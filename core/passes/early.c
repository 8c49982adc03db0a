/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/passes.h"
#include "plan/plan.h"
#include <string.h>

/* early: decides where in the backward each parameter is updated. The pass update has put the updates
 * behind the backward, one stack per parameter. The nodes of a stack are moved together and keep their order.
 * They go to the first place where
 *
 * - what they read exists: the gradient, or every addition to its accumulator;
 * - no node that follows reads the parameter, which is updated where it lies;
 * - a reduction of the gradient that runs concurrently has had a further block's time.
 *
 * Only gradients of several parts, or of the loop over token chunks, have an accumulator. The update may
 * read nothing that is known after the backward, so it is not used with max_norm, skip_nonfinite,
 * skip_norm, offload, measure, a loss scale, stages or several micro-batches (setup_step.c).
 * The ranks of a stage run one list, so all ranks update in one order. */

typedef struct early_update {
    tt_graph *g;
    tt_node **list;  /* without the nodes that are moved */
    int n, first;    /* first: the index of the first that a rank may run in the backward */
    int last;        /* that of the last one of the backward */
    int *at;         /* by value id: index of the node that makes it; -1 = it is moved, or a leaf */
    int *param_read; /* by stack: index of the last node that reads the parameter */
    int *summed;     /* by stack: index of the last addition to the accumulator */
    tt_node **moved; /* in order */
    int n_moved;
    int *stack;  /* by moved: 1 + the stack that it writes; 0 = none (a sum of squares) */
    int *place;  /* by moved: the index that it stands behind */
    bool *taken; /* by moved */
    int *number; /* by value id: 1 + its node among the moved; 0 = none */
} early_update;

/* The stack whose parameters v is; NULL: it is something else. */
static const tt_stack *stack_read(const tt_value *v)
{
    const tt_state *s = tt_plan_state(v);
    return s && s->kind == TT_STATE_PARAM ? s->stack : NULL;
}

/* Splits the nodes and notes what happens where in the ones that stay. */
static void early_split(early_update *e)
{
    for (size_t i = 0; i < e->g->nodes.n; i++) {
        tt_node *n = e->g->nodes.items[i];
        if (n->when->early_update) {
            e->moved[e->n_moved++] = n;
            for (int o = 0; o < n->n_out; o++)
                e->number[n->out[o]->id] = e->n_moved;
            continue;
        }
        for (int o = 0; o < n->n_out; o++)
            e->at[n->out[o]->id] = e->n;
        for (int j = 0; j < n->n_in; j++)
            if (stack_read(n->in[j]))
                e->param_read[stack_read(n->in[j])->id] = e->n;
        const tt_state *s = tt_plan_written(n, 0);
        if (s && s->kind == TT_STATE_ACCUMULATOR && s->stack)
            e->summed[s->stack->id] = e->n;
        e->first = n->when->region == TT_FORWARD ? e->n : e->first;
        e->last = n->when->region <= TT_BACKWARD ? e->n : e->last;
        e->list[e->n++] = n;
    }
}

/* The index at which the block after the next one begins, behind i. */
static int a_block_later(const early_update *e, int i)
{
    int block = e->list[i]->block;
    for (int changes = 0; i < e->last; i++) {
        const int next = e->list[i + 1]->block;
        if (next < 0 || next == block)
            continue;
        if (++changes > 1)
            return i;
        block = next;
    }
    return i;
}

/* The index behind which value v can be read without waiting. */
static int early_ready(const early_update *e, const tt_value *v)
{
    const tt_node *n = tt_plan_source(v)->node;
    if (n->op == &tt_op_state)
        return n->state->kind == TT_STATE_ACCUMULATOR && n->state->stack
                   ? e->summed[n->state->stack->id]
                   : 0;
    const int i = e->at[tt_plan_source(v)->id];
    return TT_MAXV(e->at[v->id], n->async ? a_block_later(e, i) : i);
}

/* The place of a moved node by its operands, whose places are known. */
static int early_place(const early_update *e, const tt_node *n)
{
    int place = e->first;
    for (int j = 0; j < n->n_in; j++) {
        const int from = e->number[n->in[j]->id];
        const int p = from ? e->place[from - 1] : early_ready(e, n->in[j]);
        place = TT_MAXV(place, p);
    }
    if (n->op == &tt_op_state)
        place = TT_MAXV(place, early_ready(e, n->out[0]));
    return place;
}

static void find_places(early_update *e)
{
    const size_t n = e->g->stacks.n + 1;
    tt_arena *a = tt_arena_new();
    int *of_stack = tt_arena_array(a, n, sizeof *of_stack);
    for (int i = 0; i < e->n_moved; i++) {
        const tt_node *m = e->moved[i];
        const tt_state *s = tt_plan_written(m, 0);
        e->place[i] = early_place(e, m);
        if (!s)
            continue;
        e->stack[i] = s->stack ? 1 + s->stack->id : 0;
        for (int k = 0; (s = tt_plan_written(m, k)); k++)
            TT_ASSERT(!s->stack || e->stack[i] == 1 + s->stack->id);
        if (!e->stack[i])
            continue;
        const int id = e->stack[i] - 1;
        of_stack[id] = TT_MAXV(of_stack[id], TT_MAXV(e->place[i], e->param_read[id]));
    }
    for (int i = 0; i < e->n_moved; i++)
        if (e->stack[i])
            e->place[i] = of_stack[e->stack[i] - 1];
    tt_arena_free(a);
}

/* Puts moved node i behind those moved nodes that it reads. */
static void early_put(early_update *e, int i, tt_node **out, size_t *n_out)
{
    tt_node *n = e->moved[i];
    if (e->taken[i])
        return;
    e->taken[i] = true;
    for (int j = 0; j < n->n_in; j++)
        if (e->number[n->in[j]->id])
            early_put(e, e->number[n->in[j]->id] - 1, out, n_out);
    out[(*n_out)++] = n;
}

static void early_merge(early_update *e, tt_arena *a)
{
    tt_node **out = tt_arena_array(a, e->g->nodes.n + 1, sizeof *out);
    int *next = tt_arena_array(a, (size_t)e->n_moved + 1, sizeof *next);
    int *first = tt_arena_array(a, (size_t)e->n + 1, sizeof *first); /* 1 + moved, by place */
    size_t n = 0;
    for (int i = e->n_moved; i-- > 0;) {
        if (!tt_plan_written(e->moved[i], 0))
            continue;
        next[i] = first[e->place[i]];
        first[e->place[i]] = 1 + i;
    }
    for (int i = 0; i < e->n; i++) {
        out[n++] = e->list[i];
        for (int m = first[i]; m; m = next[m - 1])
            early_put(e, m - 1, out, &n);
    }
    TT_ASSERT(n == e->g->nodes.n);
    memcpy(e->g->nodes.items, out, n * sizeof *out);
}

tt_status tt_pass_early(tt_graph *g, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    const size_t nodes = g->nodes.n + 1, values = (size_t)g->n_values + 1, stacks = g->stacks.n + 1;
    early_update e = {.g = g,
                      .list = tt_arena_array(a, nodes, sizeof *e.list),
                      .at = tt_arena_array(a, values, sizeof *e.at),
                      .param_read = tt_arena_array(a, stacks, sizeof *e.param_read),
                      .summed = tt_arena_array(a, stacks, sizeof *e.summed),
                      .moved = tt_arena_array(a, nodes, sizeof *e.moved),
                      .stack = tt_arena_array(a, nodes, sizeof *e.stack),
                      .place = tt_arena_array(a, nodes, sizeof *e.place),
                      .taken = tt_arena_array(a, nodes, sizeof *e.taken),
                      .number = tt_arena_array(a, values, sizeof *e.number)};
    early_split(&e);
    find_places(&e);
    early_merge(&e, a);
    tt_arena_free(a);
    return tt_graph_verify(g, "early", err);
}
