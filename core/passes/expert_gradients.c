/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/rewrite.h"
#include "passes/expert_replicas.h"
#include <string.h>

/* expert_gradients: the gradients of experts' replicas, where these live for a whole step. Each weight of a layer has
 * a sum [n,o,i] over the micro-batches. The epilogue reduces the sums of a layer together, once, and adds the rows
 * to the accumulators of the experts' own gradients, whose rank looks up which of them it has. */

void tt_replica_gradient_keep(tt_builder *b, const tt_node *n, tt_value *dout)
{
    tt_graph *g = tt_builder_graph(b);
    const tt_value *w = n->in[1];
    const bool follow = tt_builder_follow(b, true);
    const tt_attrs_cast f32 = {.to = TT_F32};
    if (dout->type.dtype != TT_F32)
        tt_op(b, "cast", &dout, 1, &f32, &dout, 1); /* not cast_up: it lets a partial value pass */
    tt_builder_follow(b, follow);
    while (!w->node->param && w->node->n_in == 1)
        w = w->node->in[0];
    const tt_replica_gradient kept = {
        .param = w->node->param,
        .sum = tt_state_new(g, TT_STATE_ACCUMULATOR,
                            tt_arena_printf(g->arena, "replicas.%d.grad", n->id), &dout->type,
                            &dout->place),
        .chosen = n->in[2],
        .stage = n->when->stage,
        .block = n->block,
    };
    kept.sum->stages = UINT64_C(1) << n->when->stage;
    tt_accumulate(b, kept.sum, -1, dout);
    tt_vec_push(g->arena, &g->replicas.gradients, kept);
}

static tt_state *accumulator_of(const tt_replica_gradient *r)
{
    return tt_stack_grad(r->param->stack, r->stage);
}

/* Is all but the experts' dim whole in the accumulator, and are the same sums pending there as in that of `like`? */
static bool is_reduced_as(const tt_replica_gradient *r, const tt_replica_gradient *like)
{
    const tt_placement *p = &accumulator_of(r)->place, *q = &accumulator_of(like)->place;
    return !p->n[2] && !p->n[3] && !q->n[2] && !q->n[3] && p->partial == q->partial &&
           tt_placement_equal(&r->sum->place, &like->sum->place);
}

/* [n,o,i], reduced to what the accumulator of its experts has of o and i. */
static tt_value *reduced_alone(tt_builder *b, const tt_replica_gradient *r)
{
    const tt_placement *p = &accumulator_of(r)->place;
    tt_placement to = {.partial = (uint16_t)(r->sum->place.partial & p->partial)};
    for (int d = 1; d < 3; d++) {
        to.n[d] = p->n[d + 1];
        memcpy(to.atom[d], p->atom[d + 1], sizeof to.atom[d]);
    }
    return tt_redistribute(b, tt_state_read(b, r->sum), &to);
}

/* [n,o,i] → [n,o*i] */
static tt_value *replica_rows(tt_builder *b, tt_value *v)
{
    const tt_dim *d = v->type.dims,
                 dims[2] = {TT_DIM(d[0].size, NULL), TT_DIM(d[1].size * d[2].size, NULL)};
    return tt_reshape(b, v, dims, 2);
}

/* Adds rows [n,o*i] to the accumulator of the experts. */
static void add_replicas(tt_builder *b, const tt_replica_gradient *r, tt_value *chosen,
                         tt_value *rows)
{
    const tt_type *w = &r->param->type;
    const tt_attrs_dims experts = {.n_dims = 1, .dims = {TT_DIM(w->dims[0].size, "experts")}};
    tt_state *to = accumulator_of(r);
    tt_placement member = to->place;
    tt_value *in[2] = {chosen, rows}, *dw = NULL;
    memmove(member.n, member.n + 1, sizeof member.n - 1);
    memmove(member.atom, member.atom + 1, sizeof member.atom - sizeof member.atom[0]);
    const bool follow = tt_builder_follow(b, false); /* the label cuts the experts */
    tt_op(b, "embedding_dw", in, 2, &experts, &dw, 1);
    tt_builder_follow(b, follow);
    if (member.n[1] || member.n[2])
        dw = tt_reshape(b, dw, w->dims, 3);
    /* else rows [E,o*i] lie as [E,o,i] does, and the kernel that makes them can add them to the accumulator */
    tt_accumulate(b, to, r->param->index, tt_redistribute(b, dw, &member));
}

/* The chosen experts once more: the forward's values do not live until the epilogue. */
static tt_value *chosen_again(tt_builder *b, const tt_replica_gradient *r)
{
    const tt_node *top = tt_value_root(r->chosen)->node;
    const tt_node *load = tt_value_root(top->in[0])->node;
    tt_value *most = NULL, *chosen = NULL;
    tt_top_k(b, tt_state_read(b, load->state), r->chosen->type.dims[0].size, &most, &chosen);
    return chosen;
}

/* The gradients of the layer's weights that are reduced as number `at` is, or that one alone. */
static void add_layer(tt_builder *b, size_t at, bool *done)
{
    tt_graph *g = tt_builder_graph(b);
    const tt_replica_gradient *all = g->replicas.gradients.items, *first = &all[at];
    const size_t n = g->replicas.gradients.n;
    tt_value *parts[TT_MAX_INS], *chosen;
    size_t of[TT_MAX_INS];
    int n_parts = 0;
    tt_builder_at(b, TT_EPILOGUE, first->stage, -1, first->param->name);
    chosen = chosen_again(b, first);
    for (size_t i = at; i < n && n_parts < TT_MAX_INS; i++)
        if (!done[i] && all[i].chosen == first->chosen &&
            (i == at || is_reduced_as(&all[i], first)))
            of[n_parts++] = i;
    for (int k = 0; k < n_parts; k++) {
        parts[k] = n_parts > 1 ? tt_state_read(b, all[of[k]].sum) : reduced_alone(b, first);
        parts[k] = replica_rows(b, parts[k]);
        done[of[k]] = true;
    }
    if (n_parts == 1) {
        add_replicas(b, first, chosen, parts[0]);
        return;
    }
    const tt_placement to = {
        .partial = (uint16_t)(first->sum->place.partial & accumulator_of(first)->place.partial)};
    tt_value *rows = tt_redistribute(b, tt_concat(b, parts, n_parts, 1), &to);
    int64_t begin = 0;
    for (int k = 0; k < n_parts; k++) {
        const int64_t end = begin + parts[k]->type.dims[1].size;
        add_replicas(b, &all[of[k]], chosen, tt_slice(b, rows, 1, begin, end));
        begin = end;
    }
}

void tt_replica_gradients_add(tt_builder *b)
{
    const tt_graph *g = tt_builder_graph(b);
    const size_t n = g->replicas.gradients.n;
    bool *done = tt_arena_array(g->arena, n + 1, sizeof *done);
    for (size_t i = 0; i < n && !tt_builder_error(b); i++)
        if (!done[i])
            add_layer(b, i, done);
}
