/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt_test.h"
/* ckpt_test.h must be first: it defines what libc's headers declare */
#include "interchange/formats/gguf.h"

/* tests/golden/gguf.json has what the gguf package writes for the same values (gguf_golden.py). */

static const tt_json *golden(fixture *f)
{
    char *text = NULL;
    size_t n = 0;
    const tt_json *root = NULL;
    assert_ok(tt_read_file("tests/golden/gguf.json", 0, &text, &n, &f->err), f);
    assert_ok(tt_json_parse(f->a, "golden", tt_arena_strn(f->a, text, n), n, &root, &f->err), f);
    free(text);
    return root;
}

static float *floats(fixture *f, const tt_json *bits)
{
    float *x = tt_arena_array(f->a, bits->n, sizeof *x);
    for (size_t i = 0; i < bits->n; i++) {
        const uint32_t b = (uint32_t)bits->items[i]->integer;
        memcpy(&x[i], &b, sizeof b);
    }
    return x;
}

static void assert_hex(const void *p, size_t n, const char *hex)
{
    static const char digits[] = "0123456789abcdef";
    const uint8_t *b = p;
    assert_int_equal(strlen(hex), 2 * n);
    for (size_t i = 0; i < n; i++)
        if (hex[2 * i] != digits[b[i] >> 4] || hex[2 * i + 1] != digits[b[i] & 15])
            fail_msg("byte %zu is %02x, not %.2s", i, b[i], hex + 2 * i);
}

static void test_q8_0_equals_the_gguf_package_bit_for_bit(void **state)
{
    fixture *f = *state;
    const tt_json *q = tt_json_get(golden(f), "q8_0"), *bits = tt_json_get(q, "bits");
    const size_t blocks = bits->n / TT_Q8_0_BLOCK;
    uint8_t *out = tt_arena_array(f->a, blocks + 1, TT_Q8_0_BYTES);
    assert_true(blocks >= 15);
    out[blocks * TT_Q8_0_BYTES] = 0x5a;
    assert_true(tt_q8_0(out, floats(f, bits), blocks));
    assert_hex(out, blocks * TT_Q8_0_BYTES, tt_json_get(q, "bytes")->string);
    assert_int_equal(out[blocks * TT_Q8_0_BYTES], 0x5a); /* what lies behind is another's */
}

static tt_status copy(void *user, const tt_gguf_tensor *t, int64_t begin, int64_t n, float *out,
                      tt_error *err)
{
    (void)user;
    (void)err;
    memcpy(out, (const float *)t->user + begin, (size_t)n * sizeof *out);
    return TT_OK;
}

static tt_gguf sample(fixture *f)
{
    static const char *const strings[] = {"a", "bc", "", "\u0120d"};
    static const int32_t numbers[] = {1, -2, 3};
    tt_gguf g = {.arena = f->a};
    tt_gguf_string(&g, "general.architecture", "x");
    tt_gguf_u32(&g, "a.u32", 4000000000u);
    tt_gguf_f32(&g, "a.f32", 0.1f);
    tt_gguf_bool(&g, "a.bool", true);
    tt_gguf_string(&g, "a.string", "\u00e9\n\"q\"");
    tt_gguf_strings(&g, "a.strings", strings, 4);
    tt_gguf_i32s(&g, "a.i32s", numbers, 3);
    return g;
}

static void test_file_equals_the_gguf_package_byte_for_byte(void **state)
{
    fixture *f = *state;
    const tt_json *file = tt_json_get(golden(f), "file"), *list = tt_json_get(file, "tensors");
    tt_gguf g = sample(f);
    for (size_t i = 0; i < list->n; i++) {
        const tt_json *t = list->items[i], *shape = tt_json_get(t, "shape");
        tt_gguf_tensor out = {.name = tt_json_get(t, "name")->string,
                              .n_dims = (int)shape->n,
                              .type = (tt_gguf_type)tt_json_get(t, "type")->integer,
                              .user = floats(f, tt_json_get(t, "bits"))};
        for (size_t d = 0; d < shape->n; d++)
            out.shape[d] = shape->items[d]->integer;
        assert_ok(tt_gguf_add(&g, &out, &f->err), f);
    }
    assert_ok(tt_gguf_write(&g, in(f, "x.gguf"), copy, NULL, &f->err), f);
    char *text = NULL;
    size_t n = 0;
    assert_ok(tt_read_file(in(f, "x.gguf"), 0, &text, &n, &f->err), f);
    assert_hex(text, n, tt_json_get(file, "bytes")->string);
    free(text);
    tt_gguf_free(&g);
}

