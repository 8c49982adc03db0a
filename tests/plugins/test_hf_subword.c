/* SPDX-License-Identifier: Apache-2.0 */
#include "hf_test.h"

/* tests/golden/subword.json is written by subword.py: small tokenizers of every kind but byte-level
 * BPE, and digests of what Hugging Face tokenizers and sentencepiece make of texts that are drawn
 * alike here. */

static json_t *golden_root;

static int load_subword(void **state)
{
    (void)state;
    golden_root = json_load_file("tests/golden/subword.json", JSON_ALLOW_NUL, NULL);
    g.root = golden_root;
    g.bits = json_object_get(golden_root, "bits");
    g.n_texts = (size_t)json_integer_value(json_object_get(golden_root, "n_texts"));
    return golden_root ? 0 : -1;
}

static hf_tokenizer *open_kind(const char *name, const json_t *kind, bool shortened)
{
    const json_t *model = json_object_get(kind, "model");
    char *text = model ? malloc(json_string_length(model) + 4)
                       : json_dumps(json_object_get(kind, "tokenizer"), JSON_COMPACT);
    size_t n = model ? 0 : strlen(text);
    tt_error err = {0};
    if (model)
        assert_true(hf_base64((const uint8_t *)json_string_value(model), json_string_length(model),
                              (uint8_t *)text, &n));
    hf_tokenizer *t = hf_new();
    const tt_status s = hf_load_text(t, text, shortened ? n - 1 : n, NULL, 0, &err);
    free(text);
    if (s != TT_OK && !shortened)
        fail_msg("%s: %s", name, err.text);
    if (s == TT_OK)
        return t;
    assert_true(err.text[0] && !strchr(err.text, '\n'));
    hf_close(t);
    return NULL;
}

/* The ids as a text that begins with them. */
static void decode_all(hf_tokenizer *t, const tt_ids *ids, hf_bytes *out)
{
    bool first = true;
    char buf[1024];
    out->n = 0;
    for (size_t i = 0; i < ids->n; i++) {
        size_t k = hf_decode_token(t, ids->ids[i], buf, sizeof buf);
        const bool text = k > 0;
        if (text && first)
            k = hf_decode_first(t, ids->ids[i], buf, sizeof buf);
        first = first && (!text || (t->trims_begin && k == 0));
        assert_int_equal(hf_bytes_add(out, buf, k, NULL), TT_OK);
    }
}

typedef struct digests {
    char ids[17], text[17], whole[17]; /* whole: the ids of all texts as one */
} digests;

static void add_ids(uint64_t *h, const tt_ids *ids)
{
    add_digest(h, (uint32_t)ids->n);
    for (size_t j = 0; j < ids->n; j++)
        add_digest(h, (uint32_t)ids->ids[j]);
}

static digests digests_of(hf_tokenizer *t)
{
    uint64_t x = 1, h = 0xcbf29ce484222325u, k = h, whole = h;
    hf_bytes text = {0}, back = {0}, all = {0};
    digests d;
    tt_ids ids = {0};
    for (size_t i = 0; i < g.n_texts; i++) {
        draw_text(&x, &text);
        ids.n = 0;
        assert_int_equal(hf_encode(t, (char *)text.s, text.n, &ids, NULL), TT_OK);
        assert_int_equal(hf_bytes_add(&all, text.s, text.n, NULL), TT_OK);
        add_ids(&h, &ids);
        decode_all(t, &ids, &back);
        add_digest(&k, (uint32_t)back.n);
        for (size_t j = 0; j < back.n; j++)
            add_digest(&k, back.s[j]);
    }
    ids.n = 0;
    assert_int_equal(hf_encode(t, (char *)all.s, all.n, &ids, NULL), TT_OK);
    add_ids(&whole, &ids);
    snprintf(d.ids, sizeof d.ids, "%016llx", (unsigned long long)h);
    snprintf(d.text, sizeof d.text, "%016llx", (unsigned long long)k);
    snprintf(d.whole, sizeof d.whole, "%016llx", (unsigned long long)whole);
    free(text.s);
    free(back.s);
    free(all.s);
    tt_ids_free(&ids);
    return d;
}

static bool differs(const char *name, const json_t *kind, const char *key, const char *got)
{
    const bool other = strcmp(got, json_string_value(json_object_get(kind, key))) != 0;
    if (other)
        print_error("%s: other %s\n", name, key);
    return other;
}

static void test_subword_ids_and_texts_equal_the_references(void **state)
{
    (void)state;
    const char *name;
    json_t *kind;
    int wrong = 0;
    json_object_foreach(json_object_get(golden_root, "kinds"), name, kind)
    {
        hf_tokenizer *t = open_kind(name, kind, false);
        const digests d = digests_of(t);
        wrong += differs(name, kind, "ids", d.ids);
        wrong += differs(name, kind, "text", d.text);
        wrong += differs(name, kind, "whole", d.whole);
        hf_close(t);
    }
    assert_int_equal(wrong, 0);
}

/* What sentencepiece 0.2.3 decodes: with remove_extra_whitespaces (plain, t5, user) each blank at the
 * beginning of a text is dropped, also one that the text spelt as U+2581; else only the dummy. */
