/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "internal.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Plugin files that change while a job runs. A plugin is loaded from a private copy, so a file that is
 * built again changes nothing by itself. A reload opens a second copy; the first stays open for the programs
 * that use it. */

/* ---- new files ---- */

static int64_t modified_ns(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

/* A file that is not open is as it is now: another file may be at its path, and its fault mended. */
static void look_again(tt_registry *r, tt_plugin_file *f)
{
    struct stat st;
    if (f->state == TT_FILE_LOADED || stat(f->path, &st) != 0)
        return;
    const int64_t changed = modified_ns(&st);
    if (f->changed_ns == changed && f->bytes == (int64_t)st.st_size &&
        f->inode == (uint64_t)st.st_ino)
        return; /* memory of the registry is never freed: only what is new takes some */
    f->changed_ns = changed;
    f->bytes = (int64_t)st.st_size;
    f->device = (uint64_t)st.st_dev;
    f->inode = (uint64_t)st.st_ino;
    f->is_peeked = f->told = false;
    f->n_has = 0;
    f->state = TT_FILE_CLOSED;
    f->fault = NULL;
    (void)r;
}

/* A rebuilt file has another inode at the path that is known. */
static const tt_plugin_file *known_path(const tt_plugin_files *known, const char *path)
{
    for (size_t i = 0; i < known->n; i++)
        if (!strcmp(known->items[i]->path, path))
            return known->items[i];
    return NULL;
}

static bool same_file(const tt_plugin_file *a, const tt_plugin_file *b)
{
    return a->inode && a->inode == b->inode && a->device == b->device;
}

/* Takes over what a scan has found. ttrun's own files stay the last. */
static void add_new(tt_registry *r, const tt_plugin_files *found)
{
    for (size_t i = 0; i < found->n; i++) {
        tt_plugin_file *f = found->items[i];
        bool known = known_path(&r->files, f->path) != NULL;
        for (size_t k = 0; !known && k < r->files.n; k++)
            known = same_file(f, r->files.items[k]);
        if (known || f->own)
            continue;
        tt_plugin_file *copy = tt_arena_dup(r->arena, f, sizeof *f);
        copy->path = tt_arena_str(r->arena, f->path);
        copy->stem = tt_arena_str(r->arena, f->stem);
        copy->fault = f->fault ? tt_arena_str(r->arena, f->fault) : NULL;
        tt_vec_push(r->arena, &r->files, copy);
        for (size_t k = r->files.n - 1; k > 0 && r->files.items[k - 1]->own; k--) {
            r->files.items[k] = r->files.items[k - 1];
            r->files.items[k - 1] = copy;
        }
    }
}

void tt_registry_refresh(tt_registry *r)
{
    tt_error ignored = {0}; /* a folder that is gone has no new files */
    pthread_mutex_lock(&r->lock);
    tt_registry now = *r;
    now.arena = tt_arena_new();
    now.files = (tt_plugin_files){0};
    tt_registry_scan(&now, &ignored);
    for (size_t i = 0; i < r->files.n; i++)
        look_again(r, r->files.items[i]);
    add_new(r, &now.files);
    tt_arena_free(now.arena);
    pthread_mutex_unlock(&r->lock);
}

/* ---- another version of a file ---- */

/* Objects of these kinds exist as long as the run, so their code cannot be replaced. */
static bool is_held_open(tt_kind k)
{
    return k == TT_KIND_DATALOADER || k == TT_KIND_TOKENIZER || k == TT_KIND_METRICS ||
           k == TT_KIND_HOOK || k == TT_KIND_BACKEND || k == TT_KIND_COMM;
}

static bool has_converter(const tt_plugin *p, const char *name)
{
    for (size_t i = 0; i < p->n_components; i++)
        if (tt_component_at(p, i)->kind == TT_KIND_CONVERTER &&
            !strcmp(tt_component_at(p, i)->name, name))
            return true;
    return false;
}

static tt_status open_file_of(tt_registry *r, const char *name, tt_plugin_file **out, tt_error *err)
{
    const tt_component *c;
    for (size_t i = 0; i < r->files.n; i++)
        if (r->files.items[i]->state == TT_FILE_LOADED &&
            has_converter(r->files.items[i]->loaded.plugin, name)) {
            *out = r->files.items[i];
            return TT_OK;
        }
    TT_TRY(tt_registry_find(r, TT_KIND_CONVERTER, name, &c, err));
    return TT_FAIL(err, TT_EINVAL,
                   "converter \"%s\" was not loaded yet, so there is nothing to reload: set "
                   "converters takes %s as it is now",
                   name, tt_registry_file(r, c));
}

static tt_status check_kinds(const tt_plugin_file *f, const tt_plugin *p, const char *name,
                             tt_error *err)
{
    for (size_t i = 0; i < p->n_components; i++) {
        const tt_component *c = tt_component_at(p, i);
        if (is_held_open(c->kind))
            return TT_FAIL(err, TT_EUNSUPPORTED,
                           "%s also has the %s \"%s\", which a run cannot change; a converter that "
                           "is to be reloaded needs a file of its own",
                           f->path, tt_kind_name(c->kind), c->name);
    }
    if (!has_converter(p, name))
        return TT_FAIL(err, TT_ENOTFOUND, "%s has no converter \"%s\" any more", f->path, name);
    return TT_OK;
}

static tt_status open_again(tt_registry *r, const char *name, tt_plugin_version *v, tt_error *err)
{
    TT_TRY(open_file_of(r, name, &v->file, err));
    TT_TRY(check_kinds(v->file, v->file->loaded.plugin, name, err));
    TT_TRY(tt_plugin_open(v->file->path, r->private_dir, &v->other, err));
    TT_TRY(check_kinds(v->file, v->other.plugin, name, err));
    v->hash = v->other.hash;
    return TT_OK;
}

tt_status tt_registry_reload(tt_registry *r, const char *converter, tt_plugin_version **out,
                             tt_error *err)
{
    tt_plugin_version *v = calloc(1, sizeof *v);
    if (!v)
        return TT_FAIL(err, TT_ENOMEM, "no memory for a plugin");
    pthread_mutex_lock(&r->lock);
    const tt_status s = open_again(r, converter, v, err);
    if (s == TT_OK) {
        v->next = r->versions;
        r->versions = v;
        *out = v;
    }
    pthread_mutex_unlock(&r->lock);
    if (s != TT_OK) {
        tt_plugin_close(&v->other);
        free(v);
    }
    return s;
}

void tt_registry_use(tt_registry *r, tt_plugin_version *v, bool newer)
{
    pthread_mutex_lock(&r->lock);
    if (v->newer != newer) {
        const tt_loaded was = v->file->loaded;
        v->file->loaded = v->other;
        v->other = was;
        v->newer = newer;
    }
    pthread_mutex_unlock(&r->lock);
}

void tt_registry_release(tt_registry *r, tt_plugin_version *v)
{
    pthread_mutex_lock(&r->lock);
    tt_plugin_version **at = &r->versions;
    while (*at != v)
        at = &(*at)->next;
    *at = v->next;
    pthread_mutex_unlock(&r->lock);
    tt_plugin_close(&v->other);
    free(v);
}

uint64_t tt_plugin_version_hash(const tt_plugin_version *v)
{
    return v->hash;
}
