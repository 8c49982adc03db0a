/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/offload_impl.h"
#include <stdlib.h>

/* offload_values: values that a forward keeps for its backward are copied to host memory after their
 * last reader in the forward (op offload) and back before the backward reads them (op reload), some
 * blocks ahead. Both copies run concurrently with computation. In between the device memory of these
 * values is free. A copy changes no bit. It is one of the last passes, so it sees which values are
 * really kept, and in which order nodes run. */

typedef struct mover {
    tt_graph *g;
    TT_VEC(tt_node *) * before, *after; /* by position in the graph's list: new nodes around it */
} mover;

static tt_node *copy_node(mover *m, const tt_op_def *op, tt_value *v, const tt_node *at)
{
    tt_graph *g = m->g;
    tt_node *n = tt_arena_alloc(g->arena, sizeof *n);
    tt_value *out = tt_arena_dup(g->arena, v, sizeof *v);
    const tt_when when = {.region = at->when->region,
                          .stage = at->when->stage,
                          .is_weight_grad = at->when->is_weight_grad};
    *n = (tt_node){.id = g->n_ids++,
                   .op = op,
                   .n_in = 1,
                   .n_out = 1,
                   .in = tt_arena_dup(g->arena, &v, sizeof(tt_value *)),
                   .out = tt_arena_dup(g->arena, &out, sizeof(tt_value *)),
                   .when = tt_when_intern(g, when),
                   .block = at->block,
                   .scope = v->node->scope,
                   .accumulate_index = -1,
                   .async = true};
    out->id = g->n_values++;
    out->node = n;
    out->out = 0;
    return n;
}

/* A view of a view of … the value: the same of what has been copied back. */
static tt_value *view_of(mover *m, tt_value *in, const tt_value *v, tt_value *back,
                         const tt_node *reader, int position)
{
    if (in == v)
        return back;
    tt_value *from = view_of(m, in->node->in[0], v, back, reader, position);
    tt_node *n = tt_arena_dup(m->g->arena, in->node, sizeof *n);
    tt_value *out = tt_arena_dup(m->g->arena, in, sizeof *out);
    n->id = m->g->n_ids++;
    n->when = reader->when;
    n->block = reader->block;
    n->in = tt_arena_dup(m->g->arena, in->node->in, sizeof *n->in * (size_t)n->n_in);
    n->in[0] = from;
    n->out = tt_arena_dup(m->g->arena, &out, sizeof(tt_value *));
    out->id = m->g->n_values++;
    out->node = n;
    tt_vec_push(m->g->arena, &m->before[position], n);
    return out;
}

/* The readers in a part of the backward read what is copied back for it. */
static void redirect(mover *m, const tt_offload_list *l, const tt_value *v, tt_value *back)
{
    for (int i = 0; i < l->n; i++) {
        tt_node *n = m->g->nodes.items[l->at[i]];
        for (int j = 0; n->role != TT_NODE_EXPANDED && j < n->n_in; j++) {
            const tt_node *from = n->in[j]->node;
            if (tt_plan_alias(n->in[j]) == v && from->when->region == TT_FORWARD)
                n->in[j] = view_of(m, n->in[j], v, back, n, l->at[i]);
        }
    }
}

static void move(mover *m, const tt_offload_stage *s, const tt_offload_value *c)
{
    const tt_offload_list *f = &s->list[OFFLOAD_F];
    tt_node *out = copy_node(m, &tt_op_offload, c->value, m->g->nodes.items[f->at[c->copied]]);
    tt_vec_push(m->g->arena, &m->after[f->at[c->copied]], out);
    for (int part = OFFLOAD_I; part < OFFLOAD_LISTS; part++) {
        const tt_offload_list *l = &s->list[part];
        if (c->fetched[part] == l->n)
            continue;
        tt_node *in =
            copy_node(m, &tt_op_reload, out->out[0], m->g->nodes.items[l->at[c->fetched[part]]]);
        in->block = m->g->nodes.items[l->at[c->read[part]]]->block;
        tt_vec_push(m->g->arena, &m->before[l->at[c->fetched[part]]], in);
        redirect(m, l, c->value, in->out[0]);
    }
}

/* Values that are fetched at one place are fetched in the order in which they are read. */
static int by_read(const void *a, const void *b)
{
    const tt_offload_value *x = a, *y = b;
    for (int part = OFFLOAD_I; part < OFFLOAD_LISTS; part++)
        if (x->read[part] != y->read[part])
            return (x->read[part] > y->read[part]) - (x->read[part] < y->read[part]);
    return (x->value->id > y->value->id) - (x->value->id < y->value->id);
}

static void move_stage(mover *m, const tt_offload_opts *o, int stage, tt_arena *a)
{
    tt_offload_stage s = {.g = m->g, .o = o, .stage = stage, .a = a};
    tt_offload_find(&s);
    tt_offload_choose(&s);
    qsort(s.values, (size_t)s.n, sizeof *s.values, by_read);
    for (int i = 0; i < s.n; i++)
        if (s.values[i].chosen)
            move(m, &s, &s.values[i]);
}

tt_status tt_pass_offload_values(tt_graph *g, const tt_offload_opts *o, tt_error *err)
{
    const size_t n = g->nodes.n;
    tt_arena *a = tt_arena_new();
    mover m = {.g = g,
               .before = tt_arena_array(a, n + 1, sizeof *m.before),
               .after = tt_arena_array(a, n + 1, sizeof *m.after)};
    TT_VEC(tt_node *) list = {0};
    for (int s = 0; s < g->n_stages; s++)
        move_stage(&m, o, s, a);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < m.before[i].n; k++)
            tt_vec_push(g->arena, &list, m.before[i].items[k]);
        tt_vec_push(g->arena, &list, g->nodes.items[i]);
        for (size_t k = 0; k < m.after[i].n; k++)
            tt_vec_push(g->arena, &list, m.after[i].items[k]);
    }
    tt_arena_free(a);
    g->nodes.items = list.items;
    g->nodes.n = list.n;
    g->nodes.cap = list.cap;
    return tt_graph_verify(g, "offload_values", err);
}

void tt_offload_describe(const tt_graph *g, const tt_machine *m, tt_recompute_found *found)
{
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        for (int b = 0; n->op == &tt_op_offload && b < found->n_blocks; b++) {
            tt_recomputed_block *x = &found->blocks[b];
            if (x->block != n->block)
                continue;
            const int64_t bytes = tt_plan_value_bytes(g, n->out[0]);
            x->moved += bytes;
            x->kept = TT_MAXV(x->kept - bytes, (int64_t)0);
            x->copy += tt_node_seconds(g, n, m).comm;
        }
    }
}
