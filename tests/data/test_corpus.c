/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "data/cache.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* What both the test and its children see. */
typedef struct {
    _Atomic int64_t encoded, read; /* calls of the tokenizer and of the reader */
    _Atomic int64_t die_at;  /* the call of the tokenizer that is the process's last; 0 = none */
    _Atomic int64_t full_at; /* bytes after which the disk takes no more; -1 = never */
    _Atomic int64_t slow_us;
    _Atomic int stop;
} shared_state;
static shared_state *shared;
static const char *fingerprint = "0123456789abcdef0123456789abcdef";
static char root[64], folder[96];

/* The disk of *.part files, as full as a test wants it. */
ssize_t pwrite(int fd, const void *p, size_t n, off_t at);
ssize_t pwrite(int fd, const void *p, size_t n, off_t at)
{
    char link[64], path[512];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t k = readlink(link, path, sizeof path - 1);
    path[k > 0 ? k : 0] = '\0';
    const int64_t full = shared ? atomic_load(&shared->full_at) : -1;
    if (full >= 0 && strstr(path, ".part") && at + (int64_t)n > full) {
        if (at >= full) {
            errno = ENOSPC;
            return -1;
        }
        n = (size_t)(full - at); /* a part of it still fits */
    }
    return syscall(SYS_pwrite64, fd, p, n, at);
}

/* A byte is its value and one; bos 1 and eos 2 in a vocabulary of 300. */
static void info(void *self, tt_tokenizer_info *out)
{
    (void)self;
    out->vocab_size = 300;
    out->bos = 1;
    out->eos = 2;
    snprintf(out->fingerprint, sizeof out->fingerprint, "%s", fingerprint);
}

static tt_status encode(void *self, const char *text, size_t n, tt_ids *out, tt_error *err)
{
    (void)self;
    if (atomic_fetch_add(&shared->encoded, 1) + 1 == atomic_load(&shared->die_at))
        raise(SIGKILL);
    if (atomic_load(&shared->slow_us))
        usleep((useconds_t)atomic_load(&shared->slow_us));
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '!')
            return TT_FAIL(err, TT_EINVAL, "an exclamation");
        TT_TRY(tt_ids_push(out, (unsigned char)text[i] + 1, err));
    }
    return TT_OK;
}

static const tt_tokenizer_vt tokenizer = {
    .struct_size = sizeof tokenizer, .info = info, .encode = encode};

/* Documents are lines. */
static tt_status read_lines(void *user, const char *path, tt_documents *to, tt_error *err)
{
    char *text, *at;
    size_t n;
    (void)user;
    atomic_fetch_add(&shared->read, 1);
    TT_TRY(tt_read_file(path, 0, &text, &n, err));
    tt_status s = TT_OK;
    for (at = text; s == TT_OK && at < text + n;) {
        const size_t k = strcspn(at, "\n");
        s = tt_documents_add(to, at, k, at - text, err);
        at += k + 1;
    }
    free(text);
    return s;
}

static int stop(void *user)
{
    (void)user;
    return atomic_load(&shared->stop);
}

static void path_of(const char *name, char out[256])
{
    snprintf(out, 256, "%s/%s", root, name);
}

/* `lines` lines of `width` letters from a small generator; seed 0: what the line's number says. */
static void write_lines(const char *name, int lines, int width, uint32_t seed)
{
    char path[256];
    path_of(name, path);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < lines; i++) {
        for (int j = 0; j < width; j++) {
            seed = seed * 1664525u + 1013904223u;
            fputc('a' + (int)(seed >> 24) % 26, f);
        }
        fputc('\n', f);
    }
    fclose(f);
    const struct timespec old[2] = {
        {1000000000,                    0},
        {1000000000 + (int)seed % 1000, 0}
    };
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
}

/* The files as a corpus with the cache in `folder` ("off": none). */
static tt_status open_files(const char *const *names, size_t n, const char *cache,
                            const char *reader, bool mask, tt_tokens **out, tt_error *err)
{
    char paths[4][256], *items[4];
    tt_files files = {items, n, n};
    for (size_t i = 0; i < n; i++) {
        path_of(names[i], paths[i]);
        items[i] = paths[i];
    }
    const tt_dataloader_env env = {.struct_size = sizeof env,
                                   .seq_len = 16,
                                   .vocab_size = 300,
                                   .tokenizer = &tokenizer,
                                   .tokenizer_self = root,
                                   .job_dir = root,
                                   .stop = stop};
    const tt_corpus_opts o = {.struct_size = sizeof o,
                              .env = &env,
                              .files = &files,
                              .read = read_lines,
                              .reader = reader,
                              .cache = cache,
                              .document_mask = mask};
    return tt_corpus_open(&o, out, err);
}

