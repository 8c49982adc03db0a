/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "folder_test.h"
#include "hf_test.h"

static void test_hf_ids_equal_the_references(void **state)
{
    (void)state;
    const char *family;
    json_t *f;
    json_object_foreach(json_object_get(g.root, "families"), family, f)
    {
        char hex[17], again[17];
        hf_tokenizer *t = open_json(whole(family, false), false);
        hf_tokenizer *old = open_json(whole(family, true), false);
        digest_of(t, hex);
        if (strcmp(hex, json_string_value(json_object_get(f, "digest"))) != 0)
            fail_msg("%s: digest %s, the reference's is %s", family, hex,
                     json_string_value(json_object_get(f, "digest")));
        digest_of(old, again);
        assert_string_equal(hex, again);
        assert_string_equal(t->fingerprint, old->fingerprint);
        hf_close(t);
        hf_close(old);
    }
}

/* Every scanner cuts a text where PCRE2 cuts it with the scanner's pattern. */
static void test_hf_scanners_match_as_pcre2_does(void **state)
{
    (void)state;
    uint16_t *flags;
    hf_bytes text = {0};
    assert_int_equal(hf_unicode_new(false, &flags, NULL), TT_OK);
    for (size_t p = 0; p < hf_n_patterns; p++) {
        hf_regex *r;
        hf_matcher *m;
        uint64_t x = 77 + p;
        assert_int_equal(hf_regex_new(hf_patterns[p].regex, hf_patterns[p].dialect, &r, NULL),
                         TT_OK);
        assert_int_equal(hf_matcher_new(r, &m, NULL), TT_OK);
        for (int i = 0; i < 3000; i++) {
            draw_text(&x, &text);
            for (size_t at = 0; at < text.n;) {
                size_t begin, end, here = at, n = 0;
                unsigned k;
                assert_int_equal(hf_regex_find(r, m, text.s, text.n, at, &begin, &end, NULL),
                                 TT_OK);
                while (here < text.n &&
                       !(n = hf_patterns[p].scan(flags, text.s + here, text.s + text.n))) {
                    hf_decode(text.s + here, &k);
                    here += k;
                }
                if (here != begin || here + n != end)
                    fail_msg("%s: \"%.*s\" at %zu: scanner [%zu, %zu), PCRE2 [%zu, %zu)",
                             hf_patterns[p].name, (int)text.n, text.s, at, here, here + n, begin,
                             end);
                at = end;
            }
        }
        hf_matcher_free(m);
        hf_regex_free(r);
    }
    free(flags);
    free(text.s);
}

static void test_hf_decode_gives_back_any_bytes(void **state)
{
    (void)state;
    hf_tokenizer *t = open_json(whole("tekken", false), false);
    uint64_t x = 3;
    for (int i = 0; i < 300; i++) {
        char text[200], back[256];
        tt_ids ids = {0};
        const size_t n = draw(&x, sizeof text);
        size_t m = 0;
        for (size_t k = 0; k < n; k++)
            text[k] = (char)(draw(&x, 3) ? 'a' + (int)draw(&x, 26) : (int)draw(&x, 256));
        assert_int_equal(hf_encode(t, text, n, &ids, NULL), TT_OK);
        for (size_t k = 0; k < ids.n; k++)
            m += hf_decode_token(t, ids.ids[k], back + m, sizeof back - m);
        assert_int_equal(m, n);
        assert_memory_equal(text, back, n);
        tt_ids_free(&ids);
    }
    assert_int_equal(hf_decode_token(t, -1, (char[8]){0}, 8), 0);
    assert_int_equal(hf_decode_token(t, 1 << 30, (char[8]){0}, 8), 0);
    assert_int_equal(hf_decode_token(t, t->added[1].id, (char[8]){0}, 3), 3); /* cut at cap */
    hf_close(t);
}

static void assert_ids(hf_tokenizer *t, const char *text, const int32_t *want, size_t n)
{
    tt_ids ids = {0};
    assert_int_equal(hf_encode(t, text, strlen(text), &ids, NULL), TT_OK);
    assert_int_equal(ids.n, n);
    assert_memory_equal(ids.ids, want, n * sizeof *want);
    tt_ids_free(&ids);
}

