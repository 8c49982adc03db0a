/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/passes.h"
#include <string.h>

/* order: drops nodes that nothing reads. Moves the reduction and the accumulation of a gradient
 * to directly after the node that makes it, so that it lives no longer than necessary. Makes
 * regions and stages contiguous. */

static bool is_effect(const tt_node *n)
{
    return n->op == &tt_op_accumulate || n->op == &tt_op_assign;
}

/* Goes backwards over the list: a node is needed if it writes a state or if a needed node reads
 * it. */
static void mark_live(const tt_graph *g, bool *live_value, bool *keep)
{
    for (size_t i = g->nodes.n; i-- > 0;) {
        const tt_node *n = g->nodes.items[i];
        bool any = is_effect(n);
        for (int j = 0; j < n->n_out; j++)
            any = any || live_value[n->out[j]->id];
        if (n->role == TT_NODE_EXPANDED)
            any = false;
        keep[i] = any;
        for (int j = 0; any && j < n->n_in; j++)
            live_value[n->in[j]->id] = true;
    }
}

void tt_pass_drop_unread(tt_graph *g)
{
    bool *live = tt_arena_array(g->arena, (size_t)g->n_values + 1, sizeof *live);
    size_t kept = 0;
    for (size_t i = 0; i < tt_map_size(g->outputs); i++)
        live[((const tt_value *)tt_map_value(g->outputs, i))->id] = true;
    for (size_t i = 0; i < g->metrics.n; i++)
        live[g->metrics.items[i].value->id] = true;
    for (size_t i = 0; i < g->losses.n; i++)
        live[g->losses.items[i].value->id] = true;
    if (g->loss)
        live[g->loss->id] = true;
    bool *keep = tt_arena_array(g->arena, g->nodes.n + 1, sizeof *keep);
    mark_live(g, live, keep);
    for (size_t i = 0; i < g->nodes.n; i++) {
        tt_node *n = g->nodes.items[i];
        const bool leaf = n->op == &tt_op_input || n->op == &tt_op_param || n->op == &tt_op_state;
        bool read = false;
        for (int j = 0; j < n->n_out; j++)
            read = read || live[n->out[j]->id];
        if (leaf || read || keep[i])
            g->nodes.items[kept++] = n;
    }
    g->nodes.n = kept;
    g->buffer_updates.n = g->loads.n = 0; /* only training changes buffers and counts */
}

typedef struct orderer {
    tt_graph *g;
    tt_node **out;
    size_t n_out;
    bool *keep, *done; /* by node index */
    bool *
        carries; /* by node id: a collective or cast that only an accumulation or early update reads */
    bool loop_done;
    tt_readers readers;
} orderer;

static bool eager(const orderer *o, const tt_node *n)
{
    return n->op == &tt_op_accumulate || o->carries[n->id];
}

static void order_node(orderer *o, size_t i);

static void put_eager_readers(orderer *o, const tt_node *n)
{
    for (int j = 0; j < n->n_out; j++) {
        const int v = n->out[j]->id;
        for (int k = 0; k < o->readers.n[v]; k++) {
            const int i = o->readers.of[v][k];
            if (o->keep[i] && !o->done[i] && eager(o, o->g->nodes.items[i]))
                order_node(o, (size_t)i);
        }
    }
}

static void order_node(orderer *o, size_t i)
{
    tt_node *n = o->g->nodes.items[i];
    o->done[i] = true;
    o->out[o->n_out++] = n;
    if (!n->when->in_chunk_loop)
        put_eager_readers(o, n);
}

/* Puts the nodes of the forward that the loop reads: a converter's may stand behind nodes that need the
 * loop's results. */
static void put_operands_of_loop(orderer *o)
{
    const tt_graph *g = o->g;
    bool *read = tt_arena_array(g->arena, (size_t)g->n_values + 1, sizeof *read);
    bool *before = tt_arena_array(g->arena, g->nodes.n + 1, sizeof *before);
    for (size_t i = g->nodes.n; i-- > 0;) {
        const tt_node *n = g->nodes.items[i];
        bool any = n->when->in_chunk_loop;
        for (int j = 0; j < n->n_out; j++)
            any = any || read[n->out[j]->id];
        before[i] = any && !n->when->in_chunk_loop && n->when->region == TT_FORWARD;
        for (int j = 0; any && j < n->n_in; j++)
            read[n->in[j]->id] = true;
    }
    for (size_t i = 0; i < g->nodes.n; i++)
        if (before[i] && o->keep[i] && !o->done[i])
            order_node(o, i);
}

/* Puts the token-chunk loop in one piece: forward nodes and their derivatives in order, then the
 * nodes that need its results. */
static void put_loop(orderer *o)
{
    if (o->loop_done)
        return;
    o->loop_done = true;
    put_operands_of_loop(o);
    const size_t first = o->n_out;
    for (size_t i = 0; i < o->g->nodes.n; i++)
        if (o->keep[i] && !o->done[i] && o->g->nodes.items[i]->when->in_chunk_loop)
            order_node(o, i);
    const size_t last = o->n_out;
    for (size_t i = first; i < last; i++)
        put_eager_readers(o, o->out[i]);
}

