/* SPDX-License-Identifier: Apache-2.0 */
#include "cases.h"
#include <math.h>
#include <ttrun/ops.h>
#include <ttrun/random.h>

/* The random numbers of random.h: the cipher's known answers, and the statistics of dropout's masks. The
 * numbers are fixed, so a bound of some standard deviations either always holds or never. */

/* Random123's kat_vectors, philox4x32 with 10 rounds. */
static void test_philox_known_answers(void **state)
{
    static const uint32_t in[3][6] = {
        {0,           0,           0,           0,           0,           0          },
        {0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu},
        {0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u, 0xa4093822u, 0x299f31d0u}
    };
    static const uint32_t out[3][4] = {
        {0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u},
        {0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu},
        {0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}
    };
    (void)state;
    for (int i = 0; i < 3; i++) {
        uint32_t c[4] = {in[i][0], in[i][1], in[i][2], in[i][3]};
        tt_random_words((uint64_t)in[i][5] << 32 | in[i][4], c);
        for (int k = 0; k < 4; k++)
            assert_int_equal(c[k], out[i][k]);
    }
}

static void test_elements_of_a_stream_are_those_of_its_key(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 1000; i++) {
        const uint64_t index = i * 0x9e3779b97f4a7c15u;
        assert_true(tt_random_uniform(tt_random_key(7, 3, "a.b"), index) ==
                    tt_random_at(7, 3, "a.b", index, 0));
    }
}

/* Where a weight of attention is. */
typedef struct place {
    uint64_t seed, stream;
    int64_t step;
    uint32_t row, head, position;
} place;

static int kept_at(const place *x, double p)
{
    return tt_dropout_keeps(tt_dropout_key(x->seed, x->step, x->stream), tt_dropout_limit(p),
                            x->row, x->head, x->position);
}

/* `n` draws with a share p of ones differ from n*p by at most 5 standard deviations. */
static void assert_share(const char *what, int64_t ones, int64_t n, double p)
{
    const double off = ((double)ones - (double)n * p) / sqrt((double)n * p * (1 - p));
    if (fabs(off) > 5)
        fail_msg("%s: %lld of %lld, expected a share of %g (%.1f standard deviations)", what,
                 (long long)ones, (long long)n, p, off);
}

enum { ROWS = 96, HEADS = 8, KEYS = 96, ALL = ROWS * HEADS * KEYS };

static void test_masks_have_their_rate(void **state)
{
    static const double rates[] = {0.01, 0.1, 0.5, 0.9};
    (void)state;
    for (int k = 0; k < 4; k++) {
        int64_t dropped = 0;
        for (uint32_t i = 0; i < ALL; i++) {
            const place x = {
                1, tt_random_stream("h.0.attn"), 4, i / KEYS % ROWS, i / KEYS / ROWS, i % KEYS};
            dropped += !kept_at(&x, rates[k]);
        }
        assert_share("dropped", dropped, ALL, rates[k]);
    }
}

/* Masks of two steps, seeds, layers, heads, rows and positions agree as often as independent ones. */
static void test_masks_are_independent(void **state)
{
    static const char *const names[] = {"seed", "stream", "step",        "row",
                                        "head", "key",    "four keys on"};
    const double p = 0.3;
    (void)state;
    for (int k = 0; k < 7; k++) {
        int64_t both = 0, agree = 0;
        for (uint32_t i = 0; i < ALL; i++) {
            place x = {1,       tt_random_stream("h.0.attn"), 4, i / KEYS % ROWS, i / KEYS / ROWS,
                       i % KEYS},
                  y = x;
            y.seed += k == 0;
            y.stream = k == 1 ? tt_random_stream("h.1.attn") : y.stream;
            y.step += k == 2;
            y.row += k == 3;
            y.head += k == 4;
            y.position += k == 5 ? 1 : k == 6 ? 4 : 0;
            const int a = kept_at(&x, p), b = kept_at(&y, p);
            both += !a && !b;
            agree += a == b;
        }
        assert_share(names[k], both, ALL, p * p);
        assert_share(names[k], agree, ALL, p * p + (1 - p) * (1 - p));
    }
}

/* The same of tt_dropout's masks: streams, steps, and neighbours in a row and in a column. */
static void test_streams_are_independent(void **state)
{
    static const char *const names[] = {"step", "stream", "next element", "next row",
                                        "attention's"};
    const double p = 0.25;
    (void)state;
    const uint64_t key = tt_random_key(1, 4, "h.0.drop"), n = 300000;
    const uint64_t other[] = {tt_random_key(1, 5, "h.0.drop"), tt_random_key(1, 4, "h.1.drop"), key,
                              key, key};
    for (int k = 0; k < 5; k++) {
        int64_t one = 0, both = 0;
        for (uint64_t i = 0; i < n; i++) {
            const int a = tt_random_uniform(key, i) < p;
            const uint64_t at = i + (k == 2 ? 1 : k == 3 ? 768 : 0);
            const int b = k == 4 ? !tt_dropout_keeps(key, tt_dropout_limit(p), (uint32_t)i, 0, 0)
                                 : tt_random_uniform(other[k], at) < p;
            one += a;
            both += a && b;
        }
        assert_share("rate", one, (int64_t)n, p);
        assert_share(names[k], both, (int64_t)n, p * p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox_known_answers),
        cmocka_unit_test(test_elements_of_a_stream_are_those_of_its_key),
        cmocka_unit_test(test_masks_have_their_rate),
        cmocka_unit_test(test_masks_are_independent),
        cmocka_unit_test(test_streams_are_independent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
