/* SPDX-License-Identifier: Apache-2.0 */
#include "golden.h"

typedef struct fixture {
    tt_arena *arena;
    tt_mesh mesh; /* dp_shard 2, cp 2, tp 2 */
} fixture;

static int setup(void **state)
{
    static const char *const names[] = {"dp_shard", "cp", "tp"};
    static const int32_t sizes[] = {2, 2, 2};
    fixture *f = calloc(1, sizeof *f);
    tt_error err;
    f->arena = tt_arena_new();
    *state = f;
    return tt_mesh_make_atoms(names, sizes, 3, NULL, 0, f->arena, &f->mesh, &err);
}

static int teardown(void **state)
{
    fixture *f = *state;
    tt_arena_free(f->arena);
    free(f);
    return 0;
}

static void assert_text(const tt_mesh *m, const tt_placement *p, int n_dims, const char *want)
{
    char text[128];
    tt_placement_print(m, p, n_dims, text, sizeof text);
    assert_string_equal(text, want);
}

static void test_placements_print_dims_cuts_and_partials(void **state)
{
    const fixture *f = *state;
    tt_placement p =
                     {
                         .n = {2,                       1  },
                           .atom = {{0, 1 | TT_IGNORE_UNIT}, {2}}
    },
                 none = {.partial = 0};
    assert_text(&f->mesh, &p, 2, "{dp_shard,cp~},{tp}");
    assert_text(&f->mesh, &none, 2, "{},{}");
    assert_text(&f->mesh, &none, 0, "");
    p.n[0] = p.n[1] = 0;
    p.partial = 7;
    assert_text(&f->mesh, &p, 1, "{} P(cp,dp_shard,tp)"); /* by name */
    p.partial = 4;
    p.partial_max = 1;
    assert_text(&f->mesh, &p, 2, "{},{} Pmax(tp)");
}

static void test_print_stays_within_the_buffer(void **state)
{
    const fixture *f = *state;
    tt_placement p = {.n = {2}, .atom = {{0, 1}}, .partial = 4};
    char text[32];
    for (size_t size = 0; size < sizeof text; size++) {
        memset(text, '?', sizeof text);
        tt_placement_print(&f->mesh, &p, 1, text, size);
        for (size_t i = size; i < sizeof text; i++)
            assert_int_equal(text[i], '?');
        if (size > 0) {
            assert_non_null(memchr(text, '\0', size));
            assert_int_equal(strncmp(text, "{dp_shard,cp} P(tp)", strlen(text)), 0);
        }
    }
}

static void test_equality_sees_order_unit_bit_and_partial_kind(void **state)
{
    tt_placement p = {.n = {2}, .atom = {{0, 1}}, .partial = 4}, q = p;
    (void)state;
    assert_true(tt_placement_equal(&p, &q));
    q.atom[0][0] = 1;
    q.atom[0][1] = 0;
    assert_false(tt_placement_equal(&p, &q));
    q = p;
    q.atom[0][1] |= TT_IGNORE_UNIT;
    assert_false(tt_placement_equal(&p, &q));
    q = p;
    q.partial_max = 1;
    assert_false(tt_placement_equal(&p, &q));
    q = p;
    q.partial = 0;
    assert_false(tt_placement_equal(&p, &q));
    assert_int_equal(tt_placement_shard_atoms(&p, 1), 3);
}

static void test_an_atom_may_be_used_once_only(void **state)
{
    const fixture *f = *state;
    tt_error err;
    tt_placement good = {
        .n = {1,   1                   },
          .atom = {{0}, {1 | TT_IGNORE_UNIT}},
          .partial = 4
    };
    tt_placement dims = {
        .n = {1,   1                   },
          .atom = {{0}, {0 | TT_IGNORE_UNIT}}
    };
    tt_placement partial = {
        .n = {1,   1  },
          .atom = {{0}, {2}},
          .partial = 4
    };
    tt_placement unknown = {.n = {1}, .atom = {{3}}}, outside = {.partial = 8};
    assert_int_equal(tt_placement_check(&f->mesh, &good, 2, &err), TT_OK);
    assert_int_equal(tt_placement_check(&f->mesh, &dims, 2, &err), TT_EINVAL);
    assert_string_equal(err.text, "placement {dp_shard},{dp_shard~}: atom dp_shard is used twice");
    assert_int_equal(tt_placement_check(&f->mesh, &partial, 2, &err), TT_EINVAL);
    assert_string_equal(err.text, "placement {dp_shard},{tp} P(tp): atom tp is used twice");
    assert_int_equal(tt_placement_check(&f->mesh, &unknown, 1, &err), TT_EINVAL);
    assert_non_null(strstr(err.text, "dim 0 is cut by atom 3, the mesh has 3 atoms"));
    assert_int_equal(tt_placement_check(&f->mesh, &outside, 1, &err), TT_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_placements_print_dims_cuts_and_partials, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_print_stays_within_the_buffer, setup, teardown),
        cmocka_unit_test_setup_teardown(test_equality_sees_order_unit_bit_and_partial_kind, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_an_atom_may_be_used_once_only, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
