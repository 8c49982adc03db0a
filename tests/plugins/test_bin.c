/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "../../plugins/dataloaders/bin.c"
#include "corpus/tokens.h"
#include "folder_test.h"
#include <setjmp.h>

#include <cmocka.h>

static char root[TEST_FOLDER];

static void put(const char *name, const void *bytes, size_t n)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static void le(unsigned char *p, uint64_t v, int n)
{
    for (int i = 0; i < n; i++)
        p[i] = (unsigned char)(v >> (8 * i));
}

/* n tokens first, first+1, … after a header of llm.c. */
static void put_llmc(const char *name, int width, int64_t count, uint32_t first, int n)
{
    unsigned char bytes[2048] = {0};
    le(bytes, width == 2 ? 20240520 : 20240801, 4);
    le(bytes + 4, width == 2 ? 1 : 7, 4);
    le(bytes + 8, (uint64_t)count, 4);
    for (int i = 0; i < n; i++)
        le(bytes + 1024 + i * width, first + (uint32_t)i, width);
    put(name, bytes, (size_t)(1024 + n * width));
}

static void put_words(const char *name, uint32_t a, uint32_t b, uint32_t c, size_t n)
{
    unsigned char bytes[2048] = {0};
    le(bytes, a, 4);
    le(bytes + 4, b, 4);
    le(bytes + 8, c, 4);
    put(name, bytes, n);
}

static int set_up(void **state)
{
    (void)state;
    if (!test_folder("bin", root))
        return -1;
    tt_log_setup(TT_ERROR, 0, 1, false);
    put_llmc("gpt2_a.bin", 2, 5, 100, 5);
    put_llmc("gpt2_b.bin", 2, 1, 105, 1);
    put_llmc("gpt2_c.bin", 2, 0, 0, 0);
    put_llmc("gpt2_d.bin", 2, 7, 106, 7);
    put_llmc("llama_a.bin", 4, 3, 70000, 3);
    put_llmc("llama_b.bin", 4, 4, 70003, 4);
    put("raw16", "\x01\x00\xff\xff\x02\x01\x07\x00", 8);
    put("raw32", "\x01\x00\x00\x00\xff\xff\x01\x00\x02\x01\x00\x00", 12);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return test_folder_remove(root) ? 0 : -1;
}

static tt_status open_paths(const char *const *paths, size_t n, config c, int64_t vocab,
                            int64_t seq_len, void **self, tt_error *err)
{
    c.path = (tt_strings){paths, n};
    const tt_dataloader_env env = {
        .struct_size = sizeof env, .seq_len = seq_len, .vocab_size = vocab, .job_dir = root};
    return open_bin(&c, &env, self, err);
}

static const config by_header = {.format = "auto", .bos_id = INT64_MIN, .eos_id = INT64_MIN};
static const config raw16 = {.format = "uint16", .bos_id = INT64_MIN, .eos_id = INT64_MIN};
static const config raw32 = {.format = "uint32", .bos_id = INT64_MIN, .eos_id = INT64_MIN};

/* Every sample of the files is a piece of `want`. */
static void check_stream(const char *const *paths, size_t n, const config *c, int64_t seq_len,
                         const int32_t *want, int64_t n_want)
{
    void *self = NULL;
    tt_error err = {0};
    if (open_paths(paths, n, *c, 200000, seq_len, &self, &err) != TT_OK)
        fail_msg("%s: %s", paths[0], err.text);
    assert_int_equal(((tt_tokens *)self)->n_tokens, n_want);
    assert_int_equal(tt_tokens_samples(self), (n_want - 1) / seq_len);
    for (int64_t i = tt_tokens_samples(self) - 1; i >= 0; i--) {
        int32_t ids[16], labels[16], pos[16] = {7}, seg[16] = {8};
        tt_sample s = {sizeof s, seq_len, ids, labels, pos, seg, NULL};
        assert_int_equal(tt_tokens_read(self, i, &s, &err), TT_OK);
        assert_memory_equal(ids, want + i * seq_len, (size_t)seq_len * 4);
        assert_memory_equal(labels, want + i * seq_len + 1, (size_t)seq_len * 4);
        assert_int_equal(pos[0], 7); /* prefilled by the caller, left alone */
        assert_int_equal(seg[0], 8);
    }
    tt_tokens_close(self);
}

