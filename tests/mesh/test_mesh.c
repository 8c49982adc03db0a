/* SPDX-License-Identifier: Apache-2.0 */
#include "golden.h"

/* "pp dp_replicate dp_shard cp tp ep" */
static tt_mesh_degrees degrees(const char *text)
{
    tt_mesh_degrees d = {0};
    assert_int_equal(
        sscanf(text, "%d %d %d %d %d %d", &d.pp, &d.dp_replicate, &d.dp_shard, &d.cp, &d.tp, &d.ep),
        6);
    return d;
}

/* "tp0,tp1", "-" for an axis that is not there */
static const char *axis_text(const tt_mesh *m, const char *name, char text[128])
{
    const tt_axis *axis = tt_mesh_axis(m, name);
    size_t at = 0;
    if (axis == NULL)
        return "-";
    for (int i = 0; i < axis->atoms.n; i++)
        at += (size_t)snprintf(text + at, 128 - at, "%s%s", i > 0 ? "," : "",
                               m->atom_name[axis->atoms.atom[i]]);
    return text;
}

/* "dp_shard=2 tp0=2 tp1=2 | tp tp0,tp1 | dp dp_shard | ep - | efsdp dp_shard" */
static void mesh_text(const tt_mesh *m, char *text, size_t size)
{
    static const char *const axes[] = {"tp", "dp", "ep", "efsdp"};
    char buffer[128];
    size_t at = 0;
    text[0] = '\0';
    for (int i = 0; i < m->n_atoms; i++)
        at += (size_t)snprintf(text + at, size - at, "%s%s=%d", i > 0 ? " " : "", m->atom_name[i],
                               (int)m->atom_size[i]);
    for (int i = 0; i < 4; i++)
        at += (size_t)snprintf(text + at, size - at, " | %s %s", axes[i],
                               axis_text(m, axes[i], buffer));
}

static void assert_axis(const tt_mesh *m, const char *name, const char *want)
{
    char text[128];
    assert_string_equal(axis_text(m, name, text), want);
}

static void test_degrees_make_atoms_and_axes(void **state)
{
    static const struct {
        const char *degrees;
        int32_t world;
        int64_t kv_heads;
        const char *mesh;
    } cases[] = {
        {"1 1 -1 1 1 1", 1,  8, " | tp - | dp - | ep - | efsdp -"                                 },
        {"1 1 -1 1 2 1", 8,  8, "dp_shard=4 tp=2 | tp tp | dp dp_shard | ep - | efsdp dp_shard"   },
        {"2 2 2 2 2 1",  32, 0,
         "pp=2 dp_replicate=2 dp_shard=2 cp=2 tp=2 | tp tp | dp dp_replicate,dp_shard | ep - | "
         "efsdp dp_shard,cp"                                                                      },
        {"1 1 1 1 4 1",  4,  2, "tp0=2 tp1=2 | tp tp0,tp1 | dp - | ep - | efsdp -"                },
        {"1 1 1 1 6 1",  6,  4, "tp0=2 tp1=3 | tp tp0,tp1 | dp - | ep - | efsdp -"                },
        {"1 1 1 1 4 1",  4,  8, "tp=4 | tp tp | dp - | ep - | efsdp -"                            },
        {"1 1 1 1 3 1",  3,  2, "tp=3 | tp tp | dp - | ep - | efsdp -"                            },
        {"1 1 1 1 4 1",  4,  0, "tp=4 | tp tp | dp - | ep - | efsdp -"                            },
        {"1 1 4 1 2 8",  8,  8, "dp_shard=4 tp=2 | tp tp | dp dp_shard | ep dp_shard,tp | efsdp -"},
        {"1 1 4 1 2 4",  8,  8,
         "dp_shard0=2 dp_shard1=2 tp=2 | tp tp | dp dp_shard0,dp_shard1 | ep dp_shard1,tp | efsdp "
         "dp_shard0"                                                                              },
        {"1 2 4 2 2 8",  32, 8,
         "dp_replicate=2 dp_shard0=2 dp_shard1=2 cp=2 tp=2 | tp tp | dp "
         "dp_replicate,dp_shard0,dp_shard1 | ep dp_shard1,cp,tp | efsdp dp_shard0"                },
        {"1 1 2 4 1 2",  8,  8,
         "dp_shard=2 cp0=2 cp1=2 | tp - | dp dp_shard | ep cp1 | efsdp dp_shard,cp0"              },
        {"1 1 2 1 4 2",  8,  8,
         "dp_shard=2 tp0=2 tp1=2 | tp tp0,tp1 | dp dp_shard | ep tp1 | efsdp dp_shard"            },
        {"1 1 2 1 8 2",  16, 2,
         "dp_shard=2 tp0=2 tp1=2 tp2=2 | tp tp0,tp1,tp2 | dp dp_shard | ep tp2 | efsdp dp_shard"  },
        {"2 1 -1 1 1 4", 8,  8, "pp=2 dp_shard=4 | tp - | dp dp_shard | ep dp_shard | efsdp -"    },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tt_arena *a = tt_arena_new();
        tt_mesh_degrees d = degrees(cases[i].degrees);
        tt_mesh m;
        tt_error err;
        char text[256];
        if (tt_mesh_make(&d, cases[i].world, cases[i].kv_heads, a, &m, &err) != TT_OK)
            fail_msg("case %zu: %s", i, err.text);
        mesh_text(&m, text, sizeof text);
        assert_string_equal(text, cases[i].mesh);
        assert_int_equal(m.world, cases[i].world);
        assert_int_equal(d.pp * d.dp_replicate * d.dp_shard * d.cp * d.tp, m.world);
        assert_axis(&m, "pp", d.pp > 1 ? "pp" : "-");
        assert_axis(&m, "no such axis", "-");
        if (d.ep > 1)
            assert_int_equal(tt_mesh_degree(&m, &tt_mesh_axis(&m, "ep")->atoms), d.ep);
        tt_arena_free(a);
    }
}

