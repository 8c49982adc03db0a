/* SPDX-License-Identifier: Apache-2.0 */
#include "config/internal.h"
#include "config_test.h"
#include <stdlib.h>

/* the reader itself, with a count of its steps */
#include "loop_count.h"

#include "config/json.c"

#include "loop_count_end.h"

/* The JSON reader: what it accepts, what it refuses, and the position it reports. */

typedef struct bad {
    const char *text, *error;
} bad;

/* clang-format aligns the columns of plain rows; these are too wide for that. */
#define BAD(...)                                                                                   \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

static const bad refused[] = {
    BAD("", "t:1:1: expected a value, found the end of the text"),
    BAD("  \n ", "t:2:2: expected a value, found the end of the text"),
    BAD("{", "t:1:2: expected a key in double quotes, found the end of the text"),
    BAD("[", "t:1:2: expected a value, found the end of the text"),
    BAD("{\"a\"", "t:1:5: expected ':' after the key, found the end of the text"),
    BAD("{\"a\":", "t:1:6: expected a value, found the end of the text"),
    BAD("{\"a\":1", "t:1:7: expected ',' or '}', found the end of the text"),
    BAD("[1", "t:1:3: expected ',' or ']', found the end of the text"),
    BAD("{\"a\" 1}", "t:1:6: expected ':' after the key, found '1'"),
    BAD("{a:1}", "t:1:2: expected a key in double quotes, found 'a'"),
    BAD("{1:1}", "t:1:2: expected a key in double quotes, found '1'"),
    BAD("{\"a\":1 \"b\":2}", "t:1:8: expected ',' or '}', found '\"'"),
    BAD("[1 2]", "t:1:4: expected ',' or ']', found '2'"),
    BAD("{\"a\":1,}", "t:1:7: comma after the last element"),
    BAD("[1,\n]", "t:1:3: comma after the last element"),
    BAD("[1, /* x */ ]", "t:1:3: comma after the last element"),
    BAD("[,1]", "t:1:2: expected a value, found ','"),
    BAD("{,}", "t:1:2: expected a key in double quotes, found ','"),
    BAD("[1,,2]", "t:1:4: expected a value, found ','"),
    BAD("1 2", "t:1:3: expected nothing more, found '2'"),
    BAD("{} {}", "t:1:4: expected nothing more, found '{'"),
    BAD("]", "t:1:1: expected a value, found ']'"),
    BAD("[1}", "t:1:3: expected ',' or ']', found '}'"),
    BAD("{\"a\":1]", "t:1:7: expected ',' or '}', found ']'"),
    BAD("{\"a\":1,\"a\":2}", "t:1:8: key \"a\" occurs twice (first at 1:2)"),
    BAD("{\"a\":1,\n \"\\u0061\":2}", "t:2:2: key \"a\" occurs twice (first at 1:2)"),
    BAD("nul", "t:1:1: expected a value, found 'n'"),
    BAD("nullx", "t:1:5: expected nothing more, found 'x'"),
    BAD("True", "t:1:1: write true and false in lower case"),
    BAD("[False]", "t:1:2: write true and false in lower case"),
    BAD("NaN", "t:1:1: NaN and Infinity are not JSON"),
    BAD("[1, Infinity]", "t:1:5: NaN and Infinity are not JSON"),
    BAD("-Infinity", "t:1:1: a number needs digits (NaN and Infinity are not JSON)"),
    BAD("'a'", "t:1:1: write strings in double quotes"),
    BAD("01", "t:1:1: a number cannot start with 0"),
    BAD("-01", "t:1:1: a number cannot start with 0"),
    BAD("-", "t:1:1: a number needs digits (NaN and Infinity are not JSON)"),
    BAD("+1", "t:1:1: expected a value, found '+'"),
    BAD(".5", "t:1:1: expected a value, found '.'"),
    BAD("1.", "t:1:1: digits missing after the decimal point"),
    BAD("1.e3", "t:1:1: digits missing after the decimal point"),
    BAD("1e", "t:1:1: digits missing in the exponent"),
    BAD("1e+", "t:1:1: digits missing in the exponent"),
    BAD("0x10", "t:1:2: expected nothing more, found 'x'"),
    BAD("1_000", "t:1:2: expected nothing more, found '_'"),
    BAD("\"a", "t:1:1: string without an end (\")"),
    BAD("[\"a\\\"]", "t:1:2: string without an end (\")"),
    BAD("\"a\\", "t:1:1: string without an end (\")"),
    BAD("\"a\nb\"", "t:1:3: line end inside a string (write \\n)"),
    BAD("\"a\tb\"", "t:1:3: control character inside a string"),
    BAD("\"\\x41\"", "t:1:2: unknown escape (known: \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX)"),
    BAD("\"a\\u12\"", "t:1:3: \\u needs four hex digits"),
    BAD("\"\\u12g4\"", "t:1:2: \\u needs four hex digits"),
    BAD("\"\\ud800\"", "t:1:2: half of a surrogate pair"),
    BAD("\"\\ud800\\u0041\"", "t:1:2: half of a surrogate pair"),
    BAD("\"\\udc00\"", "t:1:2: half of a surrogate pair"),
    BAD("\"\\u0000\"", "t:1:2: a string cannot hold \\u0000"),
    BAD("\"\xff\"", "t:1:2: not UTF-8"),
    BAD("\"\xc0\x80\"", "t:1:2: not UTF-8"),
    BAD("{\n \"\xc3\xa9\": \"\xed\xa0\x80\"}", "t:2:8: not UTF-8"),
    BAD("\"\xc3\"", "t:1:2: not UTF-8"),
    BAD("/* x", "t:1:1: comment without an end (*/)"),
    BAD("1 /*\n* /", "t:1:3: comment without an end (*/)"),
    BAD("1 / 2", "t:1:3: expected a value or a comment (// or /* */), found '/'"),
    BAD("# x\n1", "t:1:1: expected a value, found '#'"),
    BAD("// only a comment", "t:1:18: expected a value, found the end of the text"),
    BAD("[1\v]", "t:1:3: expected ',' or ']', found byte 0x0b"),
    BAD("[1 \xc2\xa0]", "t:1:4: expected ',' or ']', found a non-ASCII character"),
    BAD("{\"\xc3\xa9\xc3\xa9\": x}", "t:1:8: expected a value, found 'x'"),
    BAD("{\r\n\"a\": 1,\r\n}", "t:2:7: comma after the last element"),
    BAD("\xef\xbb\xbf{,", "t:1:2: expected a key in double quotes, found ','"),
};

