/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/base.h"
#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <ttrun/corpus.h>

/* Finds the files of dataloader.path, a list of files and globs. */

void tt_files_free(tt_files *v)
{
    for (size_t i = 0; i < v->n; i++)
        free(v->items[i]);
    free(v->items);
    *v = (tt_files){0};
}

/* Appends `name` and owns it from then on; frees it on failure. */
static tt_status names_add(tt_files *v, char *name, tt_error *err)
{
    if (name && v->n == v->cap) {
        const size_t cap = v->cap ? 2 * v->cap : 64;
        char **items = realloc(v->items, cap * sizeof *items);
        if (items) {
            v->items = items;
            v->cap = cap;
        }
    }
    if (!name || v->n == v->cap) {
        free(name);
        return TT_FAIL(err, TT_ENOMEM, "out of memory after %zu file names", v->n);
    }
    v->items[v->n++] = name;
    return TT_OK;
}

static char *format(const char *fmt, ...) TT_PRINTF(1, 2);
static char *format(const char *fmt, ...)
{
    char *s = NULL;
    va_list ap;
    va_start(ap, fmt);
    const int n = vasprintf(&s, fmt, ap);
    va_end(ap);
    return n < 0 ? NULL : s;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Sorts bytewise in every locale and removes duplicates, which two ** in one pattern give. */
static void names_sort(tt_files *v)
{
    size_t kept = 0;
    if (v->n > 1)
        qsort(v->items, v->n, sizeof *v->items, by_bytes);
    for (size_t i = 0; i < v->n; i++) {
        if (kept > 0 && strcmp(v->items[kept - 1], v->items[i]) == 0)
            free(v->items[i]);
        else
            v->items[kept++] = v->items[i];
    }
    v->n = kept;
}

static bool is_glob(const char *s)
{
    return strpbrk(s, "*?[") != NULL;
}

static tt_status walk(const char *dir, const char *pattern, int depth, tt_files *out,
                      tt_error *err);

/* Matches one entry of a folder with the first component of the pattern. */
static tt_status match_entry(const char *dir, const struct dirent *entry, const char *first,
                             const char *pattern, const char *rest, int depth, tt_files *out,
                             tt_error *err)
{
    const bool cross = strcmp(first, "**") == 0;
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
        fnmatch(cross ? "*" : first, entry->d_name, FNM_PERIOD) != 0)
        return TT_OK;
    char *path =
        format("%s%s%s", dir, dir[0] && dir[strlen(dir) - 1] != '/' ? "/" : "", entry->d_name);
    struct stat own, st;
    if (!path)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for file names");
    tt_status status = TT_OK;
    if (lstat(path, &own) != 0 || stat(path, &st) != 0) {
        free(path); /* it was removed meanwhile, or it is a dangling link */
    } else if (S_ISDIR(st.st_mode)) {
        if (cross && !S_ISLNK(own.st_mode)) /* a link to a folder could form a cycle */
            status = walk(path, pattern, depth + 1, out, err);
        else if (!cross && rest)
            status = walk(path, rest, depth + 1, out, err);
        free(path);
    } else if (!rest) {
        return names_add(out, path, err);
    } else {
        free(path);
    }
    return status;
}

/* Appends the files under dir ("" = the current folder) that match the pattern, unsorted. It fails
 * if it cannot read a folder. */
static tt_status walk(const char *dir, const char *pattern, int depth, tt_files *out, tt_error *err)
{
    const char *slash = strchr(pattern, '/');
    const char *rest = slash ? slash + strspn(slash, "/") : NULL;
    if (depth > 256)
        return TT_FAIL(err, TT_EINVAL, "%s: more than 256 folders deep", dir);
    char *first = strndup(pattern, slash ? (size_t)(slash - pattern) : strlen(pattern));
    if (!first)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for file names");
    tt_status status = TT_OK;
    if (strcmp(first, "**") == 0 && rest) /* ** also matches no folder */
        status = walk(dir, rest, depth + 1, out, err);
    DIR *d = status == TT_OK ? opendir(dir[0] ? dir : ".") : NULL;
    if (status == TT_OK && !d && errno != ENOENT && errno != ENOTDIR)
        status = TT_FAIL(err, TT_EIO, "%s: cannot read the folder: %s", dir[0] ? dir : ".",
                         strerror(errno));
    for (struct dirent *e; status == TT_OK && d && (e = readdir(d));)
        status = match_entry(dir, e, first, pattern, rest, depth, out, err);
    if (d)
        closedir(d);
    free(first);
    return status;
}

/* Appends the files of one entry of `path`: the file itself if it exists, else its matches. */
static tt_status expand(const char *job_dir, const char *entry, tt_files *out, tt_error *err)
{
    const bool absolute = entry[0] == '/' || !job_dir || !job_dir[0];
    char *full = absolute ? strdup(entry) : format("%s/%s", job_dir, entry);
    struct stat st;
    if (!full)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for file names");
    tt_status status = TT_OK;
    if (stat(full, &st) == 0) {
        if (!S_ISDIR(st.st_mode))
            return names_add(out, full, err);
        status = TT_FAIL(
            err, TT_EINVAL,
            "dataloader.path: %s is a folder; name its files, such as \"%s/*\" or, with its "
            "subfolders, \"%s/**\"",
            full, entry, entry);
    } else if (!is_glob(entry)) {
        status = TT_FAIL(err, TT_ENOTFOUND, "dataloader.path: %s: %s", full, strerror(errno));
    } else {
        /* The part before the first component with a wildcard is a plain folder. */
        char *cut = full + (absolute ? 0 : strlen(job_dir) + 1);
        cut += strcspn(cut, "*?[");
        while (cut > full && cut[-1] != '/')
            cut--;
        char *dir = strndup(full, (size_t)(cut - full));
        tt_files found = {0};
        status = dir ? walk(dir, cut, 0, &found, err) : TT_FAIL(err, TT_ENOMEM, "out of memory");
        if (status == TT_OK && found.n == 0)
            status = TT_FAIL(err, TT_ENOTFOUND, "dataloader.path: no file matches %s", full);
        names_sort(&found);
        for (size_t i = 0; i < found.n; i++) {
            if (status == TT_OK)
                status = names_add(out, found.items[i], err);
            else
                free(found.items[i]);
        }
        free(found.items);
        free(dir);
    }
    free(full);
    return status;
}

tt_status tt_files_find(const tt_strings *path, const char *job_dir, const char *example,
                        tt_files *out, tt_error *err)
{
    tt_files found = {0};
    tt_status status = TT_OK;
    if (path->n == 0)
        return TT_FAIL(err, TT_EINVAL,
                       "dataloader.path: empty; name files or globs, such as [\"%s\"]", example);
    for (size_t i = 0; status == TT_OK && i < path->n; i++)
        status = expand(job_dir, path->items[i], &found, err);
    if (status == TT_OK)
        *out = found;
    else
        tt_files_free(&found);
    return status;
}
