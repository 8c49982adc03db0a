/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "folder_test.h"
#include "hf_test.h"
#include "interchange/assets.h"
#include <sys/mman.h>

/* Folders in the forms that the hub has, from tests/golden/hub_folders.json, which hub_folders.py writes
 * with transformers, tokenizers, tiktoken and sentencepiece; and folders that are refused. */

static json_t *hub;
static char folder[TEST_FOLDER];
static char warned[4096]; /* the lines of the last open */

static void put_file(const char *name, const void *text, size_t n)
{
    char path[TEST_FOLDER + 60];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(tt_write_file_atomic(path, text, n, NULL), TT_OK);
}

static void put_bytes(const char *name, const char *text)
{
    uint8_t bytes[1 << 16];
    size_t n = 0;
    assert_true(hf_base64((const uint8_t *)text, strlen(text), bytes, &n));
    put_file(name, bytes, n);
}

static void begin_folder(void)
{
    if (*folder)
        assert_true(test_folder_remove(folder));
    assert_true(test_folder("hub", folder));
}

static tt_status open_folder(bool special, const char *pattern, hf_tokenizer **out, tt_error *err)
{
    const hf_options o = {.path = folder, .allow_special = special, .pattern = pattern};
    hf_tokenizer *t = hf_new();
    const int kept = dup(2), lines = memfd_create("lines", MFD_CLOEXEC);
    assert_true(kept >= 0 && dup2(lines, 2) == 2);
    const tt_status s = hf_load(t, &o, err);
    dup2(kept, 2);
    const ssize_t n = pread(lines, warned, sizeof warned - 1, 0);
    warned[n > 0 ? n : 0] = '\0';
    close(lines);
    close(kept);
    if (s == TT_OK)
        *out = t;
    else
        hf_close(t);
    return s;
}

static void fill_folder(const json_t *f)
{
    const char *name;
    const json_t *key;
    begin_folder();
    json_object_foreach(json_object_get(f, "files"), name, key)
    {
        const json_t *file = json_object_get(json_object_get(hub, "files"), json_string_value(key));
        if (json_is_object(file))
            put_bytes(name, json_string_value(json_object_get(file, "base64")));
        else
            put_file(name, json_string_value(file), json_string_length(file));
    }
}

static void expect_ids(const char *what, hf_tokenizer *t, const json_t *text, const json_t *want)
{
    tt_ids got = {0};
    tt_error err = {0};
    if (hf_encode(t, json_string_value(text), json_string_length(text), &got, &err) != TT_OK)
        fail_msg("%s: %s", what, err.text);
    bool same = got.n == json_array_size(want);
    for (size_t i = 0; same && i < got.n; i++)
        same = got.ids[i] == json_integer_value(json_array_get(want, i));
    if (!same) {
        char *list = json_dumps(want, JSON_COMPACT), ours[512] = "";
        for (size_t i = 0, n = 0; i < got.n && n < sizeof ours - 12; i++)
            n += (size_t)snprintf(ours + n, sizeof ours - n, "%d ", got.ids[i]);
        fail_msg("%s: \"%s\" is %s, wanted %s", what, json_string_value(text), ours, list);
    }
    tt_ids_free(&got);
}

static void expect_number(const char *what, const json_t *f, const char *key, int64_t got)
{
    const json_t *want = json_object_get(f, key);
    if (want && json_integer_value(want) != got)
        fail_msg("%s: %s is %lld, wanted %lld", what, key, (long long)got,
                 (long long)json_integer_value(want));
}

static void test_hub_folders_give_the_ids_of_the_packages(void **state)
{
    (void)state;
    const char *name;
    json_t *f;
    size_t n = 0;
    json_object_foreach(json_object_get(hub, "folders"), name, f)
    {
        hf_tokenizer *t = NULL;
        tt_error err = {0};
        size_t i;
        json_t *want;
        const json_t *texts = json_object_get(f, "texts");
        texts = texts ? texts : json_object_get(hub, "texts");
        fill_folder(f);
        if (open_folder(json_is_true(json_object_get(f, "special")), NULL, &t, &err) != TT_OK)
            fail_msg("%s: %s", name, err.text);
        json_array_foreach(json_object_get(f, "ids"), i, want)
            expect_ids(name, t, json_array_get(texts, i), want);
        expect_number(name, f, "n_ids", (int64_t)t->vocab.n_ids);
        expect_number(name, f, "bos", t->bos);
        expect_number(name, f, "eos", t->eos);
        expect_number(name, f, "pad", t->pad);
        if (json_is_true(json_object_get(f, "known")) && *warned)
            fail_msg("%s: %s", name, warned);
        hf_close(t);
        n++;
    }
    assert_true(n >= 25);
}

