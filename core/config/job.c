/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/hub.h"
#include "config/internal.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A job: the files that "extends" chains, merged, then the command line's overrides; and a book of
 * the keys that the program has read. */

#define MAX_JOB_BYTES ((size_t)4 << 20)
#define MAX_EXTENDS 16
#define MAX_MEMBERS 4096 /* keys per object, because merging compares pairs of keys */

typedef struct loader {
    tt_arena *arena;
    const char *files[MAX_EXTENDS]; /* the open chain */
    struct stat ids[MAX_EXTENDS];
    int depth, layer;
} loader;

static tt_status load_text(loader *l, const char *name, const char *text, size_t n, tt_json **out,
                           tt_error *err);

static tt_status check_members(const tt_json *v, tt_error *err)
{
    if (v->type == TT_JSON_OBJECT && v->n > MAX_MEMBERS)
        return tt_config_fail(v, NULL, "", err, "an object with %zu keys; a job may have %d", v->n,
                              MAX_MEMBERS);
    for (size_t i = 0; i < v->n; i++)
        TT_TRY(check_members(v->items[i], err));
    return TT_OK;
}

/* Replaces aliases of sections by their canonical names. */
static tt_status rename_sections(const tt_json *root, tt_error *err)
{
    for (size_t i = 0; i < root->n; i++) {
        const char *name = tt_config_section_name(root->keys[i]);
        if (name == root->keys[i])
            continue;
        if (tt_json_get(root, name))
            return tt_config_fail(root->items[i], &root->key_pos[i], root->keys[i], err,
                                  "the same section as %s; keep one of them", name);
        root->keys[i] = name;
    }
    return TT_OK;
}

static tt_status check_chain(const loader *l, const struct stat *id, const char *path,
                             tt_error *err)
{
    tt_str chain = {0};
    tt_status s = TT_OK;
    if (l->depth == MAX_EXTENDS)
        return TT_FAIL(err, TT_EINVAL, "a chain of more than %d job files; extend fewer",
                       MAX_EXTENDS);
    for (int i = 0; i < l->depth; i++)
        if (l->ids[i].st_ino == id->st_ino && l->ids[i].st_dev == id->st_dev && id->st_ino) {
            for (int k = i; k < l->depth; k++)
                tt_str_printf(&chain, "%s → ", l->files[k]);
            s = TT_FAIL(err, TT_EINVAL, "a circle: %s%s", chain.s, path);
            tt_str_free(&chain);
            return s;
        }
    return s;
}

static tt_status load_file(loader *l, const char *path, tt_json **out, tt_error *err)
{
    char *text;
    size_t n;
    TT_TRY(tt_read_file(path, MAX_JOB_BYTES, &text, &n, err));
    tt_status s = load_text(l, path, text, n, out, err);
    free(text);
    return s;
}

static tt_status load_base(loader *l, const char *name, const tt_json *extends, tt_json **out,
                           tt_error *err)
{
    struct stat id;
    if (extends->type != TT_JSON_STRING || !*extends->string)
        return tt_config_fail_type(extends, "extends", "the path of a job file", err);
    const char *path = tt_path_join(l->arena, tt_path_dir(l->arena, name), extends->string);
    if (stat(path, &id) != 0)
        return tt_config_fail(extends, NULL, "extends", err, "there is no file %s", path);
    if (!S_ISREG(id.st_mode))
        return tt_config_fail(extends, NULL, "extends", err, "%s is not a regular file", path);
    tt_error why = {0};
    if (check_chain(l, &id, path, &why) != TT_OK)
        return tt_config_fail(extends, NULL, "extends", err, "%s", why.text);
    return load_file(l, path, out, err);
}

/* A file of another trainer, by the end of its name, whose text is no JSON. */
static tt_status fail_format(const char *name, tt_status parsed, tt_error *err)
{
    const char *dot = strrchr(name, '.');
    if (dot && !strcmp(dot, ".toml"))
        return TT_FAIL(err, TT_EFORMAT,
                       "%s: a job file is JSON, and this is TOML; to turn it into JSON: python3 -c "
                       "'import json, sys, tomllib; json.dump(tomllib.load(sys.stdin.buffer), "
                       "sys.stdout, indent=2)' < JOB.toml > JOB.json",
                       name);
    if (dot && (!strcmp(dot, ".yaml") || !strcmp(dot, ".yml") || !strcmp(dot, ".py")))
        return TT_FAIL(err, TT_EFORMAT,
                       "%s: a job file is JSON; docs/migrate.md has the keys of other trainers "
                       "beside ttrun's",
                       name);
    return parsed;
}

