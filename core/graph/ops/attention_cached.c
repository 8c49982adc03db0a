/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/ops/internal.h"

/* attention_cached: attention for decoding (R18). q [T,H*hd], k [T,K*hd], v [T,K*dv] of new
 * tokens, pos, slot [T], keys [S,K,B,hd,32], values [S,K,B*32,dv][, sinks [H]][, bias [H,N]] → out [T,H*dv], keys
 * and values with those of the new tokens added. A token sees its sequence up to itself. Sequences are
 * not cut; heads and kv heads are cut together. */

static tt_status want_cache(const tt_shape_query *q, int64_t kv_heads, tt_error *err)
{
    const tt_attrs_attention *a = q->attrs;
    TT_TRY(tt_want_rank(q, 5, "keys", 5, err));
    TT_TRY(tt_want_rank(q, 6, "values", 4, err));
    const tt_dim *k = q->in[5]->dims, *v = q->in[6]->dims;
    if (k[0].size != v[0].size || k[1].size != kv_heads || v[1].size != kv_heads ||
        k[3].size != a->head_dim || v[3].size != a->v_head_dim || k[4].size != TT_CACHE_BLOCK ||
        v[2].size / TT_CACHE_BLOCK != k[2].size || v[2].size % TT_CACHE_BLOCK)
        return tt_infer_fail(q, err,
                             "keys must be [slots, %lld, blocks, %lld, %d], values [slots, %lld, "
                             "blocks * %d, %lld]",
                             (long long)kv_heads, (long long)a->head_dim, TT_CACHE_BLOCK,
                             (long long)kv_heads, TT_CACHE_BLOCK, (long long)a->v_head_dim);
    if (q->in[5]->dtype != q->in[1]->dtype || q->in[6]->dtype != q->in[2]->dtype)
        return tt_infer_fail(q, err, "keys and values must be of k's and v's dtype");
    return TT_OK;
}

static tt_status infer_attention_cached(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    const tt_attrs_attention *a = q->attrs;
    int64_t h = 0, k = 0, v = 0;
    TT_TRY(tt_want_inputs(q, 7, 9, err));
    TT_TRY(tt_want_heads(q, 0, "q", a->head_dim, &h, err));
    TT_TRY(tt_want_heads(q, 1, "k", a->head_dim, &k, err));
    TT_TRY(tt_want_heads(q, 2, "v", a->v_head_dim, &v, err));
    if (k != v || h % k != 0)
        return tt_infer_fail(q, err,
                             "%lld heads, %lld of k, %lld of v: k's and v's must be equal "
                             "and divide q's",
                             (long long)h, (long long)k, (long long)v);
    for (int i = 3; i < 5; i++) {
        TT_TRY(tt_want_rank(q, i, "pos and slot", 1, err));
        TT_TRY(tt_want_i32(q, i, "pos and slot", err));
    }
    for (int i = 1; i < 5; i++)
        TT_TRY(tt_want_equal(q, 0, 0, i, 0, err));
    TT_TRY(want_cache(q, k, err));
    if (a->bidirectional)
        return tt_infer_fail(
            q, err, "bidirectional attention cannot decode: a token would read later ones");
    TT_TRY(tt_want_sinks_and_bias(q, 7, true, h, err));
    const tt_type *x = q->in[0];
    const tt_dim d[2] = {x->dims[0],
                         TT_DIM_UNIT(h * a->v_head_dim, x->dims[1].label, a->v_head_dim)};
    out[0] = tt_type_make(x->dtype, d, 2);
    out[1] = *q->in[5];
    out[2] = *q->in[6];
    return TT_OK;
}

static void rule_attention_cached(const tt_shape_query *q, char *rule, size_t size)
{
    snprintf(
        rule, size,
        "!t h=(k g), !t k, !t k, !t, !t, !s k !p !d !x, !s k !q !e%s -> t h, s k p d x, s k q e",
        tt_attention_rule_sinks_and_bias(q, 7));
}

static tt_cost cost_attention_cached(const tt_shape_query *q, const tt_type *out)
{ /* an upper bound: every token sees its whole sequence */
    const tt_attrs_attention *a = q->attrs;
    const double seen = (double)q->in[6]->dims[2].size, tokens = (double)q->in[0]->dims[0].size;
    const double kv = (double)q->in[1]->dims[1].size + (double)q->in[2]->dims[1].size;
    const double heads = (double)(q->in[0]->dims[1].size / a->head_dim);
    const double flops =
        tokens * seen * heads * (2.0 * (double)(a->head_dim + a->v_head_dim) + 10.0);
    return (tt_cost){flops, tokens * seen * kv * (double)tt_dtype_size(out[1].dtype)};
}

const tt_op_def tt_op_attention_cached = {
    .struct_size = sizeof(tt_op_def),
    .name = "attention_cached",
    .operands = "q, k, v [T,..], pos i[T], slot i[T], keys, values[, sinks f[H]]"
                "[, bias f[H,N]] → out [T,H*dv], keys, values",
    .attributes = "tt_attrs_attention",
    .doc = "writes the keys and values of new tokens into the cache; each token then sees the "
           "cached tokens of its sequence up to itself; a token with a negative slot has out 0",
    .flags = TT_OP_MIXES_TOKENS | TT_OP_NO_GRADIENT | TT_OP_UPDATES,
    .attrs_size = sizeof(tt_attrs_attention),
    .n_out = 3,
    .infer = infer_attention_cached,
    .rule_for = rule_attention_cached,
    .cost = cost_attention_cached,
    .print_attrs = tt_attention_print,
    .cls = TT_CLASS_ATTENTION};
