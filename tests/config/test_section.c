/* SPDX-License-Identifier: Apache-2.0 */
#include "config_test.h"
#include <math.h>

/* Tables against objects: types, ranges, null, aliases, layers, overlays. */

typedef struct config {
    bool flag;
    int64_t count, maybe;
    double rate, share;
    const char *text, *none, *kind, *json;
    tt_strings list;
} config;

/* The last argument: further designators. */
#define ROW(key, type_, field, default_, ...)                                                      \
    {                                                                                              \
        .name = key, .type = TT_OPT_##type_, .offset = offsetof(config, field),                    \
        .default_json = default_, __VA_ARGS__                                                      \
    }

static const tt_option options[] = {
    ROW("flag", BOOL, flag, "true", .flags = TT_OPT_NULLABLE),
    ROW("count", INT, count, "-1", .min = 1, .max = 100, .aliases = "number|n"),
    ROW("maybe", INT, maybe, "null", .flags = TT_OPT_NULLABLE),
    ROW("rate", FLOAT, rate, "8e-4", .min = 0, .max = (double)INFINITY),
    ROW("share", FLOAT, share, "null", .min = 0, .max = 1, .flags = TT_OPT_NULLABLE),
    ROW("text", STRING, text, "\"t\"", .flags = 0),
    ROW("none", STRING, none, "null", .flags = TT_OPT_NULLABLE),
    ROW("kind", ENUM, kind, NULL, .choices = "alpha|beta|~gamma"),
    ROW("json", JSON, json, "{}", .flags = 0),
    ROW("list", STRINGS, list, "[\"a\"]", .flags = 0),
    ROW("later", INT, count, "-1", .flags = TT_OPT_NOT_YET),
};
#define N_WITHOUT_LATER (TT_COUNT(options) - 1)

static tt_status section(tt_job *job, const char *key, size_t n, const char *const *ignore,
                         config *c, tt_error *err)
{
    return tt_job_section(job, key, options, n, sizeof(tt_option), ignore, c, err);
}

static tt_status parse(void **state, const char *text, const char *const *pairs, config *c,
                       tt_error *err)
{
    tt_job *job;
    TT_TRY(load(*state, text, pairs, &job, err));
    return section(job, "s", N_WITHOUT_LATER, NULL, c, err);
}

static void test_section_absent_gives_the_defaults(void **state)
{
    config c = {0};
    tt_error err = {0};
    assert_int_equal(parse(state, "{}", NULL, &c, &err), TT_OK);
    assert_true(c.flag);
    assert_int_equal(c.count, -1); /* a default may lie outside the range */
    assert_true(c.maybe == INT64_MIN);
    assert_true(c.rate > 7.9e-4 && c.rate < 8.1e-4);
    assert_true(isnan(c.share));
    assert_string_equal(c.text, "t");
    assert_null(c.none);
    assert_string_equal(c.kind, "alpha");
    assert_string_equal(c.json, "{}");
    assert_int_equal(c.list.n, 1);
    assert_string_equal(c.list.items[0], "a");
}

static void test_section_reads_every_type(void **state)
{
    config c = {0};
    tt_error err = {0};
    assert_int_equal(parse(state,
                           "{\"s\": {\"flag\": false, \"count\": 1e1, \"maybe\": 7.0, \"rate\": 2, "
                           "\"share\": 0.5, \"text\": \"\","
                           " \"none\": \"x\", \"kind\": \"beta\", \"json\": [1, {\"a\": null}], "
                           "\"list\": [\"p\", \"q\"]}}",
                           NULL, &c, &err),
                     TT_OK);
    assert_false(c.flag);
    assert_int_equal(c.count, 10);
    assert_int_equal(c.maybe, 7);
    assert_true(c.rate >= 2 && c.rate <= 2);
    assert_true(c.share >= 0.5 && c.share <= 0.5);
    assert_string_equal(c.text, "");
    assert_string_equal(c.none, "x");
    assert_string_equal(c.kind, "beta");
    assert_string_equal(c.json, "[1,{\"a\":null}]");
    assert_int_equal(c.list.n, 2);
    assert_string_equal(c.list.items[1], "q");
    assert_int_equal(
        parse(state,
              "{\"s\": {\"list\": \"one\", \"maybe\": null, \"none\": null, \"share\": null}}",
              NULL, &c, &err),
        TT_OK);
    assert_int_equal(c.list.n, 1);
    assert_string_equal(c.list.items[0], "one");
    assert_null(c.none);
}

