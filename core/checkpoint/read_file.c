/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/pages.h"
#include "base/thread.h"
#include "checkpoint/internal.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file is read in blocks of 4 MiB by a few threads. What is in the page cache is copied from there;
 * the rest is read past it (O_DIRECT) where the file system can, because filling the cache takes longer
 * than the disk; into huge pages, which doubles the speed (pages.h). A block that is hashed, or not in the
 * cache, goes by way of a buffer. Hashes need the blocks in order: a buffer is free again when its block is
 * hashed. Runs of a block that is hashed are copied out of its buffer, so a file that is loaded and checked
 * is read once. */

#define BLOCK TT_READ_BLOCK
enum { READERS = 3, BUFFERS = 8 };

typedef struct reading {
    const char *path;
    int fd, direct; /* direct -1: none */
    const tt_file_run *runs;
    size_t n_runs, total; /* total: of what is read, from the begin of the file */
    tt_hasher *hasher;    /* NULL: only blocks with runs are read */
    /* protected by lock */
    size_t next;        /* the block that a thread takes next */
    size_t hashed;      /* how many blocks of the file are hashed, in earlier calls too */
    bool read[BUFFERS]; /* the block of this buffer waits for its hash */
    int error;          /* 0: none */
    uint8_t *buffers[BUFFERS];
    pthread_mutex_t lock;
    pthread_cond_t changed;
} reading;

/* ---- a block ---- */

