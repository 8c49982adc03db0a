/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/copies.h"
#include "graph/rewrite.h"
#include <stdlib.h>
#include <string.h>

int tt_value_n_copies(const tt_value *v)
{
    return v->copies ? v->copies->n : 1;
}

tt_value *tt_value_copy(tt_value *v, int c)
{
    return c && v->copies ? v->copies->of[c] : v;
}

void tt_value_copy_from(tt_graph *g, tt_value *v, const tt_value *from,
                        tt_value *(*now)(const void *user, tt_value *v), const void *user)
{
    if (!from->copies)
        return;
    tt_copies *c = tt_arena_dup(g->arena, from->copies, sizeof *c);
    for (int i = 1; i < c->n; i++)
        c->of[i] = now(user, from->copies->of[i]);
    v->copies = c;
}

void tt_value_add_copy(tt_graph *g, tt_value *v, tt_value *copy)
{
    TT_ASSERT(tt_value_n_copies(v) < g->interleaved);
    if (!v->copies) {
        v->copies = tt_arena_alloc(g->arena, sizeof *v->copies);
        v->copies->n = 1;
    }
    v->copies->of[v->copies->n++] = copy;
}

void tt_accumulate_copies(tt_builder *b, tt_state *s, int index, tt_value *v)
{
    for (int c = 0; c < tt_value_n_copies(v); c++)
        tt_accumulate(b, s, index, tt_value_copy(v, c));
}

const char *tt_input_of_copy(tt_arena *a, const char *name, int c)
{
    return c ? tt_arena_printf(a, "%s" TT_INPUT_COPY "%d", name, c) : name;
}

int tt_input_copy(const char *name)
{
    const char *at = strchr(name, TT_INPUT_COPY[0]);
    return at ? atoi(at + 1) : 0;
}

uint8_t *tt_graph_copies_of_values(const tt_graph *g, tt_arena *a)
{
    uint8_t *of = tt_arena_array(a, (size_t)g->n_values + 1, sizeof *of);
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        uint8_t bits = 0;
        if (n->op == &tt_op_input)
            bits = (uint8_t)(1u << tt_input_copy(n->input_name));
        for (int j = 0; j < n->n_in; j++)
            bits |= of[n->in[j]->id];
        for (int j = 0; n->role != TT_NODE_EXPANDED && j < n->n_out; j++)
            of[n->out[j]->id] = bits;
    }
    return of;
}

/* What v is now, with what its copies are now. */
static tt_value *named_now(tt_graph *g, tt_value *v,
                           tt_value *(*now)(const void *user, tt_value *v), const void *user)
{
    tt_value *w = now(user, v);
    tt_value_copy_from(g, w, v, now, user);
    return w;
}

void tt_graph_replace_named(tt_graph *g, tt_value *(*now)(const void *user, tt_value *v),
                            const void *user)
{
    for (size_t i = 0; i < tt_map_size(g->outputs); i++)
        tt_map_set(g->outputs, tt_map_key(g->outputs, i), now(user, tt_map_value(g->outputs, i)));
    for (size_t i = 0; i < g->losses.n; i++)
        g->losses.items[i].value = now(user, g->losses.items[i].value);
    for (size_t i = 0; i < g->metrics.n; i++)
        g->metrics.items[i].value = named_now(g, g->metrics.items[i].value, now, user);
    for (size_t i = 0; i < g->buffer_updates.n; i++)
        g->buffer_updates.items[i].stat = named_now(g, g->buffer_updates.items[i].stat, now, user);
    if (g->loss)
        g->loss = named_now(g, g->loss, now, user);
    for (size_t i = 0; i < g->stacks.n; i++)
        if (g->stacks.items[i]->early_grad)
            g->stacks.items[i]->early_grad = now(user, g->stacks.items[i]->early_grad);
}