static void test_bin_samples_cross_files(void **state)
{
    (void)state;
    const char *paths[] = {"gpt2_*.bin"}, *llama[] = {"llama_a.bin", "llama_b.bin"};
    const char *turned[] = {"gpt2_c.bin", "gpt2_d.bin", "gpt2_c.bin", "gpt2_a.bin", "gpt2_c.bin"};
    int32_t want[13], want_llama[7], want_turned[12];
    for (int i = 0; i < 13; i++)
        want[i] = 100 + i;
    for (int i = 0; i < 7; i++)
        want_llama[i] = 70000 + i;
    for (int i = 0; i < 12; i++)
        want_turned[i] = i < 7 ? 106 + i : 100 + i - 7;
    for (int64_t seq_len = 1; seq_len <= 12; seq_len++)
        check_stream(paths, 1, &by_header, seq_len, want, 13);
    for (int64_t seq_len = 1; seq_len <= 6; seq_len++)
        check_stream(llama, 2, &by_header, seq_len, want_llama, 7);
    for (int64_t seq_len = 1; seq_len <= 11; seq_len++)
        check_stream(turned, 5, &by_header, seq_len, want_turned, 12);
}

static void test_bin_reads_raw_tokens(void **state)
{
    (void)state;
    static const int32_t want16[] = {1, 65535, 258, 7, 1, 65535, 258, 7},
                         want32[] = {1, 131071, 258};
    const char *paths[] = {"raw16", "raw16"}, *other[] = {"raw32"};
    check_stream(paths, 2, &raw16, 3, want16, 8);
    check_stream(other, 1, &raw32, 2, want32, 3);
}

static void test_bin_file_of_more_than_2_to_31_tokens(void **state)
{
    (void)state;
    char path[256];
    const char *paths[] = {"huge", "raw16"};
    snprintf(path, sizeof path, "%s/huge", root);
    put("huge", "\x05\x00", 2);
    const int64_t n = ((int64_t)1 << 32) + 3; /* a file of holes */
    if (truncate(path, 2 * n) != 0)
        skip();
    void *self = NULL;
    tt_error err = {0};
    assert_int_equal(open_paths(paths, 2, raw16, 65536, 4, &self, &err), TT_OK);
    assert_int_equal(tt_tokens_samples(self), (n + 3) / 4);
    int32_t ids[4], labels[4], pos[4], seg[4];
    tt_sample s = {sizeof s, 4, ids, labels, pos, seg, NULL};
    assert_int_equal(tt_tokens_read(self, tt_tokens_samples(self) - 1, &s, &err), TT_OK);
    assert_int_equal(ids[2], 0);
    assert_int_equal(ids[3], 1); /* the other file begins at token 2^32 + 3 */
    assert_int_equal(labels[3], 65535);
    tt_tokens_close(self);
    unlink(path);
}

static void test_bin_document_mask_restarts_positions(void **state)
{
    (void)state;
    const char *paths[] = {"gpt2_*.bin"};
    const struct {
        int64_t bos, eos;
        int32_t pos[8], seg[8];
        int ends[3]; /* places whose next token is of another document */
    } cases[] = {
        {INT64_MIN, 102,       {0, 1, 2, 0, 1, 2, 3, 4}, {0, 0, 0, 1, 1, 1, 1, 1}, {2, -1}   },
        {102,       INT64_MIN, {0, 1, 0, 1, 2, 3, 4, 5}, {0, 0, 1, 1, 1, 1, 1, 1}, {1, -1}   },
        {102,       102,       {0, 1, 0, 1, 2, 3, 4, 5}, {0, 0, 1, 1, 1, 1, 1, 1}, {1, -1}   },
        {103,       102,       {0, 1, 2, 0, 1, 2, 3, 4}, {0, 0, 0, 1, 1, 1, 1, 1}, {2, -1}   },
        {104,       105,       {0, 1, 2, 3, 0, 1, 0, 1}, {0, 0, 0, 0, 1, 1, 2, 2}, {3, 5, -1}},
        {100,       107,       {0, 1, 2, 3, 4, 5, 6, 7}, {0, 0, 0, 0, 0, 0, 0, 0}, {7, -1}   },
        {108,       INT64_MIN, {0, 1, 2, 3, 4, 5, 6, 7}, {0, 0, 0, 0, 0, 0, 0, 0}, {7, -1}   },
        {100,       INT64_MIN, {0, 1, 2, 3, 4, 5, 6, 7}, {0, 0, 0, 0, 0, 0, 0, 0}, {-1}      },
    };
    for (size_t i = 0; i < TT_COUNT(cases); i++) {
        int32_t ids[8], labels[8], pos[8], seg[8];
        tt_sample s = {sizeof s, 8, ids, labels, pos, seg, NULL};
        config c = by_header;
        c.document_mask = true;
        c.bos_id = cases[i].bos;
        c.eos_id = cases[i].eos;
        void *self = NULL;
        tt_error err = {0};
        assert_int_equal(open_paths(paths, 1, c, 200, 8, &self, &err), TT_OK);
        assert_int_equal(tt_tokens_read(self, 0, &s, &err), TT_OK);
        assert_memory_equal(pos, cases[i].pos, sizeof pos);
        assert_memory_equal(seg, cases[i].seg, sizeof seg);
        const int *end = cases[i].ends;
        for (int t = 0; t < 8; t++) {
            assert_int_equal(labels[t], t == *end ? -100 : 101 + t);
            end += t == *end;
        }
        tt_tokens_close(self);
    }
    config c = by_header;
    c.document_mask = true;
    void *self = NULL;
    tt_error err = {0};
    assert_int_equal(open_paths(paths, 1, c, 200, 8, &self, &err), TT_EINVAL);
    assert_non_null(strstr(err.text, "needs dataloader.bos_id or dataloader.eos_id"));
}

