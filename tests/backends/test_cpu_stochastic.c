/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "cpu_harness.h"

/* random_keys, keyed_uniform and stochastic_round: exact where they must be, and unbiased. */

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* Every kind of f32: zeros, subnormals, normals, the largest, infinities and NaN, of both signs. */
static uint32_t some_bits(int i)
{
    static const uint32_t kinds[] = {0,          1,          0xffff,     0x10000,    0x7fffff,
                                     0x800000,   0x3f800000, 0x3f800001, 0x3f80ffff, 0x7f7effff,
                                     0x7f7f0000, 0x7f7f0001, 0x7f7fffff, 0x7f800000, 0x7f800001,
                                     0x7fc00000, 0x7fffffff};
    const int n = (int)TT_COUNT(kinds);
    return i < 2 * n ? kinds[i / 2] | (i % 2 ? 0x80000000 : 0) : (uint32_t)i * 2654435761u;
}

static void check_rounded(uint32_t bits, uint32_t u16)
{
    const uint32_t size = bits & 0x7fffffff, below = size & 0xffff0000, fraction = size & 0xffff;
    const uint32_t got = bits_of(tt_stochastic_rounded(float_of(bits), (float)u16 * 0x1p-16f));
    assert_int_equal(got & 0xffff, 0);
    assert_int_equal(got >> 31, bits >> 31);
    if (size > 0x7f800000)
        assert_true((got & 0x7fffffff) > 0x7f800000);
    else if (size == 0x7f800000 || !fraction)
        assert_int_equal(got, bits);
    else if (size > 0x7f7f0000)
        assert_int_equal(got & 0x7fffffff, 0x7f7f0000);
    else
        assert_int_equal(got & 0x7fffffff, below + (u16 + fraction >= 0x10000 ? 0x10000 : 0));
}

static void test_rounding_goes_to_a_neighbour_and_keeps_what_fits(void **state)
{
    (void)state;
    for (int i = 0; i < 20000; i++)
        for (uint32_t u = 0; u < 0x10000; u += 0x3331)
            check_rounded(some_bits(i), u);
    for (uint32_t u = 0; u < 0x10000; u++) /* all u together: the mean is exact */
        for (int i = 26; i < 34; i++)
            check_rounded(some_bits(i), u);
    int up = 0;
    for (uint32_t u = 0; u < 0x10000; u++)
        up += tt_stochastic_rounded(float_of(0x3f801234), (float)u * 0x1p-16f) > 1.0f;
    assert_int_equal(up, 0x1234);
}

/* The kernels of every instruction set have the bits of the functions, whatever the length. */
static void test_kernels_have_the_bits_of_the_functions(void **state)
{
    enum { R = 61, C = 333 };
    (void)state;
    tt_tensor x = F32(R, C), u = F32(R, C), a = F32(R, 1), b = F32(1, C), y = F32(R, C);
    tt_tensor h = F32(R, C); /* half of its memory is used */
    h.dtype = TT_BF16;
    for (int i = 0; i < R * C; i++)
        fp(&x)[i] = float_of(some_bits(i));
    for (int i = 0; i < R; i++)
        fp(&a)[i] = tt_random_key_at(7, 3, 5, (uint64_t)i);
    for (int i = 0; i < C; i++)
        fp(&b)[i] = tt_random_key_at(7, 3, 6, (uint64_t)i);
    EACH_ISA
    {
        tt_tensor keys[] = {a, b}, both[] = {x, u};
        run(isa, "keyed_uniform", keys, 2, &y, 1, NULL);
        for (int i = 0; i < R * C; i++)
            assert_true(fp(&y)[i] == tt_keyed_uniform(fp(&a)[i / C], fp(&b)[i % C]));
        memcpy(u.data, y.data, R * C * sizeof(float));
        run(isa, "stochastic_round", both, 2, &h, 1, NULL);
        for (int i = 0; i < R * C; i++) {
            const uint32_t want = bits_of(tt_stochastic_rounded(fp(&x)[i], fp(&u)[i])) >> 16;
            const uint32_t got = ((uint16_t *)h.data)[i];
            if ((want & 0x7fff) > 0x7f80)
                assert_true((got & 0x7fff) > 0x7f80);
            else
                assert_int_equal(got, want);
        }
    }
    tt_tensor all[] = {x, u, a, b, y, h};
    drop(all, 6);
}

static void test_keys_depend_on_stream_and_global_index_only(void **state)
{
    (void)state;
    const uint64_t streams[] = {11, 12, 13}, last[] = {12, 13};
    const tt_attrs_random_keys at = {.n_streams = 3, .streams = streams};
    const tt_attrs_random_keys rest = {.n_streams = 2, .streams = last};
    tt_tensor whole = F32(3, 70), part = F32(3, 20), members = F32(2, 70);
    part.begin[1] = 31;
    part.global[0] = 3;
    part.global[1] = 70;
    EACH_ISA
    {
        run(isa, "random_keys", NULL, 0, &whole, 1, &at);
        run(isa, "random_keys", NULL, 0, &part, 1, &at);
        run(isa, "random_keys", NULL, 0, &members, 1, &rest);
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < 20; j++)
                assert_true(fp(&part)[i * 20 + j] == fp(&whole)[i * 70 + j + 31]);
        assert_memory_equal(members.data, fp(&whole) + 70, 140 * sizeof(float));
        for (int i = 0; i < 210; i++)
            assert_true(isnormal(fp(&whole)[i]) && (i < 70 || fp(&whole)[i] != fp(&whole)[i - 70]));
        assert_true(fp(&whole)[71] == tt_random_key_at(7, 3, 12, 1));
    }
    tt_tensor all[] = {whole, part, members};
    drop(all, 3);
}

