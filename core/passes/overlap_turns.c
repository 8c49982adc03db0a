/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/copies.h"
#include "passes/overlap_impl.h"
#include <string.h>

/* overlap, before its moves, if a call of the program runs several micro-batches (pass interleave): within
 * each block they run in turns. One runs until it would wait for a collective; then another runs, and
 * meanwhile the collective is under way. Each micro-batch keeps its own order, so no bit changes. A block's
 * nodes stay together, so that at most one block's intermediate values of each micro-batch exist. */

typedef struct turns {
    tt_overlap_list *l;
    const uint8_t *copies; /* by value id: which micro-batches it depends on */
    int begin, end;        /* the nodes that take turns now */
    int *effect;           /* by index: 1 + the node before that adds to the same sum; 0: none */
    int *queue[TT_MAX_INTERLEAVED], n_queue[TT_MAX_INTERLEAVED], at[TT_MAX_INTERLEAVED];
    double *work;      /* by index */
    int *rest, n_rest; /* nodes of no micro-batch or of several, and sinks */
    int current;
} turns;

/* The micro-batch of a node; -1: several, or none. */
static int micro_batch_of(const turns *t, const tt_node *n)
{
    uint8_t bits = 0;
    for (int i = 0; i < n->n_in; i++)
        bits |= t->copies[n->in[i]->id];
    for (int i = 0; i < n->n_out; i++)
        bits |= t->copies[n->out[i]->id];
    return bits && !(bits & (bits - 1)) ? __builtin_ctz(bits) : -1;
}

/* ---- what a node needs ---- */

#define MOST_NEEDS (2 * TT_MAX_INS + 2)

/* The nodes of the list that must have been put before node i. */
static int needs_of(const turns *t, int i, int *needs)
{
    const tt_overlap_list *l = t->l;
    const tt_node *n = l->at[i];
    int count = 0;
    for (int j = 0; j < n->n_in; j++) {
        needs[count++] = l->own[n->in[j]->id];
        needs[count++] = tt_overlap_producer(l, n->in[j]);
    }
    if (n->op == &tt_op_state)
        needs[count++] = l->index[n->out[0]->id]; /* what fills it */
    needs[count++] = t->effect[i] - 1;
    return count;
}

static bool is_ready(const turns *t, int i)
{
    int needs[MOST_NEEDS];
    for (int k = needs_of(t, i, needs); k-- > 0;)
        if (needs[k] >= 0 && needs[k] != i && !t->l->done[needs[k]])
            return false;
    return true;
}

/* When what i reads is over. */
static double ready_at(const turns *t, int i)
{
    int needs[MOST_NEEDS];
    double at = 0;
    for (int k = needs_of(t, i, needs); k-- > 0;)
        if (needs[k] >= 0 && needs[k] != i && !t->l->early[needs[k]])
            at = TT_MAXV(at, t->l->over[needs[k]]);
    return at;
}

/* ---- the new order ---- */

static void turns_put(turns *t, int i)
{
    tt_overlap_list *l = t->l;
    int needs[MOST_NEEDS];
    const int n = needs_of(t, i, needs);
    if (l->done[i])
        return;
    l->done[i] = true;
    for (int k = 0; k < n; k++)
        if (needs[k] >= 0)
            turns_put(t, needs[k]);
    if (!l->sink[i]) /* sinks get their places later */
        l->now = TT_MAXV(l->now, ready_at(t, i));
    if (tt_overlap_crosses_link(l->at[i])) {
        if (!l->early[i]) {
            l->link = TT_MAXV(l->link, l->now) + l->cost[i];
            l->over[i] = l->link;
        }
    } else {
        l->now += l->cost[i];
    }
    l->out[l->n_out++] = l->at[i];
}

/* Puts what several micro-batches have made, and sinks, as soon as what they need is there. Early nodes are
 * put with their readers. */
static void put_joint(turns *t)
{
    for (int k = 0; k < t->n_rest; k++)
        if (!t->l->done[t->rest[k]] && !t->l->early[t->rest[k]] && is_ready(t, t->rest[k]))
            turns_put(t, t->rest[k]);
}

/* Whose node is next: of the micro-batches that need not wait, the one that comes to its next collective first,
 * so that links are busy; if all wait, the one that waits least. -1: all are through. */
