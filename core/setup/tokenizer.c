/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "setup/tokenizer.h"
#include "setup/foreign.h"
#include "setup/setup_impl.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The tokenizer: what the job names, else that of model.hf_assets_path, else the spec's. */

#define MAX_TOKENIZER_BYTES ((size_t)1 << 30)

const char *tt_tokenizer_in(tt_arena *a, const char *folder)
{
    static const char *const names[] = {TT_TOKENIZER_FILES};
    for (size_t i = 0; i < TT_COUNT(names); i++) {
        const char *path = tt_path_join(a, folder, names[i]);
        if (tt_path_exists(path))
            return path;
    }
    return NULL;
}

static const char *tokenizer_there(const tt_setup *s)
{
    const char *folder = tt_setup_assets(s);
    return folder ? tt_tokenizer_in(s->arena, folder) : NULL;
}

static const char *absolute(tt_arena *a, const char *path)
{
    char *real = realpath(path, NULL);
    const char *out = real ? tt_arena_str(a, real) : path;
    free(real);
    return out;
}

/* Whether a folder has something of a tokenizer, of those that this program does not read, too. */
static bool has_tokenizer_files(tt_arena *a, const char *folder)
{
    static const char *const parts[] = {TT_TOKENIZER_FILES, TT_TOKENIZER_BESIDE};
    for (size_t i = 0; i < TT_COUNT(parts); i++)
        if (tt_path_exists(tt_path_join(a, folder, parts[i])))
            return true;
    return false;
}

/* Whether the folder's model knows other ids than bytes: it has weights, or something of a tokenizer. A
 * config.json alone gives sizes. */
static bool has_vocabulary(const tt_setup *s, const char *folder)
{
    return has_tokenizer_files(s->arena, folder) || tt_setup_is_foreign(s, folder);
}

tt_status tt_setup_tokenizer_part(tt_setup *s, tt_error *err)
{
    static const char *const none[] = {NULL};
    const bool named = tt_job_has(s->job, "tokenizer");
    const char *folder = tt_setup_assets(s), *there = tokenizer_there(s), *name = NULL,
               *base = NULL;
    const char *fallback = s->spec->tokenizer, *weights = tt_setup_foreign_weights(s);
    if (there || (folder && tt_job_has(s->job, "tokenizer.path")))
        fallback = "hf";
    else if (folder && has_vocabulary(s, folder)) /* its ids are no bytes */
        fallback = NULL;
    else if (!folder && fallback && !strcmp(fallback, "byte") && weights &&
             has_tokenizer_files(s->arena, weights))
        fallback = NULL;
    tt_str text = {0};
    s->has_tokenizer = fallback || named;
    if (!s->has_tokenizer) /* the data consists of tokens, or tt_setup_tokenizer fails */
        return TT_OK;
    TT_TRY(tt_job_string(s->job, "tokenizer.name", fallback, &name, err));
    if (there && name && !strcmp(name, "hf")) {
        tt_str_add(&text, "{\"path\":");
        tt_str_json(&text, absolute(s->arena, there));
        tt_str_addc(&text, '}');
        base = tt_arena_str(s->arena, tt_str_get(&text));
        tt_str_free(&text);
    }
    return tt_registry_part_over(s->registry, s->job, TT_KIND_TOKENIZER, "tokenizer", name,
                                 "model.hf_assets_path", base, none, s->arena, &s->tokenizer, err);
}

/* ---- a tokenizer other than the folder's ---- */

static bool same_bytes(const char *a, const char *b)
{
    char *x = NULL, *y = NULL;
    size_t n = 0, m = 0;
    bool same = tt_read_file(a, MAX_TOKENIZER_BYTES, &x, &n, NULL) == TT_OK &&
                tt_read_file(b, MAX_TOKENIZER_BYTES, &y, &m, NULL) == TT_OK && n == m;
    same = same && memcmp(x, y, n) == 0;
    free(x);
    free(y);
    return same;
}

static bool same_file(const char *a, const char *b)
{
    struct stat x, y;
    if (stat(a, &x) != 0 || stat(b, &y) != 0)
        return false;
    return (x.st_dev == y.st_dev && x.st_ino == y.st_ino) ||
           (x.st_size == y.st_size && same_bytes(a, b));
}

