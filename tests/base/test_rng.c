/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <ttrun/option.h>
/* cmocka needs the headers above */
#include <cmocka.h>

/* Known answers of Random123 (kat_vectors, philox4x32-10). The second one comes from an independent
 * Python version, because the published one sets all four counter words, which this interface
 * cannot do. */
static void test_rng_philox_known_answers(void **state)
{
    (void)state;
    static const uint32_t zero[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    static const uint32_t ones[4] = {0x4d18d7d2, 0x430ac65a, 0xbd2fa22a, 0x0afae10d};
    uint32_t x[4];
    tt_rng_u32x4((tt_rng_key){0}, 0, x);
    assert_memory_equal(x, zero, sizeof x);
    tt_rng_u32x4((tt_rng_key){UINT64_MAX}, UINT64_MAX, x);
    assert_memory_equal(x, ones, sizeof x);
}

static void test_rng_key_depends_on_all_three(void **state)
{
    (void)state;
    uint64_t k = tt_rng_key_make(1, "w", 2).k;
    assert_true(k == tt_rng_key_make(1, "w", 2).k);
    assert_true(k != tt_rng_key_make(2, "w", 2).k);
    assert_true(k != tt_rng_key_make(1, "v", 2).k);
    assert_true(k != tt_rng_key_make(1, "w", 3).k);
    assert_true(tt_rng_key_make(1, NULL, 2).k == tt_rng_key_make(1, "", 2).k);
}

static void test_rng_key_is_frozen(void **state)
{
    (void)state; /* initial values of every run hang on these: they may never change */
    assert_true(tt_rng_key_make(0, "", 0).k == UINT64_C(0xf0a390d5a40e58df));
    assert_true(tt_rng_key_make(42, "model.layers.0.self_attn.q_proj.weight", 7).k ==
                UINT64_C(0x74501a2d625aeef6));
}

static void test_rng_uniform_moments(void **state)
{
    (void)state;
    enum { N = 200000 };
    tt_rng_key key = tt_rng_key_make(3, "u", 0);
    double sum = 0, squares = 0;
    for (uint64_t i = 0; i < N; i++) {
        double u = tt_rng_uniform(key, i);
        assert_true(u > 0.0 && u < 1.0);
        sum += u;
        squares += u * u;
    }
    assert_true(fabs(sum / N - 0.5) < 5 * 0.2887 / sqrt(N));
    assert_true(fabs(squares / N - 1.0 / 3) < 5 * 0.2981 / sqrt(N));
    assert_true(tt_rng_uniform(key, 4) != tt_rng_uniform(key, 5)); /* two of one counter */
}

/* Computed to 40 digits by mpmath; Wichura's algorithm promises about 1e-16 relative error. */
static void test_normal_quantile_known_values(void **state)
{
    (void)state;
    static const double cases[][2] = {
        {0.25,   -0.6744897501960817432},
        {0.001,  -3.0902323061678135415},
        {0.025,  -1.9599639845400542355},
        {1e-20,  -9.2623400897984075737},
        {1e-300, -37.047096299361199237},
        {0.1,    -1.2815515655446004   },
    };
    for (size_t i = 0; i < TT_COUNT(cases); i++)
        assert_true(fabs(tt_normal_quantile(cases[i][0]) / cases[i][1] - 1) < 1e-15);
    assert_true(tt_normal_quantile(0.5) == 0.0);
    assert_true(tt_normal_quantile(0.75) == -tt_normal_quantile(0.25));
    assert_true(isinf(tt_normal_quantile(0.0)) && isinf(tt_normal_quantile(1.0)));
    assert_true(isnan(tt_normal_quantile(-0.1)) && isnan(tt_normal_quantile(NAN)));
}

static void test_normal_quantile_inverts_cdf(void **state)
{
    (void)state;
    for (double x = -8; x <= 5; x += 0.01) {
        double p = tt_normal_cdf(x);
        double slope = 2.5066282746310002 * exp(x * x / 2); /* dx/dp, times p's own rounding */
        assert_true(fabs(tt_normal_quantile(p) - x) < 1e-14 * (1 + fabs(x)) + 4e-16 * slope * p);
    }
    assert_true(tt_normal_cdf(0.0) == 0.5);
}

static void check_permutation(uint64_t n, tt_rng_key key)
{
    uint8_t *seen = calloc(n, 1);
    assert_non_null(seen);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t j = tt_rng_permute(key, n, i);
        assert_true(j < n);
        assert_int_equal(seen[j], 0);
        seen[j] = 1;
    }
    free(seen);
}