/* Writes hostile files; each is refused by a line that names it. */
static void write_hostile(void)
{
    unsigned char pbin[64] = {8, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0};
    unsigned char index[64] = "MMIDIDX\0";
    pbin[12] = pbin[13] = 0xff;
    pbin[20] = 0x80;
    put("h_empty.bin", "", 0);
    put("h_three.bin", "\x18\xd8\x34", 3);
    put_words("h_magic.bin", 20240521, 1, 4, 1032);
    put_words("h_magic_only.bin", 20240520, 0, 0, 4);
    put_words("h_header_cut.bin", 20240520, 1, 4, 1023);
    put_words("h_llama_cut.bin", 20240801, 7, 0, 12);
    put_words("h_version.bin", 20240520, 2, 4, 1032);
    put_words("h_version_negative.bin", 20240801, 0xffffffff, 1, 1028);
    put_words("h_negative.bin", 20240520, 1, 0xffffffff, 1024);
    put_words("h_most_negative.bin", 20240801, 7, 0x80000000, 1024);
    put_words("h_most.bin", 20240801, 7, 0x7fffffff, 1024);
    put_llmc("h_short.bin", 2, 6, 0, 5);
    put_llmc("h_long.bin", 2, 4, 0, 5);
    put_words("h_odd.bin", 20240520, 1, 1, 1027);
    put_words("h_eval.bin", 20240522, 1, 4, 1032);
    put_words("h_model.bin", 20240326, 3, 4, 1032);
    put_words("h_swapped.bin", 0x88d83401, 0x01000000, 4, 1032);
    put("h_npy.bin", "\x93NUMPY\x01\x00...", 11);
    put("h_gzip.bin", "\x1f\x8b\x08\x00\x00\x00", 6);
    put("h_parquet.bin", "PAR1....", 8);
    put("h.pbin", pbin, sizeof pbin);
    le(pbin, 0xffffffffffffffff, 8); /* its tokens would end before they begin */
    put("h_huge.pbin", pbin, sizeof pbin);
    le(pbin, (uint64_t)1 << 63, 8);
    put("h_2_to_63.pbin", pbin, sizeof pbin);
    index[9] = 1;
    put("h_megatron.idx", index, sizeof index);
    put("h_megatron.bin", "\x01\x00\x02\x00", 4);
    put("h_odd.raw", "\x01\x00\x02", 3);
    put("h_six.raw", "\x01\x00\x02\x00\x03\x00", 6);
    put("h_high.raw", "\x01\x00\x00\x00\x9c\xff\xff\xff", 8);
}

