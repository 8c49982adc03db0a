/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/base.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <ttrun/option.h>
#include <unistd.h>
/* cmocka needs the headers above */
#include <cmocka.h>

static tt_arena *arena;
static char *folder;

static int setup(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    arena = tt_arena_new();
    folder = tt_arena_printf(arena, "%s/ttrun-file-XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    tt_status s = tt_remove_tree(folder, NULL);
    bool gone = !tt_path_exists(folder);
    tt_arena_free(arena);
    return s == TT_OK && gone ? 0 : -1;
}

static const char *in_folder(const char *name)
{
    return tt_path_join(arena, folder, name);
}

static void test_file_write_then_read(void **state)
{
    (void)state;
    tt_error err = {0};
    const char *path = in_folder("a.bin");
    char *text = NULL;
    size_t n = 0;
    assert_int_equal(tt_write_file_atomic(path, "hello\0world", 11, &err), TT_OK);
    assert_int_equal(tt_read_file(path, 11, &text, &n, &err), TT_OK);
    assert_int_equal(n, 11);
    assert_memory_equal(text, "hello\0world", 12); /* and terminated */
    free(text);
    assert_int_equal(tt_write_file_atomic(path, NULL, 0, &err), TT_OK); /* replaced */
    assert_int_equal(tt_read_file(path, 0, &text, &n, &err), TT_OK);
    assert_int_equal(n, 0);
    assert_string_equal(text, "");
    free(text);
}

static void test_file_read_refuses(void **state)
{
    (void)state;
    tt_error err = {0};
    char *text = (char *)1;
    size_t n = 77;
    assert_int_equal(tt_read_file(in_folder("absent"), 100, &text, &n, &err), TT_ENOTFOUND);
    assert_non_null(strstr(err.text, "absent: cannot open: No such file"));
    assert_int_equal(tt_read_file(folder, 100, &text, &n, &err), TT_EINVAL);
    assert_int_equal(tt_write_file_atomic(in_folder("big"), "12345", 5, &err), TT_OK);
    assert_int_equal(tt_read_file(in_folder("big"), 4, &text, &n, &err), TT_EINVAL);
    assert_ptr_equal(text, (char *)1); /* untouched */
    assert_int_equal(n, 77);
}

static void test_file_reads_a_file_of_unknown_size(void **state)
{
    (void)state;
    char *text = NULL;
    size_t n = 0;
    assert_int_equal(tt_read_file("/proc/self/status", 1 << 20, &text, &n, NULL), TT_OK);
    assert_true(n > 100 && strlen(text) == n);
    free(text);
    tt_error err = {0};
    assert_int_equal(tt_read_file("/proc/self/status", 10, &text, &n, &err), TT_EINVAL);
}

static void test_file_failed_write_leaves_nothing(void **state)
{
    (void)state;
    tt_error err = {0};
    assert_int_equal(tt_mkdirs(in_folder("target/inner"), &err), TT_OK);
    /* a folder cannot be replaced by a file */
    assert_true(tt_write_file_atomic(in_folder("target"), "x", 1, &err) != TT_OK);
    assert_true(err.text[0] != '\0');
    char *cmd = tt_arena_printf(arena, "%s/target.tmp.%ld.*", folder, (long)getpid());
    for (int i = 0; i < 100; i++) {
        char *tmp = tt_arena_printf(arena, "%.*s%d", (int)strlen(cmd) - 1, cmd, i);
        assert_false(tt_path_exists(tmp));
    }
    assert_int_equal(tt_write_file_atomic(in_folder("no/such/x"), "x", 1, &err), TT_ENOTFOUND);
}

/* Reads a pipe to its end, by pieces of an odd size, and hashes the bytes. */
static void *drain(void *arg)
{
    unsigned char piece[997];
    ssize_t k;
    uint64_t h = 0;
    const int *fd = arg;
    while ((k = read(*fd, piece, sizeof piece)) > 0)
        for (ssize_t i = 0; i < k; i++)
            h = h * 1099511628211u + piece[i];
    return (void *)(uintptr_t)h;
}

static volatile sig_atomic_t n_alarms;

static void on_alarm(int sig)
{
    (void)sig;
    n_alarms = n_alarms + 1;
}

/* A timer interrupts the writes (SA_RESTART is off): those to a full pipe end with EINTR, or after
 * a part of the bytes. */
static void test_write_all_survives_signals_and_short_writes(void **state)
{
    const struct sigaction act = {.sa_handler = on_alarm};
    const struct itimerval every =
                               {
                                   {0, 200},
                                   {0, 200}
    },
                           never = {{0, 0}, {0, 0}};
    const size_t n = (size_t)1 << 20;
    unsigned char *bytes = malloc(n);
    struct sigaction before;
    sigset_t alarms, mask;
    pthread_t reader;
    void *hash = NULL;
    uint64_t want = 0;
    int fd[2];
    (void)state;
    assert_non_null(bytes);
    assert_int_equal(pipe2(fd, O_CLOEXEC), 0);
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarms, &mask); /* only the writer gets the signals */
    assert_int_equal(pthread_create(&reader, NULL, drain, &fd[0]), 0);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    sigaction(SIGALRM, &act, &before);
    setitimer(ITIMER_REAL, &every, NULL);
    bool written = true;
    for (int round = 0; round < 1000 && (round < 4 || n_alarms < 20); round++) {
        for (size_t i = 0; i < n; i++) {
            bytes[i] = (unsigned char)(i * 31 + i / 256 + (size_t)round);
            want = want * 1099511628211u + bytes[i];
        }
        written = written && tt_write_all(fd[1], bytes, n);
    }
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &before, NULL);
    close(fd[1]);
    pthread_join(reader, &hash);
    close(fd[0]);
    free(bytes);
    assert_true(written);
    assert_true(n_alarms >= 20);
    assert_true((uint64_t)(uintptr_t)hash == want);
}

