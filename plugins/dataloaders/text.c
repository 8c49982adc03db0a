/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "field.h"
#include "source.h"
#include <stdio.h>
#include <string.h>

/* text: files and globs. Each file is a document, of Parquet files each row; the tokenizer's bos and eos are put
 * around it (corpus.h). Documents form one stream of tokens in path order. */

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
        "text and Parquet files and globs (** crosses folders), relative to the file that names "
        "them"),
    TT_OPTION(config, field, TT_OPT_STRING, "\"text\"", 0, 0,
              "of Parquet files, the column whose strings are the documents"),
    TT_OPTION(config, shuffle, TT_OPT_BOOL, "true", 0, 0,
              "draw a new order of the samples each epoch"),
    TT_OPTION_MORE(config, seed, TT_OPT_INT, "null", 0, 9007199254740992.0, NULL, TT_OPT_NULLABLE,
                   NULL, "seed of the order; null: training.seed"),
    TT_OPTION(config, document_mask, TT_OPT_BOOL, "false", 0, 0,
              "keep attention, positions and labels within a document"),
    TT_CORPUS_OPTION_CACHE(config),
    TT_CORPUS_OPTION_PACKING(config),
};

typedef struct {
    char *bytes;
    size_t cap;
    field_reader row;
} whole_file;

/* Reads a file to its end. */
static tt_status read_whole(whole_file *t, source *in, size_t *n, tt_error *err)
{
    size_t used = 0;
    for (size_t got = 1; got > 0; used += got) {
        if (t->cap - used < 1) {
            const size_t cap = t->cap < SIZE_MAX / 2 ? 2 * t->cap + (1 << 16) : SIZE_MAX;
            char *grown = realloc(t->bytes, cap);
            if (!grown)
                return TT_FAIL(err, TT_ENOMEM, "dataloader.path: %s: out of memory after %zu bytes",
                               in->path, used);
            t->bytes = grown;
            t->cap = cap;
        }
        TT_TRY(source_read(in, t->bytes + used, t->cap - used, &got, err));
    }
    *n = used;
    return TT_OK;
}

static tt_status text_read_file(void *user, const char *path, tt_documents *to, tt_error *err)
{
    whole_file *t = user;
    source in = {.fd = -1};
    size_t n = 0;
    if (tt_parquet_is(path))
        return field_read_parquet(&t->row, path, to, err);
    TT_TRY(source_open(path, &in, err));
    tt_status s = read_whole(t, &in, &n, err);
    source_close(&in);
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
    whole_file t = {.row = {.field = g->field}};
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
