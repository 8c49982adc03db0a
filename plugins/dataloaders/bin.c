/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "bin_format.h"
#include "source.h"
#include <ttrun/corpus.h>
#include <ttrun/log.h>

/* bin: files of tokens, read where they lie: llm.c's by their header, others as dataloader.format
 * says. All files are one stream in path order. */

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

/* What a file is, by its first bytes. */
static tt_status describe(const char *path, int raw_width, tt_token_file *out, tt_error *err)
{
    bin_file f = {.path = path};
    bin_layout at = {0};
    source in = {.fd = -1};
    TT_TRY(source_open(path, &in, err));
    f.fd = in.fd;
    f.n = (size_t)in.size;
    tt_status s = source_read(&in, f.head, sizeof f.head, &f.n_head, err);
    if (s == TT_OK)
        s = bin_layout_of(&f, raw_width, &at, err);
    source_close(&in);
    if (s == TT_OK)
        *out = (tt_token_file){sizeof *out, path, at.width, at.first, at.n};
    return s;
}

static tt_status describe_all(const tt_files *files, int raw_width, tt_token_file *out,
                              tt_error *err)
{
    for (size_t i = 0; i < files->n; i++) {
        TT_TRY(describe(files->items[i], raw_width, &out[i], err));
        if (out[i].width != out[0].width)
            return TT_FAIL(err, TT_EINVAL,
                           "dataloader.path: %s has tokens of %d bytes and %s of %d: they are of "
                           "two tokenizers; take one",
                           out[i].path, out[i].width, out[0].path, out[0].width);
    }
    return TT_OK;
}

static tt_status open_files(const config *g, const tt_dataloader_env *env, const tt_files *files,
                            tt_tokens **out, tt_error *err)
{
    const int raw_width = strcmp(g->format, "uint16") == 0   ? 2
                          : strcmp(g->format, "uint32") == 0 ? 4
                                                             : 0;
    tt_token_file *described = calloc(files->n, sizeof *described);
    const tt_tokens_opts o = {.struct_size = sizeof o,
                              .env = env,
                              .files = described,
                              .n_files = files->n,
                              .file_size = sizeof *described,
                              .document_mask = g->document_mask,
                              .bos_id = g->bos_id < 0 ? -1 : (int32_t)g->bos_id,
                              .eos_id = g->eos_id < 0 ? -1 : (int32_t)g->eos_id};
    if (!described)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for %zu files", files->n);
    tt_status s = describe_all(files, raw_width, described, err);
    if (s == TT_OK)
        s = tt_tokens_open(&o, out, err);
    if (s == TT_OK) {
        tt_dataloader_info info = {.struct_size = sizeof info};
        tt_tokens_info(*out, &info);
        tt_log(TT_INFO, "data", "%zu files, %lld tokens of %d bytes, %lld samples an epoch",
               files->n, (long long)info.tokens, described[0].width,
               (long long)tt_tokens_samples(*out));
    }
    free(described);
    return s;
}

static tt_status open_bin(const void *cfg, const tt_dataloader_env *env, void **self, tt_error *err)
{
    const config *g = cfg;
    tt_files files = {0};
    tt_tokens *tokens;
    if (g->document_mask && g->bos_id < 0 && g->eos_id < 0)
        return TT_FAIL(err, TT_EINVAL,
                       "dataloader.document_mask needs dataloader.bos_id or dataloader.eos_id: the "
                       "token that begins or ends a document");
    TT_TRY(tt_files_find(&g->path, env->job_dir, "corpus/*.bin", &files, err));
    const tt_status s = open_files(g, env, &files, &tokens, err);
    tt_files_free(&files);
    if (s == TT_OK)
        *self = tokens;
    return s;
}

static const tt_dataloader_vt vt = {sizeof vt,      open_bin, tt_tokens_close, tt_tokens_samples,
                                    tt_tokens_read, 0,        tt_tokens_info};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_DATALOADER, "bin", "files of tokens: llm.c, raw uint16 and uint32", config,
                 options, &vt),
};

TT_PLUGIN("bin", "1.0", components);
