/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/recompute_impl.h"
#include "plan/plan.h"
#include <stdlib.h>
#include <string.h>

/* The order in which the blocks of a pipeline rank take their next state, and what a finished choice
 * keeps and computes again. */

typedef struct level { /* a block goes from one state to the next */
    tt_block_cut *cut;
    int state;
    double slope; /* time per byte that it frees, of all micro-batches that are kept */
} level;

static int cheapest_first(const void *a, const void *b)
{
    const level *x = a, *y = b;
    if (x->slope < y->slope || x->slope > y->slope)
        return x->slope < y->slope ? -1 : 1;
    if (x->cut->block != y->cut->block)
        return x->cut->block - y->cut->block;
    return x->state - y->state;
}

typedef struct tt_marks { /* what is chosen */
    bool *redo;           /* by node id */
    tt_offload_shares *shares;
} tt_marks;

static void mark(tt_marks *m, const tt_block_cut *c, int state)
{
    const tt_block_state *s = &c->states[state];
    for (int k = 0; k < c->n_nodes; k++)
        m->redo[c->node[k]->id] = c->recipes[s->recipe].redo[k];
    m->shares->of[c->block] = s->share;
}

/* Of FULL and SELECTIVE, which are no levels, values are offloaded too. */
static void mark_first(tt_marks *m, const tt_recompute_cut *cut, int rank, const tt_block_cut *c)
{
    mark(m, c, 0);
    if (cut->level && cut->level[rank] < 0 && cut->way && cut->way[rank] == TT_CUT_JOINT)
        m->shares->of[c->block] = (tt_offload_share){.bytes = INT64_MAX};
}

/* Lists the levels of a rank, in order. */
static int list_levels(const tt_recompute_cut *cut, int rank, tt_block_cut *all, int n_blocks,
                       level *list)
{
    int n = 0;
    for (int i = 0; i < n_blocks; i++) {
        tt_block_cut *c = &all[i];
        for (int k = 1; cut->stage_rank[c->stage] == rank && k < c->n_states; k++) {
            const tt_block_state *x = &c->states[k - 1], *y = &c->states[k];
            list[n++] = (level){c, k,
                                (y->cost - x->cost) /
                                    ((x->bytes - y->bytes) * TT_MAXV(cut->in_flight[c->stage], 1))};
        }
    }
    qsort(list, (size_t)n, sizeof *list, cheapest_first);
    return n;
}

static bool any_share(const tt_offload_shares *s)
{
    for (int i = 0; i < s->n; i++)
        if (s->of[i].bytes > 0)
            return true;
    return false;
}

bool *tt_recompute_levels(tt_graph *g, const tt_recompute_opts *o, const bool *no_cost)
{
    tt_arena *a = g->arena;
    const tt_recompute_cut *cut = o->cut;
    tt_block_cut *all;
    int n_blocks;
    tt_offload_shares shares = {0};
    tt_marks m = {tt_arena_array(a, (size_t)g->n_ids + 1, sizeof(bool)), &shares};
    tt_block_cuts_find(g, o->machine, no_cost, &all, &n_blocks);
    shares.n = n_blocks ? TT_MAXV(all[n_blocks - 1].block + 1, g->n_blocks) : 0;
    shares.of = tt_arena_array(a, (size_t)shares.n + 1, sizeof *shares.of);
    size_t most = 0;
    for (int rank = 0; rank < cut->n_ranks; rank++)
        tt_block_states_find(a, o, rank, all, n_blocks);
    for (int i = 0; i < n_blocks; i++)
        most += (size_t)all[i].n_states;
    level *list = tt_arena_array(a, most + 1, sizeof *list);
    if (o->found)
        o->found->n_levels = tt_arena_array(a, (size_t)cut->n_ranks + 1, sizeof(int));
    for (int rank = 0; rank < cut->n_ranks; rank++) {
        const int n = list_levels(cut, rank, all, n_blocks, list);
        const int up_to = cut->level ? cut->level[rank] : (int)(cut->part * n + 0.5);
        for (int i = 0; i < n_blocks; i++)
            if (cut->stage_rank[all[i].stage] == rank)
                mark_first(&m, cut, rank, &all[i]);
        for (int i = 0; i < TT_MIN(n, up_to); i++)
            mark(&m, list[i].cut, list[i].state);
        if (o->found)
            o->found->n_levels[rank] = n;
    }
    if (o->shares)
        *o->shares = any_share(&shares) ? shares : (tt_offload_shares){0};
    return m.redo;
}

/* ---- what a choice keeps and computes again ---- */

