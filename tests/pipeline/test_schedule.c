/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config.h"
#include "pipeline/schedule.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Schedules against the executable specification (tests/golden/pipeline.json), and as they are for
 * all p <= 8, m <= 32. */

static const char *const names[] = {"GPipe", "1F1B"};

static tt_schedule *make(tt_arena *a, const char *name, int p, int m)
{
    tt_schedule *s = NULL;
    tt_error err = {0};
    if (tt_schedule_make(name, p, m, a, &s, &err) != TT_OK)
        fail_msg("%s %d %d: %s", name, p, m, err.text);
    return s;
}

/* Independent of tt_schedule_check: every action once, in its place, F before its B, micro-batches
 * ascending. */
static void complete_and_ordered(const tt_schedule *s)
{
    for (int r = 0; r < s->n_ranks; r++) {
        int f = 0, b = 0;
        assert_int_equal(s->n_actions[r], 2 * s->n_micro);
        for (int i = 0; i < s->n_actions[r]; i++) {
            const tt_action *x = &s->actions[r][i];
            assert_int_equal(s->stage_rank[x->stage], r);
            if (x->kind == TT_ACTION_F)
                assert_int_equal(x->micro, f++);
            else
                assert_int_equal(x->micro, b++);
            assert_true(f >= b);
        }
        assert_int_equal(f, s->n_micro);
        assert_int_equal(b, s->n_micro);
    }
}

static void test_schedules_are_complete_and_ordered(void **state)
{
    tt_arena *a = tt_arena_new();
    (void)state;
    for (size_t k = 0; k < TT_COUNT(names); k++)
        for (int p = 1; p <= 8; p++)
            for (int m = 1; m <= 32; m++)
                complete_and_ordered(make(a, names[k], p, m));
    tt_arena_free(a);
}

/* Two messages are buffered in a direction (comm.h): with one or two crossing values no schedule
 * waits for ever. */
static void test_schedules_run_with_two_buffered_sends(void **state)
{
    tt_arena *a = tt_arena_new();
    (void)state;
    for (size_t k = 0; k < TT_COUNT(names); k++)
        for (int p = 1; p <= 8; p++)
            for (int m = 1; m <= 32; m++) {
                const tt_schedule *s = make(a, names[k], p, m);
                for (int n = 1; n <= 2; n++)
                    if (!tt_schedule_runs(s, n, 2))
                        fail_msg("%s p %d m %d, %d messages: deadlock", names[k], p, m, n);
            }
    tt_arena_free(a);
}

/* The check can fail: 1F1B's two directions wait for each other where nothing, or less than a
 * burst, is buffered. */
static void test_unbuffered_1f1b_deadlocks(void **state)
{
    tt_arena *a = tt_arena_new();
    (void)state;
    assert_false(tt_schedule_runs(make(a, "1F1B", 2, 4), 1, 0));
    assert_true(tt_schedule_runs(make(a, "1F1B", 2, 4), 1, 1));
    assert_false(tt_schedule_runs(make(a, "1F1B", 2, 4), 4, 2));
    assert_true(tt_schedule_runs(make(a, "GPipe", 4, 8), 1, 0));
    assert_true(tt_schedule_runs(make(a, "1F1B", 1, 4), 9, 0));
    tt_arena_free(a);
}

static const tt_json *get(const tt_json *o, const char *key)
{
    const tt_json *v = tt_json_get(o, key);
    if (!v)
        fail_msg("no \"%s\" in pipeline.json", key);
    return v;
}

static void same_lists(const tt_schedule *s, const tt_json *lists)
{
    for (int r = 0; r < s->n_ranks; r++) {
        tt_str t = {0};
        for (int i = 0; i < s->n_actions[r]; i++)
            tt_str_printf(&t, "%s%c%d", i ? " " : "",
                          s->actions[r][i].kind == TT_ACTION_F ? 'F' : 'B', s->actions[r][i].micro);
        assert_string_equal(tt_str_get(&t), lists->items[r]->string);
        tt_str_free(&t);
    }
}

static void same_case(tt_arena *a, const tt_json *c)
{
    static const double fb[2][2] = {
        {1, 2},
        {2, 3}
    };
    const tt_schedule *s =
        make(a, get(c, "name")->string, (int)get(c, "p")->integer, (int)get(c, "m")->integer);
    for (int k = 0; k < 2; k++) {
        const double busy = s->n_micro * (fb[k][0] + fb[k][1]),
                     bubble = tt_schedule_bubble(s, fb[k][0], fb[k][1]);
        const double span = (double)get(c, "makespan")->items[k]->integer;
        if (fabs(busy / (1 - bubble) - span) > 1e-6 * span)
            fail_msg("%s p %d m %d: makespan %g, specified %g", s->name, s->n_ranks, s->n_micro,
                     busy / (1 - bubble), span);
    }
    for (int r = 0; r < s->n_ranks; r++)
        assert_int_equal(tt_schedule_in_flight(s, r), get(c, "in_flight")->items[r]->integer);
    if (tt_json_get(c, "lists"))
        same_lists(s, get(c, "lists"));
}