/* ---- the copies that a run and an export have ---- */

/* The copy of the folder, which it removes, gives the same tokenizer. */
static void expect_same_copy(const char *name, bool special, bool exported, bool alone)
{
    char source[TEST_FOLDER], to[TEST_FOLDER];
    tt_arena *a = tt_arena_new();
    hf_tokenizer *t = NULL, *u = NULL;
    tt_error err = {0};
    strcpy(source, folder);
    assert_int_equal(open_folder(special, NULL, &t, &err), TT_OK);
    assert_true(test_folder("copy", to));
    const char *config = tt_path_join(a, source, "config.json");
    if (tt_assets_copy_tokenizer(a, alone ? t->path : source, to, exported, &err) != TT_OK)
        fail_msg("%s: %s", name, err.text);
    if (exported && tt_path_exists(config)) { /* an export writes one */
        char *text = NULL;
        size_t n = 0;
        assert_int_equal(tt_read_file(config, 1 << 20, &text, &n, NULL), TT_OK);
        assert_int_equal(tt_write_file_atomic(tt_path_join(a, to, "config.json"), text, n, NULL),
                         TT_OK);
        free(text);
    }
    assert_true(test_folder_remove(source));
    strcpy(folder, to);
    if (open_folder(special, NULL, &u, &err) != TT_OK)
        fail_msg("%s: the copy: %s", name, err.text);
    if (strcmp(t->fingerprint, u->fingerprint) != 0 || t->bos != u->bos || t->eos != u->eos ||
        t->pad != u->pad || t->omits_bos != u->omits_bos)
        fail_msg("%s: the copy of %s is another tokenizer", name, alone ? t->path : source);
    hf_close(t);
    hf_close(u);
    tt_arena_free(a);
}

static void test_copies_of_hub_folders_are_the_same_tokenizers(void **state)
{
    (void)state;
    const char *name;
    json_t *f;
    json_object_foreach(json_object_get(hub, "folders"), name, f) for (int i = 0; i < 4; i++)
    {
        fill_folder(f);
        expect_same_copy(name, json_is_true(json_object_get(f, "special")), i & 1, i & 2);
    }
    for (int i = 0; i < 4; i++) { /* config.json alone says how words are cut */
        static const char type[] = "{\"model_type\": \"qwen2\"}";
        char path[TEST_FOLDER + 60];
        fill_folder(json_object_get(json_object_get(hub, "folders"), "qwen2"));
        snprintf(path, sizeof path, "%s/tokenizer_config.json", folder);
        assert_int_equal(unlink(path), 0);
        put_file("config.json", type, sizeof type - 1);
        expect_same_copy("qwen2 by its type", false, i & 1, i & 2);
    }
}