static const char *block_name(tt_graph *g, const tt_node *n)
{
    /* The scope of a node is the block's name, or begins with it: "model.layers.3.mlp". */
    const char *s = n->scope ? n->scope : "", *end = s;
    for (const char *p = s; *p; p++)
        if (*p >= '0' && *p <= '9' && (p[1] == '.' || !p[1])) {
            end = p + 1;
            break;
        }
    return end > s ? tt_arena_printf(g->arena, "%.*s", (int)(end - s), s)
                   : tt_arena_printf(g->arena, "block %d", n->block);
}

typedef struct op_count {
    const char *op;
    int n;
} op_count;

static const char *list_ops(tt_graph *g, const op_count *ops, int n)
{
    tt_str text = {0};
    for (int i = 0; i < n; i++) {
        tt_str_add(&text, i ? ", " : "");
        if (ops[i].n > 1)
            tt_str_printf(&text, "%d ", ops[i].n);
        tt_str_add(&text, ops[i].op);
    }
    const char *out = tt_arena_str(g->arena, tt_str_get(&text));
    tt_str_free(&text);
    return out;
}

#define MOST_OPS 64 /* different ones of a block that the description names */

typedef struct describer {
    tt_graph *g;
    const tt_recompute_opts *o;
    bool *counted; /* by value id */
    op_count ops[MOST_OPS];
    int n_ops;
} describer;

static void count_op(describer *d, const char *op)
{
    int i = 0;
    while (i < d->n_ops && strcmp(d->ops[i].op, op))
        i++;
    if (i == MOST_OPS)
        return;
    if (i == d->n_ops)
        d->ops[d->n_ops++] = (op_count){op, 0};
    d->ops[i].n++;
}

/* A value of the block's forward that its backward reads where it lies. */
static void count_kept(describer *d, tt_recomputed_block *b, const tt_value *v)
{
    v = tt_plan_alias(v);
    if (d->counted[v->id] || !tt_recompute_can(v->node))
        return;
    d->counted[v->id] = true;
    b->kept += tt_plan_value_bytes(d->g, v);
}

static void count_again(describer *d, tt_recomputed_block *b, const tt_node *n)
{
    const tt_work w = tt_node_work(d->g, n);
    b->flops += w.flops;
    if (tt_plan_is_view(n))
        return;
    count_op(d, n->op->name);
    if (d->o->machine) {
        const tt_seconds t = tt_node_seconds(d->g, n, d->o->machine);
        b->cost += t.compute + t.comm;
    }
    for (int i = 0; i < n->n_out; i++)
        b->made += tt_plan_value_bytes(d->g, n->out[i]);
}

static void describe_block(describer *d, tt_recomputed_block *b, tt_node *const *list, size_t n)
{
    d->n_ops = 0;
    for (size_t i = 0; i < n; i++) {
        const tt_node *x = list[i];
        if (x->when->region != TT_BACKWARD || x->role == TT_NODE_EXPANDED)
            continue;
        if (x->when->recomputed && !x->param)
            count_again(d, b, x);
        for (int j = 0; j < x->n_in; j++)
            count_kept(d, b, x->in[j]);
    }
    b->again = list_ops(d->g, d->ops, d->n_ops);
}

void tt_recompute_describe(tt_graph *g, const tt_recompute_opts *o)
{
    tt_arena *a = g->arena;
    describer d = {.g = g, .o = o};
    size_t most = 0;
    for (size_t i = 0; i < g->nodes.n; i++)
        most = TT_MAXV(most, (size_t)(g->nodes.items[i]->block + 1));
    TT_VEC(tt_node *) *of = tt_arena_array(a, most + 1, sizeof *of);
    for (size_t i = 0; i < g->nodes.n; i++)
        if (g->nodes.items[i]->block >= 0 && g->nodes.items[i]->when->region <= TT_BACKWARD)
            tt_vec_push(a, &of[g->nodes.items[i]->block], g->nodes.items[i]);
    d.counted = tt_arena_array(a, (size_t)g->n_values + 1, sizeof *d.counted);
    o->found->blocks = tt_arena_array(a, most + 1, sizeof *o->found->blocks);
    o->found->n_blocks = 0;
    for (size_t b = 0; b < most; b++) {
        if (!of[b].n)
            continue;
        const tt_node *first = of[b].items[0];
        tt_recomputed_block *out = &o->found->blocks[o->found->n_blocks++];
        *out = (tt_recomputed_block){
            .block = (int)b, .stage = first->when->stage, .name = block_name(g, first)};
        describe_block(&d, out, of[b].items, of[b].n);
    }
}
