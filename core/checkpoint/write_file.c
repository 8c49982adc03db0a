/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/pages.h"
#include "base/thread.h"
#include "checkpoint/internal.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A large file is written in blocks of 8 MiB by a few threads, past the page cache (O_DIRECT) where the
 * file system can: a copy into the cache costs more time than a disk of today, and the cache is not of
 * use, because nobody reads what is saved. O_DIRECT wants places in the file and in memory that are
 * multiples of 4 KiB. A block that lies so in memory is written from there (tt_ckpt_stage makes such a
 * layout); another one is copied together first. Meanwhile the caller's thread computes the hash.
 * io_uring is not used: with blocks of this size the system calls take 0.03 s of CPU for 1.5 GB. */

#define BLOCK ((size_t)8 << 20)
enum { WRITERS = 2 };
/* What is read back after the sync: the file's begin, its end, and between them at equal distances. */
#define SAMPLE ((size_t)64 << 10)
enum { SAMPLES = 64 };

typedef struct run { /* parts that follow each other in memory */
    const uint8_t *data;
    size_t at, bytes; /* place in the file */
} run;

typedef struct writing {
    const char *path;
    int fd;
    const run *runs;
    size_t n_runs, total;
    atomic_bool direct;
    atomic_size_t next; /* the first block that no thread has taken */
    atomic_int error;   /* the first that a thread met; 0: none */
} writing;

/* The run with the byte at `at`, which is less than the total. */
static const run *run_at(const writing *w, size_t at)
{
    size_t low = 0, high = w->n_runs;
    while (high - low > 1) {
        const size_t middle = (low + high) / 2;
        if (w->runs[middle].at <= at)
            low = middle;
        else
            high = middle;
    }
    return &w->runs[low];
}

/* Bytes [at, at + n) of the file. */
static void gather_runs(const writing *w, size_t at, size_t n, uint8_t *to)
{
    for (const run *r = run_at(w, at); n > 0; r++) {
        const size_t skip = at - r->at, k = TT_MIN(n, r->bytes - skip);
        memcpy(to, r->data + skip, k);
        to += k;
        at += k;
        n -= k;
    }
}

static void turn_direct_off(writing *w)
{
    const int flags = fcntl(w->fd, F_GETFL);
    atomic_store(&w->direct, false);
    if (flags >= 0)
        fcntl(w->fd, F_SETFL, flags & ~O_DIRECT);
}

/* Returns an error number, or 0. */
static int put_at(writing *w, const uint8_t *p, size_t n, size_t at)
{
    const size_t begin = at, end = at + n;
    while (at < end) {
        const ssize_t k = pwrite(w->fd, p, end - at, (off_t)at);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && errno == EINVAL && atomic_load(&w->direct)) {
            turn_direct_off(w); /* this file system wants more than multiples of 4 KiB */
            continue;
        }
        if (k <= 0)
            return k < 0 ? errno : EIO;
        p += k;
        at += (size_t)k;
    }
    if (!atomic_load(&w->direct)) /* the sync at the end then waits for less */
        sync_file_range(w->fd, (off_t)begin, (off_t)n, SYNC_FILE_RANGE_WRITE);
    return 0;
}

static int put_block(writing *w, size_t at, uint8_t **copy)
{
    const size_t n = TT_MIN(BLOCK, w->total - at);
    const run *r = run_at(w, at);
    const uint8_t *p = r->data + (at - r->at);
    const bool whole = r->bytes - (at - r->at) >= n;
    const bool aligned = (uintptr_t)p % TT_FILE_ALIGNMENT == 0 && n % TT_FILE_ALIGNMENT == 0;
    if (whole && (aligned || !atomic_load(&w->direct)))
        return put_at(w, p, n, at);
    if (!*copy && !(*copy = tt_pages_new(BLOCK)))
        return ENOMEM;
    gather_runs(w, at, n, *copy);
    const size_t padded = tt_file_aligned(n); /* the file's end is cut to its size afterwards */
    memset(*copy + n, 0, padded - n);
    return put_at(w, *copy, atomic_load(&w->direct) ? padded : n, at);
}

static void *put_blocks(void *arg)
{
    writing *w = arg;
    uint8_t *copy = NULL;
    while (!atomic_load(&w->error)) {
        const size_t at = atomic_fetch_add(&w->next, BLOCK);
        if (at >= w->total)
            break;
        int e = put_block(w, at, &copy), none = 0;
        if (e)
            atomic_compare_exchange_strong(&w->error, &none, e);
    }
    tt_pages_free(copy, BLOCK);
    return NULL;
}

static void hash_runs(const writing *w, tt_hasher *h)
{
    for (size_t i = 0; i < w->n_runs; i++)
        for (size_t at = 0; at < w->runs[i].bytes && !atomic_load(&w->error); at += BLOCK)
            tt_hasher_update(h, w->runs[i].data + at, TT_MIN(BLOCK, w->runs[i].bytes - at));
}

/* Space for the whole file at once: a full disk is found before the first byte, and the blocks lie
 * together. A file system that cannot says so, and then it is not needed. */
static bool has_space(const writing *w)
{
    if (fallocate(w->fd, 0, 0, (off_t)w->total) == 0)
        return true;
    return errno != ENOSPC && errno != EDQUOT && errno != EFBIG;
}

