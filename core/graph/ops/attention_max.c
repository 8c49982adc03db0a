/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/graph.h"
#include "graph/ops/internal.h"

/* attention_max: the largest logit of each head of attention, scale q·k over the pairs that it sees, before
 * softcap and bias. Placed as attention is (attention.c); over queries that are cut it is a partial maximum. */

static tt_status infer_attention_max(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    const tt_attrs_attention *a = q->attrs;
    int64_t h = 0, k = 0;
    TT_TRY(tt_want_inputs(q, 6, 6, err));
    TT_TRY(tt_want_heads(q, 0, "q", a->head_dim, &h, err));
    TT_TRY(tt_want_heads(q, 1, "k", a->head_dim, &k, err));
    if (h % k != 0)
        return tt_infer_fail(q, err, "%lld kv heads must divide %lld heads", (long long)k,
                             (long long)h);
    for (int i = 2; i < 6; i++) {
        TT_TRY(tt_want_rank(q, i, "pos and seg", 1, err));
        TT_TRY(tt_want_i32(q, i, "pos and seg", err));
        TT_TRY(tt_want_equal(q, i, 0, i < 4 ? 0 : 1, 0, err));
    }
    const tt_dim d = TT_DIM(h, q->in[0]->dims[1].label);
    out[0] = tt_type_make(tt_dtype_accumulate(q->in[0]->dtype), &d, 1);
    return TT_OK;
}

static void rule_attention_max(const tt_shape_query *q, char *rule, size_t size)
{
    const tt_attrs_attention *a = q->attrs;
    const int i = (int)a->ring_step;
    if (a->ring)
        snprintf(rule, size, "t=(b q) h=(k g), t+%d k, t, t, t+%d, t+%d -> h", i, i, i);
    else
        snprintf(rule, size, "t=(b q) h=(k g), s=(b !p) k, t, t, s, s -> h");
}

static tt_cost cost_attention_max(const tt_shape_query *q, const tt_type *out)
{
    const tt_attrs_attention *a = q->attrs;
    const double t = (double)q->in[0]->dims[0].size, s = (double)q->in[1]->dims[0].size,
                 n = (double)TT_MAXV(q->in[1]->dims[0].lines, (int64_t)1);
    return tt_cost_make(
        q, out, 1, t * s / n * (a->bidirectional ? 2.0 : 1.0) * (double)q->in[0]->dims[1].size);
}

const tt_op_def tt_op_attention_max = {
    .struct_size = sizeof(tt_op_def),
    .name = "attention_max",
    .operands = "q [T,H*hd], k [S,K*hd], pos_q, seg_q i[T], pos_k, seg_k i[S] → f32 [H]",
    .attributes = "tt_attrs_attention",
    .doc = "of each head the largest scale q·k over the pairs that attention sees, before softcap "
           "and bias; -inf where a rank has no such pair",
    .flags = TT_OP_MIXES_TOKENS | TT_OP_NO_GRADIENT | TT_OP_MAY_BE_INFINITE,
    .reduce_max = 1,
    .attrs_size = sizeof(tt_attrs_attention),
    .rule_for = rule_attention_max,
    .n_out = 1,
    .infer = infer_attention_max,
    .cost = cost_attention_max,
    .print_attrs = tt_attention_print};
