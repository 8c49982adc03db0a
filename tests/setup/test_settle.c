/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/setup_budget.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* The end of the choice of mode budget. The costs of levels are this file's, so that two ranks of a pipeline can
 * have levels that fit apart and take too much together. */

enum { LEVELS = 12, BUDGET = 800, LEAST_TIME = 100 };

static struct {
    int most_level; /* rank 0 takes more up to this level, once rank 1 has level 10 */
    bool in_full;   /* and where all is computed again */
    int n, level[2];
} world;

/* Rank 0 fits from level 4 on, rank 1 from level 10 on. */
static double bytes_of(int rank, const int *level)
{
    const int l = level[rank];
    const double bytes = l == TT_CUT_FULL        ? 400
                         : l == TT_CUT_SELECTIVE ? 900
                                                 : 1000 - (rank ? 20 : 50) * l;
    const bool beside = !rank && level[1] >= 10;
    return bytes + (beside && (l < 0 ? world.in_full : l <= world.most_level) ? BUDGET : 0);
}

void tt_setup_recompute_cut(tt_setup *s, const int *level, const int *way, double part,
                            tt_recompute_opts *out)
{
    (void)s, (void)way, (void)part, (void)out;
    memcpy(world.level, level, sizeof world.level);
}

tt_recompute_cost tt_recompute_cost_new(const tt_setup *s, tt_arena *a)
{
    (void)s;
    return (tt_recompute_cost){.bytes = tt_arena_array(a, 2, sizeof(double)),
                               .time = tt_arena_array(a, 2, sizeof(double)),
                               .host = tt_arena_array(a, 2, sizeof(double)),
                               .n_levels = tt_arena_array(a, 2, sizeof(int))};
}

tt_status tt_setup_evaluate(tt_setup *s, const tt_recompute_opts *o, tt_arena *a,
                            tt_recompute_cost *out, tt_error *err)
{
    (void)s, (void)o, (void)a, (void)err;
    world.n++;
    for (int r = 0; r < 2; r++) {
        out->n_levels[r] = LEVELS;
        out->bytes[r] = bytes_of(r, world.level);
        out->time[r] = LEAST_TIME + (world.level[r] < 0 ? 2 * LEVELS : world.level[r]);
    }
    return TT_OK;
}

static tt_status choose(int most_level, bool in_full, tt_arena *a, tt_recompute_choice **out,
                        tt_error *err)
{
    static const tt_backend_vt no_device;
    static const tt_component backend = {.vtable = &no_device};
    tt_setup s = {.arena = a, .pipeline_ranks = 2, .backend.component = &backend};
    s.core.activation_checkpoint.memory_gib = BUDGET / (double)(1 << 30);
    memset(&world, 0, sizeof world);
    world.most_level = most_level;
    world.in_full = in_full;
    assert_int_equal(tt_job_load_text(a, "test", "{}", 2, NULL, 0, &s.job, err), TT_OK);
    const tt_status st = tt_setup_choose_recompute(&s, err);
    *out = s.recompute_choice;
    assert_int_equal((*out)->n_plans, world.n);
    return st;
}

/* Up to `most_level` rank 0 takes too much beside level 10 of rank 1. */
static void check_settled(int most_level, int level, double bytes)
{
    tt_arena *a = tt_arena_new();
    tt_recompute_choice *c;
    tt_error err = {0};
    if (choose(most_level, false, a, &c, &err) != TT_OK)
        fail_msg("%s", err.text);
    assert_int_equal(c->level[0], level);
    assert_int_equal(c->level[1], 10);
    assert_true(c->bytes[0] == bytes && c->bytes[1] == BUDGET);
    tt_arena_free(a);
}

static void test_levels_that_fit_together_stay(void **state)
{
    (void)state;
    check_settled(-1, 4, BUDGET);
}

static void test_a_rank_that_takes_too_much_gets_the_next_level(void **state)
{
    (void)state;
    check_settled(4, 5, 750);
    check_settled(7, 8, 600);
    check_settled(LEVELS, TT_CUT_FULL, 400); /* behind the last level */
}

static void test_what_never_fits_together_is_refused(void **state)
{
    tt_arena *a = tt_arena_new();
    tt_recompute_choice *c;
    tt_error err = {0};
    (void)state;
    assert_int_equal(choose(LEVELS, true, a, &c, &err), TT_EINVAL);
    assert_non_null(strstr(err.text, "cannot be reached (on pipeline rank 0)"));
    tt_arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_levels_that_fit_together_stay),
        cmocka_unit_test(test_a_rank_that_takes_too_much_gets_the_next_level),
        cmocka_unit_test(test_what_never_fits_together_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