static bool reads_loop(const orderer *o, const tt_node *n)
{
    for (int j = 0; j < n->n_in; j++)
        if (n->in[j]->node->when->in_chunk_loop && n->in[j]->node->when->region == n->when->region)
            return o->g->chunk_rows > 0;
    return false;
}

static void put_region(orderer *o, tt_region region)
{
    for (size_t i = 0; i < o->g->nodes.n; i++) {
        const tt_node *e = o->g->nodes.items[i];
        if (!o->keep[i] || o->done[i] || e->when->region != region || eager(o, e) ||
            e->when->in_chunk_loop)
            continue;
        if (reads_loop(o, e))
            put_loop(o);
        if (!o->done[i])
            order_node(o, i);
    }
    if (region == TT_FORWARD)
        put_loop(o);
}

/* If a micro-batch accumulates to one member several times, the first accumulation stores and
 * the others add. */
static void mark_adding(tt_graph *g)
{
    bool **stored = tt_arena_array(g->arena, g->states.n + 1, sizeof *stored); /* by 1 + member */
    int *most = tt_arena_array(g->arena, g->states.n + 1, sizeof *most); /* 1 + the last member */
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        if (n->op == &tt_op_accumulate)
            most[n->state->id] = TT_MAXV(most[n->state->id], n->accumulate_index + 1);
    }
    for (size_t i = 0; i < g->nodes.n; i++) {
        tt_node *n = g->nodes.items[i];
        if (n->op != &tt_op_accumulate)
            continue;
        bool **of = &stored[n->state->id];
        if (!*of)
            *of = tt_arena_array(g->arena, (size_t)most[n->state->id] + 1, sizeof **of);
        bool *at = *of + n->accumulate_index + 1;
        n->accumulates = *at;
        *at = true;
    }
}

/* Finds each collective or cast whose only reader is an accumulation or an early update: it is moved to what
 * makes the gradient. */
static bool *find_carriers(tt_graph *g, const bool *keep)
{
    bool *carries = tt_arena_array(g->arena, (size_t)g->n_ids + 1, sizeof *carries);
    int *uses = tt_arena_array(g->arena, (size_t)g->n_values + 1, sizeof *uses);
    for (size_t i = 0; i < g->nodes.n; i++)
        for (int j = 0; keep[i] && j < g->nodes.items[i]->n_in; j++)
            uses[g->nodes.items[i]->in[j]->id]++;
    for (size_t i = g->nodes.n; i-- > 0;) {
        tt_node *n = g->nodes.items[i];
        if (!keep[i] || (n->op != &tt_op_accumulate && !n->when->early_update) || !n->n_in)
            continue;
        for (tt_node *p = n->in[0]->node;
             !p->when->early_update && (p->op == &tt_op_collective || tt_node_is_cast(p)) &&
             p->when->region == n->when->region && uses[p->out[0]->id] == 1;
             p = p->in[0]->node)
            carries[p->id] = true;
    }
    return carries;
}

/* A state is read as it was before the step, so no reader may stand after its assignment. Members of a
 * stack may be loaded and assigned in ascending order. */
static tt_status check_reads(const tt_graph *g, tt_error *err)
{
    uint64_t *written = tt_arena_array(g->arena, g->states.n + 1, sizeof *written); /* stages */
    int64_t *end = tt_arena_array(g->arena, g->states.n + 1, sizeof *end); /* of these members */
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        for (int j = 0; j < n->n_in; j++) {
            const tt_node *p = n->in[j]->node;
            if (p->op == &tt_op_state && written[p->state->id] >> n->when->stage & 1 &&
                !(n->op == &tt_op_load && n->accumulate_index >= end[p->state->id]))
                return TT_FAIL(err, TT_EINVAL,
                               "%s: reads %s after tt_assign() to it: compute with the old value "
                               "before assigning the new",
                               n->scope, p->state->name);
        }
        if (n->op == &tt_op_assign && n->state->kind != TT_STATE_METRIC &&
            n->state->kind != TT_STATE_GATHERED) {
            written[n->state->id] |= UINT64_C(1) << n->when->stage;
            end[n->state->id] = n->accumulate_index < 0
                                    ? INT64_MAX
                                    : n->accumulate_index + n->in[0]->type.dims[0].size;
        }
    }
    return TT_OK;
}

tt_status tt_pass_order(tt_graph *g, tt_error *err)
{
    const size_t n = g->nodes.n;
    bool *live = tt_arena_array(g->arena, (size_t)g->n_values + 1, sizeof *live);
    bool *keep = tt_arena_array(g->arena, n + 1, sizeof *keep);
    mark_live(g, live, keep);
    orderer o = {
        .g = g, .keep = keep, .carries = find_carriers(g, keep), .readers = tt_find_readers(g)};
    o.out = tt_arena_array(g->arena, n + 1, sizeof *o.out);
    o.done = tt_arena_array(g->arena, n + 1, sizeof *o.done);
    for (int region = TT_FORWARD; region <= TT_POST_UPDATE; region++)
        put_region(&o, (tt_region)region);
    memcpy(g->nodes.items, o.out, o.n_out * sizeof *o.out);
    g->nodes.n = o.n_out;
    mark_adding(g);
    TT_TRY(check_reads(g, err));
    return tt_graph_verify(g, "order", err);
}
