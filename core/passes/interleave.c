/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/copies.h"
#include "graph/rewrite.h"
#include "passes/passes.h"
#include <string.h>

/* interleave: one call of the program runs several micro-batches (training.intra_layer_micro_batch). What a
 * described graph computes of its inputs is copied for each further micro-batch: block 0 of all of them, then
 * block 1 of all, and so on. A copy is the same ops on the inputs of its own micro-batch, so each value has
 * the bits that it has without copies. Parameters, and what is computed of them alone, exist once. So each
 * is gathered once for all copies, and its gradients are summed before they are reduced. The pass overlap then
 * runs the copies of a block in turns. */

typedef struct interleaver {
    tt_graph *g;
    TT_VEC(tt_node *) list;
} interleaver;

/* v in a copy, which has its values by the ids of the first ones; v itself if it depends on no input. */
static tt_value *copy_of(const void *copies, tt_value *v)
{
    tt_value *const *of = copies;
    return of[v->id] ? of[v->id] : v;
}

static bool is_leaf(const tt_node *n)
{
    return n->op == &tt_op_input || n->op == &tt_op_param || n->op == &tt_op_state;
}

static bool has_inputs(const tt_node *n, const uint8_t *reads)
{
    bool any = n->op == &tt_op_input;
    for (int i = 0; i < n->n_in; i++)
        any = any || reads[n->in[i]->id];
    return any;
}

static void copy_node(interleaver *s, tt_value **copy, const tt_node *n, int number)
{
    tt_graph *g = s->g;
    tt_node *c = tt_arena_dup(g->arena, n, sizeof *n);
    c->id = g->n_ids++;
    c->in = tt_arena_array(g->arena, (size_t)n->n_in + 1, sizeof *c->in);
    c->out = tt_arena_array(g->arena, (size_t)n->n_out + 1, sizeof *c->out);
    for (int i = 0; i < n->n_in; i++)
        c->in[i] = copy_of(copy, n->in[i]);
    for (int i = 0; i < n->n_out; i++) {
        if (n->role == TT_NODE_EXPANDED) { /* other nodes compute its outputs */
            c->out[i] = copy_of(copy, n->out[i]);
            continue;
        }
        c->out[i] = tt_arena_dup(g->arena, n->out[i], sizeof **c->out);
        c->out[i]->id = g->n_values++;
        c->out[i]->node = c;
        copy[n->out[i]->id] = c->out[i];
    }
    if (n->input_name)
        c->input_name = tt_input_of_copy(g->arena, n->input_name, number);
    tt_vec_push(g->arena, &s->list, c);
}

/* ---- what the graph names ---- */

static void name_copies(tt_graph *g, tt_value *v, tt_value **const *copies, int k)
{
    for (int c = 1; v && tt_value_n_copies(v) < k; c++)
        tt_value_add_copy(g, v, copy_of(copies[c], v));
}

static void name_all(tt_graph *g, tt_value **const *copies, int k)
{
    const size_t n_outputs = tt_map_size(g->outputs), n_losses = g->losses.n;
    for (size_t i = 0; i < n_outputs; i++) /* the heads of all copies are in one loop over tokens */
        for (int c = 1; c < k; c++)
            tt_map_set(g->outputs, tt_input_of_copy(g->arena, tt_map_key(g->outputs, i), c),
                       copy_of(copies[c], tt_map_value(g->outputs, i)));
    for (int c = 1; c < k; c++) {
        for (size_t i = 0; i < n_losses; i++) {
            tt_loss_entry e = g->losses.items[i];
            e.value = copy_of(copies[c], e.value);
            tt_vec_push(g->arena, &g->losses, e);
        }
        const tt_loss_entry loss = {"loss", copy_of(copies[c], g->loss), 1};
        tt_vec_push(g->arena, &g->losses, loss);
    }
    name_copies(g, g->loss, copies, k);
    for (size_t i = 0; i < g->metrics.n; i++)
        name_copies(g, g->metrics.items[i].value, copies, k);
    for (size_t i = 0; i < g->buffer_updates.n; i++)
        name_copies(g, g->buffer_updates.items[i].stat, copies, k);
    for (size_t i = 0; i < g->loads.n; i++)
        name_copies(g, g->loads.items[i].counts, copies, k);
}

tt_status tt_pass_interleave(tt_graph *g, int k, tt_error *err)
{
    interleaver s = {.g = g};
    const size_t n = g->nodes.n, n_values = (size_t)g->n_values + 1;
    tt_node **nodes = tt_arena_dup(g->arena, g->nodes.items, (n + 1) * sizeof *nodes);
    tt_value **copies[TT_MAX_INTERLEAVED] = {0};
    if (k < 2)
        return TT_OK;
    TT_ASSERT(k <= TT_MAX_INTERLEAVED);
    g->interleaved = k;
    const uint8_t *reads = tt_graph_copies_of_values(g, g->arena);
    for (int c = 0; c < k; c++)
        copies[c] = tt_arena_array(g->arena, n_values, sizeof *copies[c]);
    for (size_t i = 0; i < n;) { /* a block, or nodes between two blocks */
        const size_t first = i;
        int block = -2;
        for (; i < n && (is_leaf(nodes[i]) || block == -2 || nodes[i]->block == block); i++) {
            tt_vec_push(g->arena, &s.list, nodes[i]);
            block = is_leaf(nodes[i]) ? block : nodes[i]->block;
        }
        for (int c = 1; c < k; c++)
            for (size_t e = first; e < i; e++)
                if (has_inputs(nodes[e], reads))
                    copy_node(&s, copies[c], nodes[e], c);
    }
    g->nodes.items = s.list.items;
    g->nodes.n = s.list.n;
    g->nodes.cap = s.list.cap;
    name_all(g, copies, k);
    return tt_graph_verify(g, "interleave", err);
}
