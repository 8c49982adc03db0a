/* SPDX-License-Identifier: Apache-2.0 */
#include "../../plugins/lr_schedulers/constant.c"
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void test_constant_is_one_after_its_warmup(void **state)
{
    (void)state;
    const double no = (double)NAN;
    const config none = {.warmup_ratio = no}, four = {.warmup_steps = 4, .warmup_ratio = no},
                 longer = {.warmup_steps = 40, .warmup_ratio = no};
    assert_true(factor(&none, 0, 10) == 1.0);
    assert_true(factor(&four, 0, 10) == 0.25);
    assert_true(factor(&four, 3, 10) == 1.0);
    assert_true(factor(&four, 9, 10) == 1.0);
    assert_true(factor(&longer, 4, 10) == 0.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_constant_is_one_after_its_warmup)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
