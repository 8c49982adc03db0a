/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "../../plugins/dataloaders/jsonl.c"
#include "corpus/tokens.h"
#include "folder_test.h"
#include "plugins/bytes_tokenizer.h"
#include <setjmp.h>

#include <cmocka.h>

static char root[TEST_FOLDER];

static void put_bytes(const char *name, const void *bytes, size_t n)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static void put_text(const char *name, const char *text)
{
    put_bytes(name, text, strlen(text));
}

static size_t gzip(const char *text, size_t n, unsigned char *out, size_t cap)
{
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (Bytef *)(uintptr_t)text;
    z.avail_in = (uInt)n;
    z.next_out = out;
    z.avail_out = (uInt)cap;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return cap - z.avail_out;
}

static size_t zstd(const char *text, size_t n, unsigned char *out, size_t cap)
{
    const size_t k = ZSTD_compress(out, cap, text, n, 3);
    assert_false(ZSTD_isError(k));
    return k;
}

static int set_up(void **state)
{
    (void)state;
    if (!test_folder("jsonl", root))
        return -1;
    tt_log_setup(TT_ERROR, 0, 1, false);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return test_folder_remove(root) ? 0 : -1;
}

static tt_status open_paths(const char *const *paths, size_t n, const char *field, int64_t seq_len,
                            bool mask, void **self, tt_error *err)
{
    const config c = {
        .path = {paths, n},
          .field = field, .document_mask = mask, .cache = "off"
    };
    const tt_dataloader_env env = {.struct_size = sizeof env,
                                   .seq_len = seq_len,
                                   .vocab_size = 258,
                                   .tokenizer = &bytes_tokenizer,
                                   .tokenizer_self = root,
                                   .job_dir = root};
    return open_jsonl(&c, &env, self, err);
}

/* The stream of the file with < for bos and > for eos. */
static void check_stream(const char *path, const char *field, const char *want, size_t n)
{
    void *self = NULL;
    tt_error err = {0};
    if (open_paths(&path, 1, field, 1, false, &self, &err) != TT_OK)
        fail_msg("%s: %s", path, err.text);
    const tt_tokens *c = self;
    assert_int_equal(c->n_tokens, n);
    for (size_t i = 0; i < n; i++) {
        int32_t id;
        assert_int_equal(tt_tokens_fetch(c, (int64_t)i, 1, &id, &err), TT_OK);
        assert_int_equal(id == 256 ? '<' : id == 257 ? '>' : id, (unsigned char)want[i]);
    }
    tt_tokens_close(self);
}

static void check_text(const char *text, const char *want)
{
    put_text("x.jsonl", text);
    check_stream("x.jsonl", "text", want, strlen(want));
}

static void test_jsonl_takes_the_field_of_each_line(void **state)
{
    (void)state;
    check_text("{\"text\":\"ab\"}\n{\"text\":\"c\"}\n", "<ab><c>");
    check_text("{\"text\":\"ab\"}\n\n \t\r\n{\"text\":\"c\"}", "<ab><c>"); /* no last newline */
    check_text("\xef\xbb\xbf{\"text\":\"ab\"}\r\n", "<ab>");
    check_text(
        "{\"a\":{\"text\":\"no\"},\"text\":\"ab\",\"b\":[1,-2.5e+9,true,false,null,[],{}]}\n",
        "<ab>");
    check_text("{ \"n\" : 1e999 , \"m\" : 99999999999999999999999 , \"text\" : \"ab\" } ", "<ab>");
    check_text("{\"n\":[NaN,Infinity,-Infinity],\"text\":\"ab\"}", "<ab>"); /* of Python */
    check_text("{\"te\\u0078t\":\"ab\",\"x\":\"\"}", "<ab>"); /* an escape in the key */
    check_text("{\"text\":\"no\",\"text\":\"ab\"}", "<ab>");
    check_text("{\"text\":\"ab\",\"other\":\"longer than what was taken\"}", "<ab>");
    check_text("{\"text\":\"\"}\n{\"text\":\"ab\"}\n", "<ab>"); /* empty ones are left out */
    put_text("y.jsonl", "{\"content\":\"ab\",\"text\":7}\n");
    check_stream("y.jsonl", "content", "<ab>", 4);
}