/* All of a folder that other programs read goes along, by TT_TOKENIZER_FILES' order; nothing else does. */
static void test_copies_have_what_autotokenizer_reads(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        const char *alone; /* as which file is the tokenizer named? NULL: as the folder */
        const char *as;    /* in the export; NULL: not there */
    } rows[] = {
        {"tokenizer.json",                           NULL,              "tokenizer.json"     },
        {"tokenizer.model",                          NULL,              "tokenizer.model"    },
        {"tekken.json",                              NULL,              "tekken.json"        },
        {"spiece.model",                             NULL,              "spiece.model"       },
        {"vocab.txt",                                NULL,              "vocab.txt"          },
        {"chat_template.jinja",                      NULL,              "chat_template.jinja"},
        {"additional_chat_templates/tool_use.jinja", NULL,
         "additional_chat_templates/tool_use.jinja"                                          },
        {"tokenization_x.py",                        NULL,              "tokenization_x.py"  },
        {"preprocessor_config.json",                 NULL,              NULL                 },
        {"model.safetensors",                        NULL,              NULL                 },
        {"mine.json",                                "mine.json",       "tokenizer.json"     },
        {"mine.model",                               "mine.model",      "tokenizer.model"    },
        {"tokenizer.json",                           "mine.model",      NULL                 },
        {"tokenizer.json",                           "tokenizer.model", NULL                 },
        {"vocab.json",                               "tokenizer.model", "vocab.json"         },
        {"mine.tiktoken",                            "mine.tiktoken",   NULL                 },
    };
    for (size_t i = 0; i < TT_COUNT(rows); i++) {
        char source[TEST_FOLDER], to[TEST_FOLDER];
        tt_arena *a = tt_arena_new();
        tt_error err = {0};
        assert_true(test_folder("from", source));
        assert_true(test_folder("to", to));
        const char *path = tt_path_join(a, source, rows[i].name);
        const char *named = rows[i].alone ? tt_path_join(a, source, rows[i].alone) : source;
        assert_int_equal(tt_mkdirs(tt_path_dir(a, path), NULL), TT_OK);
        assert_int_equal(tt_write_file_atomic(path, "x", 1, NULL), TT_OK);
        if (rows[i].alone)
            assert_int_equal(tt_write_file_atomic(named, "x", 1, NULL), TT_OK);
        const char config[] = "{\"auto_map\": {}}";
        assert_int_equal(tt_write_file_atomic(tt_path_join(a, source, "tokenizer_config.json"),
                                              config, sizeof config - 1, NULL),
                         TT_OK);
        assert_int_equal(tt_assets_copy_tokenizer(a, named, to, true, &err), TT_OK);
        if (rows[i].as && !tt_path_exists(tt_path_join(a, to, rows[i].as)))
            fail_msg("%s is not there", rows[i].as);
        if (!rows[i].as && tt_path_exists(tt_path_join(a, to, rows[i].name)))
            fail_msg("%s (of %s) is there", rows[i].name, named);
        assert_true(test_folder_remove(source) && test_folder_remove(to));
        tt_arena_free(a);
    }
}

/* ---- folders that are refused ---- */

static const json_t *file_of(const char *of, const char *name)
{
    const json_t *f = json_object_get(json_object_get(hub, "folders"), of);
    const json_t *key = json_object_get(json_object_get(f, "files"), name);
    return json_object_get(json_object_get(hub, "files"), json_string_value(key));
}

static void put_of(const char *of, const char *name)
{
    const json_t *file = file_of(of, name);
    assert_non_null(file);
    put_file(name, json_string_value(file), json_string_length(file));
}

static void expect_refusal(const char *pattern, const char *says)
{
    hf_tokenizer *t = NULL;
    tt_error err = {0};
    if (open_folder(false, pattern, &t, &err) == TT_OK)
        fail_msg("is opened, but should say: %s", says);
    if (!strstr(err.text, says) || strchr(err.text, '\n'))
        fail_msg("\"%s\" is not in: %s", says, err.text);
}

