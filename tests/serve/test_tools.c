/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/tools.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Calls of tools in a text, whole and as it grows byte by byte: the same calls and the same text besides them. */

static const char request[] = "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}},{\"type\":"
                              "\"function\",\"function\":{\"name\":\"weather\"}}]";

/* calls: "name arguments" each, with "|" between them. */
static void print(const tt_tool_reader *r, tt_str *out)
{
    tt_str_addn(out, tt_str_get(&r->said), r->said.n);
    for (size_t i = 0; i < r->calls.n; i++)
        tt_str_printf(out, "|%s %s", r->calls.items[i].name, r->calls.items[i].arguments);
}

/* step: bytes that come at a time. What has been told once must stay. */
static void read_by(const char *text, size_t n, size_t step, const char *expected)
{
    tt_arena *a = tt_arena_new();
    const tt_json *tools;
    tt_str got = {0}, before = {0};
    assert_int_equal(tt_json_parse(a, "tools", request, strlen(request), &tools, NULL), TT_OK);
    tt_tool_reader r = {.tools = tt_tools_names(a, tools), .arena = a};
    for (size_t k = 0; k < n; k += step) {
        char *part = malloc(k ? k : 1); /* a sanitizer sees what is behind it */
        memcpy(part, text, k);
        tt_tools_read(&r, part, k, false);
        free(part);
        assert_true(r.said.n >= before.n &&
                    !memcmp(tt_str_get(&r.said), tt_str_get(&before), before.n));
        tt_str_clear(&before);
        tt_str_addn(&before, tt_str_get(&r.said), r.said.n);
    }
    tt_tools_read(&r, text, n, true);
    print(&r, &got);
    assert_string_equal(tt_str_get(&got), expected);
    tt_str_free(&got);
    tt_str_free(&before);
    tt_str_free(&r.said);
    tt_arena_free(a);
}

static void check(const char *text, const char *expected)
{
    const size_t n = strlen(text);
    for (size_t step = 1; step <= n + 1; step++)
        read_by(text, n, step, expected);
}

#define CALL(body) "<tool_call>" body "</tool_call>"
#define F "{\"name\": \"f\", \"arguments\": {\"x\": 1}}"

static void test_tagged_calls(void **state)
{
    (void)state;
    check(CALL("\n" F "\n"), "|f {\"x\":1}");
    check("I look.\n\n" CALL(F) "\n" CALL("{\"name\": \"weather\", \"parameters\": {}}"),
          "I look.|f {\"x\":1}|weather {}");
    check("\n" CALL(F) "\n", "|f {\"x\":1}");
    check("<think>\na < b\n</think>\n\n" CALL(F) " \nand more \n",
          "<think>\na < b\n</think> \nand more|f {\"x\":1}");
}

static void test_text_around_calls(void **state)
{
    (void)state;
    check("a " CALL(F) " b " CALL(F) " c ", "a b c|f {\"x\":1}|f {\"x\":1}");
    check("no call at all, a <tool and <tool_call", "no call at all, a <tool and <tool_call");
    check("blanks stay \n\n", "blanks stay \n\n");
    check(" \n", " \n");
    check("", "");
}

static void test_other_forms_of_arguments(void **state)
{
    (void)state;
    check(CALL("{\"name\":\"g\"}"), "|g {}");
    check(CALL("{\"name\":\"g\",\"arguments\":\"{\\\"a\\\": [1, 2]}\"}"), "|g {\"a\": [1, 2]}");
    check(CALL("{\"name\":\"g\",\"arguments\":{\"x\":[1.0,12345678901234567890,1e5,2]}}"),
          "|g {\"x\":[1.0,12345678901234567890,1e5,2]}");
    check(CALL("{\"arguments\":{\"t\":\"</tool_call> \\u00e9\"},\"name\":\"g\"}"),
          "|g {\"t\":\"</tool_call> \xc3\xa9\"}");
    check("<tool_call>\n" F, "|f {\"x\":1}"); /* the turn ended without the end of the call */
}

