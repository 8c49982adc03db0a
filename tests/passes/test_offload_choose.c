/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/offload_impl.h"
#include "passes/recompute_impl.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* How much waits in host memory: what is allowed, to the byte. The values of a stage, and what a block keeps, are made
 * by hand. */

enum { PIECE = 2 * TT_OFFLOAD_LEAST_BYTES, N_PIECES = 3 };

/* How many of three values of a block are chosen. */
static int chosen(const tt_offload_opts *o)
{
    tt_arena *a = tt_arena_new();
    tt_value value[N_PIECES];
    tt_offload_value values[N_PIECES];
    tt_graph g = {.n_blocks = 1};
    tt_offload_stage s = {.g = &g, .o = o, .a = a, .values = values, .n = N_PIECES};
    int n = 0;
    for (int i = 0; i < N_PIECES; i++) {
        value[i] = (tt_value){.id = i};
        values[i] = (tt_offload_value){.value = &value[i], .bytes = PIECE};
    }
    tt_offload_choose(&s);
    for (int i = 0; i < N_PIECES; i++)
        n += values[i].chosen;
    tt_arena_free(a);
    return n;
}

static void test_all_that_is_allowed_is_offloaded(void **state)
{
    (void)state;
    for (int i = 1; i <= N_PIECES; i++) {
        assert_int_equal(
            chosen(&(tt_offload_opts){.mode = TT_OFFLOAD_ALL, .most_bytes = i * PIECE}), i);
        assert_int_equal(
            chosen(&(tt_offload_opts){.mode = TT_OFFLOAD_ALL, .most_bytes = i * PIECE - 1}), i - 1);
    }
    assert_int_equal(chosen(&(tt_offload_opts){.mode = TT_OFFLOAD_ALL}), N_PIECES);
}

static void test_a_block_offloads_its_whole_share(void **state)
{
    static const tt_machine fast = {.name = "fast"};
    (void)state;
    for (int i = 1; i <= N_PIECES; i++)
        for (int less = 0; less < 2; less++) {
            tt_offload_share share = {.bytes = i * PIECE - less, .late = true};
            const tt_offload_opts o = {
                .mode = TT_OFFLOAD_SHARES, .machine = &fast, .shares = {.of = &share, .n = 1}
            };
            assert_int_equal(chosen(&o), i - less);
        }
}

/* The bytes of the first of two blocks that wait in host memory at most. hide: the block computes long enough to hide
 * all copies; else nothing hides. */
static int64_t moved(int64_t most, bool hide)
{
    static const tt_machine machine = {.name = "", .op_latency = 1e-6};
    tt_arena *a = tt_arena_new();
    int64_t kept[N_PIECES] = {PIECE, PIECE, PIECE};
    tt_recipe r = {.bytes = N_PIECES * PIECE, .kept = kept, .n_kept = N_PIECES};
    tt_block_cut all[2] = {
        {.recipes = &r, .n_recipes = 1, .forward = hide, .backward = hide},
        {.block = 1,             .recipes = &r,                  .n_recipes = 1       }
    };
    const int rank = 0, flights = 1000000, way = TT_CUT_JOINT;
    const tt_recompute_cut cut = {.n_ranks = 1,
                                  .stage_rank = &rank,
                                  .in_flight = &flights,
                                  .way = &way,
                                  .most_bytes = most,
                                  .ahead = 1};
    const tt_recompute_opts o = {.cut = &cut, .machine = &machine};
    tt_block_states_find(a, &o, 0, all, 2);
    const tt_block_state last = all[0].states[all[0].n_states - 1];
    const int64_t n =
        (int64_t)(N_PIECES * PIECE - last.bytes + 0.5); /* a millionth is on its way */
    assert_int_equal(all[1].n_states, 1);               /* nothing follows it */
    assert_int_equal(last.share.late, n && !hide);
    tt_arena_free(a);
    return n;
}

static void test_blocks_have_room_for_all_that_is_allowed(void **state)
{
    (void)state;
    for (int hide = 0; hide < 2; hide++) {
        for (int i = 1; i <= N_PIECES; i++) {
            assert_int_equal(moved(i * PIECE, hide), i * PIECE);
            assert_int_equal(moved(i * PIECE - 1, hide), (i - 1) * PIECE);
        }
        assert_int_equal(moved(0, hide), N_PIECES * PIECE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_that_is_allowed_is_offloaded),
        cmocka_unit_test(test_a_block_offloads_its_whole_share),
        cmocka_unit_test(test_blocks_have_room_for_all_that_is_allowed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
