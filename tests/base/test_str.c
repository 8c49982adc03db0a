/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include "base/shown.h"
#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <ttrun/option.h>
/* cmocka needs the headers above */
#include <cmocka.h>

static void test_str_zero_initialised_is_valid(void **state)
{
    (void)state;
    tt_str s = {0};
    assert_string_equal(tt_str_get(&s), "");
    tt_str_clear(&s);
    tt_str_free(&s);
    tt_str_addn(&s, NULL, 0);
    assert_string_equal(tt_str_get(&s), "");
    tt_str_free(&s);
}

static void test_str_appends_and_stays_terminated(void **state)
{
    (void)state;
    tt_str s = {0};
    for (int i = 0; i < 1000; i++) {
        tt_str_printf(&s, "%d,", i);
        assert_int_equal(strlen(s.s), s.n);
    }
    assert_int_equal(s.n, 10 * 2 + 90 * 3 + 900 * 4);
    tt_str_clear(&s);
    tt_str_add(&s, "ab");
    tt_str_addc(&s, 'c');
    tt_str_addn(&s, "defg", 2);
    assert_string_equal(s.s, "abcde");
    tt_str_free(&s);
}

/* Texts of every length around the room that is left, by either way of formatting. */
static void test_str_printf_of_any_length(void **state)
{
    (void)state;
    char text[1025] = "";
    tt_arena *a = tt_arena_new();
    tt_str s = {0};
    tt_str_printf(&s, "%s", "");
    assert_string_equal(s.s, "");
    for (size_t n = 0; n < sizeof text; n++) {
        memset(text, 'x', n);
        text[n] = '\0';
        tt_str_clear(&s);
        tt_str_printf(&s, "%s", text);
        assert_string_equal(s.s, text);
        assert_int_equal(s.n, n);
        assert_string_equal(tt_arena_printf(a, "%s", text), text);
    }
    tt_str_free(&s);
    tt_arena_free(a);
}

static void test_i64_text_is_printfs(void **state)
{
    (void)state;
    const int64_t numbers[] = {0, 7, -1, 10, 99, 100, -12345, INT32_MIN, INT64_MAX, INT64_MIN};
    char text[TT_I64_TEXT], want[TT_I64_TEXT];
    for (size_t i = 0; i < TT_COUNT(numbers); i++) {
        snprintf(want, sizeof want, "%lld", (long long)numbers[i]);
        assert_string_equal(tt_i64_text(numbers[i], text), want);
    }
}

static void check_json(const char *text, const char *want)
{
    tt_str s = {0};
    tt_str_json(&s, text);
    assert_string_equal(s.s, want);
    tt_str_free(&s);
}