#define MARK "\xe2\x96\x81"
static const char *const begins[][3] = {
    {"sp plain bpe",     MARK MARK "int",             "int"               },
    {"sp plain bpe",     "  " MARK MARK "a" MARK "b", "a b"               },
    {"sp plain bpe",     MARK,                        ""                  },
    {"sp plain bpe",     "\x01" MARK "int",           " \xe2\x81\x87  int"},
    {"sp t5 unigram",    MARK " " MARK "int",         "int"               },
    {"sp t5 unigram",    "\x01" MARK "int",           " \xe2\x81\x87  int"},
    {"sp user unigram",  MARK MARK "int",             "int "              },
    {"sp user unigram",  MARK,                        ""                  },
    {"sp llama bpe",     MARK MARK "int",             "  int"             },
    {"sp bytes unigram", MARK " " MARK "int",         "   int"            },
    {"sp bytes unigram", MARK,                        " "                 },
    {"sp bytes unigram", "\x01" MARK "int",           "\x01 int"          },
};

static void test_subword_blanks_at_the_beginning_are_dropped_as_in_sentencepiece(void **state)
{
    (void)state;
    for (size_t i = 0; i < TT_COUNT(begins); i++) {
        const json_t *kind = json_object_get(json_object_get(golden_root, "kinds"), begins[i][0]);
        hf_tokenizer *t = open_kind(begins[i][0], kind, false);
        tt_ids ids = {0};
        hf_bytes text = {0};
        assert_int_equal(hf_encode(t, begins[i][1], strlen(begins[i][1]), &ids, NULL), TT_OK);
        decode_all(t, &ids, &text);
        assert_int_equal(hf_bytes_add(&text, (const uint8_t *)"", 1, NULL), TT_OK);
        assert_string_equal((const char *)text.s, begins[i][2]);
        tt_ids_free(&ids);
        free(text.s);
        hf_close(t);
    }
}

static void test_subword_files_cut_short_are_refused(void **state)
{
    (void)state;
    const char *name;
    json_t *kind;
    json_object_foreach(json_object_get(golden_root, "kinds"), name, kind)
    {
        if (open_kind(name, kind, true))
            fail_msg("%s without its last byte is opened", name);
    }
}

/* Documents of one word: time grows with their length, not with its square, which would be hours; the runner ends a
 * process after ten minutes of CPU. */
static void test_subword_long_texts_are_linear(void **state)
{
    (void)state;
    enum { N = 4 << 20 };
    static const char *const names[] = {"llama2", "gemma",        "t5",
                                        "bert",   "sp llama bpe", "sp bytes unigram"};
    char *text = malloc(N);
    for (size_t i = 0; i < TT_COUNT(names); i++) {
        const json_t *kind = json_object_get(json_object_get(golden_root, "kinds"), names[i]);
        hf_tokenizer *t = open_kind(names[i], kind, false);
        tt_ids ids = {0};
        memset(text, i % 2 ? ' ' : 'a', N);
        assert_int_equal(hf_encode(t, text, N, &ids, NULL), TT_OK);
        tt_ids_free(&ids);
        hf_close(t);
    }
    free(text);
}

/* Where cut says so, the ids of the two parts are those of the whole. */
static void test_subword_cuts_change_no_id(void **state)
{
    (void)state;
    const char *name;
    json_t *kind;
    size_t cuts = 0;
    json_object_foreach(json_object_get(golden_root, "kinds"), name, kind)
    {
        uint64_t x = 5;
        hf_bytes text = {0};
        tt_ids whole_ids = {0}, parts = {0};
        hf_tokenizer *t = open_kind(name, kind, false);
        for (int i = 0; i < 300; i++) {
            draw_text(&x, &text);
            assert_int_equal(hf_bytes_add(&text, "end.\nword and\nmore;\nx", 21, NULL), TT_OK);
            draw_text(&x, &text);
            assert_int_equal(hf_bytes_add(&text, "end.\nword and\nmore;\nx", 21, NULL), TT_OK);
            const size_t cut = hf_cut(t, (char *)text.s, text.n, (size_t)draw(&x, text.n));
            whole_ids.n = parts.n = 0;
            assert_int_equal(hf_encode(t, (char *)text.s, text.n, &whole_ids, NULL), TT_OK);
            assert_int_equal(hf_encode(t, (char *)text.s, cut, &parts, NULL), TT_OK);
            assert_int_equal(hf_encode(t, (char *)text.s + cut, text.n - cut, &parts, NULL), TT_OK);
            cuts += cut < text.n;
            if (parts.n != whole_ids.n ||
                memcmp(parts.ids, whole_ids.ids, parts.n * sizeof *parts.ids) != 0)
                fail_msg("%s: a cut at %zu of %zu changes ids", name, cut, text.n);
        }
        free(text.s);
        tt_ids_free(&whole_ids);
        tt_ids_free(&parts);
        hf_close(t);
    }
    assert_true(cuts > 300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_subword_ids_and_texts_equal_the_references),
        cmocka_unit_test(test_subword_blanks_at_the_beginning_are_dropped_as_in_sentencepiece),
        cmocka_unit_test(test_subword_files_cut_short_are_refused),
        cmocka_unit_test(test_subword_long_texts_are_linear),
        cmocka_unit_test(test_subword_cuts_change_no_id),
    };
    return cmocka_run_group_tests(tests, load_subword, free_golden);
}
