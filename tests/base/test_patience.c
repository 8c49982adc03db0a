/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/base.h"
#include <limits.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
/* cmocka needs the headers above */
#include <cmocka.h>

static void test_variable_is_a_number_within_bounds(void **state)
{
    static const struct {
        const char *text;
        double scale; /* 0: refused */
    } rows[] = {
        {NULL,   1   },
        {"",     1   },
        {"1",    1   },
        {"20",   20  },
        {"0.01", 0.01},
        {"1e-6", 1e-6},
        {"1e6",  1e6 },
        {"0",    0   },
        {"-1",   0   },
        {"1e7",  0   },
        {"1e-7", 0   },
        {"nan",  0   },
        {"inf",  0   },
        {"x",    0   },
        {"20x",  0   },
        {"20 ",  0   },
        {" ",    0   },
        {"1,5",  0   },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double scale = 7;
        tt_error err = {0};
        if (rows[i].text)
            setenv("TTRUN_PATIENCE", rows[i].text, 1);
        else
            unsetenv("TTRUN_PATIENCE");
        const tt_status s = tt_patience_read(&scale, &err);
        assert_int_equal(s, rows[i].scale > 0 ? TT_OK : TT_EINVAL);
        assert_true(scale == (rows[i].scale > 0 ? rows[i].scale : 7));
        if (s != TT_OK)
            assert_non_null(
                strstr(err.text, "TTRUN_PATIENCE: expected a number from 1e-6 to 1e6, "));
    }
}

/* The first call reads the variable, for the whole process. */
static void test_times_are_multiplied(void **state)
{
    (void)state;
    setenv("TTRUN_PATIENCE", "20", 1);
    assert_int_equal(tt_patience(TT_NS(0.5)), TT_NS(10));
    assert_int_equal(tt_patience(0), 0);
    assert_int_equal(tt_patience_ms(TT_NS(0.5)), 10000);
    assert_int_equal(tt_patience_ms(1), 1);
    assert_int_equal(tt_patience_ms(TT_NS(1e9)), INT_MAX);
    assert_true(tt_patience(INT64_MAX) >= INT64_MAX / 2);
    setenv("TTRUN_PATIENCE", "1", 1);
    assert_int_equal(tt_patience(TT_NS(0.5)), TT_NS(10));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_variable_is_a_number_within_bounds),
        cmocka_unit_test(test_times_are_multiplied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
