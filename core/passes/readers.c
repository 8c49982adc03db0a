/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/passes.h"

tt_readers tt_find_readers(tt_graph *g)
{
    const size_t n = (size_t)g->n_values + 1;
    tt_readers r = {.index = tt_arena_array(g->arena, n, sizeof *r.index),
                    .of = tt_arena_array(g->arena, n, sizeof *r.of),
                    .n = tt_arena_array(g->arena, n, sizeof *r.n)};
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *e = g->nodes.items[i];
        for (int j = 0; j < e->n_out; j++)
            r.index[e->out[j]->id] = (int)i;
        for (int j = 0; j < e->n_in; j++)
            r.n[e->in[j]->id]++;
    }
    for (size_t v = 0; v + 1 < n; v++) {
        r.of[v] = tt_arena_array(g->arena, (size_t)r.n[v] + 1, sizeof(int));
        r.n[v] = 0;
    }
    for (size_t i = 0; i < g->nodes.n; i++)
        for (int j = 0; j < g->nodes.items[i]->n_in; j++) {
            const int v = g->nodes.items[i]->in[j]->id;
            if (!r.n[v] || r.of[v][r.n[v] - 1] != (int)i)
                r.of[v][r.n[v]++] = (int)i;
        }
    return r;
}
