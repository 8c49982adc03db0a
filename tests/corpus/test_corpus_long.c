/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "corpus_test.h"

/* Long documents are split into parts where the tokenizer allows it. */

enum { LONG = 3500000, DOCUMENTS = 3, PARTS = 4 * DOCUMENTS, PART = 1 << 20 };

static void write_long(void)
{
    write_lines("a.txt", DOCUMENTS, LONG, 1);
    write_lines("b.txt", 40, 50, 2); /* short ones after them */
}

static void test_corpus_splits_long_documents_into_the_same_tokens(void **state)
{
    (void)state;
    for (int cached = 0; cached < 2; cached++) {
        fresh(NULL);
        write_long();
        tt_tokens *whole = open_ok(two, 2, "off");
        assert_int_equal(atomic_load(&shared->longest), LONG);
        forget();
        tokenizer.cut = cut_after_e;
        tt_tokens *parts = open_ok(two, 2, cached ? folder : "off");
        assert_in_range(atomic_load(&shared->longest), PART, PART + 1000);
        assert_int_equal(atomic_load(&shared->encoded), PARTS + 40);
        assert_int_equal(parts->n_documents, DOCUMENTS + 40);
        check_same(parts, whole);
    }
}

/* If a tokenizer finds no place to cut a document, it gets the rest of it at once. */
static size_t no_cut(void *self, const char *text, size_t n, size_t from)
{
    (void)self;
    (void)text;
    (void)from;
    return n;
}

static void test_corpus_keeps_a_document_whole_that_has_no_cut(void **state)
{
    (void)state;
    write_long();
    tokenizer.cut = no_cut;
    tt_tokens_close(open_ok(two, 1, "off"));
    assert_int_equal(atomic_load(&shared->longest), LONG);
}

static void test_corpus_continues_in_the_middle_of_a_document(void **state)
{
    (void)state;
    write_long();
    /* the ring has five blocks: after a later call the reader may have passed on all of the text */
    for (int call = 1; call <= 5; call += 2) {
        fresh(NULL);
        tt_tokens *t = NULL, *whole = open_ok(two, 2, "off");
        tt_error err = {0};
        forget();
        tokenizer.cut = cut_after_e;
        atomic_store(&shared->stop_at, call);
        assert_int_equal(open_files(two, 2, folder, "lines 1", false, &t, &err), TT_ESIGNAL);
        const int64_t done = atomic_load(&shared->encoded);
        assert_in_range(done, call, PARTS);
        forget();
        t = open_ok(two, 2, folder);
        assert_int_equal(atomic_load(&shared->encoded), PARTS + 40 - done);
        check_same(t, whole);
    }
}

static void test_corpus_stops_within_a_document(void **state)
{
    (void)state;
    tt_tokens *t = NULL;
    tt_error err = {0};
    write_lines("a.txt", 1, 40 * PART, 1);
    tokenizer.cut = cut_after_e;
    atomic_store(&shared->stop_at, 2);
    assert_int_equal(open_files(two, 1, "off", "lines 1", false, &t, &err), TT_ESIGNAL);
    assert_non_null(strstr(err.text, "SIGTERM"));
    assert_in_range(atomic_load(&shared->encoded), 2, 30);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup(name, fresh)
    const struct CMUnitTest tests[] = {
        T(test_corpus_splits_long_documents_into_the_same_tokens),
        T(test_corpus_keeps_a_document_whole_that_has_no_cut),
        T(test_corpus_continues_in_the_middle_of_a_document),
        T(test_corpus_stops_within_a_document),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
