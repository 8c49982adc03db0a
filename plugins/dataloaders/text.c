/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "field.h"
#include "unpack.h"
#include <stdio.h>
#include <string.h>
#include <ttrun/log.h>

/* text: files and globs, also compressed. Each file is a document, of Parquet files each row; the tokenizer's bos and eos are put
 * around it (corpus.h). Documents form one stream of tokens in path order. */

typedef struct {
    tt_strings path;
    const char *field;
    bool document_mask;
    const char *cache, *packing;
} config;

static const tt_option options[] = {
    TT_OPTION_MORE(
        config, path, TT_OPT_STRINGS, "[]", 0, 0, NULL, TT_OPT_PATH, NULL,
        "text and Parquet files and globs (** crosses folders), also .gz and .zst, relative to the "
        "file that names them"),
    TT_OPTION(config, field, TT_OPT_STRING, "\"text\"", 0, 0,
              "of Parquet files, the column whose strings are the documents"),
    TT_OPTION(config, document_mask, TT_OPT_BOOL, "false", 0, 0,
              "keep attention, positions and labels within a document"),
    TT_CORPUS_OPTION_CACHE(config),
    TT_CORPUS_OPTION_PACKING(config),
};

typedef struct {
    const tt_dataloader_env *env;
    char *bytes;
    size_t cap;
    field_reader row;
    const char *json; /* the first file that looks like JSON; NULL: none */
    int64_t n_json;
} whole_file;

/* Reads a file to its end. */
static tt_status read_whole(whole_file *t, unpack *in, size_t *n, tt_error *err)
{
    size_t used = 0;
    for (size_t got = 1; got > 0; used += got) {
        if (t->cap - used < 1) {
            const size_t cap = t->cap < SIZE_MAX / 2 ? 2 * t->cap + (1 << 16) : SIZE_MAX;
            char *grown = realloc(t->bytes, cap);
            if (!grown)
                return TT_FAIL(err, TT_ENOMEM, "dataloader.path: %s: out of memory after %zu bytes",
                               in->in.path, used);
            t->bytes = grown;
            t->cap = cap;
        }
        TT_TRY(unpack_read(in, t->bytes + used, t->cap - used, &got, err));
    }
    *n = used;
    return TT_OK;
}

/* The first line is a JSON object, or the file begins as a list of them. */
static bool looks_like_json(const char *s, size_t n)
{
    const char *end = memchr(s, '\n', n), *quote;
    size_t k = end ? (size_t)(end - s) : n;
    while (k && strchr(" \t\r", s[k - 1]))
        k--;
    if (n && s[0] == '[') {
        size_t i = 1;
        while (i < n && strchr(" \t\r\n", s[i]))
            i++;
        return i < n && s[i] == '{';
    }
    quote = k > 2 ? memchr(s + 1, '"', k - 1) : NULL;
    return quote && s[0] == '{' && s[k - 1] == '}' &&
           strspn(s + 1, " \t") == (size_t)(quote - s - 1);
}

static void tell_json(const whole_file *t)
{
    char which[64] = " is";
    if (t->n_json > 1)
        snprintf(which, sizeof which, " and %lld other file%s are", (long long)t->n_json - 1,
                 t->n_json == 2 ? "" : "s");
    if (t->n_json)
        tt_log(TT_WARN, "data",
               "%s%s JSON: the loader text trains on braces and keys, too; dataloader.name jsonl "
               "takes one key of each row, chat takes conversations",
               t->json, which);
}

static tt_status text_read_file(void *user, const char *path, tt_documents *to, tt_error *err)
{
    whole_file *t = user;
    unpack in;
    size_t n = 0;
    if (tt_parquet_is(path))
        return field_read_parquet(&t->row, path, to, err);
    TT_TRY(unpack_open(path, t->env, &in, err));
    tt_status s = read_whole(t, &in, &n, err);
    unpack_close(&in);
    if (s == TT_OK && looks_like_json(t->bytes, n) && !t->n_json++)
        t->json = path;
    if (s == TT_OK)
        s = tt_documents_add(to, t->bytes, n, (int64_t)n, err);
    return s;
}

/* What documents are made of depends on the column alone, so other texts keep the name that their caches have. */
static const char *reader_name(const config *g, char *memory, size_t n)
{
    if (!strcmp(g->field, "text"))
        return "text 1";
    snprintf(memory, n, "text 1 %s", g->field);
    return memory;
}

static tt_status open_text(const void *cfg, const tt_dataloader_env *env, void **self,
                           tt_error *err)
{
    const config *g = cfg;
    const size_t n = strlen(g->field) + sizeof "text 1 ";
    tt_files files = {0};
    whole_file t = {.env = env, .row = {.field = g->field}};
    tt_tokens *tokens;
    TT_TRY(tt_files_find(&g->path, env->job_dir, "corpus/*.txt", &files, err));
    char *name = malloc(n);
    const tt_corpus_opts o = {.struct_size = sizeof o,
                              .env = env,
                              .files = &files,
                              .read = text_read_file,
                              .user = &t,
                              .reader = name ? reader_name(g, name, n) : NULL,
                              .cache = g->cache,
                              .document_mask = g->document_mask,
                              .packing = g->packing};
    const tt_status s = name ? tt_corpus_open(&o, &tokens, err)
                             : TT_FAIL(err, TT_ENOMEM, "out of memory for a name");
    if (s == TT_OK)
        tell_json(&t);
    tt_files_free(&files);
    free(name);
    free(t.bytes);
    field_free(&t.row);
    if (s == TT_OK)
        *self = tokens;
    return s;
}

static int one_segment(const void *cfg)
{
    const config *c = cfg;
    return !c->document_mask && (!c->packing || strcmp(c->packing, "none") == 0);
}

static const tt_dataloader_vt vt = {.struct_size = sizeof vt,
                                    .open = open_text,
                                    .close = tt_tokens_close,
                                    .n_samples = tt_tokens_samples,
                                    .read = tt_tokens_read,
                                    .needs_tokenizer = 1,
                                    .info = tt_tokens_info,
                                    .one_segment = one_segment};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_DATALOADER, "text",
                 "files and globs of plain text, one document per file, or per row of Parquet",
                 config, options, &vt),
};

TT_PLUGIN("text", "1.0", components);
