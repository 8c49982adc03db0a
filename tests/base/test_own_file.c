/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/base.h"
#include "folder_test.h"
#include <fcntl.h>
#include <setjmp.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <ttrun/files.h>
#include <unistd.h>

#include <cmocka.h>

/* Files that ttrun alone writes, and folders that it alone removes: nothing elsewhere is touched. */

static char folder[TEST_FOLDER];

static const char *in_folder(const char *name)
{
    static char path[4][512];
    static int k;
    snprintf(path[k = (k + 1) % 4], sizeof path[0], "%s/%s", folder, name);
    return path[k];
}

static void put(const char *name, const char *text)
{
    assert_int_equal(tt_write_file_atomic(in_folder(name), text, strlen(text), NULL), TT_OK);
}

static void assert_text(const char *name, const char *want)
{
    char *text = NULL;
    size_t n;
    assert_int_equal(tt_read_file(in_folder(name), 0, &text, &n, NULL), TT_OK);
    assert_string_equal(text, want);
    free(text);
}

static void assert_opens(const char *name, int flags, tt_status want, const char *why)
{
    tt_error err = {0};
    int fd = 0;
    const tt_status s = tt_open_own(in_folder(name), flags, 0600, &fd, &err);
    if (s != want || (fd >= 0) != (want == TT_OK) || (why && !strstr(err.text, why)))
        fail_msg("%s, flags %#x: status %d, \"%s\"; expected %d, \"%s\"", name, (unsigned)flags, s,
                 err.text, want, why ? why : "");
    if (fd >= 0)
        assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    if (fd >= 0)
        close(fd);
}

static void test_files(void **state)
{
    (void)state;
    put("notes", "mine");
    put("twice", "mine");
    put("kept", "kept");
    assert_int_equal(link(in_folder("twice"), in_folder("second")), 0);
    assert_int_equal(symlink("notes", in_folder("link")), 0);
    assert_int_equal(symlink("none", in_folder("dangling")), 0);
    assert_int_equal(mkfifo(in_folder("fifo"), 0600), 0);
    assert_int_equal(mkdir(in_folder("folder"), 0700), 0);
    assert_int_equal(symlink("folder", in_folder("elsewhere")), 0);
    const int how[] = {O_RDWR | O_CREAT, O_WRONLY | O_CREAT | O_TRUNC,
                       O_WRONLY | O_CREAT | O_APPEND, O_RDWR};
    for (size_t i = 0; i < sizeof how / sizeof *how; i++) {
        assert_opens("link", how[i], TT_EINVAL, "is a symbolic link");
        assert_opens("dangling", how[i], TT_EINVAL, "is a symbolic link");
        assert_opens("second", how[i], TT_EINVAL, "has a second name");
        assert_opens("fifo", how[i], TT_EINVAL, "is not a regular file");
        assert_opens("folder", how[i], TT_EINVAL, "is not a regular file");
        assert_opens("no/such/folder", how[i], TT_ENOTFOUND, "No such");
    }
    assert_opens("new", O_RDWR, TT_ENOTFOUND, "cannot open");
    assert_opens("new", O_RDWR | O_CREAT | O_EXCL, TT_OK, NULL);
    assert_opens("new", O_RDWR | O_CREAT | O_EXCL, TT_EEXIST, "exists");
    assert_opens("kept", O_WRONLY | O_CREAT | O_APPEND, TT_OK, NULL);
    assert_text("kept", "kept");
    assert_opens("kept", O_WRONLY | O_CREAT | O_TRUNC, TT_OK, NULL);
    assert_text("kept", "");
    assert_opens("elsewhere/new", O_WRONLY | O_CREAT, TT_OK, NULL); /* folders may be links */
    assert_text("notes", "mine");
    assert_text("twice", "mine");
    assert_false(tt_path_exists(in_folder("none")));
}

