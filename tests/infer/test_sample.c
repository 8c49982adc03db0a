/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/texts.h"
#include "infer/sample.h"
#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Sampling tokens: which tokens may appear, how often, and that only the random keys decide it. */

#define N 6
#define DRAWS 20000
static const float logits[N] = {1.0f, 3.0f, 2.0f, 3.0f, -INFINITY, 0.0f};

static void draw(const tt_sampling *o, double share[N])
{
    tt_sampler s;
    assert_int_equal(tt_sampler_init(&s, o, N, NULL), TT_OK);
    memset(share, 0, N * sizeof *share);
    for (uint64_t i = 0; i < DRAWS; i++) {
        const int32_t id = tt_sample_token(&s, logits, i % 7, i);
        assert_in_range(id, 0, N - 1);
        share[id] += 1.0 / DRAWS;
    }
    tt_sampler_release(&s);
}

/* Shares against exp(logit / t) over the ids of `kept`, to four standard deviations. */
static void check(const tt_sampling *o, const char *kept)
{
    double share[N], want[N], sum = 0;
    draw(o, share);
    for (int i = 0; i < N; i++)
        sum += want[i] = kept[i] == '1' ? exp((double)logits[i] / o->temperature) : 0;
    for (int i = 0; i < N; i++) {
        const double p = want[i] / sum;
        if (fabs(share[i] - p) > 4 * sqrt(p * (1 - p) / DRAWS) + 1e-9)
            fail_msg("id %d: %.4f of the draws, %.4f wanted", i, share[i], p);
    }
}

static void test_sampling_follows_the_weights(void **state)
{
    (void)state;
    check(&(tt_sampling){.temperature = 1, .top_p = 1}, "111101");
    check(&(tt_sampling){.temperature = 0.5, .top_p = 1, .seed = 3}, "111101");
    check(&(tt_sampling){.temperature = 3, .top_k = 3, .top_p = 1}, "011100");
    check(&(tt_sampling){.temperature = 1, .top_k = 100, .top_p = 1}, "111101");
    /* e^-1 is 0.37, e^-2 is 0.135, e^-3 is 0.05 */
    check(&(tt_sampling){.temperature = 1, .top_p = 1, .min_p = 0.1}, "111100");
    check(&(tt_sampling){.temperature = 1, .top_p = 1, .min_p = 0.36}, "011100");
    check(&(tt_sampling){.temperature = 1, .top_p = 1, .min_p = 1}, "010100");
    check(&(tt_sampling){.temperature = 1, .top_k = 3, .top_p = 1, .min_p = 0.1}, "011100");
    check(&(tt_sampling){.temperature = 1, .top_p = 0.99, .min_p = 0.36}, "011100");
    /* masses: 3 and 3 are 0.392 each, 2 is 0.144, 1 is 0.053, 0 is 0.02 */
    check(&(tt_sampling){.temperature = 1, .top_p = 0.78}, "010100");
    check(&(tt_sampling){.temperature = 1, .top_p = 0.8}, "011100");
    check(&(tt_sampling){.temperature = 1, .top_p = 0.92}, "011100");
    check(&(tt_sampling){.temperature = 1, .top_p = 0.94}, "111100");
    /* of the three likeliest, 3 and 3 are 0.845 */
    check(&(tt_sampling){.temperature = 1, .top_k = 3, .top_p = 0.84}, "010100");
    check(&(tt_sampling){.temperature = 1, .top_k = 3, .top_p = 0.85}, "011100");
    /* ties go to the lower id */
    check(&(tt_sampling){.temperature = 1, .top_k = 1, .top_p = 1}, "010000");
    check(&(tt_sampling){.temperature = 1, .top_p = 0.0}, "010000");
}

