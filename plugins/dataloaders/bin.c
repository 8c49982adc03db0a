/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "bin_index.h"
#include "source.h"
#include <string.h>
#include <ttrun/corpus.h>
#include <ttrun/log.h>

/* bin: files of tokens, read by mmap. The layout of llm.c's and modalities' files is known from
 * their header, Megatron's from the .idx next to the .bin, any other from dataloader.format. All
 * files form one stream in path order. */

typedef struct {
    tt_strings path;
    const char *format;
    bool document_mask;
    int64_t bos_id, eos_id;
    const char *packing;
} config;

static const tt_option options[] = {
    TT_OPTION_MORE(
        config, path, TT_OPT_STRINGS, "[]", 0, 0, NULL, TT_OPT_PATH, NULL,
        "files of tokens and globs (** crosses folders), relative to the file that names them"),
    TT_OPTION_MORE(
        config, format, TT_OPT_ENUM, "\"auto\"", 0, 0, "auto|uint16|uint32", 0, NULL,
        "auto: by the header (llm.c, .pbin of modalities) or Megatron's .idx next to it; "
        "else tokens "
        "without a header"),
    TT_OPTION(config, document_mask, TT_OPT_BOOL, "false", 0, 0,
              "keep attention, positions and labels within a document; by bos_id, eos_id or both, "
              "else by the list of documents of Megatron and .pbin"),
    TT_OPTION_MORE(config, bos_id, TT_OPT_INT, "null", 0, 2147483647.0, NULL, TT_OPT_NULLABLE, NULL,
                   "the token that begins a document (llm.c's GPT-2 files: 50256)"),
    TT_OPTION_MORE(config, eos_id, TT_OPT_INT, "null", 0, 2147483647.0, NULL, TT_OPT_NULLABLE, NULL,
                   "the token that ends a document"),
    TT_CORPUS_OPTION_PACKING(config),
};

/* The files of a job, and where documents begin in their stream. */
typedef struct {
    tt_token_file *files;
    bin_layout *at;
    size_t n;
    bin_starts starts;
} described;

/* Determines the layout of a file from its first bytes or from the index next to it. */
static tt_status bin_describe(const char *path, int raw_width, bin_layout *out, tt_error *err)
{
    bin_file f = {.path = path};
    source in = {.fd = -1};
    TT_TRY(source_open(path, &in, err));
    f.fd = in.fd;
    f.n = (size_t)in.size;
    tt_status s = source_read(&in, f.head, sizeof f.head, &f.n_head, err);
    if (s == TT_OK)
        s = bin_layout_of(&f, raw_width, out, err);
    source_close(&in);
    return s;
}

static tt_status describe_all(const tt_files *files, int raw_width, described *d, tt_error *err)
{
    d->files = calloc(files->n, sizeof *d->files);
    d->at = calloc(files->n, sizeof *d->at);
    if (!d->files || !d->at)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for %zu files", files->n);
    for (; d->n < files->n; d->n++) {
        const char *path = files->items[d->n];
        bin_layout *at = &d->at[d->n];
        TT_TRY(bin_describe(path, raw_width, at, err));
        d->files[d->n] = (tt_token_file){sizeof *d->files, path, at->width, at->first, at->n};
        if (at->width != d->at[0].width)
            return TT_FAIL(err, TT_EINVAL,
                           "dataloader.path: %s has tokens of %d bytes and %s of %d: they are of "
                           "two tokenizers; take one",
                           path, at->width, files->items[0], d->at[0].width);
    }
    return TT_OK;
}

/* Documents of one file, whose first token is number `base` of the stream. */
static tt_status add_documents(const char *path, const bin_layout *at, int64_t base,
                               bin_starts *out, tt_error *err)
{
    source in = {.fd = -1};
    bin_megatron m = {0};
    bin_file f = {.path = path};
    int index = -1;
    TT_TRY(source_open(path, &in, err));
    f.n = (size_t)in.size;
    tt_status s;
    if (at->kind == BIN_PBIN) {
        s = bin_pbin_documents(path, in.fd, at, in.size, base, out, err);
    } else {
        bin_open_index(path, &index);
        s = index < 0 ? TT_FAIL(err, TT_EIO, "dataloader.path: %s: its .idx is gone", path)
                      : bin_megatron_head(&f, index, &m, err);
        if (s == TT_OK)
            s = bin_megatron_documents(path, index, &m, base, out, err);
        if (index >= 0)
            close(index);
    }
    source_close(&in);
    return s;
}