static void test_lists_and_makespans_are_the_specifications(void **state)
{
    tt_arena *a = tt_arena_new();
    const char *src = getenv("SRC");
    const char *path = tt_arena_printf(a, "%s/tests/golden/pipeline.json", src ? src : ".");
    char *text;
    size_t n;
    tt_error err = {0};
    const tt_json *root;
    (void)state;
    if (tt_read_file(path, 0, &text, &n, &err) != TT_OK ||
        tt_json_parse(a, path, text, n, &root, &err) != TT_OK)
        fail_msg("%s", err.text);
    const tt_json *cases = get(root, "cases");
    assert_true(cases->n > 80);
    for (size_t i = 0; i < cases->n; i++)
        same_case(a, cases->items[i]);
    free(text);
    tt_arena_free(a);
}

/* 1F1B holds p - r micro-batches on rank r, GPipe all. */
static void test_in_flight_counts(void **state)
{
    tt_arena *a = tt_arena_new();
    (void)state;
    for (int p = 2; p <= 8; p++)
        for (int m = 1; m <= 32; m++)
            for (int r = 0; r < p; r++) {
                assert_int_equal(tt_schedule_in_flight(make(a, "1F1B", p, m), r), TT_MIN(p - r, m));
                assert_int_equal(tt_schedule_in_flight(make(a, "GPipe", p, m), r), m);
            }
    assert_int_equal(tt_schedule_in_flight(make(a, "GPipe", 1, 9), 0), 1);
    tt_arena_free(a);
}

/* ---- the checker refuses what is wrong ---- */

static const char *complaint(tt_arena *a, int rank, int i, int j)
{
    tt_schedule *s = make(a, "1F1B", 3, 4);
    tt_error err = {0};
    const tt_action x = s->actions[rank][i];
    s->actions[rank][i] = s->actions[rank][j];
    s->actions[rank][j] = x;
    if (tt_schedule_check(s, &err) == TT_OK)
        return "";
    return tt_arena_str(a, err.text);
}

static void test_swaps_are_refused(void **state)
{
    tt_arena *a = tt_arena_new();
    int refused = 0, n = 0;
    (void)state;
    for (int r = 0; r < 3; r++)
        for (int i = 0; i < 8; i++)
            for (int j = i + 1; j < 8; j++, n++)
                refused += *complaint(a, r, i, j) != 0;
    assert_true(refused > n / 2); /* some swaps of F and B are still schedules */
    assert_non_null(strstr(complaint(a, 0, 0, 1), "do not ascend"));
    assert_non_null(strstr(complaint(a, 2, 0, 1), "deadlock")); /* B0 before its F0 */
    tt_arena_free(a);
}

static void test_missing_and_misplaced_actions_are_refused(void **state)
{
    tt_arena *a = tt_arena_new();
    tt_error err = {0};
    (void)state;
    tt_schedule *s = make(a, "GPipe", 2, 3);
    s->n_actions[1]--;
    assert_int_equal(tt_schedule_check(s, &err), TT_EINVAL);
    assert_non_null(strstr(err.text, "missing"));
    s = make(a, "GPipe", 2, 3);
    s->actions[1][0].stage = 0;
    assert_int_equal(tt_schedule_check(s, &err), TT_EINVAL);
    assert_non_null(strstr(err.text, "another rank"));
    tt_arena_free(a);
}

static void test_unknown_name_lists_the_known(void **state)
{
    tt_arena *a = tt_arena_new();
    tt_schedule *s = NULL;
    tt_error err = {0};
    (void)state;
    assert_int_equal(tt_schedule_make("ZigZag", 2, 2, a, &s, &err), TT_EINVAL);
    assert_non_null(strstr(err.text, "1F1B"));
    assert_non_null(strstr(err.text, "GPipe"));
    assert_int_equal(tt_schedule_make("GPipe", 0, 2, a, &s, &err), TT_EINVAL);
    assert_int_equal(tt_schedule_make("GPipe", 2, 0, a, &s, &err), TT_EINVAL);
    assert_null(s);
    tt_arena_free(a);
}

static void test_drawing_names_every_action(void **state)
{
    tt_arena *a = tt_arena_new();
    tt_str t = {0};
    (void)state;
    tt_schedule_draw(make(a, "1F1B", 2, 2), &t);
    assert_string_equal(tt_str_get(&t), "rank 0: 0F0 0F1 0B0 0B1\nrank 1: 1F0 1B0 1F1 1B1\n");
    tt_str_free(&t);
    tt_arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schedules_are_complete_and_ordered),
        cmocka_unit_test(test_schedules_run_with_two_buffered_sends),
        cmocka_unit_test(test_unbuffered_1f1b_deadlocks),
        cmocka_unit_test(test_lists_and_makespans_are_the_specifications),
        cmocka_unit_test(test_in_flight_counts),
        cmocka_unit_test(test_swaps_are_refused),
        cmocka_unit_test(test_missing_and_misplaced_actions_are_refused),
        cmocka_unit_test(test_unknown_name_lists_the_known),
        cmocka_unit_test(test_drawing_names_every_action),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