static void test_tensors_that_gguf_cannot_hold_are_refused(void **state)
{
    fixture *f = *state;
    static const struct {
        tt_gguf_tensor t;
        const char *says;
    } bad[] = {
        {{.name = "a.name.of.sixty.four.bytes.or.more.has.no.room.in.ggml.s.struct.",
          .n_dims = 1,
          .shape = {1}},
         "is longer than 63 bytes"                                                                   },
        {{.name = "x", .n_dims = 0},                                         "has 0 dims, not 1 to 4"},
        {{.name = "x", .n_dims = 5, .shape = {1, 1, 1, 1, 1}},               "has 5 dims, not 1 to 4"},
        {{.name = "x", .n_dims = 2, .shape = {3, 0}},                        "dim 1 is 0"            },
        {{.name = "x", .n_dims = 2, .shape = {INT64_MAX / 2, 3}},            "'x': dim 0"            },
        {{.name = "x", .n_dims = 2, .shape = {2, 48}, .type = TT_GGUF_Q8_0},
         "rows of 48 elements are not a multiple of 32"                                              },
    };
    tt_gguf g = {.arena = f->a};
    for (size_t i = 0; i < TT_COUNT(bad); i++) {
        assert_int_not_equal(tt_gguf_add(&g, &bad[i].t, &f->err), TT_OK);
        assert_has(f->err.text, bad[i].says);
    }
    assert_int_equal(g.tensors.n, 0);
}

static void test_a_value_that_is_not_finite_leaves_no_file(void **state)
{
    fixture *f = *state;
    float x[TT_Q8_0_BLOCK] = {[5] = 1.0f / 0.0f};
    const tt_gguf_tensor t = {
        .name = "x", .n_dims = 2, .shape = {1, TT_Q8_0_BLOCK},
                .type = TT_GGUF_Q8_0, .user = x
    };
    tt_gguf g = sample(f);
    assert_ok(tt_gguf_add(&g, &t, &f->err), f);
    assert_int_equal(tt_gguf_write(&g, in(f, "x.gguf"), copy, NULL, &f->err), TT_ENUMERIC);
    assert_has(f->err.text, "tensor 'x' has values that are not finite");
    assert_false(tt_path_exists(in(f, "x.gguf")));
    assert_false(tt_path_exists(in(f, "x.gguf.tmp")));
    assert_int_equal(tt_gguf_write(&g, in(f, "none/x.gguf"), copy, NULL, &f->err), TT_ENOTFOUND);
    tt_gguf_free(&g);
}

/* tokenizer.json as keys; a tokenizer that llama.cpp would split differently is refused. */
#define MODEL(more)                                                                                \
    "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1}, \"merges\": []" more "}"
#define BYTES "\"pre_tokenizer\": {\"type\": \"ByteLevel\"}"

static tt_status vocab_of(fixture *f, tt_gguf *g, const char *json)
{
    const char *name = "x";
    const tt_gguf_tokenizer t = {.path = f->folder};
    *g = (tt_gguf){.arena = f->a};
    put_file(in(f, "tokenizer.json"), json, strlen(json));
    return tt_gguf_vocab(g, &t, 2, &name, &f->err);
}

