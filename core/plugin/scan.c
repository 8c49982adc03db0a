/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "internal.h"
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef TT_BUILD_PLUGIN_DIR
#define TT_BUILD_PLUGIN_DIR "/usr/local/lib/ttrun/plugins" /* the Makefile defines it by prefix */
#endif
#define DEPTH_MAX 16 /* of nested folders */

typedef TT_VEC(const char *) names;
typedef TT_VEC(struct stat) folders;

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The length of a plugin file name's suffix; 0: it is not the name of a plugin. */
static size_t ending(const char *name)
{
    const size_t n = strlen(name);
    if (n > 3 && name[0] != '.' && strcmp(name + n - 3, ".so") == 0)
        return 3;
    return n > 5 && name[0] != '.' && tt_spec_is_file(name) ? 5 : 0;
}

static tt_kind folder_kind(tt_arena *a, const char *path)
{
    char *dir = tt_path_dir(a, path);
    const char *slash = strrchr(dir, '/');
    for (int k = 1; k < (int)TT_KIND_END; k++)
        if (strcmp(slash ? slash + 1 : dir, tt_kind_folder((tt_kind)k)) == 0)
            return (tt_kind)k;
    return TT_KIND_END;
}

/* A .json file is a plugin only in a folder of specs. */
static bool is_plugin(tt_arena *a, const char *path, const char *name)
{
    const size_t n = ending(name);
    return n == 3 || (n == 5 && folder_kind(a, path) == TT_KIND_TRAIN_SPEC);
}

static tt_plugin_file *add_file(tt_arena *a, const char *path, const struct stat *st,
                                tt_plugin_files *files)
{
    tt_plugin_file *f = tt_arena_alloc(a, sizeof *f);
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;
    f->path = tt_arena_str(a, path);
    f->stem = tt_arena_strn(a, base, strlen(base) - ending(base));
    f->folder = folder_kind(a, path);
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

/* Reads the names of a folder's entries, sorted; returns errno on failure. */
static int list_names(tt_arena *a, const char *dir, names *out)
{
    DIR *d = opendir(dir);
    if (!d)
        return errno;
    errno = 0;
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (e->d_name[0] != '.')
            tt_vec_push(a, out, tt_arena_str(a, e->d_name));
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
    names entries = {0};
    if (!first_visit(a, dir, seen))
        return 0;
    int failed = list_names(a, dir, &entries);
    if (failed)
        return failed;
    for (size_t i = 0; i < entries.n; i++) {
        const char *path = tt_path_join(a, dir, entries.items[i]);
        struct stat st;
        if (is_plugin(a, path, entries.items[i])) {
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
        TT_TRY(tt_scan_folder(a, dirs[i], files, err));
        break;
    }
    for (size_t i = before; i < files->n; i++)
        files->items[i]->own = true;
    return TT_OK;
}

bool tt_scan_mentions(const char *path, const char *name)
{
    tt_mapping m;
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode) || tt_map_file(path, &m, NULL) != TT_OK)
        return true; /* opening it will give the reason */
    bool found = m.n > 0 && memmem(m.p, m.n, name, strlen(name) + 1) != NULL;
    tt_unmap_file(&m);
    return found;
}
