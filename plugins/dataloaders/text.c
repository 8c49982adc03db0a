/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "corpus.h"
#include "paths.h"
#include <ttrun/log.h>

/* text: files and globs, each file a document with the tokenizer's bos and eos around it, joined to
 * one stream of tokens in path order. */

typedef struct {
    tt_strings path;
    bool shuffle; /* shuffle and seed are read by the core, which owns the order */
    int64_t seed;
    bool document_mask;
} config;

static const tt_option options[] = {
    TT_OPTION(config, path, TT_OPT_STRINGS, "[]", 0, 0,
              "text files and globs (** crosses folders), relative to the job file"),
    TT_OPTION(config, shuffle, TT_OPT_BOOL, "true", 0, 0,
              "draw a new order of the samples each epoch"),
    TT_OPTION_MORE(config, seed, TT_OPT_INT, "null", 0, 9007199254740992.0, NULL, TT_OPT_NULLABLE,
                   NULL, "of the order; null: training.seed"),
    TT_OPTION(config, document_mask, TT_OPT_BOOL, "false", 0, 0,
              "keep attention and positions within a document"),
};

static tt_status read_files(corpus *c, const tt_dataloader_env *env, const tt_tokenizer_info *info,
                            const names *files, size_t *n_empty, size_t *n_bytes, tt_error *err)
{
    tt_ids list = {0};
    tt_status status = TT_OK;
    for (size_t i = 0; status == TT_OK && i < files->n; i++) {
        const char *text = NULL;
        size_t n = 0;
        status = map_file(files->items[i], &text, &n, err);
        if (status != TT_OK)
            break;
        list.n = 0;
        *n_bytes += n;
        *n_empty += n == 0;
        if (n > 0) {
            status = env->tokenizer->encode(env->tokenizer_self, text, n, &list, err);
            munmap((void *)(uintptr_t)text, n);
            if (status == TT_OK)
                status = add_document(c, info, &list, err);
            if (status != TT_OK)
                tt_error_context(err, "dataloader.path: %s", files->items[i]);
        }
        if (env->progress)
            env->progress(env->progress_user, "reading text", (double)(i + 1) / (double)files->n);
    }
    tt_ids_free(&list);
    return status;
}

static tt_status load(const config *g, const tt_dataloader_env *env, corpus *c, names *files,
                      tt_error *err)
{
    size_t n_empty = 0, n_bytes = 0;
    if (!env->tokenizer)
        return TT_FAIL(err, TT_EINVAL,
                       "dataloader text reads text and needs a tokenizer; set tokenizer.name");
    TT_TRY(expand_all(env->job_dir, &g->path, "corpus/*.txt", files, err));
    const tt_tokenizer_info info = corpus_begin(c, env, g->document_mask);
    TT_TRY(read_files(c, env, &info, files, &n_empty, &n_bytes, err));
    if (n_empty == files->n)
        return TT_FAIL(err, TT_EINVAL, "dataloader.path: %s%s is empty", files->items[0],
                       files->n > 1 ? " (as every other file)" : "");
    TT_TRY(corpus_end(c, files->n, err));
    if (n_empty > 0)
        tt_log(TT_INFO, "data", "%zu of %zu files are empty and were left out", n_empty, files->n);
    tt_log(TT_INFO, "data", "%zu files, %zu bytes, %zu tokens, %lld samples an epoch", files->n,
           n_bytes, c->n_tokens, (long long)c->n_samples);
    return TT_OK;
}

static tt_status open_text(const void *cfg, const tt_dataloader_env *env, void **self,
                           tt_error *err)
{
    names files = {0};
    corpus *c = calloc(1, sizeof *c);
    if (!c)
        return TT_FAIL(err, TT_ENOMEM, "out of memory opening the text loader");
    const tt_status status = load(cfg, env, c, &files, err);
    names_free(&files);
    if (status != TT_OK) {
        corpus_close(c);
        return status;
    }
    *self = c;
    return TT_OK;
}

static const tt_dataloader_vt vt = {sizeof vt,      open_text,   corpus_close,
                                    corpus_samples, corpus_read, 1};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_DATALOADER, "text", "files and globs of plain text, a document each",
                 config, options, &vt),
};

TT_PLUGIN("text", "1.0", components);
