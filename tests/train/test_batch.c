/* SPDX-License-Identifier: Apache-2.0 */
#include "train/train.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Inputs of the graph from a micro-batch: those of tokens further ahead. */

enum { SEQ = 6, N = 12 };

/* Two samples; the first has documents of 4 and 2 tokens, the second one of 6. */
static int32_t ids[N] = {10, 11, 12, 13, 20, 21, 30, 31, 32, 33, 34, 35},
               labels[N] = {11, 12, 13, 14, 21, -100, 31, 32, 33, 34, 35, 36},
               pos[N] = {0, 1, 2, 3, 0, 1, 0, 1, 2, 3, 4, 5},
               seg[N] = {0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0};
static tt_batch batch = {
    .ids = ids, .labels = labels, .pos = pos, .seg = seg, .n_tokens = N, .seq_len = SEQ};

static void check(const tt_feed *f, const char *input, int64_t begin, int64_t end,
                  const int32_t *want)
{
    int32_t have[N];
    tt_error err = {0};
    tt_feed feed = *f;
    if (tt_feed_fill(&feed, input, 0, begin, end, have, &err) != TT_OK)
        fail_msg("%s: %s", input, err.text);
    assert_memory_equal(have, want, (size_t)(end - begin) * sizeof *have);
}

static void test_batch_shifts_within_a_document(void **state)
{
    (void)state;
    const tt_feed f = {.micro = &batch};
    static const int32_t one[N] = {11, 12, 13, 0, 21, 0, 31, 32, 33, 34, 35, 0},
                         three[N] = {13, 0, 0, 0, 0, 0, 33, 34, 35, 0, 0, 0},
                         later[N] = {12, 13, 14, -100, -100, -100, 32, 33, 34, 35, 36, -100};
    check(&f, "ids", 0, N, ids);
    check(&f, "ids+1", 0, N, one);
    check(&f, "ids+3", 0, N, three);
    check(&f, "labels+1", 0, N, later);
    check(&f, "labels+1", 5, 9, later + 5);
    check(&f, "ids+6", 0, N, (int32_t[N]){0});
    check(&f, "ids+900", 0, N, (int32_t[N]){0});
}

/* Context parallelism: the tokens are in another order, and a rank fills some of them. */
static void test_batch_shifts_before_it_reorders(void **state)
{
    (void)state;
    static int32_t from[N] = {0, 1, 10, 11, 2, 3, 8, 9, 4, 5, 6, 7};
    static const tt_token_order order = {.from = from};
    const tt_feed f = {.micro = &batch, .offset = 24, .order = &order};
    static const int32_t want[N] = {11, 12, 35, 0, 13, 0, 33, 34, 21, 0, 31, 32};
    check(&f, "ids+1", 24, 24 + N, want);
    check(&f, "ids+1", 28, 30, want + 4);
}

/* Two samples whose only documents have the same number, and positions that go on by chance. */
static void test_batch_does_not_cross_samples(void **state)
{
    (void)state;
    int32_t p[N], s[N] = {0};
    for (int i = 0; i < N; i++)
        p[i] = i;
    tt_batch b = batch;
    b.pos = p;
    b.seg = s;
    const tt_feed f = {.micro = &b};
    static const int32_t want[N] = {11, 12, 13, 20, 21, 0, 31, 32, 33, 34, 35, 0};
    check(&f, "ids+1", 0, N, want);
}

/* A document from which a token was cut out: what stands behind the gap is further ahead than it seems. */
static void test_batch_does_not_cross_a_gap_of_positions(void **state)
{
    (void)state;
    int32_t p[N] = {0, 1, 3, 4, 0, 1, 0, 1, 2, 3, 4, 5};
    tt_batch b = batch;
    b.pos = p;
    const tt_feed f = {.micro = &b};
    static const int32_t one[N] = {11, 0, 13, 0, 21, 0, 31, 32, 33, 34, 35, 0},
                         two[N] = {0, 0, 0, 0, 0, 0, 32, 33, 34, 35, 0, 0};
    check(&f, "ids+1", 0, N, one);
    check(&f, "ids+2", 0, N, two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batch_shifts_within_a_document),
        cmocka_unit_test(test_batch_shifts_before_it_reorders),
        cmocka_unit_test(test_batch_does_not_cross_samples),
        cmocka_unit_test(test_batch_does_not_cross_a_gap_of_positions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
