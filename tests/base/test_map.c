/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
/* cmocka needs the headers above */
#include <cmocka.h>

static void test_map_finds_what_was_set(void **state)
{
    (void)state;
    enum { N = 5000 };
    static int values[N];
    tt_arena *a = tt_arena_new();
    tt_map *m = tt_map_new(a);
    char key[32];
    for (int i = 0; i < N; i++) {
        snprintf(key, sizeof key, "key.%d", i); /* copied: the buffer is reused */
        tt_map_set(m, key, &values[i]);
    }
    assert_int_equal(tt_map_size(m), N);
    for (int i = 0; i < N; i++) {
        snprintf(key, sizeof key, "key.%d", i);
        assert_ptr_equal(tt_map_get(m, key), &values[i]);
    }
    assert_null(tt_map_get(m, "key.5000"));
    assert_null(tt_map_get(m, ""));
    tt_arena_free(a);
}

static void test_map_keeps_insertion_order(void **state)
{
    (void)state;
    tt_arena *a = tt_arena_new();
    tt_map *m = tt_map_new(a);
    static const char *const keys[] = {"z", "a", "m", ""};
    for (size_t i = 0; i < 4; i++)
        tt_map_set(m, keys[i], (void *)(uintptr_t)(i + 1));
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(tt_map_key(m, i), keys[i]);
        assert_int_equal((uintptr_t)tt_map_value(m, i), i + 1);
    }
    tt_arena_free(a);
}

static void test_map_set_again_replaces_in_place(void **state)
{
    (void)state;
    tt_arena *a = tt_arena_new();
    tt_map *m = tt_map_new(a);
    int x, y;
    tt_map_set(m, "a", &x);
    tt_map_set(m, "b", &x);
    tt_map_set(m, "a", &y);
    assert_int_equal(tt_map_size(m), 2);
    assert_ptr_equal(tt_map_get(m, "a"), &y);
    assert_ptr_equal(tt_map_value(m, 0), &y);
    tt_arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_map_finds_what_was_set),
        cmocka_unit_test(test_map_keeps_insertion_order),
        cmocka_unit_test(test_map_set_again_replaces_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
