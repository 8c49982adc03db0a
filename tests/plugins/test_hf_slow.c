/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#define HF_PATTERN_SECONDS 0.2
#define HF_PATTERN_BYTES_PER_SECOND 1e6
#include "hf_test.h"
#include <sys/syscall.h>
#include <time.h>

/* Patterns whose matches take longer than a text can need are refused. The test's own clock_gettime overrides the C
 * library's: the thread's time on its core grows by a fixed step per look, and all other clocks run far ahead. */

static int64_t step_ns, used_ns;
static int looks;

int clock_gettime(clockid_t id, struct timespec *t)
{
    const int rc = (int)syscall(SYS_clock_gettime, id, t);
    if (id == CLOCK_THREAD_CPUTIME_ID) {
        looks++;
        used_ns += step_ns;
        *t = (struct timespec){(time_t)(used_ns / 1000000000), (long)(used_ns % 1000000000)};
    } else {
        static time_t ahead;
        t->tv_sec += ahead += 1000;
    }
    return rc;
}

static hf_tokenizer *open_pattern(const char *pattern)
{
    static const char *const path[] = {"pre_tokenizer", "pretokenizers", "0",
                                       "pattern",       "Regex",         NULL};
    json_t *root = whole("llama3", false), *quoted = json_string(pattern);
    char *value = json_dumps(quoted, JSON_ENCODE_ANY);
    hf_tokenizer *t = NULL;
    tt_error err = {0};
    set_at(root, path, value);
    char *text = json_dumps(root, 0);
    if (open_text(text, NULL, false, &t, &err) != TT_OK)
        fail_msg("%s", err.text);
    free(text);
    free(value);
    json_decref(quoted);
    json_decref(root);
    return t;
}

static void test_hf_quadratic_patterns_end(void **state)
{
    (void)state;
    enum { N = 200000 };
    static const char *const patterns[] = {"[ab]*c|a", "a(?=.*c)|a"};
    char *text = malloc(N);
    memset(text, 'a', N);
    step_ns = 10000000;
    for (size_t i = 0; i < TT_COUNT(patterns); i++) {
        hf_tokenizer *t = open_pattern(patterns[i]);
        tt_ids ids = {0};
        tt_error err = {0};
        looks = 0;
        assert_int_equal(hf_encode(t, text, N, &ids, &err), TT_EINVAL);
        assert_in_range(looks, 41, 42); /* the first is where it begins; 0.4 s are 40 steps */
        assert_non_null(strstr(err.text, "the tokenizer's pattern takes too long"));
        assert_non_null(strstr(err.text, "split the text at a newline"));
        assert_null(strchr(err.text, '\n'));
        assert_int_equal(ids.n, 0);
        tt_ids_free(&ids);
        hf_close(t);
    }
    free(text);
}

static void test_hf_linear_patterns_have_the_time_they_need(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    hf_tokenizer *t = open_pattern("[a-z]+|[^a-z]");
    tt_ids ids = {0};
    tt_error err = {0};
    char *text = malloc(N);
    for (int i = 0; i < N; i++)
        text[i] = i % 5 ? 'a' : ' ';
    step_ns = 1240 * INT64_C(1000000) / (2 * N / 5 / 64); /* 1.24 s of its 1.248 */
    looks = 0;
    if (hf_encode(t, text, N, &ids, &err) != TT_OK)
        fail_msg("%s", err.text);
    assert_in_range(looks, 2 * N / 5 / 64, 2 * N / 5 / 64 + 1);
    free(text);
    tt_ids_free(&ids);
    hf_close(t);
}

/* A process that is stopped for a while, as by SIGSTOP or a suspended machine, is not refused. */
static void test_hf_patterns_are_not_charged_for_waiting(void **state)
{
    (void)state;
    hf_regex *r = NULL;
    hf_matcher *m = NULL;
    tt_error err = {0};
    static const uint8_t text[1000] = {0};
    size_t begin, end = 0;
    assert_int_equal(hf_regex_new("\\x00", HF_RUST, &r, &err), TT_OK);
    assert_int_equal(hf_matcher_new(r, &m, &err), TT_OK);
    step_ns = 1000;
    looks = 0;
    for (int i = 0; i < 200; i++)
        assert_int_equal(hf_regex_find(r, m, text, sizeof text, end, &begin, &end, &err), TT_OK);
    assert_int_equal(looks, 4); /* at the thread's clock; the others have run for an hour */
    hf_matcher_free(m);
    hf_regex_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hf_quadratic_patterns_end),
        cmocka_unit_test(test_hf_linear_patterns_have_the_time_they_need),
        cmocka_unit_test(test_hf_patterns_are_not_charged_for_waiting),
    };
    return cmocka_run_group_tests(tests, load_golden, free_golden);
}
