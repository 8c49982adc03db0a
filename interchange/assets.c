/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "interchange/assets.h"
#include "chat/chat.h"
#include "checkpoint/checkpoint.h"
#include "setup/tokenizer.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_ASSET_BYTES ((size_t)1 << 30)

/* Files that a tokenizer's folder may have; the first ones are the tokenizer itself. */
static const char *const tokenizers[] = {TT_TOKENIZER_FILES};
static const char *const names[] = {TT_TOKENIZER_FILES, TT_TOKENIZER_BESIDE, "chat_template.jinja"};
static const char *const configs[] = {"config.json", "generation_config.json"};
static const char more_templates[] = "additional_chat_templates";

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

static bool is_jinja(const char *name)
{
    return tt_ends_with(name, ".jinja");
}

static bool is_python(const char *name)
{
    return tt_ends_with(name, ".py");
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

/* ---- the files of a folder ---- */

typedef TT_VEC(const char *) file_names;

/* Adds the files of a folder, or of one below it, that the filter takes. */
static tt_status add_files(tt_arena *a, const char *folder, const char *below,
                           bool (*is)(const char *name), file_names *out, tt_error *err)
{
    const char **list = NULL, *at = below ? tt_path_join(a, folder, below) : folder;
    size_t n = 0;
    if (!is_folder(at))
        return TT_OK;
    TT_TRY(tt_folder_names(a, at, is, &list, &n, err));
    for (size_t i = 0; i < n; i++)
        if (!is_folder(tt_path_join(a, at, list[i])))
            tt_vec_push(a, out, below ? tt_path_join(a, below, list[i]) : list[i]);
    return TT_OK;
}

/* Adds the Python files of a folder if the config names classes of such files: transformers runs them, and what they
 * import. */
static tt_status add_code(tt_arena *a, const char *config, const char *folder, file_names *out,
                          tt_error *err)
{
    const tt_json *root = NULL;
    tt_error ignored = {0};
    if (!tt_path_exists(config) ||
        tt_json_read_object(a, config, MAX_ASSET_BYTES, &root, &ignored) != TT_OK ||
        !tt_json_get(root, "auto_map"))
        return TT_OK;
    return add_files(a, folder, NULL, is_python, out, err);
}

/* The files of a tokenizer that the folder has. */
static tt_status files_of(tt_arena *a, const char *folder, file_names *out, tt_error *err)
{
    for (size_t i = 0; i < TT_COUNT(names); i++) {
        const char *path = tt_path_join(a, folder, names[i]);
        if (tt_path_exists(path) && !is_folder(path))
            tt_vec_push(a, out, names[i]);
    }
    TT_TRY(add_files(a, folder, more_templates, is_jinja, out, err));
    return add_code(a, tt_path_join(a, folder, "tokenizer_config.json"), folder, out, err);
}

static tt_status copy_if_there(tt_arena *a, const char *from, const char *to, const char *name,
                               tt_error *err)
{
    const char *path = tt_path_join(a, from, name), *copy = tt_path_join(a, to, name);
    if (!tt_path_exists(path) || is_folder(path))
        return TT_OK;
    TT_TRY(tt_mkdirs(tt_path_dir(a, copy), err));
    return copy_file(path, copy, err);
}

static tt_status copy_all(tt_arena *a, const char *from, const char *to, const file_names *list,
                          tt_error *err)
{
    for (size_t i = 0; i < list->n; i++)
        TT_TRY(copy_if_there(a, from, to, list->items[i], err));
    return TT_OK;
}

/* Removes what an earlier run's tokenizer had and this one has not. */
static tt_status clear_others(tt_arena *a, const char *from, const char *to, tt_error *err)
{
    char x[PATH_MAX], y[PATH_MAX];
    file_names had = {0};
    if (!realpath(from, x) || !realpath(to, y) || !strcmp(x, y))
        return TT_OK;
    TT_TRY(files_of(a, to, &had, err));
    for (size_t i = 0; i < had.n; i++)
        if (!tt_path_exists(tt_path_join(a, from, had.items[i])))
            (void)unlink(tt_path_join(a, to, had.items[i]));
    (void)rmdir(tt_path_join(a, to, more_templates)); /* if it is empty */
    return TT_OK;
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

/* ---- tokenizer ---- */

const char *tt_assets_tokenizer_of_run(tt_arena *a, const char *run, const char *path)
{
    const char *folder = tt_path_join(a, run, "tokenizer");
    if (!is_folder(folder))
        return NULL;
    const char *file = tt_path_join(a, folder, base_name(path));
    return *base_name(path) && tt_path_exists(file) && !is_folder(file) ? file : folder;
}

/* The place of a name in the order in which a folder is searched for a tokenizer. */
static size_t search_order(const char *name)
{
    size_t i = 0;
    while (i < TT_COUNT(tokenizers) && strcmp(name, tokenizers[i]) != 0)
        i++;
    return i;
}

/* The name under which other programs find a tokenizer's file; NULL: there is none, because the file does not say how
 * it cuts texts into words. */
static const char *exported_name(const char *name)
{
    if (search_order(name) < TT_COUNT(tokenizers))
        return name;
    return tt_ends_with(name, ".json")    ? "tokenizer.json"
           : tt_ends_with(name, ".model") ? "tokenizer.model"
                                          : NULL;
}

tt_status tt_assets_copy_tokenizer(tt_arena *a, const char *path, const char *folder, bool exported,
                                   tt_error *err)
{
    const bool alone = !is_folder(path);
    const char *from = alone ? tt_path_dir(a, path) : path, *name = base_name(path);
    const char *as = exported ? exported_name(name) : name;
    file_names all = {0}, list = {0};
    if (alone && !as) {
        tt_log(TT_WARN, "checkpoint",
               "%s: Hugging Face's programs do not read such a file, so the export is without a "
               "tokenizer",
               path);
        return TT_OK;
    }
    if (alone)
        TT_TRY(copy_file(path, tt_path_join(a, folder, as), err));
    TT_TRY(files_of(a, from, &all, err));
    for (size_t i = 0; i < all.n; i++) { /* none that would be taken before it */
        const size_t order = search_order(all.items[i]);
        if (!alone || order == TT_COUNT(tokenizers) ||
            (!strcmp(as, name) && order > search_order(as)))
            tt_vec_push(a, &list, all.items[i]);
    }
    /* without a class in tokenizer_config.json, the model's type says how vocab.json cuts words */
    const char *found = alone ? path : tt_tokenizer_in(a, path);
    if (!exported && found && search_order(base_name(found)) + 1 == TT_COUNT(tokenizers))
        tt_vec_push(a, &list, configs[0]);
    return copy_all(a, from, folder, &list, err);
}

void tt_assets_use_kept_tokenizer(const tt_setup *s, const char *run)
{
    char real[PATH_MAX];
    const char *path = tt_tokenizer_path(s);
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

tt_status tt_assets_copy_code(tt_arena *a, const char *config, const char *from, const char *to,
                              tt_error *err)
{
    file_names code = {0};
    TT_TRY(add_code(a, tt_path_join(a, config, configs[0]), from, &code, err));
    return copy_all(a, from, to, &code, err);
}

static tt_status keep_model(tt_arena *a, const char *model, const char *to, tt_error *err)
{
    TT_TRY(tt_mkdirs(to, err));
    for (size_t i = 0; i < TT_COUNT(configs); i++)
        TT_TRY(copy_if_there(a, model, to, configs[i], err));
    return tt_assets_copy_code(a, model, model, to, err);
}

/* ---- the chat template of dataloader.template, in RUN/chat; a template of the tokenizer's folder is kept with the
 * tokenizer ---- */

static const char *const template_names[] = {"chat_template.jinja", "tokenizer_config.json"};

static tt_status template_files(tt_arena *a, const char *folder, file_names *out, tt_error *err)
{
    for (size_t i = 0; i < TT_COUNT(template_names); i++)
        if (tt_path_exists(tt_path_join(a, folder, template_names[i])))
            tt_vec_push(a, out, template_names[i]);
    return add_files(a, folder, more_templates, is_jinja, out, err);
}

const char *tt_assets_template(tt_arena *a, const char *run, const char *named)
{
    const char *folder = run ? tt_path_join(a, run, "chat") : NULL;
    for (size_t i = 0; folder && i < TT_COUNT(template_names); i++)
        if (tt_path_exists(tt_path_join(a, folder, template_names[i])))
            return folder;
    if (named && tt_chat_template_is_built_in(named))
        return "chatml";
    return named && tt_path_exists(named) ? named : NULL;
}

bool tt_assets_talks(const tt_setup *s, const char **named)
{
    const bool mixture = tt_part_is_mixture(&s->dataloader);
    const int n = mixture ? tt_mixture_size(&s->dataloader) : s->dataloader.component != NULL;
    bool talks = false;
    *named = NULL;
    for (int i = 0; i < n && !*named; i++) {
        const tt_part *p = mixture ? tt_mixture_part(&s->dataloader, i) : &s->dataloader;
        const char *const *path = tt_part_value(p->component, p->config, "template", TT_OPT_STRING);
        talks = talks || path;
        *named = path && *path && **path ? *path : NULL;
    }
    return talks;
}

/* A file of Jinja comes with the tokenizer_config.json beside it, which has the texts of bos and eos. */
static tt_status copy_template(tt_arena *a, const char *path, const char *to, tt_error *err)
{
    const bool alone = !is_folder(path);
    const bool jinja = alone && !tt_ends_with(path, ".json") && !tt_ends_with(path, ".model") &&
                       !tt_ends_with(path, ".tiktoken");
    const char *from = alone ? tt_path_dir(a, path) : path;
    file_names list = {0};
    TT_TRY(tt_mkdirs(to, err));
    if (!jinja) {
        TT_TRY(template_files(a, from, &list, err));
        return copy_all(a, from, to, &list, err);
    }
    TT_TRY(copy_file(path, tt_path_join(a, to, template_names[0]), err));
    return copy_if_there(a, from, to, template_names[1], err);
}

static tt_status keep_template(const tt_setup *s, tt_arena *a, const char *run, tt_error *err)
{
    const char *to = tt_path_join(a, run, "chat"), *path;
    file_names had = {0};
    TT_TRY(template_files(a, to, &had, err));
    for (size_t i = 0; i < had.n; i++) /* of an earlier start */
        (void)unlink(tt_path_join(a, to, had.items[i]));
    (void)rmdir(tt_path_join(a, to, more_templates));
    (void)rmdir(to);
    (void)tt_assets_talks(s, &path);
    return path && tt_path_exists(path) ? copy_template(a, path, to, err) : TT_OK;
}

static tt_status keep_tokenizer(tt_arena *a, const char *tokenizer, const char *to, bool resumed,
                                tt_error *err)
{
    const bool whole = is_folder(tokenizer);
    const char *from = whole ? tokenizer : tt_path_dir(a, tokenizer);
    file_names now = {0};
    TT_TRY(tt_mkdirs(to, err));
    TT_TRY(files_of(a, from, &now, err));
    for (size_t i = 0; resumed && i < now.n; i++)
        if (whole || search_order(now.items[i]) == TT_COUNT(tokenizers))
            say_changed(a, from, to, now.items[i]);
    if (resumed && !whole)
        say_changed(a, from, to, base_name(tokenizer));
    TT_TRY(tt_assets_copy_tokenizer(a, tokenizer, to, false, err));
    return clear_others(a, from, to, err);
}

tt_status tt_assets_keep(const tt_setup *s, const char *run, bool resumed, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    const char *tokenizer = tt_tokenizer_path(s), *model = tt_assets_model(s, a, NULL);
    tt_status st = TT_OK;
    if (tokenizer && tt_path_exists(tokenizer))
        st = keep_tokenizer(a, tokenizer, tt_path_join(a, run, "tokenizer"), resumed, err);
    if (st == TT_OK && model)
        st = keep_model(a, model, tt_path_join(a, run, "model"), err);
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