static void test_str_json_escapes(void **state)
{
    (void)state;
    check_json("", "\"\"");
    check_json("a\"b\\c\n\t\r\x01/", "\"a\\\"b\\\\c\\n\\t\\r\\u0001/\"");
    check_json("\b\f\v\x1f\x7f", "\"\\b\\f\\u000b\\u001f\\u007f\"");
    check_json("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"");
    check_json("a\xff\xc3z", "\"a\xef\xbf\xbd\xef\xbf\xbdz\""); /* not UTF-8: replaced */
}

static void test_control_bytes(void **state)
{
    static const struct {
        const char *text;
        size_t n, bytes;
    } rows[] = {
        {"",         0, 0},
        {"a",        1, 0},
        {" ",        1, 0},
        {"~",        1, 0},
        {"\t",       1, 1},
        {"\n",       1, 1},
        {"\0",       1, 1},
        {"\x1f",     1, 1},
        {"\x7f",     1, 1},
        {"\033[",    2, 1},
        {"\xc2\x80", 2, 2},
        {"\xc2\x9f", 2, 2},
        {"\xc2\xa0", 2, 0},
        {"\xc2\x80", 1, 0},
        {"\xc3\x80", 2, 0},
        {"\x9b",     1, 0},
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(rows); i++)
        if (tt_control_bytes(rows[i].text, rows[i].n) != rows[i].bytes)
            fail_msg("row %zu", i);
}

static void test_str_shows_control_characters(void **state)
{
    (void)state;
    tt_str s = {0};
    tt_str_shown(&s, "a\033[31mb\tc\n\x7f \xc2\x9b\xc2\xa0\xc3\xa9\xc2", 19);
    assert_string_equal(s.s, "a\\x1b[31mb\tc\\x0a\\x7f \\xc2\\x9b\xc2\xa0\xc3\xa9\xc2");
    tt_str_free(&s);
}

static void check_number(double v, const char *want)
{
    tt_str s = {0};
    tt_str_json_number(&s, v);
    assert_string_equal(s.s, want);
    tt_str_free(&s);
}

static void test_str_json_number_is_shortest(void **state)
{
    (void)state;
    check_number(0.0, "0");
    check_number(-0.0, "-0");
    check_number(1.0, "1");
    check_number(100.0, "100");
    check_number(16384.0, "16384");
    check_number(0.1, "0.1");
    check_number(8e-4, "0.0008");
    check_number(1.0 / 3.0, "0.3333333333333333");
    check_number(1e300, "1e+300");
    check_number(NAN, "null");
    check_number(-INFINITY, "null");
}

static void test_str_json_number_reads_back(void **state)
{
    (void)state;
    tt_rng_key key = tt_rng_key_make(1, "numbers", 0);
    for (uint64_t i = 0; i < 20000; i++) {
        uint32_t x[4];
        tt_rng_u32x4(key, i, x);
        double v;
        memcpy(&v, x, sizeof v);
        if (!isfinite(v))
            continue;
        tt_str s = {0};
        tt_str_json_number(&s, v);
        double back = strtod(s.s, NULL);
        assert_memory_equal(&back, &v, sizeof v);
        tt_str_free(&s);
    }
}

static void test_nearest_suggests_only_similar_names(void **state)
{
    (void)state;
    static const char *const keys[] = {"seq_len", "steps", "max_norm", "local_batch_size", "lr"};
    const size_t n = TT_COUNT(keys);
    assert_string_equal(tt_nearest("seq_lne", keys, n),
                        "seq_len"); /* neighbours swapped: one edit */
    assert_string_equal(tt_nearest("seq_length", keys, n), "seq_len");
    assert_string_equal(tt_nearest("step", keys, n), "steps");
    assert_string_equal(tt_nearest("local_batchsize", keys, n), "local_batch_size");
    assert_string_equal(tt_nearest("seq_len", keys, n), "seq_len");
    assert_null(tt_nearest("dropout", keys, n));
    assert_null(tt_nearest("", keys, n));
    assert_null(tt_nearest("x", keys, 0));
    static const char *const one[] = {"b", NULL};
    assert_null(tt_nearest("a", one, 2)); /* nothing in common */
    char longest[300];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_null(tt_nearest(longest, keys, n));
}

static void test_nearest_prefers_the_most_similar_name(void **state)
{
    (void)state;
    static const char *const keys[] = {"beta22", "beta2", "beta1"};
    assert_string_equal(tt_nearest("beta2", keys, 3), "beta2");
    assert_string_equal(tt_nearest("beta_2", keys, 3), "beta22"); /* ties: the first */
}

static void test_utf8_valid_prefix(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t n, valid;
    } cases[] = {
        {"",                                 0,  0 },
        {"plain ascii, longer than a word",  31, 31},
        {"\xc3\xa9",                         2,  2 },
        {"ab\xc3",                           3,  2 }, /* cut */
        {"12345678\xe2\x82\xac",             11, 11},
        {"\xc0\xaf",                         2,  0 }, /* overlong */
        {"\xe0\x9f\xbf",                     3,  0 }, /* overlong */
        {"\xed\x9f\xbf\xed\xa0\x80",         6,  3 }, /* surrogate */
        {"\xf4\x8f\xbf\xbf\xf4\x90\x80\x80", 8,  4 }, /* beyond U+10FFFF */
        {"\xf0\x8f\xbf\xbf",                 4,  0 }, /* overlong */
        {"a\x80",                            2,  1 }, /* stray continuation */
        {"a\0b",                             3,  3 }, /* U+0000 is valid */
        {"\xe2\x82x",                        3,  0 },
    };
    for (size_t i = 0; i < TT_COUNT(cases); i++)
        assert_int_equal(tt_utf8_valid(cases[i].text, cases[i].n), cases[i].valid);
}

static void test_ends_with_its_whole_end(void **state)
{
    static const struct {
        const char *text, *end;
        bool ends;
    } rows[] = {
        {"a.json",    ".json", true },
        {".json",     ".json", true },
        {"a.jsonl",   ".json", false},
        {"a.json.gz", ".json", false},
        {"json",      ".json", false},
        {"",          ".json", false},
        {"a",         "",      true },
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(rows); i++)
        if (tt_ends_with(rows[i].text, rows[i].end) != rows[i].ends)
            fail_msg("\"%s\" and \"%s\"", rows[i].text, rows[i].end);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_str_zero_initialised_is_valid),
        cmocka_unit_test(test_str_appends_and_stays_terminated),
        cmocka_unit_test(test_str_printf_of_any_length),
        cmocka_unit_test(test_i64_text_is_printfs),
        cmocka_unit_test(test_str_json_escapes),
        cmocka_unit_test(test_control_bytes),
        cmocka_unit_test(test_str_shows_control_characters),
        cmocka_unit_test(test_str_json_number_is_shortest),
        cmocka_unit_test(test_str_json_number_reads_back),
        cmocka_unit_test(test_nearest_suggests_only_similar_names),
        cmocka_unit_test(test_nearest_prefers_the_most_similar_name),
        cmocka_unit_test(test_utf8_valid_prefix),
        cmocka_unit_test(test_ends_with_its_whole_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
