/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "folder_test.h"
#include "hf_test.h"
#include "interchange/formats/gguf.h"

/* A tokenizer as pieces with scores: which of the kinds_here of tests/golden/subword.json are such, and that SentencePiece's
 * algorithm makes the plugin's ids of them. tests/peers/llama_cpp_peer.py compares with llama.cpp. */

static json_t *kinds_here;

static int load_kinds(void **state)
{
    (void)state;
    g.root = json_load_file("tests/golden/subword.json", JSON_ALLOW_NUL, NULL);
    kinds_here = json_object_get(g.root, "kinds");
    return kinds_here ? 0 : -1;
}

static hf_tokenizer *open_kind(const char *name)
{
    const json_t *kind = json_object_get(kinds_here, name), *model = json_object_get(kind, "model");
    char *text = model ? malloc(json_string_length(model) + 4)
                       : json_dumps(json_object_get(kind, "tokenizer"), JSON_COMPACT);
    size_t n = model ? 0 : strlen(text);
    tt_error err = {0};
    if (model)
        assert_true(hf_base64((const uint8_t *)json_string_value(model), json_string_length(model),
                              (uint8_t *)text, &n));
    hf_tokenizer *t = hf_new();
    if (hf_load_text(t, text, n, NULL, 0, &err) != TT_OK)
        fail_msg("%s: %s", name, err.text);
    free(text);
    return t;
}

static void test_pieces_of_every_kind(void **state)
{
    (void)state;
    static const struct {
        const char *name, *says; /* NULL: it is one, of `kind` */
        int kind, blank_before, first_only, one_blank;
    } all[] = {
        {"llama2",           NULL,                                                 TT_PIECES_BPE,     1, 0, 0},
        {"gemma",            "is not made of",                                     0,                 0, 0, 0}, /* "\\n\\n" */
        {"sp llama bpe",     NULL,                                                 TT_PIECES_BPE,     1, 0, 0},
        {"sp gemma bpe",     NULL,                                                 TT_PIECES_BPE,     0, 0, 0},
        {"sp t5 unigram",    NULL,                                                 TT_PIECES_UNIGRAM, 1, 0, 1},
        {"sp near unigram",  NULL,                                                 TT_PIECES_UNIGRAM, 1, 0, 0},
        {"xlm",              NULL,                                                 TT_PIECES_UNIGRAM, 0, 0, 0},
        {"llama2 added",     "\"zword\" stands for whole words",                   0,                 0, 0, 0},
        {"mistral",          "\"zword\" stands for whole words",                   0,                 0, 0, 0},
        {"phi3 ignore",      "model.ignore_merges is set",                         0,                 0, 0, 0},
        {"metaspace",        "has a blank inside",                                 0,                 0, 0, 0},
        {"sp plain bpe",     "no byte_fallback",                                   0,                 0, 0, 0},
        {"sp user unigram",  "its normalizer does more",                           0,                 0, 0, 0},
        {"sp bytes unigram", "Unigram with byte_fallback",                         0,                 0, 0, 0},
        {"unigram bytes",    "Unigram with byte_fallback",                         0,                 0, 0, 0},
        {"t5",               "drops blanks at the ends alone, or several between", 0,                 0, 0, 0},
        {"albert",           "its normalizer does more",                           0,                 0, 0, 0},
        {"unk",              "its pre_tokenizer cuts texts at more",               0,                 0, 0, 0},
        {"no words",         "its normalizer does more",                           0,                 0, 0, 0},
        {"bert",             "its model is WordPiece",                             0,                 0, 0, 0},
    };
    for (size_t i = 0; i < TT_COUNT(all); i++) {
        hf_tokenizer *t = open_kind(all[i].name);
        tt_pieces p = {.struct_size = sizeof p};
        tt_error err = {0};
        const tt_status s = hf_pieces_of(t, &p, &err);
        if ((s == TT_OK) != !all[i].says || (all[i].says && !strstr(err.text, all[i].says)))
            fail_msg("%s: %s, not %s", all[i].name, err.text, all[i].says);
        if (s == TT_OK && (p.kind != all[i].kind || p.blank_before != all[i].blank_before ||
                           p.first_only != all[i].first_only || p.one_blank != all[i].one_blank))
            fail_msg("%s: kind %d, %d %d %d", all[i].name, p.kind, p.blank_before, p.first_only,
                     p.one_blank);
        assert_true(s == TT_OK || err.code == TT_EUNSUPPORTED);
        hf_close(t);
    }
}

