/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/overlap_impl.h"
#include <string.h>

/* overlap, first half: describes one list (who reads whom, what may move) and finds how early
 * collectives of parameters begin. */

#define LEAST_BYTES 8192 /* a smaller collective costs no more than to begin it early */

double tt_overlap_duration(const tt_graph *g, const tt_node *n, const tt_machine *m)
{
    const tt_seconds s = tt_node_seconds(g, n, m ? m : &tt_machine_order);
    return s.compute + s.comm;
}

bool tt_overlap_crosses_link(const tt_node *n)
{
    return n->step && !tt_step_is_local(n->step->kind) && !n->when->in_chunk_loop;
}

static int64_t bytes_of(const tt_graph *g, const tt_node *n)
{
    const int64_t in = tt_plan_value_bytes(g, n->in[0]), out = tt_plan_value_bytes(g, n->out[0]);
    return TT_MAXV(in, out);
}

bool tt_overlap_movable(const tt_graph *g, const tt_node *n)
{
    return tt_overlap_crosses_link(n) && bytes_of(g, n) > LEAST_BYTES;
}

/* ---- the description of a list ---- */

int tt_overlap_producer(const tt_overlap_list *l, const tt_value *v)
{
    return l->index[tt_plan_source(v)->id];
}

static void find_readers(tt_overlap_list *l, tt_arena *a)
{
    int *count = tt_arena_array(a, (size_t)l->n + 2, sizeof *count);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < l->n; i++)
            for (int j = 0; j < l->at[i]->n_in; j++) {
                const int p = tt_overlap_producer(l, l->at[i]->in[j]);
                if (p < 0 || p == i)
                    continue;
                if (pass)
                    l->readers[l->first_reader[p] + count[p]] = i;
                count[p]++;
            }
        if (pass)
            return;
        for (int i = 0; i < l->n; i++)
            l->first_reader[i + 1] = l->first_reader[i] + count[i];
        l->readers = tt_arena_array(a, (size_t)l->first_reader[l->n] + 1, sizeof(int));
        memset(count, 0, ((size_t)l->n + 1) * sizeof *count);
    }
}

static void index_values(tt_overlap_list *l, tt_arena *a)
{
    tt_graph *g = l->g;
    int *filled = tt_arena_array(a, g->states.n + 1, sizeof *filled); /* 1 + index of the writer */
    l->index = tt_arena_array(a, (size_t)g->n_values + 1, sizeof *l->index);
    l->own = tt_arena_array(a, (size_t)g->n_values + 1, sizeof *l->own);
    memset(l->index, 0xff, ((size_t)g->n_values + 1) * sizeof *l->index);
    memset(l->own, 0xff, ((size_t)g->n_values + 1) * sizeof *l->own);
    for (int i = 0; i < l->n; i++) {
        const tt_node *n = l->at[i];
        for (int o = 0; o < n->n_out; o++)
            l->index[n->out[o]->id] = l->own[n->out[o]->id] = i;
        for (int o = 0; n->assign_to && o < n->n_out; o++)
            if (n->assign_to[o] && n->assign_to[o]->kind == TT_STATE_GATHERED)
                filled[n->assign_to[o]->id] = 1 + i;
        if (tt_overlap_has_effect(n) && n->when->region == TT_EPILOGUE)
            filled[(n->accumulate_into ? n->accumulate_into : n->state)->id] = 1 + i;
        if (n->op == &tt_op_state && filled[n->state->id])
            l->index[n->out[0]->id] = filled[n->state->id] - 1;
    }
}

/* Blocks follow each other. Nodes of no block (embedding, head) count to the run before them. */
static void find_runs(tt_overlap_list *l, tt_arena *a)
{
    int run = 0, block = -1;
    tt_region region = TT_FORWARD;
    l->run = tt_arena_array(a, (size_t)l->n + 1, sizeof *l->run);
    l->run_begin = tt_arena_array(a, (size_t)l->n + 2, sizeof *l->run_begin);
    for (int i = 0; i < l->n; i++) {
        const tt_node *n = l->at[i];
        if (n->block >= 0 && (n->block != block || n->when->region != region)) {
            block = n->block;
            region = n->when->region;
            l->run_begin[++run] = i;
        }
        l->run[i] = run;
    }
}

bool tt_overlap_has_effect(const tt_node *n)
{
    return n->op == &tt_op_accumulate || n->accumulate_into != NULL;
}

bool tt_overlap_same_target(const tt_node *a, const tt_node *b)
{
    const tt_state *s = a->accumulate_into ? a->accumulate_into : a->state;
    const tt_state *t = b->accumulate_into ? b->accumulate_into : b->state;
    return tt_overlap_has_effect(a) && tt_overlap_has_effect(b) && s == t &&
           a->accumulate_index == b->accumulate_index;
}

/* Does node i depend only on parameters and accumulators, as they are when the list begins? */
static bool is_early(const tt_overlap_list *l, int i)
{
    const tt_node *n = l->at[i];
    if (n->op == &tt_op_param)
        return true;
    if (n->op == &tt_op_state && n->param) /* maxima, which this list may fill before */
        return true;
    if (n->op == &tt_op_state && l->index[n->out[0]->id] != i) /* a gather before fills it */
        return l->early[l->index[n->out[0]->id]];
    if (n->op == &tt_op_state)
        return n->state->kind == TT_STATE_ACCUMULATOR || n->state->kind == TT_STATE_PARAM;
    if (n->when->in_chunk_loop || tt_overlap_has_effect(n) || n->op == &tt_op_assign)
        return false;
    if (!n->param && (n->n_in != 1 || !(n->step || tt_node_is_cast(n))))
        return false;
    for (int j = 0; j < n->n_in; j++) {
        const int p = tt_overlap_producer(l, n->in[j]);
        if (p < 0 || p == i || !l->early[p])
            return false;
    }
    return true;
}