/* Uses the files' own lists of documents, when neither bos_id nor eos_id says where documents
 * begin. */
static tt_status find_documents(const config *g, described *d, tt_error *err)
{
    int64_t base = 0;
    const bool packed = g->packing && strcmp(g->packing, "none") != 0;
    if (!packed && (!g->document_mask || g->bos_id >= 0 || g->eos_id >= 0))
        return TT_OK;
    for (size_t i = 0; i < d->n; i++) {
        if (d->at[i].kind == BIN_FLAT && packed)
            return TT_FAIL(err, TT_EINVAL,
                           "dataloader.packing: %s has no list of documents, which Megatron's .idx "
                           "and .pbin have: leave it \"none\"",
                           d->files[i].path);
        if (d->at[i].kind == BIN_FLAT)
            return TT_FAIL(err, TT_EINVAL,
                           "dataloader.document_mask needs dataloader.bos_id or dataloader.eos_id, "
                           "the token that begins or ends a document: %s has no list of documents",
                           d->files[i].path);
        TT_TRY(add_documents(d->files[i].path, &d->at[i], base, &d->starts, err));
        base += d->at[i].n;
    }
    return TT_OK;
}

static tt_status open_files(const config *g, const tt_dataloader_env *env, described *d,
                            tt_tokens **out, tt_error *err)
{
    const tt_tokens_opts o = {.struct_size = sizeof o,
                              .env = env,
                              .files = d->files,
                              .n_files = d->n,
                              .file_size = sizeof *d->files,
                              .document_mask = g->document_mask,
                              .bos_id = g->bos_id < 0 ? -1 : (int32_t)g->bos_id,
                              .eos_id = g->eos_id < 0 ? -1 : (int32_t)g->eos_id,
                              .documents = d->starts.items,
                              .n_documents = d->starts.n,
                              .packing = g->packing};
    tt_dataloader_info info = {.struct_size = sizeof info};
    TT_TRY(tt_tokens_open(&o, out, err));
    tt_tokens_info(*out, &info);
    tt_log(TT_INFO, "data", "%zu file%s, %lld tokens of %d bytes, %lld sample%s per epoch", d->n,
           d->n == 1 ? "" : "s", (long long)info.tokens, d->at[0].width,
           (long long)tt_tokens_samples(*out), tt_tokens_samples(*out) == 1 ? "" : "s");
    return TT_OK;
}

static tt_status open_bin(const void *cfg, const tt_dataloader_env *env, void **self, tt_error *err)
{
    const config *g = cfg;
    const int raw_width = strcmp(g->format, "uint16") == 0   ? 2
                          : strcmp(g->format, "uint32") == 0 ? 4
                                                             : 0;
    tt_files files = {0};
    described d = {0};
    tt_tokens *tokens = NULL;
    TT_TRY(tt_files_find(&g->path, env->job_dir, "corpus/*.bin", &files, err));
    tt_status s = describe_all(&files, raw_width, &d, err);
    if (s == TT_OK)
        s = find_documents(g, &d, err);
    if (s == TT_OK)
        s = open_files(g, env, &d, &tokens, err);
    tt_files_free(&files);
    free(d.files);
    free(d.at);
    free(d.starts.items);
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
                                    .open = open_bin,
                                    .close = tt_tokens_close,
                                    .n_samples = tt_tokens_samples,
                                    .read = tt_tokens_read,
                                    .needs_tokenizer = 0,
                                    .info = tt_tokens_info,
                                    .one_segment = one_segment};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_DATALOADER, "bin",
                 "files of tokens: llm.c, Megatron, .pbin, raw uint16 and uint32", config, options,
                 &vt),
};

TT_PLUGIN("bin", "1.0", components);