static void test_json_refuses_with_the_place(void **state)
{
    for (size_t i = 0; i < TT_COUNT(refused); i++) {
        tt_error err = {0};
        const tt_json *v = NULL;
        tt_status s =
            tt_json_parse(*state, "t", refused[i].text, strlen(refused[i].text), &v, &err);
        if (s == TT_OK)
            fail_msg("accepted: %s", refused[i].text);
        assert_string_equal(err.text, refused[i].error);
        assert_int_equal(s, TT_EFORMAT);
        assert_null(v);
    }
}

/* text → compact */
static const char *const accepted[][2] = {
    {"null",                               "null"                         },
    {" true ",                             "true"                         },
    {"\tfalse\r\n",                        "false"                        },
    {"0",                                  "0"                            },
    {"-0",                                 "0"                            },
    {"-17",                                "-17"                          },
    {"9223372036854775807",                "9223372036854775807"          },
    {"-9223372036854775808",               "-9223372036854775808"         },
    {"9223372036854775808",                "9.223372036854776e+18"        },
    {"1000000000000000019884624838656",    "1e+30"                        },
    {"[1e999,-1e999]",                     "[1e999,-1e999]"               },
    {"1e3",                                "1000"                         },
    {"10.0",                               "10"                           },
    {"8e-4",                               "0.0008"                       },
    {"1E+2",                               "100"                          },
    {"0.1",                                "0.1"                          },
    {"1e-400",                             "0"                            },
    {"\"\"",                               "\"\""                         },
    {"\"a\\\"\\\\\\/\\b\\f\\n\\r\\t\"",    "\"a\\\"\\\\/\\b\\f\\n\\r\\t\""},
    {"\"\\u00e9\\u20ac\"",                 "\"\xc3\xa9\xe2\x82\xac\""     },
    {"\"\\ud83d\\ude00\"",                 "\"\xf0\x9f\x98\x80\""         },
    {"\"\xf0\x9f\x98\x80\"",               "\"\xf0\x9f\x98\x80\""         },
    {"[]",                                 "[]"                           },
    {"{}",                                 "{}"                           },
    {"[ 1 , [ 2 ] , { } ]",                "[1,[2],{}]"                   },
    {"{\"b\":1,\"a\":{\"b\":2}}",          "{\"b\":1,\"a\":{\"b\":2}}"    },
    {"{\"\":1}",                           "{\"\":1}"                     },
    {"// c\n[1, // d\n 2 /* e // */]// f", "[1,2]"                        },
    {"/**/1/***/",                         "1"                            },
    {"\xef\xbb\xbf[1]",                    "[1]"                          },
};