static void test_hf_special_tokens_are_plain_text_unless_allowed(void **state)
{
    (void)state;
    hf_tokenizer *plain = open_json(whole("llama3", false), false);
    hf_tokenizer *allowed = open_json(whole("llama3", false), true);
    const int32_t special = plain->added[0].id;
    tt_ids ids = {0};
    char buf[32];
    assert_int_equal(hf_encode(plain, "<|endoftext|>", 13, &ids, NULL), TT_OK);
    assert_true(ids.n > 1);
    assert_ids(allowed, "<|endoftext|>", &special, 1);
    assert_int_equal(hf_decode_token(plain, special, buf, sizeof buf), 0);
    assert_string_not_equal(plain->fingerprint, allowed->fingerprint);
    tt_ids_free(&ids);
    hf_close(plain);
    hf_close(allowed);
}

/* A pattern that takes too many steps fails, and the list is as it was. */
static void test_hf_encode_that_fails_does_not_change_the_list(void **state)
{
    (void)state;
    static const char *const path[] = {"pre_tokenizer", "pretokenizers", "0",
                                       "pattern",       "Regex",         NULL};
    json_t *root = whole("llama3", false);
    tt_error err = {0};
    tt_ids ids = {0};
    set_at(root, path, "\"x|(?:a|a)+\\\\d\"");
    hf_tokenizer *t = open_json(root, false);
    assert_int_equal(tt_ids_push(&ids, 7, NULL), TT_OK);
    const char *text = "xxaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    assert_int_equal(hf_encode(t, text, strlen(text), &ids, &err), TT_EINVAL);
    assert_non_null(strstr(err.text, "fails at byte 2 of a text of 62"));
    assert_int_equal(ids.n, 1);
    assert_int_equal(ids.ids[0], 7);
    tt_ids_free(&ids);
    hf_close(t);
}

/* Appending keeps the ids that are there. */
static void test_hf_encode_appends(void **state)
{
    (void)state;
    hf_tokenizer *t = open_json(whole("gpt2", false), false);
    tt_ids ids = {0};
    assert_int_equal(tt_ids_push(&ids, 7, NULL), TT_OK);
    assert_int_equal(hf_encode(t, "", 0, &ids, NULL), TT_OK);
    assert_int_equal(ids.n, 1);
    assert_int_equal(hf_encode(t, "A", 1, &ids, NULL), TT_OK);
    assert_int_equal(ids.n, 2);
    assert_int_equal(ids.ids[0], 7);
    tt_ids_free(&ids);
    hf_close(t);
}

static void merge_all(const hf_vocab *v, hf_bpe_room *r, const uint8_t *s, size_t n, bool lists,
                      tt_ids *out)
{
    out->n = 0;
    assert_int_equal(hf_bpe_reserve(r, n, NULL), TT_OK);
    assert_int_equal(list_room(v, r, n, NULL), TT_OK);
    for (size_t i = 0; i < n; i++)
        r->ids[i] = (uint32_t)v->byte_ids[s[i]];
    lay_out(r, n);
    assert_int_equal(lists ? merge_by_rank(v, r, n, NULL) : merge_by_heap(v, r, n, NULL), TT_OK);
    for (uint32_t i = 0; i != NONE; i = r->next[i])
        assert_int_equal(tt_ids_push(out, (int32_t)r->ids[i], NULL), TT_OK);
}

/* Also if ranks decrease: in a vocabulary with shuffled ranks merges often make pairs of lower
 * rank. */
static void assert_lists_merge_as_the_heap(hf_vocab *v, hf_bpe_room *r, uint64_t *x)
{
    static const char *const letters[] = {"etinoas  re", "    ", "ee t", "-=-= "};
    uint8_t word[6000];
    tt_ids a = {0}, b = {0};
    for (int round = 0; round < 80; round++) {
        const char *of = letters[draw(x, TT_COUNT(letters))];
        const size_t n = 2 + draw(x, sizeof word - 2);
        for (size_t i = 0; i < n; i++)
            word[i] = (uint8_t)of[draw(x, strlen(of))];
        if (round == 40)
            for (size_t i = 0; i <= v->merges_mask; i++)
                if (v->merges[i].rank != UINT32_MAX)
                    v->merges[i].rank = (uint32_t)draw(x, v->n_ranks);
        merge_all(v, r, word, n, true, &a);
        merge_all(v, r, word, n, false, &b);
        assert_int_equal(a.n, b.n);
        assert_memory_equal(a.ids, b.ids, a.n * sizeof *a.ids);
    }
    tt_ids_free(&a);
    tt_ids_free(&b);
}

