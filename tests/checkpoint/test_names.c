/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/match.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Names of tensors in few words. */

static void check(const char *const *names, size_t n, const char *expected)
{
    tt_arena *a = tt_arena_new();
    assert_string_equal(tt_names_fold(a, names, n), expected);
    tt_arena_free(a);
}
#define CHECK(expected, ...)                                                                       \
    do {                                                                                           \
        const char *const names_[] = {__VA_ARGS__};                                                \
        check(names_, sizeof names_ / sizeof *names_, expected);                                   \
    } while (0)

static void test_names_fold_numbers(void **state)
{
    (void)state;
    CHECK("a", "a");
    CHECK("a, b", "a", "b");
    CHECK("l.{0-2}.w", "l.0.w", "l.2.w", "l.1.w");
    CHECK("l.{0-1,4,7-8}.w", "l.0.w", "l.1.w", "l.4.w", "l.7.w", "l.8.w");
    CHECK("l.3.w", "l.3.w");
    CHECK("l.{0-1}", "l.0", "l.1");
    CHECK("{0-1}.w", "0.w", "1.w");
    CHECK("l.{0-1}.w, l.{0-1}.b", "l.0.w", "l.0.b", "l.1.w", "l.1.b");
    CHECK("l.{0-1}.e.{0-1}.w", "l.0.e.0.w", "l.0.e.1.w", "l.1.e.0.w", "l.1.e.1.w");
    CHECK("l.0.e.{0-1}.w, l.1.e.1.w", "l.0.e.0.w", "l.0.e.1.w", "l.1.e.1.w");
}

/* A name stays as it is where a part is no number, or none that could be counted. */
static void test_names_keep_what_is_no_number(void **state)
{
    (void)state;
    CHECK("w1.x, w2.x", "w1.x", "w2.x");
    CHECK("a.0x, a.1x", "a.0x", "a.1x");
    CHECK("a.12345678901.w, a.12345678902.w", "a.12345678901.w", "a.12345678902.w");
    CHECK(".., a..b", "..", "a..b");
}

static void test_names_fold_thousands(void **state)
{
    (void)state;
    enum { N = 5000 };
    tt_arena *a = tt_arena_new();
    const char **names = tt_arena_array(a, N, sizeof *names);
    for (int i = 0; i < N; i++)
        names[i] = tt_arena_printf(a, "layers.%d.experts.%d.w", i / 100, i % 100);
    assert_string_equal(tt_names_fold(a, names, N), "layers.{0-49}.experts.{0-99}.w");
    tt_arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_fold_numbers),
        cmocka_unit_test(test_names_keep_what_is_no_number),
        cmocka_unit_test(test_names_fold_thousands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
