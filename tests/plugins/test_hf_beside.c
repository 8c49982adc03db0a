/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "folder_test.h"
#include "hf_test.h"
#include <sys/stat.h>

/* What lies beside a tokenizer.model: added_tokens_decoder of tokenizer_config.json,
 * special_tokens_map.json and added_tokens.json. The model is that of tests/golden/subword.json;
 * tests/peers/added_tokens_peer.py compares such folders with transformers. */

static char folder[TEST_FOLDER];
static int n_pieces;

static void put_file(const char *name, const void *text, size_t n)
{
    char path[TEST_FOLDER + 60];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void remove_file(const char *name)
{
    char path[TEST_FOLDER + 60];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path);
}

static int make_folder(void **state)
{
    (void)state;
    json_t *root = json_load_file("tests/golden/subword.json", JSON_ALLOW_NUL, NULL);
    const json_t *model =
        json_object_get(json_object_get(json_object_get(root, "kinds"), "sp llama bpe"), "model");
    const size_t n = json_string_length(model);
    uint8_t *bytes = malloc(n + 4);
    size_t m = 0;
    if (!model || !bytes || !test_folder("beside", folder) ||
        !hf_base64((const uint8_t *)json_string_value(model), n, bytes, &m))
        return -1;
    put_file("tokenizer.model", bytes, m);
    sp_model sp;
    const hf_file f = {.name = "tokenizer.model"};
    if (hf_read_sentencepiece(&sp, &f, (char *)bytes, m) != TT_OK)
        return -1;
    n_pieces = (int)sp.n;
    free(sp.pieces);
    free(bytes);
    json_decref(root);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    for (int i = 0; i < HF_N_CONFIGS; i++)
        remove_file(hf_config_names[i]);
    remove_file("tokenizer.model");
    return rmdir(folder);
}

/* Opens the folder with these files; a %d in a text is the number of pieces. */
static tt_status open_beside(const char *config, const char *map, const char *added, bool special,
                             hf_tokenizer **out, tt_error *err)
{
    const char *const texts[HF_N_CONFIGS] = {config, map, added};
    const hf_options o = {.path = folder, .allow_special = special};
    for (int i = 0; i < HF_N_CONFIGS; i++) {
        char *text = NULL;
        remove_file(hf_config_names[i]);
        if (!texts[i])
            continue;
        const char *mark = strstr(texts[i], "%d");
        const int before = mark ? (int)(mark - texts[i]) : (int)strlen(texts[i]);
        assert_true(asprintf(&text, "%.*s", before, texts[i]) >= 0);
        for (; mark; mark = strstr(mark + 2, "%d")) {
            const char *next = strstr(mark + 2, "%d");
            char *more = NULL;
            assert_true(asprintf(&more, "%s%d%.*s", text, n_pieces,
                                 next ? (int)(next - mark - 2) : (int)strlen(mark + 2),
                                 mark + 2) >= 0);
            free(text);
            text = more;
        }
        put_file(hf_config_names[i], text, strlen(text));
        free(text);
    }
    hf_tokenizer *t = hf_new();
    const tt_status s = hf_load(t, &o, err);
    if (s == TT_OK)
        *out = t;
    else
        hf_close(t);
    return s;
}

static hf_tokenizer *must_open(const char *config, const char *map, const char *added, bool special)
{
    hf_tokenizer *t = NULL;
    tt_error err = {0};
    if (open_beside(config, map, added, special, &t, &err) != TT_OK)
        fail_msg("%s", err.text);
    return t;
}

static void ids_of(hf_tokenizer *t, const char *text, tt_ids *out)
{
    tt_error err = {0};
    if (hf_encode(t, text, strlen(text), out, &err) != TT_OK)
        fail_msg("%s", err.text);
}

/* The ids of text are those of left, id, and those of right. */
static void expect_parts(hf_tokenizer *t, const char *text, const char *left, int32_t id,
                         hf_tokenizer *rights, const char *right)
{
    tt_ids got = {0}, want = {0};
    ids_of(t, text, &got);
    if (*left)
        ids_of(t, left, &want);
    assert_int_equal(tt_ids_push(&want, id, NULL), TT_OK);
    if (*right)
        ids_of(rights, right, &want);
    assert_int_equal(got.n, want.n);
    assert_memory_equal(got.ids, want.ids, want.n * sizeof *want.ids);
    tt_ids_free(&got);
    tt_ids_free(&want);
}

#define CLASS "\"tokenizer_class\": \"LlamaTokenizer\""
#define DECODER                                                                                    \
    "\"added_tokens_decoder\": {\"%d\": {\"content\": \"<tool>\", \"special\": false}, \"1\": "    \
    "{\"content\": \"<s>\", \"special\": true}, \"2\": {\"content\": \"<end>\", \"special\": "     \
    "true}}"

static void test_beside_bos_begins_texts_unless_add_bos_token_says_no(void **state)
{
    static const char *const configs[] = {NULL, "{" CLASS "}", "{\"add_bos_token\": true}",
                                          "{\"add_bos_token\": false}"};
    (void)state;
    for (size_t i = 0; i < TT_COUNT(configs); i++) {
        hf_tokenizer *t = must_open(configs[i], NULL, NULL, false);
        assert_true(t->bos >= 0);
        assert_int_equal(t->omits_bos, i == 3);
        hf_close(t);
    }
    hf_tokenizer *t = hf_new(); /* a bos that the job names begins texts */
    const hf_options o = {.path = folder, .bos_token = "<s>"};
    tt_error err = {0};
    assert_int_equal(hf_load(t, &o, &err), TT_OK);
    assert_false(t->omits_bos);
    hf_close(t);
}

