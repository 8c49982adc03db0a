/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config/job_core.h"
#include "internal.h"
#include <stdlib.h>
#include <string.h>

typedef struct offer {
    const tt_component *component;
    const tt_plugin_file *file;
} offer;
typedef TT_VEC(offer) offers;

tt_status tt_registry_scan(tt_registry *r, tt_error *err)
{
    tt_str searched = {0};
    tt_status status = TT_OK;
    for (size_t i = 0; i < r->n_dirs && status == TT_OK; i++) {
        tt_str_printf(&searched, "%s%s", i ? ", " : "", r->dirs[i]);
        status = tt_scan_folder(r->arena, r->dirs[i], &r->files, err);
    }
    if (r->n_dirs == 0 && !r->only_dirs)
        status = tt_scan_environment(r->arena, &r->files, &searched, err);
    for (size_t i = 0; i < r->n_job_dirs && status == TT_OK && !r->only_dirs; i++) {
        tt_str_printf(&searched, "%s%s", searched.n ? ", " : "", r->job_dirs[i]);
        status = tt_scan_folder(r->arena, r->job_dirs[i], &r->files, err);
    }
    if (status == TT_OK && !r->only_dirs)
        status = tt_scan_own(r->arena, &r->files, &searched, err);
    r->searched = tt_arena_str(r->arena, tt_str_get(&searched));
    tt_str_free(&searched);
    return status;
}

static void init_lock(tt_registry *r)
{
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&r->lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
}

static const char **copy_names(tt_arena *a, const char *const *names, size_t n)
{
    const char **copy = tt_arena_array(a, n + 1, sizeof *copy);
    for (size_t i = 0; i < n; i++)
        copy[i] = tt_arena_str(a, names[i]);
    return copy;
}

tt_status tt_registry_new(const tt_registry_opts *o, tt_registry **out, tt_error *err)
{
    TT_TRY(tt_plugin_loader_begin(err));
    tt_arena *a = tt_arena_new();
    tt_registry *r = tt_arena_alloc(a, sizeof *r);
    r->arena = a;
    init_lock(r);
    r->dirs = copy_names(a, o->dirs, o->n_dirs);
    r->n_dirs = o->n_dirs;
    r->job_dirs = copy_names(a, o->job_dirs, o->n_job_dirs);
    r->n_job_dirs = o->n_job_dirs;
    r->only_dirs = o->only_dirs;
    const char *copies = getenv("TTRUN_PLUGIN_COPIES");
    r->private_dir = tt_arena_str(a, copies && *copies ? copies : o->private_dir);
    tt_status status = tt_registry_scan(r, err);
    if (status != TT_OK) {
        tt_registry_free(r);
        return status;
    }
    *out = r;
    return TT_OK;
}

tt_status tt_registry_new_for_job(const tt_registry_opts *o, tt_job *job, tt_registry **out,
                                  tt_error *err)
{
    tt_registry_opts all = *o;
    tt_strings of_job;
    TT_TRY(tt_job_plugin_dirs(job, &of_job, err));
    all.job_dirs = of_job.items;
    all.n_job_dirs = of_job.n;
    const tt_status s = tt_registry_new(&all, out, err);
    return s == TT_OK || !of_job.n ? s : tt_job_fail(job, "plugin_dirs", err, "%s", err->text);
}

typedef struct tt_held {
    tt_registry *r; /* NULL: fn was called */
    void (*fn)(void *);
    void *arg;
    struct tt_held *next;
} tt_held;

static void held_end(void *arg)
{
    tt_held *h = arg;
    tt_registry *r = h->r;
    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    for (tt_held **at = &r->held; *at; at = &(*at)->next)
        if (*at == h) {
            *at = h->next;
            break;
        }
    h->r = NULL;
    pthread_mutex_unlock(&r->lock);
    h->fn(h->arg);
}

