/* SPDX-License-Identifier: Apache-2.0 */
#include "hf_test.h"

/* tiktoken files: the ids of the package tiktoken (tests/golden/tokenizer_more.py), and files that
 * are wrong. */

static void put64(hf_bytes *out, const uint8_t *s, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = 0;
        char four[4];
        for (size_t k = 0; k < 3; k++)
            v = v << 8 | (i + k < n ? s[i + k] : 0u);
        for (size_t k = 0; k < 4; k++)
            four[k] = i + k <= n ? digits[v >> (18 - 6 * k) & 63] : '=';
        assert_int_equal(hf_bytes_add(out, four, 4, NULL), TT_OK);
    }
}

/* The golden vocabulary as a tiktoken file. */
static hf_bytes ranks(void)
{
    hf_bytes out = {0};
    const char *token;
    json_t *id;
    json_object_foreach(json_object_get(g.root, "vocab"), token, id)
    {
        uint8_t bytes[256];
        size_t n = 0;
        char tail[32];
        assert_true(hf_spell_bytes(token, strlen(token), bytes, &n));
        put64(&out, bytes, n);
        snprintf(tail, sizeof tail, " %d\n", (int)json_integer_value(id));
        assert_int_equal(hf_bytes_add(&out, tail, strlen(tail), NULL), TT_OK);
    }
    return out;
}

static tt_status open_ranks(const char *text, size_t n, const char *pattern, const char *special,
                            bool allow, hf_tokenizer **out, tt_error *err)
{
    hf_tokenizer *t = hf_new();
    hf_digest d;
    const hf_options o = {.pattern = pattern, .special_tokens = special};
    load_begin(t, &d);
    t->path = strdup("x.tiktoken");
    t->allow_special = allow;
    const tt_status s = hf_is_tiktoken(t->path, text, n)
                            ? hf_load_tiktoken(t, &o, NULL, text, n, &d, err)
                            : TT_FAIL(err, TT_EFORMAT, "no tiktoken file");
    if (s == TT_OK) {
        seal(t, &d);
        *out = t;
    } else {
        hf_close(t);
    }
    return s;
}

static void test_tiktoken_ids_equal_the_references(void **state)
{
    (void)state;
    json_t *more = json_load_file("tests/golden/tokenizer_more.json", 0, NULL), *want;
    hf_bytes file = ranks();
    const char *pattern;
    assert_int_equal(json_object_size(json_object_get(more, "tiktoken")), 9);
    json_object_foreach(json_object_get(more, "tiktoken"), pattern, want)
    {
        hf_tokenizer *t = NULL;
        tt_error err = {0};
        char hex[17];
        if (open_ranks((char *)file.s, file.n, pattern, NULL, false, &t, &err) != TT_OK)
            fail_msg("%s: %s", pattern, err.text);
        digest_of(t, hex);
        if (strcmp(hex, json_string_value(want)) != 0)
            fail_msg("%s: digest %s, the reference's is %s", pattern, hex, json_string_value(want));
        hf_close(t);
    }
    free(file.s);
    json_decref(more);
}

static void test_tiktoken_special_tokens_have_the_ids_given(void **state)
{
    (void)state;
    hf_bytes file = ranks();
    hf_tokenizer *t = NULL, *plain = NULL;
    tt_error err = {0};
    tt_ids ids = {0};
    tt_tokenizer_info i = {.struct_size = sizeof i}, j = i;
    const char *special = "{\"<|end|>\": 3000, \"<|x|>\": 2999}";
    assert_int_equal(open_ranks((char *)file.s, file.n, "cl100k", special, true, &t, &err), TT_OK);
    assert_int_equal(hf_encode(t, "a<|end|>", 8, &ids, NULL), TT_OK);
    assert_int_equal(ids.n, 2);
    assert_int_equal(ids.ids[1], 3000);
    info(t, &i);
    assert_int_equal(i.vocab_size, 3001);
    assert_int_equal(hf_find_token(t, "<|x|>", 5), 2999);
    assert_int_equal(open_ranks((char *)file.s, file.n, "o200k", special, true, &plain, &err),
                     TT_OK);
    info(plain, &j);
    assert_string_not_equal(i.fingerprint, j.fingerprint);
    hf_close(t);
    hf_close(plain);
    tt_ids_free(&ids);
    free(file.s);
}

