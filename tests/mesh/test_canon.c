/* SPDX-License-Identifier: Apache-2.0 */
#include "golden.h"

static tt_label_table read_table(const json_t *list)
{
    static const char *const policies[] = {"error", "pad", "replicate", "prefix"};
    tt_label_table t;
    memset(&t, 0, sizeof t);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *row = json_array_get(list, i), *axes = json_array_get(row, 1);
        tt_label_entry *e = &t.entries[t.n++];
        e->label = text_at(row, 0);
        for (size_t k = 0; k < json_array_size(axes); k++)
            e->axes[e->n_axes++] = text_at(axes, k);
        for (int k = 0; k < 4; k++)
            if (strcmp(policies[k], text_at(row, 2)) == 0)
                e->policy = (tt_policy)k;
    }
    return t;
}

static void test_letters_agree_with_the_specification(void **state)
{
    golden *g = golden_open();
    const json_t *vectors = get(g->root, "canon");
    size_t n = json_array_size(vectors), errors = 0;
    (void)state;
    assert_true(n > 1500);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(vectors, i), *want = get(v, "atoms");
        const tt_mesh *m = &g->mesh[get_int(v, "mesh")];
        tt_label_table t =
            read_table(json_array_get(get(g->root, "tables"), (size_t)get_int(v, "table")));
        tt_dim dims[TT_MAX_LETTERS];
        tt_atom_list got[TT_MAX_LETTERS];
        tt_error err;
        int nd = read_dims(get(v, "dims"), dims);
        t.sequence_parallel = json_is_true(get(v, "sp"));
        tt_status status = tt_canon(m, &t, dims, nd, got, &err);
        if ((status == TT_OK) == json_is_null(want))
            fail_msg("vector %zu: %s", i, status == TT_OK ? "accepted" : err.text);
        errors += status != TT_OK;
        for (int k = 0; status == TT_OK && k < nd; k++) {
            tt_atom_list l = read_atoms(m, json_array_get(want, (size_t)k));
            if (memcmp(&l, &got[k], sizeof l) != 0)
                fail_msg("vector %zu: letter %d differs from the specification", i, k);
        }
    }
    assert_true(errors > 20 && errors < n / 2);
    golden_close(g);
}

static void test_parameters_agree_with_the_specification(void **state)
{
    golden *g = golden_open();
    const json_t *vectors = get(g->root, "params");
    size_t n = json_array_size(vectors), errors = 0;
    tt_label_table t;
    (void)state;
    tt_label_table_default(&t);
    assert_true(n > 500);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(vectors, i), *want = get(v, "compute");
        const tt_mesh *m = &g->mesh[get_int(v, "mesh")];
        tt_dim dims[TT_MAX_DIMS];
        tt_placement compute, storage;
        tt_error err;
        int nd = read_dims(get(v, "dims"), dims);
        tt_status status = tt_param_placements(m, &t, dims, nd, &compute, &storage, &err);
        if ((status == TT_OK) == json_is_null(want))
            fail_msg("vector %zu: %s", i, status == TT_OK ? "accepted" : err.text);
        errors += status != TT_OK;
        if (status != TT_OK)
            continue;
        tt_placement want_compute = read_placement(m, want);
        tt_placement want_storage = read_placement(m, get(v, "storage"));
        assert_placement(m, &compute, &want_compute, nd, i);
        assert_placement(m, &storage, &want_storage, nd, i);
        assert_int_equal(tt_placement_check(m, &storage, nd, &err), TT_OK);
    }
    assert_true(errors > 3);
    golden_close(g);
}

static void test_default_table_is_that_of_the_specification(void **state)
{
    golden *g = golden_open();
    tt_label_table want = read_table(json_array_get(get(g->root, "tables"), 0)), got;
    (void)state;
    tt_label_table_default(&got);
    assert_true(got.sequence_parallel);
    assert_int_equal(got.n, want.n);
    for (int i = 0; i < got.n; i++) {
        assert_string_equal(got.entries[i].label, want.entries[i].label);
        assert_int_equal(got.entries[i].policy, want.entries[i].policy);
        assert_int_equal(got.entries[i].n_axes, want.entries[i].n_axes);
        for (int k = 0; k < got.entries[i].n_axes; k++)
            assert_string_equal(got.entries[i].axes[k], want.entries[i].axes[k]);
    }
    golden_close(g);
}

static void test_policy_replicate_cuts_by_the_whole_axis_or_not_at_all(void **state)
{
    static const char *const names[] = {"tpa", "tpb"};
    static const int32_t sizes[] = {2, 2};
    tt_axis tp = {
        "tp", {2, {0, 1}}
    };
    tt_label_rule rule = {"heads", "tp", "replicate"};
    tt_arena *a = tt_arena_new();
    tt_mesh m;
    tt_error err;
    tt_label_table t;
    tt_atom_list got[2];
    (void)state;
    assert_int_equal(tt_mesh_make_atoms(names, sizes, 2, &tp, 1, a, &m, &err), TT_OK);
    assert_int_equal(tt_label_table_parse(&rule, 1, &t, &err), TT_OK);
    tt_dim six = TT_DIM_UNIT(6 * 16, "heads", 16), eight = TT_DIM_UNIT(8 * 16, "heads", 16);
    assert_int_equal(tt_canon(&m, &t, &six, 1, got, &err), TT_OK);
    assert_int_equal(got[0].n, 0);
    assert_int_equal(tt_canon(&m, &t, &eight, 1, got, &err), TT_OK);
    assert_int_equal(got[0].n, 2);
    assert_int_equal(tt_prefix_dividing(&m, &tp.atoms, 6), 1);
    assert_int_equal(tt_prefix_dividing(&m, &tp.atoms, 5), 0);
    tt_arena_free(a);
}