void tt_registry_hold(tt_registry *r, tt_arena *a, void (*fn)(void *), void *arg)
{
    tt_held *h = tt_arena_alloc(a, sizeof *h);
    pthread_mutex_lock(&r->lock);
    *h = (tt_held){r, fn, arg, r->held};
    r->held = h;
    pthread_mutex_unlock(&r->lock);
    tt_arena_cleanup(a, held_end, h);
}

void tt_registry_free(tt_registry *r)
{
    if (!r)
        return;
    while (r->held)
        held_end(r->held);
    while (r->versions)
        tt_registry_release(r, r->versions);
    for (size_t i = 0; i < r->files.n; i++)
        tt_plugin_close(&r->files.items[i]->loaded);
    pthread_mutex_destroy(&r->lock);
    tt_arena_free(r->arena);
    tt_plugin_loader_end();
}

static const char *registry_searched(const tt_registry *r)
{
    return *r->searched ? r->searched : "no folder (name one with --plugin-dir)";
}

static void note_unknown_kinds(const tt_plugin_file *f)
{
    for (size_t i = 0; i < f->loaded.plugin->n_components; i++) {
        int kind = (int)tt_component_at(f->loaded.plugin, i)->kind;
        if (!tt_kind_known((tt_kind)kind))
            tt_log(TT_INFO, "plugin",
                   "%s: component %zu is of kind %d, which this ttrun does not know: skipped",
                   f->path, i, kind);
    }
}

/* Loads a file once; a fault is kept and not tried again. */
tt_file_state tt_registry_open(tt_registry *r, tt_plugin_file *f)
{
    tt_error err;
    if (f->state != TT_FILE_CLOSED)
        return f->state;
    const tt_status status = tt_spec_is_file(f->path)
                                 ? tt_spec_open(f->path, f->stem, r->arena, &f->loaded, &err)
                                 : tt_plugin_open(f->path, r->private_dir, &f->loaded, &err);
    if (status == TT_OK) {
        f->state = TT_FILE_LOADED;
        note_unknown_kinds(f);
    } else {
        f->state = TT_FILE_FAULTY;
        f->fault = tt_arena_str(r->arena, err.text);
    }
    return f->state;
}

static const tt_component *component_of(const tt_plugin_file *f, tt_kind kind, const char *name)
{
    if (f->state != TT_FILE_LOADED)
        return NULL;
    for (size_t i = 0; i < f->loaded.plugin->n_components; i++) {
        const tt_component *k = tt_component_at(f->loaded.plugin, i);
        if (k->kind == kind && tt_kind_known(kind) && strcmp(k->name, name) == 0)
            return k;
    }
    return NULL;
}

/* Tells the handler of crashes that this component may be called. */
static void note_use(const offer *o)
{
    for (size_t i = 0; i < o->file->loaded.plugin->n_components; i++)
        if (tt_component_at(o->file->loaded.plugin, i) == o->component)
            tt_copy_component_used(o->file->loaded.name, i);
}

/* Whether a component of this kind is likely in the file: it is in the kind's folder, or in a
 * folder that belongs to no kind. */
static bool likely(const tt_plugin_file *f, tt_kind kind)
{
    return f->folder == kind || f->folder == TT_KIND_END;
}

static const char *known_names(const tt_registry *r, tt_arena *a, tt_kind kind, const char *name)
{
    TT_VEC(const char *) names = {0};
    tt_str list = {0};
    for (size_t i = 0; i < r->files.n; i++) {
        const tt_plugin_file *f = r->files.items[i];
        for (size_t j = 0; f->state == TT_FILE_LOADED && j < f->loaded.plugin->n_components; j++) {
            const tt_component *k = tt_component_at(f->loaded.plugin, j);
            if (k->kind == kind) {
                tt_vec_push(a, &names, k->name);
                tt_str_printf(&list, "%s%s", list.n ? ", " : "", k->name);
            }
        }
    }
    const char *near = tt_nearest(name, names.items, names.n);
    const char *text = names.n == 0
                           ? tt_arena_printf(a, "there is none in %s", registry_searched(r))
                       : near ? tt_arena_printf(a, "did you mean \"%s\"? Known: %s", near, list.s)
                              : tt_arena_printf(a, "known: %s", list.s);
    tt_str_free(&list);
    return text;
}

