/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config/internal.h"
#include "config_test.h"
#include "folder_test.h"
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

/* Paths of a job: relative to the file that names them, on the command line to the current
 * folder. */

typedef struct config {
    const char *file, *word, *plain;
    tt_strings files;
} config;

static const tt_option options[] = {
    TT_OPTION_MORE(config, file, TT_OPT_STRING, "null", 0, 0, NULL, TT_OPT_NULLABLE | TT_OPT_PATH,
                   NULL, "a path"),
    TT_OPTION_MORE(config, word, TT_OPT_STRING, "\"auto\"", 0, 0, "auto|off", TT_OPT_PATH, NULL,
                   "a path or a word"),
    TT_OPTION(config, plain, TT_OPT_STRING, "null", 0, 0, "not a path"),
    TT_OPTION_MORE(config, files, TT_OPT_STRINGS, "[]", 0, 0, NULL, TT_OPT_PATH, NULL, "paths"),
};

static config read_section(tt_job *job, const char *key)
{
    config c = {0};
    tt_error err = {0};
    if (tt_job_section(job, key, options, TT_COUNT(options), sizeof options[0], NULL, &c, &err))
        fail_msg("%s", err.text);
    return c;
}

static void test_a_path_starts_where_it_is_named(void **state)
{
    tt_arena *a = *state;
    char temp[TEST_FOLDER], here[PATH_MAX];
    tt_job *job;
    tt_error err = {0};
    assert_true(test_folder("paths", temp));
    assert_non_null(getcwd(here, sizeof here));
    const char *base = tt_arena_printf(a, "%s/base", temp);
    const char *jobs = tt_arena_printf(a, "%s/jobs", temp);
    assert_int_equal(tt_mkdirs(base, &err), TT_OK);
    assert_int_equal(tt_mkdirs(jobs, &err), TT_OK);
    static const char low[] = "{\"p\": {\"file\": \"x/../a\", \"files\": [\"*.txt\", \"/b\"]}}";
    static const char high[] = "{\"extends\": \"../base/b.json\",\n"
                               " \"p\": {\"word\": \"./../../c\", \"plain\": \"d\"}}";
    const char *path = tt_arena_printf(a, "%s/j.json", jobs);
    assert_int_equal(
        tt_write_file_atomic(tt_arena_printf(a, "%s/b.json", base), low, sizeof low - 1, &err),
        TT_OK);
    assert_int_equal(tt_write_file_atomic(path, high, sizeof high - 1, &err), TT_OK);
    assert_int_equal(tt_job_load(a, path, NULL, 0, &job, &err), TT_OK);
    config c = read_section(job, "p");
    assert_string_equal(c.file, tt_arena_printf(a, "%s/x/../a", base)); /* x may be a link */
    assert_string_equal(c.files.items[0], tt_arena_printf(a, "%s/*.txt", base));
    assert_string_equal(c.files.items[1], "/b");
    assert_string_equal(c.word, tt_path_join(a, tt_path_dir(a, temp), "c"));
    assert_string_equal(c.plain, "d");

    const tt_override over[] = {
        {"p.file",  "../e"},
        {"p.word",  "off" },
        {"p.files", "12"  }
    };
    assert_int_equal(tt_job_load(a, path, over, 3, &job, &err), TT_OK);
    c = read_section(job, "p");
    assert_string_equal(c.file,
                        tt_path_join(a, tt_path_dir(a, here), "e")); /* "/e" from a folder of / */
    assert_string_equal(c.word, "off");
    assert_string_equal(c.files.items[0], tt_arena_printf(a, "%s/12", here));
    assert_int_equal(tt_remove_tree(temp, &err), TT_OK);
}

