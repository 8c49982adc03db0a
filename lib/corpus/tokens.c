/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "corpus/tokens.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A stream of tokens in files, and the samples made of it. */

enum {
    LOOK = 4096,    /* tokens of each file that are checked when it is opened */
    PIECE = 16384,  /* bytes per read, on the stack */
    MOST_OPEN = 256 /* files kept open; if there are more, each read opens its file */
};

tt_status tt_read_at(int fd, const char *path, int64_t at, void *out, size_t n, tt_error *err)
{
    struct stat st;
    for (char *p = out; n > 0;) {
        const ssize_t k = pread(fd, p, n, at);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return TT_FAIL(err, TT_EIO, "%s: cannot read: %s", path, strerror(errno));
        if (k == 0)
            return TT_FAIL(err, TT_EIO,
                           "%s ends at byte %lld, and was longer when it was opened: something "
                           "changed it meanwhile; put it back",
                           path, fstat(fd, &st) == 0 ? (long long)st.st_size : 0LL);
        p += k;
        at += k;
        n -= (size_t)k;
    }
    return TT_OK;
}

static tt_status open_file(const char *path, int *out, tt_error *err)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* do not block on a pipe */
    if (fd < 0)
        return TT_FAIL(err, TT_EIO, "dataloader.path: cannot read %s: %s", path, strerror(errno));
    *out = fd;
    return TT_OK;
}

static uint64_t token(const unsigned char *p, int width)
{
    uint64_t v = 0;
    for (int i = 0; i < width; i++)
        v |= (uint64_t)p[i] << 8 * i;
    return v;
}

/* Converts the k tokens of one read to int32. */
static tt_status widen(const tt_token_span *f, int64_t at, const unsigned char *p, int64_t k,
                       int32_t *out, tt_error *err)
{
    if (f->width == 1) {
        for (int64_t i = 0; i < k; i++)
            out[i] = p[i];
        return TT_OK;
    }
    if (f->width == 2) {
        for (int64_t i = 0; i < k; i++)
            out[i] = p[2 * i] | p[2 * i + 1] << 8;
        return TT_OK;
    }
    for (int64_t i = 0; i < k; i++) {
        const uint64_t id = token(p + i * f->width, f->width);
        if (id > INT32_MAX) /* as a label it could become negative, hence not counted */
            return TT_FAIL(err, TT_EINVAL,
                           "%s: token %lld is %llu; the file is for another tokenizer or of "
                           "another dataloader.format",
                           f->path, (long long)(at + i), (unsigned long long)id);
        out[i] = (int32_t)id;
    }
    return TT_OK;
}

/* Reads n tokens of one file from its token `at` on. */
static tt_status read_span(const tt_token_span *f, int64_t at, int64_t n, int32_t *out,
                           tt_error *err)
{
    unsigned char piece[PIECE];
    int fd = f->fd;
    if (f->memory)
        return widen(f, at, f->memory + f->first + at * f->width, n, out, err);
    tt_status s = fd < 0 ? open_file(f->path, &fd, err) : TT_OK;
    for (int64_t k; s == TT_OK && n > 0; at += k, out += k, n -= k) {
        k = TT_MIN(n, PIECE / f->width);
        s = tt_read_at(fd, f->path, f->first + at * f->width, piece, (size_t)(k * f->width), err);
        if (s == TT_OK)
            s = widen(f, at, piece, k, out, err);
    }
    if (f->fd < 0 && fd >= 0)
        close(fd);
    return s;
}

