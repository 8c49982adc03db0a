/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "bin_format.h"
#include "paths.h"
#include <ttrun/log.h>

/* bin: files of tokens, mapped and never copied as a whole: llm.c's by their header, others as
 * dataloader.format says. All files are one stream in path order, and sample i is its tokens
 * [i*seq_len, i*seq_len + seq_len]: inputs all but the last, labels all but the first. */

typedef struct {
    tt_strings path;
    const char *format;
    bool shuffle; /* shuffle and seed are read by the core, which owns the order */
    int64_t seed;
    bool document_mask;
    int64_t bos_id, eos_id;
} config;

static const tt_option options[] = {
    TT_OPTION(config, path, TT_OPT_STRINGS, "[]", 0, 0,
              "files of tokens and globs (** crosses folders), relative to the job file"),
    TT_OPTION_MORE(config, format, TT_OPT_ENUM, "\"auto\"", 0, 0, "auto|uint16|uint32", 0, NULL,
                   "auto: by the header (llm.c's GPT-2 and Llama-3); else tokens without a header"),
    TT_OPTION(config, shuffle, TT_OPT_BOOL, "true", 0, 0,
              "draw a new order of the samples each epoch"),
    TT_OPTION_MORE(config, seed, TT_OPT_INT, "null", 0, 9007199254740992.0, NULL, TT_OPT_NULLABLE,
                   NULL, "of the order; null: training.seed"),
    TT_OPTION(config, document_mask, TT_OPT_BOOL, "false", 0, 0,
              "keep attention and positions within a document; by bos_id, eos_id or both"),
    TT_OPTION_MORE(config, bos_id, TT_OPT_INT, "null", 0, 2147483647.0, NULL, TT_OPT_NULLABLE, NULL,
                   "the token that begins a document (llm.c's GPT-2 files: 50256)"),
    TT_OPTION_MORE(config, eos_id, TT_OPT_INT, "null", 0, 2147483647.0, NULL, TT_OPT_NULLABLE, NULL,
                   "the token that ends a document"),
};

typedef struct {
    char *path;
    const unsigned char *bytes; /* mapped; NULL where empty */
    size_t n_bytes;
    bin_layout at;
    int64_t start; /* of its tokens in the stream */
} token_file;

typedef struct {
    token_file *files;
    size_t n_files;
    int64_t n_tokens, seq_len, n_samples, bos_id, eos_id;
    bool document_mask;
} stream;

static void close_bin(void *self)
{
    stream *s = self;
    if (!s)
        return;
    for (size_t i = 0; i < s->n_files; i++) {
        if (s->files[i].bytes)
            munmap((void *)(uintptr_t)s->files[i].bytes, s->files[i].n_bytes);
        free(s->files[i].path);
    }
    free(s->files);
    free(s);
}

static uint32_t token(const token_file *f, int64_t i)
{
    const unsigned char *p = f->bytes + f->at.first + i * f->at.width;
    return f->at.width == 2 ? p[0] | (uint32_t)p[1] << 8 : bin_u32(p);
}

/* The first tokens against the vocabulary, which a wrong width shows in: an error here names the
 * file. All others are checked as they are read, by the core. */
static tt_status look_at(const token_file *f, int64_t vocab_size, tt_error *err)
{
    for (int64_t i = 0; vocab_size > 0 && i < f->at.n && i < 4096; i++)
        if (token(f, i) >= vocab_size)
            return TT_FAIL(err, TT_EINVAL,
                           "dataloader.path: %s: token %lld is %lu, outside the model's vocabulary "
                           "of %lld; the file is for another tokenizer or of another "
                           "dataloader.format",
                           f->path, (long long)i, (unsigned long)token(f, i),
                           (long long)vocab_size);
    return TT_OK;
}

static tt_status add_file(stream *s, const char *path, int raw_width, int64_t vocab_size,
                          tt_error *err)
{
    token_file *f = &s->files[s->n_files];
    const char *bytes = NULL;
    size_t n = 0;
    TT_TRY(map_file(path, &bytes, &n, err));
    f->bytes = (const unsigned char *)bytes;
    f->n_bytes = n;
    s->n_files++; /* from here close_bin knows it */
    f->path = strdup(path);
    if (!f->path)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for file names");
    if (bytes)
        madvise((void *)(uintptr_t)bytes, n, MADV_NORMAL);
    TT_TRY(bin_layout_of(path, f->bytes, n, raw_width, &f->at, err));
    if (f->at.width != s->files[0].at.width)
        return TT_FAIL(err, TT_EINVAL,
                       "dataloader.path: %s has tokens of %d bytes and %s of %d: they are of two "
                       "tokenizers; take one",
                       path, f->at.width, s->files[0].path, s->files[0].at.width);
    TT_TRY(look_at(f, vocab_size, err));
    f->start = s->n_tokens;
    if (f->at.n > INT64_MAX - s->n_tokens)
        return TT_FAIL(err, TT_EINVAL, "dataloader.path: more tokens than 2^63");
    s->n_tokens += f->at.n;
    return TT_OK;
}

