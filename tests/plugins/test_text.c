/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "../../plugins/dataloaders/text.c"
#include "corpus/tokens.h"
#include "folder_test.h"
#include <setjmp.h>

#include <cmocka.h>

/* A tokenizer of `vocab` ids: a byte is its value; bos vocab-2 and eos vocab-1 unless bare. */
typedef struct {
    int64_t vocab;
    bool bare;
} letters;

static void letters_info(void *self, tt_tokenizer_info *out)
{
    const letters *l = self;
    out->vocab_size = l->vocab;
    out->bos = l->bare ? -1 : (int32_t)l->vocab - 2;
    out->eos = l->bare ? -1 : (int32_t)l->vocab - 1;
}

static tt_status letters_encode(void *self, const char *text, size_t n, tt_ids *out, tt_error *err)
{
    (void)self;
    for (size_t i = 0; i < n; i++)
        TT_TRY(tt_ids_push(out, (unsigned char)text[i], err));
    return TT_OK;
}

static const tt_tokenizer_vt tokenizer = {
    .struct_size = sizeof tokenizer, .info = letters_info, .encode = letters_encode};

static char root[TEST_FOLDER];

static void write_file(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void make_folder(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", root, name);
    assert_int_equal(mkdir(path, 0777), 0);
}

static int set_up(void **state)
{
    (void)state;
    if (!test_folder("text", root))
        return -1;
    tt_log_setup(TT_ERROR, 0, 1, false);
    make_folder("sub");
    make_folder("sub/deep");
    make_folder(".hidden");
    write_file("b.txt", "BB");
    write_file("a.txt", "AAA");
    write_file("B.txt", "x");
    write_file("sub/c.txt", "CC");
    write_file("sub/deep/d.txt", "D");
    write_file("sub/deep/e.md", "EE");
    write_file(".hidden/h.txt", "HH");
    write_file("empty.c", "");
    write_file("odd[1].txt", "OO");
    write_file("ff.bin", "\xff\xfe");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return test_folder_remove(root) ? 0 : -1;
}

static tt_status open_paths(letters *l, const char *const *paths, size_t n, int64_t seq_len,
                            bool mask, void **self, tt_error *err)
{
    const config c = {
        .path = {paths, n},
          .field = "text", .document_mask = mask, .cache = "off"
    };
    const tt_dataloader_env env = {.struct_size = sizeof env,
                                   .seq_len = seq_len,
                                   .vocab_size = l->vocab,
                                   .tokenizer = &tokenizer,
                                   .tokenizer_self = l,
                                   .job_dir = root};
    return open_text(&c, &env, self, err);
}

/* The stream of one entry without bos and eos, as text. */
static void check_stream(const char *path, const char *want)
{
    letters l = {.vocab = 256, .bare = true};
    void *self = NULL;
    tt_error err = {0};
    if (open_paths(&l, &path, 1, 1, false, &self, &err) != TT_OK)
        fail_msg("%s: %s", path, err.text);
    int32_t ids[64];
    const int64_t n = ((tt_tokens *)self)->n_tokens;
    assert_int_equal(n, strlen(want));
    assert_int_equal(tt_tokens_fetch(self, 0, n, ids, &err), TT_OK);
    for (int64_t i = 0; i < n; i++)
        assert_int_equal(ids[i], (unsigned char)want[i]);
    tt_tokens_close(self);
}

static void test_text_globs_sort_bytewise_and_cross_folders(void **state)
{
    (void)state;
    check_stream("a.txt", "AAA");
    check_stream("[ab].txt", "AAABB");
    check_stream("?.txt", "xAAABB"); /* "B" < "a" bytewise */
    check_stream("sub/*.txt", "CC");
    check_stream("sub/**", "CCDEE");
    check_stream("**/*.txt", "xAAABBOOCCD"); /* .hidden is left out */
    check_stream("**/**/[ad].txt", "AAAD");  /* met twice, taken once */
    check_stream("s*/d*/e.md", "EE");
    check_stream(".hidden/*", "HH");
    check_stream("odd[1].txt", "OO"); /* a file of that very name wins over the glob */
}

static void test_text_documents_have_bos_and_eos_in_path_order(void **state)
{
    (void)state;
    for (int64_t vocab = 200; vocab <= 70000;
         vocab += 34900) { /* one, two and four bytes per token */
        letters l = {.vocab = vocab};
        const char *paths[] = {"b.txt", "a.txt"};
        const int32_t bos = (int32_t)vocab - 2, eos = (int32_t)vocab - 1;
        const int32_t want[] = {bos, 'B', 'B', eos, bos, 'A', 'A', 'A', eos};
        void *self = NULL;
        tt_error err;
        assert_int_equal(open_paths(&l, paths, 2, 4, false, &self, &err), TT_OK);
        assert_int_equal(tt_tokens_samples(self), 2); /* floor((9-1)/4) */
        for (int64_t i = 0; i < 2; i++) {
            int32_t ids[4], labels[4], pos[4] = {0, 1, 2, 3}, seg[4] = {0};
            tt_sample s = {sizeof s, 4, ids, labels, pos, seg, NULL};
            assert_int_equal(tt_tokens_read(self, i, &s, &err), TT_OK);
            assert_memory_equal(ids, want + 4 * i, sizeof ids);
            assert_memory_equal(labels, want + 4 * i + 1, sizeof labels);
            assert_int_equal(pos[3], 3);
            assert_int_equal(seg[3], 0);
        }
        tt_tokens_close(self);
    }
}

static void test_text_document_mask_restarts_positions(void **state)
{
    (void)state;
    letters l = {.vocab = 200};
    const char *paths[] = {"b.txt", "B.txt", "a.txt"}; /* documents at 0, 4 and 7; 12 tokens */
    int32_t ids[11], labels[11], pos[11], seg[11];
    static const int32_t want_pos[] = {0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 3},
                         want_seg[] = {0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2};
    tt_sample s = {sizeof s, 11, ids, labels, pos, seg, NULL};
    void *self = NULL;
    tt_error err;
    assert_int_equal(open_paths(&l, paths, 3, 11, true, &self, &err), TT_OK);
    assert_int_equal(tt_tokens_read(self, 0, &s, &err), TT_OK);
    assert_memory_equal(pos, want_pos, sizeof pos);
    assert_memory_equal(seg, want_seg, sizeof seg);
    for (int t = 0; t < 10; t++)
        assert_int_equal(labels[t], t == 3 || t == 6 ? -100 : ids[t + 1]);
    assert_true(labels[10] >= 0);
    tt_tokens_close(self);
    assert_int_equal(open_paths(&l, paths, 3, 5, true, &self, &err), TT_OK);
    s.seq_len = 5;
    assert_int_equal(tt_tokens_read(self, 1, &s, &err),
                     TT_OK); /* tokens 5 … 9: a document goes on, the next starts at 7 */
    static const int32_t pos5[] = {0, 1, 0, 1, 2}, seg5[] = {0, 0, 1, 1, 1};
    assert_memory_equal(pos, pos5, sizeof pos5);
    assert_memory_equal(seg, seg5, sizeof seg5);
    tt_tokens_close(self);
}

static void test_text_errors_name_the_fault_and_the_remedy(void **state)
{
    (void)state;
    static const struct {
        const char *path, *text;
        tt_status code;
    } cases[] = {
        {"none.txt",   "none.txt: No such file",                                               TT_ENOTFOUND},
        {"none/*.txt", "no file matches",                                                      TT_ENOTFOUND},
        {"*.zip",      "*.zip",                                                                TT_ENOTFOUND},
        {"sub",        "is a folder; name its files",                                          TT_EINVAL   },
        {"su*",        "no file matches",                                                      TT_ENOTFOUND},
        {"empty.c",    "empty.c is empty",                                                     TT_EINVAL   },
        {"a.txt",      "1 file with 5 tokens, and one sample of training.seq_len 64 takes 65",
         TT_EINVAL                                                                                         },
        {"/dev/null",  "/dev/null is not a regular file",                                      TT_EINVAL   },
        {"ff.bin",     "outside its own vocabulary of 200",                                    TT_EINVAL   },
    };
    for (size_t i = 0; i < TT_COUNT(cases); i++) {
        letters l = {.vocab = 200};
        void *self = &l;
        tt_error err = {0};
        assert_int_equal(open_paths(&l, &cases[i].path, 1, 64, false, &self, &err), cases[i].code);
        assert_ptr_equal(self, &l);
        if (!strstr(err.text, cases[i].text) || !strstr(err.text, "dataloader.path"))
            fail_msg("%s: \"%s\"", cases[i].path, err.text);
    }
    letters l = {.vocab = 200};
    void *self = NULL;
    tt_error err = {0};
    assert_int_equal(open_paths(&l, NULL, 0, 64, false, &self, &err), TT_EINVAL);
    assert_non_null(strstr(err.text, "dataloader.path: empty"));
}

static void test_text_empty_files_of_a_glob_are_left_out(void **state)
{
    (void)state;
    letters l = {.vocab = 200};
    const char *paths[] = {"empty.c", "b.txt"};
    void *self = NULL;
    tt_error err;
    assert_int_equal(open_paths(&l, paths, 2, 3, false, &self, &err), TT_OK);
    assert_int_equal(((tt_tokens *)self)->n_tokens, 4);
    tt_tokens_close(self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_globs_sort_bytewise_and_cross_folders),
        cmocka_unit_test(test_text_documents_have_bos_and_eos_in_path_order),
        cmocka_unit_test(test_text_document_mask_restarts_positions),
        cmocka_unit_test(test_text_errors_name_the_fault_and_the_remedy),
        cmocka_unit_test(test_text_empty_files_of_a_glob_are_left_out),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
