/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/ops/internal.h"

/* conv1d: depthwise causal convolution along tokens: x [T,D], w [D,K], seg, pos i32 [T] → y[t] =
 * Σ_j w[:,K-1-j] x[t-j] over the j whose token is in the segment of t, j positions before it.
 * The token dim must not be cut inside sequences, and tokens must be in their plain order.
 * conv1d_cached is the same for decoding: a state [S,max(K-1,1),D] keeps the last K - 1 rows of x of
 * each sequence, the row of position p at p mod (K-1). */

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

static int64_t kept_rows(int64_t taps)
{
    return TT_MAXV(taps - 1, 1);
}

static tt_status infer_conv1d_cached(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 5, 5, err));
    TT_TRY(want_common(q, err));
    TT_TRY(tt_want_rank(q, 4, "the state", 3, err));
    const tt_type *s = q->in[4];
    const int64_t rows = kept_rows(q->in[1]->dims[1].size);
    if (s->dims[1].size != rows || s->dtype != tt_dtype_accumulate(q->in[0]->dtype))
        return tt_infer_fail(q, err, "the state must be %s [slots, %lld, width]",
                             tt_dtype_name(tt_dtype_accumulate(q->in[0]->dtype)), (long long)rows);
    TT_TRY(tt_want_equal(q, 0, 1, 4, 2, err));
    out[0] = *q->in[0];
    out[1] = *s;
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

static tt_cost cost_cached(const tt_shape_query *q, const tt_type *out)
{ /* a token reads K - 1 rows of its sequence's state and writes one */
    const double n = tt_numel(&out[0]), taps = (double)q->in[1]->dims[1].size;
    return (tt_cost){2.0 * n * taps, n * (taps * (double)tt_dtype_size(out[1].dtype) +
                                          2.0 * (double)tt_dtype_size(out[0].dtype))};
}

static tt_status conv1d_memory(const tt_shape_query *q, int64_t slots, int64_t length, tt_type *out,
                               tt_error *err)
{
    const tt_dim dims[3] = {TT_DIM(slots, "slots"), TT_DIM(kept_rows(q->in[1]->dims[1].size), NULL),
                            q->in[0]->dims[1]};
    (void)length, (void)err;
    out[0] = tt_type_make(tt_dtype_accumulate(q->in[0]->dtype), dims, 3);
    return TT_OK;
}

static void conv1d_incremental(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                               tt_value *const *memory, tt_value **outs, tt_value **updated)
{
    tt_value *ins[5] = {in[0], in[1], in[2], in[3], memory[0]}, *y[2] = {NULL, NULL};
    (void)q;
    tt_op(b, "conv1d_cached", ins, 5, NULL, y, 2);
    outs[0] = y[0];
    updated[0] = y[1];
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
    .cost = cost_conv1d,
    .n_memory = 1,
    .memory = conv1d_memory,
    .incremental = conv1d_incremental};
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
const tt_op_def tt_op_conv1d_cached = {
    .struct_size = sizeof(tt_op_def),
    .name = "conv1d_cached",
    .operands =
        "x f[T,D], w f[D,K], slot i[T], pos i[T], state f32 [S,max(K-1,1),D] → [T,D], state",
    .doc = "conv1d of new tokens, with the last K - 1 rows of their sequence in the state",
    .rule = "!t d, d !k, !t, !t, !s !r d -> t d, s r d",
    .flags = TT_OP_MIXES_TOKENS | TT_OP_NO_GRADIENT | TT_OP_UPDATES,
    .n_out = 2,
    .infer = infer_conv1d_cached,
    .cost = cost_cached};

tt_value *tt_conv1d(tt_builder *b, tt_value *x, tt_value *w)
{
    tt_value *ins[4] = {x, w, tt_input(b, "seg"), tt_input(b, "pos")};
    return tt_emit(b, "conv1d", ins, 4, NULL);
}