/* ---- SentencePiece's BPE, by the pieces alone ---- */

#define MOST 512

static const tt_vocab_piece *piece_at(const hf_tokenizer *t, const char *s, size_t n, int32_t *id)
{
    static tt_vocab_piece p;
    for (*id = 0; (size_t)*id < t->vocab.n_ids; ++*id)
        if (hf_piece_of((void *)(uintptr_t)t, *id, &p) && p.text.n == n && !memcmp(p.text.s, s, n))
            return &p;
    return NULL;
}

static void put_one(const hf_tokenizer *t, const char *s, size_t n, tt_ids *out)
{
    int32_t id;
    const tt_vocab_piece *p = piece_at(t, s, n, &id);
    if (p && p->kind == TT_PIECE_NORMAL) {
        assert_int_equal(tt_ids_push(out, id, NULL), TT_OK);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)(uint8_t)s[i]);
        p = piece_at(t, text, 6, &id);
        assert_true(p && p->kind == TT_PIECE_BYTE);
        assert_int_equal(tt_ids_push(out, id, NULL), TT_OK);
    }
}

/* s: with U+2581 for blanks */
static void join(const hf_tokenizer *t, const char *s, size_t n, tt_ids *out)
{
    size_t at[MOST + 1], n_at = 0;
    for (size_t i = 0; i < n; i++)
        if (((uint8_t)s[i] & 0xc0) != 0x80)
            at[n_at++] = i;
    at[n_at] = n;
    for (;;) {
        size_t best = MOST;
        double score = 0.0;
        for (size_t i = 0; i + 1 < n_at; i++) {
            int32_t id;
            const tt_vocab_piece *p = piece_at(t, s + at[i], at[i + 2] - at[i], &id);
            if (p && p->kind == TT_PIECE_NORMAL && (best == MOST || p->score > score)) {
                best = i;
                score = p->score;
            }
        }
        if (best == MOST)
            break;
        memmove(&at[best + 1], &at[best + 2], (n_at - best - 1) * sizeof *at);
        n_at--;
    }
    for (size_t i = 0; i < n_at; i++)
        put_one(t, s + at[i], at[i + 1] - at[i], out);
}

/* The length of the user-defined piece that s begins with, the longest one. */
static size_t user_at(const hf_tokenizer *t, const char *s, size_t n, int32_t *found)
{
    size_t most = 0;
    for (int32_t id = 0; (size_t)id < t->vocab.n_ids; id++) {
        tt_vocab_piece p;
        if (hf_piece_of((void *)(uintptr_t)t, id, &p) && p.kind == TT_PIECE_USER && p.text.n <= n &&
            p.text.n > most && !memcmp(p.text.s, s, p.text.n)) {
            most = p.text.n;
            *found = id;
        }
    }
    return most;
}

static void make_ids(const hf_tokenizer *t, const tt_pieces *form, const char *text, tt_ids *out)
{
    char s[MOST];
    size_t n = 0, begin = 0;
    for (const char *p = form->blank_before ? " " : ""; p; p = p == text ? NULL : text)
        for (const char *c = p; *c; c++) {
            const bool blank = *c == ' ';
            memcpy(s + n, blank ? BLANK : c, blank ? BLANK_BYTES : 1);
            n += blank ? BLANK_BYTES : 1;
        }
    for (size_t i = 0; i < n;) {
        int32_t id = 0;
        const size_t k = user_at(t, s + i, n - i, &id);
        if (k) {
            join(t, s + begin, i - begin, out);
            assert_int_equal(tt_ids_push(out, id, NULL), TT_OK);
            begin = i + k;
        }
        i += k ? k : 1;
    }
    join(t, s + begin, n - begin, out);
}

