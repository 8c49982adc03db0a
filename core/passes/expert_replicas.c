/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/expert_replicas.h"
#include "passes/expert_copy.h"
#include <string.h>

/* expert_replicas: the experts of a layer with most slots have a replica on each rank of ep (He et al. 2022,
 * FasterMoE: shadow experts; docs/design/experts.md). Their slots are computed where the tokens are; all
 * others are sent, as before. A copy of the layer has the replicas: another route, whose rows are not sent,
 * and expert_weights instead of the weights. A slot has a row in one of the two, and the other gives 0 for
 * it, so their sum is the result to the bit. Gradients of weights are the sum of both.
 *
 * Which experts these are is in the graph: the largest of the buffer <layer>.expert_load, a moving mean of the
 * slots of each expert in the whole step. It changes once per step, after the update, and is the same on
 * all ranks, because the counts are. So with several micro-batches per step the weights are brought once per step,
 * where they have room (replica_weights; the pass hoist keeps them), and gradients are reduced once per step. */

#define LOAD_DECAY 0.9 /* of the moving mean, per step */

/* load f32 [E], slots f64 [E] of the step */
static tt_value *next_load(tt_builder *b, tt_value *load, tt_value *slots, void *user)
{
    (void)user;
    tt_value *now = tt_scale(b, tt_cast(b, slots, TT_F32), 1 - LOAD_DECAY);
    return tt_add(b, tt_scale(b, load, LOAD_DECAY), now);
}

typedef struct replicating {
    tt_expert_copy copy;
    const tt_replica_opts *o;
    int64_t n;
    /* of the layer that is copied */
    int64_t experts;
    tt_value *chosen;            /* i32 [n] */
    tt_value *local, *sent;      /* i32 [T,k]: the replica of each slot, and its expert; -1: none */
    TT_VEC(tt_value *) weights;  /* of experts, and … */
    TT_VEC(tt_value *) replicas; /* … of the chosen ones */
} replicating;

/* A name that no buffer has. */
static const char *load_name(tt_builder *b, const char *scope)
{
    tt_graph *g = tt_builder_graph(b);
    const char *name = TT_EXPERT_LOAD;
    for (int i = 2;; i++) {
        const char *full = tt_arena_printf(g->arena, "%s%s%s", scope, scope[0] ? "." : "", name);
        if (!tt_graph_state(g, TT_STATE_BUFFER, full))
            return name;
        name = tt_arena_printf(g->arena, TT_EXPERT_LOAD ".%d", i);
    }
}

/* The most loaded experts, by steps before this one. Also sees to their load. */
static tt_value *choose_replicas(tt_builder *b, const tt_node *route, int64_t experts, int64_t n)
{
    const tt_dim e = TT_DIM(experts, NULL);
    const tt_buffer_opts zeros = {.init = {.kind = TT_INIT_CONSTANT}};
    tt_value *load = tt_buffer(b, load_name(b, route->scope), &e, 1, &zeros), *most, *chosen;
    tt_buffer_update_sum(b, load, tt_expert_counts(b, route->in[0], experts), next_load, NULL);
    tt_top_k(b, load, n, &most, &chosen);
    if (!tt_builder_error(b))
        load->node->state->of_trainer = true;
    return chosen;
}

/* Splits the assignment: at choice j of a token, 1 + the number of its replica, 0: it has none. */
static void split_slots(replicating *r, tt_value *assign)
{
    tt_builder *b = r->copy.b;
    const tt_dim n = TT_DIM(r->n, NULL), T = assign->type.dims[0], one[2] = {T, TT_DIM(1, NULL)};
    const tt_attrs_dims width = {.n_dims = 1, .dims = {TT_DIM(r->experts, NULL)}};
    const int64_t k = assign->type.dims[1].size;
    tt_value *zero = tt_const(b, 0, TT_I32), *first = tt_const(b, 1, TT_I32), *table = NULL;
    tt_value *numbers = tt_add(b, tt_iota(b, &n, 1, 0, TT_I32), first);
    tt_value *in[2] = {r->chosen, tt_cast(b, numbers, TT_F32)};
    tt_value **parts = tt_arena_array(r->copy.g->arena, (size_t)k, sizeof *parts);
    tt_op(b, "top_k_bwd", in, 2, &width, &table, 1); /* [E]: numbers of the chosen, else 0 */
    table = tt_cast(b, table, TT_I32);
    for (int64_t j = 0; j < k; j++) {
        tt_value *e = tt_reshape(b, tt_slice(b, assign, 1, j, j + 1), &T, 1);
        parts[j] = tt_reshape(b, tt_gather(b, table, e), one, 2);
    }
    tt_value *number = k == 1 ? parts[0] : tt_concat(b, parts, (int)k, 1);
    r->local = tt_sub(b, number, first);
    r->sent = tt_select(b, tt_less(b, zero, number), tt_const(b, -1, TT_I32), assign);
}

