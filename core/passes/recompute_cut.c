/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/min_cut.h"
#include "passes/recompute_impl.h"
#include "plan/plan.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What to keep of a block's forward and what to compute again. For a price of a byte, the best choice is
 * a minimum cut: a value that the backward needs is kept, at its bytes times the price, or its node is
 * computed again, at its time, and then the node's operands are needed. All prices together give the
 * lower convex hull of (bytes, time), whose corners are the recipes. Source: Jain et al. 2020,
 * arXiv:1910.02653, for the problem; Eisner & Severance 1976 (J. ACM 23) for the prices. */

#define LEAST_BYTES 4096.0 /* the finest difference that the last recipe is worth */
#define MOST_RECIPES 64

typedef struct finder {
    tt_graph *g;
    const tt_machine *m;
    const bool *no_cost;           /* by node id */
    int *local_value, *local_node; /* by id: number in the current block, plus 1 */
    int *reader; /* by value id: a block whose backward reads it, plus 1; -1: several */
} finder;

/* ---- the problem of a block ---- */

/* Is n computed again whatever is kept, and for nothing? */
static bool always_again(const finder *f, const tt_node *n)
{
    return tt_plan_is_view(n) || f->no_cost[n->id];
}

/* The time of a node; of a redistribute, that of the collectives that it will be. */
static double node_time(const finder *f, const tt_node *n)
{
    if (n->op != &tt_op_redistribute) {
        const tt_seconds t = tt_node_seconds(f->g, n, f->m);
        return t.compute + t.comm;
    }
    tt_lower_step steps[TT_MAX_STEPS];
    const tt_type *t = &n->out[0]->type;
    const int k =
        tt_lower(f->g->mesh, t->dims, t->n_dims, &n->in[0]->place, &n->out[0]->place, steps);
    double sum = 0;
    for (int i = 0; i < k; i++) {
        tt_node collective = *n;
        collective.op = &tt_op_collective;
        collective.step = &steps[i];
        sum += tt_node_seconds(f->g, &collective, f->m).comm;
    }
    return sum;
}

static double seconds_again(const finder *f, const tt_node *n)
{
    const double least = f->m->ratios ? 1 : 1e-9;
    if (always_again(f, n))
        return 0;
    return n->op == &tt_op_redistribute ? least + node_time(f, n) : TT_MAXV(node_time(f, n), least);
}

static int number_of(finder *f, tt_block_cut *c, const tt_value *v)
{
    int *local = &f->local_value[v->id];
    if (*local)
        return *local - 1;
    const int i = c->n_values++;
    const bool mine =
        tt_recompute_can(v->node) && v->node->block == c->block && v->node->when->stage == c->stage;
    const int reader = f->reader[v->id];
    *local = i + 1;
    c->maker[i] = mine ? f->local_node[v->node->id] - 1 : -1;
    c->keep[i] = mine && always_again(f, v->node)                ? -1
                 : v->node->param || v->node->op == &tt_op_param ? 0
                 : v->node->op == &tt_op_input                   ? 0
                 : v->node->op == &tt_op_state                   ? 0
                 : reader == -1 || (reader && reader != c->block + 1)
                     ? 0
                     : tt_plan_value_bytes(f->g, v);
    return i;
}

static bool of_backward(const tt_node *n, const tt_block_cut *c)
{
    return n->when->region == TT_BACKWARD && n->role != TT_NODE_EXPANDED && n->block == c->block &&
           n->when->stage == c->stage;
}

/* Fetches of parameters are left out: they run concurrently. */
static void add_time(const finder *f, tt_block_cut *c, const tt_node *n)
{
    if (n->param || n->role == TT_NODE_EXPANDED || n->when->stage != c->stage)
        return;
    *(n->when->region == TT_FORWARD ? &c->forward : &c->backward) += node_time(f, n);
}

static bool of_forward(const tt_node *n, const tt_block_cut *c)
{
    return n->block == c->block && n->when->stage == c->stage && tt_recompute_can(n) &&
           n->role != TT_NODE_EXPANDED;
}

static void hash_of(tt_block_cut *c)
{
    const struct {
        const void *at;
        size_t bytes;
    } parts[] = {
        {c->keep,   (size_t)c->n_values * sizeof *c->keep  },
        {c->again,  (size_t)c->n_nodes * sizeof *c->again  },
        {c->maker,  (size_t)c->n_values * sizeof *c->maker },
        {c->needed, (size_t)c->n_values * sizeof *c->needed},
        {c->link,   (size_t)c->n_links * sizeof *c->link   }
    };
    c->hash = (uint64_t)c->n_nodes;
    for (size_t i = 0; i < TT_COUNT(parts); i++)
        c->hash = tt_hash64(parts[i].at, parts[i].bytes, c->hash);
}