static tt_status load_text(loader *l, const char *name, const char *text, size_t n, tt_json **out,
                           tt_error *err)
{
    tt_json_origin *origin = tt_arena_alloc(l->arena, sizeof *origin);
    tt_json *root, *base = NULL;
    origin->name = tt_arena_str(l->arena, name);
    const tt_status parsed = tt_config_parse(l->arena, origin, text, n, &root, err);
    if (parsed != TT_OK)
        return fail_format(name, parsed, err);
    if (root->type != TT_JSON_OBJECT)
        return tt_config_fail_type(root, "", "an object with the job's sections", err);
    TT_TRY(check_members(root, err));
    if (tt_json_get(root, "starts") && tt_json_get(root, "job"))
        return TT_FAIL(err, TT_EINVAL,
                       "%s: is the record of a run, whose job is its member \"job\"; name the job "
                       "file that the run was started with",
                       name);
    TT_TRY(rename_sections(root, err));
    root->sorted = NULL; /* keys were renamed */
    const tt_json *extends = tt_json_get(root, "extends");
    if (extends) {
        l->files[l->depth] = origin->name;
        memset(&l->ids[l->depth], 0, sizeof l->ids[0]);
        (void)!stat(name, &l->ids[l->depth]); /* text without a file has no identity */
        l->depth++;
        TT_TRY(load_base(l, name, extends, &base, err));
        l->depth--;
    }
    origin->layer = l->layer++;
    tt_config_remove(root, "extends");
    tt_config_remove(root, "$schema");
    *out = base ? tt_config_merge(l->arena, base, root) : root;
    return TT_OK;
}

static tt_job *job_new(tt_arena *a, const char *name)
{
    tt_job *job = tt_arena_alloc(a, sizeof *job);
    job->arena = a;
    job->name = name ? tt_arena_str(a, name) : "";
    /* paths of a job that comes through a pipe are relative to the current folder */
    job->dir = name && !tt_config_is_piped(name) ? tt_path_dir(a, name) : ".";
    job->book = tt_arena_alloc(a, sizeof *job->book);
    job->book->entries = tt_map_new(a);
    job->root = tt_config_node(a, TT_JSON_OBJECT, NULL);
    return job;
}

static tt_status apply_overrides(tt_job *job, const tt_override *overrides, size_t n, int layer,
                                 tt_error *err)
{
    for (size_t i = 0; i < n; i++)
        TT_TRY(tt_config_override(job, &overrides[i], layer + (int)i, err));
    return TT_OK;
}

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static tt_status load_folder(tt_arena *a, const char *path, const tt_override *overrides, size_t n,
                             tt_job **out, tt_error *err)
{
    const tt_override hf = {"model.hf", path};
    tt_job *job = job_new(a, NULL);
    if (tt_path_exists(tt_path_join(a, path, "run.json")))
        return TT_FAIL(err, TT_EINVAL,
                       "%s: is the folder of a run; to continue it, name the job file that it was "
                       "started with",
                       path);
    if (!tt_path_exists(tt_path_join(a, path, "config.json")))
        return TT_FAIL(err, TT_EINVAL,
                       "%s: is a folder without a config.json; name a job file, or a Hugging Face "
                       "folder to fine-tune",
                       path);
    TT_TRY(tt_config_override(job, &hf, 0, err));
    TT_TRY(apply_overrides(job, overrides, n, 1, err));
    *out = job;
    return TT_OK;
}

tt_status tt_job_load(tt_arena *a, const char *path, const tt_override *overrides, size_t n,
                      tt_job **out, tt_error *err)
{
    loader l = {.arena = a};
    tt_job *job = NULL;
    const bool there = !path || tt_path_exists(path);
    const char *hub = there ? NULL : tt_hub_folder(a, path);
    if (path && (hub || is_folder(path)))
        return load_folder(a, hub ? hub : path, overrides, n, out, err);
    if (!there && tt_hub_is_id(path))
        return TT_FAIL(err, TT_ENOTFOUND, "%s: there is no such job file or folder%s", path,
                       tt_hub_advice(a, path));
    job = job_new(a, path);
    if (path)
        TT_TRY(load_file(&l, path, &job->root, err));
    TT_TRY(apply_overrides(job, overrides, n, l.layer, err));
    TT_TRY(tt_config_take_aliases(job, err));
    *out = job;
    return TT_OK;
}

