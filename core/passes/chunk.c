/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/rewrite.h"
#include "passes/passes.h"
#include <string.h>

/* chunk: every op from the head's matmul to the per-token loss works token by token, and the
 * number of counted tokens is known before the forward (R17). So these nodes and their
 * derivatives run chunk by chunk inside the forward. Only one chunk of the logits and of their
 * gradient exists at a time, and the head's dW is summed over the chunks. This works for any
 * loss and needs no fused kernel. */

#define MIN_ROWS 256
#define MAX_HEADS 64

static bool local_op(const tt_node *n)
{
    return n->op != &tt_op_input && n->op != &tt_op_param && n->op != &tt_op_state &&
           n->op != &tt_op_fetch && n->op != &tt_op_transfer;
}

/* The matmul that makes the logits. The search goes up through per-token ops that have exactly
 * one per-token input. */
static tt_node *head_of(const tt_graph *g, tt_value *v)
{
    while (v) {
        tt_node *n = v->node;
        if (n->op->flags & TT_OP_PROJECTION)
            return n;
        tt_value *next = NULL;
        for (int i = 0; local_op(n) && i < n->n_in; i++)
            if (tt_value_per_token(g, n->in[i]))
                next = next ? NULL : n->in[i];
        v = next;
    }
    return NULL;
}

/* The heads of the outputs "logits", "logits+1" and so on, which have one shape; returns how many; 0: there is no
 * loop. */
static int find_heads(const tt_graph *g, const tt_node **heads)
{
    int n = 0;
    for (size_t i = 0; i < tt_map_size(g->outputs); i++) {
        if (strncmp(tt_map_key(g->outputs, i), "logits", 6) != 0)
            continue;
        const tt_node *h = n < MAX_HEADS ? head_of(g, tt_map_value(g->outputs, i)) : NULL;
        if (!h || h->block >= 0 || h->when->stage != g->loss->node->when->stage ||
            (n && (tt_type_numel(&h->out[0]->type) != tt_type_numel(&heads[0]->out[0]->type) ||
                   !tt_placement_equal(&h->out[0]->place, &heads[0]->out[0]->place))))
            return 0;
        heads[n++] = h;
    }
    return n;
}

/* Finds the nodes between the heads and the loss: those that depend on a head's output and that
 * the loss or a term of it depends on. */
static void mark_between(tt_graph *g, const tt_node **heads, int n_heads, bool *above, bool *below)
{
    for (int k = 0; k < n_heads; k++)
        above[heads[k]->out[0]->id] = true;
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        bool any = n->n_out > 0 && above[n->out[0]->id];
        for (int j = 0; j < n->n_in; j++)
            any = any || above[n->in[j]->id];
        for (int j = 0; any && j < n->n_out; j++)
            above[n->out[j]->id] = true;
    }
    below[g->loss->id] = true;
    for (size_t i = 0; i < g->losses.n; i++)
        below[g->losses.items[i].value->id] = true;
    for (size_t i = g->nodes.n; i-- > 0;) {
        const tt_node *n = g->nodes.items[i];
        bool any = false;
        for (int j = 0; j < n->n_out; j++)
            any = any || below[n->out[j]->id];
        for (int j = 0; any && j < n->n_in; j++)
            below[n->in[j]->id] = true;
    }
}

static bool chunkable(const tt_graph *g, const tt_node *n)
{
    if (n->op == &tt_op_redistribute) {
        tt_lower_step steps[TT_MAX_STEPS];
        const int k = tt_lower(g->mesh, n->out[0]->type.dims, n->out[0]->type.n_dims,
                               &n->in[0]->place, &n->out[0]->place, steps);
        for (int i = 0; i < k; i++)
            if (steps[i].kind != TT_STEP_ALL_REDUCE && steps[i].kind != TT_STEP_MASK)
                return false;
        return true;
    }
    if (!local_op(n) || (n->op->flags & TT_OP_MIXES_TOKENS))
        return false;
    for (int j = 0; n->role != TT_NODE_EXPANDED && j < n->n_out; j++)
        if (!tt_value_per_token(g, n->out[j]) && n->n_in)
            return false;
    return true;
}