static void test_pieces_make_the_ids(void **state)
{
    (void)state;
    static const char *const names[] = {"llama2", "sp llama bpe", "sp gemma bpe"};
    static const char *const texts[] = {"a",
                                        "the tests of the tokenizer",
                                        " two  blanks   here ",
                                        "line\n\nline\ttab",
                                        "x1234.5 and 'quotes'",
                                        "na\xc3\xafve \xe4\xb8\xad\xe6\x96\x87 \xf0\x9f\x99\x82",
                                        "static int function(void) { return 0; }"};
    for (size_t i = 0; i < TT_COUNT(names); i++) {
        hf_tokenizer *t = open_kind(names[i]);
        tt_pieces form = {.struct_size = sizeof form};
        assert_int_equal(hf_pieces_of(t, &form, NULL), TT_OK);
        for (size_t k = 0; k < TT_COUNT(texts); k++) {
            tt_ids want = {0}, got = {0};
            assert_int_equal(hf_encode(t, texts[k], strlen(texts[k]), &want, NULL), TT_OK);
            make_ids(t, &form, texts[k], &got);
            if (got.n != want.n || memcmp(got.ids, want.ids, got.n * sizeof *got.ids))
                fail_msg("%s: \"%s\": %zu ids, not %zu", names[i], texts[k], got.n, want.n);
            tt_ids_free(&want);
            tt_ids_free(&got);
        }
        hf_close(t);
    }
}

/* Merges that scores cannot say: left out, or not one after the other. */
static void test_merges_that_are_no_scores_are_refused(void **state)
{
    (void)state;
    json_t *root = json_object_get(json_object_get(kinds_here, "llama2"), "tokenizer");
    for (int i = 0; i < 3; i++) {
        json_t *copy = json_deep_copy(root);
        json_t *merges = json_object_get(json_object_get(copy, "model"), "merges");
        hf_tokenizer *t = NULL;
        tt_pieces form = {.struct_size = sizeof form};
        tt_error err = {0};
        if (i == 1)
            json_array_remove(merges, json_array_size(merges) / 2);
        if (i == 2) { /* the third merge that makes four blanks comes last */
            json_array_append(merges, json_array_get(merges, 4));
            json_array_remove(merges, 4);
        }
        char *text = json_dumps(copy, JSON_COMPACT);
        assert_int_equal(open_text(text, NULL, false, &t, &err), TT_OK);
        const tt_status s = hf_pieces_of(t, &form, &err);
        assert_int_equal(s, i ? TT_EUNSUPPORTED : TT_OK);
        if (i && !strstr(err.text, i == 1 ? "is not made of" : "do not follow each other"))
            fail_msg("%d: %s", i, err.text);
        hf_close(t);
        free(text);
        json_decref(copy);
    }
}

/* Whether eos follows a text: the config's word, else the post_processor's. */
static void test_ends_of_texts(void **state)
{
    (void)state;
    static const struct {
        const char *post, *config;
        int adds;
    } all[] = {
        {"null",                                                                           "",                          0},
        {"null",                                                                           ", \"add_eos_token\": true", 1},
        {"{\"type\": \"BertProcessing\", \"sep\": [\"</s>\", 2], \"cls\": [\"<s>\", 1]}",  "",                          1},
        {"{\"type\": \"BertProcessing\", \"sep\": [\"</s>\", 2], \"cls\": [\"<s>\", 1]}",
         ", \"add_eos_token\": false",                                                                                  0},
        {"{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\"}}, "
         "{\"Sequence\": {\"id\": \"A\"}}]}",                                     "",                          0},
        {"{\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": {\"id\": \"A\"}}, "
         "{\"SpecialToken\": {\"id\": \"</s>\"}}]}",                              "",                          1},
        {"{\"type\": \"Sequence\", \"processors\": [{\"type\": \"TemplateProcessing\", \"single\": "
         "[{\"Sequence\": {\"id\": \"A\"}}, "
         "{\"SpecialToken\": {\"id\": \"</s>\"}}]}, {\"type\": \"ByteLevel\"}]}", "",                          1},
    };
    json_t *root = json_object_get(json_object_get(kinds_here, "llama2"), "tokenizer");
    for (size_t i = 0; i < TT_COUNT(all); i++) {
        char config[160];
        tt_error err = {0};
        hf_tokenizer *t = NULL;
        tt_tokenizer_info got = {.struct_size = sizeof got};
        snprintf(config, sizeof config, "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"%s}",
                 all[i].config);
        json_object_set_new(root, "post_processor", json_loads(all[i].post, JSON_DECODE_ANY, NULL));
        char *text = json_dumps(root, JSON_COMPACT);
        if (open_text(text, config, false, &t, &err) != TT_OK)
            fail_msg("%zu: %s", i, err.text);
        info(t, &got);
        if (got.adds_eos != all[i].adds)
            fail_msg("%s, %s: adds_eos %d", all[i].post, config, got.adds_eos);
        hf_close(t);
        free(text);
    }
}

