/* SPDX-License-Identifier: Apache-2.0 */
#include "data/data.h"
#include <setjmp.h>
#include <string.h>

#include <cmocka.h>

static void test_order_without_shuffle_is_that_of_the_data(void **state)
{
    (void)state;
    const tt_order o = {.n_samples = 7, .seed = 3};
    for (int64_t g = 0; g < 30; g++) {
        int64_t epoch = -1;
        assert_int_equal(tt_order_sample(&o, g, &epoch), g % 7);
        assert_int_equal(epoch, g / 7);
    }
}

static void test_order_is_a_permutation_of_every_epoch(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 3, 7, 64, 1000, 1023};
    for (size_t k = 0; k < TT_COUNT(sizes); k++) {
        const tt_order o = {.n_samples = sizes[k], .seed = 42, .shuffle = true};
        for (int64_t e = 0; e < 5; e++) {
            bool seen[1024] = {false};
            for (int64_t i = 0; i < o.n_samples; i++) {
                int64_t epoch;
                const int64_t at = tt_order_sample(&o, e * o.n_samples + i, &epoch);
                assert_int_equal(epoch, e);
                assert_in_range(at, 0, o.n_samples - 1);
                assert_false(seen[at]);
                seen[at] = true;
            }
        }
    }
}

/* How many of the first n places two orders agree in. */
static int agreeing(const tt_order *a, int64_t g, const tt_order *b, int64_t h, int n)
{
    int same = 0;
    for (int i = 0; i < n; i++)
        same += tt_order_sample(a, g + i, NULL) == tt_order_sample(b, h + i, NULL);
    return same;
}

static void test_order_differs_by_epoch_and_seed(void **state)
{
    (void)state;
    const tt_order a = {.n_samples = 500, .seed = 1, .shuffle = true};
    const tt_order b = {.n_samples = 500, .seed = 2, .shuffle = true};
    const tt_order plain = {.n_samples = 500};
    assert_int_equal(agreeing(&a, 0, &a, 0, 500), 500);
    assert_true(agreeing(&a, 0, &a, 500, 500) < 20);
    assert_true(agreeing(&a, 0, &b, 0, 500) < 20);
    assert_true(agreeing(&a, 0, &plain, 0, 500) < 20);
}

static void test_order_of_a_late_sample_costs_no_more(void **state)
{
    (void)state;
    const tt_order o = {.n_samples = (int64_t)1 << 40, .seed = 9, .shuffle = true};
    int64_t epoch;
    const int64_t at = tt_order_sample(&o, ((int64_t)1 << 42) + 12345, &epoch);
    assert_int_equal(epoch, 4);
    assert_true(at >= 0 && at < o.n_samples);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_without_shuffle_is_that_of_the_data),
        cmocka_unit_test(test_order_is_a_permutation_of_every_epoch),
        cmocka_unit_test(test_order_differs_by_epoch_and_seed),
        cmocka_unit_test(test_order_of_a_late_sample_costs_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
