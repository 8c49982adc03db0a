/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/min_cut.h"
#include <math.h>
#include <string.h>
#include <ttrun/option.h>

/* Dinic's algorithm: shortest augmenting paths, found level by level. Source: Dinitz 1970, Soviet Math.
 * Doklady 11. An augmentation subtracts the least capacity of its path, which leaves exactly 0 there, so
 * it ends although capacities are no whole numbers. */

typedef struct edge {
    int to;
    double room; /* what more can flow; edge i ^ 1 is the same edge backwards */
    int next;    /* of the same node; -1 = none */
} edge;

struct tt_network {
    tt_arena *a;
    int n;
    int *first, *level, *at, *queue, *path; /* by node; at: the next edge to try */
    TT_VEC(edge) edges;
    double dust; /* less room than this is rounding, and counts as none */
};

#define DUST 1e-12 /* of the largest capacity */

enum { SOURCE, SINK };

tt_network *tt_network_new(tt_arena *a, int n_nodes)
{
    tt_network *n = tt_arena_alloc(a, sizeof *n);
    int **const all[] = {&n->first, &n->level, &n->at, &n->queue, &n->path};
    n->a = a;
    n->n = n_nodes;
    for (size_t i = 0; i < TT_COUNT(all); i++)
        *all[i] = tt_arena_array(a, (size_t)n_nodes + 1, sizeof(int));
    memset(n->first, 0xff, ((size_t)n_nodes + 1) * sizeof(int));
    return n;
}

void tt_network_edge(tt_network *n, int from, int to, double capacity)
{
    if (!isinf(capacity))
        n->dust = TT_MAXV(n->dust, DUST * capacity);
    const edge there = {to, capacity, n->first[from]};
    n->first[from] = (int)n->edges.n;
    tt_vec_push(n->a, &n->edges, there);
    const edge back = {from, 0, n->first[to]};
    n->first[to] = (int)n->edges.n;
    tt_vec_push(n->a, &n->edges, back);
}

/* Sets each node's distance from the source, -1 = not reached. Returns whether the sink is reached. */
static bool find_levels(tt_network *n)
{
    int head = 0, tail = 0;
    memset(n->level, 0xff, (size_t)n->n * sizeof(int));
    n->level[SOURCE] = 0;
    n->queue[tail++] = SOURCE;
    while (head < tail) {
        const int v = n->queue[head++];
        for (int e = n->first[v]; e >= 0; e = n->edges.items[e].next) {
            const int to = n->edges.items[e].to;
            if (n->edges.items[e].room <= n->dust || n->level[to] >= 0)
                continue;
            n->level[to] = n->level[v] + 1;
            n->queue[tail++] = to;
        }
    }
    return n->level[SINK] >= 0;
}

/* Extends the path by an edge to the next level; returns false at a dead end. */
static bool advance(tt_network *n, int v, int depth)
{
    for (int *e = &n->at[v]; *e >= 0; *e = n->edges.items[*e].next) {
        const edge *x = &n->edges.items[*e];
        if (x->room <= n->dust || n->level[x->to] != n->level[v] + 1)
            continue;
        n->path[depth] = *e;
        return true;
    }
    return false;
}

static void push(tt_network *n, int depth)
{
    double least = (double)INFINITY;
    for (int i = 0; i < depth; i++)
        least = TT_MIN(least, n->edges.items[n->path[i]].room);
    for (int i = 0; i < depth; i++) {
        n->edges.items[n->path[i]].room -= least;
        n->edges.items[n->path[i] ^ 1].room += least;
    }
}

/* Pushes along every path of these levels. */
static void augment(tt_network *n)
{
    int v = SOURCE, depth = 0;
    memcpy(n->at, n->first, (size_t)n->n * sizeof(int));
    for (;;) {
        if (v == SINK) {
            push(n, depth);
            v = SOURCE;
            depth = 0;
        } else if (advance(n, v, depth)) {
            v = n->edges.items[n->path[depth++]].to;
        } else if (depth > 0) { /* back, past the edge that led here */
            const int e = n->path[--depth];
            v = n->edges.items[e ^ 1].to;
            n->at[v] = n->edges.items[n->at[v]].next;
        } else {
            return;
        }
    }
}

void tt_network_cut(tt_network *n, bool *source_side)
{
    while (find_levels(n))
        augment(n);
    for (int v = 0; v < n->n; v++)
        source_side[v] = n->level[v] >= 0;
}
