/* SPDX-License-Identifier: Apache-2.0 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "config/pattern.h"
#include <pcre2.h>
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
    assert_int_equal(tt_pattern_new(a, text, &p, &err), TT_EINVAL);
    if (!strstr(err.text, why))
        fail_msg("\"%.60s\": \"%s\" lacks \"%s\"", text, err.text, why);
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

/* What PCRE itself says of a match with at most so many steps. */
static int match_within(const char *pattern, const char *name, uint32_t steps)
{
    int code = 0;
    PCRE2_SIZE at = 0;
    pcre2_code *c = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, 0, &code, &at, NULL);
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);
    pcre2_match_context *context = pcre2_match_context_create(NULL);
    assert_non_null(c);
    pcre2_set_match_limit(context, steps);
    const int rc = pcre2_match(c, (PCRE2_SPTR)name, strlen(name), 0, 0, data, context);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
    pcre2_code_free(c);
    return rc;
}

/* Names of 1, 2, 3, … letters, until a match takes more than a million steps: exactly then the pattern is an error.
 * The work grows slowly enough that some name takes more, but fewer than 2.5 million. */
static void test_pattern_bounds_the_work_of_a_match(void **state)
{
    static const char *const slow[] = {"^(a+)+$", "^(a*)*[bc]", "^(a|a)*$", "^(.*)*\\1\\1[xyz]",
                                       "^(.*)(.*)(.*)(.*)[bc]"};
    int limits = 0, between = 0;
    (void)state;
    for (size_t i = 0; i < TT_COUNT(slow); i++) {
        tt_arena *a = tt_arena_new();
        tt_error err = {0};
        tt_pattern *p = NULL;
        char name[203] = "";
        bool refused = false;
        assert_int_equal(tt_pattern_new(a, slow[i], &p, &err), TT_OK);
        for (int n = 1; n <= 200 && !refused; n++) {
            bool yes = true;
            memset(name, 'a', (size_t)n);
            name[n] = '!';
            name[n + 1] = '\0';
            const tt_status s = tt_pattern_match(p, name, &yes, &err);
            refused = s != TT_OK;
            assert_false(yes);
            assert_int_equal(refused,
                             match_within(slow[i], name, 1000000) == PCRE2_ERROR_MATCHLIMIT);
            if (refused)
                assert_non_null(strstr(err.text, "limit exceeded"));
        }
        limits += refused;
        between += refused && match_within(slow[i], name, 2500000) == PCRE2_ERROR_NOMATCH;
        tt_arena_free(a);
    }
    assert_int_equal(limits, TT_COUNT(slow));
    assert_in_range(between, 1, limits);
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
