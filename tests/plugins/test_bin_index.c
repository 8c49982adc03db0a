/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "../../plugins/dataloaders/bin.c"
#include "corpus/tokens.h"
#include "folder_test.h"
#include <setjmp.h>

#include <cmocka.h>

/* Megatron and .pbin: the files of tests/golden/token_files.txt, and the errors when they are
 * damaged. */

static char root[TEST_FOLDER];

static void put(const char *name, const unsigned char *bytes, size_t n)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

/* Reads a golden file; returns its number of bytes. */
static size_t golden(const char *name, unsigned char *out, size_t cap)
{
    FILE *f = fopen("tests/golden/token_files.txt", "r");
    assert_non_null(f);
    char *line = NULL;
    size_t size = 0, n = 0;
    while (getline(&line, &size, f) > 0) {
        const size_t k = strlen(name);
        if (strncmp(line, name, k) != 0 || line[k] != ' ')
            continue;
        for (const char *p = line + k + 1; p[0] > ' ' && n < cap; p += 2) {
            unsigned v;
            assert_int_equal(sscanf(p, "%2x", &v), 1);
            out[n++] = (unsigned char)v;
        }
    }
    free(line);
    fclose(f);
    assert_true(n > 0 && n < cap);
    return n;
}

static void copy_golden(const char *name)
{
    static unsigned char bytes[1 << 16];
    put(name, bytes, golden(name, bytes, sizeof bytes));
}

static int set_up(void **state)
{
    (void)state;
    if (!test_folder("index", root))
        return -1;
    tt_log_setup(TT_ERROR, 0, 1, false);
    static const char *const names[] = {"u16.bin", "u16.idx", "i32.bin", "i32.idx",
                                        "i64.bin", "i64.idx", "u8.bin",  "u8.idx",
                                        "p2.pbin", "p4.pbin", "p1.pbin"};
    for (size_t i = 0; i < TT_COUNT(names); i++)
        copy_golden(names[i]);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return test_folder_remove(root) ? 0 : -1;
}

static tt_status open_path(const char *const *paths, size_t n, bool mask, int64_t seq_len,
                           void **self, tt_error *err)
{
    const config c = {
        .path = {paths, n},
        .format = "auto",
        .document_mask = mask,
        .bos_id = INT64_MIN,
        .eos_id = INT64_MIN
    };
    const tt_dataloader_env env = {
        .struct_size = sizeof env, .seq_len = seq_len, .vocab_size = 100000, .job_dir = root};
    return open_bin(&c, &env, self, err);
}

static void check_sample(const char *const *paths, size_t n, int64_t i, int64_t seq_len,
                         const int32_t *ids, const int32_t *pos, const int32_t *seg, int32_t last)
{
    void *self = NULL;
    tt_error err = {0};
    int32_t x[4][16];
    tt_sample s = {sizeof s, seq_len, x[0], x[1], x[2], x[3], NULL};
    if (open_path(paths, n, true, seq_len, &self, &err) != TT_OK)
        fail_msg("%s: %s", paths[0], err.text);
    assert_int_equal(tt_tokens_read(self, i, &s, &err), TT_OK);
    assert_memory_equal(x[0], ids, (size_t)seq_len * 4);
    assert_memory_equal(x[2], pos, (size_t)seq_len * 4);
    assert_memory_equal(x[3], seg, (size_t)seq_len * 4);
    for (int64_t t = 0; t + 1 < seq_len; t++)
        assert_int_equal(x[1][t], seg[t + 1] == seg[t] ? ids[t + 1] : -100);
    assert_int_equal(x[1][seq_len - 1], last);
    tt_tokens_close(self);
}

static const int32_t want[] = {5, 6, 7, 8, 9, 10, 300, 11, 12, 13, 14};