/* The first run at or after `at`. */
static size_t first_run(const reading *r, size_t at)
{
    size_t low = 0, high = r->n_runs;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (r->runs[middle].at < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Bytes [at, at + n): to a buffer of whole pages where fd is the direct one. Returns an error number. */
static int get_at(int fd, uint8_t *to, size_t n, size_t at)
{
    for (size_t got = 0; got < n;) {
        const ssize_t k = pread(fd, to + got, n - got, (off_t)(at + got));
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return errno;
        if (k == 0)
            return ENODATA; /* cut short since it was opened */
        got += (size_t)k;
    }
    return 0;
}

static int get_direct(const reading *r, uint8_t *to, size_t n, size_t at)
{
    const size_t end = TT_MIN(at + n, r->total);
    for (size_t from = at; from < end;) { /* n is of whole pages; the file may end before */
        const ssize_t k = pread(r->direct, to + (from - at), at + n - from, (off_t)from);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return k < 0 ? errno : ENODATA;
        from += (size_t)k;
        if (from < end && from % TT_FILE_ALIGNMENT)
            return EINVAL;
    }
    return 0;
}

/* [at, end) of the file into the buffer, whose first byte is that of `begin`. */
static int get_to_buffer(const reading *r, uint8_t *buffer, size_t begin, size_t at, size_t end)
{
    if (r->direct >= 0) {
        const size_t from = at / TT_FILE_ALIGNMENT * TT_FILE_ALIGNMENT,
                     n = tt_file_aligned(end - from);
        if (get_direct(r, buffer + (from - begin), n, from) == 0)
            return 0;
    }
    return get_at(r->fd, buffer + (at - begin), end - at, at);
}

/* Whether all pages of [at, end) are in the page cache. A read with RWF_NOWAIT would say so, too, but it
 * begins to fill the cache. */
static bool is_cached(const reading *r, size_t at, size_t end)
{
    unsigned char there[BLOCK / TT_FILE_ALIGNMENT + 2];
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), from = at / page * page;
    if (page < TT_FILE_ALIGNMENT || r->direct < 0)
        return r->direct < 0;
    void *p = mmap(NULL, end - from, PROT_READ, MAP_SHARED, r->fd, (off_t)from);
    if (p == MAP_FAILED)
        return false;
    bool all = mincore(p, end - from, there) == 0;
    for (size_t i = 0; i < (end - from + page - 1) / page && all; i++)
        all = there[i] & 1;
    munmap(p, end - from);
    return all;
}

/* Runs [i, last), which are in one block that is not hashed. */
static int get_runs(const reading *r, size_t i, size_t last, size_t begin, uint8_t *buffer)
{
    const size_t from = r->runs[i].at;
    size_t to = from;
    int e = 0;
    for (size_t k = i; k < last; k++)
        to = TT_MAXV(to, r->runs[k].at + r->runs[k].bytes);
    const bool cached = is_cached(r, from, to);
    if (!cached)
        e = get_to_buffer(r, buffer, begin, from, to);
    for (; !e && i < last; i++) {
        const tt_file_run *run = &r->runs[i];
        if (cached)
            e = get_at(r->fd, run->to, run->bytes, run->at);
        else
            memcpy(run->to, buffer + (run->at - begin), run->bytes);
    }
    return e;
}

static int get_block(const reading *r, size_t block, uint8_t *buffer)
{
    const size_t begin = block * BLOCK, end = TT_MIN(begin + BLOCK, r->total);
    size_t i = first_run(r, begin);
    const size_t last = first_run(r, end);
    if (!r->hasher)
        return i < last ? get_runs(r, i, last, begin, buffer) : 0;
    const int e = get_to_buffer(r, buffer, begin, begin, end);
    for (; !e && i < last; i++)
        memcpy(r->runs[i].to, buffer + (r->runs[i].at - begin), r->runs[i].bytes);
    return e;
}

/* ---- the threads ---- */

static void get_failed(reading *r, int error)
{
    if (!r->error)
        r->error = error;
    pthread_cond_broadcast(&r->changed);
}

/* The buffer of a block that is hashed. Called with the lock. */
static uint8_t *wait_for_buffer(reading *r, size_t block)
{
    while (!r->error && block >= r->hashed + BUFFERS)
        pthread_cond_wait(&r->changed, &r->lock);
    uint8_t **buffer = &r->buffers[block % BUFFERS];
    return *buffer ? *buffer : (*buffer = tt_pages_new(BLOCK));
}

static void *get_blocks(void *arg)
{
    reading *r = arg;
    uint8_t *own = NULL, *buffer;
    pthread_mutex_lock(&r->lock);
    while (!r->error && r->next * BLOCK < r->total) {
        const size_t block = r->next++;
        if (r->hasher)
            buffer = wait_for_buffer(r, block);
        else
            buffer = own ? own : (own = tt_pages_new(BLOCK));
        if (r->error)
            break;
        pthread_mutex_unlock(&r->lock);
        const int e = buffer ? get_block(r, block, buffer) : ENOMEM;
        pthread_mutex_lock(&r->lock);
        if (e)
            get_failed(r, e);
        r->read[block % BUFFERS] = true;
        if (r->hasher)
            pthread_cond_broadcast(&r->changed);
    }
    pthread_mutex_unlock(&r->lock);
    tt_pages_free(own, BLOCK);
    return NULL;
}

/* On the caller's thread; if no other could be started, it reads as well. */
static void hash_blocks(reading *r, bool alone)
{
    const size_t n = (r->total + BLOCK - 1) / BLOCK;
    pthread_mutex_lock(&r->lock);
    while (!r->error && r->hashed < n) {
        const size_t block = r->hashed, slot = block % BUFFERS;
        if (alone) {
            uint8_t *buffer = wait_for_buffer(r, block);
            const int e = buffer ? get_block(r, block, buffer) : ENOMEM;
            if (e)
                get_failed(r, e);
            r->read[slot] = !e;
        } else if (!r->read[slot]) {
            pthread_cond_wait(&r->changed, &r->lock);
        }
        if (r->error || !r->read[slot])
            continue;
        pthread_mutex_unlock(&r->lock);
        tt_hasher_update(r->hasher, r->buffers[slot], TT_MIN(BLOCK, r->total - block * BLOCK));
        pthread_mutex_lock(&r->lock);
        r->read[slot] = false;
        r->hashed++;
        pthread_cond_broadcast(&r->changed);
    }
    pthread_mutex_unlock(&r->lock);
}

static tt_status get_all(reading *r, tt_error *err)
{
    pthread_t threads[READERS];
    int n = 0;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    const bool several = r->total > (r->next + 1) * BLOCK;
    while (several && n < READERS && tt_thread_start(&threads[n], get_blocks, r) == 0)
        n++;
    if (r->hasher)
        hash_blocks(r, n == 0);
    else
        get_blocks(r);
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < BUFFERS; i++)
        tt_pages_free(r->buffers[i], BLOCK);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    if (r->error == ENODATA)
        return TT_FAIL(err, TT_EFORMAT, "%s: is cut short; copy it again", r->path);
    return r->error ? tt_fail_system(err, r->error, "read", r->path) : TT_OK;
}

