/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/ops/internal.h"

/* delta_rule: the gated delta rule along tokens. K groups of heads share q and k, R heads in each:
 * q, k [T,K,dk], v [T,K,R,dv], the log of the decay g and the rate beta [T,K,R]. Each head has a state S [dk,dv]:
 *   S[t] = exp(g) S[t-1] + k (beta (v - exp(g) S[t-1]ᵀ k))ᵀ,  o[t] = S[t]ᵀ q
 * Token t continues t-1 as in scan (scan.c); any other token starts with S[t-1] = 0, and its g has no
 * effect. delta_rule_cached is the same for decoding: a state keeps S of each sequence.
 * Source: Yang et al. 2024, arXiv:2412.06464. */

enum { Q, K, V, G, BETA, SEG, POS }; /* inputs; then do of the derivative or the state */

static tt_status want_operands(const tt_shape_query *q, tt_error *err)
{
    static const char *const names[] = {"q", "k", "v", "g", "beta"};
    static const int ranks[] = {3, 3, 4, 3, 3};
    for (int i = Q; i <= BETA; i++) {
        TT_TRY(tt_want_rank(q, i, names[i], ranks[i], err));
        TT_TRY(tt_want_float(q, i, names[i], err));
        TT_TRY(tt_want_equal(q, Q, 0, i, 0, err));
        TT_TRY(tt_want_equal(q, Q, 1, i, 1, err));
    }
    TT_TRY(tt_want_equal(q, Q, 2, K, 2, err));
    TT_TRY(tt_want_equal(q, V, 2, G, 2, err));
    TT_TRY(tt_want_equal(q, V, 2, BETA, 2, err));
    for (int i = SEG; i <= POS; i++) {
        TT_TRY(tt_want_rank(q, i, "seg and pos", 1, err));
        TT_TRY(tt_want_i32(q, i, "seg and pos", err));
        TT_TRY(tt_want_equal(q, Q, 0, i, 0, err));
    }
    return TT_OK;
}

static tt_status infer_delta_rule(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 7, 7, err));
    TT_TRY(want_operands(q, err));
    out[0] = *q->in[V];
    return TT_OK;
}

/* dgates [T,K,2,R]: those of g, then those of beta */
static tt_status infer_delta_rule_bwd(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 8, 8, err));
    TT_TRY(want_operands(q, err));
    TT_TRY(tt_want_same(q, V, 7, err));
    const tt_dim *g = q->in[G]->dims, gates[4] = {g[0], g[1], TT_DIM(2, NULL), g[2]};
    for (int i = Q; i <= V; i++)
        out[i] = *q->in[i];
    out[3] = tt_type_make(tt_dtype_accumulate(q->in[G]->dtype), gates, 4);
    return TT_OK;
}

/* The state f32 [slots,K,R,dk,dv] */
static tt_type state_type(const tt_shape_query *q, tt_dim slots)
{
    const tt_dim *v = q->in[V]->dims, dims[5] = {slots, v[1], v[2], q->in[Q]->dims[2], v[3]};
    return tt_type_make(tt_dtype_accumulate(q->in[V]->dtype), dims, 5);
}

static tt_status infer_delta_rule_cached(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 8, 8, err));
    TT_TRY(want_operands(q, err));
    TT_TRY(tt_want_rank(q, 7, "the state", 5, err));
    const tt_type want = state_type(q, q->in[7]->dims[0]), *s = q->in[7];
    bool fits = s->dtype == want.dtype;
    for (int d = 1; d < 5; d++)
        fits = fits && tt_dim_same_size(&s->dims[d], &want.dims[d]);
    if (!fits)
        return tt_infer_fail(q, err, "the state must be %s [slots, groups, heads, dk, dv]",
                             tt_dtype_name(want.dtype));
    out[0] = *q->in[V];
    out[1] = *s;
    return TT_OK;
}

static void vjp_delta_rule(tt_builder *b, tt_vjp *c)
{
    tt_value *ins[8], *outs[4] = {NULL, NULL, NULL, NULL};
    for (int i = Q; i <= POS; i++)
        ins[i] = c->in[i];
    ins[7] = c->dout[0];
    tt_op(b, "delta_rule_bwd", ins, 8, NULL, outs, 4);
    for (int i = Q; i <= V; i++)
        if (c->want[i])
            c->din[i] = outs[i];
    for (int i = G; i <= BETA; i++)
        if (c->want[i])
            c->din[i] = tt_vjp_fit(b,
                                   tt_reshape(b, tt_slice(b, outs[3], 2, i - G, i - G + 1),
                                              tt_value_type(c->in[i])->dims, 3),
                                   c->in[i]);
}

/* Multiply-adds of the recurrence: the state is read twice and written once. */
static double state_flops(const tt_shape_query *q)
{
    return 6.0 * tt_numel(q->in[V]) * (double)q->in[Q]->dims[2].size;
}

