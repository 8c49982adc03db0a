/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "internal.h"
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <ttrun/log.h>
#include <unistd.h>

#ifndef TT_BUILD_PLUGIN_DIR
#define TT_BUILD_PLUGIN_DIR "/usr/local/lib/ttrun/plugins" /* the Makefile defines it by prefix */
#endif
#define DEPTH_MAX 16 /* of nested folders */

typedef struct entry {
    const char *name;
    bool may_be_folder;
} entry;
typedef TT_VEC(entry) entries;
typedef TT_VEC(struct stat) folders;

static int by_bytes(const void *a, const void *b)
{
    return strcmp(((const entry *)a)->name, ((const entry *)b)->name);
}

/* The length of a plugin file name's suffix; 0: it is not the name of a plugin. */
static size_t ending(const char *name)
{
    if (name[0] == '.')
        return 0;
    return tt_ends_with(name, ".so") ? 3 : tt_spec_is_file(name) ? 5 : 0;
}

/* The kind whose folder this is, by its name. */
static tt_kind kind_of_folder(const char *dir)
{
    const char *slash = strrchr(dir, '/');
    for (int k = 1; k < (int)TT_KIND_END; k++)
        if (strcmp(slash ? slash + 1 : dir, tt_kind_folder((tt_kind)k)) == 0)
            return (tt_kind)k;
    return TT_KIND_END;
}

/* A .json file is a plugin only in a folder of specs. */
static bool is_plugin(tt_kind folder, const char *name)
{
    const size_t n = ending(name);
    return n == 3 || (n == 5 && folder == TT_KIND_TRAIN_SPEC);
}

static tt_plugin_file *add_file(tt_arena *a, const char *path, const struct stat *st,
                                tt_plugin_files *files)
{
    tt_plugin_file *f = tt_arena_alloc(a, sizeof *f);
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;
    f->path = tt_arena_str(a, path);
    f->stem = tt_arena_strn(a, base, strlen(base) - ending(base));
    f->folder = kind_of_folder(tt_path_dir(a, path));
    if (st) {
        f->device = (uint64_t)st->st_dev;
        f->inode = (uint64_t)st->st_ino;
    }
    tt_vec_push(a, files, f);
    return f;
}

static void add_fault(tt_arena *a, const char *path, const char *what, int errno_value,
                      tt_plugin_files *files)
{
    tt_plugin_file *f = add_file(a, path, NULL, files);
    f->state = TT_FILE_FAULTY;
    f->fault = tt_arena_printf(a, "%s: %s: %s", path, what, strerror(errno_value));
}

tt_plugin_file *tt_scan_file(tt_arena *a, const char *path, tt_plugin_files *files)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return add_file(a, path, NULL, files); /* opening it will give the reason */
    for (size_t i = 0; i < files->n; i++)
        if (files->items[i]->inode == (uint64_t)st.st_ino &&
            files->items[i]->device == (uint64_t)st.st_dev)
            return files->items[i];
    return add_file(a, path, &st, files);
}

/* Reads the plugins of a folder and what may be a folder in it, sorted; returns errno on failure.
 * A folder of sources has many other files, which cost no call of stat. */
static int list_entries(tt_arena *a, const char *dir, tt_kind folder, entries *out)
{
    DIR *d = opendir(dir);
    if (!d)
        return errno;
    errno = 0;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        const bool may_be_folder =
            e->d_type == DT_DIR || e->d_type == DT_LNK || e->d_type == DT_UNKNOWN;
        if (e->d_name[0] == '.' || !(may_be_folder || is_plugin(folder, e->d_name)))
            continue;
        const entry x = {tt_arena_str(a, e->d_name), may_be_folder};
        tt_vec_push(a, out, x);
    }
    int failed = errno;
    closedir(d);
    if (out->n > 1)
        qsort(out->items, out->n, sizeof *out->items, by_bytes);
    return failed;
}

/* True the first time; links may lead to a folder by many paths, or in a circle. */
static bool first_visit(tt_arena *a, const char *dir, folders *seen)
{
    struct stat st;
    if (stat(dir, &st) != 0)
        return true; /* opening it will say why */
    for (size_t i = 0; i < seen->n; i++)
        if (seen->items[i].st_ino == st.st_ino && seen->items[i].st_dev == st.st_dev)
            return false;
    tt_vec_push(a, seen, st);
    return true;
}

static int scan(tt_arena *a, const char *dir, int depth, folders *seen, tt_plugin_files *files)
{
    entries found = {0};
    const tt_kind folder = kind_of_folder(dir);
    if (!first_visit(a, dir, seen))
        return 0;
    int failed = list_entries(a, dir, folder, &found);
    if (failed)
        return failed;
    for (size_t i = 0; i < found.n; i++) {
        const char *path = tt_path_join(a, dir, found.items[i].name);
        struct stat st;
        if (is_plugin(folder, found.items[i].name)) {
            tt_scan_file(a, path, files); /* opening a dangling link will be a fault */
            continue;
        }
        if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode) || depth >= DEPTH_MAX)
            continue;
        failed = scan(a, path, depth + 1, seen, files);
        if (failed)
            add_fault(a, path, "this plugin folder cannot be read", failed, files);
    }
    return 0;
}

