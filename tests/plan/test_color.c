/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan_impl.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

/* the function itself, with a count of its steps */
#include "loop_count.h"

#include "plan/color.c"

#include "loop_count_end.h"

/* Properties of tt_plan_color for random lives: no two lives that overlap in time share a byte.
 * The peak is the memory used, and it is at least the most bytes alive at once. For lives nested
 * as in training it is not far above that. */

typedef struct set {
    tt_live *lives, **order;
    tt_value *values;
    size_t n;
} set;

static uint64_t next(uint64_t *s)
{
    *s = *s * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *s >> 33;
}

static set make(tt_arena *a, size_t n)
{
    set s = {tt_arena_array(a, n + 1, sizeof *s.lives), tt_arena_array(a, n + 1, sizeof *s.order),
             tt_arena_array(a, n + 1, sizeof *s.values), n};
    for (size_t i = 0; i < n; i++) {
        s.values[i].id = (int)i;
        s.lives[i] = (tt_live){.known = true, .value = &s.values[i]};
        s.order[i] = &s.lives[i];
    }
    return s;
}

static int64_t most_alive(const set *s)
{
    int64_t most = 0;
    for (size_t i = 0; i < s->n; i++) { /* a maximum is reached where some life begins */
        int64_t now = 0;
        for (size_t j = 0; j < s->n; j++)
            if (s->lives[j].first <= s->lives[i].first && s->lives[i].first <= s->lives[j].last)
                now += s->lives[j].bytes;
        most = TT_MAXV(most, now);
    }
    return most;
}

/* The ratio of the peak to the lower bound. */
static double check(tt_arena *a, set *s)
{
    const int64_t least = most_alive(s), peak = tt_plan_color(a, s->order, s->n);
    int64_t end = 0;
    for (size_t i = 0; i < s->n; i++) {
        const tt_live *x = &s->lives[i];
        assert_true(x->offset >= 0 && x->offset % TT_ALIGNMENT == 0);
        end = TT_MAXV(end, x->offset + x->bytes);
        for (size_t j = i + 1; j < s->n; j++) {
            const tt_live *y = &s->lives[j];
            const bool together = x->first <= y->last && y->first <= x->last;
            if (together && x->offset < y->offset + y->bytes && y->offset < x->offset + x->bytes)
                fail_msg("lives %zu and %zu share bytes", i, j);
        }
    }
    assert_int_equal(peak, end);
    assert_true(peak >= least);
    return least ? (double)peak / (double)least : 1;
}

static void test_random_lifetimes_never_overlap(void **state)
{
    double sum = 0, worst = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        tt_arena *a = tt_arena_new();
        uint64_t r = seed;
        set s = make(a, next(&r) % 120);
        for (size_t i = 0; i < s.n; i++) {
            s.lives[i].first = (int)(next(&r) % 60);
            s.lives[i].last = s.lives[i].first + (int)(next(&r) % (seed % 3 ? 8 : 60));
            s.lives[i].bytes = TT_ALIGNMENT * (int64_t)(next(&r) % (seed % 5 ? 50 : 3));
        }
        const double ratio = check(a, &s);
        sum += ratio;
        worst = TT_MAXV(worst, ratio);
        tt_arena_free(a);
    }
    assert_true(worst <= 1.3);
    assert_true(sum / 400 <= 1.08);
}

/* Forward values that a backward frees in reverse order, and short temporaries of several sizes:
 * the lives of a training step. */
static void test_nested_lifetimes_are_packed_tightly(void **state)
{
    (void)state;
    for (int layers = 1; layers <= 40; layers += 3) {
        tt_arena *a = tt_arena_new();
        set s = make(a, (size_t)layers * 12);
        const int end = 12 * layers;
        for (int l = 0; l < layers; l++)
            for (int k = 0; k < 12; k++) {
                tt_live *x = &s.lives[l * 12 + k];
                x->first = k < 6 ? l * 6 + k : end - (l + 1) * 6 + k - 6;
                x->last = k < 4 ? end - l * 6 - k : x->first + 1 + k % 2;
                x->bytes = TT_ALIGNMENT * (1 + 37 * k % 11);
            }
        assert_true(check(a, &s) <= 1.12);
        tt_arena_free(a);
    }
}

/* The lowest offset that is free for all of x's life next to the lives placed before; the
 * function tries all of them. */
