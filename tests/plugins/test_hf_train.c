/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "folder_test.h"
#include "hf_test.h"

#include "base/pool.h"

/* Learning: the merges of Hugging Face's BpeTrainer (tests/golden/tokenizer_more.py), alike for any
 * threads; and cutting, which lets threads share a text. */

static char folder[TEST_FOLDER];

static tt_status learn_from(const tt_text *texts, size_t n, const char *pattern, int64_t size,
                            int threads, tt_error *err)
{
    static const char *const special[] = {"<s>", "</s>"};
    tt_tokenizer_train o = {.struct_size = sizeof o,
                            .texts = texts,
                            .n_texts = n,
                            .vocab_size = size,
                            .pattern = pattern,
                            .special = special,
                            .n_special = 2,
                            .bos = special[0],
                            .eos = special[1],
                            .out = folder};
    assert_int_equal(tt_pool_new(threads, &o.pool, NULL), TT_OK);
    const tt_status s = hf_train(&o, err);
    tt_pool_free(o.pool);
    return s;
}

static json_t *learnt(void)
{
    char path[TEST_FOLDER + 60];
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    return root;
}

static void digest_text(uint64_t *h, const char *s)
{
    for (; *s; s++)
        *h = (*h ^ (uint8_t)*s) * 0x100000001b3u;
}

static void digest_merges(char hex[17])
{
    json_t *root = learnt(), *pair;
    size_t i;
    uint64_t h = 0xcbf29ce484222325u;
    json_array_foreach(json_object_get(json_object_get(root, "model"), "merges"), i, pair)
    {
        digest_text(&h, json_string_value(json_array_get(pair, 0)));
        digest_text(&h, " ");
        digest_text(&h, json_string_value(json_array_get(pair, 1)));
        digest_text(&h, "\n");
    }
    snprintf(hex, 17, "%016llx", (unsigned long long)h);
    json_decref(root);
}

static tt_text *drawn_texts(void)
{
    tt_text *texts = calloc(g.n_texts, sizeof *texts);
    uint64_t x = 1;
    for (size_t i = 0; i < g.n_texts; i++) {
        hf_bytes text = {0};
        draw_text(&x, &text);
        texts[i] = (tt_text){(char *)text.s, text.n};
    }
    return texts;
}

static void test_train_learns_the_references_merges(void **state)
{
    (void)state;
    json_t *more = json_load_file("tests/golden/tokenizer_more.json", 0, NULL), *want;
    const int64_t size = json_integer_value(json_object_get(more, "vocab_size"));
    tt_text *texts = drawn_texts();
    const char *family;
    int threads = 0;
    json_object_foreach(json_object_get(more, "train"), family, want)
    {
        tt_error err = {0};
        char hex[17];
        if (learn_from(texts, g.n_texts, family, size, 1 + threads++ % 3, &err) != TT_OK)
            fail_msg("%s: %s", family, err.text);
        digest_merges(hex);
        if (strcmp(hex, json_string_value(want)) != 0)
            fail_msg("%s: digest %s, the reference's is %s", family, hex, json_string_value(want));
        const hf_options o = {.path = folder};
        void *self = NULL;
        tt_tokenizer_info i = {.struct_size = sizeof i};
        assert_int_equal(open_hf(&o, &self, &err), TT_OK);
        info(self, &i);
        assert_int_equal(i.vocab_size, size);
        assert_int_equal(i.bos, 0);
        assert_int_equal(i.eos, 1);
        assert_int_equal(i.omits_bos, 0);
        hf_close(self);
    }
    assert_int_equal(threads, 6);
    for (size_t i = 0; i < g.n_texts; i++)
        free((char *)(uintptr_t)texts[i].s);
    free(texts);
    json_decref(more);
}