static void test_jsonl_decodes_strings(void **state)
{
    (void)state;
    check_text("{\"text\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"}", "<\"\\/\b\f\n\r\t>");
    check_text("{\"text\":\"\\u0041\\u00e9\\u20AC\\ud83d\\ude00\"}",
               "<A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80>");
    check_text("{\"text\":\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xf4\x8f\xbf\xbf\"}",
               "<\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xf4\x8f\xbf\xbf>");
    put_text("x.jsonl", "{\"text\":\"a\\u0000b\"}");
    check_stream("x.jsonl", "text", "<a\0b>", 5);
}

/* Lines longer and shorter than a block, unpacked from gzip and zstd as they are from plain. */
static void test_jsonl_unpacks_gzip_and_zstd(void **state)
{
    (void)state;
    enum { LINES = 3000, CAP = 4 << 20 };
    char *text = malloc(CAP), *want = malloc(CAP);
    unsigned char *packed = malloc(CAP);
    size_t n = 0, w = 0;
    for (int i = 0; i < LINES; i++) {
        const int len = i == 1000 ? 900000 : i % 97;
        n += (size_t)sprintf(text + n, "{\"id\":%d,\"text\":\"", i);
        want[w++] = '<';
        for (int k = 0; k <= len; k++)
            text[n++] = want[w++] = (char)('a' + (i * 31 + k * 7) % 26);
        n += (size_t)sprintf(text + n, "\"}\n");
        want[w++] = '>';
    }
    put_bytes("big.jsonl", text, n);
    check_stream("big.jsonl", "text", want, w);
    put_bytes("big.jsonl.gz", packed, gzip(text, n, packed, CAP));
    check_stream("big.jsonl.gz", "text", want, w);
    put_bytes("big.jsonl.zst", packed, zstd(text, n, packed, CAP));
    check_stream("big.jsonl.zst", "text", want, w);
    put_bytes("big.data", packed, zstd(text, n, packed, CAP)); /* whatever its name */
    check_stream("big.data", "text", want, w);
    /* several members and frames, cut in the middle of a line; zeros after the last member */
    size_t k = gzip(text, n / 2, packed, CAP);
    k += gzip(text, 0, packed + k, CAP - k);
    k += gzip(text + n / 2, n - n / 2, packed + k, CAP - k);
    memset(packed + k, 0, 512);
    put_bytes("two.jsonl.gz", packed, k + 512);
    check_stream("two.jsonl.gz", "text", want, w);
    memcpy(packed, "\x50\x2a\x4d\x18\x03\x00\x00\x00xyz", 11); /* a skippable frame */
    k = 11 + zstd(text, n / 2, packed + 11, CAP - 11);
    k += zstd(text + n / 2, n - n / 2, packed + k, CAP - k);
    put_bytes("two.jsonl.zst", packed, k);
    check_stream("two.jsonl.zst", "text", want, w);
    free(text);
    free(want);
    free(packed);
}

