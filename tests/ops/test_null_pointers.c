/* SPDX-License-Identifier: Apache-2.0 */
#include "cases.h"
#include <ttrun/attention.h>
#include <ttrun/experts.h>
#include <ttrun/optimizer.h>
#include <ttrun/quantize.h>

/* A plugin that gives NULL for a list, a function or the pointer to a result learns which, also when it gives
 * NULL for all: the builder keeps the error, nothing is read or written through the pointer, and the results
 * that have a place are placeholders. */

static eval e;
static tt_value *x, *choices; /* f32 [10,4], i32 [10,2] */
static tt_value *out, *other; /* where results go */

static tt_value *no_value(tt_builder *b, tt_value *const *xs, int n, void *user)
{
    (void)b, (void)xs, (void)n, (void)user;
    return NULL;
}

static tt_value *first_value(tt_builder *b, tt_value *const *xs, int n, void *user)
{
    (void)b, (void)n, (void)user;
    return xs[0];
}

static void no_derivative(tt_builder *b, tt_value *const *xs, int n, tt_value *y, tt_value *dy,
                          tt_value **dxs, void *user)
{
    (void)b, (void)xs, (void)n, (void)y, (void)dy, (void)dxs, (void)user;
}

static tt_value *no_rows(tt_builder *b, const tt_expert_rows *rows, const void *user)
{
    (void)b, (void)rows, (void)user;
    return NULL;
}

static tt_value *same_rows(tt_builder *b, const tt_expert_rows *rows, const void *user)
{
    (void)b, (void)user;
    return rows->x;
}

static const tt_quantize_opts rows_of_one = {.block_rows = 1};
static const tt_state_opts dynamic8 = {.struct_size = sizeof dynamic8, .dynamic8 = 1};

static void begin(void)
{
    eval_init(&e, NULL, false);
    x = leaf_of(&e, TT_F32, 0, 9, 2, DIMS(N(10), N(4)));
    choices = leaf_of(&e, TT_I32, 0, 3, 2, DIMS(N(10), N(2)));
    out = other = NULL;
    assert_null(tt_builder_error(e.b));
}

static void end(const char *call, const char *text)
{
    const tt_error *err = tt_builder_error(e.b);
    if (!err || !strstr(err->text, text))
        fail_msg("%s: %s", call, err ? err->text : "no error");
    eval_release(&e);
}