static void set_in_loop(tt_graph *g, tt_node *n, bool in)
{
    tt_when w = *n->when;
    w.in_chunk_loop = in;
    n->when = tt_when_intern(g, w);
}

/* What depends on the logits but is no part of the loss runs after the loop, and so the loop keeps what it reads
 * of all tokens: numbers per token, but not logits. Buffers would have to be computed by then. */
static bool reads_after_loop(const tt_graph *g, const bool *above, const bool *below)
{
    for (size_t i = 0; i < g->buffer_updates.n; i++)
        if (above[g->buffer_updates.items[i].stat->id])
            return false;
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        bool inside = false, depends = false;
        for (int j = 0; j < n->n_out; j++) {
            inside = inside || below[n->out[j]->id];
            depends = depends || above[n->out[j]->id];
        }
        for (int j = 0; depends && !inside && j < n->n_in; j++)
            if (above[n->in[j]->id] && n->in[j]->type.n_dims > 1)
                return false;
    }
    return true;
}

tt_status tt_pass_chunk_mark(tt_graph *g, const tt_chunk_opts *o, tt_error *err)
{
    const tt_node *heads[MAX_HEADS];
    const int n_heads = o->bytes > 0 && g->loss ? find_heads(g, heads) : 0;
    if (!n_heads)
        return TT_OK;
    const tt_value *v = heads[0]->out[0];
    const int64_t rows = tt_chunk(g->mesh, &v->type.dims[0], v->place.atom[0], v->place.n[0]);
    const int64_t width =
        tt_max_local_numel(g->mesh, v->type.dims, v->type.n_dims, &v->place) / TT_MAXV(rows, 1);
    int64_t chunk = o->bytes / TT_MAXV(width * 4 * n_heads, 1) / 64 * 64;
    chunk = TT_MAXV(chunk, MIN_ROWS);
    if (rows <= chunk)
        return TT_OK;
    bool *above = tt_arena_array(g->arena, (size_t)g->n_values + 1, sizeof *above);
    bool *below = tt_arena_array(g->arena, (size_t)g->n_values + 1, sizeof *below);
    mark_between(g, heads, n_heads, above, below);
    if (!reads_after_loop(g, above, below))
        return TT_OK;
    for (int pass = 0; pass < 2; pass++) /* check all nodes before one is marked */
        for (size_t i = 0; i < g->nodes.n; i++) {
            tt_node *n = g->nodes.items[i];
            bool in = false;
            for (int j = 0; j < n->n_out; j++)
                in = in || (above[n->out[j]->id] && below[n->out[j]->id]);
            if (in && pass == 0 && !chunkable(g, n))
                return TT_OK;
            if (in && pass == 1)
                set_in_loop(g, n, true);
        }
    g->chunk_rows = chunk;
    return tt_graph_verify(g, "chunk_mark", err);
}

static void unmark(tt_graph *g)
{
    for (size_t i = 0; i < g->nodes.n; i++)
        set_in_loop(g, g->nodes.items[i], false);
    g->chunk_rows = 0;
}

/* Does a row that n makes depend on other tokens' rows? */
static bool mixes_rows(const tt_graph *g, const tt_node *n)
{
    for (int j = 0; n->rule && j < n->n_in; j++)
        if (tt_value_per_token(g, n->in[j]) && n->rule->n_in_dims[j] &&
            n->rule->whole >> n->rule->in[j][0] & 1u)
            return true;
    return (n->op->flags & TT_OP_MIXES_TOKENS) != 0;
}

/* A node outside of the loop that reads what the loop makes runs after it, and so does what reads that. */
static void mark_after_loop(const tt_node *n, bool *after)
{
    bool late = false;
    for (int j = 0; j < n->n_in; j++)
        late = late || n->in[j]->node->when->in_chunk_loop || after[n->in[j]->id];
    for (int j = 0; j < n->n_out; j++)
        after[n->out[j]->id] = late;
}

/* Can n run chunk by chunk? Its results are per token, or summed over tokens by a kernel that can add.
 * summed: by value id, the sums and what is made of them: they are complete only after the loop. */