static tt_status write_large(writing *w, tt_hasher *h, tt_error *err)
{
    pthread_t threads[WRITERS];
    int n = 0;
    if (!has_space(w))
        return tt_fail_system(err, errno, "write", w->path);
    const int flags = fcntl(w->fd, F_GETFL);
    w->direct = flags >= 0 && fcntl(w->fd, F_SETFL, flags | O_DIRECT) == 0;
    while (n < WRITERS && tt_thread_start(&threads[n], put_blocks, w) == 0)
        n++;
    if (h)
        hash_runs(w, h);
    put_blocks(w);
    while (n > 0)
        pthread_join(threads[--n], NULL);
    if (w->error)
        return tt_fail_system(err, w->error, "write", w->path);
    if (ftruncate(w->fd, (off_t)w->total) != 0)
        return tt_fail_system(err, errno, "write", w->path);
    return TT_OK;
}

static tt_status write_small(const writing *w, tt_hasher *h, tt_error *err)
{
    for (size_t i = 0; i < w->n_runs; i++) {
        if (h)
            tt_hasher_update(h, w->runs[i].data, w->runs[i].bytes);
        if (!tt_write_all(w->fd, w->runs[i].data, w->runs[i].bytes))
            return tt_fail_system(err, errno, "write", w->path);
    }
    return TT_OK;
}

/* ---- read back ---- */

static tt_status reads_back_wrong(const writing *w, size_t at, size_t n, tt_error *err)
{
    return TT_FAIL(err, TT_EIO,
                   "%s: not saved, what was written reads back wrong in bytes %zu to %zu; is the "
                   "disk sound?",
                   w->path, at, at + n);
}

/* Of [at, at + SAMPLE), which may go beyond the file's end. */
static tt_status check_sample(writing *w, size_t at, uint8_t *have, uint8_t *want, tt_error *err)
{
    const size_t n = TT_MIN(SAMPLE, w->total - at);
    size_t got = 0;
    while (got < n) {
        const ssize_t k = pread(w->fd, have + got, SAMPLE - got, (off_t)(at + got));
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && errno == EINVAL && atomic_load(&w->direct)) {
            turn_direct_off(w);
            continue;
        }
        if (k < 0)
            return tt_fail_system(err, errno, "read", w->path);
        if (k == 0)
            return reads_back_wrong(w, at, n, err);
        got += (size_t)k;
    }
    gather_runs(w, at, n, want);
    return memcmp(have, want, n) ? reads_back_wrong(w, at, n, err) : TT_OK;
}

/* Compares what the disk has with the memory that it came from: all of a file of up to 4 MiB, 64
 * samples of a larger one. */
static tt_status read_back(writing *w, tt_error *err)
{
    uint8_t *have = NULL;
    const size_t n = (w->total + SAMPLE - 1) / SAMPLE, samples = TT_MIN(n, (size_t)SAMPLES);
    if (posix_memalign((void **)&have, TT_FILE_ALIGNMENT, 2 * SAMPLE) != 0)
        return tt_fail_system(err, ENOMEM, "read", w->path);
    posix_fadvise(w->fd, 0, 0, POSIX_FADV_DONTNEED);
    tt_status status = TT_OK;
    for (size_t i = 0; i < samples && status == TT_OK; i++) {
        const size_t at = samples > 1 ? (n - 1) * i / (samples - 1) * SAMPLE : 0;
        status = check_sample(w, at, have, have + SAMPLE, err);
    }
    free(have);
    return status;
}

/* ---- the whole ---- */

static run *runs_of(tt_arena *a, const tt_file_part *parts, size_t n, writing *w)
{
    run *runs = tt_arena_array(a, n + 1, sizeof *runs);
    for (size_t i = 0; i < n; i++) {
        run *last = w->n_runs ? &runs[w->n_runs - 1] : NULL;
        if (!parts[i].bytes)
            continue;
        if (last && last->data + last->bytes == (const uint8_t *)parts[i].data)
            last->bytes += parts[i].bytes;
        else
            runs[w->n_runs++] = (run){parts[i].data, w->total, parts[i].bytes};
        w->total += parts[i].bytes;
    }
    return runs;
}

static tt_status put_file(writing *w, bool regular, tt_hasher *h, tt_error *err)
{
    TT_TRY(regular && w->total >= TT_LARGE_FILE ? write_large(w, h, err) : write_small(w, h, err));
    /* EINVAL: this kind of file (/dev/stdout) cannot be synced */
    if (fsync(w->fd) != 0 && errno != EINVAL)
        return tt_fail_system(err, errno, "fsync", w->path);
    return regular ? read_back(w, err) : TT_OK;
}

tt_status tt_write_parts(const char *path, const tt_file_part *parts, size_t n, char hash[33],
                         tt_error *err)
{
    struct stat st;
    writing w = {.path = path};
    w.fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (w.fd < 0)
        return tt_fail_system(err, errno, "create", path);
    const bool regular = fstat(w.fd, &st) == 0 && S_ISREG(st.st_mode);
    tt_arena *a = tt_arena_new();
    tt_hasher *h = hash ? tt_hasher_new() : NULL;
    w.runs = runs_of(a, parts, n, &w);
    tt_status status = put_file(&w, regular, h, err);
    if (status != TT_OK && regular)
        unlink(path); /* not /dev/null */
    if (close(w.fd) != 0 && status == TT_OK) {
        status = tt_fail_system(err, errno, "close", path);
        unlink(path);
    }
    if (status == TT_OK && hash)
        tt_hasher_hex(h, hash);
    tt_hasher_free(h);
    tt_arena_free(a);
    return status;
}
