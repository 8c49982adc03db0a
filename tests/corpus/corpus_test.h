/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_DATA_CORPUS_TEST_H
#define TT_TESTS_DATA_CORPUS_TEST_H
#include "corpus/cache.h"
#include "folder_test.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* Corpora in the test's folder, with a tokenizer, a reader and a disk that count and fail as the
 * test asks. */

/* Memory that the test and its child processes share. */
typedef struct {
    _Atomic int64_t encoded, read;       /* calls of the tokenizer and of the reader */
    _Atomic int64_t writes, die_at;      /* writes to *.part files; the one before which the process
                                       dies; 0 = none */
    _Atomic int64_t full_at;             /* bytes after which the disk takes no more; -1 = never */
    _Atomic int free_percent;            /* of the disk, that is free */
    _Atomic int64_t passed_ns, write_ns; /* how late the clock is; and by how much more with each
                                            write */
    _Atomic int64_t
        wait_at; /* the call that waits, as do those after it, until `go` is 1; 0 = none */
    _Atomic int go;
    _Atomic int64_t longest; /* bytes that the tokenizer was given in one call */
    _Atomic int64_t stop_at; /* the call of the tokenizer in which a stop is asked for; 0 = none */
    _Atomic int stop;
} shared_state;
static shared_state *shared;
static const char *fingerprint = "0123456789abcdef0123456789abcdef";
static char root[TEST_FOLDER], folder[TEST_FOLDER + 20];

/* The clock is the test's own: it is the machine's, and moves on as the test says. */
int clock_gettime(clockid_t id, struct timespec *t);
int clock_gettime(clockid_t id, struct timespec *t)
{
    const int rc = (int)syscall(SYS_clock_gettime, id, t);
    const int64_t ns = t->tv_nsec + (shared ? atomic_load(&shared->passed_ns) : 0);
    t->tv_sec += ns / 1000000000;
    t->tv_nsec = ns % 1000000000;
    return rc;
}

/* A simulated disk for *.part files; the test sets its size. */
ssize_t pwrite(int fd, const void *p, size_t n, off_t at);
ssize_t pwrite(int fd, const void *p, size_t n, off_t at)
{
    char link[64], path[512];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t k = readlink(link, path, sizeof path - 1);
    path[k > 0 ? k : 0] = '\0';
    if (shared && strstr(path, ".part")) {
        if (atomic_fetch_add(&shared->writes, 1) + 1 == atomic_load(&shared->die_at))
            raise(SIGKILL);
        atomic_fetch_add(&shared->passed_ns, atomic_load(&shared->write_ns));
    }
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

int fstatvfs(int fd, struct statvfs *v);
int fstatvfs(int fd, struct statvfs *v)
{
    (void)fd;
    *v = (struct statvfs){.f_frsize = 4096,
                          .f_blocks = 100000,
                          .f_bavail = 1000 * (fsblkcnt_t)atomic_load(&shared->free_percent)};
    return 0;
}

static int32_t eos_id = 2;

/* A byte is its value and one; bos 1 and eos 2 in a vocabulary of 300. */
static inline void info(void *self, tt_tokenizer_info *out)
{
    (void)self;
    out->vocab_size = 300;
    out->bos = 1;
    out->eos = eos_id;
    snprintf(out->fingerprint, sizeof out->fingerprint, "%s", fingerprint);
}

static inline tt_status encode(void *self, const char *text, size_t n, tt_ids *out, tt_error *err)
{
    (void)self;
    const int64_t call = atomic_fetch_add(&shared->encoded, 1) + 1;
    if (call == atomic_load(&shared->stop_at))
        atomic_store(&shared->stop, SIGTERM);
    for (int64_t was = atomic_load(&shared->longest);
         (int64_t)n > was && !atomic_compare_exchange_weak(&shared->longest, &was, (int64_t)n);)
        continue;
    while (atomic_load(&shared->wait_at) && call >= atomic_load(&shared->wait_at) &&
           atomic_load(&shared->go) < 1)
        sched_yield();
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '!')
            return TT_FAIL(err, TT_EINVAL, "an exclamation");
        TT_TRY(tt_ids_push(out, (unsigned char)text[i] + 1, err));
    }
    return TT_OK;
}

