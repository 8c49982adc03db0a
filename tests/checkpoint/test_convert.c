/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt_test.h"
#include <math.h>

static double through(tt_dtype kind, double v)
{
    uint8_t half[9];
    double back;
    tt_convert(half + 1, kind, &v, TT_F64, 1); /* unaligned on purpose */
    tt_convert(&back, TT_F64, half + 1, kind, 1);
    return back;
}

static void test_convert_is_exact_both_ways_for_every_16_bit_pattern(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        for (int k = 0; k < 2; k++) {
            tt_dtype kind = k ? TT_F16 : TT_BF16;
            uint16_t h = (uint16_t)bits, back;
            float f;
            tt_convert(&f, TT_F32, &h, kind, 1);
            tt_convert(&back, kind, &f, TT_F32, 1);
            if (isnan(f))
                assert_true((back & (k ? 0x7c00 : 0x7f80)) == (k ? 0x7c00 : 0x7f80) &&
                            (back & (k ? 0x3ff : 0x7f)));
            else
                assert_int_equal(back, h);
        }
    }
}

static void test_convert_f16_agrees_with_arithmetic(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 0x7c00;
         bits++) { /* every finite f16 >= 0: value by definition */
        uint16_t h = (uint16_t)bits;
        float f;
        int exponent = (int)(bits >> 10);
        tt_convert(&f, TT_F32, &h, TT_F16, 1);
        double want =
            exponent ? ldexp(1024 + (bits & 1023), exponent - 25) : ldexp(bits & 1023, -24);
        assert_true((double)f == want);
    }
}

static void test_convert_rounds_to_nearest_even(void **state)
{
    (void)state;
    assert_true(through(TT_BF16, 1 + 1.0 / 256) == 1);             /* tie: to even */
    assert_true(through(TT_BF16, 1 + 3.0 / 256) == 1 + 4.0 / 256); /* tie: to even */
    assert_true(through(TT_F16, 1 + 1.0 / 2048) == 1);
    assert_true(through(TT_F16, 1 + 3.0 / 2048) == 1 + 4.0 / 2048);
    assert_true(through(TT_F16, 65519) == 65504);
    assert_true(isinf(through(TT_F16, 65520)));
    assert_true(through(TT_F16, 0x1p-25) == 0); /* tie with zero */
    assert_true(through(TT_F16, 0x1.8p-24) == 0x1p-23);
    assert_true(through(TT_F16, -0x1.002p-15) == -0x1p-15);
    assert_true(signbit(through(TT_F16, -0.0)));
    assert_true(isinf(through(TT_BF16, 3.4e38)) && isinf(through(TT_F32, 1e300)));
    assert_true(isnan(through(TT_F16, (double)NAN)) && isnan(through(TT_BF16, (double)NAN)));
}

static void test_convert_of_many_elements(void **state)
{
    (void)state;
    enum { N = 1300 };
    float from[N];
    double to[N];
    for (int i = 0; i < N; i++)
        from[i] = (float)i * 0.5f;
    tt_convert(to, TT_F64, from, TT_F32, N);
    for (int i = 0; i < N; i++)
        assert_true(to[i] == i * 0.5);
}

static void test_convert_supports_float_pairs_and_equal_dtypes(void **state)
{
    (void)state;
    assert_true(tt_can_convert(TT_F32, TT_F16) && tt_can_convert(TT_I64, TT_I64));
    assert_false(tt_can_convert(TT_F32, TT_I32) || tt_can_convert(TT_I64, TT_I32));
    assert_false(tt_can_convert(TT_N_DTYPES, TT_N_DTYPES));
    for (tt_dtype t = 0; t < TT_N_DTYPES; t++)
        assert_int_equal(tt_st_dtype_of(t)->bits, 8 * tt_dtype_size(t));
    assert_null(tt_st_dtype_of(TT_N_DTYPES));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_convert_is_exact_both_ways_for_every_16_bit_pattern),
        cmocka_unit_test(test_convert_f16_agrees_with_arithmetic),
        cmocka_unit_test(test_convert_rounds_to_nearest_even),
        cmocka_unit_test(test_convert_of_many_elements),
        cmocka_unit_test(test_convert_supports_float_pairs_and_equal_dtypes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
