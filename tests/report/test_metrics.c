/* SPDX-License-Identifier: Apache-2.0 */
#include "report/report.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* metrics.jsonl as runs write it, and damaged in several ways. */

static tt_run_report read(tt_arena *a, const char *text)
{
    tt_run_report r = {0};
    tt_report_metrics(text, strlen(text), a, &r);
    return r;
}

static void test_metrics_takes_training_and_validation_lines(void **state)
{
    (void)state;
    tt_arena *a = tt_arena_new();
    const tt_run_report r = read(
        a,
        "{\"step\":1,\"loss\":8.5,\"grad_norm\":2,\"lr\":1e-4,\"tps_global\":10,\"mfu\":null,"
        "\"time_s\":0.5,\"time\":{\"data\":0.125,\"forward_backward\":0.25},\"wall\":\"a\\\"b\"}\n"
        "{\"step\":1,\"validation\":{\"loss\":8.25,\"tokens\":64}}\n"
        "\n"
        "  {\"step\" : 2 , \"loss\":8, \"list\":[1,[\"x\",{}],null], \"time\":{}} \r\n");
    assert_int_equal(r.train.n, 2);
    assert_int_equal(r.validation.n, 1);
    assert_int_equal(r.bad_lines, 0);
    assert_true(r.train.rows[0][TT_COL_LOSS] == 8.5 && r.train.rows[0][TT_COL_NORM] == 2);
    assert_true(r.train.rows[0][TT_COL_DATA] == 0.125 && r.train.rows[0][TT_COL_TIME] == 0.5);
    assert_true(r.train.rows[0][TT_COL_LR] == 1e-4 && isnan(r.train.rows[0][TT_COL_MFU]));
    assert_true(r.train.rows[1][TT_COL_STEP] == 2 && isnan(r.train.rows[1][TT_COL_DATA]));
    assert_true(r.validation.rows[0][TT_COL_LOSS] == 8.25);
    tt_arena_free(a);
}

static void test_metrics_leaves_out_malformed_lines(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "{\"step\":3,\"loss\":1.",
        "{\"step\":3",
        "{\"step\":3}}",
        "{\"step\":}",
        "{step:3}",
        "[1]",
        "null",
        "\xff\xfe",
        "{\"loss\":1}",
        "{\"step\":\"3\"}",
        "{\"step\":null}",
        "{\"step\":1e999}",
        "{\"step\":3,\"x\":1-2}",
        "{\"step\":3,\"x\":\"\\",
        "{\"step\":3,\"x\":[1,}",
        "{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{"
        "\"a\":"
        "{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":1}}}}}}}}}}}}}}}}}}},\"step\":1}",
    };
    for (size_t i = 0; i < TT_COUNT(bad); i++) {
        tt_arena *a = tt_arena_new();
        tt_str s = {0};
        tt_str_printf(&s, "{\"step\":1,\"loss\":2}\n%s\n{\"step\":9,\"loss\":1}", bad[i]);
        const tt_run_report r = read(a, tt_str_get(&s));
        if (r.train.n != 2 || r.bad_lines != 1 || r.train.rows[1][TT_COL_STEP] != 9)
            fail_msg("%s: %zu lines, %lld bad", bad[i], r.train.n, (long long)r.bad_lines);
        tt_str_free(&s);
        tt_arena_free(a);
    }
}

/* A line may nest 16 deep, of lists, of objects and of both in turn; deeper, it is left out. */
static void test_metrics_lines_nest_so_deep(void **state)
{
    static const char *const opens[][2] = {
        {"[",       "["      },
        {"{\"a\":", "{\"a\":"},
        {"[",       "{\"a\":"},
        {"{\"a\":", "["      },
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(opens); i++)
        for (int depth = 15; depth <= 17; depth++) {
            tt_arena *a = tt_arena_new();
            tt_str s = {0};
            tt_str_add(&s, "{\"step\":1,\"x\":");
            for (int d = 0; d < depth; d++)
                tt_str_add(&s, opens[i][d % 2]);
            tt_str_addc(&s, '0');
            for (int d = depth; d-- > 0;)
                tt_str_addc(&s, *opens[i][d % 2] == '[' ? ']' : '}');
            tt_str_addc(&s, '}');
            const tt_run_report r = read(a, tt_str_get(&s));
            if (r.bad_lines != (depth > 16))
                fail_msg("%s: %lld bad", tt_str_get(&s), (long long)r.bad_lines);
            tt_str_free(&s);
            tt_arena_free(a);
        }
}

static void test_metrics_of_a_repeated_step_are_the_last_ones(void **state)
{
    (void)state;
    tt_arena *a = tt_arena_new();
    const tt_run_report r = read(a, "{\"step\":1,\"loss\":5}\n{\"step\":2,\"loss\":4}\n"
                                    "{\"step\":3,\"loss\":NaN}\n{\"step\":2,\"loss\":3}\n");
    assert_int_equal(r.train.n, 2);
    assert_true(r.train.rows[1][TT_COL_STEP] == 2 && r.train.rows[1][TT_COL_LOSS] == 3);
    tt_arena_free(a);
}

static void test_metrics_of_experts_are_by_layer(void **state)
{
    (void)state;
    tt_arena *a = tt_arena_new();
    const tt_run_report r = read(
        a, "{\"step\":1,\"loss\":5}\n"
           "{\"step\":2,\"experts\":{\"max_over_mean\":1.5,\"entropy\":0.5,\"layers.0/"
           "max_over_mean\":2,"
           "\"layers.0/entropy\":0.25,\"layers.10/max_over_mean\":1},\"lr\":1}\n"
           "{\"step\":3,\"experts\": {\"layers.10/max_over_mean\" : 4, "
           "\"layers.0/max_over_mean\":null}}\n"
           "{\"step\":4,\"experts\":{\"layers.10/max_over_mean\":8}}\n"
           "{\"step\":4,\"validation\":{\"loss\":1},\"experts\":{\"layers.10/max_over_mean\":9}}\n"
           "{\"step\":4,\"experts\":{\"layers.10/max_over_mean\":7,\"layers.3/max_over_mean\":7}}\n"
           "{\"step\":5,\"experts\":{\"layers.10/max_over\n{\"step\":6,\"experts\":3}\n");
    const tt_expert_report *e = &r.experts;
    assert_int_equal(e->n, 3);
    assert_int_equal(e->n_layers, 2);
    assert_string_equal(e->layers[1], "layers.10");
    assert_true(e->steps[0] == 2 && e->steps[2] == 4);
    assert_true(e->mean_most[0] == 1.5 && e->mean_entropy[0] == 0.5 && isnan(e->mean_most[1]));
    assert_true(e->most[0] == 2 && e->most[1] == 1);
    assert_true(isnan(e->most[2]) && e->most[3] == 4);
    assert_true(isnan(e->most[4]) && e->most[5] == 7);
    tt_arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_metrics_takes_training_and_validation_lines),
        cmocka_unit_test(test_metrics_leaves_out_malformed_lines),
        cmocka_unit_test(test_metrics_lines_nest_so_deep),
        cmocka_unit_test(test_metrics_of_a_repeated_step_are_the_last_ones),
        cmocka_unit_test(test_metrics_of_experts_are_by_layer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