/* list: the nodes of the block, forward and backward. */
static void describe_block(finder *f, tt_block_cut *c, tt_node *const *list, int n)
{
    int reads = 0;
    for (int i = 0; i < n; i++)
        reads += list[i]->n_in;
    tt_arena *a = f->g->arena;
    const size_t most = (size_t)reads + 1;
    c->node = tt_arena_array(a, (size_t)n + 1, sizeof *c->node);
    c->again = tt_arena_array(a, (size_t)n + 1, sizeof *c->again);
    c->keep = tt_arena_array(a, most, sizeof *c->keep);
    c->maker = tt_arena_array(a, most, sizeof *c->maker);
    c->needed = tt_arena_array(a, most, sizeof *c->needed);
    c->link = tt_arena_array(a, most, sizeof *c->link);
    for (int i = 0; i < n; i++)
        if (of_forward(list[i], c)) {
            c->again[c->n_nodes] = seconds_again(f, list[i]);
            c->node[c->n_nodes++] = list[i];
            f->local_node[list[i]->id] = c->n_nodes;
        }
    for (int i = 0; i < n; i++)
        add_time(f, c, list[i]);
    for (int i = 0; i < n; i++)
        for (int j = 0; of_backward(list[i], c) && j < list[i]->n_in; j++)
            if (list[i]->in[j]->node->when->region == TT_FORWARD)
                c->needed[number_of(f, c, list[i]->in[j])] = true;
    for (int i = 0; i < c->n_nodes; i++)
        for (int j = 0; j < c->node[i]->n_in; j++) {
            c->link[c->n_links][0] = i;
            c->link[c->n_links++][1] = number_of(f, c, c->node[i]->in[j]);
        }
    hash_of(c);
    for (int i = 0; i < n; i++) /* ready for the next block */
        for (int j = 0; j < list[i]->n_in; j++)
            f->local_value[list[i]->in[j]->id] = 0;
}

/* ---- recipes ---- */