static void test_tiktoken_refuses_by_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *pattern, *special, *want;
        bool after; /* the whole vocabulary goes before */
    } cases[] = {
        {"IQ== 0\n",            NULL,    NULL,            "does not contain its pattern",        true },
        {"IQ== 0\n",            "cl10k", NULL,            "\"cl10k\" is not one of gpt2",        true },
        {"",                    "(",     NULL,            "pattern: the pattern does not",       true },
        {"IQ==0\n",             "gpt2",  NULL,            "x.tiktoken:1: expected a token",      false},
        {"IQ== \n",             "gpt2",  NULL,            "x.tiktoken:1: expected a token",      false},
        {"\nIQ= 0\n",           "gpt2",  NULL,            "x.tiktoken:2: \"IQ=\" is not base64", false},
        {"I*== 0\n",            "gpt2",  NULL,            "\"I*==\" is not base64",              false},
        {" 0\n",                "gpt2",  NULL,            "\"\" is not base64",                  false},
        {"IQ== -1\n",           "gpt2",  NULL,            "the rank is not a number",            false},
        {"IQ== 99999999999999", "gpt2",  NULL,            "a rank above",                        false},
        {"IQ== 0\nIg== 0\n",    "gpt2",  NULL,            "rank 0 is another token's",           false},
        {"IQ== 0\nIQ== 1\n",    "gpt2",  NULL,            "of ranks 0 and 1 are equal",          false},
        {"IQ== 0\n",            "gpt2",  NULL,            "no token for the byte 0x00",          false},
        {"",                    "gpt2",  "[]",            "special_tokens: expected an object",  true },
        {"",                    "gpt2",  "{\"x\": -1}",   "\"x\": expected an id",               true },
        {"",                    "gpt2",  "{\"x\": 0}",    "\"x\": 0 is another token's id",      true },
        {"",                    "gpt2",  "{\"\": 90000}", "\"\": expected an id",                true },
    };
    for (size_t i = 0; i < TT_COUNT(cases); i++) {
        hf_bytes file = {0};
        hf_tokenizer *t = NULL;
        tt_error err = {0};
        if (cases[i].after)
            file = ranks();
        else
            assert_int_equal(hf_bytes_add(&file, cases[i].text, strlen(cases[i].text), NULL),
                             TT_OK);
        if (open_ranks((char *)file.s, file.n, cases[i].pattern, cases[i].special, false, &t,
                       &err) == TT_OK)
            fail_msg("case %zu (%s) was taken", i, cases[i].want);
        if (!strstr(err.text, cases[i].want) || strchr(err.text, '\n'))
            fail_msg("case %zu: \"%s\" lacks \"%s\"", i, err.text, cases[i].want);
        free(file.s);
    }
}

/* The 256 bytes, then for each of the first n_letters bytes its repetitions up to `most`. */
static hf_bytes repetitions(int n_letters, size_t most)
{
    hf_bytes out = {0};
    uint8_t token[600];
    int rank = 0;
    char tail[32];
    for (int pass = 0; pass < 2; pass++)
        for (int b = 0; b < (pass ? n_letters : 256); b++)
            for (size_t n = pass ? 2 : 1; n <= (pass ? most : 1); n++) {
                memset(token, b, n);
                put64(&out, token, n);
                snprintf(tail, sizeof tail, " %d\n", rank++);
                assert_int_equal(hf_bytes_add(&out, tail, strlen(tail), NULL), TT_OK);
            }
    return out;
}

static void test_tiktoken_has_tokens_of_512_bytes(void **state)
{
    (void)state;
    for (size_t most = 510; most <= 514; most++) {
        hf_bytes file = repetitions(1, most);
        hf_tokenizer *t = NULL;
        tt_error err = {0};
        const tt_status s = open_ranks((char *)file.s, file.n, "gpt2", NULL, false, &t, &err);
        assert_int_equal(s == TT_OK, most <= 512);
        if (s != TT_OK) {
            assert_non_null(strstr(err.text, "x.tiktoken:768: a token of more than 512 bytes"));
        } else { /* 1200 equal bytes: the longest token, as often as it fits, and the rest */
            char text[1200] = {0};
            tt_ids ids = {0};
            assert_int_equal(hf_encode(t, text, sizeof text, &ids, &err), TT_OK);
            size_t bytes = 0;
            for (size_t i = 0; i < ids.n; i++)
                bytes += t->vocab.tokens[ids.ids[i]].n;
            assert_int_equal(bytes, sizeof text);
            tt_ids_free(&ids);
            hf_close(t);
        }
        free(file.s);
    }
}

/* 512 * 511 / 2 ways for each byte: 33 bytes have more than 2^22. */
static void test_tiktoken_bounds_the_ways_to_split_tokens(void **state)
{
    (void)state;
    hf_bytes file = repetitions(33, 512);
    hf_tokenizer *t = NULL;
    tt_error err = {0};
    assert_int_equal(open_ranks((char *)file.s, file.n, "gpt2", NULL, false, &t, &err), TT_EFORMAT);
    assert_string_equal(err.text,
                        "x.tiktoken: more than 4194304 ways to split its tokens into two tokens");
    free(file.s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiktoken_has_tokens_of_512_bytes),
        cmocka_unit_test(test_tiktoken_bounds_the_ways_to_split_tokens),
        cmocka_unit_test(test_tiktoken_ids_equal_the_references),
        cmocka_unit_test(test_tiktoken_special_tokens_have_the_ids_given),
        cmocka_unit_test(test_tiktoken_refuses_by_line),
    };
    return cmocka_run_group_tests(tests, load_golden, free_golden);
}