/* Where plugins of the user's are looked for, if no folder was named; or folders in which there is no
 * plugin: they may be the wrong ones. */
static const char *empty_folders(const tt_registry *r, tt_arena *a)
{
    tt_str list = {0};
    for (size_t i = 0; i < r->files.n; i++)
        if (!r->files.items[i]->own)
            return "";
    const char *path = getenv("TTRUN_PLUGIN_PATH");
    if (r->n_dirs + r->n_job_dirs == 0 && !(path && *path))
        return "; a plugin of your own is found by --plugin-dir DIR";
    for (size_t i = 0; i < r->n_dirs; i++)
        tt_str_printf(&list, "%s%s", list.n ? ", " : "", r->dirs[i]);
    for (size_t i = 0; i < r->n_job_dirs; i++)
        tt_str_printf(&list, "%s%s", list.n ? ", " : "", r->job_dirs[i]);
    const char *text = list.n ? tt_arena_printf(a, "; there is no plugin, a file NAME.so, in %s",
                                                tt_str_get(&list))
                              : "";
    tt_str_free(&list);
    return text;
}

static tt_status not_found(tt_registry *r, tt_arena *a, tt_kind kind, const char *name,
                           tt_error *err)
{
    const char *fault = NULL;
    size_t n_faults = 0;
    for (size_t i = 0; i < r->files.n; i++) {
        if (tt_registry_open(r, r->files.items[i]) != TT_FILE_FAULTY)
            continue;
        fault = fault ? fault : r->files.items[i]->fault;
        n_faults++;
    }
    const char *known = known_names(r, a, kind, name);
    if (n_faults == 0)
        return TT_FAIL(err, TT_ENOTFOUND, "%s \"%s\" is unknown; %s%s", tt_kind_name(kind), name,
                       known, empty_folders(r, a));
    return TT_FAIL(err, TT_ENOTFOUND,
                   "%s \"%s\" is unknown; %s; %zu file%s could not be loaded: %s%s",
                   tt_kind_name(kind), name, known, n_faults, n_faults == 1 ? "" : "s", fault,
                   n_faults == 1 ? "" : "; …");
}

static void registry_collect(tt_registry *r, tt_arena *a, tt_kind kind, const char *name, bool own,
                             offers *out)
{
    for (size_t i = 0; i < r->files.n; i++) {
        const tt_component *k = component_of(r->files.items[i], kind, name);
        offer o = {k, r->files.items[i]};
        if (k && o.file->own == own)
            tt_vec_push(a, out, o);
    }
}

/* Opens the files that are likely to have the component: ttrun's own or the others. If the file of
 * the component's own name is faulty, its fault is the error. */
static tt_status open_likely(tt_registry *r, tt_kind kind, const char *name, bool own,
                             tt_error *err)
{
    for (size_t i = 0; i < r->files.n; i++) {
        tt_plugin_file *f = r->files.items[i];
        if (f->own == own && (likely(f, kind) || !own) && f->state == TT_FILE_CLOSED &&
            tt_scan_may_have(r->arena, f, kind, name))
            tt_registry_open(r, f);
    }
    for (size_t i = 0; i < r->files.n; i++) {
        const tt_plugin_file *f = r->files.items[i];
        if (f->own == own && likely(f, kind) && f->state == TT_FILE_FAULTY &&
            strcmp(f->stem, name) == 0)
            return TT_FAIL(err, TT_EABI, "%s", f->fault);
    }
    return TT_OK;
}