void tt_setup_note_tokenizer(const tt_setup *s)
{
    const char *there = tokenizer_there(s);
    const tt_part *t = &s->tokenizer;
    const tt_dataloader_vt *loader = s->dataloader.component->vtable;
    if (!there && !strcmp(s->core.flavor, "hf") && s->has_tokenizer && loader->needs_tokenizer &&
        !tt_job_has(s->job, "tokenizer"))
        tt_log(TT_WARN, "data", "tokenizer: %s, %s has sizes alone", t->name, tt_setup_assets(s));
    if (!there) /* without it there is nothing to compare with */
        return;
    const char *const *own = tt_part_value(t->component, t->config, "path", TT_OPT_STRING);
    const char *path = own && *own && **own ? *own : NULL;
    const char *inside = path ? tt_path_join(s->arena, path, "tokenizer.json") : NULL;
    if (path && (same_file(path, there) || same_file(inside, there)))
        return;
    tt_log(TT_WARN, "data",
           "the tokenizer is \"%s\"%s%s, not the model's own, %s: an exported model will not "
           "have the tokenizer files of that folder",
           t->name, path ? " of " : "", path ? path : "", there);
}

/* ---- it, open ---- */

const char *tt_tokenizer_path(const tt_setup *s)
{
    const char *const *own =
        s->has_tokenizer && s->tokenizer.component
            ? tt_part_value(s->tokenizer.component, s->tokenizer.config, "path", TT_OPT_STRING)
            : NULL;
    return own && *own && **own ? tt_path_join(s->arena, tt_job_dir(s->job), *own) : NULL;
}

/* Whether the ids that the model has no row for are special tokens, which plain text does not have, and
 * neither begins nor ends a document. */
static bool only_special_beyond(const tt_tokenizer_vt *vt, void *self,
                                const tt_tokenizer_info *info, int64_t vocab)
{
    char text[8];
    if (info->bos >= vocab || info->eos >= vocab)
        return false;
    for (int64_t id = vocab; id < info->vocab_size; id++)
        if (vt->decode(self, (int32_t)id, text, sizeof text) > 0)
            return false;
    return true;
}

/* Says what was looked for. */
static tt_status no_tokenizer(const tt_setup *s, tt_error *err)
{
    static const char *const names[] = {TT_TOKENIZER_FILES};
    const char *folder = tt_setup_assets(s);
    tt_str list = {0};
    if (!folder && tt_setup_foreign_weights(s))
        return tt_job_fail(
            s->job, "tokenizer", err,
            "the weights are those of %s, whose ids are no bytes, and the job names no "
            "tokenizer: set model.hf to that folder, which gives all of it, or "
            "tokenizer.name hf and tokenizer.path, or --tokenizer.name byte",
            tt_setup_foreign_weights(s));
    if (!folder)
        return tt_job_fail(s->job, "tokenizer", err,
                           "this needs a tokenizer, and the spec has none: set tokenizer.name");
    for (size_t i = 0; i < TT_COUNT(names); i++)
        tt_str_printf(&list, "%s%s", i ? ", " : "", names[i]);
    const tt_status st = tt_job_fail(
        s->job, "tokenizer", err,
        "this needs a tokenizer, and %s has none that can be read (looked for: %s); put "
        "one there, set tokenizer.path, or --tokenizer.name byte for ids that are bytes",
        folder, tt_str_get(&list));
    tt_str_free(&list);
    return st;
}

/* Whether the tokenizer is the spec's own, with weights that another program has made. */
static bool falls_back(const tt_setup *s)
{
    return !tt_job_has(s->job, "tokenizer") && !s->core.hf_assets_path &&
           !strcmp(s->tokenizer.name, "byte") && tt_setup_foreign_weights(s);
}

tt_status tt_setup_tokenizer(const tt_setup *s, void **self, tt_tokenizer_info *info, tt_error *err)
{
    const tt_model_vt *model = s->model.component->vtable;
    if (!s->has_tokenizer)
        return no_tokenizer(s, err);
    const tt_tokenizer_vt *vt = s->tokenizer.component->vtable;
    TT_TRY(TT_PLUGIN_CALL(vt->open(s->tokenizer.config, self, err), err, "tokenizer",
                          s->tokenizer.name));
    *info = (tt_tokenizer_info){.struct_size = sizeof *info};
    vt->info(*self, info);
    const int64_t vocab = model->vocab_size(s->model.config);
    if (info->vocab_size <= vocab / 2 && falls_back(s)) {
        vt->close(*self);
        *self = NULL;
        return no_tokenizer(s, err);
    }
    if (info->vocab_size <= vocab)
        return TT_OK;
    if (only_special_beyond(vt, *self, info, vocab)) {
        tt_log(
            TT_INFO, "data",
            "the model has no row for %lld special token%s of the tokenizer, from id %lld on: text "
            "with one is refused",
            (long long)(info->vocab_size - vocab), info->vocab_size - vocab == 1 ? "" : "s",
            (long long)vocab);
        return TT_OK;
    }
    vt->close(*self);
    *self = NULL;
    return tt_job_fail(s->job, "model.args.vocab_size", err,
                       "%lld is less than the tokenizer's %lld: set it to that value or more",
                       (long long)vocab, (long long)info->vocab_size);
}