static tt_tokens *open_ok(const char *const *names, size_t n, const char *cache)
{
    tt_tokens *t = NULL;
    tt_error err = {0};
    if (open_files(names, n, cache, "lines 1", false, &t, &err) != TT_OK)
        fail_msg("%s", err.text);
    return t;
}

static int32_t *all_tokens(const tt_tokens *t)
{
    tt_error err;
    int32_t *ids = malloc((size_t)t->n_tokens * sizeof *ids);
    assert_non_null(ids);
    assert_int_equal(tt_tokens_fetch(t, 0, t->n_tokens, ids, &err), TT_OK);
    return ids;
}

/* Both the same tokens and documents; closes both. */
static void check_same(tt_tokens *a, tt_tokens *b)
{
    assert_int_equal(a->n_tokens, b->n_tokens);
    assert_int_equal(a->n_documents, b->n_documents);
    assert_int_equal(a->n_empty, b->n_empty);
    assert_int_equal(a->text_bytes, b->text_bytes);
    int32_t *x = all_tokens(a), *y = all_tokens(b);
    assert_memory_equal(x, y, (size_t)a->n_tokens * sizeof *x);
    for (int64_t i = 0; i < a->n_documents; i++) {
        int64_t s = -1, t = -2;
        assert_int_equal(tt_document_starts(a, i, 1, &s, NULL), TT_OK);
        assert_int_equal(tt_document_starts(b, i, 1, &t, NULL), TT_OK);
        assert_int_equal(s, t);
        assert_int_equal(x[s], 1); /* a bos stands there */
    }
    free(x);
    free(y);
    tt_tokens_close(a);
    tt_tokens_close(b);
}

static void forget(void)
{
    atomic_store(&shared->encoded, 0);
    atomic_store(&shared->read, 0);
    atomic_store(&shared->die_at, 0);
    atomic_store(&shared->full_at, -1);
    atomic_store(&shared->slow_us, 0);
    atomic_store(&shared->stop, 0);
}

static int set_up(void **state)
{
    (void)state;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    snprintf(root, sizeof root, "/tmp/ttrun-corpus-XXXXXX");
    tt_log_setup(TT_ERROR, 0, 1, false);
    return shared == MAP_FAILED || !mkdtemp(root) ? -1 : 0;
}

static int tear_down(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

/* Each test has a cache of its own. */
static int fresh(void **state)
{
    static int number;
    (void)state;
    forget();
    fingerprint = "0123456789abcdef0123456789abcdef";
    snprintf(folder, sizeof folder, "%s/cache%d", root, number++);
    return 0;
}

/* How many files of the cache end so; the last one's path. */
static int cached(const char *end, char path[512])
{
    int n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        const size_t k = strlen(e->d_name), m = strlen(end);
        if (k < m || strcmp(e->d_name + k - m, end) != 0)
            continue;
        n++;
        if (path)
            snprintf(path, 512, "%s/%s", folder, e->d_name);
    }
    if (d)
        closedir(d);
    return n;
}

static const char *const two[] = {"a.txt", "b.txt"};