/* The file that holds token `at`: the last one that starts at or before it. */
static size_t span_of(const tt_tokens *t, int64_t at)
{
    size_t lo = 0, hi = t->n_spans;
    while (hi - lo > 1) {
        const size_t mid = lo + (hi - lo) / 2;
        if (t->spans[mid].start <= at)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

tt_status tt_tokens_fetch(const tt_tokens *t, int64_t at, int64_t n, int32_t *out, tt_error *err)
{
    TT_ASSERT(at >= 0 && n >= 0 && n <= t->n_tokens - at);
    for (size_t i = n > 0 ? span_of(t, at) : 0; n > 0; i++) {
        const tt_token_span *f = &t->spans[i];
        const int64_t k = TT_MIN(n, f->n - (at - f->start));
        TT_TRY(read_span(f, at - f->start, k, out, err));
        at += k;
        out += k;
        n -= k;
    }
    return TT_OK;
}

/* Checks whether the file's first tokens are in the vocabulary, which finds a wrong width. An error
 * here names the file. */
static tt_status look_at(const tt_token_span *f, int64_t vocab_size, tt_error *err)
{
    unsigned char piece[PIECE];
    const int64_t n = TT_MIN(f->n, TT_MIN(LOOK, PIECE / f->width));
    if (vocab_size <= 0)
        return TT_OK;
    TT_TRY(tt_read_at(f->fd, f->path, f->first, piece, (size_t)(n * f->width), err));
    for (int64_t i = 0; i < n; i++) {
        const uint64_t id = token(piece + i * f->width, f->width);
        if (id >= (uint64_t)vocab_size)
            return TT_FAIL(
                err, TT_EINVAL,
                "dataloader.path: %s: token %lld is %llu, outside the model's vocabulary of %lld; "
                "the file is for another tokenizer or of another dataloader.format",
                f->path, (long long)i, (unsigned long long)id, (long long)vocab_size);
    }
    return TT_OK;
}

static tt_status add_file(tt_tokens *t, const tt_token_file *file, int64_t vocab_size,
                          tt_error *err)
{
    tt_token_span *f = &t->spans[t->n_spans];
    struct stat st;
    int64_t bytes = 0, end = 0;
    TT_ASSERT(file->width == 1 || file->width == 2 || file->width == 4 || file->width == 8);
    TT_TRY(open_file(file->path, &f->fd, err));
    t->n_spans++; /* from here on tt_tokens_close closes it */
    *f = (tt_token_span){.path = strdup(file->path),
                         .fd = f->fd,
                         .width = file->width,
                         .first = file->first_byte,
                         .n = file->n,
                         .start = t->n_tokens};
    if (!f->path)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for file names");
    if (fstat(f->fd, &st) != 0 || !S_ISREG(st.st_mode))
        return TT_FAIL(err, TT_EINVAL, "dataloader.path: %s is not a regular file", f->path);
    if (f->n < 0 || f->first < 0 || !tt_mul_i64(f->n, f->width, &bytes) ||
        !tt_add_i64(bytes, f->first, &end) || end > st.st_size)
        return TT_FAIL(err, TT_EINVAL,
                       "dataloader.path: %s: %lld tokens of %d bytes from byte %lld on do not lie "
                       "within its %lld bytes",
                       f->path, (long long)f->n, f->width, (long long)f->first,
                       (long long)st.st_size);
    TT_TRY(look_at(f, vocab_size, err));
    if (!tt_add_i64(t->n_tokens, f->n, &t->n_tokens))
        return TT_FAIL(err, TT_EINVAL, "dataloader.path: more tokens than 2^63");
    if (t->n_spans > MOST_OPEN) {
        close(f->fd);
        f->fd = -1;
    }
    return TT_OK;
}

/* The token that pads a packed sample: the tokenizer's pad, else 0. */
static int32_t pad_of(const tt_dataloader_env *env)
{
    tt_tokenizer_info info = {.struct_size = sizeof info, .pad = -1};
    if (env->tokenizer)
        env->tokenizer->info(env->tokenizer_self, &info);
    return info.pad >= 0 && info.pad < env->vocab_size ? info.pad : 0;
}

tt_status tt_tokens_ready(tt_tokens *t, const tt_dataloader_env *env, const char *packing,
                          tt_error *err)
{
    const int64_t seq_len = t->seq_len = env->seq_len;
    if (packing && strcmp(packing, "best_fit") == 0)
        return tt_tokens_pack(t, pad_of(env), err);
    t->n_samples = t->n_tokens > 0 ? (t->n_tokens - 1) / seq_len : 0;
    if (t->n_samples >= 1)
        return TT_OK;
    return TT_FAIL(err, TT_EINVAL,
                   "dataloader.path: %lld file%s with %lld tokens, and one sample of "
                   "training.seq_len %lld takes %lld; add files or lower training.seq_len",
                   (long long)t->n_files, t->n_files == 1 ? "" : "s", (long long)t->n_tokens,
                   (long long)seq_len, (long long)seq_len + 1);
}

static tt_status keep_documents(tt_tokens *t, const tt_tokens_opts *o, tt_error *err)
{
    const size_t n = o->n_documents;
    t->documents.memory = n < SIZE_MAX / 8 ? malloc(n ? 8 * n : 1) : NULL;
    if (!t->documents.memory)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for the starts of %zu documents", n);
    if (n > 0)
        memcpy(t->documents.memory, o->documents, 8 * n);
    t->documents.n = t->n_documents = (int64_t)n;
    return TT_OK;
}

static tt_status tokens_fill(tt_tokens *t, const tt_tokens_opts *o, tt_error *err)
{
    t->spans = calloc(o->n_files ? o->n_files : 1, sizeof *t->spans);
    if (!t->spans)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for %zu files", o->n_files);
    for (size_t i = 0; i < o->n_files; i++) {
        const tt_token_file *f =
            (const tt_token_file *)(const void *)((const char *)o->files + i * o->file_size);
        if (f->n > 0)
            TT_TRY(add_file(t, f, o->env->vocab_size, err));
    }
    t->n_files = (int64_t)o->n_files;
    t->n_documents = t->text_bytes = -1;
    if (o->documents)
        TT_TRY(keep_documents(t, o, err));
    t->document_mask = o->document_mask;
    t->bos_id = o->bos_id;
    t->eos_id = o->eos_id;
    return tt_tokens_ready(t, o->env, TT_HAS(o, tt_tokens_opts, packing) ? o->packing : NULL, err);
}

tt_status tt_tokens_open(const tt_tokens_opts *o, tt_tokens **out, tt_error *err)
{
    tt_tokens *t = calloc(1, sizeof *t);
    if (!t)
        return TT_FAIL(err, TT_ENOMEM, "out of memory opening files of tokens");
    t->documents.fd = -1;
    const tt_status s = tokens_fill(t, o, err);
    if (s != TT_OK) {
        tt_tokens_close(t);
        return s;
    }
    *out = t;
    return TT_OK;
}

void tt_tokens_close(void *self)
{
    tt_tokens *t = self;
    if (!t)
        return;
    for (size_t i = 0; i < t->n_spans; i++) {
        if (t->spans[i].fd >= 0)
            close(t->spans[i].fd);
        free(t->spans[i].path);
        free(t->spans[i].memory);
    }
    tt_packing_free(&t->packing);
    free(t->documents.memory);
    if (t->documents.fd >= 0)
        close(t->documents.fd);
    free(t->spans);
    free(t->cache);
    free(t->note);
    free(t);
}

int64_t tt_tokens_samples(void *self)
{
    return ((const tt_tokens *)self)->n_samples;
}

void tt_tokens_info(void *self, tt_dataloader_info *out)
{
    const tt_tokens *t = self;
    out->files = t->n_files;
    out->documents = t->n_documents;
    out->tokens = t->n_tokens;
    out->text_bytes = t->text_bytes;
    out->cache = t->cache;
    out->note = t->note;
    if (TT_HAS(out, tt_dataloader_info, padding))
        out->padding = t->packing.bins ? t->packing.padding : -1;
}

/* Stores token i of a sample; i = seq_len is the token after the sample, which is the last label.
 * If a document begins here, pos restarts and seg grows, and the label of the token before does not
 * count. */
static void mark_token(tt_sample *out, int64_t i, bool begins, int32_t *pos, int32_t *seg)
{
    if (begins) {
        out->labels[i - 1] = -100;
        *pos = 0;
        ++*seg;
    }
    if (i == out->seq_len)
        return;
    out->pos[i] = (*pos)++;
    out->seg[i] = *seg;
}

/* If bos and eos are the same id, it begins a document: the tokens after it see it. */
static void mark_by_ids(const tt_tokens *t, tt_sample *out)
{
    const int32_t bos = t->bos_id, eos = t->eos_id == bos ? -1 : t->eos_id;
    int32_t pos = 0, seg = 0;
    for (int64_t i = 0; i <= t->seq_len; i++) {
        const int32_t id = i < t->seq_len ? out->ids[i] : out->labels[i - 1];
        const bool begins =
            i > 0 && ((bos >= 0 && id == bos) || (eos >= 0 && out->ids[i - 1] == eos));
        mark_token(out, i, begins, &pos, &seg);
    }
}

tt_status tt_document_starts(const tt_tokens *t, int64_t i, int64_t n, int64_t *out, tt_error *err)
{
    const tt_document_index *d = &t->documents;
    if (!d->memory)
        return tt_read_at(d->fd, t->cache, d->first + i * 8, out, (size_t)n * 8, err);
    memcpy(out, d->memory + i * 8, (size_t)n * 8);
    return TT_OK;
}

/* The first document that starts after token `at`. */
static tt_status document_after(const tt_tokens *t, int64_t at, int64_t *out, tt_error *err)
{
    int64_t lo = 0, hi = t->documents.n, start;
    while (lo < hi) {
        const int64_t mid = lo + (hi - lo) / 2;
        TT_TRY(tt_document_starts(t, mid, 1, &start, err));
        if (start <= at)
            lo = mid + 1;
        else
            hi = mid;
    }
    *out = lo;
    return TT_OK;
}

/* Marks documents by their list; of several that begin at one token all but the last are empty. */
static tt_status mark_by_index(const tt_tokens *t, int64_t begin, tt_sample *out, tt_error *err)
{
    const tt_document_index *d = &t->documents;
    int64_t starts[256], first, have = 0, used = 0;
    TT_TRY(document_after(t, begin, &first, err));
    int32_t seg = 0, pos = 0;
    for (int64_t i = 0; i <= t->seq_len; i++) {
        bool begins = false;
        for (;;) {
            if (used == have && first < d->n) {
                have = TT_MIN((int64_t)TT_COUNT(starts), d->n - first);
                TT_TRY(tt_document_starts(t, first, have, starts, err));
                first += have;
                used = 0;
            }
            if (used == have || starts[used] > begin + i)
                break;
            begins = true;
            used++;
        }
        mark_token(out, i, begins, &pos, &seg);
    }
    return TT_OK;
}

tt_status tt_tokens_read(void *self, int64_t i, tt_sample *out, tt_error *err)
{
    const tt_tokens *t = self;
    const int64_t T = t->seq_len;
    if (i < 0 || i >= t->n_samples || out->seq_len != T)
        return TT_FAIL(err, TT_EINTERNAL,
                       "loader of tokens: there is no sample %lld of %lld with %lld tokens",
                       (long long)i, (long long)t->n_samples, (long long)out->seq_len);
    if (t->packing.bins)
        return tt_packed_read(t, i, out, err);
    TT_TRY(tt_tokens_fetch(t, i * T, T, out->ids, err));
    TT_TRY(tt_tokens_fetch(t, i * T + T, 1, out->labels + T - 1, err));
    memcpy(out->labels, out->ids + 1, (size_t)(T - 1) * sizeof *out->ids);
    if (!t->document_mask)
        return TT_OK;
    if (t->documents.fd >= 0 || t->documents.memory)
        return mark_by_index(t, i * T, out, err);
    mark_by_ids(t, out);
    return TT_OK;
}
