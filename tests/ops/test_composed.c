/* SPDX-License-Identifier: Apache-2.0 */
#include "cases.h"

/* Builder functions that build several ops: their values against those of the C library. */

static const tt_backend_vt *backend;

static const double points[] = {-1e6, -2.5, -2.0, -1.5, -1.0, -0.5, -1e-9, 0.0,
                                1e-9, 0.5,  1.0,  1.5,  2.0,  2.5,  3.75,  1e6};

static void check_points(tt_value *(*fn)(tt_builder *, tt_value *), double (*want)(double))
{
    eval e;
    eval_init(&e, backend, false);
    tt_value *x = leaf_of(&e, TT_F64, -1, 1, 1, DIMS(N(TT_COUNT(points)))), *y = fn(e.b, x);
    assert_null(tt_builder_error(e.b));
    eval_prepare(&e);
    for (size_t i = 0; i < TT_COUNT(points); i++)
        put(&e.tensors[x->id], (int64_t)i, points[i]);
    eval_run(&e, e.g->nodes.n);
    for (size_t i = 0; i < TT_COUNT(points); i++)
        assert_true(get(&e.tensors[y->id], (int64_t)i) == want(points[i]));
    eval_release(&e);
}

static double sign(double x)
{
    return (x > 0) - (x < 0);
}

static tt_value *clamp(tt_builder *b, tt_value *x)
{
    return tt_clamp(b, x, -2.0, 1.5);
}

static double clamped(double x)
{
    return x < -2.0 ? -2.0 : x > 1.5 ? 1.5 : x;
}

static void test_floor_sign_and_clamp(void **state)
{
    (void)state;
    check_points(tt_floor, floor);
    check_points(tt_sign, sign);
    check_points(clamp, clamped);
}

static void test_clamp_wants_a_range(void **state)
{
    eval e;
    (void)state;
    eval_init(&e, backend, false);
    tt_clamp(e.b, leaf_of(&e, TT_F64, -1, 1, 1, DIMS(N(3))), 1.0, 0.0);
    assert_non_null(strstr(tt_builder_error(e.b)->text, "clamp: 1 to 0 is not a range"));
    eval_release(&e);
}

/* The logits are so large that their exponentials are infinite. */
static void test_log_softmax_of_large_logits(void **state)
{
    static const double x_of[2][3] = {
        {1000.0, 999.0,  -1000.0},
        {-800.0, -800.0, -800.0 }
    };
    eval e;
    (void)state;
    eval_init(&e, backend, false);
    tt_value *x = leaf_of(&e, TT_F64, -1, 1, 2, DIMS(N(2), N(3)));
    tt_value *l = tt_logsumexp(e.b, x), *y = tt_log_softmax(e.b, x);
    eval_prepare(&e);
    for (int64_t i = 0; i < 6; i++)
        put(&e.tensors[x->id], i, x_of[i / 3][i % 3]);
    eval_run(&e, e.g->nodes.n);
    for (int64_t t = 0; t < 2; t++) {
        const double want = t ? -800.0 + log(3.0) : 1000.0 + log1p(exp(-1.0));
        assert_true(fabs(get(&e.tensors[l->id], t) - want) < 1e-9);
        for (int64_t v = 0; v < 3; v++)
            assert_true(fabs(get(&e.tensors[y->id], 3 * t + v) - (x_of[t][v] - want)) < 1e-9);
    }
    eval_release(&e);
}

int main(void)
{
    backend = backend_load("reference");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_floor_sign_and_clamp),
        cmocka_unit_test(test_clamp_wants_a_range),
        cmocka_unit_test(test_log_softmax_of_large_logits),
    };
    return cmocka_run_group_tests_name("composed", tests, NULL, NULL);
}
