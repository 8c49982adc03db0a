/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "corpus.h"
#include "json_line.h"
#include "paths.h"
#include "unpack.h"
#include <ttrun/log.h>

/* jsonl: files of one JSON object a line, plain, gzip or zstd; one string field of each is a
 * document with the tokenizer's bos and eos around it. Joined to one stream of tokens in the order
 * of paths and lines. */

typedef struct {
    tt_strings path;
    const char *field;
    bool shuffle; /* shuffle and seed are read by the core, which owns the order */
    int64_t seed;
    bool document_mask;
} config;

static const tt_option options[] = {
    TT_OPTION(config, path, TT_OPT_STRINGS, "[]", 0, 0,
              "JSON-lines files and globs, also .gz and .zst, relative to the job file"),
    TT_OPTION(config, field, TT_OPT_STRING, "\"text\"", 0, 0,
              "the key whose string is the document"),
    TT_OPTION(config, shuffle, TT_OPT_BOOL, "true", 0, 0,
              "draw a new order of the samples each epoch"),
    TT_OPTION_MORE(config, seed, TT_OPT_INT, "null", 0, 9007199254740992.0, NULL, TT_OPT_NULLABLE,
                   NULL, "of the order; null: training.seed"),
    TT_OPTION(config, document_mask, TT_OPT_BOOL, "false", 0, 0,
              "keep attention and positions within a document"),
};

enum { BLOCK = 1 << 18 };                       /* bytes read at a time */
static const size_t max_line = (size_t)1 << 30; /* a file without ends of line is no JSON lines */

typedef struct {
    char *bytes;
    size_t cap, begin, end;
    size_t scanned; /* from begin: no end of line before */
    bool last;      /* the file has no more */
} lines;

typedef struct {
    const config *g;
    const tt_dataloader_env *env;
    tt_tokenizer_info info;
    corpus *c;
    lines in;
    char *text, *scratch; /* [cap] each */
    size_t cap;
    tt_ids ids;
    int64_t n_documents, n_empty;
    size_t n_bytes; /* of text */
} job;

/* The next line without its end; *line NULL after the last. */
static tt_status next_line(lines *b, unpack *u, const char **line, size_t *n, tt_error *err)
{
    for (;;) {
        const char *from = b->bytes ? b->bytes + b->begin : "";
        const size_t have = b->end - b->begin;
        const char *stop =
            have > b->scanned ? memchr(from + b->scanned, '\n', have - b->scanned) : NULL;
        if (stop || b->last) {
            *line = stop || have > 0 ? from : NULL;
            *n = stop ? (size_t)(stop - from) : have;
            b->begin += *n + (stop != NULL);
            b->scanned = 0;
            return TT_OK;
        }
        b->scanned = have;
        if (have > max_line)
            return TT_FAIL(err, TT_EINVAL, "a line of more than 1 GiB");
        if (b->begin > 0)
            memmove(b->bytes, from, have);
        b->begin = 0;
        b->end = have;
        if (b->cap - have < BLOCK) {
            const size_t cap = 2 * b->cap + BLOCK;
            char *grown = realloc(b->bytes, cap);
            if (!grown)
                return TT_FAIL(err, TT_ENOMEM, "out of memory for a line of %zu bytes", have);
            b->bytes = grown;
            b->cap = cap;
        }
        size_t got = 0;
        TT_TRY(unpack_read(u, b->bytes + have, b->cap - have, &got, err));
        b->end += got;
        b->last = got == 0;
    }
}

static tt_status room_for(job *j, size_t n, tt_error *err)
{
    if (n <= j->cap)
        return TT_OK;
    const size_t cap = n + n / 2;
    char *text = realloc(j->text, cap);
    if (text)
        j->text = text;
    char *scratch = text ? realloc(j->scratch, cap) : NULL;
    if (!scratch)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for a line of %zu bytes", n);
    j->scratch = scratch;
    j->cap = cap;
    return TT_OK;
}

static bool blank(const char *s, size_t n)
{
    while (n > 0 && (s[n - 1] == ' ' || s[n - 1] == '\t' || s[n - 1] == '\r'))
        n--;
    return n == 0;
}