/* In a heap of equal weights the second to leave is the last one, unless ids decide. A half of them is three, exactly. */
static void test_of_equal_logits_the_lower_ids_stay(void **state)
{
    static const float equal[N] = {2, 2, 2, 2, 2, 2};
    static const struct {
        tt_sampling o;
        int n;
    } rows[] = {
        {{.temperature = 1, .top_k = 2, .top_p = 1}, 2},
        {{.temperature = 1, .top_p = 0.3},           2},
        {{.temperature = 1, .top_p = 0.5},           3},
    };
    tt_sampler s;
    (void)state;
    for (size_t k = 0; k < TT_COUNT(rows); k++) {
        int drawn[N] = {0};
        assert_int_equal(tt_sampler_init(&s, &rows[k].o, N, NULL), TT_OK);
        for (uint64_t i = 0; i < 100; i++) {
            const int32_t id = tt_sample_token(&s, equal, 0, i);
            assert_in_range(id, 0, N - 1);
            drawn[id]++;
        }
        for (int i = 0; i < N; i++)
            assert_int_equal(drawn[i] > 0, i < rows[k].n);
        tt_sampler_release(&s);
    }
}

static void test_greedy_takes_the_first_of_the_largest(void **state)
{
    tt_sampler s;
    (void)state;
    assert_int_equal(tt_sampler_init(&s, &(tt_sampling){.top_p = 1}, N, NULL), TT_OK);
    assert_int_equal(tt_sample_token(&s, logits, 0, 0), 1);
    const float broken[N] = {0, 1, NAN, 0, 0, 0},
                none[N] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY};
    assert_int_equal(tt_sample_token(&s, broken, 0, 0), -1);
    assert_int_equal(tt_sample_token(&s, none, 0, 0), -1);
    tt_sampler_release(&s);
}

static void test_a_sampled_token_depends_on_its_keys_alone(void **state)
{
    const tt_sampling o = {.temperature = 1, .top_p = 1, .seed = 1};
    tt_sampling other = o;
    tt_sampler a, b;
    int seed = 0, stream = 0, position = 0;
    (void)state;
    other.seed = 2;
    assert_int_equal(tt_sampler_init(&a, &o, N, NULL), TT_OK);
    assert_int_equal(tt_sampler_init(&b, &other, N, NULL), TT_OK);
    for (uint64_t i = 0; i < 200; i++) {
        const int32_t id = tt_sample_token(&a, logits, 3, i);
        seed += id != tt_sample_token(&b, logits, 3, i);
        stream += id != tt_sample_token(&a, logits, 4, i);
        position += id != tt_sample_token(&a, logits, 3, i + 1000);
        assert_int_equal(id, tt_sample_token(&a, logits, 3, i));
    }
    assert_true(seed > 60 && stream > 60 && position > 60);
    tt_sampler_release(&a);
    tt_sampler_release(&b);
}

static void test_characters_are_printed_only_when_complete(void **state)
{
    static const struct {
        const char *bytes;
        size_t whole;
    } rows[] = {
        {"",                  0},
        {"abc",               3},
        {"\xc3",              0}, /* the rest may come */
        {"a\xe2\x82",         1},
        {"a\xe2\x82\xac",     4},
        {"\xf0\x9f\x98",      0},
        {"\xf0\x9f\x98\x80!", 5},
        {"\xff",              1}, /* never a character */
        {"\x80",              1},
        {"\xe2\x82x",         3}, /* cut short: nothing can complete it */
        {"\xc0\x80",          2},
        {"\xff\xe2",          1},
        {"\xc3\xa9\xc3",      2},
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(rows); i++)
        if (tt_utf8_whole(rows[i].bytes, strlen(rows[i].bytes)) != rows[i].whole)
            fail_msg("row %zu: %zu", i, tt_utf8_whole(rows[i].bytes, strlen(rows[i].bytes)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sampling_follows_the_weights),
        cmocka_unit_test(test_of_equal_logits_the_lower_ids_stay),
        cmocka_unit_test(test_greedy_takes_the_first_of_the_largest),
        cmocka_unit_test(test_a_sampled_token_depends_on_its_keys_alone),
        cmocka_unit_test(test_characters_are_printed_only_when_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
