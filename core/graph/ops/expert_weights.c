/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/builder_impl.h"
#include "graph/ops/internal.h"

/* expert_weights: the weights of chosen experts on every rank, for replicas (the pass expert_replicas). The experts
 * are cut over ep; each rank looks up those that it has, the sum over ep is the result. An all-reduce and not
 * an all-gather, because the graph cannot know how many of the chosen ones a rank has. */

static tt_status infer_weights(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 2, 2, err));
    TT_TRY(tt_want_rank(q, 0, "the weight", 3, err));
    TT_TRY(tt_want_float(q, 0, "the weight", err));
    TT_TRY(tt_want_rank(q, 1, "the chosen experts", 1, err));
    TT_TRY(tt_want_i32(q, 1, "the chosen experts", err));
    out[0] = *q->in[0];
    out[0].dims[0] = TT_DIM(q->in[1]->dims[0].size, TT_LABEL_REPLICAS);
    return TT_OK;
}

static tt_status infer_weights_dw(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(infer_weights(q, out, err));
    TT_TRY(tt_want_equal(q, 0, 0, 1, 0, err));
    out[0].dims[0] = ((const tt_attrs_dims *)q->attrs)->dims[0];
    return TT_OK;
}

/* The atoms that cut `n_experts` experts. */
static bool experts_atoms(tt_builder *b, int64_t n_experts, tt_atom_list *out)
{
    const tt_graph *g = tt_builder_graph(b);
    const tt_dim e = TT_DIM(n_experts, "experts");
    tt_error why = {0};
    if (tt_canon(g->mesh, g->labels, &e, 1, out, &why) != TT_OK)
        tt_builder_fail(b, why.code, "%s", why.text);
    return !why.code;
}

/* [n,o,i] → [n,o*i], and back with the dims of `like` */
static tt_value *flat(tt_builder *b, tt_value *w, const char *label)
{
    const tt_dim *d = tt_value_type(w)->dims,
                 rows[2] = {TT_DIM(d[0].size, label), TT_DIM(d[1].size * d[2].size, NULL)};
    return tt_reshape(b, w, rows, 2);
}

static tt_value *not_flat(tt_builder *b, tt_value *w, tt_dim n, const tt_type *like)
{
    const tt_dim d[3] = {n, like->dims[1], like->dims[2]};
    return tt_reshape(b, w, d, 3);
}

static void expand_weights(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                           tt_value **outs)
{
    const tt_placement whole = {0};
    const tt_type *w = q->in[0];
    tt_placement to = {0};
    tt_atom_list experts;
    outs[0] = in[0];
    if (!experts_atoms(b, w->dims[0].size, &experts))
        return;
    for (int i = 0; i < experts.n; i++)
        to.atom[0][to.n[0]++] = experts.atom[i];
    tt_value *rows = flat(b, tt_redistribute(b, in[0], &to), "experts");
    rows = tt_redistribute(b, tt_embedding_w(b, in[1], rows), &whole);
    outs[0] = not_flat(b, rows, TT_DIM(q->in[1]->dims[0].size, TT_LABEL_REPLICAS), w);
}

/* The sum over ep of dy, of which each rank keeps the experts that it has. Sums over other atoms stay pending, to
 * be made with those of the experts' own gradients. */
static void expand_dw(tt_builder *b, const tt_shape_query *q, tt_value *const *in, tt_value **outs)
{
    const tt_dim e = ((const tt_attrs_dims *)q->attrs)->dims[0];
    tt_atom_list experts;
    outs[0] = in[0];
    if (!experts_atoms(b, e.size, &experts))
        return;
    const tt_placement to = {.partial =
                                 (uint16_t)(in[0]->place.partial & ~tt_atom_list_mask(&experts))};
    const tt_attrs_dims rows = {.n_dims = 1, .dims = {TT_DIM(e.size, "experts")}};
    tt_value *dy = flat(b, tt_redistribute(b, in[0], &to), NULL);
    const bool follow = tt_builder_follow(b, false); /* the label cuts the experts */
    tt_value *dw = tt_emit2(b, "embedding_dw", in[1], dy, &rows);
    tt_builder_follow(b, follow);
    outs[0] = not_flat(b, dw, e, q->in[0]);
}

static void vjp_weights(tt_builder *b, tt_vjp *c)
{
    const tt_attrs_dims e = {.n_dims = 1, .dims = {tt_value_type(c->in[0])->dims[0]}};
    if (c->want[0])
        c->din[0] = tt_emit2(b, "expert_weights_dw", tt_cast_up(b, c->dout[0]), c->in[1], &e);
}

const tt_op_def tt_op_expert_weights = {
    .struct_size = sizeof(tt_op_def),
    .name = "expert_weights",
    .operands = "w f[E,o,i], chosen i[n] → [n,o,i]",
    .doc = "the weights of the chosen experts, on every rank of ep; of each expert once at most",
    .rule = "e o i, n -> n o i",
    .flags = TT_OP_PLACES_OPERANDS,
    .n_out = 1,
    .infer = infer_weights,
    .vjp = vjp_weights,
    .expand_letters = "",
    .expand = expand_weights,
    .cost = tt_cost_move};
const tt_op_def tt_op_expert_weights_dw = {
    .struct_size = sizeof(tt_op_def),
    .name = "expert_weights_dw",
    .operands = "dy f[n,o,i], chosen i[n] → [E,o,i]",
    .attributes = "tt_attrs_dims (E)",
    .doc = "derivative of expert_weights to w: dy at the chosen experts, 0 elsewhere",
    .rule = "n o i, n -> e o i",
    .flags = TT_OP_PLACES_OPERANDS,
    .linear_inputs = 1,
    .attrs_size = sizeof(tt_attrs_dims),
    .n_out = 1,
    .infer = infer_weights_dw,
    .expand_letters = "",
    .expand = expand_dw,
    .cost = tt_cost_move};