static void test_jsonl_samples_of_several_files(void **state)
{
    (void)state;
    put_text("m1.jsonl", "{\"text\":\"ab\"}\n{\"text\":\"c\"}\n");
    put_text("m2.jsonl", "\n");
    put_text("m3.jsonl", "{\"text\":\"def\"}\n");
    const char *paths[] = {"m[1-9].jsonl"};
    static const int32_t want[] = {256, 'a', 'b', 257, 256, 'c', 257, 256, 'd', 'e', 'f', 257};
    int32_t ids[5], labels[5], pos[5], seg[5];
    tt_sample s = {sizeof s, 5, ids, labels, pos, seg, NULL};
    void *self = NULL;
    tt_error err = {0};
    assert_int_equal(open_paths(paths, 1, "text", 5, true, &self, &err), TT_OK);
    assert_int_equal(tt_tokens_samples(self), 2); /* floor((12-1)/5) */
    for (int64_t i = 1; i >= 0; i--) {
        assert_int_equal(tt_tokens_read(self, i, &s, &err), TT_OK);
        assert_memory_equal(ids, want + 5 * i, sizeof ids);
        for (int t = 0; t < 5; t++) { /* none at a document's end */
            const int32_t next = want[5 * i + t + 1];
            assert_int_equal(labels[t], next == 256 ? -100 : next);
        }
    }
    tt_tokens_close(self);
    assert_int_equal(open_paths(paths, 1, "text", 3, true, &self, &err), TT_OK);
    s.seq_len = 3;
    assert_int_equal(tt_tokens_read(self, 1, &s, &err), TT_OK); /* tokens 3 … 5: > < c */
    assert_memory_equal(pos, ((int32_t[]){0, 0, 1}), 12);
    assert_memory_equal(seg, ((int32_t[]){0, 1, 1}), 12);
    tt_tokens_close(self);
}

static void check_refusal(const char *path, const char *text)
{
    void *self = &self;
    tt_error err = {0};
    if (open_paths(&path, 1, "text", 1, false, &self, &err) == TT_OK)
        fail_msg("%s was opened; \"%s\" was expected", path, text);
    assert_ptr_equal(self, &self);
    if (!strstr(err.text, text) || !strstr(err.text, path) || strchr(err.text, '\n'))
        fail_msg("%s: \"%s\", not \"%s\"", path, err.text, text);
}

static void test_jsonl_refuses_a_bad_line_with_its_number(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"[1]",                           "not an object, at byte 1"           },
        {"hello",                         "not an object"                      },
        {"{\"text\":\"a\"",               "comma or the end of the object"     },
        {"{\"text\":\"a\"}}",             "more text after the object"         },
        {"{\"text\":\"a\"} {\"text\":1}", "more text after the object"         },
        {"{\"text\":\"a\",}",             "a key should be here"               },
        {"{'text':\"a\"}",                "a key should be here"               },
        {"{\"text\" \"a\"}",              "a colon should be here"             },
        {"{\"text\":",                    "it ends where a value should be"    },
        {"{\"text\":\"a",                 "a string without an end"            },
        {"{\"text\":\"a\\\"}",            "a string without an end"            },
        {"{\"text\":\"a\\",               "escape that JSON does not have"     },
        {"{\"text\":\"\\x41\"}",          "escape that JSON does not have"     },
        {"{\"text\":\"\\u12g4\"}",        "four hexadecimal digits"            },
        {"{\"text\":\"\\u12",             "four hexadecimal digits"            },
        {"{\"text\":\"\\ud800\"}",        "half a surrogate pair"              },
        {"{\"text\":\"\\udc00\"}",        "half a surrogate pair"              },
        {"{\"text\":\"\\ud800\\u0041\"}", "half a surrogate pair"              },
        {"{\"text\":\"a\tb\"}",           "control character"                  },
        {"{\"text\":\"\xff\"}",           "invalid UTF-8, at byte 10"          },
        {"{\"text\":\"\xc0\x80\"}",       "invalid UTF-8"                      },
        {"{\"text\":\"\xed\xa0\x80\"}",   "invalid UTF-8"                      },
        {"{\"text\":\"\xe0\x9f\xbf\"}",   "invalid UTF-8"                      },
        {"{\"text\":\"\xf4\x90\x80\x80",  "invalid UTF-8"                      },
        {"{\"text\":\"\xe2\x82",          "invalid UTF-8"                      },
        {"{\"b\":\"\xff\",\"text\":\"\"", "invalid UTF-8"                      },
        {"{\"b\":01,\"text\":\"a\"}",     "comma or the end of the object"     },
        {"{\"b\":1.,\"text\":\"a\"}",     "not a number"                       },
        {"{\"b\":-,\"text\":\"a\"}",      "not a number"                       },
        {"{\"b\":nul,\"text\":\"a\"}",    "not JSON"                           },
        {"{\"b\":nan,\"text\":\"a\"}",    "not JSON"                           },
        {"{\"text\":NaN}",                "\"text\" is not a string"           },
        {"{\"b\":-NaN,\"text\":\"a\"}",   "not a number"                       },
        {"{\"b\":[1 2],\"text\":\"a\"}",  "end of a table or list is missing"  },
        {"{}",                            "no field \"text\"; dataloader.field"},
        {"{\"tex\":\"a\"}",               "no field \"text\""                  },
        {"{\"text\":1}",                  "\"text\" is not a string"           },
        {"{\"text\":null}",               "\"text\" is not a string"           },
        {"{\"text\":\"a\",\"text\":{}}",  "\"text\" is not a string"           },
    };
    for (size_t i = 0; i < TT_COUNT(cases); i++) {
        char text[256], want[256];
        snprintf(text, sizeof text, "{\"text\":\"fine\"}\n\n%s\n{\"text\":\"fine\"}\n",
                 cases[i][0]);
        put_text("bad.jsonl", text);
        check_refusal("bad.jsonl", "bad.jsonl:3: ");
        snprintf(want, sizeof want, "%s", cases[i][1]);
        check_refusal("bad.jsonl", want);
    }
    char deep[4096] = "{\"b\":";
    memset(deep + 5, '[', 2000);
    strcpy(deep + 2005, "]}");
    put_text("deep.jsonl", deep);
    check_refusal("deep.jsonl", "deep.jsonl:1: nested more than 512 deep");
}

