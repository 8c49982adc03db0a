/* SPDX-License-Identifier: Apache-2.0 */
#include "config_test.h"

/* Overrides on the command line: `--section.key VALUE`. */

static void test_override_takes_json_or_bare_strings(void **state)
{
    tt_core_config c;
    tt_error err = {0};
    assert_int_equal(
        parse_core(*state, "{\"training\": {\"steps\": 3}}",
                   PAIRS("training.steps", "20", "training.max_norm", "5e-1", "dump_folder",
                         "/out put", "checkpoint.folder", "\"q\"", "metrics.enable_tensorboard",
                         "false", "activation_checkpoint.mode", "full",
                         "checkpoint.initial_load_path", "null", "debug.dump_graph", "12",
                         "log.ranks", "true"),
                   &c, &err),
        TT_OK);
    assert_int_equal(c.training.steps, 20);
    assert_true(c.training.max_norm >= 0.5 && c.training.max_norm <= 0.5);
    assert_string_equal(c.dump_folder, "/out put");
    assert_string_equal(c.checkpoint.folder, "q");
    assert_false(c.metrics.enable_tensorboard);
    assert_int_equal(c.activation_checkpoint.mode, TT_CHECKPOINT_FULL);
    assert_null(c.checkpoint.initial_load_path);
    assert_string_equal(strrchr(c.debug.dump_graph, '/'),
                        "/12"); /* a string where the type is one */
    assert_string_equal(c.log_ranks, "true");
}

/* clang-format aligns the columns of plain rows; these are too wide for that. */
#define BAD(...)                                                                                   \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

/* key, value, error */
static const char *const refused[][3] = {
    BAD("training.steps", "ten", "--training.steps: expected an integer or null, got \"ten\""),
    BAD("training.steps", "", "--training.steps: expected an integer or null, got \"\""),
    BAD("training.steps", "1.5", "--training.steps: expected an integer or null, got 1.5"),
    BAD("training.steps", "-1", "--training.steps: expected 0 to 1000000000000, got -1"),
    BAD("training.steps", "[1",
        "--training.steps: expected an integer or null, got \"[1\" (as JSON: value:1:3: expected "
        "',' or "
        "']', found the end of the text)"),
    BAD("training.seq_length", "3",
        "--training.seq_length: unknown key (did you mean training.seq_len?)"),
    BAD("training.lr", "3", "--training.lr: unknown key (did you mean optimizer.lr?)"),
    BAD("trainin.steps", "3", "--trainin.steps: trainin: unknown key (did you mean training?)"),
    BAD("nosuch", "3", "--nosuch: unknown key"),
    BAD("training", "3", "--training: expected an object, got 3"),
    BAD("training", "{\"steps\": \"x\"}",
        "--training: training.steps: expected an integer or null, got \"x\""),
    BAD("training.steps.x", "3",
        "--training.steps.x: training.steps: expected an integer or null, got an object"),
    BAD("metrics.enable_tensorboard", "yes",
        "--metrics.enable_tensorboard: expected true or false, got \"yes\""),
    BAD("metrics.enable_tensorboard", "1",
        "--metrics.enable_tensorboard: expected true or false, got 1"),
    BAD("activation_checkpoint.mode", "ful",
        "--activation_checkpoint.mode: expected one of none, selective, full, budget, got \"ful\" "
        "(did you mean full?)"),
    BAD("validator.freq", "0",
        "--validator.freq: validation.freq: expected 1 to 1000000000000, got 0"),
    BAD("extends", "b.json", "--extends: only a job file can extend another"),
    BAD("", "1", "--: not a key (like --training.steps or --hooks[0].name)"),
    BAD(".", "1", "--.: not a key (like --training.steps or --hooks[0].name)"),
    BAD("training.", "1", "--training.: not a key (like --training.steps or --hooks[0].name)"),
    BAD("training..steps", "1",
        "--training..steps: not a key (like --training.steps or --hooks[0].name)"),
    BAD("[0]", "1", "--[0]: not a key (like --training.steps or --hooks[0].name)"),
    BAD("hooks[", "1", "--hooks[: not a key (like --training.steps or --hooks[0].name)"),
    BAD("hooks[x]", "1", "--hooks[x]: not a key (like --training.steps or --hooks[0].name)"),
    BAD("hooks[0]x", "1", "--hooks[0]x: not a key (like --training.steps or --hooks[0].name)"),
    BAD("hooks]", "1", "--hooks]: not a key (like --training.steps or --hooks[0].name)"),
    BAD("hooks[2].name", "1", "--hooks[2].name: the list has 0 elements"),
    BAD("hooks[99999999999999999999]", "1",
        "--hooks[99999999999999999999]: not a key (like --training.steps or --hooks[0].name)"),
};

