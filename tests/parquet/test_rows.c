/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/base.h"
#include "folder_test.h"
#include "parquet/impl.h"
#include <jansson.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <ttrun/parquet.h>
#include <unistd.h>

#include <cmocka.h>

/* tests/golden/parquet.json has files of pyarrow, their rows, and files that are refused (parquet_golden.py);
 * tests/peers/parquet_peer.py compares many more. */

static char path[TEST_FOLDER + 16];

static void put_hex(const char *hex)
{
    const size_t n = strlen(hex) / 2;
    uint8_t *bytes = malloc(n + 1);
    FILE *f = fopen(path, "wb");
    assert_non_null(bytes);
    assert_non_null(f);
    for (size_t i = 0; i < n; i++) {
        unsigned x = 0;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &x), 1);
        bytes[i] = (uint8_t)x;
    }
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    free(bytes);
}

/* The rows of the file so far as columns (NULL: all) choose them; NULL: an error. */
static json_t *rows_of(const char *const *columns, size_t n_columns, tt_error *err)
{
    tt_parquet *p = NULL;
    const char *row;
    size_t n;
    *err = (tt_error){0};
    assert_true(tt_parquet_is(path));
    if (tt_parquet_open(path, columns, n_columns, &p, err) != TT_OK)
        return NULL;
    json_t *rows = json_array();
    tt_status s = tt_parquet_next(p, &row, &n, err);
    for (; s == TT_OK && row; s = tt_parquet_next(p, &row, &n, err)) {
        json_error_t why;
        json_t *v = json_loadb(row, n, JSON_REJECT_DUPLICATES, &why);
        if (!v)
            fail_msg("%s: %s", why.text, row);
        json_array_append_new(rows, v);
        assert_true(tt_parquet_taken(p) > 0);
    }
    if (s == TT_OK)
        assert_int_equal(json_array_size(rows), tt_parquet_rows(p));
    tt_parquet_close(p);
    if (s == TT_OK)
        return rows;
    json_decref(rows);
    return NULL;
}

static json_t *golden(const char *key)
{
    json_error_t why;
    json_t *root = json_load_file("tests/golden/parquet.json", 0, &why);
    if (!root)
        fail_msg("%s, line %d", why.text, why.line);
    json_t *list = json_incref(json_object_get(root, key));
    json_decref(root);
    assert_true(json_array_size(list) > 20);
    return list;
}

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static void test_files_are_read_as_pyarrow_reads_them(void **state)
{
    json_t *files = golden("files"), *file;
    size_t i;
    tt_error err;
    (void)state;
    json_array_foreach(files, i, file)
    {
        put_hex(text_of(file, "hex"));
        json_t *rows = rows_of(NULL, 0, &err), *want = json_object_get(file, "rows");
        if (!rows || !json_equal(rows, want)) {
            char *have = rows ? json_dumps(rows, JSON_COMPACT) : NULL;
            fail_msg("%s: %s", text_of(file, "name"), have ? have : err.text);
        }
        json_decref(rows);
    }
    json_decref(files);
}

static void test_a_long_value_is_refused_before_it_is_copied(void **state)
{
    json_t *files = golden("files"), *file;
    const size_t limit = tt_pq_longest_row;
    size_t i;
    tt_error err;
    (void)state;
    json_array_foreach(files, i, file)
    {
        if (strcmp(text_of(file, "name"), "texts")) /* a value has 124 bytes */
            continue;
        put_hex(text_of(file, "hex"));
        tt_pq_longest_row = 120;
        assert_null(rows_of(NULL, 0, &err));
        assert_non_null(strstr(err.text, "a row of more than"));
    }
    tt_pq_longest_row = limit;
    json_decref(files);
}

static void test_refused_files_end_with_a_line_that_names_the_fault(void **state)
{
    json_t *files = golden("refused"), *file, *word;
    size_t i, k;
    tt_error err;
    (void)state;
    json_array_foreach(files, i, file)
    {
        put_hex(text_of(file, "hex"));
        json_t *rows = rows_of(NULL, 0, &err);
        if (rows)
            fail_msg("%s was read", text_of(file, "name"));
        if (!strstr(err.text, path) || strchr(err.text, '\n'))
            fail_msg("%s: %s", text_of(file, "name"), err.text);
        json_array_foreach(json_object_get(file, "words"), k, word)
        {
            if (!strstr(err.text, json_string_value(word)))
                fail_msg("%s: %s", text_of(file, "name"), err.text);
        }
    }
    json_decref(files);
}