static tt_cost cost_delta_rule(const tt_shape_query *q, const tt_type *out)
{
    return tt_cost_make(q, out, 1, state_flops(q));
}

static tt_cost cost_delta_rule_bwd(const tt_shape_query *q, const tt_type *out)
{ /* the states are computed again */
    return tt_cost_make(q, out, 4, 3.0 * state_flops(q));
}

static tt_cost cost_delta_rule_cached(const tt_shape_query *q, const tt_type *out)
{ /* a token reads and writes the state of one sequence; the other states stay */
    const double states = tt_numel(&out[0]) * (double)q->in[Q]->dims[2].size;
    tt_cost c = {state_flops(q), 2.0 * states * (double)tt_dtype_size(out[1].dtype)};
    for (int i = Q; i <= BETA; i++)
        c.bytes += tt_numel(q->in[i]) * (double)tt_dtype_size(q->in[i]->dtype);
    c.bytes += tt_numel(&out[0]) * (double)tt_dtype_size(out[0].dtype);
    return c;
}

/* Decoding: the last S of each sequence. */
static tt_status delta_rule_memory(const tt_shape_query *q, int64_t slots, int64_t length,
                                   tt_type *out, tt_error *err)
{
    (void)length, (void)err;
    out[0] = state_type(q, TT_DIM(slots, "slots"));
    return TT_OK;
}

static void delta_rule_incremental(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                                   tt_value *const *memory, tt_value **outs, tt_value **updated)
{
    tt_value *ins[8], *y[2] = {NULL, NULL};
    (void)q;
    for (int i = Q; i <= POS; i++)
        ins[i] = in[i];
    ins[7] = memory[0];
    tt_op(b, "delta_rule_cached", ins, 8, NULL, y, 2);
    outs[0] = y[0];
    updated[0] = y[1];
}

/* The groups may be cut; the tokens of a sequence are whole. */
#define OPERANDS(t) t " k !d, t k !d, t k !r !e, t k r, t k r, t, t"

const tt_op_def tt_op_delta_rule = {
    .struct_size = sizeof(tt_op_def),
    .name = "delta_rule",
    .operands = "q, k f[T,K,dk], v f[T,K,H,dv], g, beta f[T,K,H], seg i[T], pos i[T] → [T,K,H,dv]",
    .doc = "gated delta rule within segments, a state S [dk,dv] per head: S[t] = exp(g) S[t-1] + k "
           "(beta (v - exp(g) S[t-1]ᵀ k))ᵀ, o = S[t]ᵀ q",
    .rule = OPERANDS("t=(b !q)") " -> t k r e",
    .flags = TT_OP_MIXES_TOKENS | TT_OP_ORDERED | TT_OP_HEAVY,
    .n_out = 1,
    .infer = infer_delta_rule,
    .vjp = vjp_delta_rule,
    .cost = cost_delta_rule,
    .n_memory = 1,
    .memory = delta_rule_memory,
    .incremental = delta_rule_incremental};
const tt_op_def tt_op_delta_rule_bwd = {
    .struct_size = sizeof(tt_op_def),
    .name = "delta_rule_bwd",
    .operands = "q, k, v, g, beta, seg, pos, do f[T,K,H,dv] → dq, dk, dv, dgates [T,K,2,H]",
    .doc = "derivative of delta_rule; dgates has that of g, then that of beta",
    .rule = OPERANDS("t=(b !q)") ", t k r e -> t k d, t k d, t k r e, t k !z r",
    .flags = TT_OP_MIXES_TOKENS | TT_OP_ORDERED,
    .n_out = 4,
    .infer = infer_delta_rule_bwd,
    .cost = cost_delta_rule_bwd};
const tt_op_def tt_op_delta_rule_cached = {
    .struct_size = sizeof(tt_op_def),
    .name = "delta_rule_cached",
    .operands =
        "q, k, v, g, beta, slot i[T], pos i[T], state f32 [S,K,H,dk,dv] → [T,K,H,dv], state",
    .doc = "delta_rule of new tokens, continued from the state of their sequence",
    .rule = OPERANDS("!t") ", !s k !r !d !e -> t k r e, s k r d e",
    .flags = TT_OP_MIXES_TOKENS | TT_OP_NO_GRADIENT | TT_OP_UPDATES,
    .n_out = 2,
    .infer = infer_delta_rule_cached,
    .cost = cost_delta_rule_cached};

tt_value *tt_delta_rule(tt_builder *b, tt_value *q, tt_value *k, tt_value *v, tt_value *g,
                        tt_value *beta)
{
    tt_value *ins[7] = {q, k, v, g, beta, tt_input(b, "seg"), tt_input(b, "pos")};
    return tt_emit(b, "delta_rule", ins, 7, NULL);
}