static void test_json_accepts_and_writes_back(void **state)
{
    for (size_t i = 0; i < TT_COUNT(accepted); i++) {
        tt_error err = {0};
        tt_str out = {0};
        const tt_json *v = NULL;
        if (tt_json_parse(*state, "t", accepted[i][0], strlen(accepted[i][0]), &v, &err) != TT_OK)
            fail_msg("%s: %s", accepted[i][0], err.text);
        tt_json_write(v, &out);
        assert_string_equal(tt_str_get(&out), accepted[i][1]);
        tt_str_free(&out);
    }
}

static const tt_json *parse(void **state, const char *text)
{
    tt_error err = {0};
    const tt_json *v = NULL;
    if (tt_json_parse(*state, "t", text, strlen(text), &v, &err) != TT_OK)
        fail_msg("%s", err.text);
    return v;
}

static void test_json_keeps_places_of_keys_and_values(void **state)
{
    const tt_json *v = parse(state, "{\n  \"\xc3\xa9\": 1, \"b\":\n    [true,\n {}]\n}");
    assert_int_equal(v->line, 1);
    assert_int_equal(v->column, 1);
    assert_int_equal(v->key_pos[0].line, 2);
    assert_int_equal(v->key_pos[0].column, 3);
    assert_int_equal(v->items[0]->column, 8); /* characters, not bytes */
    assert_int_equal(v->key_pos[1].column, 11);
    assert_int_equal(v->items[1]->line, 3);
    assert_int_equal(v->items[1]->column, 5);
    assert_int_equal(v->items[1]->items[1]->line, 4);
    assert_int_equal(v->items[1]->items[1]->column, 2);
}

static void test_json_numbers_keep_their_kind(void **state)
{
    const tt_json *v = parse(state, "[3, 3.0, 1e2, 9223372036854775807, 9223372036854775808]");
    assert_int_equal(v->items[0]->type, TT_JSON_INT);
    assert_true(v->items[0]->real >= 3 && v->items[0]->real <= 3);
    assert_int_equal(v->items[1]->type, TT_JSON_REAL);
    assert_int_equal(v->items[2]->type, TT_JSON_REAL);
    assert_true(v->items[3]->integer == INT64_MAX);
    assert_int_equal(v->items[4]->type, TT_JSON_REAL);
}

