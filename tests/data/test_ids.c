/* SPDX-License-Identifier: Apache-2.0 */
#include "data/data.h"
#include <setjmp.h>

#include <cmocka.h>

static void test_ids_grow_and_keep_their_order(void **state)
{
    (void)state;
    tt_ids list = {0};
    tt_error err;
    for (int32_t i = 0; i < 100000; i++)
        assert_int_equal(tt_ids_push(&list, i ^ 5, &err), TT_OK);
    assert_int_equal(list.n, 100000);
    assert_true(list.cap >= list.n);
    for (int32_t i = 0; i < 100000; i++)
        assert_int_equal(list.ids[i], i ^ 5);
    tt_ids_free(&list);
    assert_null(list.ids);
    assert_int_equal(list.n + list.cap, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ids_grow_and_keep_their_order)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