static int next_turn(const turns *t, int n_copies)
{
    int best = -1;
    double least = 0, soonest = 0;
    for (int k = 0; k < n_copies; k++) {
        const int c = (t->current + k) % n_copies;
        if (t->at[c] == t->n_queue[c])
            continue;
        const int i = t->queue[c][t->at[c]];
        const double wait = TT_MAXV(ready_at(t, i) - t->l->now, 0.0);
        if (best < 0 || wait < least || (wait <= least && t->work[i] < soonest)) {
            best = c;
            least = wait;
            soonest = t->work[i];
        }
    }
    return best;
}

/* The work from each node of a micro-batch on until its next collective begins. */
static void find_work(turns *t, int c)
{
    double sum = 0;
    for (int k = t->n_queue[c]; k-- > 0;) {
        const int i = t->queue[c][k];
        sum = tt_overlap_crosses_link(t->l->at[i]) ? 0 : sum + t->l->cost[i];
        t->work[i] = sum;
    }
}

static void take_turns(turns *t, int n_copies)
{
    int c;
    t->n_rest = 0;
    memset(t->n_queue, 0, sizeof t->n_queue);
    memset(t->at, 0, sizeof t->at);
    for (int i = t->begin; i < t->end; i++) {
        const int m = micro_batch_of(t, t->l->at[i]);
        if (m < 0 || t->l->sink[i])
            t->rest[t->n_rest++] = i;
        else
            t->queue[m][t->n_queue[m]++] = i;
    }
    for (c = 0; c < n_copies; c++)
        find_work(t, c);
    while ((c = next_turn(t, n_copies)) >= 0) {
        t->current = c;
        turns_put(t, t->queue[c][t->at[c]++]);
        put_joint(t);
    }
    for (int k = 0; k < t->n_rest; k++)
        turns_put(t, t->rest[k]);
}

/* The end of the nodes from `begin` on that may take turns: a block's, of the forward or the backward. The
 * loop over token chunks stays as it is. */
static int end_of_turns(const tt_overlap_list *l, int begin)
{
    const tt_when *w = l->at[begin]->when;
    int i = begin + 1;
    while (i < l->n && l->run[i] == l->run[begin] && l->at[i]->when->region == w->region &&
           l->at[i]->when->in_chunk_loop == w->in_chunk_loop)
        i++;
    return i;
}

/* Links each node that writes a state to the one before that writes the same place of it. */
static int *find_effects(const tt_overlap_list *l, tt_arena *a)
{
    int *effect = tt_arena_array(a, (size_t)l->n + 1, sizeof *effect);
    for (int i = 0; i < l->n; i++)
        for (int k = i; tt_overlap_has_effect(l->at[i]) && !effect[i] && k-- > 0;)
            if (tt_overlap_same_target(l->at[i], l->at[k]))
                effect[i] = 1 + k;
    return effect;
}

void tt_overlap_take_turns(tt_overlap_list *l, tt_arena *a)
{
    turns t = {.l = l};
    if (l->g->interleaved < 2 || !l->n || l->at[0]->when->region > TT_BACKWARD)
        return;
    t.effect = find_effects(l, a);
    t.copies = tt_graph_copies_of_values(l->g, a);
    t.work = tt_arena_array(a, (size_t)l->n + 1, sizeof *t.work);
    t.rest = tt_arena_array(a, (size_t)l->n + 1, sizeof *t.rest);
    for (int c = 0; c < l->g->interleaved; c++)
        t.queue[c] = tt_arena_array(a, (size_t)l->n + 1, sizeof *t.queue[c]);
    for (t.begin = 0; t.begin < l->n; t.begin = t.end) {
        t.end = end_of_turns(l, t.begin);
        if (l->at[t.begin]->when->in_chunk_loop)
            for (int i = t.begin; i < t.end; i++)
                turns_put(&t, i);
        else
            take_turns(&t, l->g->interleaved);
    }
    TT_ASSERT(l->n_out == l->n);
    memcpy(l->at, l->out, (size_t)l->n * sizeof(tt_node *));
    *l = (tt_overlap_list){.g = l->g, .machine = l->machine, .at = l->at, .n = l->n};
    tt_overlap_list_init(l, a);
}