static void test_json_get_finds_keys_of_small_and_large_objects(void **state)
{
    for (int n = 1; n < 200; n = n * 2 + 1) {
        tt_str text = {0};
        tt_str_add(&text, "{");
        for (int i = 0; i < n; i++)
            tt_str_printf(&text, "%s\"k%d\":%d", i ? "," : "", (i * 7919) % n, i);
        tt_str_add(&text, "}");
        const tt_json *v = parse(state, text.s);
        for (int i = 0; i < n; i++) {
            const tt_json *got = tt_json_get(v, tt_arena_printf(*state, "k%d", (i * 7919) % n));
            assert_non_null(got);
            assert_int_equal(got->integer, i);
        }
        assert_null(tt_json_get(v, "k"));
        assert_null(tt_json_get(v, "z"));
        tt_str_free(&text);
    }
    assert_null(tt_json_get(NULL, "a"));
    assert_null(tt_json_get(parse(state, "[1]"), "a"));
}

static void test_json_refuses_a_duplicate_among_many(void **state)
{
    tt_str text = {0};
    tt_error err = {0};
    const tt_json *v;
    tt_str_add(&text, "{\n");
    for (int i = 0; i < 100; i++)
        tt_str_printf(&text, "\"k%d\": 0,\n", i);
    tt_str_add(&text, "\"k42\": 1}");
    assert_int_equal(tt_json_parse(*state, "t", text.s, text.n, &v, &err), TT_EFORMAT);
    assert_string_equal(err.text, "t:102:1: key \"k42\" occurs twice (first at 44:1)");
    tt_str_free(&text);
}

static tt_status nested(void **state, int depth, tt_error *err)
{
    tt_str text = {0};
    const tt_json *v;
    for (int i = 0; i < depth; i++)
        tt_str_add(&text, i % 2 ? "{\"a\":" : "[");
    tt_str_add(&text, "1");
    for (int i = depth; i > 0; i--)
        tt_str_add(&text, i % 2 ? "]" : "}");
    tt_status s = tt_json_parse(*state, "t", text.s, text.n, &v, err);
    tt_str_free(&text);
    return s;
}

static void test_json_depth_is_bounded(void **state)
{
    tt_error err = {0};
    assert_int_equal(nested(state, 512, &err), TT_OK);
    assert_int_equal(nested(state, 513, &err), TT_EFORMAT);
    assert_non_null(strstr(err.text, "nested deeper than 512"));
    tt_str text = {0};
    const tt_json *v;
    for (int i = 0; i < 1000000; i++)
        tt_str_addc(&text, '[');
    assert_int_equal(tt_json_parse(*state, "t", text.s, text.n, &v, &err), TT_EFORMAT);
    tt_str_free(&text);
}

/* The steps of the reader per byte of one line of n keys in one object, which are looked up afterwards. */
static double steps_per_byte(int n)
{
    tt_arena *a = tt_arena_new();
    tt_str text = {0};
    tt_error err = {0};
    const tt_json *v;
    tt_str_add(&text, "{\"k\":0");
    for (int i = 0; i < n; i++)
        tt_str_printf(&text, ",\"key %07d\":[%07d]", i, 1000000 + i);
    tt_str_add(&text, "}");
    loop_passes = 0;
    assert_int_equal(tt_json_parse(a, "t", text.s, text.n, &v, &err), TT_OK);
    assert_int_equal(v->n, n + 1);
    for (int i = 0; i < n; i++) {
        char key[16];
        snprintf(key, sizeof key, "key %07d", i);
        assert_int_equal(tt_json_get(v, key)->items[0]->integer, 1000000 + i);
    }
    const double steps = (double)loop_passes / (double)text.n;
    tt_str_free(&text);
    tt_arena_free(a);
    return steps;
}

/* Twice the keys take one more comparison per key, to sort and to find it. */
static void test_json_reads_a_large_line_in_linear_time(void **state)
{
    (void)state;
    const double few = steps_per_byte(2000);
    assert_true(few > 1 && few < 8);
    assert_true(steps_per_byte(20000) < few * 1.2);
    assert_true(steps_per_byte(200000) < few * 1.4);
}

/* Every cut of a valid text is refused or read, and never read past its end (a heap copy without a
 * NUL). */
