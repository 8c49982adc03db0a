/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "corpus_test.h"
#include <sys/file.h>

/* The token cache when processes die or collide, when the disk is full, and when files are
 * damaged. */

/* The process is killed in the middle, twice; what was stored stays, and the result is the same. */
static void test_corpus_continues_after_a_kill(void **state)
{
    (void)state;
    enum { LINES = 4000 };
    write_lines("a.txt", LINES / 2, 2500, 1); /* 10 MB: ten blocks */
    write_lines("b.txt", LINES / 2, 2500, 2);
    atomic_store(&shared->write_ns,
                 300000000); /* two writes per block: a record after two blocks */
    for (int round = 1; round <= 2; round++) {
        atomic_store(&shared->die_at, atomic_load(&shared->writes) + (round == 1 ? 16 : 6));
        const pid_t pid = fork();
        if (pid == 0) {
            tt_tokens *t;
            _exit(open_files(two, 2, folder, "lines 1", false, &t, NULL) == TT_OK ? 0 : 1);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        assert_int_equal(cached(".tokens", NULL), 0);
        assert_int_equal(cached(".part", NULL), 1);
    }
    forget();
    tt_tokens *whole = open_ok(two, 2, "off");
    forget();
    tt_tokens *t = open_ok(two, 2, folder);
    assert_in_range(atomic_load(&shared->encoded), 1, LINES - 2800); /* seven blocks stayed */
    assert_int_equal(cached(".part", NULL) + cached(".part-docs", NULL), 0);
    assert_int_equal(t->n_documents, LINES);
    check_same(t, whole);
}

/* Of this process: whether it has been told that another one has the lock. */
int flock(int fd, int how)
{
    static bool refused;
    const int rc = (int)syscall(SYS_flock, fd, how);
    if (rc && errno == EWOULDBLOCK && !refused) {
        refused = true;
        atomic_fetch_add(&shared->go, 1);
    }
    return rc;
}

/* The one that builds goes on only when the two others wait for it. */
static void test_corpus_two_processes_build_once(void **state)
{
    (void)state;
    pid_t pids[3];
    write_lines("a.txt", 400, 40, 7);
    atomic_store(&shared->wait_at, 1);
    atomic_store(&shared->go, -1);
    for (int i = 0; i < 3; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            tt_tokens *t;
            _exit(open_files(two, 1, folder, "lines 1", false, &t, NULL) == TT_OK && t->cache ? 0
                                                                                              : 1);
        }
    }
    for (int i = 0; i < 3; i++) {
        int status = -1;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(shared->encoded, 400);
    assert_int_equal(cached(".tokens", NULL), 1);
    assert_int_equal(cached("", NULL), 2 + 1 + cached(".key", NULL));
}

static void test_corpus_full_disk_keeps_tokens_in_memory(void **state)
{
    (void)state;
    write_lines("a.txt", 1500, 2000, 1);
    write_lines("b.txt", 1500, 2000, 2);
    const int64_t room[] = {0, 100, 5000, 1 << 20, 3 << 20, (6 << 20) + 12345, 12012096 + 4096};
    for (size_t i = 0; i < TT_COUNT(room); i++) {
        fresh(NULL);
        atomic_store(&shared->full_at, room[i]);
        tt_tokens *t = open_ok(two, 2, folder);
        assert_int_equal(shared->encoded, 3000); /* none twice */
        assert_null(t->cache);
        assert_int_equal(cached("", NULL), 2);
        atomic_store(&shared->full_at, -1);
        check_same(t, open_ok(two, 2, "off"));
    }
}

static void test_corpus_leaves_a_hundredth_of_the_disk(void **state)
{
    (void)state;
    write_lines("a.txt", 1500, 2000, 1);
    for (int percent = 0; percent <= 1; percent++) {
        fresh(NULL);
        atomic_store(&shared->free_percent, percent);
        tt_tokens *t = open_ok(two, 1, folder);
        assert_int_equal(t->cache != NULL, percent);
        check_same(t, open_ok(two, 1, "off"));
    }
}

/* As from a compressed file, or a table that repeats a value. */
static tt_status read_much(void *user, const char *path, tt_documents *to, tt_error *err)
{
    (void)user;
    (void)path;
    char *text = calloc(1, 1 << 20);
    memset(text, 'a', 1 << 20);
    tt_status s = TT_OK;
    for (int i = 0; s == TT_OK && i < 18; i++)
        s = tt_documents_add(to, text, 1 << 20, i, err);
    free(text);
    return s;
}

static void test_corpus_says_that_text_is_much_longer_than_its_files(void **state)
{
    (void)state;
    char said[256], *text;
    size_t n;
    path_of("said", said);
    tt_log_setup(TT_WARN, 0, 1, false);
    for (int lines = 1; lines <= 1000;
         lines += 999) { /* 20 bytes of file, then 20,000: 944 times */
        write_lines("a.txt", lines, 19, 1);
        const int kept = dup(2), to = open(said, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        dup2(to, 2);
        reader_of_files = read_much;
        tt_tokens *t = open_ok(two, 1, "off");
        reader_of_files = read_lines;
        dup2(kept, 2);
        close(kept);
        close(to);
        assert_int_equal(tt_read_file(said, 0, &text, &n, NULL), TT_OK);
        const char *line = strstr(text, "the text is more than 1000 times as long as its files (");
        assert_int_equal(line != NULL, lines == 1);
        assert_true(!line || !strstr(line + 1, "the text is more than"));
        free(text);
        tt_tokens_close(t);
    }
    tt_log_setup(TT_ERROR, 0, 1, false);
}

static void test_corpus_without_a_usable_folder_keeps_tokens_in_memory(void **state)
{
    (void)state;
    char below[256];
    write_lines("a.txt", 20, 40, 1);
    path_of("a.txt/cache", below);
    tt_tokens *t = open_ok(two, 1, below);
    assert_null(t->cache);
    assert_non_null(strstr(t->note, "a.txt"));
    check_same(t, open_ok(two, 1, "off"));
}

static void spoil(const char *path, int64_t at, int64_t length)
{
    unsigned char byte;
    const int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    if (length >= 0)
        assert_int_equal(ftruncate(fd, length), 0);
    if (at >= 0) {
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= 0x10;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    }
    close(fd);
}

static void test_corpus_rebuilds_a_damaged_cache(void **state)
{
    (void)state;
    char path[512];
    struct stat st;
    write_lines("a.txt", 100, 30, 1);
    tt_tokens_close(open_ok(two, 1, folder));
    assert_int_equal(cached(".tokens", path), 1);
    assert_int_equal(stat(path, &st), 0);
    /* each byte of the head; cut and grown; the index, where documents are asked for */
    const int64_t head = 128, n = head + 5 + 1;
    for (int64_t i = 0; i < n; i++) {
        const int64_t lengths[] = {0, 100, 4096, st.st_size - 1, st.st_size + 8};
        forget();
        if (i < head)
            spoil(path, i, -1);
        else if (i < head + 5)
            spoil(path, -1, lengths[i - head]);
        else
            spoil(path, st.st_size - 8 * 50, -1);
        tt_tokens *t = NULL;
        tt_error err = {0};
        assert_int_equal(open_files(two, 1, folder, "lines 1", i == n - 1, &t, &err), TT_OK);
        assert_int_equal(shared->encoded, 100);
        assert_int_equal(cached(".tokens", NULL), 1);
        check_same(t, open_ok(two, 1, "off"));
    }
}

/* A build's record is ignored if it is incomplete or counts tokens that do not exist. */
static void test_corpus_restarts_a_damaged_build(void **state)
{
    (void)state;
    char part[512];
    write_lines("a.txt", 1000, 3000, 1);
    atomic_store(&shared->write_ns, 1100000000);
    for (int round = 0; round < 3; round++) {
        atomic_store(&shared->die_at, atomic_load(&shared->writes) + 5);
        const pid_t pid = fork();
        if (pid == 0) {
            tt_tokens *t;
            open_files(two, 1, folder, "lines 1", false, &t, NULL);
            _exit(0);
        }
        int status;
        waitpid(pid, &status, 0);
        if (!WIFSIGNALED(status))
            fail_msg("round %d: status %x, %lld encoded", round, status,
                     (long long)shared->encoded);
        assert_int_equal(cached(".part", part), 1);
        if (round == 0)
            spoil(part, -1, 5000); /* tokens are gone, records there */
        struct stat st;
        assert_int_equal(stat(part, &st), 0);
        for (int i = 0; i < 2 && round == 1; i++)
            if (st.st_size > 2048) /* else it died with its first block */
                spoil(part, 1024 + 512 * i + 30, -1);
        if (round == 1)
            atomic_store(&shared->write_ns, 0);
    }
    const int64_t before = atomic_load(&shared->encoded);
    atomic_store(&shared->die_at, 0);
    cached(".part-docs", part);
    spoil(part, -1, 8);
    tt_tokens *t = open_ok(two, 1, folder);
    assert_int_equal(atomic_load(&shared->encoded) - before, 1000);
    check_same(t, open_ok(two, 1, "off"));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup(name, fresh)
    const struct CMUnitTest tests[] = {
        T(test_corpus_continues_after_a_kill),
        T(test_corpus_two_processes_build_once),
        T(test_corpus_full_disk_keeps_tokens_in_memory),
        T(test_corpus_leaves_a_hundredth_of_the_disk),
        T(test_corpus_says_that_text_is_much_longer_than_its_files),
        T(test_corpus_without_a_usable_folder_keeps_tokens_in_memory),
        T(test_corpus_rebuilds_a_damaged_cache),
        T(test_corpus_restarts_a_damaged_build),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