static tt_status open_reading(reading *r, tt_error *err)
{
    struct stat st;
    r->fd = open(r->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would block for ever */
    if (r->fd < 0)
        return tt_fail_system(err, errno, "open", r->path);
    if (fstat(r->fd, &st) != 0)
        return tt_fail_system(err, errno, "read", r->path);
    if (!S_ISREG(st.st_mode))
        return TT_FAIL(err, TT_EINVAL, "%s: is not a regular file", r->path);
    r->direct = open(r->path, O_RDONLY | O_CLOEXEC | O_DIRECT | O_NONBLOCK);
    r->total = (size_t)st.st_size;
    return TT_OK;
}

static void close_reading(reading *r)
{
    if (r->direct >= 0)
        close(r->direct);
    if (r->fd >= 0)
        close(r->fd);
}

/* Where the block of the last run ends. */
static size_t end_of_runs(const reading *r)
{
    return TT_MIN(r->runs[r->n_runs - 1].at / BLOCK * BLOCK + BLOCK, r->total);
}

/* Reads the blocks from that of the first run to that of the last one. */
static tt_status get_plain(reading *r, tt_error *err)
{
    r->next = r->runs[0].at / BLOCK;
    r->total = end_of_runs(r);
    return get_all(r, err);
}

/* Reads and hashes the blocks from the first one that is not hashed up to byte `end`, which is that of a block or of
 * the file. */
static tt_status get_hashed(reading *r, tt_file_check *check, size_t end, tt_error *err)
{
    if (!check->hasher) {
        check->hasher = tt_hasher_new();
        posix_fadvise(r->fd, 0, 0, POSIX_FADV_DONTNEED);
    }
    r->hasher = check->hasher;
    r->next = r->hashed = check->blocks;
    r->total = end;
    const tt_status status = get_all(r, err);
    check->blocks = r->hashed;
    return status;
}

/* In two parts: runs of blocks that are hashed already, and the others. */
static tt_status get_checked(const reading *all, tt_file_check *check, tt_error *err)
{
    reading r = *all;
    const size_t k = first_run(all, check->blocks * BLOCK);
    r.n_runs = k;
    if (k)
        TT_TRY(get_plain(&r, err));
    if (k == all->n_runs)
        return TT_OK;
    r = *all;
    r.runs += k;
    r.n_runs -= k;
    return get_hashed(&r, check, end_of_runs(&r), err);
}

tt_status tt_read_runs(const char *path, const tt_file_run *runs, size_t n, tt_file_check *check,
                       tt_error *err)
{
    reading r = {.path = path, .fd = -1, .direct = -1, .runs = runs, .n_runs = n};
    tt_status status = n ? open_reading(&r, err) : TT_OK;
    if (status == TT_OK && n && runs[n - 1].at + runs[n - 1].bytes > r.total)
        status = TT_FAIL(err, TT_EFORMAT, "%s: is cut short; copy it again", path);
    if (status == TT_OK && n)
        status = check ? get_checked(&r, check, err) : get_plain(&r, err);
    close_reading(&r);
    return status;
}

tt_status tt_hash_rest(const char *path, tt_file_check *check, int64_t *bytes, char hash[33],
                       tt_error *err)
{
    reading r = {.path = path, .fd = -1, .direct = -1};
    tt_status status = open_reading(&r, err);
    if (status == TT_OK) {
        *bytes = (int64_t)r.total;
        status = get_hashed(&r, check, r.total, err);
    }
    if (status == TT_OK)
        tt_hasher_hex(check->hasher, hash);
    close_reading(&r);
    return status;
}

tt_status tt_hash_file(const char *path, int64_t *bytes, char hash[33], tt_error *err)
{
    tt_file_check check = {0};
    const tt_status status = tt_hash_rest(path, &check, bytes, hash, err);
    tt_hasher_free(check.hasher);
    return status;
}
