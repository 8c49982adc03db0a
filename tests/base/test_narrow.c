/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <ttrun/narrow.h>
#include <ttrun/option.h>

#include <cmocka.h>

/* <ttrun/narrow.h> against the definition of rounding. Of each two neighbours of a format the middle goes to the
 * even one, and the numbers next to the middle, in f64 and in f32, to the nearer one. Between these points rounding
 * cannot change, because it does not fall, so this holds for every f32 and f64. */

typedef struct format {
    const char *name;
    uint32_t finite; /* codes 0 … finite are the numbers from 0 up */
    double beyond;   /* what code finite + 1 would be */
    bool saturates;
    double (*from)(uint32_t code);
    uint32_t (*to)(float x);
    uint32_t sign;
} format;

static double from_bf16(uint32_t code)
{
    return (double)tt_from_bf16((uint16_t)code);
}
static double from_f16(uint32_t code)
{
    return (double)tt_from_f16((uint16_t)code);
}
static double from_e4m3(uint32_t code)
{
    return (double)tt_from_float8((uint8_t)code, false);
}
static double from_e5m2(uint32_t code)
{
    return (double)tt_from_float8((uint8_t)code, true);
}
static uint32_t to_bf16(float x)
{
    return tt_to_bf16(x);
}
static uint32_t to_f16(float x)
{
    return tt_to_f16(x);
}
static uint32_t to_e4m3(float x)
{
    return tt_to_float8(x, false);
}
static uint32_t to_e5m2(float x)
{
    return tt_to_float8(x, true);
}

static const format formats[] = {
    {"bf16", 0x7f7f, 0x1p128, false, from_bf16, to_bf16, 0x8000},
    {"f16",  0x7bff, 0x1p16,  false, from_f16,  to_f16,  0x8000},
    {"e4m3", 0x7e,   480.0,   true,  from_e4m3, to_e4m3, 0x80  },
    {"e5m2", 0x7b,   0x1p16,  true,  from_e5m2, to_e5m2, 0x80  },
};

/* The numbers by their definition: code = exponent and mantissa. */
static double number(uint32_t code, int mantissa, int bias)
{
    const int e = (int)(code >> mantissa), m = (int)(code & ((1u << mantissa) - 1));
    return ldexp(e ? m + (1 << mantissa) : m, (e ? e : 1) - bias - mantissa);
}

static void expect(const format *f, double x, uint32_t code)
{
    for (int minus = 0; minus < 2; minus++) {
        const double v = minus ? -x : x;
        const uint32_t want = code | (minus ? f->sign : 0);
        const uint32_t got = f->to(tt_f32_towards_odd(v));
        if (got != want)
            fail_msg("%s: f64 %.17g is %#x, not %#x", f->name, v, got, want);
        if ((double)(float)v == v && f->to((float)v) != want)
            fail_msg("%s: f32 %.9g is %#x, not %#x", f->name, v, f->to((float)v), want);
    }
}

static void test_numbers_are_those_of_the_format(void **state)
{
    static const int sizes[][2] = {
        {7,  127},
        {10, 15 },
        {3,  7  },
        {2,  15 }
    };
    (void)state;
    for (size_t k = 0; k < TT_COUNT(formats); k++)
        for (uint32_t c = 0; c <= formats[k].finite; c++) {
            assert_true(formats[k].from(c) == number(c, sizes[k][0], sizes[k][1]));
            assert_true(formats[k].from(c | formats[k].sign) == -formats[k].from(c));
        }
    assert_true(isinf(tt_from_bf16(0x7f80)) && isnan(tt_from_bf16(0x7f81)));
    assert_true(isinf(tt_from_f16(0x7c00)) && isnan(tt_from_f16(0x7c01)));
    assert_true(isnan(tt_from_float8(0x7f, false)) && isnan(tt_from_float8(0xff, false)));
    assert_true(isinf(tt_from_float8(0x7c, true)) && tt_from_float8(0xfc, true) < 0);
    assert_true(isnan(tt_from_float8(0x7d, true)) && isnan(tt_from_float8(0x7f, true)));
}

static void test_rounds_to_the_nearest_of_two_the_even_one(void **state)
{
    (void)state;
    for (size_t k = 0; k < TT_COUNT(formats); k++) {
        const format *f = &formats[k];
        for (uint32_t c = 0; c <= f->finite; c++) {
            const double a = f->from(c), b = c < f->finite ? f->from(c + 1) : f->beyond;
            const double middle = (a + b) / 2;
            const uint32_t up = c == f->finite && f->saturates ? c : c + 1;
            expect(f, a, c);
            expect(f, nextafter(a, b), c);
            expect(f, nextafter(middle, 0), c);
            expect(f, middle, c % 2 ? up : c);
            expect(f, nextafter(middle, INFINITY), up);
            if (middle < 0x1p127) {
                expect(f, (double)nextafterf((float)middle, 0), c);
                expect(f, (double)nextafterf((float)middle, INFINITY), up);
            }
        }
        const uint32_t top = f->saturates ? f->finite : f->finite + 1;
        expect(f, f->beyond, top);
        expect(f, 0x1p1000, top);
        expect(f, INFINITY, top);
        expect(f, 0x1p-1074, 0);
    }
}

static void test_nan_stays_a_nan(void **state)
{
    (void)state;
    for (uint32_t low = 1; low < 0x800000; low += low < 0x1000 ? 1 : 0x333)
        for (uint32_t sign = 0; sign < 2; sign++) {
            const float x = tt_f32_of_bits(sign << 31 | 0x7f800000u | low);
            assert_true(isnan(tt_from_bf16(tt_to_bf16(x))));
            assert_true(isnan(tt_from_f16(tt_to_f16(x))));
            assert_true(isnan(tt_from_float8(tt_to_float8(x, false), false)));
            assert_true(isnan(tt_from_float8(tt_to_float8(x, true), true)));
            assert_true(isnan(tt_f32_towards_odd((double)x)));
        }
}

static void test_towards_odd_marks_what_is_not_an_f32(void **state)
{
    static const double exact[] = {0, 1, 0x1.fffffep127, 0x1p-149, 3.5, INFINITY};
    (void)state;
    for (size_t i = 0; i < TT_COUNT(exact); i++) {
        assert_true((double)tt_f32_towards_odd(exact[i]) == exact[i]);
        assert_true((double)tt_f32_towards_odd(-exact[i]) == -exact[i]);
    }
    assert_int_equal(tt_bits_of_f32(tt_f32_towards_odd(1 + 0x1p-40)), 0x3f800001);
    assert_int_equal(tt_bits_of_f32(tt_f32_towards_odd(1 - 0x1p-40)), 0x3f7fffff);
    assert_int_equal(tt_bits_of_f32(tt_f32_towards_odd(-1 - 0x1p-40)), 0xbf800001);
    assert_int_equal(tt_bits_of_f32(tt_f32_towards_odd(0x1p1000)), 0x7f7fffff);
    assert_int_equal(tt_bits_of_f32(tt_f32_towards_odd(-0x1p-1000)), 0x80000001);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_are_those_of_the_format),
        cmocka_unit_test(test_rounds_to_the_nearest_of_two_the_even_one),
        cmocka_unit_test(test_nan_stays_a_nan),
        cmocka_unit_test(test_towards_odd_marks_what_is_not_an_f32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