static void test_tokenizers_that_llama_cpp_has_not_are_refused(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *json, *says;
    } bad[] = {
        {"[",                                                                                             "tokenizer.json:1:"                  },
        {"{}",                                                                                            "no name for this way to cut"        },
        {"{" MODEL("") "}",                                                                               "gpt-2, smollm, llama-bpe, dbrx"     },
        {"{" MODEL("") ", \"pre_tokenizer\": {\"type\": \"Whitespace\"}}",
         "no name for this way to cut"                                                                                                         },
        {"{" MODEL("") ", \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"use_regex\": false}}",
         "no name for this way to cut"                                                                                                         },
        {"{" MODEL(
             "") ", \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true}}",
         "no name for this way to cut"                                                                                                         },
        {"{" MODEL(
             "") ", \"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"x\"}}}",
         "no name for this way to cut"                                                                                                         },
        {"{" MODEL("") ", \"normalizer\": {\"type\": \"Lowercase\"}, " BYTES "}",
         "normalizer: llama.cpp has no Lowercase"                                                                                              },
        {"{\"model\": {\"vocab\": []}, " BYTES "}",                                                       "model.vocab: expected an object"    },
        {"{\"model\": {\"vocab\": {\"a\": 2}}, " BYTES "}",
         "token 'a' has no id from 0 to below the model's 2"                                                                                   },
        {"{\"model\": {\"vocab\": {\"a\": -1}}, " BYTES "}",                                              "token 'a' has no id from 0 to below"},
        {"{\"model\": {\"vocab\": {\"a\": \"0\"}}, " BYTES "}",
         "token 'a' has no id from 0 to below"                                                                                                 },
        {"{\"model\": {\"vocab\": {\"a\": 0}}, " BYTES "}",                                               "model.merges: expected a list"      },
        {"{\"model\": {\"vocab\": {\"a\": 0}, \"merges\": [[\"a\"]]}, " BYTES "}",
         "tokenizer.json:1:42: model.merges"                                                                                                   },
        {"{\"model\": {\"vocab\": {\"a\": 0}, \"merges\": [3]}, " BYTES "}",
         "expected \"a b\" or two texts"                                                                                                       },
        {"{" MODEL("") ", \"added_tokens\": [{\"id\": 7, \"content\": \"x\"}], " BYTES "}",
         "token 'x' has no id from 0 to below"                                                                                                 },
        {"{" MODEL("") ", \"added_tokens\": [{\"id\": 1, \"content\": \"b\", \"single_word\": "
                       "true}], " BYTES "}",
         "added_tokens[0].single_word"                                                                                                         },
    };
    for (size_t i = 0; i < TT_COUNT(bad); i++) {
        tt_gguf g;
        if (vocab_of(f, &g, bad[i].json) == TT_OK)
            fail_msg("accepted: %s", bad[i].json);
        assert_has(f->err.text, bad[i].says);
        tt_gguf_free(&g);
    }
}

/* The value of a key of a text, in the bytes of the keys. */
static const char *string_at(fixture *f, const tt_gguf *g, const char *key)
{
    const char *at = memmem(g->keys.s, g->keys.n, key, strlen(key));
    uint64_t n = 0;
    if (!at)
        return NULL;
    at += strlen(key) + 4;
    memcpy(&n, at, sizeof n);
    return tt_arena_strn(f->a, at + sizeof n, (size_t)n);
}