static tt_status add_line(job *j, const char *line, size_t n, tt_error *err)
{
    const unsigned char *s = (const unsigned char *)line;
    json_reader r = {s, s, s + n, NULL};
    size_t text_n = 0;
    bool found, is_string;
    TT_TRY(room_for(j, n, err));
    if (!json_field(&r, j->g->field, j->text, &text_n, j->scratch, &found, &is_string))
        return TT_FAIL(err, TT_EINVAL, "%s, at byte %lld of the line", r.fault,
                       (long long)(r.at - r.s) + 1);
    if (!found)
        return TT_FAIL(err, TT_EINVAL,
                       "no field \"%s\"; dataloader.field names the one that is the document",
                       j->g->field);
    if (!is_string)
        return TT_FAIL(err, TT_EINVAL, "\"%s\" is not a string", j->g->field);
    j->n_bytes += text_n;
    if (text_n == 0) {
        j->n_empty++;
        return TT_OK;
    }
    j->ids.n = 0;
    TT_TRY(j->env->tokenizer->encode(j->env->tokenizer_self, j->text, text_n, &j->ids, err));
    j->n_documents++;
    return add_document(j->c, &j->info, &j->ids, err);
}

static void tell(const job *j, const unpack *u, size_t file, size_t n_files)
{
    const double part = u->n > 0 ? (double)u->at / (double)u->n : 1;
    if (j->env->progress)
        j->env->progress(j->env->progress_user, "reading text",
                         ((double)file + part) / (double)n_files);
}

static tt_status read_file(job *j, const names *files, size_t file, tt_error *err)
{
    const char *path = files->items[file], *bytes = NULL, *line = NULL;
    size_t n_file = 0, n = 0, told = 0;
    unpack u;
    TT_TRY(map_file(path, &bytes, &n_file, err));
    TT_TRY(unpack_open(path, bytes, n_file, &u, err));
    j->in.begin = j->in.end = j->in.scanned = 0;
    j->in.last = false;
    tt_status status = TT_OK;
    for (int64_t number = 1; status == TT_OK; number++) {
        status = next_line(&j->in, &u, &line, &n, err);
        if (status == TT_OK && !line)
            break;
        if (status == TT_OK && number == 1 && n >= 3 && memcmp(line, "\xef\xbb\xbf", 3) == 0) {
            line += 3; /* a byte order mark, of Windows editors */
            n -= 3;
        }
        if (status == TT_OK && !blank(line, n))
            status = add_line(j, line, n, err);
        if (status != TT_OK && !(err && strstr(err->text, path)))
            tt_error_context(err, "dataloader.path: %s:%lld", path, (long long)number);
        if (u.at - told > (size_t)16 << 20) {
            told = u.at;
            tell(j, &u, file, files->n);
        }
    }
    if (status == TT_OK)
        tell(j, &u, file, files->n);
    unpack_close(&u);
    return status;
}

static tt_status read_files(job *j, const names *files, tt_error *err)
{
    tt_status status = TT_OK;
    for (size_t i = 0; status == TT_OK && i < files->n; i++)
        status = read_file(j, files, i, err);
    tt_ids_free(&j->ids);
    free(j->in.bytes);
    free(j->text);
    free(j->scratch);
    return status;
}

static tt_status load(const config *g, const tt_dataloader_env *env, corpus *c, names *files,
                      tt_error *err)
{
    if (!env->tokenizer)
        return TT_FAIL(err, TT_EINVAL,
                       "dataloader jsonl reads text and needs a tokenizer; set tokenizer.name");
    TT_TRY(expand_all(env->job_dir, &g->path, "corpus/*.jsonl.zst", files, err));
    job j = {.g = g, .env = env, .c = c, .info = corpus_begin(c, env, g->document_mask)};
    TT_TRY(read_files(&j, files, err));
    TT_TRY(corpus_end(c, files->n, err));
    if (j.n_empty > 0)
        tt_log(TT_INFO, "data", "%lld documents are empty and were left out", (long long)j.n_empty);
    tt_log(TT_INFO, "data",
           "%zu files, %lld documents, %zu bytes, %zu tokens, %lld samples an epoch", files->n,
           (long long)j.n_documents, j.n_bytes, c->n_tokens, (long long)c->n_samples);
    return TT_OK;
}

static tt_status open_jsonl(const void *cfg, const tt_dataloader_env *env, void **self,
                            tt_error *err)
{
    names files = {0};
    corpus *c = calloc(1, sizeof *c);
    if (!c)
        return TT_FAIL(err, TT_ENOMEM, "out of memory opening the jsonl loader");
    const tt_status status = load(cfg, env, c, &files, err);
    names_free(&files);
    if (status != TT_OK) {
        corpus_close(c);
        return status;
    }
    *self = c;
    return TT_OK;
}

static const tt_dataloader_vt vt = {sizeof vt,      open_jsonl,  corpus_close,
                                    corpus_samples, corpus_read, 1};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_DATALOADER, "jsonl",
                 "JSON lines (also .gz, .zst), a field of each a document", config, options, &vt),
};

TT_PLUGIN("jsonl", "1.0", components);
