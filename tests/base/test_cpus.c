/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pool.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void test_times_of_a_thread_are_read(void **state)
{
    double ran = 7, waited = 7;
    (void)state;
    assert_true(tt_read_core_times("1500000000 250000000 31\n", &ran, &waited));
    assert_true(ran > 1.499 && ran < 1.501 && waited > 0.249 && waited < 0.251);
    assert_false(tt_read_core_times("", &ran, &waited));
    assert_false(tt_read_core_times("1500000000", &ran, &waited));
    assert_false(tt_read_core_times("no numbers", &ran, &waited));
    assert_true(ran > 1.499 && waited < 0.251); /* as they were */
}

static void test_waits_for_a_core_are_told(void **state)
{
    (void)state;
    assert_true(tt_core_wait_share(100, 30, 70) > 0.69 && tt_core_wait_share(100, 30, 70) < 0.71);
    assert_true(tt_core_wait_share(29, 5, 24) == 0);   /* too early */
    assert_true(tt_core_wait_share(100, 71, 29) == 0); /* the run is little slower */
    assert_true(tt_core_wait_share(100, 2, 8) == 0);   /* the thread waited for something else */
    assert_true(tt_core_wait_share(100, 0, 0) == 0);
    assert_true(tt_core_wait_share(30, 20, 10) > 0.33);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_times_of_a_thread_are_read),
        cmocka_unit_test(test_waits_for_a_core_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