/* Twenty megabytes of blanks, and words at the border between the two ways of merging. */
static void test_hf_long_words_are_merged_as_short_ones(void **state)
{
    (void)state;
    hf_tokenizer *t = open_json(whole("llama3", false), false);
    const size_t n = (size_t)20 << 20;
    char *blanks = malloc(n);
    tt_ids ids = {0}, heap = {0};
    memset(blanks, ' ', n);
    assert_int_equal(hf_encode(t, blanks, n, &ids, NULL), TT_OK);
    assert_true(ids.n > 0 && ids.n <= n);
    uint64_t x = 9;
    hf_bpe_room room_ = {0};
    for (int i = 0; i < 2000; i++) {
        uint32_t small[HF_SHORT_WORD];
        const size_t k = 1 + draw(&x, HF_SHORT_WORD);
        for (size_t j = 0; j < k; j++)
            blanks[j] = "etinoas  re"[draw(&x, 11)];
        heap.n = 0;
        for (size_t j = 0; j < k; j++)
            small[j] = (uint32_t)t->vocab.byte_ids[(uint8_t)blanks[j]];
        const size_t m = hf_bpe_short(&t->vocab, small, k);
        assert_int_equal(long_word(&t->vocab, &room_, (uint8_t *)blanks, k, &heap, NULL), TT_OK);
        assert_int_equal(m, heap.n);
        assert_memory_equal(small, heap.ids, m * sizeof *small);
    }
    assert_lists_merge_as_the_heap(&t->vocab, &room_, &x);
    hf_bpe_room_release(&room_);
    tt_ids_free(&ids);
    tt_ids_free(&heap);
    free(blanks);
    hf_close(t);
}

/* Also for PCRE2, with patterns that backtrack over the whole text. */
static void test_hf_pcre2_survives_a_long_run(void **state)
{
    (void)state;
    hf_regex *r;
    hf_matcher *m;
    const size_t n = (size_t)4 << 20;
    uint8_t *blanks = malloc(n);
    size_t begin, end;
    tt_error err = {0};
    memset(blanks, ' ', n);
    assert_int_equal(hf_regex_new("(?:a|\\s)*[\\r\\n]+|\\s+(?!\\S)|\\s+", HF_ONIGURUMA, &r, NULL),
                     TT_OK);
    assert_int_equal(hf_matcher_new(r, &m, NULL), TT_OK);
    const tt_status s = hf_regex_find(r, m, blanks, n, 0, &begin, &end, &err);
    if (s == TT_OK)
        assert_int_equal(end, n);
    else
        assert_non_null(strstr(err.text, "split the text"));
    hf_matcher_free(m);
    hf_regex_free(r);
    assert_int_equal(hf_regex_new("\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", HF_ONIGURUMA, &r, NULL), TT_OK);
    assert_int_equal(hf_matcher_new(r, &m, NULL), TT_OK);
    assert_int_equal(hf_regex_find(r, m, blanks, n, 0, &begin, &end, &err), TT_OK);
    assert_int_equal(end, n);
    hf_matcher_free(m);
    hf_regex_free(r);
    free(blanks);
}

typedef struct encoder {
    hf_tokenizer *t;
    char hex[17];
} encoder;

static void *encode_on_thread(void *arg)
{
    encoder *e = arg;
    digest_of(e->t, e->hex);
    return NULL;
}

static void test_hf_threads_encode_equally(void **state)
{
    (void)state;
    hf_tokenizer *t = open_json(whole("qwen2", false), false);
    pthread_t threads[3];
    encoder encoders[3];
    for (int i = 0; i < 3; i++) {
        encoders[i].t = t;
        assert_int_equal(pthread_create(&threads[i], NULL, encode_on_thread, &encoders[i]), 0);
    }
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    assert_string_equal(encoders[0].hex, encoders[1].hex);
    assert_string_equal(encoders[0].hex, encoders[2].hex);
    assert_string_equal(
        encoders[0].hex,
        json_string_value(json_object_get(
            json_object_get(json_object_get(g.root, "families"), "qwen2"), "digest")));
    hf_close(t);
}

