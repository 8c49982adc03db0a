/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config_test.h"
#include "folder_test.h"
#include <stdlib.h>
#include <unistd.h>

/* Loading: files, the extends chain, claims, and positions of errors. */

static const char *folder; /* of this test's files */

static int folder_setup(void **state)
{
    char name[TEST_FOLDER];
    *state = tt_arena_new();
    const bool made = test_folder("job", name);
    folder = tt_arena_str(*state, name);
    return made ? 0 : -1;
}

static int folder_teardown(void **state)
{
    tt_status s = tt_remove_tree(folder, NULL);
    tt_arena_free(*state);
    return s == TT_OK ? 0 : -1;
}

#define FOLDER_TEST(f) cmocka_unit_test_setup_teardown(f, folder_setup, folder_teardown)

static const char *file(void **state, const char *name, const char *text)
{
    const char *path = tt_path_join(*state, folder, name);
    tt_error err = {0};
    if (tt_write_file_atomic(path, text, strlen(text), &err) != TT_OK)
        fail_msg("%s", err.text);
    return path;
}

/* Loads and parses; the error's text after the folder's name, or "". */
static const char *load_error(void **state, const char *path, tt_core_config *c)
{
    tt_error err = {0};
    tt_job *job = NULL;
    tt_status s = tt_job_load(*state, path, NULL, 0, &job, &err);
    if (s == TT_OK)
        s = tt_core_config_parse(job, c, &err);
    if (s == TT_OK)
        s = tt_job_finish(job, &err);
    if (s == TT_OK)
        return "";
    const char *text =
        strncmp(err.text, folder, strlen(folder)) == 0 ? err.text + strlen(folder) + 1 : err.text;
    return tt_arena_str(*state, text);
}

static void test_job_without_a_file_is_all_defaults(void **state)
{
    tt_core_config c;
    assert_string_equal(load_error(state, NULL, &c), "");
    assert_int_equal(c.training.steps, 10000);
    assert_string_equal(c.spec, "llama3");
    assert_int_equal(c.checkpoint.async_mode, TT_ASYNC_ON);
    assert_null(c.hf_assets_path);
}

static void test_job_overrides_the_job_that_it_extends(void **state)
{
    tt_core_config c;
    tt_mkdirs(tt_path_join(*state, folder, "sub"), NULL);
    file(state, "sub/b.json",
         "{\"extends\": \"../c.json\", \"training\": {\"steps\": 2, \"seq_len\": 2}}");
    file(state, "c.json",
         "{\"training\": {\"steps\": 3, \"seed\": 3}, \"log\": {\"ranks\": \"all\"}}");
    const char *a =
        file(state, "a.json",
             "{\"$schema\": \"x\", \"training\": {\"steps\": 1}, \"extends\": \"sub/b.json\"}");
    assert_string_equal(load_error(state, a, &c), "");
    assert_int_equal(c.training.steps, 1);
    assert_int_equal(c.training.seq_len, 2);
    assert_int_equal(c.training.seed, 3);
    assert_string_equal(c.log_ranks, "all");
}

static void test_job_errors_name_the_file_they_are_in(void **state)
{
    tt_core_config c;
    file(state, "b.json", "{\"training\": {\n  \"steps\": \"x\"}}");
    const char *a = file(state, "a.json", "{\"extends\": \"b.json\"}");
    assert_string_equal(load_error(state, a, &c),
                        "b.json:2:12: training.steps: expected an integer or null, got \"x\"");
    file(state, "b.json", "{\"training\": {\n  \"seq_length\": 3}}");
    assert_string_equal(
        load_error(state, a, &c),
        "b.json:2:3: training.seq_length: unknown key (did you mean training.seq_len?)");
    file(state, "b.json", "{\"a\": }");
    assert_string_equal(load_error(state, a, &c), "b.json:1:7: expected a value, found '}'");
}

static void test_job_of_another_format_is_named(void **state)
{
    tt_core_config c;
    const char *toml = file(state, "a.toml", "# torchtitan\n[training]\nsteps = 3\n");
    assert_non_null(strstr(load_error(state, toml, &c),
                           "a.toml: a job file is JSON, and this is TOML; to turn it into JSON: "
                           "python3 -c 'import json, sys, tomllib; "));
    static const char *const others[] = {"a.yaml", "a.yml", "a.py"};
    for (size_t i = 0; i < TT_COUNT(others); i++)
        assert_non_null(strstr(load_error(state, file(state, others[i], "training:\n"), &c),
                               "a job file is JSON; docs/migrate.md has the keys"));
    /* the text decides, not the name */
    assert_string_equal(
        load_error(state, file(state, "b.toml", "{\"training\": {\"steps\": 3}}"), &c), "");
    assert_string_equal(load_error(state, file(state, "b.txt", "x"), &c),
                        "b.txt:1:1: expected a value, found 'x'");
}

