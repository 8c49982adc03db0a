/* SPDX-License-Identifier: Apache-2.0 */
#include "data/mixture.h"
#include <math.h>

/* A binary tree of draws in which light sources are deep (Huffman 1952). Of the first m draws that
 * reach a node, round(m·p) go to its left child, whose share is p. So draw m goes left if that
 * number grows there, and its value before is the draw's index in the child. A leaf's count is off
 * by at most ½ for its parent, ½ times its share for the next node up, and so on. In a Huffman tree
 * every share but the first is at most 2/3, so the sum is below ½·(1 + 1 + 2/3 + 4/9 + …) = 2. */

__extension__ typedef unsigned __int128 wide;

typedef struct {
    uint64_t weight;
    int left, right; /* indices of nodes; -1 = this is a leaf */
} mix_node;

struct tt_mix {
    mix_node *nodes; /* [2n - 1], leaves first */
    int root;
};

/* The lightest node without a parent, except `other`; of equal ones the first. */
static int lightest(const mix_node *nodes, const bool *taken, int n, int other)
{
    int best = -1;
    for (int i = 0; i < n; i++)
        if (!taken[i] && i != other && (best < 0 || nodes[i].weight < nodes[best].weight))
            best = i;
    return best;
}

tt_mix *tt_mix_new(tt_arena *a, const double *weights, int n)
{
    tt_mix *m = tt_arena_alloc(a, sizeof *m);
    bool *taken = tt_arena_array(a, 2 * (size_t)n, sizeof *taken);
    double most = 0, sum = 0;
    TT_ASSERT(n >= 1);
    m->nodes = tt_arena_array(a, 2 * (size_t)n, sizeof *m->nodes);
    for (int i = 0; i < n; i++)
        most = TT_MAXV(most, weights[i]);
    for (int i = 0; i < n; i++)
        sum += weights[i] / most;
    for (int i = 0; i < n; i++) {
        const double share = weights[i] / most / sum; /* times 2^60: exact for any run's draws */
        m->nodes[i] = (mix_node){TT_MAXV((uint64_t)ldexp(share, 60), (uint64_t)1), -1, -1};
    }
    for (int k = n; k < 2 * n - 1; k++) {
        const int x = lightest(m->nodes, taken, k, -1), y = lightest(m->nodes, taken, k, x);
        taken[x] = taken[y] = true;
        m->nodes[k] = (mix_node){m->nodes[x].weight + m->nodes[y].weight, x, y};
    }
    m->root = 2 * n - 2;
    return m;
}

/* How many of the first `draws` at a node go to its left child. */
static int64_t left_of(const tt_mix *m, const mix_node *at, int64_t draws)
{
    const wide w = at->weight;
    return (int64_t)(((wide)(uint64_t)draws * m->nodes[at->left].weight + w / 2) / w);
}

void tt_mix_at(const tt_mix *m, int64_t g, int *source, int64_t *index)
{
    int i = m->root;
    TT_ASSERT(g >= 0 && g < INT64_MAX);
    while (m->nodes[i].left >= 0) {
        const mix_node *at = &m->nodes[i];
        const int64_t before = left_of(m, at, g);
        const bool left = left_of(m, at, g + 1) > before;
        i = left ? at->left : at->right;
        g = left ? before : g - before;
    }
    *source = i;
    *index = g;
}

int64_t tt_mixture_find(const tt_mixture *m, int64_t g, int *source, int64_t *epoch)
{
    int64_t index;
    tt_mix_at(m->mix, g, source, &index);
    return tt_order_sample(&m->sources[*source].order, index, epoch);
}

int64_t tt_mixture_samples(void *mixture)
{
    return ((const tt_mixture *)mixture)->n_samples;
}

tt_status tt_mixture_read(void *mixture, int64_t g, tt_sample *out, tt_error *err)
{
    const tt_mixture *m = mixture;
    int64_t epoch;
    int i;
    const int64_t index = tt_mixture_find(m, g, &i, &epoch);
    const tt_mixture_source *s = &m->sources[i];
    if (TT_PLUGIN_CALL(s->vt->read(s->self, index, out, err), err, "dataloader", s->name) == TT_OK)
        return TT_OK;
    return tt_error_context(err, "mixture[%d] (%s), its sample %lld of epoch %lld", i, s->name,
                            (long long)index, (long long)epoch);
}
