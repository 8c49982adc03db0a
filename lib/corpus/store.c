/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "corpus/cache.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

/* The file under construction, in fact two: KEY.part (tokens from byte TT_TOKENS_AT on) and
 * KEY.part-docs (the documents' starts). KEY.part begins with two records of the progress, which
 * are written alternately, each after the data that it counts is on disk. So after a kill at any
 * moment the newer valid record is true. The writer holds a lock on KEY.part. Without a cache
 * folder both are in memory. */

static const char magic[8] = "ttrunbl2";
static const int64_t commit_ns = 1000000000; /* a kill loses at most this much work */
enum { RECORD_AT = 1024, RECORD_STRIDE = 512 };
#define MOST_KEPT_FREE ((uint64_t)1 << 30)

typedef struct {
    char magic[8];
    int64_t number, width;
    tt_build_point at;
    uint64_t hash; /* of all before */
} record;

static uint64_t hash_of(const record *r)
{
    return tt_hash64(r, offsetof(record, hash), 0);
}

tt_status tt_write_at(int fd, const char *path, int64_t at, const void *bytes, size_t n,
                      tt_error *err)
{
    for (const char *p = bytes; n > 0;) {
        const ssize_t k = pwrite(fd, p, n, at);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return TT_FAIL(err, TT_EIO, "%s: cannot write: %s", path,
                           k < 0 ? strerror(errno) : "no room");
        p += k;
        at += k;
        n -= (size_t)k;
    }
    return TT_OK;
}

/* Writes n bytes at an offset of a buffer, which grows by half. */
static tt_status store_put(tt_id_buffer *b, int64_t at, const void *bytes, size_t n, tt_error *err)
{
    const size_t end = (size_t)at + n;
    if (end > b->cap) {
        const size_t cap = end + end / 2 + 4096;
        unsigned char *grown = (double)cap > tt_memory_here() ? NULL : realloc(b->p, cap);
        if (!grown)
            return TT_FAIL(err, TT_ENOMEM,
                           "out of memory for %zu bytes of tokens; give dataloader.cache a folder, "
                           "or use fewer files",
                           cap);
        b->p = grown;
        b->cap = cap;
    }
    if (n > 0)
        memcpy(b->p + at, bytes, n);
    return TT_OK;
}

static tt_status put_tokens(tt_store *s, int64_t at, const void *bytes, size_t n, tt_error *err)
{
    return s->path ? tt_write_at(s->fd, s->path, TT_TOKENS_AT + at, bytes, n, err)
                   : store_put(&s->tokens, at, bytes, n, err);
}

static tt_status put_starts(tt_store *s, int64_t at, const void *bytes, size_t n, tt_error *err)
{
    return s->path ? tt_write_at(s->documents_fd, s->documents_path, at, bytes, n, err)
                   : store_put(&s->documents, at, bytes, n, err);
}

void tt_store_close(tt_store *s)
{
    if (s->fd >= 0)
        close(s->fd);
    if (s->documents_fd >= 0)
        close(s->documents_fd);
    free(s->path);
    free(s->documents_path);
    free(s->tokens.p);
    free(s->documents.p);
    *s = (tt_store){.fd = -1, .documents_fd = -1};
}

void tt_store_abandon(tt_store *s)
{
    if (s->path && !s->journal) {
        unlink(s->documents_path);
        unlink(s->path); /* last: its lock protects both */
    }
    tt_store_close(s);
}

void tt_store_memory(int width, tt_store *out)
{
    *out = (tt_store){.fd = -1, .documents_fd = -1, .width = width};
}

static tt_status open_part(const char *path, int *out, tt_error *err)
{
    return tt_open_own(path, O_RDWR | O_CREAT, 0644, out, err);
}

/* Waits until this process holds the lock. */
static tt_status wait_lock(int fd, const char *path, const tt_dataloader_env *env, tt_error *err)
{
    for (bool said = false; flock(fd, LOCK_EX | LOCK_NB) != 0;) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return TT_FAIL(err, TT_EIO, "%s: cannot lock: %s", path, strerror(errno));
        if (!said)
            tt_log(TT_INFO, "data", "another process is tokenising this text; waiting for it");
        said = true;
        TT_TRY(tt_text_stopped(env, err));
        nanosleep(&(struct timespec){0, 20000000}, NULL);
    }
    return TT_OK;
}

static bool long_enough(int fd, int64_t bytes)
{
    struct stat st;
    return fstat(fd, &st) == 0 && st.st_size >= bytes;
}