static void test_json_survives_every_truncation(void **state)
{
    const char *whole =
        "{\"a\": [1.5e3, -2, \"x\\u00e9\\ud83d\\ude00\", true], /* c */ \"b\": {\"c\": null}} // d";
    for (size_t n = 0; n < strlen(whole); n++) {
        char *part = malloc(n + !n);
        const tt_json *v;
        memcpy(part, whole, n);
        tt_status s = tt_json_parse(*state, "t", part, n, &v, NULL);
        assert_int_equal(s == TT_OK, n >= strlen(whole) - 5 && n != strlen(whole) - 3); /* "/" */
        free(part);
    }
}

/* What tt_json_each gave: "key=value;" for each member. */
static tt_status note_member(void *told, const char *key, const tt_json *v, tt_error *err)
{
    tt_str_printf(told, "%s=", key ? key : "(root)");
    tt_json_write(v, told);
    tt_str_addc(told, ';');
    return v->type == TT_JSON_NULL && key ? TT_FAIL(err, TT_EINVAL, "null is refused") : TT_OK;
}

static const struct {
    const char *text, *told, *error; /* error NULL: none */
} each[] = {
    {"{\"a\": 1, \"b\": [1, 2]} ",   "a=1;b=[1,2];",  NULL                                                   },
    {"{}",                           "",              NULL                                                   },
    {"{ \"a\" : {\"a\":{}} // c\n}", "a={\"a\":{}};", NULL                                                   },
    {"{\"a\":1,\"a\":2}",            "a=1;a=2;",      NULL                                                   },
    {" null ",                       "(root)=null;",  NULL                                                   },
    {"[1,2]",                        "(root)=[1,2];", NULL                                                   },
    {"{\"a\":null,\"b\":1}",         "a=null;",       "null is refused"                                      },
    {"{\"a\":1,}",                   "a=1;",          "t:1:7: comma after the last element"                  },
    {"{\"a\":1} x",                  "a=1;",          "t:1:9: expected nothing more, found 'x'"              },
    {"{\"a\":1",                     "a=1;",          "t:1:7: expected ',' or '}', found the end of the text"},
    {"{1:2}",                        "",              "t:1:2: expected a key in double quotes, found '1'"    },
    {"\xff",                         "",              "t:1:1: not UTF-8"                                     },
    {"",                             "",              "t:1:1: expected a value, found the end of the text"   },
    {"{\"a\":[1,2],\"b\":[1,2,3]}",  "a=[1,2];",      "t:1:21: more than 3 values are too many"              },
    {"[1,[],{}]",                    "",              "t:1:7: more than 3 values are too many"               },
};

static void test_json_each_gives_one_member_after_another(void **state)
{
    (void)state;
    for (size_t i = 0; i < TT_COUNT(each); i++) {
        tt_error err = {0};
        tt_str told = {0};
        const tt_status s =
            tt_json_each("t", each[i].text, strlen(each[i].text), 3, note_member, &told, &err);
        assert_string_equal(tt_str_get(&told), each[i].told);
        assert_string_equal(s == TT_OK ? "" : err.text, each[i].error ? each[i].error : "");
        tt_str_free(&told);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CONFIG_TEST(test_json_refuses_with_the_place),
        CONFIG_TEST(test_json_accepts_and_writes_back),
        CONFIG_TEST(test_json_keeps_places_of_keys_and_values),
        CONFIG_TEST(test_json_numbers_keep_their_kind),
        CONFIG_TEST(test_json_get_finds_keys_of_small_and_large_objects),
        CONFIG_TEST(test_json_refuses_a_duplicate_among_many),
        CONFIG_TEST(test_json_depth_is_bounded),
        CONFIG_TEST(test_json_reads_a_large_line_in_linear_time),
        CONFIG_TEST(test_json_each_gives_one_member_after_another),
        CONFIG_TEST(test_json_survives_every_truncation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
