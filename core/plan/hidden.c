/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/hidden.h"
#include "plan/plan.h"

/* The time of a list on a machine, with what runs beside it. */

typedef struct link { /* of one group: its collectives follow each other */
    uint16_t atoms;
    double free;
} link;

typedef struct clock {
    const tt_graph *g;
    const tt_machine *m;
    double now;
    link links[1 << 8];
    int n_links;
    double *over; /* by node id */
    tt_list_seconds sum;
} clock;

static link *link_of(clock *c, const tt_atom_list *atoms)
{
    uint16_t mask = 0;
    int k = 0;
    for (int i = 0; i < atoms->n; i++)
        mask |= (uint16_t)(1u << TT_ATOM(atoms->atom[i]));
    while (k < c->n_links && c->links[k].atoms != mask)
        k++;
    if (k == c->n_links && k + 1 < (int)TT_COUNT(c->links))
        c->links[c->n_links++] = (link){mask, 0};
    return &c->links[k];
}

static void wait_until(clock *c, double t)
{
    c->sum.exposed += TT_MAXV(t - c->now, 0.0);
    c->now = TT_MAXV(c->now, t);
}

static void pass(clock *c, const tt_node *n)
{
    const tt_seconds t = tt_node_seconds(c->g, n, c->m);
    c->sum.comm += t.comm;
    if (n->async) {
        link *l = link_of(c, &n->step->atoms);
        l->free = TT_MAXV(l->free, c->now) + t.comm;
        c->over[n->id] = l->free;
        return;
    }
    wait_until(c, c->now + t.comm);
    c->now += t.compute;
}

tt_list_seconds tt_nodes_seconds(const tt_graph *g, tt_node *const *nodes, int n,
                                 const tt_machine *m, double *at)
{
    tt_arena *a = tt_arena_new();
    clock *c = tt_arena_alloc(a, sizeof *c);
    *c = (clock){.g = g, .m = m, .over = tt_arena_array(a, (size_t)g->n_ids + 1, sizeof(double))};
    tt_nodes l = {.items = tt_arena_array(a, (size_t)n + 1, sizeof(tt_node *)), .n = n};
    tt_under_way none = {0};
    for (int i = 0; i < n; i++)
        l.items[i] = nodes[i];
    tt_plan_find_waits(a, &l, &none, true);
    for (int i = 0, w = 0; i <= n; i++) {
        const double before = c->now;
        for (; w < l.n_waits && l.waits[w].before <= i; w++)
            wait_until(c, c->over[l.waits[w].node->id]);
        if (i < n && !nodes[i]->virtual_)
            pass(c, nodes[i]);
        if (n) /* what the end waits for is the last one's */
            at[TT_MIN(i, n - 1)] += c->now - before;
    }
    c->sum.total = c->now;
    const tt_list_seconds sum = c->sum;
    tt_arena_free(a);
    return sum;
}
