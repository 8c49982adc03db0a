/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "field.h"
#include "lines.h"
#include <stdio.h>
#include <string.h>

/* jsonl: files with one JSON object per line, or a list of them, plain, gzip or zstd, or Parquet. One string
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
                   "files and globs of JSON (objects on lines, or one list of them) and Parquet, "
                   "also .gz and .zst, relative to the file that names them"),
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
    row_buffer in;
} reader;

static tt_status read_documents(reader *j, unpack *u, tt_documents *to, tt_error *err)
{
    const char *row = NULL;
    size_t n = 0;
    tt_status s;
    do {
        s = next_row(&j->in, u, &row, &n, err);
        if (s == TT_OK && row && !blank(row, n))
            s = field_add(&j->document, row, n, unpack_taken(u), to, err);
    } while (s == TT_OK && row);
    if (s != TT_OK && s != TT_ESIGNAL && !(err && strstr(err->text, u->in.path)))
        row_context(&j->in, u, err);
    return s;
}

static tt_status jsonl_read_file(void *user, const char *path, tt_documents *to, tt_error *err)
{
    reader *j = user;
    unpack u;
    if (tt_parquet_is(path))
        return field_read_parquet(&j->document, path, to, err);
    TT_TRY(unpack_open(path, j->env, &u, err));
    row_begin(&j->in);
    const tt_status status = read_documents(j, &u, to, err);
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
    TT_COMPONENT(
        TT_KIND_DATALOADER, "jsonl",
        "JSON lines or lists (also .gz, .zst) and Parquet, one field per row is a document", config,
        options, &vt),
};

TT_PLUGIN("jsonl", "1.0", components);