static void test_bin_reads_megatron_and_pbin_with_their_documents(void **state)
{
    (void)state;
    static const int32_t pos[] = {0, 1, 2, 3, 0, 1, 0, 1, 2, 3},
                         seg[] = {0, 0, 0, 0, 1, 1, 2, 2, 2, 2};
    static const char *const paths[] = {"u16.bin", "i32.bin", "i64.bin", "p2.pbin"};
    for (size_t i = 0; i < TT_COUNT(paths); i++)
        check_sample(&paths[i], 1, 0, 10, want, pos, seg, 14);
    /* two files are one stream; the second begins with a document */
    static const char *const both[] = {"u16.bin", "p2.pbin"};
    static const int32_t across[] = {12, 13, 14, 5, 6, 7, 8, 9, 10},
                         seg2[] = {0, 0, 0, 1, 1, 1, 1, 2};
    static const int32_t pos1[] = {0, 1, 2, 0, 1, 2, 3, 0};
    check_sample(both, 2, 1, 8, across, pos1, seg2, 10);
    static const char *const empty[] = {"u8.bin"}; /* the empty document leaves no trace */
    static const int32_t three[] = {1, 2, 3}, p3[] = {0, 1}, s3[] = {0, 0};
    check_sample(empty, 1, 0, 2, three, p3, s3, -100);
    /* a document ends with the sample: its last label is the next one's first token */
    static const char *const end[] = {"u16.bin"};
    check_sample(end, 1, 0, 4, want, pos, seg, -100);
    check_sample(end, 1, 0, 5, want, pos, seg, 10);
}

static void test_bin_pbin_of_many_documents(void **state)
{
    (void)state;
    const char *p1[] = {"p1.pbin"}, *p4[] = {"p4.pbin"};
    void *self = NULL;
    tt_error err = {0};
    assert_int_equal(open_path(p1, 1, true, 8, &self, &err), TT_OK);
    assert_int_equal(((tt_tokens *)self)->n_documents, 1100);
    tt_tokens_close(self);
    assert_int_equal(open_path(p4, 1, true, 203, &self, &err), TT_OK);
    int64_t starts[3];
    assert_int_equal(((tt_tokens *)self)->n_documents, 3);
    assert_int_equal(tt_document_starts(self, 0, 3, starts, &err), TT_OK);
    assert_int_equal(starts[1], 200);
    assert_int_equal(starts[2], 203);
    tt_tokens_close(self);
}

/* Each fault of an index: the place, the bytes that are written there, and the words of the error.
 * cut: the length to which the file is cut instead. u16.idx has 5 sequences, lengths from byte 34,
 * offsets from 54, documents from 94, 126 bytes. */
