/* SPDX-License-Identifier: Apache-2.0 */
#include "base/number.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void test_whole_numbers_are_read(void **state)
{
    static const struct {
        const char *text;
        int64_t value;
    } cases[] = {
        {"0",                    0                   },
        {"-0",                   0                   },
        {"7",                    7                   },
        {"007",                  7                   },
        {"-12",                  -12                 },
        {"2147483648",           2147483648          },
        {"-9223372036854775808", INT64_MIN           },
        {"9223372036854775807",  INT64_MAX           },
        {"-9223372036854775807", -9223372036854775807},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t v = 99;
        assert_true(tt_read_whole(cases[i].text, strlen(cases[i].text), INT64_MIN, INT64_MAX, &v));
        assert_true(v == cases[i].value);
    }
}

static void test_other_spellings_are_refused(void **state)
{
    static const char *const cases[] = {"",
                                        "-",
                                        "x",
                                        "12x",
                                        "x12",
                                        " 12",
                                        "12 ",
                                        "1 2",
                                        "+12",
                                        "--1",
                                        "-+1",
                                        "1.0",
                                        "1e3",
                                        "0x10",
                                        "12\n",
                                        "１",
                                        "9223372036854775808",
                                        "-9223372036854775809",
                                        "18446744073709551617",
                                        "99999999999999999999999999"};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t v = 99;
        if (tt_read_whole(cases[i], strlen(cases[i]), INT64_MIN, INT64_MAX, &v) || v != 99)
            fail_msg("\"%s\" is read as %lld", cases[i], (long long)v);
    }
}

static void test_limits_are_kept(void **state)
{
    int64_t v = 0;
    (void)state;
    assert_true(tt_read_whole("3", 1, 3, 5, &v) && v == 3);
    assert_true(tt_read_whole("5", 1, 3, 5, &v) && v == 5);
    assert_false(tt_read_whole("2", 1, 3, 5, &v));
    assert_false(tt_read_whole("6", 1, 3, 5, &v));
    assert_false(tt_read_whole("-4", 2, 3, 5, &v));
    assert_int_equal(v, 5);
}

/* Only n characters count, as of a range like 2:8. */
static void test_a_part_of_a_text_is_read(void **state)
{
    int64_t v = 0;
    (void)state;
    assert_true(tt_read_whole("12:8", 2, 1, 100, &v) && v == 12);
    assert_false(tt_read_whole("12:8", 3, 1, 100, &v));
    assert_false(tt_read_whole("12", 0, 0, 100, &v));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_numbers_are_read),
        cmocka_unit_test(test_other_spellings_are_refused),
        cmocka_unit_test(test_limits_are_kept),
        cmocka_unit_test(test_a_part_of_a_text_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
