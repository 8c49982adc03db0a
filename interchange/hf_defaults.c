/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "interchange/hf_context.h"
#include "setup/setup_impl.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Takes from model.hf_assets_path what the job does not set: the tokenizer, and the folder of the
 * initial weights. */

#define MAX_TOKENIZER_BYTES ((size_t)1 << 30)

/* Returns the path of hf_assets_path; NULL: the job does not set it. */
static const char *assets(const tt_setup *s)
{
    return s->core.hf_assets_path
               ? tt_path_join(s->arena, tt_job_dir(s->job), s->core.hf_assets_path)
               : NULL;
}

const char *tt_hf_tokenizer_in(tt_arena *a, const char *folder)
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
    const char *folder = assets(s);
    return folder ? tt_hf_tokenizer_in(s->arena, folder) : NULL;
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
static bool has_vocabulary(tt_arena *a, const char *folder)
{
    return has_tokenizer_files(a, folder) || tt_hf_has_weights(folder);
}

const char *tt_setup_foreign_weights(const tt_setup *s)
{
    const char *path = s->core.checkpoint.initial_load_path;
    path = path ? tt_path_join(s->arena, tt_job_dir(s->job), path) : NULL;
    return path && tt_hf_has_weights(path) ? path : NULL;
}

tt_status tt_setup_tokenizer_part(tt_setup *s, tt_error *err)
{
    static const char *const none[] = {NULL};
    const bool named = tt_job_has(s->job, "tokenizer");
    const char *folder = assets(s), *there = tokenizer_there(s), *name = NULL, *base = NULL;
    const char *fallback = s->spec->tokenizer, *weights = tt_setup_foreign_weights(s);
    if (there || (folder && tt_job_has(s->job, "tokenizer.path")))
        fallback = "hf";
    else if (folder && has_vocabulary(s->arena, folder)) /* its ids are no bytes */
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
        tt_log(TT_WARN, "data", "tokenizer: %s, %s has sizes alone", t->name, assets(s));
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

/* ---- weights ---- */

static bool holds(const char *folder, const char *name)
{
    tt_arena *a = tt_arena_new();
    const bool yes = tt_path_exists(tt_path_join(a, folder, name));
    tt_arena_free(a);
    return yes;
}

bool tt_hf_has_weights(const char *folder)
{
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json",
                                        "pytorch_model.bin", "pytorch_model.bin.index.json"};
    bool any = false;
    for (size_t i = 0; i < TT_COUNT(names); i++)
        any = any || holds(folder, names[i]);
    return any && holds(folder, "config.json") && !holds(folder, "trainer.json");
}

const char *tt_setup_unused_weights(const tt_setup *s)
{
    const char *folder = assets(s);
    return folder && tt_hf_has_weights(folder) ? folder : NULL;
}

tt_status tt_setup_initial_load(tt_setup *s, tt_error *err)
{
    tt_checkpoint_config *c = &s->core.checkpoint;
    if (!c->initial_load_in_hf || c->initial_load_path)
        return TT_OK;
    if (!s->core.hf_assets_path)
        return tt_job_fail(s->job, "checkpoint.initial_load_in_hf", err,
                           "needs checkpoint.initial_load_path, the folder of the weights, or "
                           "model.hf_assets_path");
    c->initial_load_path = s->core.hf_assets_path; /* both paths are relative to the job's folder */
    return TT_OK;
}