/* The common factor of cp and the number of sequences in a micro-batch cuts between sequences. */
static void test_cp_is_split_by_sequences(void **state)
{
    static const struct {
        int32_t cp, lines;
        const char *atoms, *cuts; /* those that cut lines */
    } cases[] = {
        {2, 2, "cp",      "-"  },
        {4, 2, "cp0,cp1", "cp1"},
        {6, 4, "cp0,cp1", "cp1"},
        {6, 9, "cp0,cp1", "cp1"},
        {4, 3, "cp",      "cp" },
        {3, 6, "cp",      "-"  },
        {4, 1, "cp",      "cp" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tt_arena *a = tt_arena_new();
        tt_mesh_degrees d = {1, 1, 2, cases[i].cp, 2, 1, cases[i].lines};
        tt_mesh m;
        tt_error err;
        assert_int_equal(tt_mesh_make(&d, 4 * cases[i].cp, 0, a, &m, &err), TT_OK);
        assert_axis(&m, "cp", cases[i].atoms);
        const tt_axis *cp = tt_mesh_axis(&m, "cp");
        const int whole = tt_prefix_dividing(&m, &cp->atoms, cases[i].lines);
        assert_string_equal(whole < cp->atoms.n ? m.atom_name[cp->atoms.atom[whole]] : "-",
                            cases[i].cuts);
        tt_arena_free(a);
    }
    tt_mesh_degrees d = {1, 1, 2, 6, 1, 2, 2}; /* experts cut it otherwise */
    tt_mesh m;
    tt_arena *a = tt_arena_new();
    assert_int_equal(tt_mesh_make(&d, 12, 0, a, &m, NULL), TT_OK);
    assert_axis(&m, "ep", "cp1");
    tt_arena_free(a);
}

static void test_bad_degrees_are_named(void **state)
{
    static const struct {
        const char *degrees;
        int32_t world;
        const char *text;
    } cases[] = {
        {"1 1 2 1 3 1",   8,
         "pp 1 × dp_replicate 1 × dp_shard 2 × cp 1 × tp 3 = 6 ranks, the world has 8"},
        {"1 1 -1 1 3 1",  8,
         "pp 1 × dp_replicate 1 × cp 1 × tp 3 = 3 ranks do not divide the world of 8, so dp_shard "
         "-1 has no value"                                                                },
        {"1 1 -1 1 16 1", 8,
         "pp 1 × dp_replicate 1 × cp 1 × tp 16 = 16 ranks do not divide the world of 8, so "
         "dp_shard -1 has no value"                                                       },
        {"1 1 -1 1 0 1",  8,  "tp is 0, it must be 1 or more"                             },
        {"1 1 0 1 1 1",   8,  "dp_shard is 0, it must be 1 or more (or -1: what is left)" },
        {"1 -1 8 1 1 1",  8,  "dp_replicate is -1, it must be 1 or more"                  },
        {"1 1 8 1 1 0",   8,  "ep is 0, it must be 1 or more"                             },
        {"1 1 -1 1 1 1",  0,  "the world has 0 ranks, it needs one"                       },
        {"1 1 8 1 1 3",   8,
         "ep 3 must be the product of the innermost ranks of dp_shard 8 × cp 1 × tp 1; choose a "
         "divisor of tp, tp × a divisor of cp, or cp × tp × a divisor of dp_shard"     },
        {"1 1 3 1 4 6",   12,
         "ep 6 must be the product of the innermost ranks of dp_shard 3 × cp 1 × tp 4; choose a "
         "divisor of tp, tp × a divisor of cp, or cp × tp × a divisor of dp_shard"     },
        {"1 2 2 1 1 4",   4,
         "ep 4 must be the product of the innermost ranks of dp_shard 2 × cp 1 × tp 1; choose a "
         "divisor of tp, tp × a divisor of cp, or cp × tp × a divisor of dp_shard"     },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tt_arena *a = tt_arena_new();
        tt_mesh_degrees d = degrees(cases[i].degrees), given = d;
        tt_mesh m, before;
        tt_error err;
        memset(&m, 0x5a, sizeof m);
        before = m;
        assert_int_equal(tt_mesh_make(&d, cases[i].world, 8, a, &m, &err), TT_EINVAL);
        assert_int_equal(strncmp(err.text, "parallelism: ", 13), 0);
        assert_string_equal(err.text + 13, cases[i].text);
        assert_memory_equal(&m, &before, sizeof m);
        assert_memory_equal(&d, &given, sizeof d);
        tt_arena_free(a);
    }
    tt_mesh_degrees huge = degrees("2147483647 2147483647 2147483647 2147483647 2147483647 1");
    tt_mesh m;
    tt_error err;
    assert_int_equal(tt_mesh_make(&huge, 8, 8, NULL, &m, &err), TT_EINVAL);
}

static void test_atoms_of_size_one_vanish(void **state)
{
    golden *g = golden_open();
    (void)state;
    const json_t *meshes = get(g->root, "meshes");
    for (size_t i = 0; i < json_array_size(meshes); i++) {
        const tt_mesh *m = &g->mesh[i];
        int32_t world = 1;
        for (int k = 0; k < m->n_atoms; k++) {
            assert_true(m->atom_size[k] > 1);
            world *= m->atom_size[k];
            assert_axis(m, m->atom_name[k], m->atom_name[k]); /* an axis of its own name */
        }
        assert_int_equal(m->world, world);
        if (strcmp(json_string_value(get(json_array_get(meshes, i), "name")), "with ones") != 0)
            continue;
        assert_int_equal(m->n_atoms, 3);
        assert_axis(m, "tp", "b,c");
        assert_axis(m, "none", "-");
        assert_axis(m, "pp", "-");
    }
    golden_close(g);
}

static void test_bad_atoms_are_refused(void **state)
{
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i",
                                        "j", "k", "l", "m", "n", "o", "p", "q"};
    static const int32_t zero[] = {2, 0}, huge[] = {65536, 65536};
    tt_axis outside = {
        "x", {1, {2}}
    };
    int32_t twos[17];
    tt_arena *a = tt_arena_new();
    tt_mesh m;
    tt_error err;
    (void)state;
    for (int i = 0; i < 17; i++)
        twos[i] = 2;
    assert_int_equal(tt_mesh_make_atoms(names, zero, 2, NULL, 0, a, &m, &err), TT_EINVAL);
    assert_string_equal(err.text, "mesh: atom \"b\" has size 0");
    assert_int_equal(tt_mesh_make_atoms(names, huge, 2, NULL, 0, a, &m, &err), TT_EINVAL);
    assert_int_equal(tt_mesh_make_atoms(names, twos, 17, NULL, 0, a, &m, &err), TT_EINVAL);
    assert_string_equal(err.text, "mesh: 17 atoms, at most 16");
    assert_int_equal(tt_mesh_make_atoms(names, twos, 2, &outside, 1, a, &m, &err), TT_EINVAL);
    assert_string_equal(err.text, "mesh: axis \"x\" names atom 2 of 2");
    outside.atoms.atom[0] = 1;
    assert_int_equal(tt_mesh_make_atoms(names, twos, 16, &outside, 1, a, &m, &err), TT_EINVAL);
    assert_string_equal(err.text, "mesh: too many axes at \"p\", at most 16");
    tt_arena_free(a);
}

