/* SPDX-License-Identifier: Apache-2.0 */
#include "config_test.h"

/* `--explain` and the reference page. */

static const char *explain(void **state, const char *key)
{
    size_t n;
    const tt_section_doc *docs = tt_core_config_docs(&n);
    tt_str out = {0};
    tt_explain_print(docs, n, key, &out);
    const char *text = tt_arena_str(*state, tt_str_get(&out));
    tt_str_free(&out);
    return text;
}

static void test_explain_one_key(void **state)
{
    assert_string_equal(explain(state, "training.steps"),
                        "training.steps\n    optimizer steps of the whole run; null: "
                        "num_train_epochs or dataloader.infinite says\n    integer or null, 0 to "
                        "1000000000000; default 10000\n");
    assert_string_equal(explain(state, "activation_checkpoint.mode"),
                        "activation_checkpoint.mode\n"
                        "    which activations the backward recomputes: full: all but the layers' "
                        "inputs; selective: what is cheap to compute; budget: as little as "
                        "memory_gib or memory_budget allows; same results in all modes\n"
                        "    one of none, selective, full, budget; default \"none\"\n");
    assert_non_null(strstr(explain(state, "parallelism.context_parallel_load_balancer"),
                           "; not built yet: ptrr"));
    assert_string_equal(explain(state, "profiling.freq"),
                        "profiling.freq\n"
                        "    steps of a cycle, of which the last are traced; without repeat the "
                        "run's last step is, too; also spelt profile_freq\n"
                        "    integer, 1 to 1000000000000; default 10\n");
    assert_non_null(strstr(explain(state, "dump_folder"), "string; default \"./outputs\"\n"));
}

static void test_explain_takes_other_spellings(void **state)
{
    assert_non_null(strstr(explain(state, "training.max_context_length"), "training.seq_len\n"));
    assert_non_null(strstr(explain(state, "validator.freq"), "validation.freq\n"));
    assert_non_null(strstr(explain(state, "profiler.profile_freq"), "profiling.freq\n"));
}

static void test_explain_a_section_lists_its_keys(void **state)
{
    const char *text = explain(state, "comm");
    assert_non_null(strstr(text, "comm: communication between ranks\n"));
    assert_non_null(strstr(text, "comm.backend\n"));
    assert_non_null(strstr(text, "comm.train_timeout_seconds\n"));
    assert_null(strstr(text, "training."));
}

/* validation.dataloader has the keys of dataloader, of whichever plugin. */
static void test_explain_a_section_that_shares_keys_with_another(void **state)
{
    const char *text = explain(state, "validation.dataloader");
    assert_non_null(strstr(text, "validation.dataloader: the data of"));
    assert_non_null(strstr(text, "validation.dataloader.shuffle\n"));
    assert_null(strstr(text, "\ndataloader"));
    assert_non_null(strstr(explain(state, "validation.dataloader.seed"), "of the order"));
    assert_non_null(strstr(explain(state, NULL), "\nvalidation.dataloader.name\n"));
    size_t n;
    tt_str page = {0};
    const tt_section_doc *docs = tt_core_config_docs(&n);
    tt_reference_print(docs, n, &page);
    assert_non_null(strstr(page.s, "\n## validation.dataloader\n\nthe data of"));
    tt_str_free(&page);
}

static void test_explain_all_has_every_key(void **state)
{
    const char *text = explain(state, NULL);
    size_t n;
    const tt_section_doc *docs = tt_core_config_docs(&n);
    for (size_t d = 0; d < n; d++)
        for (size_t i = 0; i < docs[d].n_options; i++)
            assert_non_null(
                strstr(text, tt_arena_printf(*state, "%s%s%s\n", docs[d].key,
                                             *docs[d].key ? "." : "", docs[d].options[i].name)));
}

static void test_explain_unknown_suggests(void **state)
{
    assert_string_equal(explain(state, "training.stpes"),
                        "training.stpes: unknown key (did you mean training.steps?)\n");
    assert_string_equal(explain(state, "steps"),
                        "steps: unknown key (did you mean training.steps?)\n");
    assert_string_equal(explain(state, "qqqqqqqqqq"), "qqqqqqqqqq: unknown key\n");
    assert_string_equal(explain(state, "a\nb"), "\"a\\nb\": unknown key\n");
}