/* The call alone in a builder keeps an error with this text. */
#define FAILS(call, text)                                                                          \
    do {                                                                                           \
        begin();                                                                                   \
        call;                                                                                      \
        end(#call, text);                                                                          \
    } while (0)
/* The function returns a value all the same. */
#define FAILS_WITH_VALUE(call, text)                                                               \
    do {                                                                                           \
        begin();                                                                                   \
        assert_non_null(call);                                                                     \
        end(#call, text);                                                                          \
    } while (0)
/* What is written through the pointers that are there is a value. */
#define FAILS_WITH_OUT(call, text)                                                                 \
    do {                                                                                           \
        begin();                                                                                   \
        call;                                                                                      \
        assert_non_null(out);                                                                      \
        end(#call, text);                                                                          \
    } while (0)

static void test_pointers_to_results(void **state)
{
    (void)state;
    FAILS_WITH_OUT(tt_top_k(e.b, x, 1, NULL, &out), "tt_top_k: the pointer to the values is NULL");
    FAILS_WITH_OUT(tt_top_k(e.b, x, 1, &out, NULL), "tt_top_k: the pointer to the indices is NULL");
    FAILS(tt_top_k(e.b, NULL, 1, NULL, NULL), "tt_top_k: the pointer to the values is NULL");
    FAILS_WITH_OUT(tt_top_k(e.b, NULL, 1, &out, &other), "op top_k: operand 0 is NULL");
    FAILS_WITH_OUT(tt_sort(e.b, x, 1, NULL, &out), "tt_sort: the pointer to the values is NULL");
    FAILS_WITH_OUT(tt_sort(e.b, x, 0, &out, NULL), "tt_sort: the pointer to the indices is NULL");
    FAILS(tt_sort(e.b, NULL, 1, NULL, NULL), "tt_sort: the pointer to the values is NULL");
    FAILS_WITH_OUT(tt_sort(e.b, NULL, 0, &out, &other), "operand 0 is NULL");
    FAILS_WITH_VALUE(tt_cross_entropy_lse(e.b, x, x, NULL),
                     "tt_cross_entropy_lse: the pointer to the log-sum-exp is NULL");
    FAILS_WITH_VALUE(tt_cross_entropy_lse(e.b, NULL, NULL, NULL),
                     "tt_cross_entropy_lse: the pointer to the log-sum-exp is NULL");
    FAILS_WITH_OUT(tt_cross_entropy_lse(e.b, NULL, NULL, &out),
                   "op cross_entropy: operand 0 is NULL");
    FAILS_WITH_VALUE(tt_quantize(e.b, x, &rows_of_one, NULL),
                     "tt_quantize: the pointer to the scale is NULL");
    FAILS_WITH_VALUE(tt_quantize(e.b, NULL, NULL, NULL),
                     "tt_quantize: the pointer to the scale is NULL");
    FAILS_WITH_OUT(tt_quantize(e.b, NULL, &rows_of_one, &out), "tt_quantize: the value is NULL");
    FAILS_WITH_OUT(tt_quantize(e.b, x, NULL, &out), "tt_quantize: the options name no format");
    FAILS_WITH_OUT(tt_choose_experts(e.b, x, NULL, 1, NULL, &out),
                   "tt_choose_experts: the pointer to the experts is NULL");
    FAILS_WITH_OUT(tt_choose_experts(e.b, x, NULL, 1, &out, NULL),
                   "tt_choose_experts: the pointer to the weights is NULL");
    FAILS(tt_choose_experts(e.b, NULL, NULL, 1, NULL, NULL),
          "tt_choose_experts: the pointer to the experts is NULL");
    FAILS_WITH_OUT(tt_expert_sort(e.b, choices, 4, NULL, &out),
                   "tt_expert_sort: the pointer to the order is NULL");
    FAILS_WITH_OUT(tt_expert_sort(e.b, choices, 4, &out, NULL),
                   "tt_expert_sort: the pointer to the counts is NULL");
    FAILS(tt_expert_sort(e.b, NULL, 4, NULL, NULL),
          "tt_expert_sort: the pointer to the order is NULL");
}

static void test_lists_of_an_op(void **state)
{
    (void)state;
    tt_value *none = NULL;
    FAILS_WITH_OUT(tt_op(e.b, "add", NULL, 2, NULL, &out, 1),
                   "op add: the pointer to its operands is NULL");
    FAILS(tt_op(e.b, "add", ((tt_value *const[]){x, x}), 2, NULL, NULL, 1),
          "op add: the pointer to its outputs is NULL");
    FAILS(tt_op(e.b, "add", NULL, 2, NULL, NULL, 1), "op add: the pointer to its operands is NULL");
    FAILS_WITH_OUT(tt_op(e.b, "scale", &x, 1, NULL, &out, 1),
                   "op scale: the pointer to its attributes is NULL");
    FAILS_WITH_OUT(tt_op(e.b, "exp", &none, 1, NULL, &out, 1), "op exp: operand 0 is NULL");
    FAILS(tt_op(e.b, "no_such_op", NULL, 2, NULL, NULL, 1), "no op \"no_such_op\"");
    FAILS(tt_op(e.b, "add", &x, -1, NULL, &out, 1), "the call has 1 outputs and -1 inputs");
}

static void test_functions(void **state)
{
    (void)state;
    tt_value *none = NULL;
    FAILS_WITH_VALUE(tt_custom_vjp(e.b, NULL, 0, NULL, NULL, NULL),
                     "tt_custom_vjp: the function is NULL");
    FAILS_WITH_VALUE(tt_custom_vjp(e.b, NULL, 2, first_value, no_derivative, NULL),
                     "tt_custom_vjp: the list of values is NULL");
    FAILS_WITH_VALUE(tt_custom_vjp(e.b, &none, 1, first_value, no_derivative, NULL),
                     "tt_custom_vjp: value 0 is NULL");
    FAILS_WITH_VALUE(tt_custom_vjp(e.b, &x, 1, first_value, NULL, NULL),
                     "tt_custom_vjp: the function of the derivative is NULL");
    FAILS_WITH_VALUE(tt_custom_vjp(e.b, &x, 1, no_value, no_derivative, NULL),
                     "tt_custom_vjp: what its function returned is NULL");
    FAILS_WITH_VALUE(tt_custom_vjp(e.b, &x, -1, first_value, no_derivative, NULL),
                     "tt_custom_vjp: -1 inputs");
    FAILS_WITH_VALUE(tt_experts(e.b, NULL, NULL, NULL, 0, NULL, NULL),
                     "tt_experts: the value is NULL");
    FAILS_WITH_VALUE(tt_experts(e.b, x, NULL, x, 4, same_rows, NULL),
                     "tt_experts: the tensor of experts is NULL");
    FAILS_WITH_VALUE(tt_experts(e.b, x, choices, NULL, 4, same_rows, NULL),
                     "tt_experts: the tensor of weights is NULL");
    FAILS_WITH_VALUE(tt_experts(e.b, x, choices, x, 4, NULL, NULL),
                     "tt_experts: the function is NULL");
    FAILS_WITH_VALUE(tt_experts(e.b, x, choices, x, 4, no_rows, NULL),
                     "tt_experts: what its function returned is NULL");
    FAILS(tt_buffer_update(e.b, tt_buffer(e.b, "a", DIMS(N(4)), 1, NULL),
                           tt_buffer(e.b, "c", DIMS(N(4)), 1, NULL), NULL, NULL),
          "the update of a buffer: the function is NULL");
    FAILS(tt_buffer_update_sum(e.b, tt_buffer(e.b, "a", DIMS(N(4)), 1, NULL),
                               tt_buffer(e.b, "c", DIMS(N(4)), 1, NULL), NULL, NULL),
          "the update of a buffer: the function is NULL");
}

static void test_lists_and_values(void **state)
{
    (void)state;
    FAILS_WITH_VALUE(tt_iota(e.b, NULL, 2, 0, TT_I32), "tt_iota: the list of dims is NULL");
    FAILS_WITH_VALUE(tt_transpose(e.b, x, NULL), "tt_transpose: the list of dims is NULL");
    FAILS_WITH_VALUE(tt_random(e.b, NULL, 2, "s", 0), "tt_random: the list of dims is NULL");
    FAILS_WITH_VALUE(tt_buffer(e.b, "a", NULL, 2, NULL), "tt_buffer: the list of dims is NULL");
    FAILS_WITH_VALUE(tt_cast(e.b, NULL, TT_F32), "tt_cast: the value is NULL");
    FAILS_WITH_VALUE(tt_sum_all(e.b, NULL), "tt_sum_all: the value is NULL");
    FAILS_WITH_VALUE(tt_broadcast_to(e.b, NULL, NULL, 0), "tt_broadcast_to: the value is NULL");
    FAILS_WITH_VALUE(tt_dequantize(e.b, x, NULL, &rows_of_one), "tt_dequantize: the scale is NULL");
    FAILS_WITH_VALUE(tt_dequantize(e.b, NULL, NULL, NULL), "tt_dequantize: the value is NULL");
    FAILS_WITH_VALUE(tt_latent_attention(e.b, NULL, NULL, NULL, NULL, NULL, NULL),
                     "tt_latent_attention: q is NULL");
    FAILS_WITH_VALUE(tt_latent_attention(e.b, x, x, x, NULL, NULL, NULL),
                     "tt_latent_attention: the name is NULL");
}

static void test_optimizers(void **state)
{
    (void)state;
    const char *update = "a state of an optimizer: the update is NULL";
    FAILS_WITH_VALUE(tt_optimizer_state(e.b, NULL, NULL), update);
    FAILS_WITH_VALUE(tt_optimizer_state_as(e.b, NULL, "m", &dynamic8), update);
    FAILS_WITH_VALUE(tt_optimizer_copy(e.b, NULL, NULL), update);
    FAILS_WITH_VALUE(tt_optimizer_number(e.b, NULL, NULL), update);
    FAILS(tt_optimizer_evaluate(e.b, NULL, NULL), "tt_optimizer_evaluate: the update is NULL");
    FAILS_WITH_VALUE(tt_whole_matrices(e.b, NULL), "tt_whole_matrices: the value is NULL");
    FAILS(tt_assign(e.b, NULL, NULL), "tt_assign: the target is NULL");
    FAILS(tt_assign(e.b, x, NULL), "tt_assign: the value is NULL");
}

/* In a builder that has failed already the first error stays, and nothing is read through a pointer either. */
static void test_after_an_error(void **state)
{
    (void)state;
#define AFTER(call)                                                                                \
    FAILS((tt_builder_fail(e.b, TT_EINVAL, "the first error"), call), "the first error")
    AFTER(tt_top_k(e.b, NULL, 1, NULL, NULL));
    AFTER(tt_sort(e.b, NULL, 1, NULL, NULL));
    AFTER((void)tt_cross_entropy_lse(e.b, NULL, NULL, NULL));
    AFTER((void)tt_quantize(e.b, NULL, NULL, NULL));
    AFTER(tt_choose_experts(e.b, NULL, NULL, 1, NULL, NULL));
    AFTER(tt_expert_sort(e.b, NULL, 4, NULL, NULL));
    AFTER(tt_op(e.b, "add", NULL, 2, NULL, NULL, 1));
    AFTER((void)tt_custom_vjp(e.b, NULL, 2, NULL, NULL, NULL));
    AFTER((void)tt_experts(e.b, NULL, NULL, NULL, 4, NULL, NULL));
    AFTER((void)tt_transpose(e.b, x, NULL));
    AFTER((void)tt_optimizer_state_as(e.b, NULL, NULL, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pointers_to_results), cmocka_unit_test(test_lists_of_an_op),
        cmocka_unit_test(test_functions),           cmocka_unit_test(test_lists_and_values),
        cmocka_unit_test(test_optimizers),          cmocka_unit_test(test_after_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
