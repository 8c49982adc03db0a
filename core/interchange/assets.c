/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "interchange/assets.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_ASSET_BYTES ((size_t)1 << 30)

/* Files that a tokenizer's folder may have; the first is the tokenizer itself. */
static const char *const names[] = {
    TT_TOKENIZER_FILES,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "merges.txt",
    "vocab.txt",
    "chat_template.jinja",
};
static const char *const configs[] = {"config.json", "generation_config.json"};

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool assets_is_json(const char *path)
{
    const size_t n = strlen(path);
    return n > 5 && !strcmp(path + n - 5, ".json");
}

static bool same_content(const char *path, const char *text, size_t n)
{
    char *have = NULL;
    size_t m = 0;
    const bool same = tt_path_exists(path) &&
                      tt_read_file(path, MAX_ASSET_BYTES, &have, &m, NULL) == TT_OK && n == m &&
                      (!n || !memcmp(text, have, n));
    free(have);
    return same;
}

static tt_status copy_file(const char *from, const char *to, tt_error *err)
{
    char *text = NULL;
    size_t n = 0;
    TT_TRY(tt_read_file(from, MAX_ASSET_BYTES, &text, &n, err));
    const tt_status s = same_content(to, text, n) ? TT_OK : tt_write_file_atomic(to, text, n, err);
    free(text);
    return s;
}

/* Removes what an earlier run's tokenizer had and this one has not. */
static void clear_others(tt_arena *a, const char *from, const char *to)
{
    char x[PATH_MAX], y[PATH_MAX];
    if (!realpath(from, x) || !realpath(to, y) || !strcmp(x, y))
        return;
    for (size_t i = 0; i < TT_COUNT(names); i++)
        if (!tt_path_exists(tt_path_join(a, from, names[i])))
            (void)unlink(tt_path_join(a, to, names[i]));
}

/* Names the files of a run's tokenizer that are not those of the job any more. */
static void say_changed(tt_arena *a, const char *from, const char *to, const char *name)
{
    const char *now = tt_path_join(a, from, name), *kept = tt_path_join(a, to, name);
    char *text = NULL, hash[33];
    size_t n = 0;
    if (!tt_path_exists(now) || is_folder(now) || !tt_path_exists(kept) ||
        tt_read_file(kept, MAX_ASSET_BYTES, &text, &n, NULL) != TT_OK)
        return;
    if (!same_content(now, text, n)) {
        tt_hash128_hex(text, n, hash);
        tt_log(TT_WARN, "data",
               "%s differs from the file that the run has had, %s (xxh3_128 %s in run.json), and "
               "replaces it",
               now, kept, hash);
    }
    free(text);
}

static tt_status copy_if_there(tt_arena *a, const char *from, const char *to, const char *name,
                               tt_error *err)
{
    const char *path = tt_path_join(a, from, name);
    if (!tt_path_exists(path) || is_folder(path))
        return TT_OK;
    return copy_file(path, tt_path_join(a, to, name), err);
}

/* ---- tokenizer ---- */

const char *tt_assets_tokenizer(const tt_setup *s)
{
    const char *const *own =
        s->has_tokenizer && s->tokenizer.component
            ? tt_part_value(s->tokenizer.component, s->tokenizer.config, "path", TT_OPT_STRING)
            : NULL;
    return own && *own && **own ? tt_path_join(s->arena, tt_job_dir(s->job), *own) : NULL;
}

const char *tt_assets_tokenizer_of_run(tt_arena *a, const char *run, const char *path)
{
    const char *folder = tt_path_join(a, run, "tokenizer");
    if (!is_folder(folder))
        return NULL;
    const char *file = tt_path_join(a, folder, base_name(path));
    return *base_name(path) && tt_path_exists(file) && !is_folder(file) ? file : folder;
}

static bool is_one(const char *name)
{
    for (size_t i = 0; i < TT_COUNT(names); i++)
        if (!strcmp(name, names[i]))
            return true;
    return false;
}

tt_status tt_assets_copy_tokenizer(tt_arena *a, const char *path, const char *folder, bool exported,
                                   tt_error *err)
{
    const bool alone = !is_folder(path);
    const char *from = alone ? tt_path_dir(a, path) : path, *name = base_name(path);
    if (alone && exported && !assets_is_json(path))
        return TT_OK; /* a tiktoken file, which Hugging Face's programs do not read */
    if (alone)        /* vocab.json is no tokenizer.json */
        TT_TRY(copy_file(path, tt_path_join(a, folder, exported && !is_one(name) ? names[0] : name),
                         err));
    for (size_t i = alone ? 1 : 0; i < TT_COUNT(names); i++) /* not another tokenizer.json */
        TT_TRY(copy_if_there(a, from, folder, names[i], err));
    return TT_OK;
}

void tt_assets_use_kept_tokenizer(const tt_setup *s, const char *run)
{
    char real[PATH_MAX];
    const char *path = tt_assets_tokenizer(s);
    const char *kept =
        path && !tt_path_exists(path) ? tt_assets_tokenizer_of_run(s->arena, run, path) : NULL;
    if (!kept || !realpath(kept, real))
        return;
    tt_log(TT_INFO, "data", "tokenizer: %s is gone; the run's own copy is used, %s", path, kept);
    /* the value that the part's table of options wrote into the config, which is the setup's memory */
    *(const char **)(uintptr_t)tt_part_value(s->tokenizer.component, s->tokenizer.config, "path",
                                             TT_OPT_STRING) = tt_arena_str(s->arena, real);
}