tt_status tt_job_load_text(tt_arena *a, const char *name, const char *text, size_t n_bytes,
                           const tt_override *overrides, size_t n, tt_job **out, tt_error *err)
{
    loader l = {.arena = a};
    tt_job *job = job_new(a, name);
    TT_TRY(load_text(&l, name, text, n_bytes, &job->root, err));
    TT_TRY(apply_overrides(job, overrides, n, l.layer, err));
    TT_TRY(tt_config_take_aliases(job, err));
    *out = job;
    return TT_OK;
}

const char *tt_job_dir(const tt_job *job)
{
    return job->dir;
}

/* ---- the book */

void tt_config_claim(const tt_job *job, const char *path)
{
    tt_vec_push(job->arena, &job->book->claims, tt_arena_str(job->arena, path));
}

void tt_config_set(const tt_job *job, const char *path, const tt_json *value, const char *origin,
                   bool raw)
{
    tt_config_entry *e = tt_arena_alloc(job->arena, sizeof *e);
    *e = (tt_config_entry){tt_arena_str(job->arena, path), value, origin, raw};
    tt_map_set(job->book->entries, path, e);
    tt_config_claim(job, path);
}

void tt_job_know(tt_job *job, const tt_section_doc *docs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        tt_vec_push(job->arena, &job->book->tables, docs[i]);
}

tt_status tt_job_fail(const tt_job *job, const char *key, tt_error *err, const char *fmt, ...)
{
    tt_error text = {0};
    char line[sizeof text.text];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    const tt_json *v = tt_config_find(job, key);
    if (v)
        return tt_config_fail(v, NULL, key, err, "%s", line);
    return TT_FAIL(err, TT_EINVAL, "%s%s%s: %s", job->name, *job->name ? ": " : "", key, line);
}

tt_status tt_job_list(const tt_job *job, const char *key, size_t *n, tt_error *err)
{
    const tt_json *v = tt_config_find(job, key);
    if (v && v->type == TT_JSON_OBJECT && v->n)
        return tt_config_fail(
            v, NULL, key, err,
            "expected a list, got an object; its first element's keys are %s[0].%s "
            "and so on",
            key, tt_config_key(job->arena, v->keys[0]));
    if (v && v->type != TT_JSON_ARRAY)
        return tt_config_fail_type(v, key, "a list", err);
    tt_json *empty = tt_config_node(job->arena, TT_JSON_ARRAY, NULL);
    tt_config_set(job, key, v ? v : empty, v ? tt_config_origin(job->arena, v) : "default", true);
    *n = v ? v->n : 0;
    return TT_OK;
}

tt_status tt_job_members(const tt_job *job, const char *key, const char *const **names, size_t *n,
                         tt_error *err)
{
    const tt_json *v = tt_config_find(job, key);
    *n = 0;
    *names = NULL;
    if (!v)
        return TT_OK;
    if (v->type != TT_JSON_OBJECT)
        return tt_config_fail_type(v, key, "an object", err);
    tt_config_set(job, key, v, tt_config_origin(job->arena, v), true);
    *n = v->n;
    *names = (const char *const *)v->keys;
    return TT_OK;
}

tt_status tt_job_derive(tt_job *job, const char *key, const char *json, const char *origin,
                        tt_error *err)
{
    const tt_json *v;
    TT_TRY(tt_json_parse(job->arena, origin, json, strlen(json), &v, err));
    tt_config_set(job, key, v, origin, false);
    return TT_OK;
}

tt_status tt_job_string(tt_job *job, const char *key, const char *fallback, const char **out,
                        tt_error *err)
{
    /* the job as it was printed has a null where there was none */
    const tt_option o = {
        .name = key, .type = TT_OPT_STRING, .flags = fallback ? 0 : TT_OPT_NULLABLE};
    tt_config_value value = {.string = fallback};
    const tt_json *v = tt_config_find(job, key);
    if (v)
        TT_TRY(tt_config_read(job, &o, key, v, &value, err));
    tt_config_set(job, key, tt_config_json(job, &o, &value),
                  v ? tt_config_origin(job->arena, v) : "default", false);
    *out = value.string;
    return TT_OK;
}