/* A document may be cut after an e. */
static inline size_t cut_after_e(void *self, const char *text, size_t n, size_t from)
{
    (void)self;
    const char *e = from < n ? memchr(text + from, 'e', n - from) : NULL;
    return e ? (size_t)(e - text) + 1 : n;
}

static tt_tokenizer_vt tokenizer = {
    .struct_size = sizeof tokenizer, .info = info, .encode = encode};

/* Each line is a document. */
static inline tt_status read_lines(void *user, const char *path, tt_documents *to, tt_error *err)
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

static tt_status (*reader_of_files)(void *, const char *, tt_documents *, tt_error *) = read_lines;

static inline int stop(void *user)
{
    (void)user;
    return atomic_load(&shared->stop);
}

static inline void path_of(const char *name, char out[256])
{
    snprintf(out, 256, "%s/%s", root, name);
}

/* Writes `lines` lines of `width` letters from a small generator; with seed 0 the letters depend on
 * the line's number only. */
static inline void write_lines(const char *name, int lines, int width, uint32_t seed)
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

/* Opens the files as a corpus with the cache in `folder` ("off": no cache). */
static inline tt_status open_files(const char *const *names, size_t n, const char *cache,
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
                              .read = reader_of_files,
                              .reader = reader,
                              .cache = cache,
                              .document_mask = mask};
    return tt_corpus_open(&o, out, err);
}

static inline tt_tokens *open_ok(const char *const *names, size_t n, const char *cache)
{
    tt_tokens *t = NULL;
    tt_error err = {0};
    if (open_files(names, n, cache, "lines 1", false, &t, &err) != TT_OK)
        fail_msg("%s", err.text);
    return t;
}

static inline int32_t *all_tokens(const tt_tokens *t)
{
    tt_error err;
    int32_t *ids = malloc((size_t)t->n_tokens * sizeof *ids);
    assert_non_null(ids);
    assert_int_equal(tt_tokens_fetch(t, 0, t->n_tokens, ids, &err), TT_OK);
    return ids;
}

/* Checks that both have the same tokens and documents, and closes both. */
static inline void check_same(tt_tokens *a, tt_tokens *b)
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

static inline void forget(void)
{
    atomic_store(&shared->encoded, 0);
    atomic_store(&shared->read, 0);
    atomic_store(&shared->die_at, 0);
    atomic_store(&shared->full_at, -1);
    atomic_store(&shared->free_percent, 50);
    atomic_store(&shared->write_ns, 0);
    atomic_store(&shared->writes, 0);
    atomic_store(&shared->wait_at, 0);
    atomic_store(&shared->go, 0);
    atomic_store(&shared->longest, 0);
    atomic_store(&shared->stop_at, 0);
    atomic_store(&shared->stop, 0);
}

static inline int set_up(void **state)
{
    (void)state;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    tt_log_setup(TT_ERROR, 0, 1, false);
    return shared == MAP_FAILED || !test_folder("corpus", root) ? -1 : 0;
}

static inline int tear_down(void **state)
{
    (void)state;
    return test_folder_remove(root) ? 0 : -1;
}

/* Each test has a cache of its own. */
static inline int fresh(void **state)
{
    static int number;
    (void)state;
    forget();
    eos_id = 2;
    tokenizer.cut = NULL;
    fingerprint = "0123456789abcdef0123456789abcdef";
    snprintf(folder, sizeof folder, "%s/cache%d", root, number++);
    return 0;
}

/* Returns how many files of the cache have a name that ends with this, and the path of the last
 * one. */
static inline int cached(const char *end, char path[512])
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

#endif