/* ---- statistics, of fixed numbers: 24 steps of a parameter [150, 300] ---- */
enum { STEPS = 24, ROWS = 150, COLUMNS = 300, ALL = STEPS * ROWS * COLUMNS };

static float *draw_all(uint64_t stream)
{
    float *u = malloc(ALL * sizeof *u), *out = u;
    for (int s = 0; s < STEPS; s++)
        for (int r = 0; r < ROWS; r++)
            for (int c = 0; c < COLUMNS; c++)
                *out++ = tt_keyed_uniform(tt_random_key_at(42, s + 1, stream, (uint64_t)r),
                                          tt_random_key_at(42, s + 1, 0, (uint64_t)c));
    return u;
}

/* The correlation of u with v, `apart` numbers later, in standard deviations from 0. */
static double correlation(const float *u, const float *v, int apart)
{
    double sum = 0;
    for (int i = apart; i < ALL; i++)
        sum += ((double)u[i - apart] - 0.5) * ((double)v[i] - 0.5);
    return sum * 12 / sqrt(ALL - apart);
}

static void test_the_numbers_are_uniform_and_independent(void **state)
{
    enum { BINS = 1024 };
    (void)state;
    float *m = draw_all(1), *v = draw_all(2);
    double mean = 0, chi = 0, low = 0;
    int *high_bits = calloc(BINS, sizeof(int)), *low_bits = calloc(64, sizeof(int));
    for (int i = 0; i < ALL; i++) {
        assert_true(m[i] >= 0 && m[i] < 1);
        mean += (double)m[i];
        high_bits[(int)(m[i] * BINS)]++;
        low_bits[(int)(m[i] * 65536) % 64]++;
    }
    for (int k = 0; k < BINS; k++)
        chi += (high_bits[k] - ALL / (double)BINS) * (high_bits[k] - ALL / (double)BINS);
    for (int k = 0; k < 64; k++)
        low += (low_bits[k] - ALL / 64.0) * (low_bits[k] - ALL / 64.0);
    chi = (chi / (ALL / (double)BINS) - (BINS - 1)) / sqrt(2.0 * (BINS - 1));
    low = (low / (ALL / 64.0) - 63) / sqrt(2.0 * 63);
    mean = (mean / ALL - (0.5 - 0x1p-17)) * sqrt(12.0 * ALL);
    const double found[] = {mean,
                            chi,
                            low,
                            correlation(m, v, 0),
                            correlation(m, m, 1),
                            correlation(m, m, 2),
                            correlation(m, m, COLUMNS),
                            correlation(m, m, COLUMNS + 1),
                            correlation(m, m, ROWS * COLUMNS),
                            correlation(m, v, ROWS * COLUMNS)};
    for (size_t i = 0; i < TT_COUNT(found); i++)
        if (!(fabs(found[i]) < 4))
            fail_msg("measure %zu is %.2f standard deviations off", i, found[i]);
    free(high_bits);
    free(low_bits);
    free(m);
    free(v);
}

/* A mean of rate 0.001 in bf16: rounded stochastically it follows on average, rounded to nearest it
 * stays where it is. */
static void test_a_slow_mean_follows_on_average_only(void **state)
{
    enum { N = 4000, AFTER = 700 };
    (void)state;
    double mean = 0;
    float nearest = 1;
    for (int i = 0; i < N; i++) {
        float v = 1;
        for (int s = 0; s < AFTER; s++)
            v = tt_stochastic_rounded(
                v * 0.999f, tt_keyed_uniform(tt_random_key_at(1, s, 9, (uint64_t)(i / 64)),
                                             tt_random_key_at(1, s, 0, (uint64_t)(i % 64))));
        mean += (double)v / N;
    }
    for (int s = 0; s < AFTER; s++) {
        const uint32_t bits = bits_of(nearest * 0.999f);
        nearest = float_of((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000);
    }
    const double want = pow(0.999, AFTER);
    if (!(fabs(mean - want) < 0.004)) /* one element's deviation is about 0.06 */
        fail_msg("the mean is %.5f, not %.5f", mean, want);
    assert_true(nearest == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounding_goes_to_a_neighbour_and_keeps_what_fits),
        cmocka_unit_test(test_kernels_have_the_bits_of_the_functions),
        cmocka_unit_test(test_keys_depend_on_stream_and_global_index_only),
        cmocka_unit_test(test_the_numbers_are_uniform_and_independent),
        cmocka_unit_test(test_a_slow_mean_follows_on_average_only),
    };
    return cmocka_run_group_tests(tests, harness_open, harness_close);
}