/* clang-format aligns the columns of plain rows; these are too wide for that. */
#define BAD(...)                                                                                   \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

/* member → error, after "job.json:1:<column>: " */
static const char *const refused[][2] = {
    BAD("\"flag\": 1", "15: s.flag: expected true or false, got 1"),
    BAD("\"flag\": \"true\"", "15: s.flag: expected true or false, got \"true\""),
    BAD("\"flag\": null", "15: s.flag: expected true or false, got null"),
    BAD("\"count\": \"10\"", "16: s.count: expected an integer, got \"10\""),
    BAD("\"count\": 1.5", "16: s.count: expected an integer, got 1.5"),
    BAD("\"count\": 1e300", "16: s.count: expected an integer, got 1e+300"),
    BAD("\"count\": 0", "16: s.count: expected 1 to 100, got 0"),
    BAD("\"count\": 101", "16: s.count: expected 1 to 100, got 101"),
    BAD("\"count\": null", "16: s.count: expected an integer, got null"),
    BAD("\"count\": true", "16: s.count: expected an integer, got true"),
    BAD("\"number\": 0", "17: s.count: expected 1 to 100, got 0"),
    BAD("\"maybe\": []", "16: s.maybe: expected an integer or null, got a list"),
    BAD("\"maybe\": 9223372036854775808",
        "16: s.maybe: expected an integer or null, got 9.223372036854776e+18"),
    BAD("\"maybe\": -9223372036854775808",
        "16: s.maybe: expected an integer or null, got -9223372036854775808"),
    BAD("\"rate\": 1e999", "15: s.rate: number too large"),
    BAD("\"count\": -1e999", "16: s.count: number too large"),
    BAD("\"rate\": \"x\"", "15: s.rate: expected a number, got \"x\""),
    BAD("\"rate\": -1e-3", "15: s.rate: expected 0 or more, got -0.001"),
    BAD("\"rate\": false", "15: s.rate: expected a number, got false"),
    BAD("\"share\": 7", "16: s.share: expected 0 to 1, got 7"),
    BAD("\"text\": 3", "15: s.text: expected a string, got 3"),
    BAD("\"text\": null", "15: s.text: expected a string, got null"),
    BAD("\"none\": {}", "15: s.none: expected a string or null, got an object"),
    BAD("\"kind\": \"bta\"",
        "15: s.kind: expected one of alpha, beta, got \"bta\" (did you mean beta?)"),
    BAD("\"kind\": \"\"", "15: s.kind: expected one of alpha, beta, got \"\""),
    BAD("\"kind\": \"alpha|beta\"", "15: s.kind: expected one of alpha, beta, got \"alpha|beta\""),
    BAD("\"kind\": \"gamma\"", "15: s.kind: \"gamma\" is not built yet (built: alpha, beta)"),
    BAD("\"kind\": \"~gamma\"", "15: s.kind: expected one of alpha, beta, got \"~gamma\""),
    BAD("\"kind\": 1", "15: s.kind: expected a string, got 1"),
    BAD("\"json\": null", "15: s.json: expected a value, got null"),
    BAD("\"list\": [1]", "16: s.list[0]: expected a string, got 1"),
    BAD("\"list\": {}", "15: s.list: expected a list of strings, got an object"),
    BAD("\"list\": null", "15: s.list: expected a list of strings, got null"),
    BAD("\"cuont\": 1", "7: s.cuont: unknown key (did you mean s.count?)"),
    BAD("\"zzzzzz\": 1",
        "7: s.zzzzzz: unknown key; there are flag, count, maybe, rate, share, text, "
        "none, kind, json, list"),
    BAD("\"name\": \"x\", \"zzzzzz\": 1", "7: s.name: unknown key; there are flag, count, maybe, "
                                          "rate, share, text, none, kind, json, list"),
    BAD("\"\": 1", "7: s.\"\": unknown key; there are flag, count, maybe, rate, share, text, none, "
                   "kind, json, list"),
    BAD("\"count\": 1, \"n\": 2", "19: s.n: the same option as s.count; keep one of them"),
    BAD("\"n\": 1, \"number\": 2", "15: s.number: the same option as s.n; keep one of them"),
};

