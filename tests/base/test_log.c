/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/base.h"
#include "folder_test.h"
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
/* cmocka needs the headers above */
#include <cmocka.h>

/* Between begin and end stderr goes to memory; end returns the text, which the caller frees. */
static int saved_stderr, captured;

static void capture_begin(void)
{
    saved_stderr = dup(STDERR_FILENO);
    captured = memfd_create("stderr", 0);
    assert_true(saved_stderr >= 0 && captured >= 0);
    dup2(captured, STDERR_FILENO);
}

static char *capture_end(void)
{
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    off_t n = lseek(captured, 0, SEEK_END);
    char *text = calloc((size_t)n + 1, 1);
    assert_non_null(text);
    assert_int_equal(pread(captured, text, (size_t)n, 0), n);
    close(captured);
    return text;
}

static void test_log_line_format(void **state)
{
    (void)state;
    capture_begin();
    tt_log_setup(TT_INFO, 0, 4, false);
    tt_log(TT_INFO, "data", "two\nlines %d\n", 7);
    tt_log(TT_DEBUG, "data", "not shown");
    char *text = capture_end();
    assert_memory_equal(text, "[r0 +0.", 7);
    assert_non_null(strstr(text, "s I data] two lines 7\n"));
    assert_null(strstr(text, "not shown"));
    assert_true(strchr(text, '\n') == text + strlen(text) - 1); /* one line */
    free(text);
}

static void test_log_other_ranks_only_warn(void **state)
{
    (void)state;
    capture_begin();
    tt_log_setup(TT_DEBUG, 3, 4, false);
    tt_log(TT_INFO, "x", "quiet");
    tt_log(TT_WARN, "x", "loud");
    tt_log_set_thread_rank(0); /* a rank-thread goes by its own number */
    tt_log(TT_INFO, "x", "thread");
    tt_log_set_thread_rank(-1);
    char *text = capture_end();
    assert_null(strstr(text, "quiet"));
    assert_memory_equal(text, "[r3 +", 5);
    assert_non_null(strstr(text, "W x] loud\n[r0 +"));
    assert_non_null(strstr(text, "I x] thread\n"));
    free(text);
}

static void test_log_long_line_is_cut(void **state)
{
    (void)state;
    static char words[10000];
    memset(words, 'w', sizeof words - 1);
    capture_begin();
    tt_log_setup(TT_INFO, 0, 1, false);
    tt_log(TT_INFO, "x", "%s", words);
    char *text = capture_end();
    assert_in_range(strlen(text), 4000, 4096);
    assert_int_equal(text[strlen(text) - 1], '\n');
    free(text);
}

/* No byte of a control character reaches the terminal, but tabs. */
static void test_log_lines_hold_no_control_characters(void **state)
{
    (void)state;
    capture_begin();
    tt_log_setup(TT_INFO, 0, 1, false);
    tt_log(TT_INFO, "x", "a\033[m\x7f\tb\nc\r\xc2\x9bm\xc3\xa9.");
    char *text = capture_end();
    assert_non_null(strstr(text, " x] a?[m?\tb c ??m\xc3\xa9.\n"));
    free(text);
}

static void redraw(void *arg)
{
    assert_int_equal(write(STDERR_FILENO, arg, strlen(arg)), strlen(arg));
}

static void test_log_redraws_a_held_bar(void **state)
{
    (void)state;
    capture_begin();
    tt_log_setup(TT_INFO, 0, 1, false);
    tt_log_set_redraw(redraw, "BAR");
    tt_log_hold(true);
    tt_log(TT_INFO, "x", "one");
    tt_log_hold(false);
    tt_log(TT_INFO, "x", "two");
    tt_log_set_redraw(NULL, NULL);
    char *text = capture_end();
    assert_memory_equal(text, "\r\033[J[r0 ", 8);
    assert_non_null(strstr(text, "one\nBAR[r0 "));
    assert_memory_equal(text + strlen(text) - 4, "two\n", 4);
    free(text);
}

static void *logger(void *arg)
{
    for (int i = 0; i < 200; i++)
        tt_log(TT_INFO, "t", "%s", (const char *)arg);
    return NULL;
}

static void test_log_lines_of_threads_do_not_mix(void **state)
{
    (void)state;
    pthread_t t[4];
    static char *const words[] = {"aaaaaaaa", "bbbbbbbb", "cccccccc", "dddddddd"};
    capture_begin();
    tt_log_setup(TT_INFO, 0, 1, false);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&t[i], NULL, logger, words[i]), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    char *text = capture_end();
    int lines = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), lines++) {
        assert_memory_equal(line, "[r0 +", 5);
        const char *word = strstr(line, "] ") + 2;
        assert_int_equal(strlen(word), 8);
        assert_int_equal(strspn(word, (char[]){word[0], '\0'}), 8);
    }
    assert_int_equal(lines, 800);
    free(text);
}

/* A caller that logs before it looks at errno sees its own, also when a line that is for the file alone cannot be written. */
static void test_log_keeps_errno(void **state)
{
    tt_error err = {0};
    (void)state;
    char path[TEST_FOLDER + 16], folder[TEST_FOLDER];
    struct rlimit limit, none;
    assert_true(test_folder("log", folder));
    snprintf(path, sizeof path, "%s/log", folder);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    none = (struct rlimit){0, limit.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    tt_log_setup(TT_INFO, 3, 4, false);
    const tt_status s = tt_log_file_open(3, path, &err);
    char text[400] = "";
    int to[2]; /* the limit is not one of pipes */
    assert_int_equal(pipe(to), 0);
    const int kept = dup(STDERR_FILENO);
    dup2(to[1], STDERR_FILENO);
    setrlimit(RLIMIT_FSIZE, &none);
    errno = EDOM;
    tt_log(TT_INFO, "x", "line");
    const int after = errno;
    setrlimit(RLIMIT_FSIZE, &limit);
    dup2(kept, STDERR_FILENO);
    close(to[1]);
    assert_true(read(to[0], text, sizeof text - 1) > 0);
    close(to[0]);
    close(kept);
    tt_log_file_close(3);
    assert_int_equal(s, TT_OK);
    assert_int_equal(after, EDOM);
    assert_non_null(strstr(text, "a log file cannot be written"));
    assert_true(test_folder_remove(folder));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log_line_format),
        cmocka_unit_test(test_log_other_ranks_only_warn),
        cmocka_unit_test(test_log_long_line_is_cut),
        cmocka_unit_test(test_log_lines_hold_no_control_characters),
        cmocka_unit_test(test_log_redraws_a_held_bar),
        cmocka_unit_test(test_log_lines_of_threads_do_not_mix),
        cmocka_unit_test(test_log_keeps_errno),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
