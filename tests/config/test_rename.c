/* SPDX-License-Identifier: Apache-2.0 */
#include "config/rename.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Rules that rename tensors. */

static tt_status apply(tt_arena *a, const char *const *rules, size_t n, const char *name,
                       const char **out, tt_error *err)
{
    const tt_strings texts = {.items = rules, .n = n};
    tt_renames r;
    TT_TRY(tt_renames_make(a, &texts, &r, err));
    return tt_renames_apply(&r, a, name, out, err);
}

static void check(const char *rule, const char *name, const char *expected)
{
    tt_arena *a = tt_arena_new();
    tt_error err = {0};
    const char *out = NULL;
    if (apply(a, &rule, 1, name, &out, &err) != TT_OK)
        fail_msg("%s: %s", rule, err.text);
    assert_string_equal(out, expected);
    tt_arena_free(a);
}

static void test_rename_replaces_the_first_match(void **state)
{
    (void)state;
    check("^module\\.=", "module.module.x", "module.x");
    check("a=b", "banana", "bbnana");
    check("q=x", "banana", "banana");
    check("layers\\.([0-9]+)\\.=h.$1.", "model.layers.12.w", "model.h.12.w");
    check("(a)|(z)=[$2]", "banana", "b[]nana"); /* a group that took no part is empty */
    check("n=$$1", "banana", "ba$1ana");
    check("a(?=n)=A", "banana", "bAnana"); /* the last = divides */
    check("^.*$=x", "banana", "x");
}

static void test_rename_grows_as_it_has_to(void **state)
{
    (void)state;
    char name[301], expected[902];
    memset(name, 'a', 300);
    name[300] = '\0';
    memset(expected, 'a', 900);
    expected[900] = '\0';
    check("^(.*)$=$1$1$1", name, expected);
}

static void test_rename_applies_the_first_rule_that_matches(void **state)
{
    (void)state;
    static const char *const swap[] = {"0=1", "1=0"};
    tt_arena *a = tt_arena_new();
    tt_error err = {0};
    const char *out = NULL;
    assert_int_equal(apply(a, swap, 2, "layers.0", &out, &err), TT_OK);
    assert_string_equal(out, "layers.1");
    assert_int_equal(apply(a, swap, 2, "layers.1", &out, &err), TT_OK);
    assert_string_equal(out, "layers.0");
    tt_arena_free(a);
}

static void check_refused(const char *rule, const char *name, const char *why)
{
    tt_arena *a = tt_arena_new();
    tt_error err = {0};
    const char *out = NULL;
    assert_int_equal(apply(a, &rule, 1, name, &out, &err), TT_EINVAL);
    if (!strstr(err.text, why))
        fail_msg("%s: %s", rule, err.text);
    tt_arena_free(a);
}

static void test_rename_refuses_bad_rules(void **state)
{
    (void)state;
    check_refused("layers", "x", "expected \"PATTERN=NAME\"");
    check_refused("=x", "x", "expected \"PATTERN=NAME\"");
    check_refused("(=x", "x", "missing closing parenthesis");
    check_refused("x=$2", "x", "unknown substring");
    check_refused("x=${", "x", "\"x=${\"");
    check_refused("x=", "x", "leaves no name of tensor 'x'");
    check_refused("^(a+)+$=x",
                  "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!",
                  "limit exceeded");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rename_replaces_the_first_match),
        cmocka_unit_test(test_rename_grows_as_it_has_to),
        cmocka_unit_test(test_rename_applies_the_first_rule_that_matches),
        cmocka_unit_test(test_rename_refuses_bad_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