tt_status tt_job_path(tt_job *job, const char *key, uint32_t flags, const char **out, tt_error *err)
{
    const tt_option o = {.name = key, .type = TT_OPT_STRING, .flags = TT_OPT_NULLABLE | flags};
    tt_config_value value = {0};
    const tt_json *v = tt_config_find(job, key);
    *out = NULL;
    if (!v)
        return TT_OK;
    TT_TRY(tt_config_read(job, &o, key, v, &value, err));
    *out = value.string;
    return TT_OK;
}

const char *tt_job_text(const tt_job *job, const char *key)
{
    const tt_json *v = tt_config_find(job, key);
    if (!v)
        return NULL;
    tt_str text = {0};
    tt_json_write(v, &text);
    tt_config_text t = {tt_arena_str(job->arena, text.s), tt_arena_str(job->arena, key), v};
    tt_str_free(&text);
    tt_vec_push(job->arena, &job->book->texts, t);
    if (*key && !tt_map_get(job->book->entries, key))
        tt_config_set(job, key, v, tt_config_origin(job->arena, v), true);
    return t.text;
}

bool tt_job_has(const tt_job *job, const char *key)
{
    return tt_config_find(job, key) != NULL;
}

static bool claimed(const tt_job *job, const char *path)
{
    for (size_t i = 0; i < job->book->claims.n; i++)
        if (tt_config_under(job->book->claims.items[i], path))
            return true;
    return false;
}

/* Fails for a key that a section ignored for another table, if no other table has it. */
static tt_status check_ignored(const tt_job *job, const char *path, tt_error *err)
{
    const char *dot = strrchr(path, '.'), *key = dot ? dot + 1 : path;
    const char *section = tt_arena_strn(job->arena, path, dot ? (size_t)(dot - path) : 0);
    const tt_json *object = tt_config_find(job, section);
    if (!tt_json_get(object, key) || claimed(job, path))
        return TT_OK;
    size_t i = 0;
    while (strcmp(object->keys[i], key) != 0)
        i++;
    return tt_config_fail_unknown(job, object, i, section, NULL, 0, err);
}

/* A section that no table has may be another trainer's. Its first key that ttrun knows of and cannot
 * do without is the error; else the section itself is. */
static tt_status check_section(const tt_job *job, size_t i, tt_error *err)
{
    const tt_json *section = job->root->items[i];
    const char *key = job->root->keys[i];
    size_t n_idle = 0;
    for (size_t m = 0; section->type == TT_JSON_OBJECT && m < section->n; m++) {
        const char *path = tt_config_join(job->arena, key, section->keys[m]);
        if (tt_config_idle(job, section->items[m], path))
            n_idle++;
        else if (tt_reserved_find(path))
            return tt_config_fail_unknown(job, section, m, key, NULL, 0, err);
    }
    if (n_idle && n_idle == section->n)
        return TT_OK;
    return tt_config_fail_unknown(job, job->root, i, "", NULL, 0, err);
}

/* A key with a dot is a path on the command line; in a file it would be read by nobody. */
static tt_status check_dots(const tt_job *job, tt_error *err)
{
    const tt_json *root = job->root;
    for (size_t i = 0; i < root->n; i++) {
        const char *key = root->keys[i], *dot = strchr(key, '.');
        if (dot && dot > key && dot[1] && !tt_reserved_find(key))
            return tt_config_fail(root->items[i], &root->key_pos[i], tt_config_key(job->arena, key),
                                  err,
                                  "in a job file it is written {\"%.*s\": {\"%s\": …}}; names with "
                                  "dots are for the command line",
                                  (int)(dot - key), key, dot + 1);
    }
    return TT_OK;
}

tt_status tt_job_finish(tt_job *job, tt_error *err)
{
    TT_TRY(check_dots(job, err));
    for (size_t i = 0; i < job->root->n; i++)
        if (!claimed(job, job->root->keys[i]))
            TT_TRY(check_section(job, i, err));
    for (size_t i = 0; i < job->book->ignored.n; i++)
        TT_TRY(check_ignored(job, job->book->ignored.items[i], err));
    return TT_OK;
}