/* A file that is one list has a row per item, wherever lines end, and however reads and blocks cut it. */
static void test_jsonl_takes_the_items_of_a_list(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"[{\"text\":\"ab\"},{\"text\":\"c\"}]",                                      "<ab><c>"},
        {"\xef\xbb\xbf \n\t[\r\n  {\n \"text\": \"ab\"\n },\n{\"text\":\"c\"} ]\n\n", "<ab><c>"},
        {"[{\"a\":[1,{\"b\":[]},\"],\"],\"text\":\"x,]}\\\"\"},{\"text\":\"\\\\\"}]",
         "<x,]}\"><\\>"                                                                        },
        {"[{\"a\":NaN,\"n\":99999999999999999999,\"text\":\"ab\"}]",                  "<ab>"   },
    };
    static const char *const faults[][2] = {
        {"[",                                "bad.json:1: row 1: the list has no end"                },
        {"[\n{\"text\":\"a\"},\n{\"text\"",  "bad.json:3: row 2: the list has no end"                },
        {"[{\"text\":\"a\"}\n\n",            "bad.json:1: row 1: the list has no end"                },
        {"[{\"text\":\"a\"},\n]",            "bad.json:2: row 2: an item of the list is missing"     },
        {"[,]",                              "bad.json:1: row 1: an item of the list is missing"     },
        {"[{\"text\":\"a\"}]\n[]",           "bad.json:2: more text after the list"                  },
        {"[{\"text\":\"a\"},\n\n{\"x\":1}]", "bad.json:3: row 2: no field \"text\""                  },
        {"[{\"text\":\"a\"},\n[{}]]",        "bad.json:2: row 2: not an object, at byte 1 of the row"},
        {"[{\"text\":\"a\"}}]",              "the list has no end"                                   },
        {"[{\"text\":\"a\"} {}]",            "bad.json:1: row 1: more text after the object"         },
        {"[]",                               "is empty: no document has text"                        },
    };
    for (size_t i = 0; i < TT_COUNT(cases); i++)
        check_text(cases[i][0], cases[i][1]);
    for (size_t i = 0; i < TT_COUNT(faults); i++) {
        put_text("bad.json", faults[i][0]);
        check_refusal("bad.json", faults[i][1]);
    }
    enum { ROWS = 40000, CAP = 4 << 20 }; /* more than two blocks */
    char *text = malloc(CAP), *want = malloc(CAP);
    unsigned char *packed = malloc(CAP);
    size_t n = 0, w = 0;
    for (int i = 0; i < ROWS; i++) {
        n += (size_t)sprintf(text + n, "%s{\"text\": \"%d\"}", i ? ",\n " : "[", i);
        w += (size_t)sprintf(want + w, "<%d>", i);
    }
    text[n++] = ']';
    put_bytes("list.json.gz", packed, gzip(text, n, packed, CAP));
    check_stream("list.json.gz", "text", want, w);
    put_bytes("list.json.zst", packed, zstd(text, n, packed, CAP));
    check_stream("list.json.zst", "text", want, w);
    free(text);
    free(want);
    free(packed);
}