static void test_bin_refuses_hostile_indexes(void **state)
{
    (void)state;
    static const struct {
        size_t at, n;
        const char *bytes, *text;
        size_t cut;
    } cases[] = {
        {9,   1, "\x02",                             "version that is not known (2)",                        0  },
        {16,  1, "\x80",                             "version that is not known",                            0  },
        {17,  1, "\x03",                             "of a type that no tokens are",                         0  },
        {17,  1, "\x07",                             "of a type that no tokens are",                         0  },
        {17,  1, "\xff",                             "of a type that no tokens are",                         0  },
        {17,  1, "\x04",                             "",                                                     0  },
        {18,  8, "\0\0\0\0\0\0\0\0",                 "counts sequences or documents",                        0  },
        {18,  8, "\xff\xff\xff\xff\xff\xff\xff\xff", "counts sequences or documents",                        0  },
        {18,  8, "\0\0\0\0\0\0\0\x80",               "counts sequences or documents",                        0  },
        {18,  1, "\x06",                             "not as long as its counts",                            0  },
        {26,  8, "\0\0\0\0\0\0\0\x80",               "counts sequences or documents",                        0  },
        {26,  1, "\x01",                             "counts sequences or documents",                        0  },
        {26,  1, "\x05",                             "not as long as its counts",                            0  },
        {34,  4, "\xff\xff\xff\xff",                 "a length below zero, at its entry 0",                  0  },
        {34,  1, "\x04",                             "begin at the end of the previous one, at its entry 1", 0  },
        {34,  4, "\xff\xff\xff\x7f",                 "beyond the end of its .bin, at its entry 0",           0  },
        {50,  1, "\x05",                             "gives another length",                                 0  },
        {54,  1, "\x02",                             "begin at the end of the previous one, at its entry 0", 0  },
        {86,  8, "\xff\xff\xff\xff\xff\xff\xff\xff", "gives another length",                                 0  },
        {94,  1, "\x01",                             "documents out of order",                               0  },
        {102, 1, "\x04",                             "documents out of order, at its entry 2",               0  },
        {102, 8, "\xff\xff\xff\xff\xff\xff\xff\xff", "documents out of order, at its entry 1",               0  },
        {118, 1, "\x04",                             "ends its documents elsewhere",                         0  },
        {0,   0, "",                                 "cut off in its head",                                  20 },
        {0,   0, "",                                 "not as long as its counts",                            125},
    };
    unsigned char bytes[256], tokens[256];
    const size_t n_tokens = golden("u16.bin", tokens, sizeof tokens);
    put("h.bin", tokens, n_tokens);
    const char *path = "h.bin";
    for (size_t i = 0; i < TT_COUNT(cases); i++) {
        size_t n = golden("u16.idx", bytes, sizeof bytes);
        assert_int_equal(n, 126);
        memcpy(bytes + cases[i].at, cases[i].bytes, cases[i].n);
        put("h.idx", bytes, cases[i].cut ? cases[i].cut : n);
        void *self = NULL;
        tt_error err = {0};
        if (open_path(&path, 1, true, 2, &self, &err) == TT_OK)
            fail_msg("case %zu (%s) was opened", i, cases[i].text);
        if (!strstr(err.text, cases[i].text) || !strstr(err.text, path))
            fail_msg("case %zu: \"%s\", not \"%s\"", i, err.text, cases[i].text);
    }
    put("h.bin", tokens, n_tokens - 1);
    put("h.idx", bytes, golden("u16.idx", bytes, sizeof bytes));
    void *self = NULL;
    tt_error err = {0};
    assert_int_equal(open_path(&path, 1, false, 2, &self, &err), TT_EINVAL);
    assert_non_null(strstr(err.text, "does not divide the file's (2)"));
    put("h.bin", tokens, n_tokens - 2);
    assert_int_equal(open_path(&path, 1, false, 2, &self, &err), TT_EINVAL);
    assert_non_null(strstr(err.text, "one of the two is cut off"));
}

