/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/builder_impl.h"
#include "graph/ops/internal.h"

/* expert_weights: the weights of chosen experts on every rank, for replicas (the pass expert_replicas). The experts
 * are cut over ep; each rank looks up those that it has, the sum over ep is the result. An all-reduce and not
 * an all-gather, because the graph cannot know how many of the chosen ones a rank has. With several micro-batches
 * per step replica_weights and replica_weight take its place: once per step, for all weights of a layer. */

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

/* replica_weights: those of several weights of a layer, flat and side by side, [n, the sum of o*i]. */

static tt_status infer_replica_weights(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    const int last = q->n_in - 1;
    int64_t width = 0;
    TT_TRY(tt_want_inputs(q, 2, TT_MAX_INS, err));
    TT_TRY(tt_want_rank(q, last, "the chosen experts", 1, err));
    TT_TRY(tt_want_i32(q, last, "the chosen experts", err));
    for (int i = 0; i < last; i++) {
        const tt_dim *d = q->in[i]->dims;
        TT_TRY(tt_want_rank(q, i, "the weight", 3, err));
        TT_TRY(tt_want_float(q, i, "the weight", err));
        TT_TRY(tt_want_equal(q, 0, 0, i, 0, err));
        if (q->in[i]->dtype != q->in[0]->dtype)
            return tt_infer_fail(q, err, "the weights must have one dtype");
        width += d[1].size * d[2].size;
    }
    const tt_dim dims[2] = {TT_DIM(q->in[last]->dims[0].size, TT_LABEL_REPLICAS),
                            TT_DIM(width, NULL)};
    out[0] = tt_type_make(q->in[0]->dtype, dims, 2);
    return TT_OK;
}

static void rule_replica_weights(const tt_shape_query *q, char *rule, size_t size)
{
    tt_rule_text t = {.s = rule, .size = size};
    for (int i = 0; i < q->n_in - 1; i++)
        tt_rule_add(&t, " e o%d i%d,", i, i);
    tt_rule_add(&t, " n -> n c");
}

/* replica_weight: one of them, which begins at column dims[0]. Its operand w says which one it is, and is not read. */
static tt_status infer_replica_weight(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 3, 3, err));
    TT_TRY(tt_want_rank(q, 0, "the weights of replicas", 2, err));
    TT_TRY(tt_want_rank(q, 1, "the weight", 3, err));
    const tt_dim *w = q->in[1]->dims,
                 dims[3] = {TT_DIM(q->in[0]->dims[0].size, TT_LABEL_REPLICAS), w[1], w[2]};
    out[0] = tt_type_make(q->in[0]->dtype, dims, 3);
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

/* The rows of the chosen experts that this rank has, flat: [n,o*i], a sum over ep. */
static tt_value *own_rows(tt_builder *b, tt_value *w, tt_value *chosen, const tt_atom_list *experts)
{
    tt_placement to = {0};
    for (int i = 0; i < experts->n; i++)
        to.atom[0][to.n[0]++] = experts->atom[i];
    return tt_embedding_w(b, chosen, flat(b, tt_redistribute(b, w, &to), "experts"));
}

static void expand_weights(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                           tt_value **outs)
{
    const tt_placement whole = {0};
    const tt_type *w = q->in[0];
    tt_atom_list experts;
    outs[0] = in[0];
    if (!experts_atoms(b, w->dims[0].size, &experts))
        return;
    tt_value *rows = tt_redistribute(b, own_rows(b, in[0], in[1], &experts), &whole);
    outs[0] = not_flat(b, rows, TT_DIM(q->in[1]->dims[0].size, TT_LABEL_REPLICAS), w);
}

static void expand_replica_weights(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                                   tt_value **outs)
{
    const tt_placement whole = {0};
    const int n = q->n_in - 1;
    tt_value *rows[TT_MAX_INS];
    tt_atom_list experts;
    outs[0] = in[0];
    if (!experts_atoms(b, q->in[0]->dims[0].size, &experts))
        return;
    for (int i = 0; i < n; i++)
        rows[i] = own_rows(b, in[i], in[n], &experts);
    outs[0] = tt_redistribute(b, n > 1 ? tt_concat(b, rows, n, 1) : rows[0], &whole);
}

static void expand_replica_weight(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                                  tt_value **outs)
{
    const tt_type *w = q->in[1];
    const int64_t begin = ((const tt_attrs_dims *)q->attrs)->dims[0].size;
    tt_value *rows = tt_slice(b, in[0], 1, begin, begin + w->dims[1].size * w->dims[2].size);
    outs[0] = not_flat(b, rows, TT_DIM(q->in[0]->dims[0].size, TT_LABEL_REPLICAS), w);
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
const tt_op_def tt_op_replica_weights = {
    .struct_size = sizeof(tt_op_def),
    .name = "replica_weights",
    .operands = "w f[E,o,i], …, chosen i[n] → [n, the sum of o*i]",
    .doc = "expert_weights of all weights of a layer, flat and side by side, in one collective",
    .flags = TT_OP_PLACES_OPERANDS,
    .n_out = 1,
    .infer = infer_replica_weights,
    .rule_for = rule_replica_weights,
    .expand_letters = "",
    .expand = expand_replica_weights,
    .cost = tt_cost_move};
const tt_op_def tt_op_replica_weight = {
    .struct_size = sizeof(tt_op_def),
    .name = "replica_weight",
    .operands = "weights f[n,c], w f[E,o,i], chosen i[n] → [n,o,i]",
    .attributes = "tt_attrs_dims (first column)",
    .doc = "the part of replica_weights that is of w; hoist keeps it for all micro-batches of a "
           "step, and autodiff sums its derivative over them",
    .rule = "n c, e o i, n -> n o i",
    .flags = TT_OP_PLACES_OPERANDS,
    .attrs_size = sizeof(tt_attrs_dims),
    .n_out = 1,
    .infer = infer_replica_weight,
    .expand_letters = "",
    .expand = expand_replica_weight,
    .cost = tt_cost_move};