static void test_job_extends_in_a_cycle_is_an_error(void **state)
{
    tt_core_config c;
    const char *a = file(state, "a.json", "{\"extends\": \"b.json\"}");
    file(state, "b.json", "{\n\"extends\": \"./a.json\"}");
    const char *text = load_error(state, a, &c);
    assert_non_null(strstr(text, "b.json:2:12: extends: a circle: "));
    a = file(state, "self.json", "{\"extends\": \"self.json\"}");
    assert_non_null(strstr(load_error(state, a, &c), "self.json:1:13: extends: a circle: "));
}

static void test_job_extends_has_a_limited_depth(void **state)
{
    tt_core_config c;
    for (int i = 0; i < 18; i++)
        file(state, tt_arena_printf(*state, "%d.json", i),
             tt_arena_printf(*state, "{\"extends\": \"%d.json\"}", i + 1));
    file(state, "18.json", "{}");
    assert_string_equal(load_error(state, tt_path_join(*state, folder, "10.json"), &c), "");
    assert_non_null(strstr(load_error(state, tt_path_join(*state, folder, "0.json"), &c),
                           "extends: a chain of more than 16 job files"));
}

static void test_job_that_extends_something_other_than_a_file_is_an_error(void **state)
{
    static const char *const cases[][2] = {
        {"{\"extends\": \"none.json\"}", "a.json:1:13: extends: there is no file "                        },
        {"{\"extends\": \".\"}",         "is not a regular file"                                          },
        {"{\"extends\": \"/dev/zero\"}", "a.json:1:13: extends: /dev/zero is not a regular file"          },
        {"{\"extends\": 3}",             "a.json:1:13: extends: expected the path of a job file, got 3"   },
        {"{\"extends\": null}",          "a.json:1:13: extends: expected the path of a job file, got null"},
        {"{\"extends\": [\"b\"]}",
         "a.json:1:13: extends: expected the path of a job file, got a list"                              },
        {"{\"extends\": \"\"}",          "a.json:1:13: extends: expected the path of a job file, got \"\""},
    };
    tt_core_config c;
    for (size_t i = 0; i < TT_COUNT(cases); i++) {
        const char *text = load_error(state, file(state, "a.json", cases[i][0]), &c);
        if (!strstr(text, cases[i][1]))
            fail_msg("%s: %s", cases[i][0], text);
    }
}

static void test_job_that_cannot_be_read_is_an_error(void **state)
{
    tt_core_config c;
    const char *missing = tt_path_join(*state, folder, "none.json");
    assert_non_null(strstr(load_error(state, missing, &c), "No such file"));
    assert_non_null(strstr(load_error(state, folder, &c), "folder"));
    assert_string_equal(load_error(state, file(state, "a.json", ""), &c),
                        "a.json:1:1: expected a value, found the end of the text");
    assert_string_equal(load_error(state, file(state, "a.json", "[]"), &c),
                        "a.json:1:1: expected an object with the job's sections, got a list");
    char *big = malloc((5 << 20) + 1);
    memset(big, ' ', 5 << 20);
    big[5 << 20] = '\0';
    const char *text = load_error(state, file(state, "a.json", big), &c);
    free(big);
    assert_non_null(strstr(text, "more than"));
}

static void test_job_with_very_many_keys_is_refused(void **state)
{
    tt_str text = {0};
    tt_error err = {0};
    tt_job *job;
    tt_str_add(&text, "{\"a\": {\"k\": 0");
    for (int i = 0; i < 5000; i++)
        tt_str_printf(&text, ",\"k%d\": 0", i);
    tt_str_add(&text, "}}");
    assert_int_equal(load(*state, text.s, NULL, &job, &err), TT_EINVAL);
    assert_string_equal(err.text, "job.json:1:7: an object with 5001 keys; a job may have 4096");
    tt_str_free(&text);
}

static void test_job_dir_is_the_folder_of_the_file(void **state)
{
    tt_job *job;
    assert_int_equal(tt_job_load(*state, file(state, "a.json", "{}"), NULL, 0, &job, NULL), TT_OK);
    assert_string_equal(tt_job_dir(job), folder);
    assert_int_equal(tt_job_load(*state, NULL, NULL, 0, &job, NULL), TT_OK);
    assert_string_equal(tt_job_dir(job), ".");
}

static void test_job_finish_refuses_keys_that_nobody_claimed(void **state)
{
    tt_core_config c;
    tt_error err = {0};
    assert_int_equal(parse_core(*state, "{\n \"trainings\": {}}", NULL, &c, &err), TT_EINVAL);
    assert_string_equal(err.text, "job.json:2:2: trainings: unknown key (did you mean training?)");
    assert_int_equal(parse_core(*state, "{\"optimizer\": {\"lr\": 1}}", NULL, &c, &err), TT_EINVAL);
    assert_int_equal(parse_core(*state, "{\"model\": {\"args\": {}}}", NULL, &c, &err), TT_EINVAL);
    assert_string_equal(err.text, "job.json:1:12: model.args: unknown key");
    assert_int_equal(parse_core(*state, "{\"a\\n\\u001b[31m\": 1}", NULL, &c, &err), TT_EINVAL);
    assert_string_equal(err.text, "job.json:1:2: \"a\\n\\u001b[31m\": unknown key");
}