static bool runs_by_chunks(const tt_graph *g, const tt_chunk_opts *o, const tt_node *n,
                           bool *summed)
{
    bool whole_out = false, token_in = false, sum_in = false;
    for (int j = 0; j < n->n_out; j++)
        whole_out = whole_out || !tt_value_per_token(g, n->out[j]);
    for (int j = 0; j < n->n_in; j++) {
        token_in = token_in || tt_value_per_token(g, n->in[j]);
        sum_in = sum_in || summed[n->in[j]->id];
    }
    for (int j = 0; j < n->n_out; j++)
        summed[n->out[j]->id] = whole_out && (token_in || sum_in);
    if (!whole_out)
        return !sum_in && !mixes_rows(g, n);
    return !token_in || (!sum_in && n->n_out == 1 && o->can_accumulate &&
                         o->can_accumulate(o->user, n->op->name) &&
                         tt_pass_supports(o->supports, o->user, n, true));
}

void tt_pass_chunk_check(tt_graph *g, const tt_chunk_opts *o)
{
    bool *summed = tt_arena_array(g->arena, (size_t)g->n_values + 1, sizeof *summed);
    for (size_t i = 0; g->chunk_rows && i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        if (!n->when->in_chunk_loop)
            mark_after_loop(n, summed);
        if (!n->when->in_chunk_loop || n->role == TT_NODE_EXPANDED ||
            runs_by_chunks(g, o, n, summed))
            continue;
        g->unchunked = n->scope && n->scope[0]
                           ? tt_arena_printf(g->arena, "op %s in \"%s\"", n->op->name, n->scope)
                           : tt_arena_printf(g->arena, "op %s", n->op->name);
        unmark(g);
    }
}

/* Marks values of which only a chunk's rows have to exist: those that only nodes of the loop
 * read. */
static void find_interior(tt_graph *g)
{
    bool *outside = tt_arena_array(g->arena, (size_t)g->n_values + 1, sizeof *outside);
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        for (int j = 0; !n->when->in_chunk_loop && n->role != TT_NODE_EXPANDED && j < n->n_in; j++)
            outside[n->in[j]->id] = true;
    }
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        for (int j = 0; n->when->in_chunk_loop && n->role != TT_NODE_EXPANDED && j < n->n_out; j++)
            n->out[j]->chunked = tt_value_per_token(g, n->out[j]) && !outside[n->out[j]->id];
    }
}

/* May n move with a sum of the loop that it reads? */
static bool follows_loop(const tt_graph *g, const tt_node *n)
{
    const bool whole = n->n_in && n->n_out && !tt_value_per_token(g, n->out[0]);
    return n->op == &tt_op_redistribute || n->op == &tt_op_accumulate || tt_node_is_cast(n) ||
           (whole && (n->op->flags & TT_OP_POINTWISE));
}

/* Moves the derivatives of the loop into the forward, and with them the nodes that only reduce
 * and accumulate their results. */
tt_status tt_pass_chunk_move(tt_graph *g, const tt_chunk_opts *o, tt_error *err)
{
    (void)err;
    if (!g->chunk_rows)
        return TT_OK;
    tt_pass_chunk_check(g, o);
    if (!g->chunk_rows)
        return TT_OK;
    bool *moved = tt_arena_array(g->arena, (size_t)g->n_values + 1, sizeof *moved);
    for (size_t i = 0; i < g->nodes.n; i++) {
        tt_node *n = g->nodes.items[i];
        if (n->when->region != TT_BACKWARD)
            continue;
        bool follows = follows_loop(g, n);
        for (int j = 0; j < n->n_in; j++)
            follows = follows && moved[n->in[j]->id];
        if (!n->when->in_chunk_loop && !follows)
            continue;
        tt_when w = *n->when;
        w.region = TT_FORWARD;
        n->when = tt_when_intern(g, w);
        for (int j = 0; j < n->n_out; j++)
            moved[n->out[j]->id] = true;
    }
    find_interior(g);
    return TT_OK; /* the order pass makes the loop contiguous and verifies the graph */
}