bool tt_overlap_carries(const tt_node *n)
{
    return n->step || tt_node_is_cast(n) || n->op == &tt_op_accumulate;
}

/* Does n add up the gradients of interleaved micro-batches, which are then reduced once? */
static bool joins(const tt_overlap_list *l, const tt_node *n)
{
    return l->g->interleaved > 1 && n->n_out == 1 &&
           (n->op == &tt_op_fused || (n->op->flags & TT_OP_POINTWISE));
}

/* Is node i a step from a gradient to its accumulator, or the work that makes the gradient, with
 * no other reader? */
static bool is_sink(const tt_overlap_list *l, int i)
{
    const tt_node *n = l->at[i];
    if (n->when->in_chunk_loop || n->when->region != TT_BACKWARD || n->op == &tt_op_transfer ||
        n->op == &tt_op_assign || n->assign_to || l->early[i])
        return false;
    const int begin = l->first_reader[i], end = l->first_reader[i + 1];
    for (int k = begin; k < end; k++)
        if (!l->sink[l->readers[k]] ||
            !(tt_overlap_carries(l->at[l->readers[k]]) || joins(l, l->at[l->readers[k]])))
            return false;
    return end > begin || tt_overlap_has_effect(n) || l->feeds[i];
}

/* Marks nodes that other lists read, too: later parts, the next stage; and those that early updates read. */
static void mark_read_elsewhere(tt_overlap_list *l, bool *elsewhere)
{
    for (size_t i = 0; i < l->g->nodes.n; i++) {
        const tt_node *n = l->g->nodes.items[i];
        for (int j = 0; j < n->n_in; j++) {
            const int p = tt_overlap_producer(l, n->in[j]);
            if (p < 0)
                continue;
            const bool here =
                tt_when_same_part(n->when, l->at[p]->when) && n->op != &tt_op_transfer;
            elsewhere[p] = elsewhere[p] || !here;
            l->feeds[p] = l->feeds[p] || n->when->early_update;
        }
    }
}

void tt_overlap_list_init(tt_overlap_list *l, tt_arena *a)
{
    const size_t n = (size_t)l->n + 2;
    bool *elsewhere = tt_arena_array(a, n, sizeof *elsewhere);
    l->first_reader = tt_arena_array(a, n, sizeof(int));
    l->cost = tt_arena_array(a, n, sizeof *l->cost);
    l->time = tt_arena_array(a, n, sizeof *l->time);
    l->over = tt_arena_array(a, n, sizeof *l->over);
    l->early = tt_arena_array(a, n, sizeof *l->early);
    l->sink = tt_arena_array(a, n, sizeof *l->sink);
    l->feeds = tt_arena_array(a, n, sizeof *l->feeds);
    l->done = tt_arena_array(a, n, sizeof *l->done);
    l->place = tt_arena_array(a, n, sizeof *l->place);
    l->held = tt_arena_array(a, n, sizeof *l->held);
    l->out = tt_arena_array(a, n, sizeof(tt_node *));
    index_values(l, a);
    find_readers(l, a);
    find_runs(l, a);
    mark_read_elsewhere(l, elsewhere);
    for (int i = 0; i < l->n; i++) {
        l->cost[i] = tt_overlap_duration(l->g, l->at[i], l->machine);
        l->early[i] = is_early(l, i);
        const bool works = !l->early[i] && !tt_overlap_crosses_link(l->at[i]);
        l->time[i + 1] = l->time[i] + (works ? l->cost[i] : 0);
    }
    for (int i = l->n; i-- > 0;)
        l->sink[i] = !elsewhere[i] && is_sink(l, i);
}

/* ---- early ---- */

/* The position itself, or the begin of the loop over token chunks that it is in. */
static int out_of_loop(const tt_overlap_list *l, int i)
{
    while (i > 0 && i < l->n && l->at[i]->when->in_chunk_loop && l->at[i - 1]->when->in_chunk_loop)
        i--;
    return i;
}

/* The last index that leaves `cost` seconds until time `until` and is at most one block before
 * `reader`. */
static int latest(const tt_overlap_list *l, int reader, double until, double cost)
{
    const int run = l->run[TT_MIN(reader, l->n - 1)];
    const int least = run > 0 ? l->run_begin[run - 1] : 0;
    int i = reader;
    while (i > least && l->time[i] > until - cost)
        i--;
    return out_of_loop(l, i);
}

void tt_overlap_find_places(tt_overlap_list *l)
{
    double next = l->time[l->n]; /* the link is occupied from here on */
    for (int i = l->n; i-- > 0;) {
        int reader = l->n;
        l->place[i] = i;
        if (!l->early[i])
            continue;
        for (int k = l->first_reader[i]; k < l->first_reader[i + 1]; k++)
            reader = TT_MIN(reader, l->place[l->readers[k]]);
        if (reader == l->n) /* no reader in this list */
            continue;
        const int outside = out_of_loop(l, reader);
        l->place[i] = TT_MIN(i, outside);
        if (!tt_overlap_movable(l->g, l->at[i]))
            continue;
        const double until = TT_MIN(next, l->time[reader]), cost = SLACK * l->cost[i];
        const int last = latest(l, reader, until, cost);
        l->place[i] = TT_MIN(i, last);
        next = TT_MAXV(until - cost, l->time[l->place[i]]);
    }
}