static void test_jsonl_refuses_damaged_files(void **state)
{
    (void)state;
    static const char text[] =
        "{\"text\":\"some text that is long enough\"}\n{\"text\":\"more\"}\n";
    unsigned char packed[512];
    const size_t n = sizeof text - 1;
    size_t k = gzip(text, n, packed, sizeof packed);
    for (size_t cut = 2; cut < k; cut += 3) {
        put_bytes("cut.jsonl.gz", packed, cut);
        check_refusal("cut.jsonl.gz", "cut off: its gzip data has no end");
    }
    packed[k - 6] ^= 1; /* the checksum */
    put_bytes("sum.jsonl.gz", packed, k);
    check_refusal("sum.jsonl.gz", "damaged gzip data");
    packed[k - 6] ^= 1;
    memcpy(packed + k, "junk", 4);
    put_bytes("junk.jsonl.gz", packed, k + 4);
    check_refusal("junk.jsonl.gz", "damaged gzip data");
    k = zstd(text, n, packed, sizeof packed);
    for (size_t cut = 4; cut < k; cut += 3) {
        put_bytes("cut.jsonl.zst", packed, cut);
        check_refusal("cut.jsonl.zst", "cut off: its zstd data has no end");
    }
    memcpy(packed + k, "junk", 4);
    put_bytes("junk.jsonl.zst", packed, k + 4);
    check_refusal("junk.jsonl.zst", "damaged zstd data");
    packed[4] |= 0x08; /* a reserved bit of the frame's header */
    put_bytes("bit.jsonl.zst", packed, k);
    check_refusal("bit.jsonl.zst", "damaged zstd data");
    put_text("plain.jsonl.gz", text);
    check_refusal("plain.jsonl.gz", "is not a gzip file");
    put_text("plain.jsonl.zst", text);
    check_refusal("plain.jsonl.zst", "is not a zstd file");
    put_bytes("empty.jsonl", "", 0);
    void *self = NULL;
    tt_error err = {0};
    const char *none[] = {"empty.jsonl"};
    assert_int_equal(open_paths(none, 1, "text", 4, false, &self, &err), TT_EINVAL);
    assert_non_null(strstr(err.text, "is empty: no document has text"));
    check_refusal("none.jsonl", "No such file");
    assert_int_equal(open_paths(NULL, 0, "text", 4, false, &self, &err), TT_EINVAL);
    assert_non_null(strstr(err.text, "dataloader.path: empty"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_jsonl_takes_the_field_of_each_line),
        cmocka_unit_test(test_jsonl_decodes_strings),
        cmocka_unit_test(test_jsonl_unpacks_gzip_and_zstd),
        cmocka_unit_test(test_jsonl_samples_of_several_files),
        cmocka_unit_test(test_jsonl_refuses_a_bad_line_with_its_number),
        cmocka_unit_test(test_jsonl_takes_the_items_of_a_list),
        cmocka_unit_test(test_jsonl_refuses_damaged_files),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