/* Reads one of the two records; false: it is not valid, or its data is not in the files. */
static bool read_record(int fd, int documents_fd, int i, record *r)
{
    const ssize_t n = pread(fd, r, sizeof *r, RECORD_AT + i * RECORD_STRIDE);
    return n == sizeof *r && memcmp(r->magic, magic, sizeof magic) == 0 && r->hash == hash_of(r) &&
           r->number > 0 && r->at.n_tokens >= 0 && r->at.n_tokens <= INT64_MAX / 16 &&
           r->at.n_documents >= 0 && r->at.n_documents <= INT64_MAX / 16 && r->at.part >= 0 &&
           long_enough(fd, TT_TOKENS_AT + r->at.n_tokens * r->width) &&
           long_enough(documents_fd, r->at.n_documents * 8);
}

/* Finds the newest valid record. */
static void recall(tt_store *s)
{
    record r;
    for (int i = 0; i < 2; i++) {
        if (!read_record(s->fd, s->documents_fd, i, &r) || r.width != s->width ||
            r.number <= s->journal)
            continue;
        s->journal = r.number;
        s->at = r.at;
    }
    s->committed = s->at;
}

/* Truncates both files to what the record counts. */
static tt_status trim(const tt_store *s, tt_error *err)
{
    if (ftruncate(s->fd, s->journal ? TT_TOKENS_AT + s->at.n_tokens * s->width : 0) != 0 ||
        ftruncate(s->documents_fd, s->at.n_documents * 8) != 0)
        return TT_FAIL(err, TT_EIO, "%s: cannot cut: %s", s->path, strerror(errno));
    return TT_OK;
}

tt_status tt_store_file(const char *folder, const char *key, int width, const tt_text_key *k,
                        bool *published, tt_store *out, tt_error *err)
{
    tt_store s = {.fd = -1, .documents_fd = -1, .width = width, .committed_ns = tt_now_ns()};
    tt_str path = {0}, docs = {0}, final = {0};
    tt_str_printf(&path, "%s/%s.part", folder, key);
    tt_str_printf(&docs, "%s/%s.part-docs", folder, key);
    tt_str_printf(&final, "%s/%s.tokens", folder, key);
    memcpy(s.key, key, 33);
    s.path = path.s;
    s.documents_path = docs.s;
    tt_status status = open_part(s.path, &s.fd, err);
    while (status == TT_OK) {
        status = wait_lock(s.fd, s.path, k->o->env, err);
        if (status != TT_OK || tt_path_exists(final.s) || tt_path_is_fd(s.path, s.fd))
            break;
        close(s.fd);
        s.fd = -1;
        status = open_part(s.path, &s.fd, err);
    }
    const bool done = status == TT_OK && tt_path_exists(final.s);
    if (status == TT_OK && !done) {
        status = open_part(s.documents_path, &s.documents_fd, err);
        if (status == TT_OK) {
            recall(&s);
            status = trim(&s, err);
        }
    }
    tt_str_free(&final);
    if (done && tt_path_is_fd(s.path, s.fd)) /* our open created it after the publishing */
        unlink(s.path);
    if (status != TT_OK || done)
        tt_store_close(&s);
    else
        *out = s;
    if (status == TT_OK)
        *published = done;
    return status;
}

