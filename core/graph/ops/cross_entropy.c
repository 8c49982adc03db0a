/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/graph.h"
#include "graph/ops/internal.h"

/* cross_entropy: logits [T,V] at labels [T] → nll, lse f32 [T]; nll is 0 where the label is
 * negative. If v is cut, the op expands (R5): the maximum, the sum of exponentials and the logit of
 * the label are then three partial values [T], which redistributes of the builder reduce. */

static tt_status want_logits(const tt_shape_query *q, const char *what, tt_error *err)
{
    TT_TRY(tt_want_rank(q, 0, what, 2, err));
    return tt_want_float(q, 0, what, err);
}

static tt_status want_labels(const tt_shape_query *q, tt_error *err)
{
    TT_TRY(tt_want_rank(q, 1, "the labels", 1, err));
    TT_TRY(tt_want_i32(q, 1, "the labels", err));
    return tt_want_equal(q, 0, 0, 1, 0, err);
}

static tt_type per_token(const tt_shape_query *q)
{
    return tt_type_make(tt_dtype_accumulate(q->in[0]->dtype), q->in[0]->dims, 1);
}

static tt_status infer_cross_entropy(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 2, 2, err));
    TT_TRY(want_logits(q, "the logits", err));
    TT_TRY(want_labels(q, err));
    out[0] = out[1] = per_token(q);
    return TT_OK;
}

static tt_status infer_cross_entropy_bwd(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 4, 4, err));
    TT_TRY(want_logits(q, "the logits", err));
    TT_TRY(want_labels(q, err));
    TT_TRY(tt_want_same(q, 1, 2, err));
    TT_TRY(tt_want_same(q, 1, 3, err));
    out[0] = *q->in[0];
    return TT_OK;
}

static tt_status infer_max_last(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 1, 1, err));
    TT_TRY(want_logits(q, "x", err));
    out[0] = per_token(q);
    return TT_OK;
}

static tt_status infer_sum_exp(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 2, 2, err));
    TT_TRY(want_logits(q, "x", err));
    TT_TRY(tt_want_rank(q, 1, "the maximum", 1, err));
    TT_TRY(tt_want_equal(q, 0, 0, 1, 0, err));
    out[0] = per_token(q);
    return TT_OK;
}

static tt_status infer_pick(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 2, 2, err));
    TT_TRY(want_logits(q, "x", err));
    TT_TRY(want_labels(q, err));
    out[0] = per_token(q);
    return TT_OK;
}

static tt_status infer_pick_bwd(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 3, 3, err));
    TT_TRY(want_logits(q, "x", err));
    TT_TRY(want_labels(q, err));
    TT_TRY(tt_want_same(q, 1, 2, err));
    out[0] = *q->in[0];
    return TT_OK;
}

static tt_value *counted(tt_builder *b, tt_value *labels) /* labels >= 0 */
{
    return tt_less_equal(b, tt_const(b, 0.0, TT_I32), labels);
}

static void expand(tt_builder *b, const tt_shape_query *q, tt_value *const *in, tt_value **outs)
{
    tt_value *logits = in[0], *labels = in[1];
    (void)q;
    tt_value *m = tt_emit1(b, "max_last", tt_stop_gradient(b, logits), NULL);
    tt_value *sum = tt_emit2(b, "sum_exp", logits, m, NULL);
    tt_value *at = tt_emit2(b, "pick", logits, labels, NULL);
    tt_value *lse = tt_add(b, tt_log_e(b, sum), m);
    tt_value *zero = tt_const(b, 0.0, tt_value_type(lse)->dtype);
    outs[0] = tt_select(b, counted(b, labels), tt_sub(b, lse, at), zero);
    outs[1] = lse;
}

/* exp(logits - lse) dlse: the softmax weighted per token */
static tt_value *softmax_times(tt_builder *b, tt_value *logits, tt_value *lse, tt_value *d)
{
    tt_value *p = tt_exp(b, tt_sub(b, tt_cast_up(b, logits), tt_unsqueeze_last(b, lse)));
    return tt_mul(b, p, tt_unsqueeze_last(b, d));
}

