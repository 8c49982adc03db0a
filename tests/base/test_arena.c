/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
/* cmocka needs the four headers above */
#include <cmocka.h>

static void test_arena_memory_is_zeroed_and_aligned(void **state)
{
    (void)state;
    tt_arena *a = tt_arena_new();
    for (size_t size = 0; size < 3000; size += 37) {
        uint8_t *p = tt_arena_alloc(a, size);
        assert_int_equal((uintptr_t)p % 16, 0);
        for (size_t i = 0; i < size; i++)
            assert_int_equal(p[i], 0);
        memset(p, 0xff, size);
    }
    tt_arena_free(a);
}

static void test_arena_allocations_do_not_overlap(void **state)
{
    (void)state;
    enum { N = 500 };
    tt_arena *a = tt_arena_new();
    uint8_t *p[N];
    for (int i = 0; i < N; i++) {
        size_t size =
            i % 50 == 7 ? 100000 : (size_t)(i % 97) + 1; /* large ones get their own chunk */
        p[i] = tt_arena_alloc(a, size);
        memset(p[i], i & 0xff, size);
    }
    for (int i = 0; i < N; i++) {
        size_t size = i % 50 == 7 ? 100000 : (size_t)(i % 97) + 1;
        for (size_t k = 0; k < size; k++)
            assert_int_equal(p[i][k], i & 0xff);
    }
    assert_true(tt_arena_used(a) > 10 * 100000);
    tt_arena_free(a);
}

static void test_arena_copies_text(void **state)
{
    (void)state;
    tt_arena *a = tt_arena_new();
    char text[] = "abc";
    char *s = tt_arena_str(a, text);
    text[0] = 'X';
    assert_string_equal(s, "abc");
    assert_null(tt_arena_str(a, NULL));
    assert_string_equal(tt_arena_strn(a, "abcdef", 3), "abc");
    assert_string_equal(tt_arena_strn(a, NULL, 0), "");
    assert_string_equal(tt_arena_printf(a, "%d-%s", 7, "x"), "7-x");
    int64_t v[3] = {1, 2, 3};
    assert_memory_equal(tt_arena_dup(a, v, sizeof v), v, sizeof v);
    tt_arena_free(a);
}

static int order[3], n_order;
static void note(void *arg)
{
    order[n_order++] = *(int *)arg;
}

static void test_arena_cleanups_run_in_reverse(void **state)
{
    (void)state;
    static int ids[3] = {0, 1, 2};
    n_order = 0;
    tt_arena *a = tt_arena_new();
    for (int i = 0; i < 3; i++)
        tt_arena_cleanup(a, note, &ids[i]);
    assert_int_equal(n_order, 0);
    tt_arena_free(a);
    assert_int_equal(n_order, 3);
    assert_int_equal(order[0], 2);
    assert_int_equal(order[2], 0);
    tt_arena_free(NULL);
}

static void test_vec_grows_and_keeps_items(void **state)
{
    (void)state;
    tt_arena *a = tt_arena_new();
    TT_VEC(int64_t) v = {0};
    for (int64_t i = 0; i < 1000; i++)
        tt_vec_push(a, &v, i * i);
    assert_int_equal(v.n, 1000);
    assert_true(v.cap >= v.n);
    for (int64_t i = 0; i < 1000; i++)
        assert_int_equal(v.items[i], i * i);
    tt_arena_free(a);
}

static void test_checked_arithmetic_reports_overflow(void **state)
{
    (void)state;
    int64_t out = 42;
    assert_false(tt_mul_i64(INT64_MAX, 2, &out));
    assert_false(tt_add_i64(INT64_MAX, 1, &out));
    assert_false(tt_mul_i64(INT64_MIN, -1, &out));
    assert_int_equal(out, 42);
    assert_true(tt_mul_i64(-6, 7, &out));
    assert_int_equal(out, -42);
    assert_true(tt_add_i64(40, 2, &out));
    assert_int_equal(out, 42);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arena_memory_is_zeroed_and_aligned),
        cmocka_unit_test(test_arena_allocations_do_not_overlap),
        cmocka_unit_test(test_arena_copies_text),
        cmocka_unit_test(test_arena_cleanups_run_in_reverse),
        cmocka_unit_test(test_vec_grows_and_keeps_items),
        cmocka_unit_test(test_checked_arithmetic_reports_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