static void test_rng_permute_is_a_bijection(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1,   2,   3,   4,   5,    7,     16,   17,
                                     100, 255, 256, 257, 1000, 65536, 65537};
    for (size_t i = 0; i < TT_COUNT(sizes); i++)
        for (uint64_t seed = 0; seed < 4; seed++)
            check_permutation(sizes[i], tt_rng_key_make(seed, "perm", sizes[i]));
    tt_rng_key key = {1};
    assert_true(tt_rng_permute(key, UINT64_MAX, UINT64_MAX - 1) < UINT64_MAX);
}

/* chi² over the n! orders that the keys give: at most 5 sigma. */
static void test_rng_permute_of_few_elements_gives_every_order(void **state)
{
    (void)state;
    static const int factorial[] = {[5] = 120, [6] = 720};
    for (int n = 5; n <= 6; n++) {
        static int count[46656]; /* 6 digits to the base 6 */
        const double each = 100;
        const uint64_t keys = (uint64_t)(each * factorial[n]);
        double chi2 = 0;
        int orders = 0;
        memset(count, 0, sizeof count);
        for (uint64_t k = 0; k < keys; k++) {
            int code = 0;
            for (int i = 0; i < n; i++)
                code = code * 6 +
                       (int)tt_rng_permute(tt_rng_key_make(k, "few", 0), (uint64_t)n, (uint64_t)i);
            count[code]++;
        }
        for (size_t i = 0; i < TT_COUNT(count); i++) {
            orders += count[i] > 0;
            chi2 += count[i] > 0 ? (count[i] - each) * (count[i] - each) / each : 0;
        }
        const double free = factorial[n] - 1;
        assert_int_equal(orders, factorial[n]);
        assert_true(chi2 < free + 5 * sqrt(2 * free));
    }
}

static void test_rng_permute_is_even_over_keys(void **state)
{
    (void)state;
    enum { N = 10, KEYS = 20000 };
    static int count[N][N];
    memset(count, 0, sizeof count);
    for (uint64_t k = 0; k < KEYS; k++)
        for (uint64_t i = 0; i < N; i++)
            count[i][tt_rng_permute(tt_rng_key_make(k, "even", 0), N, i)]++;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) /* mean 2000, sigma 42 */
            assert_in_range(count[i][j], 2000 - 220, 2000 + 220);
}

/* Initial values depend on this: any start and length, with and without vector instructions. */
static void test_rng_batches_have_the_bits_of_single_numbers(void **state)
{
    (void)state;
    enum { MOST = 3000 };
    static double u[MOST], x[MOST];
    const tt_rng_key key = tt_rng_key_make(5, "batch", 1);
    static const uint64_t starts[] = {0, 1, 254, 255, UINT64_C(0x1ffffffff), UINT64_MAX / 2};
    static const int64_t counts[] = {0, 1, 2, 255, 256, 257, MOST};
    for (size_t s = 0; s < TT_COUNT(starts); s++)
        for (size_t c = 0; c < TT_COUNT(counts); c++) {
            tt_rng_uniforms(key, starts[s], counts[c], u);
            tt_normal_quantiles(counts[c], u, x);
            for (int64_t i = 0; i < counts[c]; i++) {
                const double one = tt_rng_uniform(key, starts[s] + (uint64_t)i),
                             q = tt_normal_quantile(one);
                assert_memory_equal(&u[i], &one, sizeof one);
                assert_memory_equal(&x[i], &q, sizeof q);
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rng_philox_known_answers),
        cmocka_unit_test(test_rng_key_depends_on_all_three),
        cmocka_unit_test(test_rng_key_is_frozen),
        cmocka_unit_test(test_rng_uniform_moments),
        cmocka_unit_test(test_rng_batches_have_the_bits_of_single_numbers),
        cmocka_unit_test(test_normal_quantile_known_values),
        cmocka_unit_test(test_normal_quantile_inverts_cdf),
        cmocka_unit_test(test_rng_permute_is_a_bijection),
        cmocka_unit_test(test_rng_permute_of_few_elements_gives_every_order),
        cmocka_unit_test(test_rng_permute_is_even_over_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
