/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/pool.h"
#include "base/thread.h"
#include "corpus/cache.h"
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* The key of a cache: equal keys mean equal tokens. It is a hash of the bytes of all files in
 * order, the reader and the tokenizer. If the files' path, size, times and inode are as before, the
 * noted key is used without reading them. */

static const int64_t chunk_bytes = (int64_t)64 << 20; /* hashed by one thread */

tt_status tt_text_stopped(const tt_dataloader_env *env, tt_error *err)
{
    const bool can = TT_HAS(env, tt_dataloader_env, stop_user) && env->stop;
    const int signal = can ? env->stop(env->stop_user) : 0;
    return signal ? TT_FAIL(err, TT_ESIGNAL, "stopped by %s while reading text",
                            tt_signal_name(signal))
                  : TT_OK;
}

void tt_text_progress(const tt_dataloader_env *env, const char *what, int64_t done, int64_t all)
{
    if (env->progress)
        env->progress(env->progress_user, what, all > 0 ? (double)done / (double)all : 1);
}

/* Hashes everything except the text. */
static void hash_how(tt_hasher *h, const tt_text_key *k)
{
    tt_str how = {0};
    tt_str_printf(&how, "ttrun tokens 1\nreader %s\ntokenizer %s %lld %d %d\nfiles %zu\n",
                  k->o->reader, k->info->fingerprint, (long long)k->info->vocab_size, k->info->bos,
                  k->info->eos, k->o->files->n);
    tt_hasher_update(h, how.s, how.n);
    tt_str_free(&how);
}

