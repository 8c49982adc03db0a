/* SPDX-License-Identifier: Apache-2.0 */
#include "../fuzz/grammar.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* What grammars of tests/fuzz/grammar.h give. */

static uint64_t drawn;
static uint64_t first(uint64_t below)
{
    assert_true(below > 0);
    return 0;
}

static uint64_t any(uint64_t below)
{
    uint32_t x[4];
    tt_rng_u32x4((tt_rng_key){7}, drawn++, x);
    return ((uint64_t)x[0] << 32 | x[1]) % below;
}

static grammar *read_text(tt_arena *a, const char *text, tt_error *err)
{
    grammar *g = NULL;
    const tt_status s = grammar_read(a, "g", text, strlen(text), &g, err);
    assert_true(s == TT_OK ? !err->text[0] : err->text[0]);
    return s == TT_OK ? g : NULL;
}

static const struct {
    const char *grammar, *input;
    size_t n;
} rows[] = {
#define ROW(grammar, input)                                                                        \
    {                                                                                              \
        grammar, input, sizeof(input) - 1                                                          \
    }
    ROW("a = \"x\\n\\\"\\\\\\x80\\0\" # why\n\n \"y\"", "x\n\"\\\x80\0y"),
    ROW("a = b c\nb = \"1\" | \"2\" c = \"3\"", "13"),
    ROW("a = (\"x\" | \"y\"){3} \"z\"{2,4} \"n\"* \"m\"? \"o\"+", "xxxzzo"),
    ROW("a = | \"x\"", ""),
    ROW("a = a \"x\" | \"y\" a | \"z\"", "z"),
    ROW("a = u8(5..9) u16(258..300) u32(-1..4) u64(3..3)",
        "\5\2\1\xff\xff\xff\xff\3\0\0\0\0\0\0\0"),
    ROW("a = varint(300..301) zigzag(-3..1) zigzag(64..65) varint(-1..0)",
        "\xac\2\5\x80\1\xff\xff\xff\xff\xff\xff\xff\xff\xff\1"),
    ROW("a = decimal(-12..1) \",\" hex(255..256)", "-12,ff"),
    ROW("a = varint[b] hex[b b] u16[] u32 (b)\nb = \"abcdefghi\"",
        "\x9"
        "abcdefghi12abcdefghiabcdefghi\0\0\x7f\0\0\0abcdefghi"),
    ROW("a = varint[\"x\" varint[\"yz\" varint[\"\"]]]", "\5x\3yz\0"),
    ROW("a = pad(4)[\"x\"] pad(2)[\"wxyz\"]", "x\0\0\0wx"),
    ROW("a = $k=(\"ab\" | \"c\") \"-\" $k u8(size k) u8(place k) $k u8(place k)", "-ab\2\1ab\5"),
    ROW("a = $k=(\"ab\") $l=($k $k) u8(size l) $l", "\4abab"),
};

static void test_fuzz_grammar_gives_what_is_written(void **state)
{
    (void)state;
    static uint8_t buf[GRAMMAR_MOST];
    for (size_t i = 0; i < TT_COUNT(rows); i++) {
        tt_arena *a = tt_arena_new();
        tt_error err = {0};
        grammar *g = read_text(a, rows[i].grammar, &err);
        if (!g)
            fail_msg("%s", err.text);
        making m = {.g = g, .draw = first, .buf = buf, .enough = 0, .deepest = 9, .wide = 3};
        make_part(&m, g->rules[0].is);
        if (m.n != rows[i].n || memcmp(buf, rows[i].input, m.n) != 0)
            fail_msg("%s: %zu bytes, and other ones than the %zu expected", rows[i].grammar, m.n,
                     rows[i].n);
        tt_arena_free(a);
    }
}

static void test_fuzz_grammar_says_what_is_wrong(void **state)
{
    static const char *const wrong[][2] = {
        {"",                       "g:1: a rule should be here"           },
        {"a = b\n\nb = c",         "g:3: this name has no rule"           },
        {"a = \"x\"\na = \"y\"",   "g:2: this name has a rule already"    },
        {"a = \"x\n\"",            "g:1: \" should be here"               },
        {"a = (\"x\"",             "g:1: ) should be here"                },
        {"a = \"\\q\"",            "g:1: known are"                       },
        {"a = \"x\" )",            "g:1: a part or a rule should be here" },
        {"a = u8(9..3)",           "g:1: the range is empty"              },
        {"a = u8(long k)",         "g:1: a range, size NAME or place NAME"},
        {"a = $k",                 "g:1: this $name is never set"         },
        {"a = 0: \"x\"",           "g:1: a weight of 0"                   },
        {"a = \"x\" b\nb = a | b", "g:1: this rule has no end"            },
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(wrong); i++) {
        tt_arena *a = tt_arena_new();
        tt_error err = {0};
        if (read_text(a, wrong[i][0], &err) || !strstr(err.text, wrong[i][1]))
            fail_msg("%s: \"%s\" is not \"%s\"", wrong[i][0], err.text, wrong[i][1]);
        tt_arena_free(a);
    }
}

static void test_fuzz_grammar_makes_deep_and_long_inputs_and_ends(void **state)
{
    static uint8_t buf[GRAMMAR_MOST];
    tt_arena *a = tt_arena_new();
    tt_error err = {0};
    grammar *g = read_text(a, "a = \"(\" a \")\" | \"[\" a* \"]\" a | \"x\"", &err);
    int deepest = 0;
    size_t longest = 0;
    (void)state;
    for (int i = 0; i < 2000; i++) {
        const size_t n = grammar_make(g, any, buf);
        int depth = 0, most = 0;
        for (size_t k = 0; k < n; k++) {
            depth += buf[k] == '(' || buf[k] == '[' ? 1 : buf[k] == 'x' ? 0 : -1;
            most = TT_MAXV(most, depth);
        }
        assert_int_equal(depth, 0);
        deepest = TT_MAXV(deepest, most);
        longest = TT_MAXV(longest, n);
    }
    assert_true(deepest > 1024 &&
                deepest <= 1366); /* three parts within each other a time, of 4096 */
    assert_true(longest > 4096 && longest < 32768);
    tt_arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fuzz_grammar_gives_what_is_written),
        cmocka_unit_test(test_fuzz_grammar_says_what_is_wrong),
        cmocka_unit_test(test_fuzz_grammar_makes_deep_and_long_inputs_and_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
