/* SPDX-License-Identifier: Apache-2.0 */
#include "cases.h"
#include <ttrun/experts.h>

/* A plugin that gives NULL for a name, a value or a list learns which: the builder keeps the error, and
 * nothing is read through the pointer. */

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

static tt_value *x_of(void)
{
    return leaf_of(&e, TT_F32, 0, 9, 2, DIMS(N(10), N(4)));
}

#define NULL_TEST(name, expression, part)                                                          \
    static void test_##name(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        (void)(expression);                                                                        \
        const tt_error *err = tt_builder_error(e.b);                                               \
        assert_non_null(err);                                                                      \
        if (!strstr(err->text, part))                                                              \
            fail_msg("%s", err->text);                                                             \
    }
NULL_TEST(name_of_an_input, tt_input(e.b, NULL), "tt_input: the name is NULL")
NULL_TEST(name_of_an_input_per_token, tt_input_per_token(e.b, NULL),
          "tt_input_per_token: the name is NULL")
NULL_TEST(name_of_a_shifted_input, tt_input_shifted(e.b, NULL, 1),
          "tt_input_shifted: the name is NULL")
NULL_TEST(name_of_an_output, (tt_output(e.b, NULL, x_of()), 0), "tt_output: the name is NULL")
NULL_TEST(value_of_an_output, (tt_output(e.b, "logits", NULL), 0), "tt_output: the value is NULL")
NULL_TEST(name_of_an_output_that_is_read, tt_get_output(e.b, NULL),
          "tt_get_output: the name is NULL")
NULL_TEST(name_of_a_loss, (tt_loss_term(e.b, NULL, x_of(), 1), 0), "tt_loss_term: the name is NULL")
NULL_TEST(value_of_a_loss, (tt_loss_term(e.b, "z", NULL, 1), 0), "tt_loss_term: the value is NULL")
NULL_TEST(name_of_a_metric, (tt_log_metric(e.b, NULL, x_of()), 0),
          "tt_log_metric: the name is NULL")
NULL_TEST(value_of_a_metric, (tt_log_metric(e.b, "z", NULL), 0), "tt_log_metric: the value is NULL")
NULL_TEST(name_of_a_parameter, tt_param(e.b, NULL, DIMS(N(4)), 1, NULL),
          "tt_param: the name is NULL")
NULL_TEST(dims_of_a_parameter, tt_param(e.b, "w", NULL, 1, NULL),
          "tt_param: the list of dims is NULL")
NULL_TEST(name_of_a_linear, tt_linear(e.b, x_of(), NULL, N(4), NULL), "tt_linear: the name is NULL")
NULL_TEST(name_of_an_embedding, tt_embedding(e.b, x_of(), NULL, N(4), N(4), NULL),
          "tt_embedding: the name is NULL")
NULL_TEST(name_of_a_norm, tt_layer_norm(e.b, x_of(), NULL, 1e-5), "the name of a norm is NULL")
NULL_TEST(name_of_a_buffer, tt_buffer(e.b, NULL, DIMS(N(4)), 1, NULL),
          "tt_buffer: the name is NULL")
NULL_TEST(buffer_that_is_updated, (tt_buffer_update(e.b, NULL, x_of(), NULL, NULL), 0),
          "the update of a buffer: the buffer is NULL")
NULL_TEST(logits, tt_cross_entropy(e.b, NULL, x_of()), "op cross_entropy: operand 0 is NULL")
NULL_TEST(labels, tt_cross_entropy(e.b, x_of(), NULL), "op cross_entropy: operand 1 is NULL")
NULL_TEST(dims_of_a_reshape, tt_reshape(e.b, x_of(), NULL, 2), "reshape: the list of dims is NULL")
NULL_TEST(dims_of_a_broadcast, tt_broadcast_to(e.b, x_of(), NULL, 2),
          "broadcast: the list of dims is NULL")
NULL_TEST(values_of_a_concat, tt_concat(e.b, NULL, 2, 0), "concat: the list of values is NULL")
NULL_TEST(one_value_of_a_concat, tt_concat(e.b, ((tt_value *const[2]){x_of(), NULL}), 2, 0),
          "op concat: operand 1 is NULL")
NULL_TEST(values_of_a_constant, tt_const_array(e.b, NULL, DIMS(N(4)), 1),
          "tt_const_array: the list of values is NULL")
NULL_TEST(dims_of_a_constant, tt_const_array(e.b, (float[]){1}, NULL, 1),
          "tt_const_array: the list of dims is NULL")
NULL_TEST(stream_of_random_numbers, tt_random(e.b, DIMS(N(4)), 1, NULL, 0),
          "tt_random: the name of the stream is NULL")
NULL_TEST(value_of_a_dropout, tt_dropout(e.b, NULL, 0.5, "d"), "tt_dropout: the value is NULL")
NULL_TEST(name_of_a_dropout, tt_dropout(e.b, x_of(), 0.5, NULL), "tt_dropout: the name is NULL")
NULL_TEST(name_of_an_op, (tt_op(e.b, NULL, NULL, 0, NULL, NULL, 0), 0), "tt_op: the name is NULL")

static void test_scores_of_experts(void **state)
{
    tt_value *assign, *weights;
    (void)state;
    tt_choose_experts(e.b, NULL, NULL, 1, &assign, &weights);
    assert_non_null(
        strstr(tt_builder_error(e.b)->text, "tt_choose_experts: the tensor of scores is NULL"));
    assert_non_null(assign);
    assert_non_null(weights);
}

static void test_a_null_name_is_no_output(void **state)
{
    (void)state;
    assert_int_equal(tt_has_output(e.b, NULL), 0);
    assert_null(tt_builder_error(e.b));
}

#define T_(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T_(name_of_an_input),
        T_(name_of_an_input_per_token),
        T_(name_of_a_shifted_input),
        T_(name_of_an_output),
        T_(value_of_an_output),
        T_(name_of_an_output_that_is_read),
        T_(name_of_a_loss),
        T_(value_of_a_loss),
        T_(name_of_a_metric),
        T_(value_of_a_metric),
        T_(name_of_a_parameter),
        T_(dims_of_a_parameter),
        T_(name_of_a_linear),
        T_(name_of_an_embedding),
        T_(name_of_a_norm),
        T_(name_of_a_buffer),
        T_(buffer_that_is_updated),
        T_(logits),
        T_(labels),
        T_(dims_of_a_reshape),
        T_(dims_of_a_broadcast),
        T_(values_of_a_concat),
        T_(one_value_of_a_concat),
        T_(values_of_a_constant),
        T_(dims_of_a_constant),
        T_(stream_of_random_numbers),
        T_(value_of_a_dropout),
        T_(name_of_a_dropout),
        T_(name_of_an_op),
        T_(scores_of_experts),
        T_(a_null_name_is_no_output),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
