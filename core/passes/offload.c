/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/passes.h"

/* offload: in an update whose states lie in host memory, copies run concurrently with the kernels. The states of
 * the next members are on their way to the device while those of the current ones are updated, and what
 * was updated is on its way back until the next members are updated, too. */

static bool loads(const tt_node *n)
{
    return n->op == &tt_op_load && n->state->offloaded;
}

static bool stores(const tt_node *n)
{
    return n->op == &tt_op_assign && n->state->offloaded;
}

/* Are the states of both nodes updated together? */
static bool together(const tt_node *a, const tt_node *b)
{
    return a->state->stack == b->state->stack && a->state->first == b->state->first &&
           a->when->stage == b->when->stage;
}

typedef struct moved {
    tt_node **out;
    size_t n;
    bool *done; /* by index */
} moved;

/* The load at i, and the others of its members, each behind the node that names its state. */
static void put_loads(const tt_graph *g, size_t i, moved *m)
{
    const tt_node *first = g->nodes.items[i];
    for (size_t k = i; k < g->nodes.n; k++) {
        tt_node *n = g->nodes.items[k];
        if (!loads(n) || !together(n, first) || m->done[k])
            continue;
        for (size_t s = 0; s < k; s++)
            if (g->nodes.items[s] == n->in[0]->node && !m->done[s]) {
                m->out[m->n++] = g->nodes.items[s];
                m->done[s] = true;
            }
        m->out[m->n++] = n;
        m->done[k] = true;
        n->async = true;
    }
}

/* The first load of other members behind the one at i; the number of nodes if there is none. */
static size_t next_members(const tt_graph *g, size_t i)
{
    const tt_node *first = g->nodes.items[i];
    for (; i < g->nodes.n; i++)
        if (loads(g->nodes.items[i]) && !together(g->nodes.items[i], first))
            return i;
    return i;
}

tt_status tt_pass_offload(tt_graph *g, tt_error *err)
{
    moved m = {.out = tt_arena_array(g->arena, g->nodes.n + 1, sizeof(tt_node *)),
               .done = tt_arena_array(g->arena, g->nodes.n + 1, sizeof(bool))};
    const tt_node *last = NULL;
    for (size_t i = 0; i < g->nodes.n; i++) {
        tt_node *n = g->nodes.items[i];
        if (loads(n) && !(last && together(n, last))) { /* where these members begin */
            const size_t next = next_members(g, i);
            last = n;
            put_loads(g, i, &m);
            if (next < g->nodes.n)
                put_loads(g, next, &m);
        }
        if (stores(n))
            n->async = true;
        if (!m.done[i])
            m.out[m.n++] = n;
        m.done[i] = true;
    }
    g->nodes.items = m.out;
    return tt_graph_verify(g, "offload", err);
}
