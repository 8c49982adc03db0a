/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/overlap_impl.h"
#include <string.h>

/* overlap: where collectives are begun. A node's place is where it begins; an async one is waited
 * for before the first that needs it to be over (plan/waits.c). Three moves, each within the list a
 * rank runs for a stage:
 *
 * Early: what depends on parameters alone (gathers of weights, the casts before them) is begun so
 * long before its reader that it is over by then: as late as hides it, for it holds memory, and at
 * most one block ahead.
 *
 * Sinks: what nothing but accumulators reads. The reduction of a gradient is begun behind the
 * gradient; its accumulation follows when it is over.
 *
 * Cover: where the backward waits for a collective (tensor parallelism), work of sinks that was
 * held back for it (a weight's gradient) runs meanwhile.
 *
 * The lists of all ranks of a stage are one list, so each group has one issue order. Accumulations
 * into one place keep their order: same bits. Durations are the planner's (P2) or a named
 * machine's, equal on all ranks. */

/* ---- the new order ---- */

static void put(tt_overlap_list *l, int i)
{
    tt_node *n = l->at[i];
    if (l->done[i])
        return;
    l->done[i] = true;
    for (int j = 0; j < n->n_in; j++) { /* of an early one what leads to it */
        const int p = tt_overlap_producer(l, n->in[j]), leaf = l->index[n->in[j]->id];
        if (leaf >= 0 && l->early[leaf])
            put(l, leaf);
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

static bool same_target(const tt_node *a, const tt_node *b)
{
    const tt_state *s = a->accumulate_into ? a->accumulate_into : a->state;
    const tt_state *t = b->accumulate_into ? b->accumulate_into : b->state;
    return tt_overlap_has_effect(a) && tt_overlap_has_effect(b) && s == t &&
           a->accumulate_index == b->accumulate_index;
}

/* May the k-th held be put: is what it reads there, and nothing held before it adds to the same? */
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
        if (same_target(n, l->at[l->held[e]]))
            return false;
    return true;
}

static void put_held(tt_overlap_list *l, int k)
{
    const int i = l->held[k];
    memmove(l->held + k, l->held + k + 1, (size_t)(l->n_held - k - 1) * sizeof *l->held);
    l->n_held--;
    put(l, i);
}

/* What the collectives of the rest of this block take that the program itself waits for. */
static double critical_after(const tt_overlap_list *l, int i)
{
    double sum = 0;
    for (int j = i + 1; j < l->n && l->run[j] == l->run[i]; j++)
        if (!l->early[j] && !l->sink[j] && tt_overlap_movable(l->g, l->at[j]))
            sum += l->cost[j];
    return sum;
}

/* Work is held back only as cover for collectives that come, and only as much as they take. */
static bool worth_holding(const tt_overlap_list *l, int k, int at)
{
    const int i = l->held[k];
    double cover = 0;
    for (int e = 0; e < k; e++)
        cover += tt_overlap_carries(l->at[l->held[e]]) ? 0 : l->cost[l->held[e]];
    return l->run[i] == l->run[at] && cover < SLACK * critical_after(l, at);
}

/* Puts of the held what should be held no longer at index `at`. */
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

/* Runs held work while i would wait for what it reads. */
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
        tt_arena_array(a, (size_t)l->n + 1, sizeof *next); /* early ones by place, chained */
    int *first = tt_arena_array(a, (size_t)l->n + 1, sizeof *first);
    for (int i = l->n; i-- > 0;) { /* first to last within a place */
        next[i] = first[l->place[i]];
        first[l->place[i]] = 1 + i;
    }
    for (int i = 0; i < l->n; i++) {
        if (l->n_held && l->at[i]->when->region != l->at[i - 1]->when->region)
            flush(l);
        for (int e = first[i]; e; e = next[e - 1])
            if (l->early[e - 1] && tt_overlap_movable(l->g, l->at[e - 1]))
                put(l, e - 1);
        if (l->done[i] || (l->early[i] && l->first_reader[i] < l->first_reader[i + 1]))
            continue; /* with its reader */
        if (l->sink[i]) {
            l->held[l->n_held++] = i;
        } else {
            cover(l, i);
            put(l, i);
        }
        release(l, i);
    }
    flush(l);
    for (int i = 0; i < l->n; i++)
        put(l, i);
}

/* A list that is run in one go: begun in the forward, a collective may be waited for in the
 * backward. */
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

/* Async is what has work between its place and its wait. */
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

/* Which list a node is in: a stage's forward and backward are one where they follow each other. */
static int list_of(const tt_graph *g, const tt_node *n)
{
    if (n->when->region > TT_BACKWARD)
        return 3 * g->n_stages + (n->when->region >= TT_UPDATE);
    if (tt_plan_one_timeline(g))
        return 0;
    return 3 * n->when->stage + (int)tt_node_part(n);
}

tt_status tt_pass_overlap(tt_graph *g, const tt_overlap_opts *o, tt_error *err)
{
    const int n_lists = 3 * g->n_stages + 2;
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
        tt_overlap_list_init(&l, a);
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