static void test_section_refuses_with_the_place(void **state)
{
    for (size_t i = 0; i < TT_COUNT(refused); i++) {
        config c, before;
        tt_error err = {0};
        memset(&c, 0x5a, sizeof c);
        before = c;
        const char *text = tt_arena_printf(*state, "{\"s\":{%s}}", refused[i][0]);
        if (parse(state, text, NULL, &c, &err) == TT_OK)
            fail_msg("accepted: %s", text);
        const char *wanted = tt_arena_printf(*state, "job.json:1:%s", refused[i][1]);
        assert_string_equal(err.text, wanted);
        assert_memory_equal(&c, &before, sizeof c);
    }
}

/* A choice is stored as its place in the list; a word that is not built has a place, too. */
static void test_section_choice_is_its_place_in_the_list(void **state)
{
    static const tt_option row = {
        .name = "c", .type = TT_OPT_CHOICE, .choices = "alpha_long|alpha|~alp|beta|bet"};
    static const struct {
        const char *word;
        int place; /* -1: refused */
    } rows[] = {
        {"alpha_long", 0 },
        {"alpha",      1 },
        {"alp",        -1},
        {"~alp",       -1},
        {"beta",       3 },
        {"bet",        4 },
        {"be",         -1},
    };
    for (size_t i = 0; i < TT_COUNT(rows); i++) {
        int got = -1;
        tt_error err = {0};
        tt_job *job = must_load(*state, "{}", PAIRS("s.c", rows[i].word));
        assert_int_equal(tt_job_section(job, "s", &row, 1, sizeof row, NULL, &got, &err),
                         rows[i].place < 0 ? TT_EINVAL : TT_OK);
        assert_int_equal(got, rows[i].place);
    }
}

static void test_section_that_is_not_an_object_is_an_error(void **state)
{
    config c = {0};
    tt_error err = {0};
    assert_int_equal(parse(state, "{\"s\": 7}", NULL, &c, &err), TT_EINVAL);
    assert_string_equal(err.text, "job.json:1:7: s: expected an object, got 7");
    assert_int_equal(parse(state, "{\"s\": null}", NULL, &c, &err), TT_EINVAL);
    assert_string_equal(err.text, "job.json:1:7: s: expected an object, got null");
}

static void test_section_option_not_built_yet_accepts_only_its_default(void **state)
{
    config c = {0};
    tt_error err = {0};
    tt_job *job = must_load(*state, "{\"s\": {\"later\": -1.0}, \"t\": {\"later\": 2}}", NULL);
    assert_int_equal(section(job, "s", TT_COUNT(options), NULL, &c, &err), TT_OK);
    assert_int_equal(section(job, "t", TT_COUNT(options), NULL, &c, &err), TT_EINVAL);
    assert_string_equal(err.text,
                        "job.json:1:39: t.later: not built yet; only the default -1 works");
}

