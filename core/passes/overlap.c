/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/overlap_impl.h"
#include <string.h>

/* overlap: decides where collectives begin. The position of a node in its list is where it
 * begins; an async node is waited for before the first node that needs its result
 * (plan/waits.c). There are three moves, each inside the list that a rank runs for a stage:
 *
 * Early: nodes that depend on parameters alone (gathers of weights and the casts before them).
 * They start just early enough to finish before their reader, and at most one block before it,
 * because their outputs occupy memory from the start.
 *
 * Sinks: nodes that only accumulators read. The reduction of a gradient begins directly after
 * the gradient; its accumulation follows when the reduction is over.
 *
 * Cover: where the backward has to wait for a collective (tensor parallelism), it runs sinks
 * that were held back for this purpose (the gradient of a weight).
 *
 * The ranks of a stage run one list, so each group issues its collectives in one order.
 * Accumulations to one place keep their order, so no bit changes. Durations come from the
 * planner's costs (P2) or from a named machine and are equal on all ranks. */

/* ---- the new order ---- */

static void overlap_put(tt_overlap_list *l, int i)
{
    tt_node *n = l->at[i];
    if (l->done[i])
        return;
    l->done[i] = true;
    if (n->op == &tt_op_state && l->index[n->out[0]->id] != i && l->early[i])
        overlap_put(l, l->index[n->out[0]->id]); /* what fills the state */
    for (int j = 0; j < n->n_in; j++) { /* an early node takes the nodes that lead to it along */
        const int p = tt_overlap_producer(l, n->in[j]), leaf = l->own[n->in[j]->id];
        if (leaf >= 0 && (l->early[leaf] || tt_plan_is_view(l->at[leaf])))
            overlap_put(l, leaf);
        if (p >= 0 && tt_overlap_crosses_link(l->at[p]))
            l->now = TT_MAXV(l->now, l->over[p]);
    }
    l->out[l->n_out++] = n;
    if (tt_overlap_crosses_link(n)) {
        l->link = TT_MAXV(l->link, l->now) + SLACK * l->cost[i];
        l->over[i] = l->link;
        if (!tt_overlap_movable(l->g, n))
            l->now = l->over[i];
        return;
    }
    l->now += l->cost[i];
}

/* Can the k-th held node be put now? What it reads must exist (and be finished, unless it may
 * wait), and no node held before it may add to the same accumulator. */
static bool ready(const tt_overlap_list *l, int k, bool to_wait)
{
    const int i = l->held[k];
    const tt_node *n = l->at[i];
    for (int j = 0; j < n->n_in; j++) {
        const int p = tt_overlap_producer(l, n->in[j]);
        if (p < 0)
            continue;
        if (!l->done[p] && !l->early[p])
            return false;
        if (!to_wait && tt_overlap_crosses_link(l->at[p]) && l->over[p] > l->now)
            return false;
    }
    for (int e = 0; e < k; e++)
        if (tt_overlap_same_target(n, l->at[l->held[e]]))
            return false;
    return true;
}

static void put_held(tt_overlap_list *l, int k)
{
    const int i = l->held[k];
    memmove(l->held + k, l->held + k + 1, (size_t)(l->n_held - k - 1) * sizeof *l->held);
    l->n_held--;
    overlap_put(l, i);
}

/* How long the collectives in the rest of this block take for which the program itself waits. */
static double critical_after(const tt_overlap_list *l, int i)
{
    double sum = 0;
    for (int j = i + 1; j < l->n && l->run[j] == l->run[i]; j++)
        if (!l->early[j] && !l->sink[j] && tt_overlap_movable(l->g, l->at[j]))
            sum += l->cost[j];
    return sum;
}

/* Is it useful to hold node k longer? Only as cover for collectives that still come, and only
 * for as long as they take. */
static bool worth_holding(const tt_overlap_list *l, int k, int at)
{
    const int i = l->held[k];
    double cover = 0;
    for (int e = 0; e < k; e++)
        cover += tt_overlap_carries(l->at[l->held[e]]) ? 0 : l->cost[l->held[e]];
    return l->run[i] == l->run[at] && cover < SLACK * critical_after(l, at);
}

/* Puts the held nodes that need not be held beyond index `at`. */
static void release(tt_overlap_list *l, int at)
{
    for (int k = 0; k < l->n_held;) {
        const int i = l->held[k];
        const tt_node *n = l->at[i];
        const bool old = l->run[i] + 1 < l->run[at];
        const bool works = !tt_overlap_carries(n);
        if (ready(l, k, old) && (old || !works || !worth_holding(l, k, at))) {
            put_held(l, k);
            k = 0;
        } else {
            k++;
        }
    }
}

/* Runs held nodes while i would wait for what it reads. */
static void cover(tt_overlap_list *l, int i)
{
    for (int j = 0; j < l->at[i]->n_in; j++) {
        const int p = tt_overlap_producer(l, l->at[i]->in[j]);
        if (p < 0 || !tt_overlap_crosses_link(l->at[p]))
            continue;
        for (int k = 0; l->over[p] > l->now && k < l->n_held;) {
            if (!ready(l, k, false)) {
                k++;
                continue;
            }
            put_held(l, k);
            k = 0;
        }
    }
}

