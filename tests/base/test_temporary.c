/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/base.h"
#include "folder_test.h"
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* What killed processes leave is removed; what live ones use, and what a user made, is not. */

static char folder[TEST_FOLDER];

static const char *in_folder(const char *name)
{
    static char path[4][512];
    static int k;
    snprintf(path[k = (k + 1) % 4], sizeof path[0], "%s/%s", folder, name);
    return path[k];
}

static void make_file(const char *name)
{
    const int fd = open(in_folder(name), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
}

static void test_unfinished_files_of_nobody_are_removed(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool kept;
    } files[] = {
        {"run.json.tmp.4711.0",      false},
        {"a.tmp.1.2.tmp.33.44",      false},
        {"run.json.tmp.4711",        true },
        {"run.json.tmp.4711.",       true },
        {"run.json.tmp..0",          true },
        {"run.json.tmp.x.0",         true },
        {"run.json.tmp.4711.0.mine", true },
        {"run.json",                 true },
        {".tmp.1.2",                 true },
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        make_file(files[i].name);
    assert_int_equal(mkdir(in_folder("folder.tmp.1.2"), 0700), 0);
    assert_int_equal(symlink("run.json", in_folder("link.tmp.1.2")), 0);
    tt_unfinished_clear(folder);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (tt_path_exists(in_folder(files[i].name)) != files[i].kept)
            fail_msg("%s is %s", files[i].name, files[i].kept ? "gone" : "still there");
    assert_true(tt_path_exists(in_folder("folder.tmp.1.2")));
    assert_true(tt_path_exists(in_folder("link.tmp.1.2")));
}

/* Writers and clearers at once: no write fails, and no file is left. */
static void test_unfinished_files_in_use_are_kept(void **state)
{
    (void)state;
    pid_t pids[4];
    int status;
    for (int i = 0; i < 4; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            for (int k = 0; k < 300; k++) {
                if (i < 2 && tt_write_file_atomic(in_folder("shared"), "text", 4, NULL) != TT_OK)
                    _exit(1);
                if (i >= 2)
                    tt_unfinished_clear(folder);
            }
            _exit(0);
        }
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    char *text = NULL;
    size_t n = 0;
    assert_int_equal(tt_read_file(in_folder("shared"), 0, &text, &n, NULL), TT_OK);
    assert_int_equal(n, 4);
    free(text);
}

static void test_temporary_folders_live_as_long_as_their_process(void **state)
{
    (void)state;
    tt_temporary mine, other;
    int ready[2], status;
    char path[512] = "";
    assert_true(tt_temporary_new("test", &mine));
    assert_int_equal(strncmp(mine.path, folder, strlen(folder)), 0);
    assert_int_equal(pipe(ready), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        if (!tt_temporary_new("test", &other) || mkdir(in_folder("x"), 0700) != 0)
            _exit(1);
        snprintf(path, sizeof path, "%s/inner", other.path);
        if (mkdir(path, 0700) != 0)
            _exit(1);
        strcat(path, "/file");
        if (tt_write_file_atomic(path, "x", 1, NULL) != TT_OK ||
            write(ready[1], other.path, strlen(other.path)) < 0)
            _exit(1);
        pause();
    }
    assert_true(read(ready[0], path, sizeof path - 1) > 0);
    tt_temporary_clear("test");
    assert_true(tt_path_exists(path)); /* both are in use */
    assert_true(tt_path_exists(mine.path));
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(tt_path_exists(path));
    tt_temporary_clear("another");
    assert_true(tt_path_exists(path));
    tt_temporary_clear("test");
    assert_false(tt_path_exists(path));
    assert_true(tt_path_exists(mine.path));
    snprintf(path, sizeof path, "%s", mine.path);
    tt_temporary_remove(&mine);
    assert_false(tt_path_exists(path));
    tt_temporary_remove(&mine); /* none */
    close(ready[0]);
    close(ready[1]);
}

/* A user's folder whose name fits is not ours without the mark. */
static void test_temporary_folders_of_a_user_are_kept(void **state)
{
    (void)state;
    assert_int_equal(mkdir(in_folder("ttrun-test-backup"), 0700), 0);
    make_file("ttrun-test-backup/thesis.txt");
    assert_int_equal(mkdir(in_folder("ttrun-test-empty1"), 0700), 0);
    tt_temporary_clear("test");
    assert_true(tt_path_exists(in_folder("ttrun-test-backup/thesis.txt")));
    assert_true(tt_path_exists(in_folder("ttrun-test-empty1")));
}

/* What any user of the machine may put into TMPDIR, where another's leftovers are removed. */
static void test_links_lead_nowhere(void **state)
{
    (void)state;
    static const char *const marks[] = {".lock", ".ttrun-temporary"};
    assert_int_equal(mkdir(in_folder("run"), 0700), 0); /* a folder of this user, with every mark */
    make_file("run/metrics.jsonl");
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        char name[64];
        snprintf(name, sizeof name, "run/%s", marks[i]);
        make_file(name);
    }
    assert_int_equal(symlink("run", in_folder("ttrun-test-AAAAAA")), 0);
    assert_int_equal(mkdir(in_folder("ttrun-test-BBBBBB"), 0700), 0); /* its mark is another's */
    make_file("ttrun-test-BBBBBB/thesis.txt");
    assert_int_equal(
        symlink("../run/.ttrun-temporary", in_folder("ttrun-test-BBBBBB/.ttrun-temporary")), 0);
    assert_int_equal(mkdir(in_folder("ttrun-test-CCCCCC"), 0755), 0); /* mkdtemp makes it 0700 */
    make_file("ttrun-test-CCCCCC/.ttrun-temporary");
    tt_temporary_clear("test");
    assert_true(tt_path_exists(in_folder("run/metrics.jsonl")));
    assert_true(tt_path_exists(in_folder("run/.ttrun-temporary")));
    assert_true(tt_path_exists(in_folder("ttrun-test-BBBBBB/thesis.txt")));
    assert_true(tt_path_exists(in_folder("ttrun-test-CCCCCC/.ttrun-temporary")));
}

