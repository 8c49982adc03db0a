/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "folder_test.h"
#include "train/loop.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* Which validation losses end a run early. */

static tt_setup setup;
static tt_loop *loop;
static char folder[TEST_FOLDER];

static void open_loop(int64_t patience, double threshold)
{
    assert_true(test_folder("early", folder));
    setup.core.dump_folder = folder;
    setup.core.validation.early_stopping_patience = patience;
    setup.core.validation.early_stopping_threshold = threshold;
    loop = calloc(1, sizeof *loop);
    assert_non_null(loop);
    loop->s = &setup;
    loop->main = true;
    loop->steps = 1000;
    loop->rank.dist.world = 1;
    loop->rank.arena = tt_arena_new();
}

static void close_loop(void)
{
    tt_str_free(&loop->early.lines);
    tt_arena_free(loop->rank.arena);
    free(loop);
}

/* The number of losses after which the run ends; 0: it does not. */
static size_t ends_after(const double *losses, size_t n)
{
    tt_error err = {0};
    for (size_t i = 0; i < n; i++) {
        loop->step++;
        if (tt_loop_note_early(loop, losses[i], &err) != TT_OK)
            fail_msg("%s", err.text);
        if (loop->early.stops)
            return i + 1;
    }
    return 0;
}

/* The same run, resumed after its newest step, or before the validation of that step. */
static void resume(bool due)
{
    tt_error err = {0};
    tt_str_free(&loop->early.lines);
    loop->early = (tt_early){0};
    loop->validation_due = due;
    if (tt_loop_open_early(loop, &err) != TT_OK)
        fail_msg("%s", err.text);
}

static void expect(int64_t best_step, int64_t worse, int64_t validations)
{
    assert_int_equal(loop->early.best_step, best_step);
    assert_int_equal(loop->early.worse, worse);
    assert_int_equal(loop->early.validations, validations);
}

static void test_losses_that_are_not_lower_end_a_run(void **state)
{
    static const double losses[] = {5, 4, 4, 3, 3.5, 3, 3.25};
    (void)state;
    open_loop(3, 0);
    assert_int_equal(ends_after(losses, TT_COUNT(losses)), 7);
    expect(4, 3, 7);
    close_loop();
    open_loop(3, 0.75); /* 3.5 and 3 are lower than 4, but not by so much */
    static const double slow[] = {5, 4, 3.5, 3.3, 3.25};
    assert_int_equal(ends_after(slow, TT_COUNT(slow)), 5);
    expect(2, 3, 5);
    close_loop();
}

/* A loss of NaN is not lower than any, and any is lower than a first loss of NaN. */
static void test_nan_is_not_lower(void **state)
{
    static const double losses[] = {NAN, 5, 4, NAN, 3, NAN, NAN};
    (void)state;
    open_loop(2, 0);
    assert_int_equal(ends_after(losses, TT_COUNT(losses)), 7);
    expect(5, 2, 7);
    close_loop();
    open_loop(2, 0); /* all of them */
    static const double all[] = {NAN, NAN, NAN};
    assert_int_equal(ends_after(all, TT_COUNT(all)), 3);
    close_loop();
}

static void test_a_resumed_run_goes_on_counting(void **state)
{
    static const double losses[] = {NAN, 5, 4, 4.5};
    (void)state;
    open_loop(2, 0);
    assert_int_equal(ends_after(losses, TT_COUNT(losses)), 0);
    resume(false);
    expect(3, 1, 4);
    resume(true); /* the validation of step 4 comes again */
    expect(3, 0, 3);
    assert_int_equal(loop->steps, 1000);
    loop->step = 3;
    assert_int_equal(ends_after(&losses[3], 1), 0);
    assert_int_equal(ends_after(&losses[1], 1), 1);
    resume(false); /* it has ended */
    assert_int_equal(loop->steps, 5);
    close_loop();
}

int main(void)
{
    tt_log_set_level(TT_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_losses_that_are_not_lower_end_a_run),
        cmocka_unit_test(test_nan_is_not_lower),
        cmocka_unit_test(test_a_resumed_run_goes_on_counting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