static void test_corpus_second_start_neither_reads_nor_tokenises(void **state)
{
    (void)state;
    write_lines("a.txt", 300, 40, 1);
    write_lines("b.txt", 200, 40, 2);
    sleep(3); /* else the files are younger than what their times can tell */
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

/* The process is killed in the middle, twice; what was there stays, and the end is the same. */
static void test_corpus_goes_on_after_a_kill(void **state)
{
    (void)state;
    enum { LINES = 4000 };
    write_lines("a.txt", LINES / 2, 2500, 1); /* 10 MB: ten blocks */
    write_lines("b.txt", LINES / 2, 2500, 2);
    atomic_store(&shared->slow_us, 1000); /* 2 s or more on two cores: several records */
    int64_t before = 0;
    for (int round = 1; round <= 2; round++) {
        const int64_t most = atomic_load(&shared->encoded) + (round == 1 ? 3000 : 800);
        atomic_store(&shared->die_at, most);
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
        before = atomic_load(&shared->encoded);
    }
    forget();
    tt_tokens *whole = open_ok(two, 2, "off");
    forget();
    tt_tokens *t = open_ok(two, 2, folder);
    assert_true(before >= 3800);
    assert_in_range(atomic_load(&shared->encoded), 1, LINES - 1000);
    assert_int_equal(cached(".part", NULL) + cached(".part-docs", NULL), 0);
    assert_int_equal(t->n_documents, LINES);
    check_same(t, whole);
}

static void test_corpus_two_processes_build_once(void **state)
{
    (void)state;
    pid_t pids[3];
    write_lines("a.txt", 400, 40, 7);
    atomic_store(&shared->slow_us, 1000);
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

static void test_corpus_folder_that_cannot_be_keeps_tokens_in_memory(void **state)
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

static void test_corpus_damaged_cache_is_made_again(void **state)
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

/* A record of a build that is torn, or counts what is not there, is not believed. */
static void test_corpus_damaged_build_begins_anew(void **state)
{
    (void)state;
    char part[512];
    write_lines("a.txt", 1000, 3000, 1);
    atomic_store(&shared->slow_us, 3000);
    for (int round = 0; round < 3; round++) {
        atomic_store(&shared->die_at, atomic_load(&shared->encoded) + 900);
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
            atomic_store(&shared->slow_us, 0);
    }
    const int64_t before = atomic_load(&shared->encoded);
    atomic_store(&shared->die_at, 0);
    cached(".part-docs", part);
    spoil(part, -1, 8);
    tt_tokens *t = open_ok(two, 1, folder);
    assert_int_equal(atomic_load(&shared->encoded) - before, 1000);
    check_same(t, open_ok(two, 1, "off"));
}

static void test_corpus_first_error_in_order_is_told(void **state)
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

static void test_corpus_stops_where_asked_and_goes_on(void **state)
{
    (void)state;
    tt_tokens *t = NULL;
    tt_error err = {0};
    write_lines("a.txt", 4000, 2000, 1);
    atomic_store(&shared->stop, 15);
    assert_int_equal(open_files(two, 1, folder, "lines 1", false, &t, &err), TT_ESIGNAL);
    assert_non_null(strstr(err.text, "signal 15"));
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
    atomic_store(&shared->slow_us, 3000);
    const pid_t pid = fork();
    if (pid == 0) {
        while (atomic_load(&shared->encoded) < 20)
            usleep(1000);
        write_lines("a.txt", 500, 40, 9);
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

/* More than 2^32 tokens before the ones that are written: a hole in the file. */
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
    tt_text_place at = {2, 0, 1};
    tt_text_block b = {.n_text = 2,
                       .documents = &at,
                       .n_documents = 1,
                       .tokens = tokens,
                       .starts = &start,
                       .n_tokens = 4};
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
    assert_int_equal(tt_tokens_ready(t, &(tt_dataloader_env){.seq_len = 2}, NULL, "have", &err),
                     TT_OK);
    assert_int_equal(t->n_samples, far / 2 + 1);
    int32_t ids[2], labels[2], pos[2], seg[2];
    tt_sample x = {sizeof x, 2, ids, labels, pos, seg};
    assert_int_equal(tt_tokens_read(t, far / 2, &x, &err), TT_OK);
    assert_int_equal(ids[0], 1);
    assert_int_equal(ids[1], 263);
    assert_int_equal(labels[1], 264);
    assert_int_equal(tt_tokens_read(t, far / 2 - 1, &x, &err), TT_OK);
    assert_int_equal(ids[1], 0);
    assert_int_equal(labels[1], 1);
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
        T(test_corpus_goes_on_after_a_kill),
        T(test_corpus_two_processes_build_once),
        T(test_corpus_full_disk_keeps_tokens_in_memory),
        T(test_corpus_folder_that_cannot_be_keeps_tokens_in_memory),
        T(test_corpus_damaged_cache_is_made_again),
        T(test_corpus_damaged_build_begins_anew),
        T(test_corpus_first_error_in_order_is_told),
        T(test_corpus_stops_where_asked_and_goes_on),
        T(test_corpus_change_while_reading_is_an_error),
        T(test_corpus_empty_documents_are_counted_and_left_out),
        T(test_corpus_of_more_than_2_to_32_tokens),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