static void test_section_ignored_keys_must_be_claimed_elsewhere(void **state)
{
    static const char *const ignore[] = {"name", "groups", NULL};
    config c = {0};
    tt_error err = {0};
    const char *name;
    tt_job *job = must_load(*state, "{\"s\": {\"name\": \"x\", \"groups\": []}}", NULL);
    assert_int_equal(section(job, "s", N_WITHOUT_LATER, ignore, &c, &err), TT_OK);
    assert_int_equal(tt_job_string(job, "s.name", "", &name, &err), TT_OK);
    assert_int_equal(tt_job_finish(job, &err), TT_EINVAL);
    assert_string_equal(err.text, "job.json:1:21: s.groups: unknown key");
    assert_int_equal(tt_job_list(job, "s.groups", &(size_t){0}, &err), TT_OK);
    assert_int_equal(tt_job_finish(job, &err), TT_OK);
}

static void test_section_alias_becomes_canonical(void **state)
{
    config c = {0};
    tt_error err = {0};
    tt_job *job = must_load(*state, "{\"s\": {\"n\": 4}}", NULL);
    assert_int_equal(section(job, "s", N_WITHOUT_LATER, NULL, &c, &err), TT_OK);
    assert_int_equal(c.count, 4);
    assert_true(tt_job_has(job, "s.count"));
    tt_job_fail(job, "s.count", &err, "no");
    assert_string_equal(err.text, "job.json:1:13: s.count: no");
    assert_int_equal(section(job, "s", N_WITHOUT_LATER, NULL, &c, &err), TT_OK); /* again */
    assert_int_equal(c.count, 4);
}

static void test_section_a_later_layer_beats_another_spelling(void **state)
{
    config c = {0};
    tt_error err = {0};
    assert_int_equal(parse(state, "{\"s\": {\"count\": 4}}", PAIRS("s.n", "5"), &c, &err), TT_OK);
    assert_int_equal(c.count, 5);
    assert_int_equal(
        parse(state, "{\"s\": {\"n\": 4}}", PAIRS("s.count", "5", "s.number", "6"), &c, &err),
        TT_OK);
    assert_int_equal(c.count, 6);
}

/* Rows that may be written as members of an object. */
static const tt_option nested[] = {
    ROW("inner_x", INT, count, "5", .min = 1, .max = 9, .aliases = "inner.x|y"),
    ROW("inner_long", FLOAT, rate, "1", .aliases = "inner.long"),
};

static tt_status parse_nested(void **state, const char *text, const char *const *pairs, config *c,
                              tt_error *err)
{
    tt_job *job;
    TT_TRY(load(*state, text, pairs, &job, err));
    return tt_job_section(job, "s", nested, TT_COUNT(nested), sizeof(tt_option), NULL, c, err);
}

static void test_section_alias_with_a_dot_is_a_member_of_an_object(void **state)
{
    config c = {0};
    tt_error err = {0};
    assert_int_equal(
        parse_nested(state, "{\"s\": {\"inner\": {\"x\": 3, \"long\": 2}}}", NULL, &c, &err),
        TT_OK);
    assert_int_equal(c.count, 3);
    assert_true(c.rate > 1.9);
    const char *member[] = {"s.inner.x", "7", NULL}, *flat[] = {"s.inner_x", "8", NULL};
    assert_int_equal(parse_nested(state, "{\"s\": {\"inner\": {\"x\": 3}}}", member, &c, &err),
                     TT_OK);
    assert_int_equal(c.count, 7);
    assert_int_equal(parse_nested(state, "{\"s\": {\"inner\": {\"x\": 3}}}", flat, &c, &err),
                     TT_OK);
    assert_int_equal(c.count, 8);
    assert_int_equal(parse_nested(state, "{\"s\": {\"inner_x\": 3}}", member, &c, &err), TT_OK);
    assert_int_equal(c.count, 7);
}

static void test_section_object_of_aliases_is_refused_with_the_place(void **state)
{
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"{\"s\": {\"inner\": {\"lnog\": 3}}}",
         "job.json:1:18: s.inner.lnog: unknown key (did you mean s.inner.long?)"                                },
        {"{\"s\": {\"inner\": 3}}",                          "job.json:1:17: s.inner: expected an object, got 3"},
        {"{\"s\": {\"inner\": {\"x\": 10}}}",                "job.json:1:23: s.inner_x: expected 1 to 9, got 10"},
        {"{\"s\": {\"inner_x\": 2, \"inner\": {\"x\": 3}}}",
         "job.json:1:32: s.inner.x: the same option as s.inner_x; keep one of them"                             },
    };
    for (size_t i = 0; i < TT_COUNT(cases); i++) {
        config c = {0};
        tt_error err = {0};
        assert_int_equal(parse_nested(state, cases[i].text, NULL, &c, &err), TT_EINVAL);
        assert_string_equal(err.text, cases[i].error);
    }
}

