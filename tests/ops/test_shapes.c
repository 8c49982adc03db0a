/* SPDX-License-Identifier: Apache-2.0 */
#include "cases.h"

/* Shape rules: dims, labels and dtypes of results, and errors of one line that name the op and its
 * operands. */

static eval e;

static int setup(void **state)
{
    (void)state;
    eval_init(&e, NULL, false);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    eval_release(&e);
    return 0;
}

static tt_value *f32(int n, const tt_dim *dims)
{
    return leaf_of(&e, TT_F32, 0, 1, n, dims);
}
#define V(n, ...) f32(n, DIMS(__VA_ARGS__))

static void check_type(const tt_value *v, const char *text)
{
    char got[200];
    tt_type_print(tt_value_type(v), got, sizeof got);
    if (tt_builder_error(e.b) != NULL)
        fail_msg("%s", tt_builder_error(e.b)->text);
    assert_string_equal(got, text);
}

static void check_error(const char *part)
{
    const tt_error *err = tt_builder_error(e.b);
    if (err == NULL)
        fail_msg("no error, \"%s\" is expected", part);
    if (strstr(err->text, part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", err->text, part);
}

static void test_results_inherit_labels_and_units(void **state)
{
    const tt_dim T = tokens_dim(), D = TT_DIM(8, "embed"), H = TT_DIM_UNIT(12, "heads", 3),
                 K = TT_DIM_UNIT(6, "kv_heads", 3);
    tt_value *x, *q, *y;
    (void)state;
    x = V(2, T, D);
    q = tt_linear_w(e.b, x, V(2, H, D));
    check_type(q, "f32[10 tokens, 12 heads]");
    assert_int_equal(tt_value_type(q)->dims[1].unit, 3);
    assert_int_equal(tt_value_type(q)->dims[0].lines, EVAL_SEQUENCES);
    y = tt_attention(e.b, q, V(2, T, K), V(2, T, TT_DIM_UNIT(10, "kv_heads", 5)), 3,
                     &(tt_attention_opts){.v_head_dim = 5});
    check_type(y, "f32[10 tokens, 20 heads]");
    assert_int_equal(tt_value_type(y)->dims[1].unit, 5);
    check_type(y->node->out[1], "f32[10 tokens, 4 heads]");
    check_type(tt_add(e.b, V(1, N(8)), x), "f32[10 tokens, 8 embed]");
    check_type(tt_cross_entropy(e.b, x, tt_input(e.b, "labels")), "f32[10 tokens]");
    check_type(tt_sum(e.b, x, -1, 0), "f32[10 tokens]");
    check_type(tt_mean(e.b, x, 0, 1), "f32[1, 8 embed]");
    check_type(tt_slice(e.b, q, 1, 3, 9), "f32[10 tokens, 6 heads]");
    assert_int_equal(tt_value_type(tt_slice(e.b, q, 1, 3, 9))->dims[1].unit, 3);
    assert_int_equal(tt_value_type(tt_slice(e.b, q, 1, 2, 9))->dims[1].unit, 1);
    check_type(tt_linear(e.b, x, "up", TT_DIM(5, "ffn"), &(tt_linear_opts){.bias = 1}),
               "f32[10 tokens, 5 ffn]");
}

static void test_dtypes_promote_but_scalars_do_not_widen(void **state)
{
    tt_value *h = leaf_of(&e, TT_BF16, 0, 1, 1, DIMS(N(4))), *f = V(1, N(4)), *s = f32(0, NULL);
    tt_value *i = leaf_of(&e, TT_I32, 0, 9, 1, DIMS(N(4)));
    (void)state;
    check_type(tt_add(e.b, h, h), "bf16[4]");
    check_type(tt_add(e.b, h, f), "f32[4]");
    check_type(tt_mul(e.b, h, s), "bf16[4]");
    check_type(tt_add(e.b, i, s), "f32[4]");
    check_type(tt_less(e.b, i, tt_const(e.b, 0, TT_I32)), "bool[4]");
    check_type(tt_sum_squares(e.b, h), "f32[]");
    check_type(tt_cast(e.b, f, TT_BF16), "bf16[4]");
    assert_string_equal(tt_cast(e.b, f, TT_BF16)->node->op->name, "cast_down");
    assert_string_equal(tt_cast(e.b, h, TT_F32)->node->op->name, "cast");
    assert_string_equal(tt_mul(e.b, s, f)->node->op->name, "scale_by");
    assert_ptr_equal(tt_cast(e.b, f, TT_F32), f);
}

#define ERROR_TEST(name, expression, part)                                                         \
    static void test_##name(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        (void)(expression);                                                                        \
        check_error(part);                                                                         \
    }
ERROR_TEST(linear_names_both_types, tt_linear_w(e.b, V(2, N(4), N(3)), V(2, N(5), N(2))),
           "linear: x [T,in] and the weight [out,in] differ in their last dim, got f32[4, 3] and "
           "f32[5, 2]")
ERROR_TEST(add_wants_dims_that_broadcast, tt_add(e.b, V(1, N(4)), V(1, N(3))),
           "add: the operands do not broadcast")
ERROR_TEST(exp_wants_a_float, tt_exp(e.b, leaf_of(&e, TT_I32, 0, 9, 1, DIMS(N(4)))),
           "exp: the operand must be of a floating dtype")
ERROR_TEST(select_wants_a_condition, tt_select(e.b, V(1, N(4)), V(1, N(4)), V(1, N(4))),
           "select: the condition must be bool")
ERROR_TEST(a_null_operand_is_refused, tt_silu(e.b, tt_add(e.b, V(1, N(4)), NULL)),
           "op add: operand 1 is NULL, not a value")
ERROR_TEST(a_null_input_of_a_layer_is_refused, tt_linear(e.b, NULL, "q", N(4), NULL),
           "linear q: x must be [tokens, in], got 0 dims")
static void test_like_types_are_said_once(void **state)
{
    tt_value *same[7], *outs[2], *x = V(2, N(10), N(8));
    (void)state;
    for (int i = 0; i < 7; i++)
        same[i] = x;
    tt_op(e.b, "attention", same, 7, &(tt_attrs_attention){.head_dim = 4}, outs, 2);
    check_error("got f32[10, 8] (7 times)");
}
ERROR_TEST(matmul_wants_equal_k, tt_matmul(e.b, V(2, N(4), N(3)), V(2, N(4), N(3)), 0, 0),
           "matmul: dim 1 of input 0 and dim 0 of input 1 differ: 3 and 4")
ERROR_TEST(sum_wants_a_dim_there_is, tt_sum(e.b, V(1, N(4)), 2, 0),
           "reduce_sum: there is no dim 2 among 1")
/* of two dims the last is -1, and -3 and -4 are none */
#define X V(2, N(4), N(3))
ERROR_TEST(sum_has_no_dim_minus_3, tt_sum(e.b, X, -3, 0), "reduce_sum: there is no dim -3 among 2")
ERROR_TEST(sum_has_no_dim_minus_4, tt_sum(e.b, X, -4, 1), "reduce_sum: there is no dim -4 among 2")
ERROR_TEST(mean_has_no_dim_minus_3, tt_mean(e.b, X, -3, 0),
           "reduce_sum: there is no dim -3 among 2")
ERROR_TEST(max_has_no_dim_minus_4, tt_max(e.b, X, -4, 0), "reduce_max: there is no dim -4 among 2")
ERROR_TEST(slice_has_no_dim_minus_3, tt_slice(e.b, X, -3, 0, 1),
           "slice: there is no dim -3 among 2")
ERROR_TEST(concat_has_no_dim_minus_4, tt_concat(e.b, (tt_value *[]){X, X}, 2, -4),
           "concat: there is no dim -4 among 2")
ERROR_TEST(concat_of_one_has_no_dim_2, tt_concat(e.b, (tt_value *[]){X}, 1, 2),
           "concat: there is no dim 2 among 2")
ERROR_TEST(cumsum_has_no_dim_minus_3, tt_cumsum(e.b, X, -3, NULL),
           "cumsum: there is no dim -3 among 2")
ERROR_TEST(roll_has_no_dim_minus_4, tt_roll(e.b, X, -4, 1), "roll: there is no dim -4 among 2")
ERROR_TEST(slice_wants_a_range_inside, tt_slice(e.b, V(1, N(4)), 0, 2, 5),
           "slice: [2, 5) is not inside dim 0 of 4")
ERROR_TEST(reshape_wants_as_many_elements, tt_reshape(e.b, V(1, N(4)), DIMS(N(5)), 1),
           "reshape: 4 elements do not fit dims of 5")
ERROR_TEST(attention_wants_heads_as_units,
           tt_attention(e.b, V(2, tokens_dim(), N(6)), V(2, tokens_dim(), N(6)),
                        V(2, tokens_dim(), N(6)), 3, NULL),
           "q's last dim must have its head size 3 as its unit, not 1")
ERROR_TEST(attention_wants_kv_heads_that_divide,
           tt_attention(e.b, V(2, tokens_dim(), TT_DIM_UNIT(9, "heads", 3)),
                        V(2, tokens_dim(), TT_DIM_UNIT(6, "kv_heads", 3)),
                        V(2, tokens_dim(), TT_DIM_UNIT(6, "kv_heads", 3)), 3, NULL),
           "2 kv heads must divide 3 heads")
ERROR_TEST(rms_norm_wants_the_unit, tt_rms_norm_w(e.b, V(2, tokens_dim(), N(6)), V(1, N(3)), 1e-5),
           "rms_norm: the weight must have the size")
ERROR_TEST(rope_wants_an_even_rotary_dim,
           tt_rope(e.b, V(2, tokens_dim(), N(6)), tt_input(e.b, "pos"),
                   &(tt_rope_opts){.head_dim = 6, .rotary_dim = 3}),
           "rope: rotary_dim 3 must be even")
ERROR_TEST(gather_wants_i32, tt_gather(e.b, V(2, N(4), N(3)), V(1, N(2))),
           "gather: the indices must be i32")
ERROR_TEST(cross_entropy_wants_labels_per_token,
           tt_cross_entropy(e.b, V(2, N(4), N(3)), tt_input(e.b, "labels")),
           "cross_entropy: dim 0 of input 0")
ERROR_TEST(linear_wants_two_dims, tt_linear(e.b, V(1, N(4)), "up", N(3), NULL),
           "linear up: x must be [tokens, in], got 1 dims")
ERROR_TEST(concat_wants_equal_other_dims,
           tt_concat(e.b, (tt_value *[]){V(2, N(4), N(3)), V(2, N(5), N(3))}, 2, 1),
           "concat: dim 0 of input 0 and dim 0 of input 1 differ")
ERROR_TEST(scan_wants_a_decay_of_its_dims,
           tt_scan(e.b, V(3, tokens_dim(), N(3), N(5)), V(3, tokens_dim(), N(3), N(4))),
           "scan: the decay must have x's dims, or size 1 in the token dim or in trailing dims")
ERROR_TEST(scan_wants_a_decay_of_its_rank,
           tt_scan(e.b, V(2, tokens_dim(), N(3)), V(3, tokens_dim(), N(3), N(4))),
           "scan: the decay must have x's dims")
ERROR_TEST(scan_wants_a_row_for_each_token, tt_scan(e.b, V(2, N(7), N(3)), V(2, N(7), N(3))),
           "scan: dim 0 of input 0 and dim 0 of input 2 differ: 7 and 10")
ERROR_TEST(scan_wants_two_dims, tt_scan(e.b, V(1, tokens_dim()), V(1, tokens_dim())),
           "scan: x must have at least 2 dims")
ERROR_TEST(scan_refuses_null, tt_scan(e.b, NULL, V(2, tokens_dim(), N(3))),
           "op scan: operand 1 is NULL, not a value")
#define DELTA(heads_of_v, width_of_k)                                                              \
    tt_delta_rule(e.b, V(3, tokens_dim(), N(2), N(5)), V(3, tokens_dim(), N(2), N(width_of_k)),    \
                  V(4, tokens_dim(), N(2), N(heads_of_v), N(4)), V(3, tokens_dim(), N(2), N(3)),   \
                  V(3, tokens_dim(), N(2), N(3)))
ERROR_TEST(delta_rule_wants_keys_as_wide_as_queries, DELTA(3, 6),
           "delta_rule: dim 2 of input 0 and dim 2 of input 1 differ: 5 and 6")
ERROR_TEST(delta_rule_wants_a_decay_for_each_head, DELTA(4, 5),
           "delta_rule: dim 2 of input 2 and dim 2 of input 3 differ: 4 and 3")
ERROR_TEST(cumsum_refuses_the_token_dim, tt_cumsum(e.b, V(2, tokens_dim(), N(3)), 0, NULL),
           "cumsum: dim 0 holds the tokens of all sequences: split the sequences off with "
           "tt_reshape, or use tt_scan")
ERROR_TEST(cumsum_wants_a_dim_there_is, tt_cumsum(e.b, V(1, N(4)), -2, NULL),
           "cumsum: there is no dim -2 among 1")
ERROR_TEST(segment_sum_wants_whole_numbers,
           tt_segment_sum(e.b, V(1, tokens_dim()), V(1, tokens_dim())),
           "segment_sum: the numbers must be i32, got f32[10 tokens] and f32[10 tokens]")
ERROR_TEST(segment_sum_wants_a_number_per_token,
           tt_segment_sum(e.b, V(1, N(6)), leaf_of(&e, TT_I32, 0, 9, 1, DIMS(N(4)))), "segment_sum")
/* The derivative by the weight of six rows of two experts */
static tt_value *grouped_dw(tt_value *counts)
{
    tt_value *in[] = {V(2, N(6), N(3)), V(2, N(6), N(2)), counts}, *out = NULL;
    tt_op(e.b, "grouped_linear_dw", in, 3, NULL, &out, 1);
    return out;
}
ERROR_TEST(grouped_linear_dw_wants_whole_counts, grouped_dw(V(1, N(2))),
           "grouped_linear_dw: counts must be i32")
ERROR_TEST(grouped_linear_dw_wants_equal_groups,
           grouped_dw(leaf_of(&e, TT_I32, 0, 9, 3, DIMS(N(4), N(1), N(2)))),
           "grouped_linear_dw: the rows are not 4 equal groups")
ERROR_TEST(cumsum_wants_a_float, tt_cumsum(e.b, leaf_of(&e, TT_I32, 0, 9, 1, DIMS(N(4))), 0, NULL),
           "cumsum: the operand must be of a floating dtype; cast it")

/* An infer must not look at operands before it knows how many there are. */
static void check_counted(const tt_op_def *op, int n_in)
{
    static const char no_attrs[1024];
    const tt_type scalar = {.dtype = TT_F32}, *in[TT_MAX_INS];
    tt_type out[TT_MAX_OUTS];
    tt_error err = {0};
    char said[20];
    for (int i = 0; i < TT_MAX_INS; i++)
        in[i] = &scalar;
    const tt_shape_query q = {sizeof q, n_in, in, no_attrs, op->name};
    snprintf(said, sizeof said, "inputs, got %d", n_in);
    if (op->infer(&q, out, &err) == TT_OK || !strstr(err.text, ": takes ") ||
        !strstr(err.text, said))
        fail_msg("%s of %d operands: \"%s\"", op->name, n_in, err.text);
}

static void test_each_op_counts_its_operands(void **state)
{
    size_t n;
    const tt_op_def *const *ops = tt_core_ops(&n);
    (void)state;
    for (size_t i = 0; i < n; i++) {
        const char *text = ops[i]->operands;
        const bool needs_some = strncmp(text, "→", strlen("→")) != 0 && *text != '[';
        if (strstr(text, "of the program"))
            continue; /* as many as its attributes say */
        if (needs_some)
            check_counted(ops[i], 0);
        if (!strstr(text, "…"))
            check_counted(ops[i], TT_MAX_INS);
    }
}

#define T_(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T_(results_inherit_labels_and_units),
        T_(dtypes_promote_but_scalars_do_not_widen),
        T_(linear_names_both_types),
        T_(add_wants_dims_that_broadcast),
        T_(exp_wants_a_float),
        T_(select_wants_a_condition),
        T_(a_null_operand_is_refused),
        T_(a_null_input_of_a_layer_is_refused),
        T_(like_types_are_said_once),
        T_(matmul_wants_equal_k),
        T_(sum_wants_a_dim_there_is),
        T_(sum_has_no_dim_minus_3),
        T_(sum_has_no_dim_minus_4),
        T_(mean_has_no_dim_minus_3),
        T_(max_has_no_dim_minus_4),
        T_(slice_has_no_dim_minus_3),
        T_(concat_has_no_dim_minus_4),
        T_(concat_of_one_has_no_dim_2),
        T_(cumsum_has_no_dim_minus_3),
        T_(roll_has_no_dim_minus_4),
        T_(slice_wants_a_range_inside),
        T_(reshape_wants_as_many_elements),
        T_(attention_wants_heads_as_units),
        T_(attention_wants_kv_heads_that_divide),
        T_(rms_norm_wants_the_unit),
        T_(rope_wants_an_even_rotary_dim),
        T_(gather_wants_i32),
        T_(cross_entropy_wants_labels_per_token),
        T_(linear_wants_two_dims),
        T_(concat_wants_equal_other_dims),
        T_(scan_wants_a_decay_of_its_dims),
        T_(scan_wants_a_decay_of_its_rank),
        T_(scan_wants_a_row_for_each_token),
        T_(scan_wants_two_dims),
        T_(scan_refuses_null),
        T_(delta_rule_wants_keys_as_wide_as_queries),
        T_(delta_rule_wants_a_decay_for_each_head),
        T_(cumsum_refuses_the_token_dim),
        T_(cumsum_wants_a_dim_there_is),
        T_(cumsum_wants_a_float),
        T_(segment_sum_wants_whole_numbers),
        T_(segment_sum_wants_a_number_per_token),
        T_(grouped_linear_dw_wants_whole_counts),
        T_(grouped_linear_dw_wants_equal_groups),
        T_(each_op_counts_its_operands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