static tt_status load(const config *g, const tt_dataloader_env *env, stream *s, names *files,
                      tt_error *err)
{
    const int raw_width = strcmp(g->format, "uint16") == 0   ? 2
                          : strcmp(g->format, "uint32") == 0 ? 4
                                                             : 0;
    if (g->document_mask && g->bos_id < 0 && g->eos_id < 0)
        return TT_FAIL(err, TT_EINVAL,
                       "dataloader.document_mask needs dataloader.bos_id or dataloader.eos_id: the "
                       "token that begins or ends a document");
    TT_TRY(expand_all(env->job_dir, &g->path, "corpus/*.bin", files, err));
    s->files = calloc(files->n, sizeof *s->files);
    if (!s->files)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for %zu files", files->n);
    for (size_t i = 0; i < files->n; i++)
        TT_TRY(add_file(s, files->items[i], raw_width, env->vocab_size, err));
    s->seq_len = env->seq_len;
    s->document_mask = g->document_mask;
    s->bos_id = g->bos_id;
    s->eos_id = g->eos_id;
    s->n_samples = s->n_tokens > 0 ? (s->n_tokens - 1) / s->seq_len : 0;
    if (s->n_samples < 1)
        return TT_FAIL(
            err, TT_EINVAL,
            "dataloader.path: %zu files have %lld tokens, and one sample of training.seq_len %lld "
            "takes %lld; add files or lower training.seq_len",
            s->n_files, (long long)s->n_tokens, (long long)s->seq_len, (long long)s->seq_len + 1);
    tt_log(TT_INFO, "data", "%zu files, %lld tokens of %d bytes, %lld samples an epoch", s->n_files,
           (long long)s->n_tokens, s->files[0].at.width, (long long)s->n_samples);
    return TT_OK;
}

static tt_status open_bin(const void *cfg, const tt_dataloader_env *env, void **self, tt_error *err)
{
    names files = {0};
    stream *s = calloc(1, sizeof *s);
    if (!s)
        return TT_FAIL(err, TT_ENOMEM, "out of memory opening the bin loader");
    const tt_status status = load(cfg, env, s, &files, err);
    names_free(&files);
    if (status != TT_OK) {
        close_bin(s);
        return status;
    }
    *self = s;
    return TT_OK;
}

static int64_t n_samples(void *self)
{
    return ((const stream *)self)->n_samples;
}

/* The file of token `at`: the last that starts at or before it and is not empty. */
static size_t file_of(const stream *s, int64_t at)
{
    size_t lo = 0, hi = s->n_files;
    while (hi - lo > 1) {
        const size_t mid = lo + (hi - lo) / 2;
        if (s->files[mid].start <= at)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

static void mark_documents(const stream *s, tt_sample *out)
{
    int32_t seg = 0, pos = 0;
    for (int64_t t = 0; t < s->seq_len; t++, pos++) {
        if (t > 0 && (out->ids[t] == s->bos_id || out->ids[t - 1] == s->eos_id)) {
            seg++;
            pos = 0;
        }
        out->pos[t] = pos;
        out->seg[t] = seg;
    }
}

static tt_status read_bin(void *self, int64_t i, tt_sample *out, tt_error *err)
{
    const stream *s = self;
    if (i < 0 || i >= s->n_samples || out->seq_len != s->seq_len)
        return TT_FAIL(err, TT_EINTERNAL,
                       "bin loader: sample %lld of %lld, %lld tokens, was asked for", (long long)i,
                       (long long)s->n_samples, (long long)out->seq_len);
    const int64_t begin = i * s->seq_len;
    size_t file = file_of(s, begin);
    for (int64_t t = 0; t <= s->seq_len; t++) {
        while (begin + t - s->files[file].start >= s->files[file].at.n)
            file++;
        const token_file *f = &s->files[file];
        const uint32_t id = token(f, begin + t - f->start);
        if (id > INT32_MAX) /* as a label it could read as "not counted" */
            return TT_FAIL(err, TT_EINVAL,
                           "%s: token %lld is %lu; the file is for another tokenizer or of another "
                           "dataloader.format",
                           f->path, (long long)(begin + t - f->start), (unsigned long)id);
        if (t < s->seq_len)
            out->ids[t] = (int32_t)id;
        if (t > 0)
            out->labels[t - 1] = (int32_t)id;
    }
    if (s->document_mask)
        mark_documents(s, out);
    return TT_OK;
}

static const tt_dataloader_vt vt = {sizeof vt, open_bin, close_bin, n_samples, read_bin, 0};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_DATALOADER, "bin", "files of tokens: llm.c, raw uint16 and uint32", config,
                 options, &vt),
};

TT_PLUGIN("bin", "1.0", components);