/* KEY.part and KEY.part-docs without a record of progress, or without each other. */
static void clear_part(const char *folder, const char *key)
{
    record r;
    tt_str path = {0}, docs = {0};
    tt_str_printf(&path, "%s/%s.part", folder, key);
    tt_str_printf(&docs, "%s/%s.part-docs", folder, key);
    const int fd = open(path.s, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && tt_path_is_fd(path.s, fd)) {
        const int documents = open(docs.s, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (!read_record(fd, documents, 0, &r) && !read_record(fd, documents, 1, &r)) {
            unlink(docs.s);
            unlink(path.s);
        }
        if (documents >= 0)
            close(documents);
    }
    if (fd >= 0)
        close(fd);
    tt_str_free(&path);
    tt_str_free(&docs);
}

void tt_store_clear(const char *folder)
{
    tt_unfinished_clear(folder);
    DIR *d = opendir(folder);
    for (const struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        char key[33] = "";
        if (strspn(e->d_name, "0123456789abcdef") != 32)
            continue;
        memcpy(key, e->d_name, 32);
        if (!strcmp(e->d_name + 32, ".part") || !strcmp(e->d_name + 32, ".part-docs"))
            clear_part(folder, key);
    }
    if (d)
        closedir(d);
}

/* The cache leaves room to others: a hundredth of its file system, at most 1 GiB. A few bytes of a compressed file can stand
 * for more text than any disk holds. */
static tt_status keep_room(const tt_store *s, tt_error *err)
{
    struct statvfs v;
    if (!s->path || fstatvfs(s->fd, &v) != 0)
        return TT_OK;
    const uint64_t keep = TT_MIN((uint64_t)v.f_blocks / 100 * v.f_frsize, MOST_KEPT_FREE);
    if ((uint64_t)v.f_bavail * v.f_frsize >= keep)
        return TT_OK;
    return TT_FAIL(err, TT_EIO, "%s: the disk is full but for %llu MiB", s->path,
                   (unsigned long long)(keep >> 20));
}

static tt_status append(tt_store *s, const tt_text_block *b, tt_error *err)
{
    int64_t starts[512];
    TT_TRY(keep_room(s, err));
    TT_TRY(
        put_tokens(s, s->at.n_tokens * s->width, b->tokens, (size_t)(b->n_tokens * s->width), err));
    for (size_t d = 0; d < b->n_starts;) {
        const size_t n = TT_MIN(b->n_starts - d, TT_COUNT(starts));
        const int64_t at = (s->at.n_documents + (int64_t)d) * 8;
        for (size_t i = 0; i < n; i++)
            starts[i] = s->at.n_tokens + b->starts[d + i];
        TT_TRY(put_starts(s, at, starts, n * 8, err));
        d += n;
    }
    return TT_OK;
}

tt_status tt_store_write(void *store, const tt_text_block *b, tt_error *err)
{
    tt_store *s = store;
    tt_error why = {0};
    if (append(s, b, s->path ? &why : err) != TT_OK) {
        if (!s->path)
            return err ? err->code : TT_ENOMEM;
        TT_TRY(tt_store_to_memory(s, &why, err));
        TT_TRY(append(s, b, err));
    }
    s->at.n_tokens += b->n_tokens;
    s->at.n_documents += (int64_t)b->n_starts;
    s->at.n_empty += b->at.n_empty;
    s->at.text_bytes += (int64_t)b->n_text;
    s->at.file = b->at.file;
    s->at.document = b->at.document;
    s->at.part = b->at.part;
    if (s->path && tt_now_ns() - s->committed_ns > commit_ns)
        tt_store_commit(s, NULL); /* if this fails, a kill loses more work; publishing reports it */
    return TT_OK;
}

tt_status tt_store_commit(tt_store *s, tt_error *err)
{
    s->committed_ns = tt_now_ns();
    if (!s->path || memcmp(&s->at, &s->committed, sizeof s->at) == 0)
        return TT_OK;
    if (fdatasync(s->fd) != 0 || fdatasync(s->documents_fd) != 0)
        return TT_FAIL(err, TT_EIO, "%s: cannot write: %s", s->path, strerror(errno));
    record r = {.number = s->journal + 1, .width = s->width, .at = s->at};
    memcpy(r.magic, magic, sizeof magic);
    r.hash = hash_of(&r);
    TT_TRY(
        tt_write_at(s->fd, s->path, RECORD_AT + r.number % 2 * RECORD_STRIDE, &r, sizeof r, err));
    s->journal = r.number;
    s->committed = s->at;
    return TT_OK;
}

/* Reads n bytes of a file from offset `from` on. */
static tt_status copy(int fd, const char *path, int64_t from, int64_t n, tt_id_buffer *to,
                      tt_error *err)
{
    char piece[16384];
    for (int64_t done = 0; done < n;) {
        const size_t k = (size_t)TT_MIN(n - done, (int64_t)sizeof piece);
        TT_TRY(tt_read_at(fd, path, from + done, piece, k, err));
        TT_TRY(store_put(to, done, piece, k, err));
        done += (int64_t)k;
    }
    return TT_OK;
}

tt_status tt_store_to_memory(tt_store *s, const tt_error *why, tt_error *err)
{
    tt_store m;
    tt_log(TT_WARN, "data", TT_KEPT_IN_MEMORY, why->text);
    tt_store_memory(s->width, &m);
    m.at = s->at;
    tt_status status =
        copy(s->fd, s->path, TT_TOKENS_AT, s->at.n_tokens * s->width, &m.tokens, err);
    if (status == TT_OK)
        status =
            copy(s->documents_fd, s->documents_path, 0, s->at.n_documents * 8, &m.documents, err);
    if (status != TT_OK) {
        tt_store_close(&m);
        return status;
    }
    unlink(s->path); /* the disk is full: free the space */
    unlink(s->documents_path);
    tt_store_close(s);
    *s = m;
    return TT_OK;
}

void tt_store_release(tt_store *s, tt_tokens *out)
{
    out->spans[0] = (tt_token_span){.path = strdup("the tokens in memory"),
                                    .memory = s->tokens.p,
                                    .fd = -1,
                                    .width = s->width,
                                    .n = s->at.n_tokens};
    out->n_spans = 1;
    out->documents = (tt_document_index){-1, s->documents.p, 0, s->at.n_documents};
    out->n_tokens = s->at.n_tokens;
    out->n_documents = s->at.n_documents;
    out->n_empty = s->at.n_empty;
    out->text_bytes = s->at.text_bytes;
    s->tokens = s->documents = (tt_id_buffer){0};
    tt_store_close(s);
}