/* The load of the layer has the split, and what is sent is logged as a load of its own. */
static void log_sent(replicating *r, const tt_value *assign)
{
    tt_graph *g = r->copy.g;
    tt_expert_load *l = NULL;
    for (size_t i = 0; i < g->loads.n && !l; i++)
        if (g->loads.items[i].assign == assign && g->loads.items[i].of == TT_LOAD)
            l = &g->loads.items[i];
    if (!l)
        return;
    l->sent = r->sent;
    if (!l->name)
        return;
    const tt_dim e = TT_DIM(r->experts, NULL);
    const tt_attrs_dims a = {.n_dims = 1, .dims = {e}};
    tt_expert_load made = {.assign = l->assign, .name = l->name, .of = TT_LOAD_SENT};
    tt_op(r->copy.b, "expert_count", &r->sent, 1, &a, &made.counts, 1);
    tt_vec_push(g->arena, &g->loads, made);
}

/* Before the node `route`. */
static void begin_layer(replicating *r, const tt_node *route)
{
    tt_builder *b = r->copy.b;
    const size_t mark = r->copy.g->nodes.n;
    r->experts = ((const tt_attrs_dims *)route->attrs)->dims[0].size;
    r->n = TT_MIN(r->copy.g->replicas.n, r->experts);
    r->weights.n = r->replicas.n = 0;
    tt_builder_at(b, TT_FORWARD, 0, route->block, route->scope);
    r->chosen = choose_replicas(b, route, r->experts, r->n);
    split_slots(r, route->in[0]);
    log_sent(r, route->in[0]);
    tt_expert_copy_take(&r->copy, mark);
}

/* The experts of rows, from their replicas. */
static tt_value *experts_of(replicating *r, tt_value *replica)
{
    tt_builder *b = r->copy.b;
    tt_value *none = tt_less(b, replica, tt_const(b, 0, TT_I32));
    return tt_select(b, none, replica, tt_gather(b, r->chosen, replica));
}

static tt_value *weights_of(replicating *r, tt_value *w)
{
    tt_value *v = NULL, *in[2] = {w, r->chosen};
    for (size_t i = 0; i < r->weights.n; i++)
        if (r->weights.items[i] == w)
            return r->replicas.items[i];
    tt_builder_again(r->copy.b, r->o->again && !r->copy.g->replicas.per_step);
    tt_op(r->copy.b, "expert_weights", in, 2, NULL, &v, 1);
    tt_builder_again(r->copy.b, false);
    tt_vec_push(r->copy.g->arena, &r->weights, w);
    tt_vec_push(r->copy.g->arena, &r->replicas, v);
    return v;
}

/* The weights among `w` that have the first one's dtype: one op brings them, and the others are left. */
static int weights_at_once(replicating *r, tt_value **w, int n)
{
    tt_builder *b = r->copy.b;
    tt_arena *arena = r->copy.g->arena;
    tt_value *in[TT_MAX_INS], *flat = NULL;
    int taken = 0, left = 0;
    for (int i = 0; i < n; i++)
        if (taken < TT_MAX_INS - 1 && w[i]->type.dtype == w[0]->type.dtype)
            in[taken++] = w[i];
        else
            w[left++] = w[i];
    in[taken] = r->chosen;
    tt_op(b, "replica_weights", in, taken + 1, NULL, &flat, 1);
    tt_attrs_dims begin = {.n_dims = 1, .dims = {TT_DIM(0, NULL)}};
    for (int i = 0; i < taken; i++) {
        tt_value *part[3] = {flat, in[i], r->chosen}, *v = NULL;
        tt_op(b, "replica_weight", part, 3, &begin, &v, 1);
        begin.dims[0].size += in[i]->type.dims[1].size * in[i]->type.dims[2].size;
        tt_vec_push(arena, &r->weights, in[i]);
        tt_vec_push(arena, &r->replicas, v);
    }
    return left;
}

/* All weights of the layer whose nodes are [route, end], before any is read. Weights that are no parameters,
 * but made of them, are left to weights_of(). */