/* A name of another trainer, one of each kind of answer, and a section of such names. */
static void test_explain_names_of_others(void **state)
{
    static const char *const names[][2] = {
        {"training.gc_freq",            "accepted, and changes nothing here: "                    },
        {"activation_checkpoint.debug", "accepted if false, and changes nothing here; else: "     },
        {"job.dump_folder",             "the same as dump_folder\n"                               },
        {"hf_assets_path",              "the same as model.hf_assets_path\n"                      },
        {"training.lr",                 "the same as optimizer.lr\n"                              },
        {"batch_size",                  "the same as training.local_batch_size (nanoGPT's name)\n"},
        {"training.dataset",            "data are files: "                                        },
        {"float8",                      "it is a converter: "                                     },
    };
    for (size_t i = 0; i < TT_COUNT(names); i++) {
        const char *text = explain(state, names[i][0]),
                   *begin = tt_arena_printf(*state, "%s\n    %s", names[i][0], names[i][1]);
        if (strncmp(text, begin, strlen(begin)) != 0)
            fail_msg("\"%s\" does not begin with \"%s\"", text, begin);
    }
}

/* A section is headed by what it is about, if it says that; of one key nothing stands above. */
static void test_explain_heads_a_section_that_has_a_text(void **state)
{
    static const tt_option o = {
        .name = "k", .type = TT_OPT_STRING, .default_json = "\"a\"", .doc = "d"};
    static const struct {
        const char *section, *component, *doc, *key, *head;
    } rows[] = {
        {"s", NULL, "about", "s",   "s: about\n"  },
        {"s", "c",  "about", "s",   "s c: about\n"},
        {"s", NULL, "about", NULL,  "s: about\n"  },
        {"s", NULL, "about", "s.k", ""            },
        {"s", "c",  "",      "s",   ""            },
        {"s", "c",  NULL,    "s",   ""            },
        {"",  NULL, "about", NULL,  ""            },
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(rows); i++) {
        const tt_section_doc s = {
            rows[i].section, rows[i].component, rows[i].doc, &o, 1, sizeof o, NULL};
        tt_str out = {0};
        tt_explain_print(&s, 1, rows[i].key, &out);
        const char *key = strstr(tt_str_get(&out), *rows[i].section ? "s.k" : "k");
        assert_non_null(key);
        if (strncmp(out.s, rows[i].head, (size_t)(key - out.s)) || rows[i].head[key - out.s])
            fail_msg("row %zu: %s", i, out.s);
        tt_str_free(&out);
    }
}

static void test_reference_is_a_table_of_every_key(void **state)
{
    static const tt_option o = {
        .name = "k", .type = TT_OPT_STRING, .default_json = "\"a|b\"", .doc = "x | y"};
    size_t n;
    const tt_section_doc *docs = tt_core_config_docs(&n);
    const tt_section_doc one = {"s", "c", "about", &o, 1, sizeof o, NULL};
    tt_str out = {0};
    tt_reference_print(docs, n, &out);
    for (size_t d = 0; d < n; d++)
        for (size_t i = 0; i < docs[d].n_options; i++)
            assert_non_null(
                strstr(out.s, tt_arena_printf(*state, "\n| `%s` | ", docs[d].options[i].name)));
    tt_str_clear(&out);
    tt_reference_print(&one, 1, &out);
    assert_non_null(strstr(out.s, "### s: c\n\nabout\n\n"));
    assert_non_null(strstr(out.s, "| `k` | string | `\"a\\|b\"` | x \\| y |\n"));
    tt_str_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CONFIG_TEST(test_explain_one_key),
        CONFIG_TEST(test_explain_takes_other_spellings),
        CONFIG_TEST(test_explain_a_section_lists_its_keys),
        CONFIG_TEST(test_explain_all_has_every_key),
        CONFIG_TEST(test_explain_a_section_that_shares_keys_with_another),
        CONFIG_TEST(test_explain_unknown_suggests),
        CONFIG_TEST(test_explain_names_of_others),
        CONFIG_TEST(test_explain_heads_a_section_that_has_a_text),
        CONFIG_TEST(test_reference_is_a_table_of_every_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