static void vjp_cross_entropy(tt_builder *b, tt_vjp *c)
{
    tt_value *logits = c->in[0], *d = NULL;
    if (!c->want[0])
        return;
    if (c->dout[0] != NULL) {
        tt_value *ins[4] = {logits, c->in[1], c->out[1], c->dout[0]};
        d = tt_emit(b, "cross_entropy_bwd", ins, 4, NULL);
    }
    if (c->dout[1] != NULL) { /* only if a z-loss reads lse */
        tt_value *z = tt_cast(b, softmax_times(b, logits, c->out[1], c->dout[1]),
                              tt_value_type(logits)->dtype);
        d = d == NULL ? z : tt_add(b, d, z);
    }
    c->din[0] = d;
}

/* The cotangent of x; that of the maximum cancels out. */
static void vjp_sum_exp(tt_builder *b, tt_vjp *c)
{
    tt_value *d = softmax_times(b, c->in[0], c->in[1], c->dout[0]);
    if (c->want[0])
        c->din[0] = tt_vjp_fit(b, d, c->in[0]);
    if (c->want[1])
        c->din[1] = tt_neg(b, tt_mul(b, c->out[0], c->dout[0]));
}

static void vjp_pick(tt_builder *b, tt_vjp *c)
{
    if (c->want[0])
        c->din[0] = tt_emit3(b, "pick_bwd", c->in[0], c->in[1], c->dout[0], NULL);
}

static void decompose_bwd(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                          tt_value **outs)
{
    tt_value *d = tt_select(b, counted(b, in[1]), in[3], tt_zero_like_dtype(b, in[3]));
    tt_value *p = tt_cast(b, softmax_times(b, in[0], in[2], d), q->in[0]->dtype);
    outs[0] = tt_sub(b, p, tt_emit3(b, "pick_bwd", in[0], in[1], d, NULL));
}

static void decompose_max_last(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                               tt_value **outs)
{
    (void)q;
    outs[0] = tt_max(b, tt_cast_up(b, in[0]), -1, 0);
}

static void decompose_sum_exp(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                              tt_value **outs)
{
    tt_value *x = tt_cast_up(b, in[0]);
    (void)q;
    outs[0] = tt_sum(b, tt_exp(b, tt_sub(b, x, tt_unsqueeze_last(b, in[1]))), -1, 0);
}

static tt_cost cost_exp(const tt_shape_query *q, const tt_type *out)
{
    return tt_cost_make(q, out, 1, 11.0 * tt_numel(q->in[0]));
}

static tt_cost cost_two(const tt_shape_query *q, const tt_type *out)
{
    return tt_cost_make(q, out, 2, 12.0 * tt_numel(q->in[0]));
}

static tt_cost cost_max(const tt_shape_query *q, const tt_type *out)
{
    return tt_cost_make(q, out, 1, tt_numel(q->in[0]));
}

static tt_cost cost_pick(const tt_shape_query *q, const tt_type *out)
{ /* it reads one element per row */
    (void)q;
    return (tt_cost){.flops = 0.0, .bytes = 12.0 * tt_numel(&out[0])};
}

const tt_op_def tt_op_cross_entropy = {
    .struct_size = sizeof(tt_op_def),
    .name = "cross_entropy",
    .operands = "logits f[T,V], labels i[T] → nll f[T], lse f[T]",
    .doc = "lse: the log of the sum of e^logits of each token; nll: lse minus the logit of the "
           "token's label, 0 where the label is negative (ignored)",
    .rule = "t !v, t -> t, t",
    .n_out = 2,
    .infer = infer_cross_entropy,
    .vjp = vjp_cross_entropy,
    .decompose = expand,
    .expand_letters = "v",
    .expand = expand,
    .cost = cost_two};