static void test_job_list_string_and_text_claim_their_keys(void **state)
{
    tt_error err = {0};
    tt_job *job = must_load(
        *state, "{\"hooks\": [{\"name\": \"a\"}, {}], \"x\": \"y\", \"z\": {\"b\": [1, 2]}}", NULL);
    size_t n = 9;
    const char *text = "old";
    assert_int_equal(tt_job_list(job, "hooks", &n, &err), TT_OK);
    assert_int_equal(n, 2);
    assert_int_equal(tt_job_list(job, "none", &n, &err), TT_OK);
    assert_int_equal(n, 0);
    assert_int_equal(tt_job_list(job, "x", &n, &err), TT_EINVAL);
    assert_string_equal(err.text, "job.json:1:37: x: expected a list, got \"y\"");
    assert_int_equal(tt_job_string(job, "hooks[0].name", "f", &text, &err), TT_OK);
    assert_string_equal(text, "a");
    assert_int_equal(tt_job_string(job, "hooks[1].name", "f", &text, &err), TT_OK);
    assert_string_equal(text, "f");
    assert_int_equal(tt_job_string(job, "z", "f", &text, &err), TT_EINVAL);
    assert_string_equal(text, "f");
    assert_int_equal(tt_job_string(job, "x", NULL, &text, &err), TT_OK);
    /* what has no value is printed as null, and that is read again as no value */
    text = "old";
    assert_int_equal(tt_job_string(job, "hooks[1].kind", NULL, &text, &err), TT_OK);
    assert_null(text);
    tt_job *again = must_load(*state, "{\"hooks\": [{\"kind\": null}]}", NULL);
    text = "old";
    assert_int_equal(tt_job_string(again, "hooks[0].kind", NULL, &text, &err), TT_OK);
    assert_null(text);
    assert_int_equal(tt_job_string(again, "hooks[0].kind", "f", &text, &err), TT_EINVAL);
    assert_string_equal(tt_job_text(job, "z.b"), "[1,2]");
    assert_null(tt_job_text(job, "z.c"));
    assert_true(tt_job_has(job, "z.b[1]"));
    assert_false(tt_job_has(job, "z.b[2]"));
    assert_false(tt_job_has(job, "z..b"));
    assert_int_equal(tt_job_finish(job, &err), TT_OK);
}

static void test_job_fail_names_the_place(void **state)
{
    tt_error err = {0};
    tt_job *job = must_load(*state, "{\"a\": {\n\"b\": 1}}", PAIRS("c.d", "2"));
    assert_int_equal(tt_job_fail(job, "a.b", &err, "bad %d", 1), TT_EINVAL);
    assert_string_equal(err.text, "job.json:2:6: a.b: bad 1");
    tt_job_fail(job, "c.d", &err, "bad");
    assert_string_equal(err.text, "--c.d: bad");
    tt_job_fail(job, "e.f", &err, "bad");
    assert_string_equal(err.text, "job.json: e.f: bad");
    assert_int_equal(tt_job_load(*state, NULL, NULL, 0, &job, NULL), TT_OK);
    tt_job_fail(job, "e.f", &err, "bad");
    assert_string_equal(err.text, "e.f: bad");
}

static void test_job_sections_have_two_names(void **state)
{
    tt_core_config c;
    tt_error err = {0};
    assert_int_equal(parse_core(*state, "{\"validator\": {\"freq\": 7}}", NULL, &c, &err), TT_OK);
    assert_int_equal(c.validation.freq, 7);
    assert_int_equal(
        parse_core(*state, "{\"validator\": {},\n \"validation\": {}}", NULL, &c, &err), TT_EINVAL);
    assert_string_equal(
        err.text, "job.json:1:2: validator: the same section as validation; keep one of them");
    assert_int_equal(parse_core(*state, "{\"validation\": {\"freq\": 7}}",
                                PAIRS("validator.freq", "8"), &c, &err),
                     TT_OK);
    assert_int_equal(c.validation.freq, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(test_job_without_a_file_is_all_defaults),
        FOLDER_TEST(test_job_overrides_the_job_that_it_extends),
        FOLDER_TEST(test_job_errors_name_the_file_they_are_in),
        FOLDER_TEST(test_job_of_another_format_is_named),
        FOLDER_TEST(test_job_extends_in_a_cycle_is_an_error),
        FOLDER_TEST(test_job_extends_has_a_limited_depth),
        FOLDER_TEST(test_job_that_extends_something_other_than_a_file_is_an_error),
        FOLDER_TEST(test_job_that_cannot_be_read_is_an_error),
        FOLDER_TEST(test_job_dir_is_the_folder_of_the_file),
        CONFIG_TEST(test_job_with_very_many_keys_is_refused),
        CONFIG_TEST(test_job_finish_refuses_keys_that_nobody_claimed),
        CONFIG_TEST(test_job_list_string_and_text_claim_their_keys),
        CONFIG_TEST(test_job_fail_names_the_place),
        CONFIG_TEST(test_job_sections_have_two_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