static void test_section_of_a_list_element(void **state)
{
    config c = {0};
    tt_error err = {0};
    tt_job *job = must_load(*state, "{\"h\": [{}, {\n\"count\": 0}]}", NULL);
    assert_int_equal(section(job, "h[0]", N_WITHOUT_LATER, NULL, &c, &err), TT_OK);
    assert_int_equal(section(job, "h[1]", N_WITHOUT_LATER, NULL, &c, &err), TT_EINVAL);
    assert_string_equal(err.text, "job.json:2:10: h[1].count: expected 1 to 100, got 0");
}

static void test_section_over_a_base(void **state)
{
    config c = {0};
    tt_error err = {0};
    tt_str out = {0};
    tt_job *job = must_load(*state, "{\"s\": {\"count\": 9}}", NULL);
    assert_int_equal(tt_job_section_over(job, "s", "flavor big",
                                         "{\"count\": 5, \"text\": \"big\"}", options, 6,
                                         sizeof(tt_option), NULL, &c, &err),
                     TT_OK);
    assert_int_equal(c.count, 9);
    assert_string_equal(c.text, "big");
    tt_job_print(job, true, &out);
    assert_non_null(strstr(out.s, "\"count\": 9, // job.json:1:17\n"));
    assert_non_null(strstr(out.s, "\"text\": \"big\" // flavor big\n"));
    assert_non_null(strstr(out.s, "\"rate\": 0.0008, // default\n"));
    tt_str_free(&out);
    assert_int_equal(tt_job_section_over(job, "s", "flavor big", "{\"cont\": 5}", options, 6,
                                         sizeof(tt_option), NULL, &c, &err),
                     TT_EINVAL);
    assert_string_equal(err.text, "flavor big:1:2: s.cont: unknown key (did you mean s.count?)");
}

static void test_overlay_changes_only_its_own_keys(void **state)
{
    config c = {.count = 3, .text = "kept"};
    tt_error err = {0};
    tt_job *job = must_load(*state, "{}", NULL);
    assert_int_equal(tt_job_overlay(job, "here", "{\"rate\": 1}", options, N_WITHOUT_LATER,
                                    sizeof(tt_option), &c, &err),
                     TT_OK);
    assert_int_equal(c.count, 3);
    assert_string_equal(c.text, "kept");
    assert_true(c.rate >= 1);
    assert_int_equal(tt_job_overlay(job, "here", "{\"rate\": 2, \"count\": 0}", options,
                                    N_WITHOUT_LATER, sizeof(tt_option), &c, &err),
                     TT_EINVAL);
    assert_string_equal(err.text, "here:1:22: count: expected 1 to 100, got 0");
    assert_true(c.rate <= 1);
    assert_int_equal(
        tt_job_overlay(job, "here", "{", options, N_WITHOUT_LATER, sizeof(tt_option), &c, &err),
        TT_EFORMAT);
    assert_int_equal(
        tt_job_overlay(job, "here", "[]", options, N_WITHOUT_LATER, sizeof(tt_option), &c, &err),
        TT_EINVAL);
}

