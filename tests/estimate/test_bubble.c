/* SPDX-License-Identifier: Apache-2.0 */
#include "../pipeline/pipeline_test.h"
#include "train/bubble.h"

/* The bubble of a trace with invented times: nothing here depends on a clock. */

#define NS 1e9

/* The time of an action: as planned, except for one micro-batch that was preempted. */
static int64_t taken(const tt_costs *c, const tt_item *x)
{
    const double s = x->kind == TT_ITEM_RUN    ? tt_action_cost(c, &x->action)
                     : x->kind == TT_ITEM_RECV ? c->comm
                                               : 0;
    return (int64_t)(NS * s) * (x->kind == TT_ITEM_RUN && x->action.micro == 1 ? 50 : 1);
}

/* Merges the traces of all ranks as the two reductions of a step do. */
static tt_part_times traced(const tt_programs *p, const tt_costs *c)
{
    tt_part_times all = {0}, own;
    tt_error err = {0};
    for (int r = 0; r < p->schedule->n_ranks; r++) {
        const int n = p->n_items[r];
        tt_item_time *t = calloc((size_t)n, sizeof *t);
        for (int i = 0; i < n; i++) {
            t[i] = (tt_item_time){.item = &p->items[r][i], .begin_ns = 2 * i, .end_ns = 2 * i + 2};
            t[i].cpu_ns = taken(c, t[i].item);
            t[i].message_ns = t[i].item->kind == TT_ITEM_RUN;
        }
        assert_int_equal(tt_part_times_of(t, n, &own, &err), TT_OK);
        for (int s = 0; s < TT_MAX_STAGES; s++)
            for (int k = 0; k < TT_N_ACTIONS; k++)
                all.part[s][k] = TT_MAXV(all.part[s][k], own.part[s][k]);
        all.message = TT_MAXV(all.message, own.message);
        all.span = TT_MAXV(all.span, own.span);
        all.busy += own.busy;
        free(t);
    }
    return all;
}

/* Sections that take as long as planned give the planned bubble: whole and split backwards, one
 * stage per rank and several, unequal stages. */
static void test_sections_as_fast_as_planned_give_the_planned_bubble(void **state)
{
    uint64_t x = 5;
    (void)state;
    for (size_t k = 0; k < TT_COUNT(all_schedules); k++)
        for (int p = 2; p <= 5; p++) {
            tt_arena *a = tt_arena_new();
            const tt_schedule *s = make(a, all_schedules[k].name, p, all_schedules[k].chunks, 12);
            const tt_costs c = {random_costs(&x, s->n_stages, a), 0.01 * below(&x, 9)};
            const tt_programs *programs = programs_of(s, &c, false, 2, a);
            const tt_part_times all = traced(programs, &c);
            double planned;
            tt_bubble b;
            tt_error err = {0};
            assert_int_equal(tt_programs_bubble(programs, &c, 2, a, &planned, &err), TT_OK);
            assert_int_equal(tt_bubble_of(programs, 2, &all, p, &b, &err), TT_OK);
            if (b.replayed - planned > 1e-6 || planned - b.replayed > 1e-6 || planned <= 0)
                fail_msg("%s on %d: %g as planned, %g replayed", s->name, p, planned, b.replayed);
            tt_arena_free(a);
        }
}

/* If a stage takes longer than planned, the others wait for it. */
static void test_a_slow_stage_is_waited_for(void **state)
{
    tt_arena *a = tt_arena_new();
    tt_stage_cost even[] =
        {
            {1, 1, 1},
            {1, 1, 1}
    },
                  slow[] = {{1, 1, 1}, {3, 3, 3}};
    const tt_costs c = {even, 0}, late = {slow, 0};
    const tt_programs *p = programs_of(make(a, "1F1B", 2, 1, 8), &c, false, 2, a);
    const tt_part_times all = traced(p, &late);
    tt_bubble b;
    (void)state;
    assert_int_equal(tt_bubble_of(p, 2, &all, 2, &b, NULL), TT_OK);
    /* the slow one computes 8 · 9, after 1 and before 2 of the other, which computes 8 · 3 */
    assert_true(b.replayed > 0.35999 && b.replayed < 0.36001);
    tt_arena_free(a);
}

/* Measured by the clock, the time that ranks spend in messages and after their last item is idle.
 */
static void test_bubble_measured_by_the_clock(void **state)
{
    tt_arena *a = tt_arena_new();
    const tt_costs c = {0};
    const tt_programs *p = programs_of(make(a, "1F1B", 2, 1, 3), &c, false, 2, a);
    const tt_part_times all = {.span = 100, .busy = 150};
    const tt_part_times none = {0};
    tt_bubble b;
    (void)state;
    assert_int_equal(tt_bubble_of(p, 2, &all, 2, &b, NULL), TT_OK);
    assert_true(b.measured == 0.25);
    assert_int_equal(tt_bubble_of(p, 2, &none, 2, &b, NULL), TT_OK);
    assert_true(b.measured == 0);
    /* each item spans 2, of which a run spends 1 in messages, a message all */
    const tt_part_times own = traced(p, &c);
    assert_int_equal(own.busy, 2 * 3 * 2);
    assert_int_equal(own.span, 2 * TT_MAXV(p->n_items[0], p->n_items[1]));
    tt_arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sections_as_fast_as_planned_give_the_planned_bubble),
        cmocka_unit_test(test_a_slow_stage_is_waited_for),
        cmocka_unit_test(test_bubble_measured_by_the_clock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