static void test_override_errors_begin_with_the_option(void **state)
{
    for (size_t i = 0; i < TT_COUNT(refused); i++) {
        tt_core_config c;
        tt_error err = {0};
        if (parse_core(*state, "{}", PAIRS(refused[i][0], refused[i][1]), &c, &err) == TT_OK)
            fail_msg("accepted: %s %s", refused[i][0], refused[i][1]);
        assert_string_equal(err.text, refused[i][2]);
    }
}

static void test_override_the_last_one_wins(void **state)
{
    tt_core_config c;
    tt_error err = {0};
    assert_int_equal(
        parse_core(*state, "{}", PAIRS("training.steps", "1", "training.steps", "2"), &c, &err),
        TT_OK);
    assert_int_equal(c.training.steps, 2);
}

static void test_override_of_a_section_merges(void **state)
{
    tt_core_config c;
    tt_error err = {0};
    assert_int_equal(parse_core(*state, "{\"training\": {\"steps\": 3, \"seed\": 4}}",
                                PAIRS("training", "{\"steps\": 5}"), &c, &err),
                     TT_OK);
    assert_int_equal(c.training.steps, 5);
    assert_int_equal(c.training.seed, 4);
}

static void test_override_reaches_into_lists(void **state)
{
    tt_error err = {0};
    size_t n;
    const char *name;
    tt_job *job = must_load(
        *state, "{\"hooks\": [{\"name\": \"a\", \"x\": 1}]}",
        PAIRS("hooks[0].name", "b", "hooks[1].name", "c", "converters[0]", "{\"name\": \"d\"}"));
    assert_int_equal(tt_job_list(job, "hooks", &n, &err), TT_OK);
    assert_int_equal(n, 2);
    tt_job_string(job, "hooks[0].name", NULL, &name, &err);
    assert_string_equal(name, "b");
    tt_job_string(job, "hooks[1].name", NULL, &name, &err);
    assert_string_equal(name, "c");
    tt_job_string(job, "converters[0].name", NULL, &name, &err);
    assert_string_equal(name, "d");
    assert_string_equal(tt_job_text(job, "hooks"), "[{\"name\":\"b\",\"x\":1},{\"name\":\"c\"}]");
    job = must_load(*state, "{\"hooks\": [{\"name\": \"a\"}]}", PAIRS("hooks", "[]"));
    assert_int_equal(tt_job_list(job, "hooks", &n, &err), TT_OK);
    assert_int_equal(n, 0);
}

static void test_override_of_a_list_of_strings(void **state)
{
    static const tt_option o = {.name = "path", .type = TT_OPT_STRINGS, .default_json = "[]"};
    static const char *const values[][2] = {
        {"a*.txt",         "a*.txt"},
        {"[\"p\", \"q\"]", "p"     },
        {"\"x\"",          "x"     },
        {"[ab].c",         "[ab].c"},
        {"7",              "7"     }
    };
    for (size_t i = 0; i < TT_COUNT(values); i++) {
        tt_strings got = {0};
        tt_error err = {0};
        tt_job *job = must_load(*state, "{}", PAIRS("d.path", values[i][0]));
        assert_int_equal(tt_job_section(job, "d", &o, 1, sizeof o, NULL, &got, &err), TT_OK);
        assert_int_equal(got.n, i == 1 ? 2 : 1);
        assert_string_equal(got.items[0], values[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CONFIG_TEST(test_override_takes_json_or_bare_strings),
        CONFIG_TEST(test_override_errors_begin_with_the_option),
        CONFIG_TEST(test_override_the_last_one_wins),
        CONFIG_TEST(test_override_of_a_section_merges),
        CONFIG_TEST(test_override_reaches_into_lists),
        CONFIG_TEST(test_override_of_a_list_of_strings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
