/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "corpus/cache.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The finished file, KEY.tokens: a header, tokens from byte TT_TOKENS_AT on, then the documents'
 * starts. It gets this name only when it is complete. Sizes, hashes and a check of each id detect
 * later damage. */

typedef struct {
    char magic[8];
    uint32_t width, unused;
    int64_t n_tokens, n_documents, n_empty, text_bytes, n_files;
    int64_t index_at; /* offset of the documents' starts, int64 each, up to the file's end */
    char key[32], index_hash[32];
    uint64_t hash; /* of all before */
} head;

static const char head_magic[8] = "ttruntk1";

static uint64_t hash_of_head(const head *h)
{
    return tt_hash64(h, offsetof(head, hash), 0);
}

static int64_t index_at(int64_t n_tokens, int64_t width)
{
    return (TT_TOKENS_AT + n_tokens * width + 7) / 8 * 8;
}

/* Writes the documents' starts after the tokens. */
static tt_status append_index(const tt_store *s, char hash[33], tt_error *err)
{
    char piece[16384];
    const int64_t to = index_at(s->at.n_tokens, s->width), n = s->at.n_documents * 8;
    tt_hasher *h = tt_hasher_new();
    tt_status status = TT_OK;
    for (int64_t at = 0; status == TT_OK && at < n;) {
        const size_t k = (size_t)TT_MIN(n - at, (int64_t)sizeof piece);
        status = tt_read_at(s->documents_fd, s->documents_path, at, piece, k, err);
        if (status == TT_OK)
            status = tt_write_at(s->fd, s->path, to + at, piece, k, err);
        tt_hasher_update(h, piece, k);
        at += (int64_t)k;
    }
    tt_hasher_hex(h, hash);
    tt_hasher_free(h);
    return status;
}

tt_status tt_store_publish(tt_store *s, const char *folder, int64_t n_files, tt_error *err)
{
    char hash[33];
    TT_TRY(append_index(s, hash, err));
    head h = {.width = (uint32_t)s->width,
              .n_tokens = s->at.n_tokens,
              .n_documents = s->at.n_documents,
              .n_empty = s->at.n_empty,
              .text_bytes = s->at.text_bytes,
              .n_files = n_files,
              .index_at = index_at(s->at.n_tokens, s->width)};
    memcpy(h.magic, head_magic, sizeof h.magic);
    memcpy(h.key, s->key, sizeof h.key);
    memcpy(h.index_hash, hash, sizeof h.index_hash);
    h.hash = hash_of_head(&h);
    TT_TRY(tt_write_at(s->fd, s->path, 0, &h, sizeof h, err));
    if (fsync(s->fd) != 0)
        return TT_FAIL(err, TT_EIO, "%s: cannot write: %s", s->path, strerror(errno));
    tt_str final = {0};
    tt_str_printf(&final, "%s/%s.tokens", folder, s->key);
    tt_status status = TT_OK;
    if (rename(s->path, final.s) != 0)
        status = TT_FAIL(err, TT_EIO, "%s: cannot rename: %s", s->path, strerror(errno));
    else
        unlink(s->documents_path);
    tt_fsync_path(folder, NULL); /* after a crash the next run builds it again */
    tt_str_free(&final);
    return status;
}

static tt_status check_index(int fd, const char *path, const head *h, tt_error *err)
{
    char piece[16384], hash[33];
    tt_hasher *hasher = tt_hasher_new();
    tt_status status = TT_OK;
    for (int64_t at = 0; status == TT_OK && at < h->n_documents * 8;) {
        const size_t k = (size_t)TT_MIN(h->n_documents * 8 - at, (int64_t)sizeof piece);
        status = tt_read_at(fd, path, h->index_at + at, piece, k, err);
        if (status == TT_OK)
            tt_hasher_update(hasher, piece, k);
        at += (int64_t)k;
    }
    tt_hasher_hex(hasher, hash);
    tt_hasher_free(hasher);
    if (status == TT_OK && memcmp(hash, h->index_hash, 32) != 0)
        return TT_FAIL(err, TT_EFORMAT, "%s: its index of documents is damaged", path);
    return status == TT_OK ? TT_OK : TT_EFORMAT;
}

static tt_status check_head(int fd, const char *path, const char *key, head *h, tt_error *err)
{
    struct stat st;
    const bool read = fstat(fd, &st) == 0 && pread(fd, h, sizeof *h, 0) == (ssize_t)sizeof *h;
    if (!read || memcmp(h->magic, head_magic, sizeof h->magic) != 0 || h->hash != hash_of_head(h) ||
        memcmp(h->key, key, sizeof h->key) != 0)
        return TT_FAIL(err, TT_EFORMAT, "%s: its head is damaged", path);
    int64_t bytes = 0, end = 0;
    const bool fits = (h->width == 1 || h->width == 2 || h->width == 4) && h->n_tokens >= 0 &&
                      h->n_documents >= 0 && tt_mul_i64(h->n_tokens, h->width, &bytes) &&
                      bytes < INT64_MAX - TT_TOKENS_AT - 8 &&
                      h->index_at == index_at(h->n_tokens, h->width) &&
                      tt_mul_i64(h->n_documents, 8, &bytes) &&
                      tt_add_i64(bytes, h->index_at, &end) && end == st.st_size;
    if (!fits)
        return TT_FAIL(err, TT_EFORMAT, "%s has %lld bytes, but its head says %lld; it is cut off",
                       path, (long long)st.st_size, (long long)end);
    return TT_OK;
}

tt_status tt_store_find(const char *folder, const char *key, bool index, tt_tokens *out,
                        tt_error *err)
{
    tt_str path = {0};
    head h;
    tt_str_printf(&path, "%s/%s.tokens", folder, key);
    const int fd = open(path.s, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    tt_status s = fd < 0 ? TT_FAIL(err, TT_ENOTFOUND, "%s: %s", path.s, strerror(errno))
                         : check_head(fd, path.s, key, &h, err);
    if (s == TT_OK && index)
        s = check_index(fd, path.s, &h, err);
    const int second = s == TT_OK ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (s == TT_OK && second < 0)
        s = TT_FAIL(err, TT_EIO, "%s: %s", path.s, strerror(errno));
    if (s != TT_OK) {
        if (fd >= 0)
            close(fd);
        tt_str_free(&path);
        return s;
    }
    out->spans[0] = (tt_token_span){.path = strdup(path.s),
                                    .fd = fd,
                                    .width = (int)h.width,
                                    .first = TT_TOKENS_AT,
                                    .n = h.n_tokens};
    out->n_spans = 1;
    out->documents = (tt_document_index){second, NULL, h.index_at, h.n_documents};
    out->n_tokens = h.n_tokens;
    out->n_documents = h.n_documents;
    out->n_empty = h.n_empty;
    out->text_bytes = h.text_bytes;
    out->cache = path.s;
    return TT_OK;
}