static void test_ranks_are_row_major_over_the_atoms(void **state)
{
    static const char *const names[] = {"a", "b", "c"};
    static const int32_t sizes[] = {2, 3, 4};
    tt_arena *arena = tt_arena_new();
    tt_mesh m;
    tt_error err;
    int32_t c[TT_MAX_ATOMS];
    (void)state;
    assert_int_equal(tt_mesh_make_atoms(names, sizes, 3, NULL, 0, arena, &m, &err), TT_OK);
    for (int r = 0; r < m.world; r++) {
        tt_mesh_coords(&m, r, c);
        assert_int_equal(c[0] * 12 + c[1] * 4 + c[2], r); /* the first atom is the slowest */
        assert_true(c[1] < 3 && c[2] < 4 && c[3] == 0 && c[TT_MAX_ATOMS - 1] == 0);
        assert_int_equal(tt_mesh_rank(&m, c), r);
    }
    tt_atom_list ac = {
        2, {0, 2 | TT_IGNORE_UNIT}
    };
    assert_int_equal(tt_mesh_degree(&m, &ac), 8);
    assert_int_equal(tt_mesh_degree_mask(&m, 5), 8);
    assert_int_equal(tt_mesh_degree_mask(&m, 0), 1);
    tt_arena_free(arena);
}