static void test_hub_what_lies_beside_a_vocabulary_must_be_known(void **state)
{
    (void)state;
    static const struct {
        const char *of, *config, *model, *says;
    } rows[] = {
        {"gpt2 alone", "{\"tokenizer_class\": \"CLIPTokenizer\"}",    NULL,
         "the tokenizer_class \"CLIPTokenizer\" does not say"                                                                                                                   },
        {"gpt2 alone", NULL,                                          "{\"model_type\": \"llama\"}",
         "the model_type \"llama\" does not say"                                                                                                                                },
        {"gpt2 alone", "{\"tokenizer_class\": \"GPT2TokenizerNew\"}", NULL,                          "does not say how"                                                         },
        {"gpt2 alone", "{\"eos_token\": 3}",                          NULL,                          "a token's text"                                                           },
        {"kimi",       "{\"tokenizer_class\": \"AnotherTokenizer\"}", NULL,
         "that of tokenizer_class \"AnotherTokenizer\" is not known; set tokenizer.pattern"                                                                                     },
        {"kimi",       NULL,                                          NULL,                          "tiktoken.model: a tiktoken file does not contain its pattern"             },
        {"kimi",
         "{\"tokenizer_class\": \"QWenTokenizer\", \"auto_map\": {\"AutoTokenizer\": "
         "[\"tokenization_kimi.QWenTokenizer\", null]}}",             NULL,                          "tokenization_kimi.py: it cuts texts into words by another expression than"},
        {"kimi",
         "{\"tokenizer_class\": \"TikTokenTokenizer\", \"added_tokens_decoder\": {\"0\": "
         "{\"content\": \"<x>\"}}}",                                  NULL,                          "0 is another token's too"                                                 },
    };
    for (size_t i = 0; i < TT_COUNT(rows); i++) {
        begin_folder();
        if (rows[i].of[0] == 'g') {
            put_of(rows[i].of, "vocab.json");
            put_of(rows[i].of, "merges.txt");
        } else {
            put_of(rows[i].of, "tiktoken.model");
            put_of(rows[i].of, "tokenization_kimi.py");
        }
        if (rows[i].config)
            put_file("tokenizer_config.json", rows[i].config, strlen(rows[i].config));
        if (rows[i].model)
            put_file("config.json", rows[i].model, strlen(rows[i].model));
        expect_refusal(NULL, rows[i].says);
    }
}

/* Nothing in files without a post_processor says that eos ends a text, also where eos is token 0. */
static void test_hub_an_end_is_added_only_if_the_config_says_so(void **state)
{
    (void)state;
    static const struct {
        const char *of, *class, *eos;
    } rows[] = {
        {"gpt2 alone",                      "GPT2Tokenizer",  "!"    },
        {"sentencepiece: normalizer first", "LlamaTokenizer", "<unk>"},
    };
    for (size_t i = 0; i < 3 * TT_COUNT(rows); i++) {
        static const char *const ends[] = {"", ", \"add_eos_token\": false",
                                           ", \"add_eos_token\": true"};
        hf_tokenizer *t = NULL;
        tt_error err = {0};
        char config[120];
        fill_folder(json_object_get(json_object_get(hub, "folders"), rows[i / 3].of));
        snprintf(config, sizeof config, "{\"tokenizer_class\": \"%s\", \"eos_token\": \"%s\"%s}",
                 rows[i / 3].class, rows[i / 3].eos, ends[i % 3]);
        put_file("tokenizer_config.json", config, strlen(config));
        if (open_folder(false, NULL, &t, &err) != TT_OK)
            fail_msg("%s: %s", config, err.text);
        if (t->eos != 0 || t->adds_eos != (i % 3 == 2))
            fail_msg("%s: eos %lld, adds_eos %d", config, (long long)t->eos, t->adds_eos);
        hf_close(t);
    }
}

static void test_hub_files_that_are_no_tokenizers_are_called_so(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text, *says;
    } rows[] = {
        {"x",               "",                                                           "no tokenizer is in this folder (looked for: tokenizer.json, tokenizer.model, "},
        {"tokenizer.model", "GGUF\3\1\1\1",
         "tokenizer.model: not a tokenizer (looked for JSON, a model of sentencepiece, or lines "
         "of"                                                                                                                                                            },
        {"tokenizer.model", "",                                                           "not a tokenizer"                                                              },
        {"tokenizer.model", "version https://git-lfs.github.com/spec/v1\noid 0\n",
         "not a tokenizer"                                                                                                                                               },
        {"tokenizer.json",  "{\"added_tokens\": []}",                                     "model: expected an object"                                                    },
        {"tokenizer.json",  "{\"model\": {\"vocab\": {\"a\": 0}, \"unk_token\": \"a\"}}",
         "\"WordLevel\" is not supported"                                                                                                                                },
        {"vocab.json",      "{\"a\": 0}",                                                 "vocab.json: a vocabulary without merges.txt beside it"                        },
        {"tokenizer.json",
         "{\"pre_tokenizer\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"BPE\", "
         "\"unk_token\": \"b\", "
         "\"merges\": [], \"vocab\": {\"a\": 0}}}",                                       "model.unk_token: \"b\" is not in model.vocab"                                 },
        {"tokenizer.json",
         "{\"pre_tokenizer\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"BPE\", "
         "\"byte_fallback\": true, "
         "\"merges\": [], \"vocab\": {\"a\": 0}}}",                                       "model.byte_fallback: not supported in byte-level"                             },
        {"tokenizer.json",
         "{\"pre_tokenizer\": {\"type\": \"Split\", \"behavior\": \"Isolated\", \"pattern\": "
         "{\"Regex\": "
         "\"a\\u0000\"}}, \"model\": {}}",                                                "pattern: expected"                                                            },
        {"tokenizer.json",
         "{\"model\": {\"merges\": [], \"vocab\": {\"\\u0000\": 0, \"\\u0000\": 1}}}",    "duplicate object key"                                                         },
    };
    for (size_t i = 0; i < TT_COUNT(rows); i++) {
        begin_folder();
        put_file(rows[i].name, rows[i].text, strlen(rows[i].text));
        expect_refusal(NULL, rows[i].says);
    }
    begin_folder();
    put_of("gpt2 alone", "vocab.json");
    put_file("merges.txt", "#version: 0.2\nh e\nq ~~\n", 25 - 1);
    expect_refusal(NULL, "merges.txt: merge 2: the part \"~~\" is not in");
}

