/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/passes.h"
#include "plan/plan.h"
#include <string.h>

/* overlap: where collectives are begun. A node's place is where it begins; an async one is waited
 * for before the first that needs it to be over (plan/waits.c). Three moves, each within the list a
 * rank runs for a stage:
 *
 *   early  what depends on parameters alone (gathers of weights, the casts before them) is begun so
 *          long before its reader that it is over by then: as late as hides it, for it holds
 * memory, and at most one block ahead sinks  what nothing but accumulators reads: the reduction of
 * a gradient is begun behind the gradient, its accumulation follows when it is over cover  where
 * the backward waits for a collective (tensor parallelism), work of sinks that was held back for it
 * (a weight's gradient) runs meanwhile
 *
 * The lists of all ranks of a stage are one list, so each group has one issue order. Accumulations
 * into one place keep their order: same bits. Durations are the planner's (P2) or a named
 * machine's, equal on all ranks. */

#define LEAST_BYTES 8192 /* below, a collective costs no more than beginning it early */
#define SLACK 2.0        /* begun as early as if it took this much longer: costs are estimates */

typedef struct list {
    tt_graph *g;
    const tt_machine *machine;
    tt_node **at; /* [n], as they were */
    int n;
    int *readers, *first_reader; /* by index: of index i, readers[first_reader[i] …) */
    int *index;                  /* by value id of a root: of its node in this list, -1 = not */
    int *run;                    /* by index: blocks, in the order they come */
    int *run_begin;              /* by run */
    double *cost, *time;         /* by index; time: of what stands before, collectives apart */
    bool *early, *sink;
    int *place; /* early: the index it is begun before */
    /* the new order */
    tt_node **out;
    int n_out;
    bool *done;
    double *over; /* by index: when a collective is over */
    double now, link;
    int *held, n_held; /* sinks not yet put */
} list;

static double duration(const tt_graph *g, const tt_node *n, const tt_machine *m)
{
    if (!m)
        return tt_plan_node_cost(g, n);
    const tt_seconds s = tt_node_seconds(g, n, m);
    return s.compute + s.comm;
}

static bool crosses_link(const tt_node *n)
{
    return n->step && n->step->kind != TT_STEP_SLICE && n->step->kind != TT_STEP_MASK && !n->map;
}

static int64_t bytes_of(const tt_graph *g, const tt_node *n)
{
    return TT_MAXV(tt_plan_value_bytes(g, n->in[0]), tt_plan_value_bytes(g, n->out[0]));
}

static bool movable(const tt_graph *g, const tt_node *n)
{
    return crosses_link(n) && bytes_of(g, n) > LEAST_BYTES;
}

/* ---- what a list is ---- */

/* Is v the output of a node of this list, and which? Views are looked through; a state that a node
 * of the list fills (hoisted parameters) is that node's. */
static int producer(const list *l, const tt_value *v)
{
    return l->index[tt_plan_alias(v)->id];
}