/* ---- as keys of GGUF ---- */

/* What follows a key in the keys: its type, and the value or the type of a list's items and their number. */
static const char *key_at(const tt_gguf *g_, const char *key)
{
    const char *at = memmem(g_->keys.s, g_->keys.n, key, strlen(key));
    return at ? at + strlen(key) : NULL;
}

static bool has_key(const tt_gguf *g_, const char *key, const void *bytes, size_t n)
{
    const char *at = key_at(g_, key);
    return at && !memcmp(at, bytes, n);
}
#define HAS(key, ...)                                                                              \
    assert_true(has_key(&out, key, (const uint8_t[]){__VA_ARGS__},                                 \
                        sizeof((const uint8_t[]){__VA_ARGS__})))
#define TEXT(n) 8, 0, 0, 0, n, 0, 0, 0, 0, 0, 0, 0
#define LIST(of) 9, 0, 0, 0, of, 0, 0, 0

static void test_pieces_as_gguf_keys(void **state)
{
    (void)state;
    static char folder[TEST_FOLDER], path[TEST_FOLDER + 32];
    static const char *const names[] = {"llama2", "sp t5 unigram"};
    assert_true(test_folder("pieces", folder));
    snprintf(path, sizeof path, "%s/tokenizer.model", folder);
    FILE *f = fopen(path, "w"); /* what counts is that it is there */
    assert_int_equal(fclose(f), 0);
    for (int i = 0; i < 2; i++) {
        hf_tokenizer *t = open_kind(names[i]);
        tt_error err = {0};
        tt_tokenizer_info said = {.struct_size = sizeof said};
        tt_gguf out = {.arena = tt_arena_new()};
        const char *name = "x";
        info(t, &said);
        const tt_gguf_tokenizer from = {folder, &vt, t, &said};
        if (tt_gguf_vocab(&out, &from, said.vocab_size + 3, &name, &err) != TT_OK)
            fail_msg("%s: %s", names[i], err.text);
        if (i)
            HAS("tokenizer.ggml.model", TEXT(2), 't', '5');
        else
            HAS("tokenizer.ggml.model", TEXT(5), 'l', 'l', 'a', 'm', 'a');
        HAS("tokenizer.ggml.pre", TEXT(7), 'd', 'e', 'f');
        HAS("tokenizer.ggml.tokens", LIST(8), (uint8_t)(said.vocab_size + 3),
            (uint8_t)((said.vocab_size + 3) >> 8));
        HAS("tokenizer.ggml.scores", LIST(6), (uint8_t)(said.vocab_size + 3));
        HAS("tokenizer.ggml.token_type", LIST(5), (uint8_t)(said.vocab_size + 3),
            (uint8_t)((said.vocab_size + 3) >> 8), 0, 0, 0, 0, 0, 0,
            i ? TT_PIECE_CONTROL : TT_PIECE_UNKNOWN, 0, 0, 0, TT_PIECE_CONTROL, 0, 0, 0,
            i ? TT_PIECE_UNKNOWN : TT_PIECE_CONTROL);
        HAS("tokenizer.ggml.add_space_prefix", 7, 0, 0, 0, 1);
        HAS("tokenizer.ggml.unknown_token_id", 4, 0, 0, 0, i ? 2 : 0, 0, 0, 0);
        HAS("tokenizer.ggml.add_eos_token", 7, 0, 0, 0, 0);
        assert_int_equal(key_at(&out, "remove_extra_whitespaces") != NULL, i);
        assert_int_equal(key_at(&out, "precompiled_charsmap") != NULL, i);
        assert_null(key_at(&out, "tokenizer.ggml.merges"));
        assert_null(name);
        assert_int_equal(tt_gguf_vocab(&out, &from, said.vocab_size - 3, &name, &err), TT_EFORMAT);
        assert_non_null(strstr(err.text, "the model has"));
        tt_gguf_free(&out);
        tt_arena_free(out.arena);
        hf_close(t);
    }
    unlink(path);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces_of_every_kind),
        cmocka_unit_test(test_pieces_make_the_ids),
        cmocka_unit_test(test_merges_that_are_no_scores_are_refused),
        cmocka_unit_test(test_ends_of_texts),
        cmocka_unit_test(test_pieces_as_gguf_keys),
    };
    return cmocka_run_group_tests(tests, load_kinds, free_golden);
}