static void test_write_all_says_why_it_fails(void **state)
{
    (void)state;
    const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_true(full >= 0);
    assert_true(tt_write_all(full, NULL, 0));
    assert_false(tt_write_all(full, "x", 1));
    assert_int_equal(errno, ENOSPC);
    close(full);
    assert_false(tt_write_all(full, "x", 1));
    assert_int_equal(errno, EBADF);
}

static void test_mkdirs_makes_all_levels(void **state)
{
    (void)state;
    tt_error err = {0};
    assert_int_equal(tt_mkdirs(in_folder("a/b//c/"), &err), TT_OK);
    assert_true(tt_path_exists(in_folder("a/b/c")));
    assert_int_equal(tt_mkdirs(in_folder("a/b"), &err), TT_OK); /* there already */
    assert_int_equal(tt_write_file_atomic(in_folder("a/file"), "x", 1, &err), TT_OK);
    assert_int_equal(tt_mkdirs(in_folder("a/file/d"), &err), TT_EEXIST);
    assert_int_equal(tt_fsync_path(in_folder("a"), &err), TT_OK);
    assert_int_equal(tt_fsync_path(in_folder("zzz"), &err), TT_ENOTFOUND);
}

static void test_remove_tree_does_not_follow_links(void **state)
{
    (void)state;
    tt_error err = {0};
    assert_int_equal(tt_mkdirs(in_folder("keep"), &err), TT_OK);
    assert_int_equal(tt_write_file_atomic(in_folder("keep/f"), "x", 1, &err), TT_OK);
    assert_int_equal(tt_mkdirs(in_folder("drop/x/y"), &err), TT_OK);
    assert_int_equal(tt_write_file_atomic(in_folder("drop/x/f"), "x", 1, &err), TT_OK);
    assert_int_equal(symlink(in_folder("keep"), in_folder("drop/x/link")), 0);
    assert_int_equal(symlink("nowhere", in_folder("drop/dangling")), 0);
    assert_int_equal(tt_remove_tree(in_folder("drop"), &err), TT_OK);
    assert_false(tt_path_exists(in_folder("drop")));
    assert_true(tt_path_exists(in_folder("keep/f")));
    assert_int_equal(tt_remove_tree(in_folder("drop"), &err), TT_OK);   /* absent: nothing to do */
    assert_int_equal(tt_remove_tree(in_folder("keep/f"), &err), TT_OK); /* one file */
    assert_false(tt_path_exists(in_folder("keep/f")));
}

static void test_map_file_shows_the_bytes(void **state)
{
    (void)state;
    tt_error err = {0};
    tt_mapping m = {0};
    assert_int_equal(tt_write_file_atomic(in_folder("m"), "abc", 3, &err), TT_OK);
    assert_int_equal(tt_map_file(in_folder("m"), &m, &err), TT_OK);
    assert_int_equal(m.n, 3);
    assert_memory_equal(m.p, "abc", 3);
    tt_unmap_file(&m);
    assert_null(m.p);
    assert_int_equal(tt_write_file_atomic(in_folder("m"), NULL, 0, &err), TT_OK);
    assert_int_equal(tt_map_file(in_folder("m"), &m, &err), TT_OK);
    assert_int_equal(m.n, 0);
    tt_unmap_file(&m);
    assert_int_equal(tt_map_file(folder, &m, &err), TT_EINVAL);
    assert_int_equal(tt_map_file(in_folder("none"), &m, &err), TT_ENOTFOUND);
}

static void test_paths_join_and_dir(void **state)
{
    (void)state;
    static const char *const joins[][3] = {
        {"a",  "b",  "a/b"},
        {"a/", "b",  "a/b"},
        {"a",  "/b", "/b" },
        {"",   "b",  "b"  },
        {"/",  "b",  "/b" }
    };
    for (size_t i = 0; i < TT_COUNT(joins); i++)
        assert_string_equal(tt_path_join(arena, joins[i][0], joins[i][1]), joins[i][2]);
    static const char *const dirs[][2] = {
        {"a/b",  "a" },
        {"b",    "." },
        {"/b",   "/" },
        {"/",    "/" },
        {"",     "." },
        {"a/b/", "a" },
        {"a//b", "a" },
        {"/a/b", "/a"}
    };
    for (size_t i = 0; i < TT_COUNT(dirs); i++)
        assert_string_equal(tt_path_dir(arena, dirs[i][0]), dirs[i][1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file_write_then_read),
        cmocka_unit_test(test_file_read_refuses),
        cmocka_unit_test(test_file_reads_a_file_of_unknown_size),
        cmocka_unit_test(test_file_failed_write_leaves_nothing),
        cmocka_unit_test(test_write_all_survives_signals_and_short_writes),
        cmocka_unit_test(test_write_all_says_why_it_fails),
        cmocka_unit_test(test_mkdirs_makes_all_levels),
        cmocka_unit_test(test_remove_tree_does_not_follow_links),
        cmocka_unit_test(test_map_file_shows_the_bytes),
        cmocka_unit_test(test_paths_join_and_dir),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
