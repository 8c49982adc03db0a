/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
/* cmocka needs the headers above */
#include <cmocka.h>

static void test_error_is_one_line(void **state)
{
    (void)state;
    tt_error err = {0};
    assert_int_equal(TT_FAIL(&err, TT_EIO, "a\nb %d\r\n", 3), TT_EIO);
    assert_int_equal(err.code, TT_EIO);
    assert_string_equal(err.text, "a b 3");
    assert_int_equal(TT_FAIL(NULL, TT_EINVAL, "nobody listens"), TT_EINVAL);
}

static void test_error_context_prefixes(void **state)
{
    (void)state;
    tt_error err = {0};
    TT_FAIL(&err, TT_EFORMAT, "bad header");
    assert_int_equal(tt_error_context(&err, "file %s", "x.bin"), TT_EFORMAT);
    assert_int_equal(tt_error_context(&err, "loading"), TT_EFORMAT);
    assert_string_equal(err.text, "loading: file x.bin: bad header");
    TT_FAIL(&err, TT_EINVAL, "again: %s", err.text); /* its own text as an argument */
    assert_string_equal(err.text, "again: loading: file x.bin: bad header");
    assert_true(tt_error_context(NULL, "x") != TT_OK);
}

static void test_error_too_long_is_cut_at_a_character(void **state)
{
    (void)state;
    tt_error err = {0};
    char text[3000];
    for (size_t i = 0; i + 1 < sizeof text; i += 2)
        memcpy(text + i, "\xc3\xa9", 2);
    text[sizeof text - 2] = '\0';
    TT_FAIL(&err, TT_EINVAL, "%s", text);
    size_t n = strlen(err.text);
    assert_in_range(n, sizeof err.text - 3, sizeof err.text - 1);
    assert_int_equal(tt_utf8_valid(err.text, n), n);
    tt_error_context(&err, "%s", "x");
    n = strlen(err.text);
    assert_int_equal(tt_utf8_valid(err.text, n), n);
    assert_memory_equal(err.text, "x: \xc3\xa9", 5);
}

/* A path may have 4095 bytes; what and why must be read all the same. */
static void test_error_about_a_long_path_keeps_its_reason(void **state)
{
    (void)state;
    tt_error err = {0};
    char path[4000];
    for (size_t length = 900; length < sizeof path; length += 31) {
        memset(path, 'p', length);
        memcpy(path, "/start", 6);
        memcpy(path + length - 4, "/end", 5);
        TT_FAIL(&err, TT_EIO, "%s: cannot write: No space left on device", path);
        tt_error_context(&err, "checkpoint of step %d", 5);
        assert_memory_equal(err.text, "checkpoint of step 5: /start", 28);
        assert_string_equal(err.text + strlen(err.text) - 44,
                            "p/end: cannot write: No space left on device");
        assert_true(length < 960 || strstr(err.text, " … "));
        tt_error_context(&err, "%s", path); /* the context may be long too */
        assert_memory_equal(err.text, "/start", 6);
        assert_non_null(strstr(err.text, ": No space left on device"));
    }
}

static void test_context_of_no_error_is_a_failure(void **state)
{
    (void)state;
    tt_error err = {0};
    assert_int_equal(tt_error_context(&err, "sample %d", 3), TT_EINTERNAL);
    assert_int_equal(err.code, TT_EINTERNAL);
}

static tt_status writes(tt_error *err, tt_status s, const char *text, size_t n)
{
    memcpy(err->text, text, n);
    return s;
}

