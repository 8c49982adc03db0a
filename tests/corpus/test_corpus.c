/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "corpus_test.h"

/* The token cache: what is reused, what its key is made of, and what is refused. */

static void test_corpus_second_start_neither_reads_nor_tokenises(void **state)
{
    (void)state;
    write_lines("a.txt", 300, 40, 1);
    write_lines("b.txt", 200, 40, 2);
    atomic_fetch_add(&shared->passed_ns,
                     3000000000); /* else the files are younger than what their times can tell */
    tt_tokens *first = open_ok(two, 2, folder);
    assert_int_equal(shared->encoded, 500);
    assert_int_equal(shared->read, 2);
    tt_tokens *second = open_ok(two, 2, folder);
    assert_int_equal(shared->encoded, 500);
    assert_int_equal(shared->read, 2);
    assert_non_null(second->cache);
    check_same(first, second);
    assert_int_equal(cached(".tokens", NULL), 1);
    assert_int_equal(cached(".key", NULL), 1);
    assert_int_equal(cached("", NULL), 4); /* these, . and .. */
    check_same(open_ok(two, 2, folder), open_ok(two, 2, "off"));
}

static void test_corpus_is_keyed_by_content_and_not_by_name(void **state)
{
    (void)state;
    write_lines("a.txt", 30, 40, 1);
    write_lines("b.txt", 20, 40, 2);
    tt_tokens_close(open_ok(two, 2, folder));
    write_lines("c.txt", 20, 40, 2); /* b once more */
    const char *renamed[] = {"a.txt", "c.txt"}, *turned[] = {"b.txt", "a.txt"}, *one[] = {"a.txt"};
    tt_tokens_close(open_ok(renamed, 2, folder));
    assert_int_equal(shared->encoded, 50);
    tt_tokens_close(open_ok(turned, 2, folder));
    assert_int_equal(shared->encoded, 100);
    tt_tokens_close(open_ok(one, 1, folder));
    assert_int_equal(shared->encoded, 130);
    assert_int_equal(cached(".tokens", NULL), 3);
    write_lines("b.txt", 20, 40, 3); /* as long, other words */
    check_same(open_ok(two, 2, folder), open_ok(two, 2, "off"));
    assert_int_equal(cached(".tokens", NULL), 4);
}

static void test_corpus_is_keyed_by_tokenizer_and_reader(void **state)
{
    (void)state;
    tt_tokens *t = NULL;
    tt_error err = {0};
    write_lines("a.txt", 30, 40, 1);
    tt_tokens_close(open_ok(two, 1, folder));
    fingerprint = "1123456789abcdef0123456789abcdef";
    tt_tokens_close(open_ok(two, 1, folder));
    assert_int_equal(shared->encoded, 60);
    assert_int_equal(open_files(two, 1, folder, "lines 2", false, &t, &err), TT_OK);
    tt_tokens_close(t);
    assert_int_equal(shared->encoded, 90);
    assert_int_equal(cached(".tokens", NULL), 3);
    fingerprint = ""; /* it does not say when its ids change: nothing is kept */
    t = open_ok(two, 1, folder);
    assert_null(t->cache);
    assert_non_null(strstr(t->note, "no fingerprint"));
    tt_tokens_close(t);
    assert_int_equal(cached(".tokens", NULL), 3);
}

static void test_corpus_first_error_in_order_is_reported(void **state)
{
    (void)state;
    char path[256];
    write_lines("a.txt", 3000, 2000, 1);
    path_of("a.txt", path);
    for (int i = 0; i < 2; i++) { /* a later one is met first, in a block before */
        const int fd = open(path, O_WRONLY);
        assert_int_equal(pwrite(fd, "!", 1, i == 0 ? 5000 * 1000 : 2001 * 700 + 5), 1);
        close(fd);
        const char *want =
            i == 0 ? "a.txt: document 2499: an exclamation" : "a.txt: document 701: an exclamation";
        for (int k = 0; k < 2; k++) {
            tt_tokens *t = NULL;
            tt_error err = {0};
            assert_int_equal(open_files(two, 1, k ? folder : "off", "lines 1", false, &t, &err),
                             TT_EINVAL);
            assert_null(t);
            if (!strstr(err.text, want) || !strstr(err.text, "dataloader.path"))
                fail_msg("\"%s\", not \"%s\"", err.text, want);
        }
    }
}

static void test_corpus_stops_on_request_and_continues(void **state)
{
    (void)state;
    tt_tokens *t = NULL;
    tt_error err = {0};
    write_lines("a.txt", 4000, 2000, 1);
    atomic_store(&shared->stop, 15);
    assert_int_equal(open_files(two, 1, folder, "lines 1", false, &t, &err), TT_ESIGNAL);
    assert_non_null(strstr(err.text, "SIGTERM"));
    assert_int_equal(shared->encoded, 0); /* the text was only being read */
    assert_null(t);
    forget();
    check_same(open_ok(two, 1, folder), open_ok(two, 1, "off"));
}

static void test_corpus_change_while_reading_is_an_error(void **state)
{
    (void)state;
    tt_tokens *t = NULL;
    tt_error err = {0};
    write_lines("a.txt", 400, 40, 1);
    atomic_store(&shared->wait_at, 20);
    const pid_t pid = fork();
    if (pid == 0) {
        while (atomic_load(&shared->encoded) < 20)
            sched_yield();
        write_lines("a.txt", 500, 40, 9);
        atomic_store(&shared->go, 1);
        _exit(0);
    }
    assert_int_equal(open_files(two, 1, folder, "lines 1", false, &t, &err), TT_EINVAL);
    assert_non_null(strstr(err.text, "a.txt changed while it was tokenised"));
    waitpid(pid, NULL, 0);
    forget();
    check_same(open_ok(two, 1, folder), open_ok(two, 1, "off"));
}

