/* SPDX-License-Identifier: Apache-2.0 */
#include "config_test.h"

/* The resolved job and the difference of two. */

static void test_print_shows_origins_and_reads_back(void **state)
{
    tt_core_config c;
    tt_error err = {0};
    tt_str with = {0}, plain = {0}, again = {0};
    tt_job *job =
        must_load(*state, "{\"training\": {\n  \"steps\": 1e1}, \"validator\": {\"freq\": 3}}",
                  PAIRS("training.seq_len", "64", "dump_folder", "/a \"b\""));
    assert_int_equal(tt_core_config_parse(job, &c, &err), TT_OK);
    tt_job_print(job, true, &with);
    assert_non_null(strstr(with.s, "\n    \"steps\": 10, // job.json:2:12\n"));
    assert_non_null(strstr(with.s, "\n    \"seq_len\": 64, // --training.seq_len\n"));
    assert_non_null(strstr(with.s, "\n  \"dump_folder\": \"/a \\\"b\\\"\", // --dump_folder\n"));
    assert_non_null(strstr(with.s, "\n    \"freq\": 3, // job.json:2:40\n"));
    assert_non_null(strstr(with.s, "\n    \"trainable\": null // default\n  },\n"));
    tt_job_print(job, false, &plain);
    assert_null(strstr(plain.s, "//"));
    job = must_load(*state, with.s, NULL); /* comments and all */
    assert_int_equal(tt_core_config_parse(job, &c, &err), TT_OK);
    assert_int_equal(tt_job_finish(job, &err), TT_OK);
    assert_int_equal(c.training.steps, 10);
    assert_string_equal(c.dump_folder, "/a \"b\"");
    tt_job_print(job, false, &again);
    assert_string_equal(plain.s, again.s);
    tt_str_free(&with);
    tt_str_free(&plain);
    tt_str_free(&again);
}

static void test_print_lists_and_texts_claimed_as_a_whole(void **state)
{
    static const tt_option o = {.name = "from_step", .type = TT_OPT_INT, .default_json = "0"};
    tt_error err = {0};
    tt_str out = {0};
    size_t n;
    int64_t step;
    const char *name;
    static const char *const ignore[] = {"name", NULL};
    tt_job *job = must_load(*state,
                            "{\"converters\": [{\"name\": \"a\"}, {\"name\": \"b\", \"from_step\": "
                            "2.0}], \"x\": {\"y\": [1, 2]}}",
                            NULL);
    assert_int_equal(tt_job_list(job, "converters", &n, &err), TT_OK);
    for (size_t i = 0; i < n; i++) {
        const char *key = tt_arena_printf(*state, "converters[%zu]", i);
        assert_int_equal(tt_job_section(job, key, &o, 1, sizeof o, ignore, &step, &err), TT_OK);
        assert_int_equal(
            tt_job_string(job, tt_arena_printf(*state, "%s.name", key), "", &name, &err), TT_OK);
    }
    assert_int_equal(tt_job_list(job, "hooks", &n, &err), TT_OK);
    assert_non_null(tt_job_text(job, "x"));
    assert_int_equal(tt_job_finish(job, &err), TT_OK);
    tt_job_print(job, false, &out);
    assert_string_equal(out.s, "{\n"
                               "  \"converters\": [\n"
                               "    {\n      \"name\": \"a\",\n      \"from_step\": 0\n    },\n"
                               "    {\n      \"name\": \"b\",\n      \"from_step\": 2\n    }\n"
                               "  ],\n"
                               "  \"hooks\": [],\n"
                               "  \"x\": {\n    \"y\": [1,2]\n  }\n"
                               "}\n");
    tt_str_free(&out);
}

static void test_diff_names_each_key_that_differs(void **state)
{
    tt_str out = {0};
    (void)state;
    tt_job_diff("{\"a\": {\"b\": 1, \"c\": [1, 2]}, \"h\": [{\"n\": \"x\"}], \"same\": {}}",
                "{\"a\": {\"b\": 2, \"c\": [1, 3]}, \"h\": [{\"n\": \"y\"}, {\"n\": \"z\"}], "
                "\"same\": {}, \"new\": null}",
                &out);
    assert_string_equal(out.s, "a.b: 1 → 2\n"
                               "a.c: [1,2] → [1,3]\n"
                               "h[0].n: \"x\" → \"y\"\n"
                               "h[1].n: (absent) → \"z\"\n"
                               "new: (absent) → null\n");
    tt_str_clear(&out);
    tt_job_diff("{\"a\": 1e1, \"gone\": 1}", "{\"a\": 10.0}", &out);
    assert_string_equal(out.s, "gone: 1 → (absent)\n");
    tt_str_clear(&out);
    tt_job_diff("{", "{}", &out);
    assert_non_null(strstr(out.s, "the old job:1:2: "));
    tt_str_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CONFIG_TEST(test_print_shows_origins_and_reads_back),
        CONFIG_TEST(test_print_lists_and_texts_claimed_as_a_whole),
        CONFIG_TEST(test_diff_names_each_key_that_differs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