/* llama.cpp's names of the ways to cut; a step more or less is another way. */
static void test_names_of_the_ways_to_cut(void **state)
{
    fixture *f = *state;
#define SEQUENCE(parts)                                                                            \
    "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [" parts                       \
    "{\"type\": \"ByteLevel\", \"use_regex\": false}]}"
#define SPLIT(text, more)                                                                          \
    "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"" text "\"}, \"behavior\": " more "}, "
#define LLAMA(n)                                                                                   \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}" n                  \
    "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define DIGITS "{\"type\": \"Digits\", \"individual_digits\": true}, "
    static const struct {
        const char *model, *pre, *name; /* NULL: there is none */
    } ways[] = {
        {"",                        BYTES,                                         "gpt-2"                                                                          },
        {"",                        SEQUENCE(SPLIT(LLAMA("{1,3}"),                 "\"Isolated\"")),                                                                  "dbrx"},
        {", \"ignore_merges\": true",                         SEQUENCE(SPLIT(LLAMA("{1,3}"),                                            "\"Isolated\"")),                                                                        "llama-bpe"},
        {"",              SEQUENCE(SPLIT(LLAMA(""),                                                           "\"Isolated\"")),                                                                    "qwen2"},
        {"",         SEQUENCE(SPLIT(LLAMA(""),"\"Removed\", \"invert\": true")),   "qwen2"},
        {"",SEQUENCE(SPLIT(LLAMA(""),                 "\"Removed\"")),                                                                                         NULL},
        {"",                        SEQUENCE(SPLIT(LLAMA(""),                                                     "\"MergedWithNext\"")),                                                                                                       NULL},
        {"",                         SEQUENCE(DIGITS SPLIT(LLAMA(""),                                                                     "\"Isolated\"")),                                                                                                       NULL},
        {"",                     SEQUENCE(SPLIT("x",                                                                  "\"Isolated\"") SPLIT(LLAMA(""),                                            "\"Isolated\"")), NULL},
        {"",
         "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [" DIGITS
         "{\"type\": \"ByteLevel\"}]}","smollm"},
        {"",
         "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [" SPLIT(
             "\\\\p{N}","\"Removed\", \"invert\": true") "{\"type\": \"ByteLevel\"}]}",
         NULL},
        {"",
         "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\"}, "
         "{\"type\": \"ByteLevel\"}]}",                                                                     NULL                                                                                                                              },
    };
    for (size_t i = 0; i < TT_COUNT(ways); i++) {
        tt_gguf g;
        const char *json = tt_arena_printf(
            f->a, "{\"model\": {\"vocab\": {\"a\": 0, \"b\": 1}, \"merges\": []%s}, %s}",
            ways[i].model, ways[i].pre);
        const tt_status s = vocab_of(f, &g, json);
        const char *got = s == TT_OK ? string_at(f, &g, "tokenizer.ggml.pre") : NULL;
        if (!got != !ways[i].name || (got && strcmp(got, ways[i].name) != 0))
            fail_msg("%s: %s, not %s", json, got ? got : f->err.text, ways[i].name);
        tt_gguf_free(&g);
    }
}

/* no_vocab is for a model without a tokenizer; other files are refused. */
static void test_files_that_gguf_is_not_written_from_are_refused(void **state)
{
    fixture *f = *state;
    tt_gguf g = {.arena = f->a};
    const char *name = "x";
    tt_gguf_tokenizer t = {.path = f->folder};
    assert_ok(tt_gguf_vocab(&g, &t, 2, &name, &f->err), f);
    assert_string_equal(string_at(f, &g, "tokenizer.ggml.model"), "no_vocab");
    assert_null(name);
    tt_gguf_free(&g);
    static const char *const files[] = {"vocab.json", "tiktoken.model", "qwen.tiktoken"};
    for (size_t i = 0; i < TT_COUNT(files); i++) {
        put_file(in(f, files[i]), "{}", 2);
        for (int alone = 0; alone < 2; alone++) {
            t.path = alone ? in(f, files[i]) : f->folder;
            assert_int_equal(tt_gguf_vocab(&g, &t, 2, &name, &f->err), TT_EUNSUPPORTED);
            assert_has(f->err.text, files[i]);
            assert_has(f->err.text, "GGUF is written from tokenizer.json or tokenizer.model");
        }
        unlink(in(f, files[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_q8_0_equals_the_gguf_package_bit_for_bit),
        TEST(test_file_equals_the_gguf_package_byte_for_byte),
        TEST(test_tensors_that_gguf_cannot_hold_are_refused),
        TEST(test_a_value_that_is_not_finite_leaves_no_file),
        TEST(test_tokenizers_that_llama_cpp_has_not_are_refused),
        TEST(test_names_of_the_ways_to_cut),
        TEST(test_files_that_gguf_is_not_written_from_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