static void test_beside_added_tokens_decoder_names_tokens_and_their_ids(void **state)
{
    (void)state;
    hf_tokenizer *bare = must_open("{" CLASS ", \"add_prefix_space\": false}", NULL, NULL, false);
    hf_tokenizer *t = must_open("{" CLASS ", " DECODER ", \"eos_token\": \"<end>\"}",
                                "{\"eos_token\": \"<s>\"}", NULL, false);
    char text[16];
    expect_parts(t, "in<tool>the", "in", n_pieces, bare, "the");
    assert_int_equal(t->vocab.n_ids, n_pieces + 1);
    assert_int_equal(t->eos, 2); /* the map does not count, and piece 2 has another text */
    assert_int_equal(hf_decode_token(t, n_pieces, text, sizeof text), 6);
    assert_int_equal(hf_decode_token(t, 2, text, sizeof text), 0);
    hf_close(t);
    t = must_open("{" CLASS ", " DECODER ", \"legacy\": true}", NULL, NULL, true);
    expect_parts(t, "in<tool>the", "in", n_pieces, t, "the"); /* a blank before each part */
    expect_parts(t, "in<end>", "in", 2, t, "");
    hf_close(t);
    hf_close(bare);
}

static void test_beside_old_files_name_special_tokens(void **state)
{
    (void)state;
    hf_tokenizer *t = must_open("{" CLASS ", \"eos_token\": \"</s>\"}",
                                "{\"pad_token\": {\"content\": \"[PAD]\", \"lstrip\": true}, "
                                "\"eos_token\": \"<s>\", \"additional_special_tokens\": "
                                "[\"<user>\", \"</s>\"]}",
                                NULL, true);
    assert_int_equal(t->eos, 1);
    assert_int_equal(t->pad, n_pieces);
    expect_parts(t, "in  [PAD]", "in", n_pieces, t, "");
    expect_parts(t, "in<user>", "in", n_pieces + 1, t, "");
    expect_parts(t, "in</s>", "in", 2, t, "");
    hf_close(t);
    t = must_open("{" CLASS "}", "{\"pad_token\": \"<b>\"}", "{\"<a>\": %d, \"<b>\": 4000}", false);
    assert_int_equal(t->pad, 4000);
    assert_int_equal(t->vocab.n_ids, 4001);
    expect_parts(t, "in<a>", "in", n_pieces, t, "");
    hf_close(t);
}

static void test_beside_what_cannot_be_is_an_error(void **state)
{
    (void)state;
    static const struct {
        const char *config, *map, *added, *says;
    } rows[] = {
        {"{\"added_tokens_decoder\": []}",                                                NULL,                 NULL,               "added_tokens_decoder: expected an object"    },
        {"{\"added_tokens_decoder\": {\"05\": {\"content\": \"x\"}}}",                    NULL,                 NULL,
         "expected an id"                                                                                                                                                         },
        {"{\"added_tokens_decoder\": {\"5\": 1}}",                                        NULL,                 NULL,               "expected a token's text"                     },
        {"{\"added_tokens_decoder\": {\"5\": {\"content\": \"\"}}}",                      NULL,                 NULL,               "a token's text"                              },
        {"{\"added_tokens_decoder\": {\"5\": {\"content\": \"<s>\"}}}",                   NULL,                 NULL,               "\"<s>\" as 1"                                },
        {"{\"added_tokens_decoder\": {\"99999999\": {\"content\": \"x y\"}}}",            NULL,                 NULL,
         "the id"                                                                                                                                                                 },
        {"{\"added_tokens_decoder\": {\"9999\": {\"content\": \"x y\", \"lstrip\": 1}}}", NULL,
         NULL,                                                                                                                      "lstrip: expected true or false"              },
        {NULL,                                                                            "{\"pad_token\": 3}", NULL,               "special_tokens_map.json: pad_token: expected"},
        {NULL,                                                                            "{",                  NULL,               "special_tokens_map.json:1:"                  },
        {NULL,                                                                            NULL,                 "{\"<a>\": \"b\"}", "added_tokens.json: <a>: the id"              },
    };
    for (size_t i = 0; i < TT_COUNT(rows); i++) {
        hf_tokenizer *t = NULL;
        tt_error err = {0};
        if (open_beside(rows[i].config, rows[i].map, rows[i].added, false, &t, &err) == TT_OK)
            fail_msg("row %zu is opened", i);
        if (!strstr(err.text, rows[i].says) || strchr(err.text, '\n'))
            fail_msg("row %zu: %s", i, err.text);
    }
}

/* \w of Unicode: circled letters are symbols, and alphabetic. */
static void test_beside_single_words_end_at_alphabetic_symbols(void **state)
{
    (void)state;
    hf_tokenizer *t = must_open("{\"added_tokens_decoder\": {\"%d\": {\"content\": \"zword\", "
                                "\"single_word\": true, \"special\": false}}}",
                                NULL, NULL, false);
    tt_ids ids = {0};
    ids_of(t, "zword\xf0\x9f\x85\xa9", &ids);
    for (size_t i = 0; i < ids.n; i++)
        assert_int_not_equal(ids.ids[i], n_pieces);
    expect_parts(t, "zword", "", n_pieces, t, "");
    tt_ids_free(&ids);
    hf_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_beside_bos_begins_texts_unless_add_bos_token_says_no),
        cmocka_unit_test(test_beside_added_tokens_decoder_names_tokens_and_their_ids),
        cmocka_unit_test(test_beside_old_files_name_special_tokens),
        cmocka_unit_test(test_beside_what_cannot_be_is_an_error),
        cmocka_unit_test(test_beside_single_words_end_at_alphabetic_symbols),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