static void test_hf_info_names_the_special_tokens(void **state)
{
    (void)state;
    hf_tokenizer *t = NULL, *other = NULL;
    tt_tokenizer_info i = {.struct_size = sizeof i};
    tt_error err = {0};
    json_t *root = whole("gpt2", false);
    json_t *gap = json_pack("{s:i, s:s, s:b}", "id", 2000, "content", "<bos>", "special", 1);
    json_array_append_new(json_object_get(root, "added_tokens"), gap);
    char *text = json_dumps(root, 0);
    assert_int_equal(
        open_text(text,
                  "{\"bos_token\": {\"content\": \"<bos>\"}, \"eos_token\": \"<|endoftext|>\","
                  " \"pad_token\": null}",
                  false, &t, &err),
        TT_OK);
    info(t, &i);
    assert_int_equal(i.vocab_size, 2001); /* the highest id, over a gap */
    assert_int_equal(i.bos, 2000);
    assert_int_equal(i.eos, t->added[0].id);
    assert_int_equal(i.pad, -1);
    assert_int_equal(strlen(i.fingerprint), 32);
    assert_int_equal(hf_decode_token(t, 1999, (char[4]){0}, 4), 0);
    assert_int_equal(open_text(text, NULL, false, &other, &err), TT_OK);
    assert_string_not_equal(t->fingerprint, other->fingerprint);
    hf_close(other);
    assert_int_equal(open_text(text, "{\"bos_token\": \"<s>\"}", false, &other, &err), TT_EFORMAT);
    assert_non_null(strstr(err.text, "bos_token: \"<s>\" is not a token"));
    hf_close(t);
    free(text);
    json_decref(root);
}

#define BOS_FIRST                                                                                  \
    "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<bos>\"}}, "    \
    "{\"Sequence\": {\"id\": \"A\"}}]}"
#define NAMED "\"bos_token\": \"<bos>\""