void tt_registry_open_named(tt_registry *r, tt_kind kind, const char *name)
{
    pthread_mutex_lock(&r->lock);
    for (size_t i = 0; i < r->files.n; i++) {
        tt_plugin_file *f = r->files.items[i];
        if (likely(f, kind) && f->state == TT_FILE_CLOSED && strcmp(f->stem, name) == 0 &&
            tt_scan_may_have(r->arena, f, kind, name))
            tt_registry_open(r, f);
    }
    pthread_mutex_unlock(&r->lock);
}

/* Says once that ttrun's own component gives way, unless it is a copy: its file is known by its name
 * and is not opened. */
static void notice_own(tt_registry *r, tt_kind kind, const offer *o)
{
    for (size_t i = 0; i < r->files.n; i++) {
        const tt_plugin_file *f = r->files.items[i];
        if (o->file->own || !f->own || !likely(f, kind) || strcmp(f->stem, o->component->name) != 0)
            continue;
        if (tt_scan_same(o->file->path, f->path))
            return;
        tt_log(r->noticed ? TT_DEBUG : TT_INFO, "plugin", "%s \"%s\" is that of %s, not of %s%s",
               tt_kind_name(kind), o->component->name, o->file->path, f->path,
               r->noticed ? "" : " (-v lists all such)");
        r->noticed = true;
        return;
    }
}

/* Collects the files of that component: ttrun's own only if no other has it. */
static tt_status find_offers(tt_registry *r, tt_arena *a, tt_kind kind, const char *name,
                             offers *found, tt_error *err)
{
    for (int own = 0; own <= 1 && found->n == 0; own++) {
        TT_TRY(open_likely(r, kind, name, own, err));
        registry_collect(r, a, kind, name, own, found);
    }
    if (found->n)
        return TT_OK;
    for (size_t i = 0; i < r->files.n; i++)
        tt_registry_open(r, r->files.items[i]);
    for (int own = 0; own <= 1 && found->n == 0; own++)
        registry_collect(r, a, kind, name, own, found);
    return TT_OK;
}

static tt_status find_one(tt_registry *r, tt_arena *a, tt_kind kind, const char *name,
                          const tt_component **out, tt_error *err)
{
    offers found = {0};
    TT_TRY(find_offers(r, a, kind, name, &found, err));
    if (found.n == 0)
        return not_found(r, a, kind, name, err);
    for (size_t i = 0; i < found.n && found.n > 1; i++)
        if (found.items[i].file->asked) {
            found.items[0] = found.items[i];
            found.n = 1;
        }
    if (found.n > 1)
        return TT_FAIL(err, TT_EEXIST, "%s \"%s\" is in both %s and %s: remove or rename one",
                       tt_kind_name(kind), name, found.items[0].file->path,
                       found.items[1].file->path);
    *out = found.items[0].component;
    note_use(&found.items[0]);
    notice_own(r, kind, &found.items[0]);
    return TT_OK;
}

tt_status tt_registry_find(tt_registry *r, tt_kind kind, const char *name, const tt_component **out,
                           tt_error *err)
{
    tt_arena *a =
        tt_arena_new(); /* the registry's is freed with the program, and a swap asks again */
    pthread_mutex_lock(&r->lock);
    const tt_status status = find_one(r, a, kind, name, out, err);
    pthread_mutex_unlock(&r->lock);
    tt_arena_free(a);
    return status;
}

static void add_duplicates(tt_kind kind, const offers *all, tt_str *faults)
{
    for (size_t i = 0; i < all->n; i++)
        for (size_t j = 0; j < i; j++)
            if (strcmp(all->items[i].component->name, all->items[j].component->name) == 0)
                tt_str_printf(faults, "%s \"%s\" is in both %s and %s: remove or rename one\n",
                              tt_kind_name(kind), all->items[i].component->name,
                              all->items[j].file->path, all->items[i].file->path);
}

/* Whether another file than ttrun's own, all of which come last, has a component of that name. */
static bool offered(const offers *all, const char *name)
{
    for (size_t i = 0; i < all->n; i++)
        if (!all->items[i].file->own && strcmp(all->items[i].component->name, name) == 0)
            return true;
    return false;
}

