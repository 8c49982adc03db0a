/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_OPS_CASES_H
#define TT_TESTS_OPS_CASES_H
#include "pointwise_cases.h"

/* One small graph per op or variant of an op, for the generated tests. A case writes its outputs to
 * y. */

CASE(scale)
{
    ONE(tt_scale(e->b, F(-1, 1, 2, tokens_dim(), N(3)), -2.5));
}
CASE(scale_by)
{
    ONE(tt_mul(e->b, leaf_of(e, TT_F64, -1, 1, 0, NULL), F(-1, 1, 2, tokens_dim(), N(3))));
}
CASE(scale_rows)
{
    tt_value *in[2] = {F(-1, 1, 2, tokens_dim(), N(3)), F(-1, 1, 2, tokens_dim(), N(1))},
             *scaled = NULL;
    tt_op(e->b, "scale_by", in, 2, NULL, &scaled, 1);
    ONE(scaled);
}
CASE(select)
{
    tt_value *c = leaf_of(e, TT_BOOL, -1, 1, 2, DIMS(tokens_dim(), N(3)));
    ONE(tt_select(e->b, c, F(-1, 1, 1, N(3)), leaf_of(e, TT_F64, -1, 1, 0, NULL)));
}
CASE(compare)
{
    tt_value *a = F(-1, 1, 1, N(5)), *b = F(-1, 1, 1, N(5)), *x = F(-1, 1, 1, N(5));
    tt_value *less = tt_select(e->b, tt_less(e->b, a, b), x, tt_neg(e->b, x));
    tt_value *finite = tt_select(e->b, tt_is_finite(e->b, a), less, x);
    ONE(tt_select(e->b, tt_equal(e->b, a, a), finite, x));
}
CASE(cast)
{
    tt_value *x = F(-1, 1, 1, N(5));
    tt_op(e->b, "cast", &x, 1, &(tt_attrs_cast){.to = TT_F64}, y, 1);
    return 1;
}
CASE(sum_first)
{
    ONE(tt_sum(e->b, F(-1, 1, 2, tokens_dim(), N(3)), 0, 0));
}
CASE(sum_keep)
{
    ONE(tt_sum(e->b, F(-1, 1, 3, tokens_dim(), N(3), N(2)), 1, 1));
}
CASE(mean)
{
    ONE(tt_mean(e->b, F(-1, 1, 2, tokens_dim(), N(3)), -1, 0));
}
CASE(max)
{
    ONE(tt_max(e->b, F(-1, 1, 2, tokens_dim(), N(3)), -1, 0));
}
CASE(max_keep)
{
    ONE(tt_max(e->b, F(-1, 1, 2, tokens_dim(), N(3)), 0, 1));
}
CASE(line_sum)
{
    ONE(tt_line_sum(e->b, F(-1, 1, 1, tokens_dim())));
}
CASE(segment_sum)
{
    tt_value *number = leaf_of(e, TT_I32, -1, 4, 1, DIMS(tokens_dim()));
    ONE(tt_segment_sum(e->b, F(-1, 1, 1, tokens_dim()), number));
}
CASE(transpose)
{
    const int perm[3] = {2, 0, 1};
    ONE(tt_transpose(e->b, F(-1, 1, 3, tokens_dim(), N(3), N(2)), perm));
}
CASE(slice)
{
    ONE(tt_slice(e->b, F(-1, 1, 2, tokens_dim(), N(5)), 1, 1, 4));
}
CASE(concat)
{
    tt_value *xs[3] = {F(-1, 1, 2, tokens_dim(), N(2)), F(-1, 1, 2, tokens_dim(), N(1)),
                       F(-1, 1, 2, tokens_dim(), N(3))};
    ONE(tt_concat(e->b, xs, 3, -1));
}
/* More values than an op takes, in the other order. */
CASE(concat_of_many)
{
    tt_value *xs[37], *x = F(-1, 1, 2, tokens_dim(), N(37));
    for (int i = 0; i < 37; i++)
        xs[i] = tt_slice(e->b, x, 1, 36 - i, 37 - i);
    ONE(tt_concat(e->b, xs, 37, 1));
}
CASE(broadcast)
{
    ONE(tt_broadcast_to(e->b, F(-1, 1, 2, N(1), N(3)), DIMS(N(4), tokens_dim(), N(3)), 3));
}
CASE(reshape_heads)
{
    tt_value *x = F(-1, 1, 2, tokens_dim(), TT_DIM_UNIT(6, "heads", 3));
    ONE(tt_reshape(e->b, x, DIMS(tokens_dim(), TT_DIM(2, "heads"), N(3)), 3));
}
CASE(reshape_merge)
{
    ONE(tt_reshape(e->b, F(-1, 1, 3, tokens_dim(), N(3), N(2)), DIMS(N(EVAL_TOKENS * 3), N(2)), 2));
}
CASE(reshape_sequences)
{
    const tt_dim T = tokens_dim();
    tt_value *x = F(-1, 1, 2, T, TT_DIM_UNIT(6, "heads", 3));
    ONE(tt_reshape(e->b, x, DIMS(N(T.lines), N(T.size / T.lines), TT_DIM(2, "heads"), N(3)), 4));
}
CASE(logsumexp)
{
    ONE(tt_logsumexp(e->b, F(-1, 1, 2, tokens_dim(), N(5))));
}
CASE(log_softmax)
{
    ONE(tt_log_softmax(e->b, F(-1, 1, 2, tokens_dim(), N(5))));
}
CASE(clamp)
{
    ONE(tt_clamp(e->b, F(-1, 1, 1, N(9)), -0.3, 0.4));
}
CASE(floor_and_sign)
{
    tt_value *x = F(-1, 1, 1, N(9));
    ONE(tt_add(e->b, tt_mul(e->b, x, tt_sign(e->b, x)), tt_floor(e->b, x)));
}
CASE(floor_pow2) /* x over its power of 2, in [1,2) */
{
    tt_value *x = F(-2, 2, 2, tokens_dim(), N(3));
    ONE(tt_div(e->b, x, tt_floor_pow2(e->b, x)));
}
CASE(codes8) /* of numbers that finite differences do not change */
{
    const tt_dim dims[] = {tokens_dim(), N(5)};
    tt_value *x = F(-1, 1, 2, tokens_dim(), N(5)), *at = tt_iota(e->b, dims, 2, 0, TT_F64);
    tt_value *z = tt_scale(e->b, tt_sub(e->b, at, tt_iota(e->b, dims, 2, 1, TT_F64)), 0.03);
    tt_value *c[4] = {z, NULL, z, NULL};
    tt_op(e->b, "encode8", &z, 1, NULL, &c[0], 1);
    tt_op(e->b, "decode8", &c[0], 1, NULL, &c[1], 1);
    tt_op(e->b, "encode8u", &z, 1, NULL, &c[2], 1);
    tt_op(e->b, "decode8u", &c[2], 1, NULL, &c[3], 1);
    z = tt_add(e->b, c[1], c[3]);
    ONE(tt_mul(e->b, x, z));
}
CASE(floor_div)
{
    tt_value *x = F(-2, 2, 2, tokens_dim(), N(3)), *z = F(0.2, 0.7, 1, N(3));
    ONE(tt_mul(e->b, x, tt_floor_div(e->b, x, z)));
}
CASE(iota)
{
    tt_value *x = F(-1, 1, 3, tokens_dim(), N(3), N(2));
    tt_value *n = tt_iota(e->b, tt_value_type(x)->dims, 3, 1, TT_F64);
    tt_value *at = tt_iota(e->b, DIMS(tokens_dim(), N(1), N(1)), 3, 0, TT_F64);
    ONE(tt_mul(e->b, x, tt_add(e->b, n, at)));
}
CASE(one_hot)
{
    tt_value *idx = leaf_of(e, TT_I32, -1, 6, 1, DIMS(tokens_dim()));
    tt_value *hot = tt_one_hot(e->b, idx, TT_DIM(5, "vocab"), TT_F64);
    ONE(tt_mul(e->b, F(-1, 1, 2, tokens_dim(), TT_DIM(5, "vocab")), hot));
}
/* The elements that argmax finds, by one_hot. */
CASE(argmax)
{
    tt_value *x = F(-1, 1, 2, tokens_dim(), TT_DIM(7, "vocab"));
    tt_value *at = tt_argmax(e->b, x, -1, 0);
    ONE(tt_mul(e->b, x, tt_one_hot(e->b, at, TT_DIM(7, "vocab"), TT_F64)));
}
CASE(argmin_keep)
{
    tt_value *x = F(-1, 1, 3, tokens_dim(), TT_DIM(5, "ffn"), N(2));
    ONE(tt_mul(e->b, x, tt_cast(e->b, tt_argmin(e->b, x, 1, 1), TT_F64)));
}
CASE(pad)
{
    ONE(tt_pad(e->b, F(-1, 1, 3, tokens_dim(), N(3), N(2)), 1, 2, 1, 0.5));
}
CASE(roll)
{
    ONE(tt_roll(e->b, F(-1, 1, 3, tokens_dim(), N(5), N(2)), 1, -2));
}
CASE(repeat)
{
    ONE(tt_repeat(e->b, F(-1, 1, 3, tokens_dim(), N(3), N(2)), 1, 2));
}
CASE(repeat_interleave)
{
    ONE(tt_repeat_interleave(e->b, F(-1, 1, 3, tokens_dim(), TT_DIM(2, "kv_heads"), N(3)), -2, 3));
}
CASE(sort)
{
    tt_value *index, *x = F(-1, 1, 2, tokens_dim(), N(6));
    tt_sort(e->b, x, 0, &y[0], &index);
    tt_sort(e->b, tt_scale(e->b, x, 0.5), 1, &y[1], &index);
    return 2;
}
CASE(linear)
{
    ONE(tt_linear_w(e->b, F(-1, 1, 2, tokens_dim(), N(3)), F(-1, 1, 2, N(4), N(3))));
}
#define MATMUL_CASE(name, ta, tb, a0, a1, b0, b1)                                                  \
    CASE(name)                                                                                     \
    {                                                                                              \
        ONE(tt_matmul(e->b, F(-1, 1, 2, N(a0), N(a1)), F(-1, 1, 2, N(b0), N(b1)), ta, tb));        \
    }                                                                                              \
    CASE(name##_batch)                                                                             \
    {                                                                                              \
        ONE(tt_matmul(e->b, F(-1, 1, 3, N(2), N(a0), N(a1)), F(-1, 1, 3, N(2), N(b0), N(b1)), ta,  \
                      tb));                                                                        \
    }                                                                                              \
    CASE(name##_batches)                                                                           \
    {                                                                                              \
        ONE(tt_matmul(e->b, F(-1, 1, 4, N(2), N(3), N(a0), N(a1)),                                 \
                      F(-1, 1, 4, N(2), N(3), N(b0), N(b1)), ta, tb));                             \
    }
MATMUL_CASE(matmul, 0, 0, 3, 4, 4, 2)
MATMUL_CASE(matmul_ta, 1, 0, 4, 3, 4, 2)
MATMUL_CASE(matmul_tb, 0, 1, 3, 4, 2, 4)
MATMUL_CASE(matmul_tab, 1, 1, 4, 3, 2, 4)
CASE(embedding)
{
    ONE(tt_embedding_w(e->b, tt_input(e->b, "ids"), F(-1, 1, 2, N(7), N(3))));
}
CASE(rms_norm)
{
    ONE(tt_rms_norm_w(e->b, F(-1, 1, 2, tokens_dim(), N(4)), F(0.5, 1, 1, N(4)), 1e-5));
}
CASE(rms_norm_heads)
{
    ONE(tt_rms_norm_w(e->b, F(-1, 1, 2, tokens_dim(), TT_DIM_UNIT(8, "heads", 4)),
                      F(0.5, 1, 1, N(4)), 1e-5));
}
CASE(layer_norm)
{
    ONE(tt_layer_norm_w(e->b, F(-1, 1, 2, tokens_dim(), N(4)), F(0.5, 1, 1, N(4)),
                        F(-1, 1, 1, N(4)), 1e-5));
}
static int rope_case(eval *e, tt_value **y, tt_rope_opts o)
{
    o.head_dim = 6;
    ONE(tt_rope(e->b, F(-1, 1, 2, tokens_dim(), TT_DIM_UNIT(12, "heads", 6)), tt_input(e->b, "pos"),
                &o));
}
CASE(rope)
{
    return rope_case(e, y, (tt_rope_opts){.theta = 100});
}
CASE(rope_part)
{
    return rope_case(e, y, (tt_rope_opts){.rotary_dim = 4, .interleaved = 1});
}
CASE(rope_yarn)
{
    return rope_case(
        e, y, (tt_rope_opts){.scaling = TT_ROPE_YARN, .factor = 4, .original_max_position = 64});
}
static int attention_case(eval *e, tt_value **y, tt_attention_opts o, bool sinks)
{
    int64_t dv = o.v_head_dim ? o.v_head_dim : 3;
    tt_value *q = F(-2, 2, 2, tokens_dim(), TT_DIM_UNIT(12, "heads", 3)),
             *k = F(-2, 2, 2, tokens_dim(), TT_DIM_UNIT(6, "kv_heads", 3));
    tt_value *v = F(-2, 2, 2, tokens_dim(), TT_DIM_UNIT(2 * dv, "kv_heads", dv));
    if (sinks)
        o.sinks = F(-1, 1, 1, TT_DIM(4, "heads"));
    ONE(tt_attention(e->b, q, k, v, 3, &o));
}
CASE(attention)
{
    return attention_case(e, y, (tt_attention_opts){0}, false);
}
CASE(attention_window)
{
    return attention_case(e, y, (tt_attention_opts){.window = 2, .softcap = 1.5}, false);
}
CASE(attention_sinks)
{
    return attention_case(
        e, y, (tt_attention_opts){.v_head_dim = 2, .bidirectional = 1, .scale = 0.7}, true);
}
/* n: more distances than a sequence has; fewer; one more than twice the longest */
CASE(attention_bias)
{
    return attention_case(e, y, (tt_attention_opts){.bias = F(-1, 1, 2, TT_DIM(4, "heads"), N(9))},
                          false);
}
CASE(attention_bias_window)
{
    return attention_case(e, y,
                          (tt_attention_opts){.window = 4,
                                              .softcap = 1.5,
                                              .bias = F(-1, 1, 2, TT_DIM(4, "heads"), N(3))},
                          false);
}
CASE(attention_bias_sinks)
{
    return attention_case(e, y,
                          (tt_attention_opts){.v_head_dim = 2,
                                              .bidirectional = 1,
                                              .bias = F(-1, 1, 2, TT_DIM(4, "heads"), N(5))},
                          true);
}
CASE(attention_dropout)
{
    return attention_case(e, y, (tt_attention_opts){.dropout = 0.4}, true);
}
CASE(attention_dropout_bias)
{
    return attention_case(e, y,
                          (tt_attention_opts){.softcap = 1.5,
                                              .bidirectional = 1,
                                              .dropout = 0.4,
                                              .dropout_name = "other",
                                              .bias = F(-1, 1, 2, TT_DIM(4, "heads"), N(5))},
                          false);
}
CASE(attention_prefix)
{
    return attention_case(
        e, y, (tt_attention_opts){.prefix = leaf_of(e, TT_I32, 0, 4, 1, DIMS(tokens_dim()))},
        false);
}
/* The first three tokens of each sequence. */
static tt_value *first_three(eval *e, const char *input)
{
    const tt_dim B = TT_DIM(EVAL_SEQUENCES, "sequences"),
                 apart[2] = {B, TT_DIM(EVAL_TOKENS / EVAL_SEQUENCES, NULL)},
                 S = tt_dim_make(3 * EVAL_SEQUENCES, "tokens", 1, EVAL_SEQUENCES);
    tt_value *x = tt_reshape(e->b, tt_input(e->b, input), apart, 2);
    return tt_reshape(e->b, tt_slice(e->b, x, 1, 0, 3), &S, 1);
}
/* keys of a token set of their own, 3 per sequence */
CASE(attention_cross)
{
    const tt_dim S = tt_dim_make(3 * EVAL_SEQUENCES, "tokens", 1, EVAL_SEQUENCES);
    tt_value *q = F(-2, 2, 2, tokens_dim(), TT_DIM_UNIT(12, "heads", 3)),
             *k = F(-2, 2, 2, S, TT_DIM_UNIT(6, "kv_heads", 3)),
             *v = F(-2, 2, 2, S, TT_DIM_UNIT(6, "kv_heads", 3));
    const tt_attention_opts o = {.bidirectional = 1,
                                 .pos_k = first_three(e, "pos"),
                                 .seg_k = first_three(e, "seg"),
                                 .bias = F(-1, 1, 2, TT_DIM(4, "heads"), N(5))};
    ONE(tt_attention(e->b, q, k, v, 3, &o));
}
CASE(cross_entropy)
{
    ONE(tt_cross_entropy(e->b, F(-2, 2, 2, tokens_dim(), N(7)), tt_input(e->b, "labels")));
}
CASE(cross_entropy_lse)
{
    tt_value *ins[2] = {F(-2, 2, 2, tokens_dim(), N(7)), tt_input(e->b, "labels")};
    tt_op(e->b, "cross_entropy", ins, 2, NULL, y, 2);
    return 2;
}
CASE(member_stats)
{
    tt_value *x = F(-1, 1, 3, N(3), tokens_dim(), N(5));
    tt_op(e->b, "member_stats", &x, 1, NULL, y, 1);
    return 1;
}
CASE(attention_max)
{
    const tt_attrs_attention a = {.head_dim = 3, .v_head_dim = 3, .window = 4, .scale = 0.7};
    tt_value *pos = tt_input(e->b, "pos"), *seg = tt_input(e->b, "seg");
    tt_value *ins[6] = {F(-2, 2, 2, tokens_dim(), TT_DIM_UNIT(12, "heads", 3)),
                        F(-2, 2, 2, tokens_dim(), TT_DIM_UNIT(6, "kv_heads", 3)),
                        pos,
                        seg,
                        pos,
                        seg};
    tt_op(e->b, "attention_max", ins, 6, &a, y, 1);
    return 1;
}
CASE(sum_exp)
{
    tt_value *ins[2] = {F(-1, 1, 2, tokens_dim(), N(4)), F(-1, 1, 1, tokens_dim())};
    tt_op(e->b, "sum_exp", ins, 2, NULL, y, 1);
    return 1;
}
CASE(max_last)
{
    tt_value *x = F(-1, 1, 2, tokens_dim(), N(4)), *m;
    tt_op(e->b, "max_last", &x, 1, NULL, &m, 1);
    ONE(tt_mul(e->b, m, F(-1, 1, 1, tokens_dim())));
}
CASE(pick)
{
    tt_value *ins[2] = {F(-1, 1, 2, tokens_dim(), N(7)), tt_input(e->b, "ids")};
    tt_op(e->b, "pick", ins, 2, NULL, y, 1);
    return 1;
}
CASE(conv1d)
{
    ONE(tt_conv1d(e->b, F(-1, 1, 2, tokens_dim(), N(3)), F(-1, 1, 2, N(3), N(3))));
}
CASE(scan)
{
    ONE(tt_scan(e->b, F(-1, 1, 3, tokens_dim(), N(3), N(2)),
                F(-1, 1, 3, tokens_dim(), N(3), N(2))));
}
CASE(scan_rows) /* a decay for each row of states */
{
    ONE(tt_scan(e->b, F(-1, 1, 3, tokens_dim(), N(2), N(1)),
                F(-1, 1, 3, tokens_dim(), N(2), N(4))));
}
CASE(scan_heads) /* one decay a head for all tokens, as in RetNet */
{
    ONE(tt_scan(e->b, F(-1, 1, 4, N(1), N(2), N(1), N(1)),
                F(-1, 1, 4, tokens_dim(), N(2), N(3), N(2))));
}
CASE(scan_columns) /* a stretched dim before a dim that is not */
{
    ONE(tt_scan(e->b, F(-1, 1, 4, tokens_dim(), N(1), N(2), N(1)),
                F(-1, 1, 4, tokens_dim(), N(2), N(2), N(3))));
}
CASE(delta_rule)
{
    ONE(tt_delta_rule(e->b, F(-1, 1, 3, tokens_dim(), N(2), N(3)),
                      F(-1, 1, 3, tokens_dim(), N(2), N(3)),
                      F(-1, 1, 4, tokens_dim(), N(2), N(2), N(4)),
                      F(-1, 0, 3, tokens_dim(), N(2), N(2)), F(0, 1, 3, tokens_dim(), N(2), N(2))));
}
CASE(cumsum)
{
    ONE(tt_cumsum(e->b, F(-1, 1, 3, tokens_dim(), N(4), N(2)), 1, NULL));
}
CASE(cumsum_reverse)
{
    const tt_cumsum_opts o = {.reverse = 1};
    ONE(tt_cumsum(e->b, F(-1, 1, 2, tokens_dim(), N(4)), -1, &o));
}
CASE(cumsum_exclusive)
{
    const tt_cumsum_opts o = {.exclusive = 1};
    ONE(tt_cumsum(e->b, F(-1, 1, 2, N(4), N(3)), 0, &o));
}
CASE(top_k)
{
    tt_value *index;
    tt_top_k(e->b, F(-1, 1, 2, tokens_dim(), N(5)), 2, &y[0], &index);
    return 1;
}
CASE(gather)
{
    ONE(tt_gather(e->b, F(-1, 1, 3, N(4), N(3), N(2)), leaf_of(e, TT_I32, -1, 5, 1, DIMS(N(6)))));
}
CASE(scatter_add)
{
    ONE(tt_scatter_add(e->b, F(-1, 1, 2, N(6), N(3)), leaf_of(e, TT_I32, -1, 5, 1, DIMS(N(6))),
                       N(4)));
}
CASE(experts)
{
    tt_value *order, *counts, *x = F(-1, 1, 2, N(12), N(3));
    tt_expert_sort(e->b, leaf_of(e, TT_I32, 0, 4, 2, DIMS(N(6), N(2))), 3, &order, &counts);
    ONE(tt_grouped_linear(e->b, tt_gather(e->b, x, order), F(-1, 1, 3, N(3), N(4), N(3)), counts));
}
CASE(expert_counts)
{
    tt_value *assign = leaf_of(e, TT_I32, -1, 4, 2, DIMS(tokens_dim(), N(2)));
    tt_value *n = tt_expert_counts(e->b, assign, 3), *all = tt_sum(e->b, n, 0, 1);
    ONE(tt_mul(e->b, F(-1, 1, 1, N(3)), tt_cast(e->b, tt_div(e->b, n, all), TT_F32)));
}
CASE(random)
{
    tt_value *u = tt_random(e->b, DIMS(tokens_dim(), N(3)), 2, "a", 0),
             *z = tt_random(e->b, DIMS(tokens_dim(), N(3)), 2, "b", 1);
    ONE(tt_mul(e->b, F(-1, 1, 2, tokens_dim(), N(3)), tt_add(e->b, u, z)));
}

static const struct {
    const char *name;
    case_fn fn;
} cases[] = {
#define ROW(name) {#name, case_##name},
#define BOTH(name) ROW(name) ROW(name##_stretched)
#define BATCH(name) ROW(name) ROW(name##_batch) ROW(name##_batches)
    ROW(neg) ROW(exp) ROW(log) ROW(sqrt) ROW(rsqrt) ROW(abs) ROW(tanh) ROW(sigmoid) ROW(silu) ROW(
        relu) ROW(floor_pow2) ROW(gelu) ROW(gelu_tanh) ROW(softplus) ROW(erf) ROW(sin) ROW(cos)
        ROW(codes8) ROW(floor_div) BOTH(mod) ROW(iota) ROW(one_hot) ROW(argmax) ROW(argmin_keep)
            ROW(pad) ROW(roll) ROW(repeat) ROW(repeat_interleave) ROW(sort) ROW(sum_all) ROW(
                sum_squares) ROW(softmax) ROW(stop) BOTH(add) BOTH(sub) BOTH(mul) BOTH(div)
                BOTH(maximum) BOTH(minimum) BOTH(pow) ROW(scale) ROW(scale_by) ROW(scale_rows) ROW(
                    select) ROW(compare) ROW(cast) ROW(sum_first) ROW(sum_keep) ROW(mean) ROW(max)
                    ROW(max_keep) ROW(line_sum) ROW(segment_sum) ROW(member_stats) ROW(
                        attention_max) ROW(transpose) ROW(slice) ROW(concat) ROW(concat_of_many)
                        ROW(broadcast) ROW(reshape_heads) ROW(reshape_merge) ROW(
                            reshape_sequences) ROW(logsumexp) ROW(log_softmax)
                            ROW(clamp) ROW(floor_and_sign) ROW(linear) BATCH(matmul) BATCH(
                                matmul_ta) BATCH(matmul_tb) BATCH(matmul_tab) ROW(embedding)
                                ROW(rms_norm) ROW(rms_norm_heads) ROW(layer_norm) ROW(rope) ROW(
                                    rope_part) ROW(rope_yarn) ROW(attention) ROW(attention_window)
                                    ROW(attention_sinks) ROW(attention_bias)
                                        ROW(attention_bias_window) ROW(attention_dropout)
                                            ROW(attention_dropout_bias) ROW(attention_bias_sinks)
                                                ROW(attention_prefix) ROW(attention_cross)
                                                    ROW(cross_entropy) ROW(cross_entropy_lse) ROW(
                                                        sum_exp) ROW(max_last) ROW(pick) ROW(conv1d)
                                                        ROW(scan) ROW(scan_rows) ROW(scan_heads)
                                                            ROW(scan_columns) ROW(delta_rule)
                                                                ROW(cumsum) ROW(cumsum_reverse)
                                                                    ROW(cumsum_exclusive) ROW(top_k)
                                                                        ROW(gather) ROW(scatter_add)
                                                                            ROW(experts)
                                                                                ROW(expert_counts)
                                                                                    ROW(random)};

#endif