static void test_corpus_empty_documents_are_counted_and_left_out(void **state)
{
    (void)state;
    char path[256];
    tt_tokens *t = NULL;
    tt_error err = {0};
    path_of("e.txt", path);
    FILE *f = fopen(path, "w");
    fputs("\n\nabcdefghijklmnopqrst\n\n", f);
    fclose(f);
    const char *names[] = {"e.txt", "none.txt"};
    for (int k = 0; k < 2; k++) {
        t = open_ok(names, 1, k ? folder : "off");
        assert_int_equal(t->n_documents, 1);
        assert_int_equal(t->n_empty, 3);
        assert_int_equal(t->n_tokens, 22);
        tt_tokens_close(t);
    }
    write_lines("none.txt", 5, 0, 1);
    assert_int_equal(open_files(names + 1, 1, folder, "lines 1", false, &t, &err), TT_EINVAL);
    assert_non_null(strstr(err.text, "none.txt is empty"));
}

/* If BOS and EOS are the same id, there is one such token between documents, as checkpoints with
 * such a tokenizer expect. A cache of another pair of ids is not reused for it. */
static void test_corpus_has_one_separator_if_bos_is_eos(void **state)
{
    (void)state;
    int64_t start = -1;
    write_lines("a.txt", 3, 8, 7);
    tt_tokens *t = open_ok(two, 1, folder);
    assert_int_equal(t->n_tokens, 3 * (8 + 2));
    tt_tokens_close(t);
    eos_id = 1;
    t = open_ok(two, 1, folder);
    assert_int_equal(t->n_tokens, 3 * (8 + 1));
    int32_t *ids = all_tokens(t);
    for (int i = 0; i < 27; i++)
        assert_int_equal(ids[i] == 1, i % 9 == 8);
    assert_int_equal(tt_document_starts(t, 1, 1, &start, NULL), TT_OK);
    assert_int_equal(start, 9);
    free(ids);
    tt_tokens_close(t);
}

/* More than 2^32 tokens come before those that are written: the file has a hole. */
static void test_corpus_of_more_than_2_to_32_tokens(void **state)
{
    (void)state;
    const int64_t far = 5000000000;
    char key[33];
    bool published = false;
    tt_error err = {0};
    tt_store s;
    tt_corpus_opts o = {.env = &(tt_dataloader_env){.struct_size = sizeof(tt_dataloader_env)}};
    const tt_text_key k = {.o = &o};
    unsigned char tokens[] = {1, 0, 7, 1, 8, 1, 2, 0};
    int64_t start = 0;
    tt_text_block b = {
        .n_text = 2, .tokens = tokens, .starts = &start, .n_starts = 1, .n_tokens = 4};
    snprintf(key, sizeof key, "%032d", 7);
    assert_int_equal(tt_mkdirs(folder, &err), TT_OK);
    assert_int_equal(tt_store_file(folder, key, 2, &k, &published, &s, &err), TT_OK);
    s.at.n_tokens = far;
    assert_int_equal(tt_store_write(&s, &b, &err), TT_OK);
    assert_int_equal(tt_store_publish(&s, folder, 1, &err), TT_OK);
    tt_store_close(&s);
    tt_tokens *t = calloc(1, sizeof *t);
    t->spans = calloc(1, sizeof *t->spans);
    t->documents.fd = -1;
    assert_int_equal(tt_store_find(folder, key, true, t, &err), TT_OK);
    assert_int_equal(t->n_tokens, far + 4);
    t->document_mask = true;
    assert_int_equal(tt_tokens_ready(t, &(tt_dataloader_env){.seq_len = 2}, NULL, &err), TT_OK);
    assert_int_equal(t->n_samples, far / 2 + 1);
    int32_t ids[2], labels[2], pos[2], seg[2];
    tt_sample x = {sizeof x, 2, ids, labels, pos, seg, NULL};
    assert_int_equal(tt_tokens_read(t, far / 2, &x, &err), TT_OK);
    assert_int_equal(ids[0], 1);
    assert_int_equal(ids[1], 263);
    assert_int_equal(labels[1], 264);
    assert_int_equal(tt_tokens_read(t, far / 2 - 1, &x, &err), TT_OK);
    assert_int_equal(ids[1], 0);
    assert_int_equal(labels[1], -100); /* the next token begins a document */
    assert_int_equal(seg[1], 0);
    /* cut off under us: an error that names it */
    assert_int_equal(truncate(t->cache, 1 << 20), 0);
    assert_int_equal(tt_tokens_read(t, 5, &x, &err), TT_EIO); /* its index is at the end */
    t->document_mask = false;
    assert_int_equal(tt_tokens_read(t, 5, &x, &err), TT_OK);
    assert_int_equal(tt_tokens_read(t, far / 2, &x, &err), TT_EIO);
    assert_non_null(strstr(err.text, ".tokens ends at byte 1048576"));
    tt_tokens_close(t);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup(name, fresh)
    const struct CMUnitTest tests[] = {
        T(test_corpus_second_start_neither_reads_nor_tokenises),
        T(test_corpus_is_keyed_by_content_and_not_by_name),
        T(test_corpus_is_keyed_by_tokenizer_and_reader),
        T(test_corpus_first_error_in_order_is_reported),
        T(test_corpus_stops_on_request_and_continues),
        T(test_corpus_change_while_reading_is_an_error),
        T(test_corpus_empty_documents_are_counted_and_left_out),
        T(test_corpus_has_one_separator_if_bos_is_eos),
        T(test_corpus_of_more_than_2_to_32_tokens),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
