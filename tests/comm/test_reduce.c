/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <ttrun/comm.h>
#include <ttrun/narrow.h>

#include <cmocka.h>

/* tt_reduce_members adds up, or takes the maximum, of the members' arrays. */

#define MEMBERS 4
#define N 101 /* whole groups of lanes, and a rest */

static const tt_dtype dtypes[] = {TT_F32, TT_F64, TT_BF16, TT_I32, TT_I64};

static void set(void *x, tt_dtype t, int i, double v)
{
    if (t == TT_F32)
        ((float *)x)[i] = (float)v;
    else if (t == TT_F64)
        ((double *)x)[i] = v;
    else if (t == TT_BF16)
        ((uint16_t *)x)[i] = tt_to_bf16((float)v);
    else if (t == TT_I32)
        ((int32_t *)x)[i] = (int32_t)v;
    else
        ((int64_t *)x)[i] = (int64_t)v;
}

static double get(const void *x, tt_dtype t, int i)
{
    if (t == TT_F32)
        return (double)((const float *)x)[i];
    if (t == TT_F64)
        return ((const double *)x)[i];
    if (t == TT_BF16)
        return (double)tt_from_bf16(((const uint16_t *)x)[i]);
    return t == TT_I32 ? ((const int32_t *)x)[i] : (double)((const int64_t *)x)[i];
}

static double value(int m, int i) /* between -23 and 23 */
{
    return (double)((m * 17 + i * 29) % 47 - 23);
}

/* Reduces n members; member `who` has `special` at every third element. */
static void reduced(tt_dtype t, tt_reduce op, int n, int who, double special, double out[N])
{
    double memory[MEMBERS][N], result[N];
    const void *xs[MEMBERS];
    tt_error err;
    for (int m = 0; m < n; m++) {
        xs[m] = memory[m];
        for (int i = 0; i < N; i++)
            set(memory[m], t, i, m == who && i % 3 == 0 ? special : value(m, i));
    }
    assert_int_equal(tt_reduce_members(result, xs, n, N, t, op, &err), TT_OK);
    for (int i = 0; i < N; i++)
        out[i] = get(result, t, i);
}

static void test_numbers_of_every_dtype(void **state)
{
    (void)state;
    for (size_t k = 0; k < TT_COUNT(dtypes); k++)
        for (int n = 1; n <= MEMBERS; n++) {
            double sum[N], max[N];
            reduced(dtypes[k], TT_SUM, n, -1, 0, sum);
            reduced(dtypes[k], TT_MAX, n, -1, 0, max);
            for (int i = 0; i < N; i++) {
                double s = 0, l = -100;
                for (int m = 0; m < n; m++) {
                    s += value(m, i);
                    l = fmax(l, value(m, i));
                }
                assert_true(sum[i] == s && max[i] == l);
            }
        }
}

/* As the ops maximum and reduce_max on one rank. */
static void test_a_nan_of_any_member_is_the_maximum(void **state)
{
    (void)state;
    for (size_t k = 0; k < 3; k++) /* the floating dtypes */
        for (int n = 1; n <= MEMBERS; n++)
            for (int who = 0; who < n; who++) {
                double max[N], sum[N], high[N];
                reduced(dtypes[k], TT_MAX, n, who, (double)NAN, max);
                reduced(dtypes[k], TT_SUM, n, who, (double)NAN, sum);
                reduced(dtypes[k], TT_MAX, n, who, (double)INFINITY, high);
                for (int i = 0; i < N; i++) {
                    if (!isnan(max[i]) != (i % 3 != 0) || !isnan(sum[i]) != (i % 3 != 0))
                        fail_msg("%s, member %d of %d, element %d: maximum %g, sum %g",
                                 tt_dtype_name(dtypes[k]), who, n, i, max[i], sum[i]);
                    assert_int_equal(isinf(high[i]) != 0, i % 3 == 0);
                }
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_of_every_dtype),
        cmocka_unit_test(test_a_nan_of_any_member_is_the_maximum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