static int64_t ns(struct timespec t)
{
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static tt_status identify(const char *path, tt_text_id *out, tt_error *err)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return TT_FAIL(err, TT_EIO, "dataloader.path: cannot read %s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return TT_FAIL(err, TT_EINVAL, "dataloader.path: %s is not a regular file", path);
    *out = (tt_text_id){st.st_size, ns(st.st_mtim), ns(st.st_ctim), st.st_ino, st.st_dev};
    return TT_OK;
}

tt_status tt_text_key_stat(const tt_corpus_opts *o, const tt_tokenizer_info *info, tt_text_key *out,
                           tt_error *err)
{
    tt_text_key k = {.o = o, .info = info, .ids = calloc(o->files->n, sizeof *k.ids)};
    tt_hasher *h = tt_hasher_new();
    tt_status s = k.ids ? TT_OK : TT_FAIL(err, TT_ENOMEM, "out of memory for file names");
    hash_how(h, &k);
    for (size_t i = 0; s == TT_OK && i < o->files->n; i++) {
        const char *path = o->files->items[i];
        char *whole = path[0] == '/' ? NULL : realpath(path, NULL);
        s = identify(path, &k.ids[i], err);
        tt_hasher_update(h, whole ? whole : path, strlen(whole ? whole : path) + 1);
        tt_hasher_update(h, &k.ids[i], sizeof k.ids[i]);
        k.text_bytes += k.ids[i].bytes;
        free(whole);
    }
    tt_hasher_hex(h, k.by_stat);
    tt_hasher_free(h);
    if (s == TT_OK)
        *out = k;
    else
        free(k.ids);
    return s;
}

void tt_text_key_free(tt_text_key *k)
{
    free(k->ids);
    k->ids = NULL;
}

tt_status tt_text_key_same(const tt_text_key *k, tt_error *err)
{
    for (size_t i = 0; i < k->o->files->n; i++) {
        tt_text_id now;
        TT_TRY(identify(k->o->files->items[i], &now, err));
        if (memcmp(&now, &k->ids[i], sizeof now) != 0)
            return TT_FAIL(err, TT_EINVAL,
                           "dataloader.path: %s changed while it was tokenised; start again",
                           k->o->files->items[i]);
    }
    return TT_OK;
}

typedef struct {
    size_t file;
    int64_t at, bytes;
    char hash[33];
} chunk;

typedef struct {
    const tt_text_key *k;
    chunk *chunks;
    int64_t n;
    _Atomic int64_t done; /* bytes */
    _Atomic int failed;
    tt_error err;
} reading;

static tt_status hash_chunk(reading *r, chunk *c, int thread, char *piece, size_t size,
                            tt_error *err)
{
    const char *path = r->k->o->files->items[c->file];
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return TT_FAIL(err, TT_EIO, "dataloader.path: cannot read %s: %s", path, strerror(errno));
    tt_hasher *h = tt_hasher_new();
    tt_status s = TT_OK;
    for (int64_t at = 0; s == TT_OK && at < c->bytes;) {
        const size_t n = (size_t)TT_MIN((int64_t)size, c->bytes - at);
        s = tt_read_at(fd, path, c->at + at, piece, n, err);
        if (s == TT_OK)
            tt_hasher_update(h, piece, n);
        at += (int64_t)n;
        const int64_t done = atomic_fetch_add(&r->done, (int64_t)n) + (int64_t)n;
        if (s == TT_OK && thread == 0) { /* only the caller's thread reports progress */
            tt_text_progress(r->k->o->env, "reading text", done, r->k->text_bytes);
            s = tt_text_stopped(r->k->o->env, err);
        }
    }
    tt_hasher_hex(h, c->hash);
    tt_hasher_free(h);
    close(fd);
    return s;
}

static void hash_range(void *arg, int64_t begin, int64_t end, int thread)
{
    reading *r = arg;
    const size_t size = (size_t)1 << 20;
    char *piece = malloc(size);
    for (int64_t i = begin; i < end && !atomic_load(&r->failed); i++) {
        tt_error err = {0};
        const tt_status s =
            piece ? hash_chunk(r, &r->chunks[i], thread, piece, size, &err)
                  : TT_FAIL(&err, TT_ENOMEM, "out of memory for %zu bytes of text", size);
        if (s != TT_OK && !atomic_exchange(&r->failed, 1)) {
            err.code = s;
            r->err = err;
        }
    }
    free(piece);
}

/* Every file has at least one chunk, so that the key depends on where files end. */
static tt_status key_cut(reading *r, tt_error *err)
{
    const tt_text_key *k = r->k;
    int64_t n = 0;
    for (size_t i = 0; i < k->o->files->n; i++)
        n += TT_MAXV((k->ids[i].bytes + chunk_bytes - 1) / chunk_bytes, (int64_t)1);
    r->chunks = calloc((size_t)n, sizeof *r->chunks);
    if (!r->chunks)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for %lld pieces of text", (long long)n);
    for (size_t i = 0; i < k->o->files->n; i++) {
        int64_t at = 0;
        do {
            const int64_t bytes = TT_MIN(chunk_bytes, k->ids[i].bytes - at);
            r->chunks[r->n++] = (chunk){.file = i, .at = at, .bytes = bytes};
            at += bytes;
        } while (at < k->ids[i].bytes);
    }
    return TT_OK;
}

tt_status tt_text_key_read(tt_text_key *k, int threads, tt_error *err)
{
    reading r = {.k = k};
    tt_pool *pool = NULL;
    TT_TRY(key_cut(&r, err));
    tt_status s = tt_pool_new((int)TT_MIN((int64_t)threads, r.n), &pool, err);
    if (s == TT_OK) {
        tt_parallel_for(pool, r.n, 1, hash_range, &r);
        s = atomic_load(&r.failed) ? TT_FAIL(err, r.err.code, "%s", r.err.text) : TT_OK;
    }
    if (s == TT_OK) {
        tt_hasher *h = tt_hasher_new();
        hash_how(h, k);
        for (int64_t i = 0; i < r.n; i++) {
            tt_hasher_update(h, &r.chunks[i].file, sizeof r.chunks[i].file);
            tt_hasher_update(h, &r.chunks[i].bytes, sizeof r.chunks[i].bytes);
            tt_hasher_update(h, r.chunks[i].hash, 32);
        }
        tt_hasher_hex(h, k->by_content);
        tt_hasher_free(h);
    }
    tt_pool_free(pool);
    free(r.chunks);
    return s;
}

static void note_path(const tt_text_key *k, const char *folder, tt_str *out)
{
    tt_str_printf(out, "%s/%s.key", folder, k->by_stat);
}

bool tt_text_key_recall(tt_text_key *k, const char *folder)
{
    tt_str path = {0};
    char *text = NULL;
    size_t n = 0;
    note_path(k, folder, &path);
    const bool is = tt_read_file(path.s, 64, &text, &n, NULL) == TT_OK && n == 33 &&
                    strspn(text, "0123456789abcdef") == 32 && text[32] == '\n';
    if (is)
        memcpy(k->by_content, text, 32);
    free(text);
    tt_str_free(&path);
    return is;
}

/* A file that was written in the same tick of the file system's clock in which we read it could
 * change again without new times. For such a new file nothing is noted, and the next run reads
 * it. */
void tt_text_key_note(const tt_text_key *k, const char *folder, int64_t began_ns)
{
    const int64_t tick = 2000000000;
    tt_str path = {0};
    char text[34];
    for (size_t i = 0; i < k->o->files->n; i++)
        if (k->ids[i].ctime_ns > began_ns - tick || k->ids[i].mtime_ns > began_ns - tick)
            return;
    note_path(k, folder, &path);
    snprintf(text, sizeof text, "%s\n", k->by_content);
    tt_write_file_atomic(path.s, text, 33, NULL); /* if this fails, the next run reads the text */
    tt_str_free(&path);
}
