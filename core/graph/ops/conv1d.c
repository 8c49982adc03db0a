/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/ops/internal.h"

/* conv1d: depthwise causal convolution along tokens: x [T,D], w [D,K], seg, pos i32 [T] → y[t] =
 * Σ_j w[:,K-1-j] x[t-j] over the j whose token is in the segment of t, j positions before it.
 * The token dim must not be cut inside sequences, and tokens must be in their plain order. */

#define TOKENS "t=(b !q) d, d !k, t, t"

static tt_status want_common(const tt_shape_query *q, tt_error *err)
{
    TT_TRY(tt_want_rank(q, 0, "x", 2, err));
    TT_TRY(tt_want_float(q, 0, "x", err));
    TT_TRY(tt_want_rank(q, 1, "the weight", 2, err));
    TT_TRY(tt_want_float(q, 1, "the weight", err));
    TT_TRY(tt_want_equal(q, 0, 1, 1, 0, err));
    for (int i = 2; i < 4; i++) {
        TT_TRY(tt_want_rank(q, i, "seg and pos", 1, err));
        TT_TRY(tt_want_i32(q, i, "seg and pos", err));
        TT_TRY(tt_want_equal(q, 0, 0, i, 0, err));
    }
    return TT_OK;
}

static tt_status infer_conv1d(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 4, 4, err));
    TT_TRY(want_common(q, err));
    out[0] = *q->in[0];
    return TT_OK;
}

static tt_status infer_conv1d_bwd(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 5, 5, err));
    TT_TRY(want_common(q, err));
    TT_TRY(tt_want_same(q, 0, 4, err));
    out[0] = *q->in[0];
    out[1] = tt_type_make(tt_dtype_accumulate(q->in[1]->dtype), q->in[1]->dims, 2);
    return TT_OK;
}

static void vjp_conv1d(tt_builder *b, tt_vjp *c)
{
    tt_value *ins[5] = {c->in[0], c->in[1], c->in[2], c->in[3], c->dout[0]},
             *outs[2] = {NULL, NULL};
    tt_op(b, "conv1d_bwd", ins, 5, NULL, outs, 2);
    for (int i = 0; i < 2; i++)
        if (c->want[i])
            c->din[i] = outs[i];
}

static tt_cost cost_conv1d(const tt_shape_query *q, const tt_type *out)
{
    return tt_cost_make(q, out, 1, 2.0 * tt_numel(&out[0]) * (double)q->in[1]->dims[1].size);
}

static tt_cost cost_bwd(const tt_shape_query *q, const tt_type *out)
{
    return tt_cost_make(q, out, 2, 4.0 * tt_numel(&out[0]) * (double)q->in[1]->dims[1].size);
}

const tt_op_def tt_op_conv1d = {
    .struct_size = sizeof(tt_op_def),
    .name = "conv1d",
    .operands = "x f[T,D], w f[D,K], seg i[T], pos i[T] → [T,D]",
    .doc = "depthwise causal convolution along tokens: y[t] = Σ_j w[:,K-1-j] x[t-j] for each of "
           "the D columns; tap j counts if token t-j is in t's segment, j positions before t",
    .rule = TOKENS " -> t d",
    .flags = TT_OP_MIXES_TOKENS | TT_OP_ORDERED | TT_OP_HEAVY,
    .n_out = 1,
    .infer = infer_conv1d,
    .vjp = vjp_conv1d,
    .cost = cost_conv1d};
const tt_op_def tt_op_conv1d_bwd = {
    .struct_size = sizeof(tt_op_def),
    .name = "conv1d_bwd",
    .operands = "x f[T,D], w f[D,K], seg i[T], pos i[T], dy f[T,D] → dx [T,D], dw f32 [D,K]",
    .doc = "derivative of conv1d to x and w",
    .rule = TOKENS ", t d -> t d, d k",
    .flags = TT_OP_MIXES_TOKENS | TT_OP_ORDERED,
    .n_out = 2,
    .infer = infer_conv1d_bwd,
    .cost = cost_bwd};

tt_value *tt_conv1d(tt_builder *b, tt_value *x, tt_value *w)
{
    tt_value *ins[4] = {x, w, tt_input(b, "seg"), tt_input(b, "pos")};
    return tt_emit(b, "conv1d", ins, 4, NULL);
}