/* As root: what belongs to others is left alone by a process that is not root. */
static void test_files_of_others(void **state)
{
    (void)state;
    int status;
    if (geteuid() != 0)
        skip();
    put("theirs", "theirs");
    assert_int_equal(chmod(in_folder("theirs"), 0666), 0);
    assert_opens("theirs", O_RDWR, TT_OK, NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        tt_error err = {0};
        int fd;
        if (chdir(folder) != 0 || chmod(folder, 0777) != 0 || setresuid(12345, 12345, 12345) != 0)
            _exit(1);
        const tt_status s = tt_open_own("theirs", O_WRONLY | O_CREAT | O_TRUNC, 0600, &fd, &err);
        _exit(s == TT_EINVAL && strstr(err.text, "belongs to another user") ? 0 : 2);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_text("theirs", "theirs");
}

static tt_status below(const char *base, const char *path)
{
    char at[512];
    snprintf(at, sizeof at, "%s", in_folder(base));
    return tt_remove_below(at, in_folder(path), NULL);
}

static void test_what_lies_below_a_folder(void **state)
{
    (void)state;
    assert_int_equal(tt_mkdirs(in_folder("runs/a/before-1/checkpoint"), NULL), TT_OK);
    assert_int_equal(tt_mkdirs(in_folder("runsother"), NULL), TT_OK);
    assert_int_equal(tt_mkdirs(in_folder("theirs/before-1"), NULL), TT_OK);
    put("theirs/before-1/run.json", "{}");
    assert_int_equal(symlink("../theirs", in_folder("runs/link")), 0);
    assert_int_equal(symlink("../../theirs/before-1", in_folder("runs/a/before-2")), 0);
    assert_int_equal(symlink("../../../theirs", in_folder("runs/a/before-1/link")), 0);
    assert_int_not_equal(below("runs", "runs/link/before-1"), TT_OK);
    assert_int_not_equal(below("runs", "runs/../theirs/before-1"), TT_OK);
    assert_int_not_equal(below("runs", "theirs/before-1"), TT_OK);
    assert_int_not_equal(below("runs", "runsother"), TT_OK);
    assert_int_not_equal(below("runs", "runs"), TT_OK);
    assert_true(tt_path_exists(in_folder("runsother")));
    assert_int_equal(below("runs", "runs/a/before-1"), TT_OK);
    assert_int_equal(below("runs", "runs/a/before-2"), TT_OK); /* the link */
    assert_false(tt_path_exists(in_folder("runs/a/before-1")));
    assert_false(tt_path_is_fd(in_folder("runs/a/before-2"), -1));
    assert_text("theirs/before-1/run.json", "{}");
    assert_int_equal(below("runs/link", "runs/link/before-1"),
                     TT_OK); /* the folder itself may be a link */
    assert_false(tt_path_exists(in_folder("theirs/before-1")));
}

static void test_marked_folders(void **state)
{
    (void)state;
    static const struct {
        const char *made, *text;
        bool link, ours;
    } rows[] = {
        {"none",   NULL,           false, false},
        {"others", "/other/run\n", false, false},
        {"cut",    "/my/run",      false, false},
        {"longer", "/my/run\n\n",  false, false},
        {"empty",  "",             false, false},
        {"a-link", "/my/run\n",    true,  false},
        {"mine",   "/my/run\n",    false, true },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char at[512], name[64];
        tt_error err = {0};
        snprintf(name, sizeof name, "%s%s", rows[i].made, rows[i].link ? ".real" : "");
        assert_int_equal(mkdir(in_folder(name), 0755), 0);
        snprintf(at, sizeof at, "%s/.mark", name);
        if (rows[i].text)
            put(at, rows[i].text);
        snprintf(at, sizeof at, "%s/step-1", name);
        put(at, "weights");
        if (rows[i].link)
            assert_int_equal(symlink(name, in_folder(rows[i].made)), 0);
        assert_int_equal(tt_has_mark(in_folder(rows[i].made), ".mark", "/my/run\n"), rows[i].ours);
        const tt_status s = tt_remove_marked(in_folder(rows[i].made), ".mark", "/my/run\n", &err);
        if ((s == TT_OK) != rows[i].ours || tt_path_exists(in_folder(at)) == rows[i].ours)
            fail_msg("%s: status %d, %s", rows[i].made, s, err.text);
    }
    assert_false(tt_path_exists(in_folder("mine")));
    assert_false(tt_has_mark(in_folder("gone"), ".mark", ""));
    put("file", "");
    assert_false(tt_has_mark(in_folder("file"), ".mark", ""));
}

static int make_folder(void **state)
{
    (void)state;
    return test_folder("own", folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return test_folder_remove(folder) ? 0 : -1;
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        T(test_files),
        T(test_files_of_others),
        T(test_what_lies_below_a_folder),
        T(test_marked_folders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