static void test_what_is_no_call(void **state)
{
    static const char *const bodies[] = {"{\"name\":\"f\",",
                                         "[1]",
                                         "",
                                         "{\"name\":3}",
                                         "{\"name\":\"\"}",
                                         "{\"name\":\"f\",\"arguments\":[1]}",
                                         "{\"name\":\"f\",\"arguments\":\"x\"}",
                                         "f(x)"};
    (void)state;
    for (size_t i = 0; i < TT_COUNT(bodies); i++) {
        tt_str text = {0}, expected = {0};
        tt_str_printf(&text, "so: <tool_call>%s</tool_call>\n" CALL(F), bodies[i]);
        tt_str_printf(&expected, "so: <tool_call>%s</tool_call>|f {\"x\":1}", bodies[i]);
        check(tt_str_get(&text), tt_str_get(&expected));
        tt_str_free(&text);
        tt_str_free(&expected);
    }
    check("x <tool_call> is a tag", "x <tool_call> is a tag");
}

static void test_untagged_calls(void **state)
{
    (void)state;
    check("{\"name\": \"weather\", \"parameters\": {\"city\": \"}\\\"{\"}}",
          "|weather {\"city\":\"}\\\"{\"}");
    check(" <|python_tag|>{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"f\", \"arguments\": "
          "{\"y\": [2]}}\n",
          "|f {}|f {\"y\":[2]}");
    check("{\"name\": \"f\", \"parameters\": {}}\n{\"name\": \"weather\", \"parameters\": {}}",
          "|f {}|weather {}");
}

static void test_json_that_is_no_call(void **state)
{
    static const char *const texts[] = {
        "{\"name\": \"Ada\", \"parameters\": {}}",
        "{\"name\": \"f\"}",
        "{\"a\": 1}",
        "{ not JSON",
        "{",
        "{\"name\": \"f\", \"parameters\": {}} is what I would call",
        "<|python_tag|>f.call(1)",
        "<|python_tag|>",
        "<|pyth"};
    (void)state;
    for (size_t i = 0; i < TT_COUNT(texts); i++)
        check(texts[i], texts[i]);
}

static void test_marks(void **state)
{
    (void)state;
    assert_true(tt_tools_is_mark("<tool_call>", 11) && tt_tools_is_mark("</tool_call>", 12) &&
                tt_tools_is_mark("<|python_tag|>", 14));
    assert_false(tt_tools_is_mark("<tool_call>", 10) || tt_tools_is_mark("<|im_end|>", 10));
}

/* Noise of the forms' parts: nothing that was told changes, and the whole is what the pieces give. */
static void test_noise(void **state)
{
    static const char *const parts[] = {
        "<tool_call>", "</tool_call>",   F,   "{",       "}", "\"", "\\", " ", "\n", ";",
        "<",           "<|python_tag|>", "x", "\xc3\xa9"};
    uint32_t x = 1;
    (void)state;
    for (int round = 0; round < 3000; round++) {
        tt_arena *a = tt_arena_new();
        const tt_json *tools;
        tt_str text = {0}, whole = {0};
        assert_int_equal(tt_json_parse(a, "tools", request, strlen(request), &tools, NULL), TT_OK);
        for (int k = 0; k < 8; k++) {
            x = x * 1664525u + 1013904223u;
            tt_str_add(&text, parts[(x >> 16) % TT_COUNT(parts)]);
        }
        tt_tool_reader r = {.tools = tt_tools_names(a, tools), .arena = a};
        tt_tools_read(&r, tt_str_get(&text), text.n, true);
        print(&r, &whole);
        read_by(tt_str_get(&text), text.n, 1, tt_str_get(&whole));
        read_by(tt_str_get(&text), text.n, 3, tt_str_get(&whole));
        tt_str_free(&text);
        tt_str_free(&whole);
        tt_str_free(&r.said);
        tt_arena_free(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tagged_calls),
        cmocka_unit_test(test_text_around_calls),
        cmocka_unit_test(test_other_forms_of_arguments),
        cmocka_unit_test(test_what_is_no_call),
        cmocka_unit_test(test_untagged_calls),
        cmocka_unit_test(test_json_that_is_no_call),
        cmocka_unit_test(test_marks),
        cmocka_unit_test(test_noise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
