/* SPDX-License-Identifier: Apache-2.0 */
#include "../../plugins/lr_schedulers/wsd.c"
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void check(config c, int64_t total, int64_t step, double want)
{
    const double got = factor(&c, step, total);
    if (!(fabs(got - want) < 1e-12))
        fail_msg("step %lld of %lld: %.17g, not %.17g", (long long)step, (long long)total, got,
                 want);
}

static void test_wsd_decays_right_after_the_warmup(void **state)
{
    (void)state;
    const config c = {.warmup_ratio = (double)NAN,
                      .warmup_steps = 2,
                      .decay_ratio = (double)NAN,
                      .decay_type = "linear"}; /* D 8, S 1 */
    static const double want[] = {0.5, 1, 1, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125};
    for (int i = 0; i < 10; i++)
        check(c, 10, i, want[i]);
}

static void test_wsd_is_stable_before_the_decay(void **state)
{
    (void)state;
    const config c = {.warmup_ratio = (double)NAN,
                      .warmup_steps = 10,
                      .decay_ratio = 0.2,
                      .decay_type = "linear"}; /* D 20, S 71 */
    check(c, 100, 0, 0.1);
    check(c, 100, 9, 1);
    check(c, 100, 80, 1);
    check(c, 100, 81, 0.95);
    check(c, 100, 99, 0.05);
    check(c, 100, 100, 0.0); /* past the end: the end */
    check(c, 100, 5000, 0.0);
}

static void test_wsd_shapes_and_floor(void **state)
{
    (void)state;
    const config sq = {
        .warmup_ratio = (double)NAN, .warmup_steps = 2, .decay_ratio = 0.8, .decay_type = "sqrt"};
    const config co = {
        .warmup_ratio = (double)NAN, .warmup_steps = 2, .decay_ratio = 0.8, .decay_type = "cosine"};
    const config lo = {.warmup_ratio = (double)NAN,
                       .warmup_steps = 2,
                       .decay_ratio = 0.8,
                       .decay_type = "linear",
                       .min_lr_factor = 0.1};
    check(sq, 10, 4, 0.5);                 /* p 1/4 */
    check(sq, 10, 9, 0.06458565330651471); /* 1 - sqrt(7/8) */
    check(co, 10, 6, 0.5);                 /* p 1/2 */
    check(co, 10, 3, 0.9619397662556434);  /* (1 + cos(pi/8)) / 2 */
    check(lo, 10, 0, 0.5);                 /* the floor is the decay's only */
    check(lo, 10, 9, 0.2125);
}

static void test_wsd_clips_the_warmup_and_rounds_as_python(void **state)
{
    (void)state;
    const config longer = {.warmup_ratio = (double)NAN,
                           .warmup_steps = 200,
                           .decay_ratio = (double)NAN,
                           .decay_type = "linear"};
    check(longer, 10, 0, 0.1);
    check(longer, 10, 9, 1);
    const config half = {.warmup_ratio = (double)NAN,
                         .decay_ratio = 0.25,
                         .decay_type = "linear"}; /* round(2.5) is 2 */
    check(half, 10, 8, 1);
    check(half, 10, 9, 0.5);
    const config overlap = {
        .warmup_ratio = (double)NAN, .warmup_steps = 8, .decay_ratio = 0.8, .decay_type = "linear"};
    check(overlap, 10, 7, 1);
    check(overlap, 10, 8, 1);
    check(overlap, 10, 9, 0.5);
    const config none = {.warmup_ratio = (double)NAN, .decay_ratio = 0.0, .decay_type = "linear"};
    check(none, 10, 0, 1);
    check(none, 10, 9, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wsd_decays_right_after_the_warmup),
        cmocka_unit_test(test_wsd_is_stable_before_the_decay),
        cmocka_unit_test(test_wsd_shapes_and_floor),
        cmocka_unit_test(test_wsd_clips_the_warmup_and_rounds_as_python),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