/* Without add_bos_token: as transformers 5.24 puts bos before a text or does not. */
static void test_hf_begins_texts_with_bos_where_its_files_do(void **state)
{
    static const struct {
        const char *processor, *config;
        bool omits;
    } all[] = {
        {"null",                                                                                 "{" NAMED "}",                           true },
        {BOS_FIRST,                                                                              "{" NAMED "}",                           false},
        {"{\"type\": \"ByteLevel\"}",                                                            "{" NAMED "}",                           true },
        {"{\"type\": \"Sequence\", \"processors\": [{\"type\": \"ByteLevel\"}, " BOS_FIRST "]}",
         "{" NAMED "}",                                                                                                                   false},
        {"{\"type\": \"RobertaProcessing\", \"cls\": [\"<bos>\", 2000], \"sep\": [\"b\", "
         "1]}",                                                                         "{" NAMED "}",                           false},
        {"{\"type\": \"BertProcessing\", \"cls\": [\"<|endoftext|>\", 0], \"sep\": [\"b\", "
         "1]}",                                                                         "{" NAMED "}",                           true },
        {"{\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": {\"id\": \"A\"}}, "
         "{\"SpecialToken\": {\"id\": \"<bos>\"}}]}",                                   "{" NAMED "}",                           true },
        {BOS_FIRST,                                                                              "{" NAMED ", \"add_bos_token\": false}", true },
        {BOS_FIRST,                                                                              "{" NAMED ", \"add_bos_token\": null}",  false},
        {"null",                                                                                 "{" NAMED ", \"add_bos_token\": true}",  false},
        {"null",                                                                                 "{\"add_bos_token\": false}",            false}, /* there is none */
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(all); i++) {
        hf_tokenizer *t = NULL;
        tt_tokenizer_info got = {.struct_size = sizeof got};
        tt_error err = {0};
        json_t *root = whole("gpt2", false);
        json_array_append_new(
            json_object_get(root, "added_tokens"),
            json_pack("{s:i, s:s, s:b}", "id", 2000, "content", "<bos>", "special", 1));
        json_object_set_new(root, "post_processor",
                            json_loads(all[i].processor, JSON_DECODE_ANY, NULL));
        char *text = json_dumps(root, 0);
        if (open_text(text, all[i].config, false, &t, &err) != TT_OK)
            fail_msg("%zu: %s", i, err.text);
        info(t, &got);
        if (got.omits_bos != all[i].omits)
            fail_msg("%s, %s", all[i].processor, all[i].config);
        hf_close(t);
        free(text);
        json_decref(root);
    }
}

/* As PreTrainedTokenizerFast.save_pretrained writes a tokenizer without a maximum length, and
 * stranger numbers. */
static void test_hf_ignores_numbers_that_nothing_reads(void **state)
{
    (void)state;
    hf_tokenizer *t = NULL;
    tt_error err = {0};
    json_t *root = whole("gpt2", false);
    char *text = json_dumps(root, 0);
    assert_int_equal(
        open_text(text,
                  "{\"model_max_length\": 1000000000000000019884624838656,\n \"a\": [1e400, -1e400,"
                  " -9223372036854775808, -9223372036854775809, \"x\\\"99999999999999999999\"],"
                  " \"b\": 1000000000000000019884624838656e290,"
                  " \"eos_token\": \"<|endoftext|>\"}",
                  false, &t, &err),
        TT_OK);
    assert_int_equal(t->eos, t->added[0].id);
    hf_close(t);
    assert_int_equal(
        open_text(text, "{\"eos_token\": 1000000000000000019884624838656}", false, &t, &err),
        TT_EFORMAT);
    assert_non_null(strstr(err.text, "eos_token: expected a token's text"));
    free(text);
    json_t *vocab = json_copy(json_object_get(g.root, "vocab"));
    json_object_set_new(vocab, "beyond", json_integer(INT64_MAX));
    json_object_set_new(json_object_get(root, "model"), "vocab", vocab);
    text = json_dumps(root, 0);
    char *long_id = strstr(text, "9223372036854775807"), *longer = NULL;
    assert_true(asprintf(&longer, "%.*s1%s", (int)(long_id - text), text, long_id) > 0);
    assert_int_equal(open_text(longer, NULL, false, &t, &err), TT_EFORMAT);
    assert_non_null(strstr(err.text, "model.vocab.\"beyond\": expected an id"));
    free(longer);
    free(text);
    json_decref(root);
}

static void write_text(const char *folder, const char *name, const char *text)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void test_hf_opens_a_file_or_its_folder(void **state)
{
    (void)state;
    char folder[TEST_FOLDER], path[300];
    assert_true(test_folder("hf", folder));
    json_t *root = whole("gpt2", false);
    char *text = json_dumps(root, 0);
    write_text(folder, "tokenizer.json", text);
    write_text(folder, "tokenizer_config.json", "{\"eos_token\": \"<|endoftext|>\"}");
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    tt_tokenizer_info a = {.struct_size = sizeof a}, b = {.struct_size = sizeof b};
    hf_options o = {.path = folder};
    void *self = NULL;
    tt_error err = {0};
    assert_int_equal(open_hf(&o, &self, &err), TT_OK);
    info(self, &a);
    hf_close(self);
    o.path = path;
    assert_int_equal(open_hf(&o, &self, &err), TT_OK);
    info(self, &b);
    hf_close(self);
    assert_string_equal(a.fingerprint, b.fingerprint);
    assert_true(b.eos > 0);
    o.eos_token = "<nope>";
    assert_int_equal(open_hf(&o, &self, &err), TT_EINVAL);
    o = (hf_options){.path = "/nowhere/tokenizer.json"};
    assert_int_equal(open_hf(&o, &self, &err), TT_ENOTFOUND);
    o.path = NULL;
    assert_int_equal(open_hf(&o, &self, &err), TT_EINVAL);
    assert_non_null(strstr(err.text, "tokenizer.path"));
    unlink(path);
    snprintf(path, sizeof path, "%s/tokenizer_config.json", folder);
    unlink(path);
    rmdir(folder);
    free(text);
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hf_ids_equal_the_references),
        cmocka_unit_test(test_hf_scanners_match_as_pcre2_does),
        cmocka_unit_test(test_hf_decode_gives_back_any_bytes),
        cmocka_unit_test(test_hf_special_tokens_are_plain_text_unless_allowed),
        cmocka_unit_test(test_hf_encode_that_fails_does_not_change_the_list),
        cmocka_unit_test(test_hf_encode_appends),
        cmocka_unit_test(test_hf_long_words_are_merged_as_short_ones),
        cmocka_unit_test(test_hf_pcre2_survives_a_long_run),
        cmocka_unit_test(test_hf_threads_encode_equally),
        cmocka_unit_test(test_hf_info_names_the_special_tokens),
        cmocka_unit_test(test_hf_begins_texts_with_bos_where_its_files_do),
        cmocka_unit_test(test_hf_ignores_numbers_that_nothing_reads),
        cmocka_unit_test(test_hf_opens_a_file_or_its_folder),
    };
    return cmocka_run_group_tests(tests, load_golden, free_golden);
}