tt_status tt_scan_folder(tt_arena *a, const char *dir, tt_plugin_files *files, tt_error *err)
{
    folders seen = {0};
    int failed = scan(a, dir, 1, &seen, files);
    if (failed)
        return TT_FAIL(err, failed == ENOENT ? TT_ENOTFOUND : TT_EIO,
                       "%s: this plugin folder cannot be read: %s", dir, strerror(failed));
    return TT_OK;
}

tt_status tt_scan_environment(tt_arena *a, tt_plugin_files *files, tt_str *searched, tt_error *err)
{
    const char *list = getenv("TTRUN_PLUGIN_PATH");
    for (const char *p = list ? list : ""; *p;) {
        size_t n = strcspn(p, ":");
        if (n > 0) {
            const char *dir = tt_arena_strn(a, p, n);
            if (tt_scan_folder(a, dir, files, err) != TT_OK)
                return tt_error_context(err, "TTRUN_PLUGIN_PATH");
            tt_str_printf(searched, "%s%s", searched->n ? ", " : "", dir);
        }
        p += n + (p[n] == ':');
    }
    return TT_OK;
}

/* The libraries that a package for many systems brings along (mk/wheel.sh). A plugin is opened as a copy in memory, whose
 * own rpath leads nowhere: it finds them because they are open. They are never closed. */
static void open_libraries(tt_arena *a, const char *folder)
{
    DIR *d = opendir(folder);
    for (const struct dirent *e; d && (e = readdir(d)) != NULL;)
        if (strstr(e->d_name, ".so") && !dlopen(tt_path_join(a, folder, e->d_name), RTLD_NOW))
            tt_log(TT_DEBUG, "plugins", "%s", dlerror());
    if (d)
        closedir(d);
}

/* Only the folder nearest to the program is used: a ttrun in its build folder must not load the
 * installed plugins of another build, and with both folders every name would exist twice. */
tt_status tt_scan_own(tt_arena *a, tt_plugin_files *files, tt_str *searched, tt_error *err)
{
    char program[4096];
    const size_t before = files->n;
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    program[n > 0 ? n : 0] = '\0';
    const char *home = tt_path_dir(a, program);
    const char *dirs[] = {
        tt_path_join(a, home, "plugins"),
        tt_path_join(a, tt_path_dir(a, home), "lib/ttrun/plugins"),
        TT_BUILD_PLUGIN_DIR,
    };
    for (size_t i = 0; i < TT_COUNT(dirs); i++) {
        if (!tt_path_exists(dirs[i]))
            continue;
        tt_str_printf(searched, "%s%s", searched->n ? ", " : "", dirs[i]);
        open_libraries(a, tt_path_join(a, tt_path_dir(a, dirs[i]), "libs"));
        TT_TRY(tt_scan_folder(a, dirs[i], files, err));
        break;
    }
    for (size_t i = before; i < files->n; i++)
        files->items[i]->own = true;
    return TT_OK;
}

/* Reads a regular file; false: it cannot be. It is not mapped: a file that is cut short while a job looks into it would
 * end the job. */
static bool read_regular(const char *path, char **bytes, size_t *n)
{
    struct stat st; /* a pipe would block */
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) &&
           tt_read_file(path, TT_PLUGIN_MOST_BYTES, bytes, n, NULL) == TT_OK;
}

bool tt_scan_same(const char *path, const char *other)
{
    char *a = NULL, *b = NULL;
    size_t n, m;
    const bool same =
        read_regular(path, &a, &n) && read_regular(other, &b, &m) && n == m && memcmp(a, b, n) == 0;
    free(a);
    free(b);
    return same;
}

bool tt_scan_mentions(const char *path, const char *text)
{
    char *bytes;
    size_t n;
    if (!read_regular(path, &bytes, &n))
        return true; /* opening it will give the reason */
    const bool found = memmem(bytes, n, text, strlen(text) + 1) != NULL;
    free(bytes);
    return found;
}

bool tt_scan_may_have(tt_arena *a, tt_plugin_file *f, tt_kind kind, const char *name)
{
    char *bytes;
    size_t n;
    if (tt_spec_is_file(f->path))
        return kind == TT_KIND_TRAIN_SPEC && (!name || strcmp(f->stem, name) == 0);
    if (!f->is_peeked && read_regular(f->path, &bytes, &n)) {
        f->told = tt_plugin_peek((const unsigned char *)bytes, n, a, &f->has, &f->n_has);
        free(bytes);
    }
    f->is_peeked = true;
    for (size_t i = 0; i < f->n_has; i++)
        if (f->has[i].kind == kind && (!name || strcmp(f->has[i].name, name) == 0))
            return true;
    return !f->told && (!name || strcmp(f->stem, name) == 0 || tt_scan_mentions(f->path, name));
}