static void find_readers(list *l, tt_arena *a)
{
    int *count = tt_arena_array(a, (size_t)l->n + 2, sizeof *count);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < l->n; i++)
            for (int j = 0; j < l->at[i]->n_in; j++) {
                const int p = producer(l, l->at[i]->in[j]);
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

static void index_values(list *l, tt_arena *a)
{
    tt_graph *g = l->g;
    int *filled = tt_arena_array(a, g->states.n + 1, sizeof *filled); /* 1 + the index that does */
    l->index = tt_arena_array(a, (size_t)g->n_values + 1, sizeof *l->index);
    memset(l->index, 0xff, ((size_t)g->n_values + 1) * sizeof *l->index);
    for (int i = 0; i < l->n; i++) {
        const tt_node *n = l->at[i];
        for (int o = 0; o < n->n_out; o++)
            l->index[n->out[o]->id] = i;
        for (int o = 0; n->assign_to && o < n->n_out; o++)
            if (n->assign_to[o] && n->assign_to[o]->kind == TT_STATE_GATHERED)
                filled[n->assign_to[o]->id] = 1 + i;
        if (n->op == &tt_op_state && filled[n->state->id])
            l->index[n->out[0]->id] = filled[n->state->id] - 1;
    }
}

/* Blocks follow each other; what belongs to none (embedding, head) goes with those before. */
static void find_runs(list *l, tt_arena *a)
{
    int run = 0, block = -1;
    tt_region region = TT_FORWARD;
    l->run = tt_arena_array(a, (size_t)l->n + 1, sizeof *l->run);
    l->run_begin = tt_arena_array(a, (size_t)l->n + 2, sizeof *l->run_begin);
    for (int i = 0; i < l->n; i++) {
        const tt_node *n = l->at[i];
        if (n->block >= 0 && (n->block != block || n->region != region)) {
            block = n->block;
            region = n->region;
            l->run_begin[++run] = i;
        }
        l->run[i] = run;
    }
}

static bool has_effect(const tt_node *n)
{
    return n->op == &tt_op_accumulate || n->accumulate_into != NULL;
}

/* Of parameters and of states as they are when the list begins. */
static bool is_early(const list *l, int i)
{
    const tt_node *n = l->at[i];
    if (n->op == &tt_op_param)
        return true;
    if (n->op == &tt_op_state)
        return n->state->kind == TT_STATE_ACCUMULATOR || n->state->kind == TT_STATE_PARAM;
    if (n->map || has_effect(n) || n->op == &tt_op_assign || n->n_in != 1)
        return false;
    const int p = producer(l, n->in[0]);
    return p >= 0 && p != i && l->early[p] && (n->step || tt_node_is_cast(n));
}

/* Hands a gradient on, without work of its own. */
static bool carries(const tt_node *n)
{
    return n->step || tt_node_is_cast(n) || n->op == &tt_op_accumulate;
}

/* A step of a gradient to its accumulator, or the work that makes it: what nothing else reads. */
static bool is_sink(const list *l, int i)
{
    const tt_node *n = l->at[i];
    if (n->map || n->region != TT_BACKWARD || n->op == &tt_op_transfer || n->op == &tt_op_assign ||
        n->assign_to || l->early[i])
        return false;
    const int begin = l->first_reader[i], end = l->first_reader[i + 1];
    for (int k = begin; k < end; k++)
        if (!l->sink[l->readers[k]] || !carries(l->at[l->readers[k]]))
            return false;
    return end > begin || has_effect(n);
}

/* Others read it too: later parts, the next stage. */
static void mark_read_elsewhere(list *l, bool *elsewhere)
{
    for (size_t i = 0; i < l->g->nodes.n; i++) {
        const tt_node *n = l->g->nodes.items[i];
        for (int j = 0; j < n->n_in; j++) {
            const int p = producer(l, n->in[j]);
            if (p < 0)
                continue;
            const bool here = n->stage == l->at[p]->stage && n->region == l->at[p]->region &&
                              n->weight == l->at[p]->weight && n->op != &tt_op_transfer;
            elsewhere[p] = elsewhere[p] || !here;
        }
    }
}

static void list_init(list *l, tt_arena *a)
{
    const size_t n = (size_t)l->n + 2;
    bool *elsewhere = tt_arena_array(a, n, sizeof *elsewhere);
    l->first_reader = tt_arena_array(a, n, sizeof(int));
    l->cost = tt_arena_array(a, n, sizeof *l->cost);
    l->time = tt_arena_array(a, n, sizeof *l->time);
    l->over = tt_arena_array(a, n, sizeof *l->over);
    l->early = tt_arena_array(a, n, sizeof *l->early);
    l->sink = tt_arena_array(a, n, sizeof *l->sink);
    l->done = tt_arena_array(a, n, sizeof *l->done);
    l->place = tt_arena_array(a, n, sizeof *l->place);
    l->held = tt_arena_array(a, n, sizeof *l->held);
    l->out = tt_arena_array(a, n, sizeof(tt_node *));
    index_values(l, a);
    find_readers(l, a);
    find_runs(l, a);
    mark_read_elsewhere(l, elsewhere);
    for (int i = 0; i < l->n; i++) {
        l->cost[i] = duration(l->g, l->at[i], l->machine);
        l->early[i] = is_early(l, i);
        const bool works = !l->early[i] && !crosses_link(l->at[i]);
        l->time[i + 1] = l->time[i] + (works ? l->cost[i] : 0);
    }
    for (int i = l->n; i-- > 0;)
        l->sink[i] = !elsewhere[i] && is_sink(l, i);
}

/* ---- early ---- */

/* No place is inside the loop over token chunks. */
static int out_of_loop(const list *l, int i)
{
    while (i > 0 && i < l->n && l->at[i]->map && l->at[i - 1]->map)
        i--;
    return i;
}

/* The last index that leaves `cost` until time `until`, and is at most a block before `reader`. */
static int latest(const list *l, int reader, double until, double cost)
{
    const int run = l->run[TT_MIN(reader, l->n - 1)];
    const int least = run > 0 ? l->run_begin[run - 1] : 0;
    int i = reader;
    while (i > least && l->time[i] > until - cost)
        i--;
    return out_of_loop(l, i);
}

static void find_places(list *l)
{
    double next = l->time[l->n]; /* the link is taken from there on */
    for (int i = l->n; i-- > 0;) {
        int reader = l->n;
        l->place[i] = i;
        if (!l->early[i])
            continue;
        for (int k = l->first_reader[i]; k < l->first_reader[i + 1]; k++)
            reader = TT_MIN(reader, l->place[l->readers[k]]);
        if (reader == l->n) /* of none in this list */
            continue;
        l->place[i] = TT_MIN(i, out_of_loop(l, reader));
        if (!movable(l->g, l->at[i]))
            continue;
        const double until = TT_MIN(next, l->time[reader]), cost = SLACK * l->cost[i];
        l->place[i] = TT_MIN(i, latest(l, reader, until, cost));
        next = TT_MAXV(until - cost, l->time[l->place[i]]);
    }
}

/* ---- the new order ---- */

static void put(list *l, int i)
{
    tt_node *n = l->at[i];
    if (l->done[i])
        return;
    l->done[i] = true;
    for (int j = 0; j < n->n_in; j++) { /* of an early one what leads to it */
        const int p = producer(l, n->in[j]), leaf = l->index[n->in[j]->id];
        if (leaf >= 0 && l->early[leaf])
            put(l, leaf);
        if (p >= 0 && crosses_link(l->at[p]))
            l->now = TT_MAXV(l->now, l->over[p]);
    }
    l->out[l->n_out++] = n;
    if (crosses_link(n)) {
        l->link = TT_MAXV(l->link, l->now) + SLACK * l->cost[i];
        l->over[i] = l->link;
        if (!movable(l->g, n))
            l->now = l->over[i];
        return;
    }
    l->now += l->cost[i];
}

static bool same_target(const tt_node *a, const tt_node *b)
{
    const tt_state *s = a->accumulate_into ? a->accumulate_into : a->state;
    const tt_state *t = b->accumulate_into ? b->accumulate_into : b->state;
    return has_effect(a) && has_effect(b) && s == t && a->accumulate_index == b->accumulate_index;
}

/* May the k-th held be put: is what it reads there, and nothing held before it adds to the same? */
static bool ready(const list *l, int k, bool to_wait)
{
    const int i = l->held[k];
    const tt_node *n = l->at[i];
    for (int j = 0; j < n->n_in; j++) {
        const int p = producer(l, n->in[j]);
        if (p < 0)
            continue;
        if (!l->done[p] && !l->early[p])
            return false;
        if (!to_wait && crosses_link(l->at[p]) && l->over[p] > l->now)
            return false;
    }
    for (int e = 0; e < k; e++)
        if (same_target(n, l->at[l->held[e]]))
            return false;
    return true;
}

static void put_held(list *l, int k)
{
    const int i = l->held[k];
    memmove(l->held + k, l->held + k + 1, (size_t)(l->n_held - k - 1) * sizeof *l->held);
    l->n_held--;
    put(l, i);
}

/* What the collectives of the rest of this block take that the program itself waits for. */
static double critical_after(const list *l, int i)
{
    double sum = 0;
    for (int j = i + 1; j < l->n && l->run[j] == l->run[i]; j++)
        if (!l->early[j] && !l->sink[j] && movable(l->g, l->at[j]))
            sum += l->cost[j];
    return sum;
}

/* Work is held back only as cover for collectives that come, and only as much as they take. */
static bool worth_holding(const list *l, int k, int at)
{
    const int i = l->held[k];
    double cover = 0;
    for (int e = 0; e < k; e++)
        cover += carries(l->at[l->held[e]]) ? 0 : l->cost[l->held[e]];
    return l->run[i] == l->run[at] && cover < SLACK * critical_after(l, at);
}

/* Puts of the held what should be held no longer at index `at`. */
static void release(list *l, int at)
{
    for (int k = 0; k < l->n_held;) {
        const int i = l->held[k];
        const tt_node *n = l->at[i];
        const bool old = l->run[i] + 1 < l->run[at];
        const bool works = !carries(n);
        if (ready(l, k, old) && (old || !works || !worth_holding(l, k, at))) {
            put_held(l, k);
            k = 0;
        } else {
            k++;
        }
    }
}

/* Runs held work while i would wait for what it reads. */
static void cover(list *l, int i)
{
    for (int j = 0; j < l->at[i]->n_in; j++) {
        const int p = producer(l, l->at[i]->in[j]);
        if (p < 0 || !crosses_link(l->at[p]))
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

static void flush(list *l)
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

static void reorder(list *l, tt_arena *a)
{
    int *next =
        tt_arena_array(a, (size_t)l->n + 1, sizeof *next); /* early ones by place, chained */
    int *first = tt_arena_array(a, (size_t)l->n + 1, sizeof *first);
    for (int i = l->n; i-- > 0;) { /* first to last within a place */
        next[i] = first[l->place[i]];
        first[l->place[i]] = 1 + i;
    }
    for (int i = 0; i < l->n; i++) {
        if (l->n_held && l->at[i]->region != l->at[i - 1]->region)
            flush(l);
        for (int e = first[i]; e; e = next[e - 1])
            if (l->early[e - 1] && movable(l->g, l->at[e - 1]))
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
static void keep_regions(list *l)
{
    tt_region least = TT_UPDATE;
    for (int i = l->n_out; i-- > 0;) {
        tt_node *n = l->out[i];
        if (n->region < least)
            least = n->region;
        else
            n->region = least;
    }
}

/* Async is what has work between its place and its wait. */
static void mark_async(list *l)
{
    tt_nodes order = {.items = l->out, .n = l->n_out};
    for (int i = 0; i < order.n; i++)
        order.items[i]->async = movable(l->g, order.items[i]);
    tt_under_way none = {0};
    tt_arena *a = tt_arena_new();
    double *time = tt_arena_array(a, (size_t)order.n + 1, sizeof *time);
    int *at = tt_arena_array(a, (size_t)l->g->n_ids + 1, sizeof *at);
    for (int i = 0; i < order.n; i++) {
        const tt_node *n = order.items[i];
        at[n->id] = i;
        time[i + 1] = time[i] + (crosses_link(n) ? 0 : duration(l->g, n, l->machine));
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
    if (n->region > TT_BACKWARD)
        return 3 * g->n_stages + (n->region == TT_UPDATE);
    if (tt_plan_one_timeline(g))
        return 0;
    return 3 * n->stage + (int)tt_node_part(n);
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
        list l = {
            .g = g, .machine = o->machine, .at = tt_arena_array(a, g->nodes.n + 1, sizeof *l.at)};
        for (size_t i = first; i < g->nodes.n; i++)
            if (list_of(g, g->nodes.items[i]) == which)
                l.at[l.n++] = g->nodes.items[i];
        list_init(&l, a);
        find_places(&l);
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