/* Links in a folder go, and what they lead to stays; a folder that has another's place stays, too. */
static void test_only_the_folder_itself_is_removed(void **state)
{
    (void)state;
    tt_temporary mine;
    char at[600], moved[600];
    assert_int_equal(mkdir(in_folder("run"), 0700), 0);
    make_file("run/metrics.jsonl");
    assert_true(tt_temporary_new("test", &mine));
    snprintf(at, sizeof at, "%s/link", mine.path);
    assert_int_equal(symlink("../run", at), 0);
    snprintf(at, sizeof at, "%s", mine.path);
    tt_temporary_remove(&mine);
    assert_false(tt_path_exists(at));
    assert_true(tt_path_exists(in_folder("run/metrics.jsonl")));

    assert_true(tt_temporary_new("test", &mine));
    snprintf(at, sizeof at, "%s", mine.path);
    snprintf(moved, sizeof moved, "%s.moved", mine.path);
    assert_int_equal(rename(at, moved), 0);
    make_file("run/.ttrun-temporary");
    assert_int_equal(rename(in_folder("run"), at), 0);
    tt_temporary_remove(&mine);
    strcat(at, "/metrics.jsonl");
    assert_true(tt_path_exists(at));
}

static char *outside; /* TMPDIR as the runner set it */

static int make_folder(void **state)
{
    (void)state;
    outside = getenv("TMPDIR") ? strdup(getenv("TMPDIR")) : NULL;
    return test_folder("temporary", folder) && setenv("TMPDIR", folder, 1) == 0 ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    if (outside)
        setenv("TMPDIR", outside, 1);
    else
        unsetenv("TMPDIR");
    free(outside);
    return tt_remove_tree(folder, NULL) == TT_OK ? 0 : -1;
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        T(test_unfinished_files_of_nobody_are_removed),
        T(test_unfinished_files_in_use_are_kept),
        T(test_temporary_folders_live_as_long_as_their_process),
        T(test_temporary_folders_of_a_user_are_kept),
        T(test_links_lead_nowhere),
        T(test_only_the_folder_itself_is_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