static void flush(tt_overlap_list *l)
{
    for (int to_wait = 0; to_wait < 2; to_wait++)
        for (int k = 0; k < l->n_held;) {
            if (!ready(l, k, to_wait)) {
                k++;
                continue;
            }
            put_held(l, k);
            k = 0;
        }
}

static void reorder(tt_overlap_list *l, tt_arena *a)
{
    int *next =
        tt_arena_array(a, (size_t)l->n + 1, sizeof *next); /* early nodes by position, chained */
    int *first = tt_arena_array(a, (size_t)l->n + 1, sizeof *first);
    for (int i = l->n; i-- > 0;) { /* so that they are first to last at one position */
        next[i] = first[l->place[i]];
        first[l->place[i]] = 1 + i;
    }
    for (int i = 0; i < l->n; i++) {
        if (l->n_held && l->at[i]->when->region != l->at[i - 1]->when->region)
            flush(l);
        for (int e = first[i]; e; e = next[e - 1])
            if (l->early[e - 1] && tt_overlap_movable(l->g, l->at[e - 1]))
                overlap_put(l, e - 1);
        if (l->done[i] || (l->early[i] && l->first_reader[i] < l->first_reader[i + 1]))
            continue; /* it is put with its reader */
        if (l->sink[i]) {
            l->held[l->n_held++] = i;
        } else {
            cover(l, i);
            overlap_put(l, i);
        }
        release(l, i);
    }
    flush(l);
    for (int i = 0; i < l->n; i++)
        overlap_put(l, i);
}

/* In a list that runs forward and backward in one go, a collective may begin in the forward and
 * be waited for in the backward. */
static void keep_regions(tt_overlap_list *l)
{
    tt_region least = TT_POST_UPDATE;
    for (int i = l->n_out; i-- > 0;) {
        tt_node *n = l->out[i];
        tt_when w = *n->when;
        least = TT_MIN(least, w.region);
        w.region = least;
        n->when = tt_when_intern(l->g, w);
    }
}

/* Marks collectives async if nodes stand between their position and their wait. */
static void mark_async(tt_overlap_list *l)
{
    tt_nodes order = {.items = l->out, .n = l->n_out};
    for (int i = 0; i < order.n; i++)
        order.items[i]->async = tt_overlap_movable(l->g, order.items[i]);
    tt_under_way none = {0};
    tt_arena *a = tt_arena_new();
    double *time = tt_arena_array(a, (size_t)order.n + 1, sizeof *time);
    int *at = tt_arena_array(a, (size_t)l->g->n_ids + 1, sizeof *at);
    for (int i = 0; i < order.n; i++) {
        const tt_node *n = order.items[i];
        at[n->id] = i;
        time[i + 1] =
            time[i] + (tt_overlap_crosses_link(n) ? 0 : tt_overlap_duration(l->g, n, l->machine));
    }
    tt_plan_find_waits(a, &order, &none, true);
    for (int k = 0; k < order.n_waits; k++) {
        tt_node *n = order.items[at[order.waits[k].node->id]];
        n->async = time[order.waits[k].before] > time[at[n->id]];
    }
    tt_arena_free(a);
}

/* ---- the lists of a graph ---- */

/* The list that a node is in. A stage's forward and backward are one list if they follow each
 * other. */
static int list_of(const tt_graph *g, const tt_node *n)
{
    if (n->when->early_update) /* the pass early finds its place */
        return 3 * g->n_stages + 2;
    if (n->when->region > TT_BACKWARD)
        return 3 * g->n_stages + (n->when->region >= TT_UPDATE);
    if (tt_plan_one_timeline(g))
        return 0;
    return 3 * n->when->stage + (int)tt_node_part(n);
}

tt_status tt_pass_overlap(tt_graph *g, const tt_overlap_opts *o, tt_error *err)
{
    const int n_lists = 3 * g->n_stages + 3;
    tt_arena *a = tt_arena_new();
    tt_node **out = tt_arena_array(a, g->nodes.n + 1, sizeof *out);
    bool *seen = tt_arena_array(a, (size_t)n_lists, sizeof *seen);
    size_t n = 0;
    for (size_t first = 0; first < g->nodes.n; first++) {
        const int which = list_of(g, g->nodes.items[first]);
        if (seen[which])
            continue;
        seen[which] = true;
        tt_overlap_list l = {
            .g = g, .machine = o->machine, .at = tt_arena_array(a, g->nodes.n + 1, sizeof *l.at)};
        for (size_t i = first; i < g->nodes.n; i++)
            if (list_of(g, g->nodes.items[i]) == which)
                l.at[l.n++] = g->nodes.items[i];
        if (l.at[0]->when->early_update) {
            memcpy(out + n, l.at, (size_t)l.n * sizeof *out);
            n += (size_t)l.n;
            continue;
        }
        tt_overlap_list_init(&l, a);
        tt_overlap_take_turns(&l, a);
        tt_overlap_find_places(&l);
        reorder(&l, a);
        keep_regions(&l);
        mark_async(&l);
        memcpy(out + n, l.out, (size_t)l.n_out * sizeof *out);
        n += (size_t)l.n_out;
    }
    TT_ASSERT(n == g->nodes.n);
    memcpy(g->nodes.items, out, n * sizeof *out);
    tt_arena_free(a);
    return tt_graph_verify(g, "overlap", err);
}
