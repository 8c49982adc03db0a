/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "json_line.h"
#include "unpack.h"
#include <stdio.h>
#include <string.h>
#include <ttrun/corpus.h>

/* jsonl: files with one JSON object per line, plain, gzip or zstd. One string field of each object
 * is a document; the tokenizer's bos and eos are put around it. Documents form one stream of tokens
 * in the order of paths and lines. */

typedef struct {
    tt_strings path;
    const char *field;
    bool shuffle; /* the core, which orders the samples, reads shuffle and seed */
    int64_t seed;
    bool document_mask;
    const char *cache, *packing;
} config;

static const tt_option options[] = {
    TT_OPTION_MORE(
        config, path, TT_OPT_STRINGS, "[]", 0, 0, NULL, TT_OPT_PATH, NULL,
        "JSON-lines files and globs, also .gz and .zst, relative to the file that names them"),
    TT_OPTION(config, field, TT_OPT_STRING, "\"text\"", 0, 0,
              "the key whose string is the document"),
    TT_OPTION(config, shuffle, TT_OPT_BOOL, "true", 0, 0,
              "draw a new order of the samples each epoch"),
    TT_OPTION_MORE(config, seed, TT_OPT_INT, "null", 0, 9007199254740992.0, NULL, TT_OPT_NULLABLE,
                   NULL, "seed of the order; null: training.seed"),
    TT_OPTION(config, document_mask, TT_OPT_BOOL, "false", 0, 0,
              "keep attention, positions and labels within a document"),
    TT_CORPUS_OPTION_CACHE(config),
    TT_CORPUS_OPTION_PACKING(config),
};

enum { BLOCK = 1 << 18 }; /* bytes read at a time */
/* a longer line means that the file is not JSON lines */
static const size_t max_line = (size_t)256 << 20;

typedef struct {
    char *bytes;
    size_t cap, begin, end;
    size_t scanned; /* bytes from begin on that are known to hold no end of line */
    bool last;      /* the file is read to its end */
} lines;

typedef struct {
    const char *field;
    lines in;
    char *text, *scratch; /* [cap] each */
    size_t cap;
} reader;

/* The next line without its newline; *line is NULL after the last. */
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
            return TT_FAIL(err, TT_EINVAL, "a line of more than 256 MiB; split the document");
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

static tt_status room_for(reader *j, size_t n, tt_error *err)
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

static tt_status add_line(reader *j, const char *line, size_t n, int64_t at, tt_documents *to,
                          tt_error *err)
{
    const unsigned char *s = (const unsigned char *)line;
    json_reader r = {s, s, s + n, NULL};
    size_t text_n = 0;
    bool found, is_string;
    TT_TRY(room_for(j, n, err));
    if (!json_field(&r, j->field, j->text, &text_n, j->scratch, &found, &is_string))
        return TT_FAIL(err, TT_EINVAL, "%s, at byte %lld of the line", r.fault,
                       (long long)(r.at - r.s) + 1);
    if (!found)
        return TT_FAIL(err, TT_EINVAL,
                       "no field \"%s\"; dataloader.field names the one that is the document",
                       j->field);
    if (!is_string)
        return TT_FAIL(err, TT_EINVAL, "\"%s\" is not a string", j->field);
    return tt_documents_add(to, j->text, text_n, at, err);
}

static tt_status read_lines(reader *j, unpack *u, tt_documents *to, tt_error *err)
{
    const char *path = u->in.path, *line = NULL;
    size_t n = 0;
    tt_status status = TT_OK;
    for (int64_t number = 1; status == TT_OK; number++) {
        status = next_line(&j->in, u, &line, &n, err);
        if (status == TT_OK && !line)
            break;
        if (status == TT_OK && number == 1 && n >= 3 && memcmp(line, "\xef\xbb\xbf", 3) == 0) {
            line += 3; /* skips the byte order mark that Windows editors write */
            n -= 3;
        }
        if (status == TT_OK && !blank(line, n))
            status = add_line(j, line, n, unpack_taken(u), to, err);
        if (status != TT_OK && status != TT_ESIGNAL && !(err && strstr(err->text, path)))
            tt_error_context(err, "dataloader.path: %s:%lld", path, (long long)number);
    }
    return status;
}

static tt_status jsonl_read_file(void *user, const char *path, tt_documents *to, tt_error *err)
{
    reader *j = user;
    unpack u;
    TT_TRY(unpack_open(path, &u, err));
    j->in.begin = j->in.end = j->in.scanned = 0;
    j->in.last = false;
    const tt_status status = read_lines(j, &u, to, err);
    unpack_close(&u);
    return status;
}

static tt_status open_jsonl(const void *cfg, const tt_dataloader_env *env, void **self,
                            tt_error *err)
{
    const config *g = cfg;
    const size_t n = strlen(g->field) + sizeof "jsonl 1 ";
    reader j = {.field = g->field};
    tt_files files = {0};
    tt_tokens *tokens;
    TT_TRY(tt_files_find(&g->path, env->job_dir, "corpus/*.jsonl.zst", &files, err));
    char *name = malloc(n);
    const tt_corpus_opts o = {.struct_size = sizeof o,
                              .env = env,
                              .files = &files,
                              .read = jsonl_read_file,
                              .user = &j,
                              .reader = name,
                              .cache = g->cache,
                              .document_mask = g->document_mask,
                              .packing = g->packing};
    if (name)
        snprintf(name, n, "jsonl 1 %s", g->field);
    const tt_status s = name ? tt_corpus_open(&o, &tokens, err)
                             : TT_FAIL(err, TT_ENOMEM, "out of memory for a name");
    tt_files_free(&files);
    free(name);
    free(j.in.bytes);
    free(j.text);
    free(j.scratch);
    if (s == TT_OK)
        *self = tokens;
    return s;
}

static int one_segment(const void *cfg)
{
    const config *c = cfg;
    return !c->document_mask && (!c->packing || strcmp(c->packing, "none") == 0);
}

static const tt_dataloader_vt vt = {sizeof vt,         open_jsonl,     tt_tokens_close,
                                    tt_tokens_samples, tt_tokens_read, 1,
                                    tt_tokens_info,    NULL,           one_segment};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_DATALOADER, "jsonl",
                 "JSON lines (also .gz, .zst), one field per line is a document", config, options,
                 &vt),
};

TT_PLUGIN("jsonl", "1.0", components);