static void weights_per_step(replicating *r, size_t route, size_t end)
{
    tt_expert_copy *s = &r->copy;
    TT_VEC(tt_value *) w = {0};
    for (size_t k = route + 1; k < end; k++) {
        const tt_node *n = s->g->nodes.items[k];
        if (n->op != &tt_op_grouped_linear || !tt_expert_copy_has(s, n))
            continue;
        bool known = n->in[1]->node->op != &tt_op_param;
        for (size_t i = 0; i < w.n; i++)
            known = known || w.items[i] == n->in[1];
        if (!known)
            tt_vec_push(s->g->arena, &w, n->in[1]);
    }
    for (int n = (int)w.n; n > 0 && !tt_builder_error(s->b);)
        n = weights_at_once(r, w.items, n);
}

static void copy_node(replicating *r, const tt_node *n)
{
    tt_expert_copy *s = &r->copy;
    tt_value *w = n->op == &tt_op_grouped_linear ? n->in[1] : NULL;
    const bool outside = w && (w->id >= s->n_values || !s->copy[w->id]);
    if (w && outside && w->id < s->n_values)
        s->copy[w->id] = weights_of(r, w);
    tt_expert_copy_node(s, n, n->attrs, false);
    if (w && outside && w->id < s->n_values)
        s->copy[w->id] = NULL;
    if (n->op == &tt_op_expert_of_rows)
        s->copy[n->out[0]->id] = experts_of(r, s->copy[n->out[0]->id]);
}

/* The slots that are sent take the place of all slots in the nodes of the layer itself. */
static void send_rest(const replicating *r, tt_node *n, const tt_value *assign)
{
    const bool of_layer = n->op == &tt_op_expert_route || n->op == &tt_op_expert_slots ||
                          n->op == &tt_op_expert_rows || n->op == &tt_op_expert_of_rows;
    for (int i = 0; of_layer && i < n->n_in; i++)
        if (n->in[i] == assign)
            n->in[i] = r->sent;
}

/* The replicas of the layer whose nodes are [route, end], all of which are in the list. */
static void end_layer(replicating *r, size_t route, size_t end)
{
    tt_expert_copy *s = &r->copy;
    tt_node *const *nodes = s->g->nodes.items;
    tt_node *first = nodes[route], *slots = nodes[end];
    tt_value *assign = first->in[0], *to[2] = {NULL, NULL};
    const tt_attrs_dims a = {
        .n_dims = 2, .dims = {TT_DIM(r->n, TT_LABEL_REPLICAS), TT_DIM(r->experts, "experts")}
    };
    const size_t mark = s->g->nodes.n;
    memset(s->copy, 0, (size_t)s->n_values * sizeof(tt_value *));
    tt_builder_at(s->b, TT_FORWARD, 0, slots->block, slots->scope);
    const bool follow = tt_builder_follow(s->b, true);
    tt_op(s->b, "expert_route", &r->local, 1, &a, to, 2);
    s->copy[assign->id] = r->local;
    s->copy[first->out[0]->id] = to[0];
    s->copy[first->out[1]->id] = to[1];
    if (s->g->replicas.per_step)
        weights_per_step(r, route, end);
    for (size_t k = route + 1; k < end; k++)
        if (tt_expert_copy_has(s, s->g->nodes.items[k]))
            copy_node(r, s->g->nodes.items[k]);
    copy_node(r, slots);
    tt_value *sum = tt_add(s->b, slots->out[0], s->copy[slots->out[0]->id]);
    tt_builder_follow(s->b, follow);
    for (size_t k = route; k <= end; k++)
        send_rest(r, s->g->nodes.items[k], assign);
    tt_expert_copy_take(s, mark);
    s->instead[slots->out[0]->id] = sum;
}

tt_status tt_pass_expert_replicas(tt_builder *b, const tt_replica_opts *o, tt_error *err)
{
    tt_graph *g = tt_builder_graph(b);
    const size_t n = g->nodes.n;
    size_t route = 0, end = 0;
    TT_TRY(tt_builder_finish(b, err));
    TT_TRY(tt_replicas_choose(g, o, &g->replicas, err));
    if (g->replicas.n < 1)
        return TT_OK;
    replicating r = {.copy = tt_expert_copy_make(b), .o = o};
    for (size_t i = 0; i < n; i++) {
        tt_node *e = g->nodes.items[i];
        tt_expert_copy_now_all(&r.copy, e);
        if (e->op == &tt_op_expert_route) {
            route = i;
            end = tt_expert_copy_find(&r.copy, i, n);
            if (end)
                begin_layer(&r, e);
        }
        tt_vec_push(g->arena, &r.copy.list, e);
        if (end && i == end) {
            end_layer(&r, route, end);
            end = 0;
        }
    }
    tt_expert_copy_finish(&r.copy);
    return tt_builder_finish(b, err);
}