static void test_train_takes_hostile_texts(void **state)
{
    (void)state;
    enum { N = 300000 };
    char *big = malloc(N);
    tt_error err = {0};
    memset(big, 'x', N);
    const tt_text word = {big, N}, nul = {"\0\0\0\xff\0\0\xc3", 7}, spells = {"<s> <s> <s>", 11},
                  none = {"", 0};
    assert_int_equal(learn_from(&word, 1, "llama3", 300, 2, &err), TT_OK);
    assert_int_equal(learn_from(&nul, 1, "gpt2", 300, 1, &err), TT_OK);
    assert_int_equal(learn_from(&spells, 1, "[^ ]+| ", 300, 1, &err), TT_OK);
    json_t *root = learnt(); /* text never becomes the special token */
    assert_int_equal(json_integer_value(json_object_get(
                         json_object_get(json_object_get(root, "model"), "vocab"), "<s>")),
                     0);
    json_decref(root);
    assert_int_equal(learn_from(&none, 1, "gpt2", 300, 1, &err), TT_EINVAL);
    assert_non_null(strstr(err.text, "no text"));
    assert_int_equal(learn_from(&word, 1, "gpt2", 257, 1, &err), TT_EINVAL);
    assert_non_null(strstr(err.text, "vocabulary size 257: expected 258"));
    assert_int_equal(learn_from(&word, 1, "gpt2", INT64_MAX, 1, &err), TT_EINVAL);
    assert_int_equal(learn_from(&word, 1, "gtp2", 300, 1, &err), TT_EINVAL);
    assert_non_null(strstr(err.text, "is not one of gpt2, llama3"));
    free(big);
}

/* The parts between cuts, encoded one by one, give the ids of the whole text. */
static void test_cut_parts_encode_as_the_whole(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt2",   "llama3",   "qwen2", "deepseek3",
                                        "tekken", "nanochat", "qwen35"};
    for (size_t f = 0; f < TT_COUNT(names); f++) {
        hf_tokenizer *t = open_json(whole(names[f], false), false);
        free(t->added[3].sought.s); /* "_strip_" takes blanks to its left: such are never cut */
        t->added[3].sought.s = NULL;
        t->added[3].sought.n = 0;
        t->added[3].lstrip = false;
        free(t->raw.nodes);
        assert_int_equal(hf_trie_new(t->added, t->n_added, false, &t->raw, NULL), TT_OK);
        uint64_t x = 5 + f;
        size_t cuts = 0;
        hf_bytes text = {0}, all = {0};
        for (int i = 0; i < 4000; i++) {
            draw_text(&x, &text);
            assert_int_equal(hf_bytes_add(&all, text.s, text.n, NULL), TT_OK);
            const char *line[] = {";\nthe", "\nA", ")\n", "1\nx"};
            const char *add = line[draw(&x, 4)];
            assert_int_equal(hf_bytes_add(&all, add, strlen(add), NULL), TT_OK);
        }
        tt_ids one = {0}, parts = {0};
        assert_int_equal(hf_encode(t, (char *)all.s, all.n, &one, NULL), TT_OK);
        for (size_t at = 0, end; at < all.n; at = end, cuts++) {
            end = hf_cut(t, (char *)all.s, all.n, at + 1);
            assert_int_equal(hf_encode(t, (char *)all.s + at, end - at, &parts, NULL), TT_OK);
        }
        assert_true(cuts > 100);
        assert_int_equal(one.n, parts.n);
        assert_memory_equal(one.ids, parts.ids, one.n * sizeof *one.ids);
        tt_ids_free(&one);
        tt_ids_free(&parts);
        free(text.s);
        free(all.s);
        hf_close(t);
    }
    hf_tokenizer *t = open_json(whole("llama3", false), false);
    assert_int_equal(hf_cut(t, "abc\nabc", 7, 1), 7); /* because of _strip_ */
    hf_close(t);
}

static int make_folder(void **state)
{
    return test_folder("hf_train", folder) ? load_golden(state) : -1;
}

static int remove_folder(void **state)
{
    char path[TEST_FOLDER + 60];
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/tokenizer_config.json", folder);
    unlink(path);
    rmdir(folder);
    return free_golden(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_train_learns_the_references_merges),
        cmocka_unit_test(test_train_takes_hostile_texts),
        cmocka_unit_test(test_cut_parts_encode_as_the_whole),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