/* ---- model ---- */

const char *tt_assets_model(const tt_setup *s, tt_arena *a, const char *run)
{
    const char *own = run ? tt_path_join(a, run, "model") : NULL;
    if (strcmp(s->core.flavor, "hf") != 0)
        return NULL;
    if (own && tt_path_exists(tt_path_join(a, own, configs[0])))
        return own;
    const char *there =
        s->core.hf_assets_path ? tt_path_join(a, tt_job_dir(s->job), s->core.hf_assets_path) : NULL;
    return there && tt_path_exists(tt_path_join(a, there, configs[0])) ? there : NULL;
}

/* ---- the chat template of dataloader.template, in RUN/chat; a template of the tokenizer's folder is kept with the
 * tokenizer ---- */

static const char *const template_names[] = {"chat_template.jinja", "tokenizer_config.json"};

const char *tt_assets_template_of_run(tt_arena *a, const char *run)
{
    const char *folder = tt_path_join(a, run, "chat");
    for (size_t i = 0; i < TT_COUNT(template_names); i++)
        if (tt_path_exists(tt_path_join(a, folder, template_names[i])))
            return folder;
    return NULL;
}

/* A template's file comes with the tokenizer_config.json beside it, which has the texts of bos and eos. */
static tt_status copy_template(tt_arena *a, const char *path, const char *to, tt_error *err)
{
    const bool alone = !is_folder(path), is_config = alone && assets_is_json(path);
    const char *from = alone ? tt_path_dir(a, path) : path;
    TT_TRY(tt_mkdirs(to, err));
    if (alone)
        TT_TRY(copy_file(path, tt_path_join(a, to, template_names[is_config]), err));
    for (size_t i = alone; i < TT_COUNT(template_names) && !is_config; i++)
        TT_TRY(copy_if_there(a, from, to, template_names[i], err));
    return TT_OK;
}

static tt_status keep_template(const tt_setup *s, tt_arena *a, const char *run, tt_error *err)
{
    const char *to = tt_path_join(a, run, "chat");
    const char *const *path = s->dataloader.component
                                  ? tt_part_value(s->dataloader.component, s->dataloader.config,
                                                  "template", TT_OPT_STRING)
                                  : NULL;
    for (size_t i = 0; i < TT_COUNT(template_names); i++) /* of an earlier start */
        (void)unlink(tt_path_join(a, to, template_names[i]));
    (void)rmdir(to);
    if (!path || !*path || !tt_path_exists(*path))
        return TT_OK;
    return copy_template(a, *path, to, err);
}

tt_status tt_assets_keep(const tt_setup *s, const char *run, bool resumed, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    const char *tokenizer = tt_assets_tokenizer(s), *model = tt_assets_model(s, a, NULL);
    const char *to = tt_path_join(a, run, "tokenizer");
    tt_status st = TT_OK;
    if (tokenizer && tt_path_exists(tokenizer)) {
        const char *from = is_folder(tokenizer) ? tokenizer : tt_path_dir(a, tokenizer);
        st = tt_mkdirs(to, err);
        for (size_t i = 0; resumed && i < TT_COUNT(names); i++)
            if (from == tokenizer || i > 0)
                say_changed(a, from, to, names[i]);
        if (resumed && from != tokenizer)
            say_changed(a, from, to, base_name(tokenizer));
        if (st == TT_OK)
            st = tt_assets_copy_tokenizer(a, tokenizer, to, false, err);
        clear_others(a, from, to);
    }
    to = tt_path_join(a, run, "model");
    if (st == TT_OK && model)
        st = tt_mkdirs(to, err);
    for (size_t i = 0; st == TT_OK && model && i < TT_COUNT(configs); i++)
        st = copy_if_there(a, model, to, configs[i], err);
    if (st == TT_OK)
        st = keep_template(s, a, run, err);
    tt_arena_free(a);
    return st;
}

/* ---- the run of a step ---- */

/* How many folders a relative path names; -1: it leads upwards or is absolute. */
static int depth_of(const char *path)
{
    int depth = 0;
    if (*path == '/')
        return -1;
    for (const char *p = path; *p;) {
        const size_t n = strcspn(p, "/");
        if (n == 2 && !strncmp(p, "..", 2))
            return -1;
        depth += n > 0 && !(n == 1 && *p == '.');
        p += n + (p[n] == '/');
    }
    return depth;
}

static const char *assets_string(const tt_json *object, const char *key)
{
    const tt_json *v = tt_json_get(object, key);
    return v && v->type == TT_JSON_STRING ? v->string : NULL;
}

const char *tt_assets_run_of_step(tt_arena *a, const char *step, const tt_json *job)
{
    char real[PATH_MAX];
    const char *folder = assets_string(tt_json_get(job, "checkpoint"), "folder");
    const char *dump = assets_string(job, "dump_folder");
    const int depth = folder ? depth_of(folder) : -1;
    if (depth < 0)
        return dump && *dump == '/' && tt_path_exists(dump) ? dump : NULL;
    if (!realpath(step, real))
        return NULL;
    const char *run = tt_path_dir(a, real);
    for (int i = 0; i < depth; i++)
        run = tt_path_dir(a, run);
    return run;
}