static void test_a_tilde_is_the_home_folder(void **state)
{
    static const char text[] = "{\"p\": {\"file\": \"~/a/b\", \"word\": \"~\", \"plain\": \"~/c\", "
                               "\"files\": [\"~/*.txt\", \"/~/x\", \"~other/x\", \"x/~/y\"]}}";
    char here[PATH_MAX];
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(setenv("HOME", "/home/me", 1), 0);
    config c = read_section(must_load(*state, text, NULL), "p");
    assert_string_equal(c.file, "/home/me/a/b");
    assert_string_equal(c.word, "/home/me/");
    assert_string_equal(c.plain, "~/c");
    assert_string_equal(c.files.items[0], "/home/me/*.txt");
    assert_string_equal(c.files.items[1], "/~/x");
    assert_string_equal(c.files.items[2], tt_path_join(*state, here, "~other/x"));
    assert_string_equal(c.files.items[3], tt_path_join(*state, here, "x/~/y"));
    assert_int_equal(setenv("HOME", "", 1), 0);
    c = read_section(must_load(*state, text, NULL), "p");
    assert_string_equal(c.file, tt_path_join(*state, here, "~/a/b"));
}

/* Of the files of /dev only descriptors are in no folder. */
static void test_a_job_in_memory_has_a_folder(void **state)
{
    tt_arena *a = *state;
    static const char text[] = "{\"p\": {\"file\": \"a\"}}";
    char folder[] = "/dev/shm/paths.XXXXXX";
    tt_job *job;
    tt_error err = {0};
    if (!mkdtemp(folder))
        skip(); /* there is no such folder */
    const char *path = tt_path_join(a, folder, "j.json");
    assert_int_equal(tt_write_file_atomic(path, text, sizeof text - 1, &err), TT_OK);
    assert_int_equal(tt_job_load(a, path, NULL, 0, &job, &err), TT_OK);
    assert_string_equal(read_section(job, "p").file, tt_path_join(a, folder, "a"));
    assert_int_equal(tt_remove_tree(folder, &err), TT_OK);
}

static void test_words_and_null_are_no_paths(void **state)
{
    tt_job *job = must_load(*state, "{\"p\": {\"file\": null, \"files\": []}}", NULL);
    const config c = read_section(job, "p");
    assert_null(c.file);
    assert_string_equal(c.word, "auto");
    assert_int_equal(c.files.n, 0);
}

static void test_a_raw_list_is_printed_with_absolute_paths(void **state)
{
    tt_str out = {0};
    tt_job *job = must_load(*state, "{\"p\": [{\"file\": \"/x/a\"}, {\"file\": \"b\"}]}", NULL);
    size_t n = 0;
    assert_int_equal(tt_job_list(job, "p", &n, NULL), TT_OK);
    const config c = read_section(job, "p[1]");
    tt_job_print(job, false, &out);
    assert_int_equal(c.file[0], '/');
    assert_non_null(strstr(out.s, c.file));
    tt_str_free(&out);
}

static void test_a_default_of_another_key_is_overridden_by_the_job(void **state)
{
    tt_error err = {0};
    tt_str out = {0};
    tt_job *job = must_load(*state, "{\"p\": {\"plain\": \"job\"}}", NULL);
    assert_int_equal(tt_job_default(job, "p.plain", "\"mine\"", "model.hf", &err), TT_OK);
    assert_int_equal(tt_job_default(job, "p.file", "\"/m\"", "model.hf", &err), TT_OK);
    const config c = read_section(job, "p");
    assert_string_equal(c.plain, "job");
    assert_string_equal(c.file, "/m");
    tt_job_print(job, true, &out);
    assert_non_null(strstr(out.s, "\"/m\", // model.hf\n"));
    tt_str_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CONFIG_TEST(test_a_path_starts_where_it_is_named),
        CONFIG_TEST(test_a_tilde_is_the_home_folder),
        CONFIG_TEST(test_a_job_in_memory_has_a_folder),
        CONFIG_TEST(test_words_and_null_are_no_paths),
        CONFIG_TEST(test_a_raw_list_is_printed_with_absolute_paths),
        CONFIG_TEST(test_a_default_of_another_key_is_overridden_by_the_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