static void test_plugin_that_fails_is_a_failure(void **state)
{
    (void)state;
    tt_error err;
    memset(&err, 'x', sizeof err); /* of a call before, never ended */
    assert_int_equal(TT_PLUGIN_CALL(TT_EFORMAT, &err, "dataloader", "csv"), TT_EFORMAT);
    assert_int_equal(err.code, TT_EFORMAT);
    assert_string_equal(err.text, "dataloader csv failed without a message (malformed file)");
    assert_int_equal(TT_PLUGIN_CALL((tt_status)999, &err, "hook", NULL), TT_EIO);
    assert_non_null(strstr(err.text, "hook failed without a message; it returned 999"));
    /* text, no code, and bytes that would colour a terminal */
    assert_int_equal(TT_PLUGIN_CALL(writes(&err, TT_EIO, "a\033[31m\nb", 9), &err, "hook", "h"),
                     TT_EIO);
    assert_int_equal(err.code, TT_EIO);
    assert_string_equal(err.text, "a [31m b");
    assert_int_equal(TT_PLUGIN_CALL(writes(&err, (tt_status)1, "why", 4), &err, "hook", "h"),
                     TT_EIO);
    assert_string_equal(err.text, "why");
    assert_int_equal(TT_PLUGIN_CALL(TT_OK, &err, "hook", "h"), TT_OK);
    assert_int_equal(TT_PLUGIN_CALL((tt_status)7, NULL, "hook", "h"), TT_EIO);
}

static void test_status_has_names(void **state)
{
    (void)state;
    assert_string_equal(tt_status_name(TT_EINVAL), "TT_EINVAL");
    assert_string_equal(tt_status_text(TT_OK), "success");
    assert_string_equal(tt_status_name((tt_status)-999), "TT_UNKNOWN");
}

static void test_dtype_sizes_and_names(void **state)
{
    (void)state;
    static const size_t sizes[TT_N_DTYPES] = {4, 2, 2, 8, 4, 8, 1, 1, 1, 1};
    for (int t = 0; t < TT_N_DTYPES; t++)
        assert_int_equal(tt_dtype_size((tt_dtype)t), sizes[t]);
    assert_string_equal(tt_dtype_name(TT_BF16), "bf16");
    assert_string_equal(tt_dtype_name((tt_dtype)99), "?");
    assert_int_equal(tt_dtype_size((tt_dtype)99), 0);
    static const tt_dtype floats[] = {TT_F32, TT_BF16, TT_F16, TT_F64, TT_F8E4M3, TT_F8E5M2};
    int n = 0;
    for (int t = 0; t < TT_N_DTYPES; t++)
        n += tt_dtype_is_float((tt_dtype)t);
    assert_int_equal(n, 6);
    for (size_t i = 0; i < 6; i++) {
        assert_true(tt_dtype_is_float(floats[i]));
        assert_int_equal(tt_dtype_accumulate(floats[i]), floats[i] == TT_F64 ? TT_F64 : TT_F32);
    }
    assert_int_equal(tt_dtype_accumulate(TT_I32), TT_I32);
    assert_false(tt_dtype_is_float((tt_dtype)99)); /* of a newer minor */
    assert_int_equal(tt_dtype_accumulate((tt_dtype)99), 99);
}

static void test_wall_iso_rounds_to_milliseconds(void **state)
{
    (void)state;
    char text[32];
    tt_wall_iso(0.0, text);
    assert_string_equal(text, "1970-01-01T00:00:00.000Z");
    tt_wall_iso(1795248000.1234, text);
    assert_string_equal(text, "2026-11-21T08:00:00.123Z");
    tt_wall_iso(1795247999.9996, text); /* carries */
    assert_string_equal(text, "2026-11-21T08:00:00.000Z");
    int64_t t = tt_now_ns();
    assert_true(tt_now_ns() >= t);
    assert_true(tt_wall_seconds() > 1.7e9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_error_is_one_line),
        cmocka_unit_test(test_error_context_prefixes),
        cmocka_unit_test(test_error_too_long_is_cut_at_a_character),
        cmocka_unit_test(test_error_about_a_long_path_keeps_its_reason),
        cmocka_unit_test(test_context_of_no_error_is_a_failure),
        cmocka_unit_test(test_plugin_that_fails_is_a_failure),
        cmocka_unit_test(test_status_has_names),
        cmocka_unit_test(test_dtype_sizes_and_names),
        cmocka_unit_test(test_wall_iso_rounds_to_milliseconds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
