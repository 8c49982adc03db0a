/* SPDX-License-Identifier: Apache-2.0 */
#include "config/pattern.h"
#include <regex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <ttrun/option.h>

#include <cmocka.h>

/* Patterns of a job: they match what POSIX's extended expressions match, and hostile ones end. */

static const char *const patterns[] = {
    "norm",
    ".",
    "^model",
    "weight$",
    "^lm_head\\.weight$",
    "layers\\.[0-3]\\.",
    "layers\\.(0|1|10)\\.self_attn",
    "(q|k|v)_proj",
    "layers\\.[0-9]+\\.mlp\\.(up|down)_proj\\.weight",
    "[^.]+\\.weight$",
    "[[:alpha:]_]+_proj",
    "[[:digit:]]{2}",
    "layers\\.1{1,2}\\.",
    "a{0,1}b{2,}",
    "(a|b)*c",
    "x?y+z*",
    "[]a]",
    "[^]a]+]",
    "[a\\.]$",
    "[\\]q",
    "\\<norm\\>",
    "\\<q_proj",
    "o{,2}$",
    "^$",
    "a|",
    "(layers|blocks).*(norm|bias)",
    "\\$\\^\\*",
    "[a-c-]x",
};
static const char *const names[] = {
    "",
    "model.layers.0.self_attn.q_proj.weight",
    "model.layers.1.self_attn.k_proj.weight",
    "model.layers.11.mlp.up_proj.weight",
    "model.layers.10.post_attention_layernorm.weight",
    "model.layers.2.norm.bias",
    "model.norm.weight",
    "lm_head.weight",
    "transformer.h.0.attn.c_attn.bias",
    "abbb",
    "ababc",
    "yyz",
    "]",
    "b]",
    "a\\",
    "\\q",
    "foo",
    "$^*",
    "-x",
};

static void test_pattern_matches_as_posix_does(void **state)
{
    (void)state;
    tt_arena *a = tt_arena_new();
    for (size_t i = 0; i < TT_COUNT(patterns); i++) {
        tt_error err = {0};
        tt_pattern *p = NULL;
        regex_t r;
        assert_int_equal(regcomp(&r, patterns[i], REG_EXTENDED | REG_NOSUB), 0);
        if (tt_pattern_new(a, patterns[i], &p, &err) != TT_OK)
            fail_msg("%s: %s", patterns[i], err.text);
        for (size_t k = 0; k < TT_COUNT(names); k++) {
            bool yes = false;
            assert_int_equal(tt_pattern_match(p, names[k], &yes, &err), TT_OK);
            if (yes != (regexec(&r, names[k], 0, NULL, 0) == 0))
                fail_msg("\"%s\" on \"%s\": %d", patterns[i], names[k], yes);
        }
        regfree(&r);
    }
    tt_arena_free(a);
}

static void refused(const char *text, const char *why)
{
    tt_arena *a = tt_arena_new();
    tt_error err = {0};
    tt_pattern *p = NULL;
    const int64_t begin = tt_now_ns();
    assert_int_equal(tt_pattern_new(a, text, &p, &err), TT_EINVAL);
    if (!strstr(err.text, why))
        fail_msg("\"%.60s\": \"%s\" lacks \"%s\"", text, err.text, why);
    assert_true(tt_now_ns() - begin < 2000000000);
    tt_arena_free(a);
}

/* count times `open`, "a", count times `close` */
static char *nested(size_t count, char open, char close)
{
    char *text = malloc(2 * count + 2);
    assert_non_null(text);
    memset(text, open, count);
    text[count] = 'a';
    memset(text + count + 1, close, count);
    text[2 * count + 1] = '\0';
    return text;
}

static void test_pattern_refuses_hostile_patterns(void **state)
{
    (void)state;
    refused("([", "missing");
    refused("a\\", "\\ at end");
    refused("[z-a]", "range out of order");
    refused("((a{1,255}){1,255}){1,99}", "too large");
    char *deep = nested(65, '(', ')'), *longer = nested(20000, '(', ')');
    refused(deep, "nested");
    refused(longer, "40001 bytes long, at most 4096");
    free(deep);
    free(longer);
}

static void test_pattern_bounds_the_work_of_a_match(void **state)
{
    (void)state;
    static const char *const slow[] = {"^(a+)+$", "(a*)*b", "(a|a)*b", "^(.*)*\\1\\1z"};
    char name[201];
    memset(name, 'a', 200);
    name[200] = '\0';
    for (size_t i = 0; i < TT_COUNT(slow); i++) {
        tt_arena *a = tt_arena_new();
        tt_error err = {0};
        tt_pattern *p = NULL;
        bool yes = true;
        const int64_t begin = tt_now_ns();
        name[199] = i == 0 ? '!' : 'a';
        assert_int_equal(tt_pattern_new(a, slow[i], &p, &err), TT_OK);
        const tt_status s = tt_pattern_match(p, name, &yes, &err);
        if (s != TT_OK)
            assert_non_null(strstr(err.text, "limit exceeded"));
        assert_false(yes);
        assert_true(tt_now_ns() - begin < 2000000000);
        tt_arena_free(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pattern_matches_as_posix_does),
        cmocka_unit_test(test_pattern_refuses_hostile_patterns),
        cmocka_unit_test(test_pattern_bounds_the_work_of_a_match),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