static void test_bin_refuses_hostile_files(void **state)
{
    (void)state;
    write_hostile();
    const struct {
        const char *path;
        const config *c;
        const char *text;
    } cases[] = {
        {"h_empty.bin",            &by_header, "is empty"                               },
        {"h_empty.bin",            &raw16,     "is empty"                               },
        {"h_three.bin",            &by_header, "no header that is known"                },
        {"h_magic.bin",            &by_header, "no header that is known"                },
        {"h_magic_only.bin",       &by_header, "cut off in the 1024"                    },
        {"h_header_cut.bin",       &by_header, "1023 bytes, cut off in the 1024"        },
        {"h_llama_cut.bin",        &by_header, "cut off in the 1024"                    },
        {"h_version.bin",          &by_header, "version 2 of llm.c's GPT-2"             },
        {"h_version_negative.bin", &by_header, "version -1 of llm.c's Llama-3"          },
        {"h_negative.bin",         &by_header, "counts -1 tokens"                       },
        {"h_most_negative.bin",    &by_header, "counts -2147483648 tokens"              },
        {"h_most.bin",             &by_header, "2147483647 tokens take 8589935612"      },
        {"h_short.bin",            &by_header, "1034 bytes, and its header's 6"         },
        {"h_long.bin",             &by_header, "1034 bytes, and its header's 4"         },
        {"h_odd.bin",              &by_header, "1027 bytes, and its header's 1"         },
        {"h_eval.bin",             &by_header, "an evaluation set of llm.c"             },
        {"h_model.bin",            &by_header, "a model of llm.c"                       },
        {"h_swapped.bin",          &by_header, "big-endian"                             },
        {"h_npy.bin",              &by_header, "a NumPy file"                           },
        {"h_npy.bin",              &raw16,     "a NumPy file"                           },
        {"h_gzip.bin",             &by_header, "a gzip file"                            },
        {"h_parquet.bin",          &by_header, "a Parquet file"                         },
        {"h.pbin",                 &by_header, "token 0 is 65535, outside the model"    },
        {"h_huge.pbin",            &by_header, "no header that is known"                },
        {"h_2_to_63.pbin",         &by_header, "no header that is known"                },
        {"h_megatron.idx",         &by_header, "Megatron data set; name its .bin"       },
        {"h_megatron.idx",         &raw16,     "Megatron data set; name its .bin"       },
        {"h_megatron.bin",         &by_header, "of a type that no tokens are"           },
        {"h_odd.raw",              &raw16,     "3 bytes are not a whole number of 2-byt"},
        {"h_six.raw",              &raw32,     "6 bytes are not a whole number of 4-byt"},
        {"h_high.raw",             &raw32,     "token 1 is 4294967196, outside"         },
        {"gpt2_a.bin",             &raw16,     "leave dataloader.format out"            },
        {"llama_a.bin",            &by_header, "token 0 is 70000, outside the model"    },
        {"raw16",                  &by_header, "set dataloader.format to \"uint16\""    },
        {"h_none.bin",             &by_header, "No such file"                           },
    };
    for (size_t i = 0; i < TT_COUNT(cases); i++) {
        void *self = &self;
        tt_error err = {0};
        if (open_paths(&cases[i].path, 1, *cases[i].c, 50257, 1, &self, &err) == TT_OK)
            fail_msg("%s was opened", cases[i].path);
        assert_ptr_equal(self, &self);
        if (!strstr(err.text, cases[i].text) || !strstr(err.text, cases[i].path))
            fail_msg("%s: \"%s\"", cases[i].path, err.text);
    }
    const char *mixed[] = {"gpt2_a.bin", "llama_a.bin"}, *few[] = {"gpt2_a.bin"};
    void *self = NULL;
    tt_error err = {0};
    assert_int_equal(open_paths(mixed, 2, by_header, 200000, 1, &self, &err), TT_EINVAL);
    assert_non_null(strstr(err.text, "two tokenizers"));
    assert_int_equal(open_paths(few, 1, by_header, 200, 5, &self, &err), TT_EINVAL);
    assert_non_null(strstr(err.text, "5 tokens, and one sample of training.seq_len 5 takes 6"));
    assert_int_equal(open_paths(NULL, 0, by_header, 200, 5, &self, &err), TT_EINVAL);
    assert_non_null(strstr(err.text, "dataloader.path: empty"));
}

/* 0xffffff9c is -100 as an int32, a label that is not counted. It must be refused, even where the
 * first check did not look. */
static void test_bin_refuses_a_high_token_as_it_is_read(void **state)
{
    (void)state;
    static unsigned char bytes[4 * 5000];
    const char *paths[] = {"far.raw"};
    le(bytes + 4 * 4990, 0xffffff9c, 4);
    put("far.raw", bytes, sizeof bytes);
    int32_t ids[8], labels[8], pos[8], seg[8];
    tt_sample s = {sizeof s, 8, ids, labels, pos, seg, NULL};
    void *self = NULL;
    tt_error err = {0};
    assert_int_equal(open_paths(paths, 1, raw32, 100, 8, &self, &err), TT_OK);
    assert_int_equal(tt_tokens_read(self, tt_tokens_samples(self) - 2, &s, &err), TT_OK);
    assert_int_equal(tt_tokens_read(self, tt_tokens_samples(self) - 1, &s, &err), TT_EINVAL);
    assert_non_null(strstr(err.text, "token 4990 is 4294967196"));
    assert_int_equal(tt_tokens_read(self, tt_tokens_samples(self), &s, &err), TT_EINTERNAL);
    tt_tokens_close(self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bin_samples_cross_files),
        cmocka_unit_test(test_bin_reads_raw_tokens),
        cmocka_unit_test(test_bin_file_of_more_than_2_to_31_tokens),
        cmocka_unit_test(test_bin_document_mask_restarts_positions),
        cmocka_unit_test(test_bin_refuses_hostile_files),
        cmocka_unit_test(test_bin_refuses_a_high_token_as_it_is_read),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