tt_status tt_registry_all(tt_registry *r, tt_kind kind, tt_arena *a, const tt_component ***out,
                          size_t *n, tt_str *faults, tt_error *err)
{
    offers all = {0};
    if (!tt_kind_known(kind))
        return TT_FAIL(err, TT_EINVAL, "there is no kind of plugin %d", (int)kind);
    pthread_mutex_lock(&r->lock);
    for (size_t i = 0; i < r->files.n; i++) {
        tt_plugin_file *f = r->files.items[i];
        if (f->state == TT_FILE_CLOSED && !tt_scan_may_have(r->arena, f, kind, NULL))
            continue;
        if (tt_registry_open(r, f) == TT_FILE_FAULTY && faults)
            tt_str_printf(faults, "%s\n", f->fault);
        for (size_t j = 0; f->state == TT_FILE_LOADED && j < f->loaded.plugin->n_components; j++) {
            offer o = {tt_component_at(f->loaded.plugin, j), f};
            if (o.component->kind == kind && !(f->own && offered(&all, o.component->name)))
                tt_vec_push(a, &all, o);
        }
    }
    if (faults)
        add_duplicates(kind, &all, faults);
    const tt_component **list =
        tt_arena_array(a, TT_MAXV(all.n, (size_t)1), sizeof(const tt_component *));
    for (size_t i = 0; i < all.n; i++)
        list[i] = all.items[i].component;
    *out = list;
    *n = all.n;
    pthread_mutex_unlock(&r->lock);
    return TT_OK;
}

static bool comes_from(const tt_loaded *l, const tt_component *c)
{
    for (size_t j = 0; l->plugin && j < l->plugin->n_components; j++)
        if (tt_component_at(l->plugin, j) == c)
            return true;
    return false;
}

/* The file that a component came from, and which of its versions; NULL: none. */
static const tt_plugin_file *origin(const tt_registry *r, const tt_component *c,
                                    const tt_loaded **version)
{
    for (size_t i = 0; i < r->files.n; i++) {
        const tt_plugin_file *f = r->files.items[i];
        *version = &f->loaded;
        if (f->state == TT_FILE_LOADED && comes_from(&f->loaded, c))
            return f;
    }
    for (const tt_plugin_version *v = r->versions; v; v = v->next) {
        *version = &v->other;
        if (comes_from(&v->other, c))
            return v->file;
    }
    return NULL;
}

const tt_plugin_file *tt_registry_file_of(const tt_registry *r, const tt_component *c)
{
    const tt_loaded *version;
    return origin(r, c, &version);
}

const char *tt_registry_file(tt_registry *r, const tt_component *c)
{
    pthread_mutex_lock(&r->lock);
    const tt_plugin_file *f = tt_registry_file_of(r, c);
    const char *path = f ? f->path : "";
    pthread_mutex_unlock(&r->lock);
    return path;
}

const char *tt_registry_version(tt_registry *r, const tt_component *c)
{
    const tt_loaded *l;
    pthread_mutex_lock(&r->lock);
    const char *text = origin(r, c, &l) ? l->plugin->version : "";
    pthread_mutex_unlock(&r->lock);
    return text;
}

tt_status tt_registry_load_file(tt_registry *r, const char *path, const tt_plugin **out,
                                tt_error *err)
{
    pthread_mutex_lock(&r->lock);
    tt_plugin_file *f = tt_scan_file(r->arena, path, &r->files);
    if (f->state == TT_FILE_CLOSED)
        f->path = tt_arena_str(r->arena, path); /* the path as the caller gave it */
    f->asked = true;
    const tt_file_state state = tt_registry_open(r, f);
    pthread_mutex_unlock(&r->lock);
    if (state == TT_FILE_FAULTY)
        return TT_FAIL(err, TT_EABI, "%s", f->fault);
    *out = f->loaded.plugin;
    return TT_OK;
}