static void test_overlay_of_the_jobs_own_text_keeps_line_and_column(void **state)
{
    config c = {0}, group = {0};
    tt_error err = {0};
    tt_job *job = must_load(
        *state, "{\"s\": {\"json\": {\n\"rate\": -1}}, \"g\": [{\n\n\"count\": 0}]}", NULL);
    assert_int_equal(section(job, "s", N_WITHOUT_LATER, NULL, &c, &err), TT_OK);
    assert_int_equal(
        tt_job_overlay(job, "w", c.json, options, N_WITHOUT_LATER, sizeof(tt_option), &group, &err),
        TT_EINVAL);
    assert_string_equal(err.text, "job.json:2:9: s.json.rate: expected 0 or more, got -1");
    assert_int_equal(tt_job_overlay(job, "w", tt_job_text(job, "g[0]"), options, N_WITHOUT_LATER,
                                    sizeof(tt_option), &group, &err),
                     TT_EINVAL);
    assert_string_equal(err.text, "job.json:4:10: g[0].count: expected 1 to 100, got 0");
}

static void test_section_survives_a_broken_table(void **state)
{
    static const tt_option bad[] = {
        {.name = "a", .type = TT_OPT_INT, .default_json = "x"}
    };
    static const tt_option nameless[] = {{.type = TT_OPT_INT}};
    static const tt_option odd[] = {
        {.name = "a", .type = (tt_option_type)99, .default_json = "1"}
    };
    config c = {0};
    tt_error err = {0};
    tt_job *job = must_load(*state, "{}", NULL);
    assert_int_not_equal(tt_job_section(job, "s", bad, 1, sizeof *bad, NULL, &c, &err), TT_OK);
    assert_non_null(strstr(err.text, "option table, default of s.a"));
    assert_int_equal(tt_job_section(job, "s", nameless, 1, sizeof *nameless, NULL, &c, &err),
                     TT_EINVAL);
    assert_int_equal(tt_job_section(job, "s", odd, 1, sizeof *odd, NULL, &c, &err), TT_EINVAL);
    assert_int_equal(tt_job_section(job, "s", NULL, 0, sizeof *odd, NULL, NULL, &err), TT_OK);
}

/* A plugin built against an older header has shorter rows. */
static void test_section_reads_option_rows_of_another_size(void **state)
{
    enum { SHORT = offsetof(tt_option, flags) };
    char table[2 * SHORT];
    config c = {0};
    tt_error err = {0};
    memcpy(table, &options[1], SHORT);
    memcpy(table + SHORT, &options[5], SHORT);
    tt_job *job = must_load(*state, "{\"s\": {\"count\": 3}, \"t\": {\"n\": 3}}", NULL);
    assert_int_equal(
        tt_job_section(job, "s", (const tt_option *)(const void *)table, 2, SHORT, NULL, &c, &err),
        TT_OK);
    assert_int_equal(c.count, 3);
    assert_string_equal(c.text, "t");
    assert_int_equal(
        tt_job_section(job, "t", (const tt_option *)(const void *)table, 2, SHORT, NULL, &c, &err),
        TT_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CONFIG_TEST(test_section_absent_gives_the_defaults),
        CONFIG_TEST(test_section_reads_every_type),
        CONFIG_TEST(test_section_refuses_with_the_place),
        CONFIG_TEST(test_section_choice_is_its_place_in_the_list),
        CONFIG_TEST(test_section_that_is_not_an_object_is_an_error),
        CONFIG_TEST(test_section_option_not_built_yet_accepts_only_its_default),
        CONFIG_TEST(test_section_ignored_keys_must_be_claimed_elsewhere),
        CONFIG_TEST(test_section_alias_becomes_canonical),
        CONFIG_TEST(test_section_a_later_layer_beats_another_spelling),
        CONFIG_TEST(test_section_alias_with_a_dot_is_a_member_of_an_object),
        CONFIG_TEST(test_section_object_of_aliases_is_refused_with_the_place),
        CONFIG_TEST(test_section_of_a_list_element),
        CONFIG_TEST(test_section_over_a_base),
        CONFIG_TEST(test_overlay_changes_only_its_own_keys),
        CONFIG_TEST(test_overlay_of_the_jobs_own_text_keeps_line_and_column),
        CONFIG_TEST(test_section_survives_a_broken_table),
        CONFIG_TEST(test_section_reads_option_rows_of_another_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