static void test_errors_name_label_and_counts(void **state)
{
    static const char *const names[] = {"tp"};
    static const int32_t sizes[] = {4};
    tt_arena *a = tt_arena_new();
    tt_mesh m;
    tt_error err;
    tt_label_table t;
    tt_atom_list got[1], before;
    (void)state;
    assert_int_equal(tt_mesh_make_atoms(names, sizes, 1, NULL, 0, a, &m, &err), TT_OK);
    tt_label_table_default(&t);
    memset(got, 0x5a, sizeof got);
    before = got[0];
    tt_dim heads = TT_DIM_UNIT(6 * 16, "heads", 16), tokens = tt_dim_make(13, "tokens", 1, 2);
    assert_int_equal(tt_canon(&m, &t, &heads, 1, got, &err), TT_EINVAL);
    assert_string_equal(err.text, "6 heads do not divide over the 4 ranks of tp; choose a degree "
                                  "of tp that divides 6");
    assert_int_equal(tt_canon(&m, &t, &tokens, 1, got, &err), TT_EINVAL);
    assert_string_equal(err.text, "13 tokens are not 2 equal sequences");
    assert_memory_equal(&before, got, sizeof before); /* untouched on failure */
    tt_arena_free(a);
}

static void test_label_rules_are_parsed(void **state)
{
    static const tt_label_rule rules[] = {
        {"tokens",  "dp_replicate, dp_shard,cp , tp", "pad"      },
        {"none",    "",                               "replicate"},
        {"experts", "ep",                             "error"    }
    };
    tt_label_table t;
    tt_error err;
    (void)state;
    assert_int_equal(tt_label_table_parse(rules, 3, &t, &err), TT_OK);
    assert_int_equal(t.n, 3);
    assert_true(t.sequence_parallel);
    assert_int_equal(t.entries[0].n_axes, 4);
    assert_string_equal(t.entries[0].axes[0], "dp_replicate");
    assert_string_equal(t.entries[0].axes[2], "cp");
    assert_string_equal(t.entries[0].axes[3], "tp");
    assert_int_equal(t.entries[1].n_axes, 0);
    assert_int_equal(t.entries[2].policy, TT_POLICY_ERROR);
}

static void assert_bad_rules(const tt_label_rule *rules, size_t n, const char *part)
{
    tt_label_table t, before;
    tt_error err;
    memset(&t, 0x5a, sizeof t);
    before = t;
    assert_int_equal(tt_label_table_parse(rules, n, &t, &err), TT_EINVAL);
    if (strstr(err.text, part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", err.text, part);
    assert_memory_equal(&t, &before, sizeof t);
}

static void test_bad_label_rules_say_what_is_wrong(void **state)
{
    static const struct {
        tt_label_rule rule;
        const char *part;
    } cases[] = {
        {{"ffn", "tpp", "pad"},                        "\"ffn\": axis \"tpp\" in \"tpp\" is not one of dp_replicate"},
        {{"ffn", "tp", "fill"},                        "policy \"fill\" is not one of error, pad"                   },
        {{"ffn", "tp", NULL},                          "policy \"\" is not one of"                                  },
        {{"ffn", "tp,", "pad"},                        "ends in a comma"                                            },
        {{"ffn", "tp cp", "pad"},                      "separated by commas"                                        },
        {{"ffn", "tp,,cp", "pad"},                     "axis \"\""                                                  },
        {{"ffn", "tp,tp,tp,tp,tp,tp,tp,tp,tp", "pad"}, "more than 8 axes"                                           },
        {{"", "tp", "pad"},                            "has no label"                                               },
        {{NULL, "tp", "pad"},                          "has no label"                                               },
    };
    static const tt_label_rule twice[] = {
        {"ffn", "tp", "pad"},
        {"ffn", "cp", "pad"}
    };
    tt_label_rule many[33];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_bad_rules(&cases[i].rule, 1, cases[i].part);
    assert_bad_rules(twice, 2, "label \"ffn\" stands twice");
    memset(many, 0, sizeof many);
    assert_bad_rules(many, 33, "33 labels, at most 32");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_letters_agree_with_the_specification),
        cmocka_unit_test(test_parameters_agree_with_the_specification),
        cmocka_unit_test(test_default_table_is_that_of_the_specification),
        cmocka_unit_test(test_policy_replicate_cuts_by_the_whole_axis_or_not_at_all),
        cmocka_unit_test(test_errors_name_label_and_counts),
        cmocka_unit_test(test_label_rules_are_parsed),
        cmocka_unit_test(test_bad_label_rules_say_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