static int64_t lowest_free(const tt_live *x, tt_live *const *before, size_t n)
{
    int64_t at = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (size_t i = 0; i < n; i++) {
            const tt_live *y = before[i];
            if (x->first <= y->last && y->first <= x->last && at < y->offset + y->bytes &&
                y->offset < at + x->bytes) {
                at = y->offset + y->bytes;
                moved = true;
            }
        }
    }
    return at;
}

static void test_lifetimes_get_the_lowest_free_place(void **state)
{
    int checked = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        tt_arena *a = tt_arena_new();
        uint64_t r = seed;
        set s = make(a, 1 + next(&r) % 150);
        const int times = 1 + (int)(next(&r) % 500);
        for (size_t i = 0; i < s.n; i++) {
            s.lives[i].first = (int)(next(&r) % (uint64_t)times);
            s.lives[i].last = s.lives[i].first + (int)(next(&r) % (uint64_t)times);
            s.lives[i].bytes = TT_ALIGNMENT * (int64_t)(next(&r) % 20);
        }
        if (tt_plan_color(a, s.order, s.n) == most_alive(&s)) { /* s.order is the order of places */
            for (size_t i = 0; i < s.n; i++, checked++)
                assert_int_equal(s.order[i]->offset,
                                 s.order[i]->bytes ? lowest_free(s.order[i], s.order, i) : 0);
        }
        tt_arena_free(a);
    }
    assert_true(checked > 500);
}

/* The steps per life of a model of so many layers. */
static double steps_per_life(int layers)
{
    tt_arena *a = tt_arena_new();
    set s = make(a, (size_t)layers * 8);
    const int end = 16 * layers;
    for (int l = 0; l < layers; l++)
        for (int k = 0; k < 8; k++) {
            tt_live *x = &s.lives[l * 8 + k];
            x->first = k < 4 ? l * 8 + k : end - l * 8 - 8 + k;
            x->last = k < 3 ? end - l * 8 - k : x->first + 1 + k % 2;
            x->bytes = TT_ALIGNMENT * (1 + 37 * k % 11);
        }
    const int64_t least = tt_plan_most_alive(a, s.order, s.n);
    loop_passes = 0;
    assert_true(tt_plan_color(a, s.order, s.n) <= least + least / 8);
    tt_arena_free(a);
    return (double)loop_passes / (double)s.n;
}

/* A life takes about as many steps as the square of the logarithm of their number, where a search through all lives
 * takes thousands. */
static void test_many_layers_are_placed_in_a_moment(void **state)
{
    (void)state;
    const double few = steps_per_life(1250), more = steps_per_life(20000);
    print_message("%.0f and %.0f steps per life\n", few, more);
    assert_true(few > 1 && more < 3 * few);
}

static void test_equal_lifetimes_in_any_order_get_equal_places(void **state)
{
    tt_arena *a = tt_arena_new();
    set x = make(a, 50), y = make(a, 50);
    uint64_t r = 5;
    (void)state;
    for (size_t i = 0; i < 50; i++) {
        x.lives[i].first = (int)(next(&r) % 20);
        x.lives[i].last = x.lives[i].first + (int)(next(&r) % 9);
        x.lives[i].bytes = TT_ALIGNMENT * (int64_t)(1 + next(&r) % 4);
        y.lives[i] = x.lives[i];
        y.order[49 - i] = &y.lives[i];
    }
    assert_int_equal(tt_plan_color(a, x.order, 50), tt_plan_color(a, y.order, 50));
    for (size_t i = 0; i < 50; i++)
        assert_int_equal(x.lives[i].offset, y.lives[i].offset);
    tt_arena_free(a);
}

static void test_no_lifetimes_take_no_bytes(void **state)
{
    tt_arena *a = tt_arena_new();
    set s = make(a, 3);
    (void)state;
    assert_int_equal(tt_plan_color(a, s.order, 0), 0);
    assert_int_equal(tt_plan_color(a, s.order, 3), 0); /* of no bytes */
    tt_arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_lifetimes_never_overlap),
        cmocka_unit_test(test_nested_lifetimes_are_packed_tightly),
        cmocka_unit_test(test_lifetimes_get_the_lowest_free_place),
        cmocka_unit_test(test_many_layers_are_placed_in_a_moment),
        cmocka_unit_test(test_equal_lifetimes_in_any_order_get_equal_places),
        cmocka_unit_test(test_no_lifetimes_take_no_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
