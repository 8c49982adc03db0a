/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "field.h"
#include "lines.h"
#include <stdio.h>
#include <string.h>

/* jsonl: files with one JSON object per line, plain, gzip or zstd, or per row of Parquet. One string
 * field of each object is a document; the tokenizer's bos and eos are put around it. Documents form
 * one stream of tokens in the order of paths and lines. */

typedef struct {
    tt_strings path;
    const char *field;
    bool document_mask;
    const char *cache, *packing;
} config;

static const tt_option options[] = {
    TT_OPTION_MORE(config, path, TT_OPT_STRINGS, "[]", 0, 0, NULL, TT_OPT_PATH, NULL,
                   "JSON-lines and Parquet files and globs, also .gz and .zst, relative to the "
                   "file that names them"),
    TT_OPTION(config, field, TT_OPT_STRING, "\"text\"", 0, 0,
              "the key, of Parquet the column, whose string is the document"),
    TT_OPTION(config, document_mask, TT_OPT_BOOL, "false", 0, 0,
              "keep attention, positions and labels within a document"),
    TT_CORPUS_OPTION_CACHE(config),
    TT_CORPUS_OPTION_PACKING(config),
};

typedef struct {
    const tt_dataloader_env *env;
    field_reader document;
    line_buffer in;
} reader;

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
            status = field_add(&j->document, line, n, unpack_taken(u), to, err);
        if (status != TT_OK && status != TT_ESIGNAL && !(err && strstr(err->text, path)))
            tt_error_context(err, "dataloader.path: %s:%lld", path, (long long)number);
    }
    return status;
}

static tt_status jsonl_read_file(void *user, const char *path, tt_documents *to, tt_error *err)
{
    reader *j = user;
    unpack u;
    if (tt_parquet_is(path))
        return field_read_parquet(&j->document, path, to, err);
    TT_TRY(unpack_open(path, j->env, &u, err));
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
    reader j = {.env = env, .document = {.field = g->field}};
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
    field_free(&j.document);
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
                                    .open = open_jsonl,
                                    .close = tt_tokens_close,
                                    .n_samples = tt_tokens_samples,
                                    .read = tt_tokens_read,
                                    .needs_tokenizer = 1,
                                    .info = tt_tokens_info,
                                    .one_segment = one_segment};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_DATALOADER, "jsonl",
                 "JSON lines (also .gz, .zst) and Parquet, one field per line is a document",
                 config, options, &vt),
};

TT_PLUGIN("jsonl", "1.0", components);