static int largest_first(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

/* Walks from what the backward needs, and drops from `redo` the nodes that it does not reach. */
static tt_recipe recipe_of(tt_arena *a, const tt_block_cut *c, const bool *redo)
{
    tt_recipe r = {.redo = tt_arena_array(a, (size_t)c->n_nodes + 1, sizeof *r.redo)};
    bool *wanted = tt_arena_array(a, (size_t)c->n_values + 1, sizeof *wanted);
    memcpy(wanted, c->needed, (size_t)c->n_values * sizeof *wanted);
    /* Links are sorted by their node, and a node reads only values of nodes before it. */
    for (int n = c->n_nodes - 1, l = c->n_links; n >= 0; n--) {
        for (int v = 0; redo[n] && v < c->n_values; v++)
            r.redo[n] = r.redo[n] || (wanted[v] && c->maker[v] == n);
        for (; l > 0 && c->link[l - 1][0] == n; l--)
            wanted[c->link[l - 1][1]] = wanted[c->link[l - 1][1]] || r.redo[n];
        r.cost += r.redo[n] ? c->again[n] : 0;
    }
    r.kept = tt_arena_array(a, (size_t)c->n_values + 1, sizeof *r.kept);
    for (int v = 0; v < c->n_values; v++)
        if (wanted[v] && (c->maker[v] < 0 || !r.redo[c->maker[v]]) && c->keep[v] > 0) {
            r.kept[r.n_kept++] = c->keep[v];
            r.bytes += c->keep[v];
        }
    qsort(r.kept, (size_t)r.n_kept, sizeof *r.kept, largest_first);
    return r;
}

/* The recipe that costs least if a kept byte costs `price`. */
static tt_recipe solve(tt_arena *a, const tt_block_cut *c, double price)
{
    const int values = 2, nodes = 2 + c->n_values, n = nodes + c->n_nodes;
    tt_arena *own = tt_arena_new();
    tt_network *net = tt_network_new(own, n);
    bool *side = tt_arena_array(own, (size_t)n + 1, sizeof *side);
    for (int v = 0; v < c->n_values; v++) {
        const double keep = c->keep[v] < 0 ? (double)INFINITY : price * (double)c->keep[v];
        if (c->needed[v])
            tt_network_edge(net, 0, values + v, (double)INFINITY);
        tt_network_edge(net, values + v, c->maker[v] < 0 ? 1 : nodes + c->maker[v], keep);
    }
    for (int k = 0; k < c->n_nodes; k++)
        tt_network_edge(net, nodes + k, 1, c->again[k]);
    for (int l = 0; l < c->n_links; l++)
        tt_network_edge(net, nodes + c->link[l][0], values + c->link[l][1], (double)INFINITY);
    tt_network_cut(net, side);
    const tt_recipe r = recipe_of(a, c, side + nodes);
    tt_arena_free(own);
    return r;
}

static void add_recipe(tt_block_cut *c, tt_recipe r)
{
    if (c->n_recipes < MOST_RECIPES)
        c->recipes[c->n_recipes++] = r;
}

/* Adds the corners of the hull between two of them, in order. */
static void find_between(tt_arena *a, tt_block_cut *c, const tt_recipe *left,
                         const tt_recipe *right, int depth)
{
    const double bytes = (double)(left->bytes - right->bytes), cost = right->cost - left->cost;
    if (bytes <= 0 || cost <= 0 || depth > 12)
        return;
    const double price = cost / bytes;
    const tt_recipe mid = solve(a, c, price);
    const double gain =
        left->cost + price * (double)left->bytes - mid.cost - price * (double)mid.bytes;
    if (mid.bytes >= left->bytes || mid.bytes <= right->bytes || gain <= 1e-9 * cost)
        return;
    find_between(a, c, left, &mid, depth + 1);
    add_recipe(c, mid);
    find_between(a, c, &mid, right, depth + 1);
}

static void find_recipes(const finder *f, tt_block_cut *c)
{
    tt_arena *a = f->g->arena;
    bool *none = tt_arena_array(a, (size_t)c->n_nodes + 1, sizeof *none);
    double all = 0;
    for (int k = 0; k < c->n_nodes; k++) {
        none[k] = always_again(f, c->node[k]);
        all += c->again[k];
    }
    c->recipes = tt_arena_array(a, MOST_RECIPES, sizeof *c->recipes);
    const tt_recipe left = recipe_of(a, c, none), right = solve(a, c, all / LEAST_BYTES);
    add_recipe(c, left);
    find_between(a, c, &left, &right, 0);
    if (right.bytes < left.bytes)
        add_recipe(c, right);
    memset(c->recipes[0].redo, 0, (size_t)c->n_nodes * sizeof(bool)); /* nothing at all */
}

static bool alike(const tt_block_cut *x, const tt_block_cut *y)
{
    return x->hash == y->hash && x->n_nodes == y->n_nodes && x->n_values == y->n_values &&
           x->n_links == y->n_links;
}

/* ---- all blocks ---- */

static void find_readers(finder *f)
{
    for (size_t i = 0; i < f->g->nodes.n; i++) {
        const tt_node *n = f->g->nodes.items[i];
        for (int j = 0;
             n->when->region == TT_BACKWARD && n->role != TT_NODE_EXPANDED && j < n->n_in; j++) {
            int *r = &f->reader[n->in[j]->id];
            *r = !*r || *r == n->block + 1 ? n->block + 1 : -1;
            if (n->block < 0)
                *r = -1; /* the backward outside of blocks keeps it, too */
        }
    }
}

void tt_block_cuts_find(tt_graph *g, const tt_machine *m, const bool *no_cost, tt_block_cut **out,
                        int *n)
{
    tt_arena *a = g->arena;
    finder f = {.g = g, .m = m, .no_cost = no_cost};
    f.local_value = tt_arena_array(a, (size_t)g->n_values + 1, sizeof(int));
    f.local_node = tt_arena_array(a, (size_t)g->n_ids + 1, sizeof(int));
    f.reader = tt_arena_array(a, (size_t)g->n_values + 1, sizeof(int));
    find_readers(&f);
    size_t n_blocks = 0;
    for (size_t i = 0; i < g->nodes.n; i++)
        n_blocks = TT_MAXV(n_blocks, (size_t)(g->nodes.items[i]->block + 1));
    TT_VEC(tt_node *) *of = tt_arena_array(a, n_blocks + 1, sizeof *of);
    for (size_t i = 0; i < g->nodes.n; i++) {
        tt_node *x = g->nodes.items[i];
        if (x->block >= 0 && x->when->region <= TT_BACKWARD)
            tt_vec_push(a, &of[x->block], x);
    }
    *out = tt_arena_array(a, n_blocks + 1, sizeof **out);
    *n = 0;
    for (size_t b = 0; b < n_blocks; b++) {
        if (!of[b].n)
            continue;
        tt_block_cut *c = &(*out)[(*n)++];
        *c = (tt_block_cut){.block = (int)b, .stage = of[b].items[0]->when->stage};
        describe_block(&f, c, of[b].items, (int)of[b].n);
        int like = 0;
        while (!alike(c, &(*out)[like]))
            like++;
        if (&(*out)[like] == c) {
            find_recipes(&f, c);
        } else {
            c->recipes = (*out)[like].recipes;
            c->n_recipes = (*out)[like].n_recipes;
        }
    }
}