const tt_op_def tt_op_cross_entropy_bwd = {
    .struct_size = sizeof(tt_op_def),
    .name = "cross_entropy_bwd",
    .operands = "logits f[T,V], labels i[T], lse f[T], dnll f[T] → dlogits [T,V]",
    .doc = "derivative of cross_entropy's nll to the logits: (softmax(logits) - onehot(label)) "
           "times dnll, 0 where the label is negative",
    .rule = "t v, t, t, t -> t v",
    .n_out = 1,
    .infer = infer_cross_entropy_bwd,
    .decompose = decompose_bwd,
    .cost = cost_exp};
const tt_op_def tt_op_max_last = {
    .struct_size = sizeof(tt_op_def),
    .name = "max_last",
    .operands = "x f[T,V] → [T]",
    .doc = "maximum over the last dim, in f32; -inf where a rank's box has no column; it has no "
           "derivative, so put stop_gradient before it",
    .rule = "t v -> t",
    .flags = TT_OP_NO_GRADIENT | TT_OP_MAY_BE_INFINITE,
    .reduce_max = 1,
    .n_out = 1,
    .infer = infer_max_last,
    .decompose = decompose_max_last,
    .cost = cost_max};
const tt_op_def tt_op_sum_exp = {.struct_size = sizeof(tt_op_def),
                                 .name = "sum_exp",
                                 .operands = "x f[T,V], m f[T] → [T]",
                                 .doc = "sum of e^(x - m) over the last dim, in f32",
                                 .rule = "t v, t -> t",
                                 .n_out = 1,
                                 .infer = infer_sum_exp,
                                 .vjp = vjp_sum_exp,
                                 .decompose = decompose_sum_exp,
                                 .cost = cost_exp};
const tt_op_def tt_op_pick = {.struct_size = sizeof(tt_op_def),
                              .name = "pick",
                              .operands = "x f[T,V], idx i[T] → [T]",
                              .doc = "element idx[t] of row t for each t, in f32; 0 where the "
                                     "element is outside this rank's box",
                              .rule = "t v, t -> t",
                              .n_out = 1,
                              .infer = infer_pick,
                              .vjp = vjp_pick,
                              .cost = cost_pick};
const tt_op_def tt_op_pick_bwd = {
    .struct_size = sizeof(tt_op_def),
    .name = "pick_bwd",
    .operands = "x f[T,V] (its type only), idx i[T], dy f[T] → [T,V]",
    .doc = "derivative of pick to x: dy[t] in column idx[t] of row t, 0 elsewhere",
    .rule = "t v, t, t -> t v",
    .n_out = 1,
    .infer = infer_pick_bwd,
    .cost = tt_cost_move};

/* If v is a cast to f32, the value before the cast: the kernel widens logits itself, and rounds their
 * cotangent, as the cast would. */
static tt_value *before_cast_up(tt_value *v)
{
    tt_node *n = v ? v->node : NULL; /* the op refuses NULL */
    return n && tt_node_is_cast(n) && n->in[0]->type.dtype != TT_F64 ? n->in[0] : v;
}

tt_value *tt_cross_entropy(tt_builder *b, tt_value *logits, tt_value *labels)
{
    tt_value *lse;
    return tt_cross_entropy_lse(b, logits, labels, &lse);
}

tt_value *tt_cross_entropy_lse(tt_builder *b, tt_value *logits, tt_value *labels, tt_value **lse)
{
    if (tt_builder_lacks_result(b, lse, "tt_cross_entropy_lse: the pointer to the log-sum-exp"))
        return tt_placeholder(b);
    logits = before_cast_up(logits);
    tt_value *ins[2] = {logits, labels}, *outs[2] = {NULL, NULL};
    tt_op(b, "cross_entropy", ins, 2, NULL, outs, 2);
    *lse = outs[1];
    return outs[0];
}

tt_value *tt_pick(tt_builder *b, tt_value *x, tt_value *idx)
{
    return tt_emit2(b, "pick", x, idx, NULL);
}