static void test_groups_follow_the_order_of_the_list(void **state)
{
    static const char *const names[] = {"a", "b", "c"};
    static const int32_t sizes[] = {2, 3, 2};
    static const int want_ac[] = {2, 3, 8, 9}, want_ca[] = {2, 8, 3, 9};
    tt_arena *arena = tt_arena_new();
    tt_mesh m;
    tt_error err;
    int ranks[12], again[12];
    (void)state;
    assert_int_equal(tt_mesh_make_atoms(names, sizes, 3, NULL, 0, arena, &m, &err), TT_OK);
    tt_atom_list ac =
                     {
                         2, {0, 2}
    },
                 ca = {2, {2 | TT_IGNORE_UNIT, 0}}, none = {.n = 0};
    assert_int_equal(tt_mesh_group(&m, 9, &ac, ranks), 4); /* rank 9 = (1, 1, 1) */
    assert_memory_equal(ranks, want_ac, sizeof want_ac);
    assert_int_equal(tt_mesh_group(&m, 9, &ca, ranks), 4);
    assert_memory_equal(ranks, want_ca, sizeof want_ca);
    assert_int_equal(tt_mesh_group(&m, 9, &none, ranks), 1);
    assert_int_equal(ranks[0], 9);
    for (int r = 0; r < m.world; r++) { /* every member sees the same group, itself once in it */
        int n = tt_mesh_group(&m, r, &ac, ranks), self = 0;
        for (int i = 0; i < n; i++) {
            self += ranks[i] == r;
            assert_int_equal(tt_mesh_group(&m, ranks[i], &ac, again), n);
            assert_memory_equal(ranks, again, (size_t)n * sizeof ranks[0]);
        }
        assert_int_equal(self, 1);
    }
    tt_arena_free(arena);
}

static void test_atoms_of_a_set_are_sorted_by_name(void **state)
{
    static const char *const names[] = {"tp", "cp", "dp_shard", "a"};
    static const int32_t sizes[] = {2, 2, 2, 2};
    tt_arena *arena = tt_arena_new();
    tt_mesh m;
    tt_error err;
    (void)state;
    assert_int_equal(tt_mesh_make_atoms(names, sizes, 4, NULL, 0, arena, &m, &err), TT_OK);
    tt_atom_list all = tt_mesh_atoms_by_name(&m, 15), two = tt_mesh_atoms_by_name(&m, 3);
    static const uint16_t want[] = {3, 1, 2, 0};
    assert_int_equal(all.n, 4);
    assert_memory_equal(all.atom, want, sizeof want);
    assert_int_equal(two.n, 2);
    assert_int_equal(two.atom[0], 1);
    tt_arena_free(arena);
}

static void test_axes_are_named_whole(void **state)
{
    tt_arena *a = tt_arena_new();
    tt_mesh_degrees d = {1, 1, 2, 2, 4, 1, 0};
    tt_mesh m;
    tt_error err;
    char text[64];
    (void)state;
    assert_int_equal(tt_mesh_make(&d, 16, 2, a, &m, &err), TT_OK);
    assert_int_equal(m.n_atoms, 4); /* dp_shard cp tp0 tp1 */
    tt_mesh_print_axes(&m,
                       &(tt_atom_list){
                           4, {0, 1, 2, 3}
    },
                       text, sizeof text);
    assert_string_equal(text, "dp_shard cp tp");
    tt_mesh_print_axes(&m,
                       &(tt_atom_list){
                           2, {2, 1}
    },
                       text, sizeof text);
    assert_string_equal(text, "tp0 cp");
    tt_mesh_print_axes(&m, &(tt_atom_list){0}, text, sizeof text);
    assert_string_equal(text, "");
    tt_mesh_print_axes(&m,
                       &(tt_atom_list){
                           4, {0, 1, 2, 3}
    },
                       text, 7);
    assert_string_equal(text, "dp_sha");
    tt_arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_axes_are_named_whole),
        cmocka_unit_test(test_degrees_make_atoms_and_axes),
        cmocka_unit_test(test_cp_is_split_by_sequences),
        cmocka_unit_test(test_bad_degrees_are_named),
        cmocka_unit_test(test_atoms_of_size_one_vanish),
        cmocka_unit_test(test_bad_atoms_are_refused),
        cmocka_unit_test(test_ranks_are_row_major_over_the_atoms),
        cmocka_unit_test(test_groups_follow_the_order_of_the_list),
        cmocka_unit_test(test_atoms_of_a_set_are_sorted_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