/* Lists of documents after two tokens of two bytes. */
static void test_bin_refuses_hostile_pickles(void **state)
{
    (void)state;
#define P(bytes) bytes, sizeof bytes - 1
    static const struct {
        const char *bytes;
        size_t n;
        const char *text; /* NULL: it is fine */
    } cases[] = {
        {P("\x80\x04]\x94(K\x00K\x02\x86\x94K\x02K\x02\x86\x94"
           "e."),
         NULL                                                                             },
        {P("\x80\x02](J\x00\x00\x00\x00\x8a\x01\x04\x86q\x01"
           "e."),
         NULL                                                                             },
        {P("\x80\x04]\x94K\x00M\x04\x00\x86r\x01\x00\x00\x00"
           "a."),
         NULL                                                                             },
        {P("\x80\x04"),                                              "cut off"            },
        {P("\x80\x04]\x94."),                                        "cut off"            },
        {P("\x80\x04]\x94(K\x00K\x02\x86"
           "e."),
         "cut off"                                                                        },
        {P("\x80\x04]\x94(K\x00K\x04\x86"
           "e"),
         "cut off"                                                                        },
        {P("\x80\x04]\x94(K\x02K\x02\x86"
           "e."),
         "does not begin at the end"                                                      },
        {P("\x80\x04]\x94(K\x00K\x06\x86"
           "e."),
         "does not begin at the end"                                                      },
        {P("\x80\x04]\x94(K\x00K\x03\x86K\x03K\x01\x86"
           "e."),
         "does not begin at the end"                                                      },
        {P("\x80\x04]\x94(K\x04\x86"
           "e."),
         "does not begin at the end"                                                      },
        {P("\x80\x04]\x94(K\x00K\x02K\x02\x86"
           "e."),
         "not a list of pairs, at its entry 0"                                            },
        {P("\x80\x04(K\x00J\xfe\xff\xff\xff\x86"
           "e."),
         "not a list of pairs"                                                            },
        {P("\x80\x04(K\x00\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80\x86"
           "e."),
         "not a list of pairs"                                                            },
        {P("\x80\x04(K\x00\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x00\x86"
           "e."),
         "not a list of pairs"                                                            },
        {P("\x80\x04(K\x00\x8a\xff\x00"),                            "not a list of pairs"},
        {P("\x80\x04\x8c\x02os\x8c\x06system\x93(\x8c\x02id\x85R."), "not a list of pairs"},
        {P("\x80\x04]\x95\x01\x00"),                                 "cut off"            },
        {P("\x80\x04](K\x00K\x04\x86h\x00"
           "e."),
         "not a list of pairs"                                                            },
    };
    for (size_t i = 0; i < TT_COUNT(cases); i++) {
        unsigned char bytes[256] = {4, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 2, 0};
        memcpy(bytes + 16, cases[i].bytes, cases[i].n);
        put("h.pbin", bytes, 16 + cases[i].n);
        const char *path = "h.pbin";
        void *self = NULL;
        tt_error err = {0};
        const tt_status s = open_path(&path, 1, true, 1, &self, &err);
        if ((s == TT_OK) != !cases[i].text ||
            (cases[i].text && (!strstr(err.text, cases[i].text) || !strstr(err.text, path))))
            fail_msg("case %zu: \"%s\"", i, err.text);
        if (s == TT_OK)
            tt_tokens_close(self);
        /* without documents asked for nothing but the head matters */
        assert_int_equal(open_path(&path, 1, false, 1, &self, &err), TT_OK);
        tt_tokens_close(self);
    }
}

/* Changes every byte of both indexes in some way: the index is refused, or its starts ascend and
 * lie within the file. */
static void test_bin_index_of_any_bytes_stays_within(void **state)
{
    (void)state;
    static const char *const names[] = {"u16.idx", "p2.pbin"};
    for (int k = 0; k < 2; k++) {
        unsigned char bytes[512], tokens[64];
        const size_t n = golden(names[k], bytes, sizeof bytes);
        put("z.bin", tokens, golden("u16.bin", tokens, sizeof tokens));
        const char *path = k == 0 ? "z.bin" : "z.pbin";
        for (size_t i = 0; i < 8 * n; i++) {
            bytes[i / 8] ^= (unsigned char)(1 << i % 8);
            put(k == 0 ? "z.idx" : "z.pbin", bytes, n);
            bytes[i / 8] ^= (unsigned char)(1 << i % 8);
            void *self = NULL;
            tt_error err = {0};
            if (open_path(&path, 1, true, 1, &self, &err) != TT_OK) {
                assert_true(err.text[0] != '\0');
                continue;
            }
            const tt_tokens *t = self;
            int64_t before = -1, at = 0;
            for (int64_t d = 0; d < t->n_documents; d++) {
                assert_int_equal(tt_document_starts(t, d, 1, &at, &err), TT_OK);
                assert_true(at >= before && at <= t->n_tokens);
                before = at;
            }
            tt_tokens_close(self);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bin_reads_megatron_and_pbin_with_their_documents),
        cmocka_unit_test(test_bin_pbin_of_many_documents),
        cmocka_unit_test(test_bin_refuses_hostile_indexes),
        cmocka_unit_test(test_bin_refuses_hostile_pickles),
        cmocka_unit_test(test_bin_index_of_any_bytes_stays_within),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