static void test_columns_that_are_not_wanted_are_not_read(void **state)
{
    static const char *const wanted[] = {"absent", "text"};
    json_t *files = golden("files"), *file, *row;
    size_t i, k;
    tt_error err;
    (void)state;
    json_array_foreach(files, i, file)
    {
        if (strcmp(text_of(file, "name"), "texts") != 0)
            continue;
        put_hex(text_of(file, "hex"));
        json_t *rows = rows_of(wanted, 2, &err);
        assert_int_equal(json_array_size(rows), 12);
        json_array_foreach(rows, k, row)
        {
            assert_int_equal(json_object_size(row), 1);
            assert_string_equal(text_of(row, "text"),
                                text_of(json_array_get(json_object_get(file, "rows"), k), "text"));
        }
        json_decref(rows);
        rows = rows_of(wanted, 1, &err);
        assert_int_equal(json_array_size(rows), 12);
        assert_int_equal(json_object_size(json_array_get(rows, 11)), 0);
        json_decref(rows);
        json_decref(files);
        return;
    }
    fail();
}

/* A sanitizer has a heap of its own, of which this knows nothing. */
static size_t heap_bytes(void)
{
#ifdef __SANITIZE_ADDRESS__
    static size_t growing;
    return growing += 2 << 20;
#else
    const struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
#endif
}

/* The paths of 90,000 columns below a name of 100,000 bytes would take 9 GB. */
static void test_a_long_name_takes_memory_once(void **state)
{
    enum { COLUMNS = 90000, NAME = 100000 };
    static const char root[] = "\x15\x02\x19\xfc";
    tt_error err = {0};
    tt_parquet *p = NULL;
    tt_str f = {0};
    (void)state;
    tt_str_addn(&f, root, 4);
    tt_str_addn(&f, "\x92\xbf\x05", 3); /* 90,002 elements */
    tt_str_addn(&f, "\x48\x01r\x15\x02\0", 6);
    tt_str_addn(&f, "\x35\x02\x18\xa0\x8d\x06", 6); /* optional, 100,000 bytes of name */
    for (int i = 0; i < NAME; i++)
        tt_str_addc(&f, 'n');
    tt_str_addn(&f, "\x15\xa0\xfe\x0a\0", 5); /* 90,000 children */
    for (int i = 0; i < COLUMNS; i++)
        tt_str_addn(&f,
                    "\x15\0\x25\x02\x18\x01"
                    "b\0",
                    8);
    tt_str_addn(&f, "\x16\0\x19\x0c\0", 5); /* no rows */
    const uint32_t n = (uint32_t)f.n;
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite("PAR1", 1, 4, out) + fwrite(f.s, 1, f.n, out) + fwrite(&n, 1, 4, out) +
                         fwrite("PAR1", 1, 4, out),
                     f.n + 12);
    fclose(out);
    tt_str_free(&f);
    const size_t before = heap_bytes();
    const tt_status s = tt_parquet_open(path, NULL, 0, &p, &err);
    if (s != TT_OK)
        fail_msg("%s", err.text);
    assert_in_range(heap_bytes() - before, 1 << 20, 100 << 20);
    tt_parquet_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files_are_read_as_pyarrow_reads_them),
        cmocka_unit_test(test_refused_files_end_with_a_line_that_names_the_fault),
        cmocka_unit_test(test_a_long_value_is_refused_before_it_is_copied),
        cmocka_unit_test(test_columns_that_are_not_wanted_are_not_read),
        cmocka_unit_test(test_a_long_name_takes_memory_once),
    };
    char folder[TEST_FOLDER];
    if (!test_folder("parquet", folder))
        return 1;
    snprintf(path, sizeof path, "%s/one.parquet", folder);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    rmdir(folder);
    return failed;
}