static void test_hub_a_pattern_of_the_job_wins(void **state)
{
    (void)state;
    hf_tokenizer *t = NULL;
    tt_error err = {0};
    const json_t *f = json_object_get(json_object_get(hub, "folders"), "kimi");
    fill_folder(f);
    if (open_folder(false, "llama3", &t, &err) != TT_OK)
        fail_msg("%s", err.text);
    assert_ptr_equal(t->splits[0].scan, hf_pattern_named("llama3")->scan);
    assert_int_equal(t->eos, json_integer_value(json_object_get(f, "eos")));
    hf_close(t);
}

static void test_hub_bytes_that_texts_lose_are_told(void **state)
{
    (void)state;
    static const struct {
        const char *of, *says;
    } rows[] = {
        {"no bytes c0 and c1",              ""                                                                                 },
        {"bytes without a token: left out", "2 of the 243 bytes of UTF-8 have no token, 0x2c is "
                                            "the first; in a text they are left out"},
        {"bytes without a token: unk",      "become the unk_token"                                                             },
    };
    for (size_t i = 0; i < TT_COUNT(rows); i++) {
        hf_tokenizer *t = NULL;
        tt_ids ids = {0};
        fill_folder(json_object_get(json_object_get(hub, "folders"), rows[i].of));
        assert_int_equal(open_folder(false, NULL, &t, NULL), TT_OK);
        if (!*rows[i].says ? *warned != '\0' : !strstr(warned, rows[i].says))
            fail_msg("%s: %s", rows[i].of, warned);
        assert_int_equal(hf_encode(t, "\xc0", 1, &ids, NULL), TT_OK); /* is no UTF-8 */
        assert_int_equal(ids.n, i == 0 ? 0 : 1);
        tt_ids_free(&ids);
        hf_close(t);
    }
}

static int load_hub(void **state)
{
    (void)state;
    hub = json_load_file("tests/golden/hub_folders.json", JSON_ALLOW_NUL, NULL);
    return hub ? 0 : -1;
}

static int free_hub(void **state)
{
    (void)state;
    json_decref(hub);
    return *folder && !test_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hub_folders_give_the_ids_of_the_packages),
        cmocka_unit_test(test_copies_of_hub_folders_are_the_same_tokenizers),
        cmocka_unit_test(test_copies_have_what_autotokenizer_reads),
        cmocka_unit_test(test_hub_what_lies_beside_a_vocabulary_must_be_known),
        cmocka_unit_test(test_hub_an_end_is_added_only_if_the_config_says_so),
        cmocka_unit_test(test_hub_files_that_are_no_tokenizers_are_called_so),
        cmocka_unit_test(test_hub_a_pattern_of_the_job_wins),
        cmocka_unit_test(test_hub_bytes_that_texts_lose_are_told),
    };
    return cmocka_run_group_tests(tests, load_hub, free_hub);
}
