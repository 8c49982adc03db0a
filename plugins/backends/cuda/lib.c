/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "lib.h"
#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Searches for shared libraries. */

typedef struct search {
    const char *wheel;
    const char *const *names;
    const char *oldest; /* version, or NULL */
    cuda_lib *out;
    char searched[420]; /* places, for the error */
    char fault[420];    /* of the first file that is there and cannot be taken */
} search;

/* False: the path is too long to be anything. */
static bool search_path(char *out, size_t size, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(out, size, fmt, ap);
    va_end(ap);
    return n >= 0 && (size_t)n < size;
}

static void search_note(search *s, const char *place)
{
    const size_t n = strlen(s->searched);
    if (n + strlen(place) + 8 < sizeof s->searched)
        snprintf(s->searched + n, sizeof s->searched - n, "%s%s", n ? ", " : "", place);
    else if (!strstr(s->searched, ", …"))
        memcpy(s->searched + n, ", …", sizeof ", …");
}

/* The version that the name of a file ends with, libcudnn.so.9.14.0, is older than the oldest. A name
 * with fewer numbers tells nothing: those that are there decide. */
static bool search_is_old(const search *s, const char *path)
{
    char real[PATH_MAX];
    const char *name = realpath(path, real) ? real : path, *at = strstr(name, ".so."),
               *least = s->oldest;
    if (!least || !at)
        return false;
    for (at += strlen(".so."); *at && *least; at++, least++) {
        char *end, *end_least;
        const long is = strtol(at, &end, 10), must = strtol(least, &end_least, 10);
        if (is != must || *end != '.' || *end_least != '.')
            return is < must;
        at = end, least = end_least;
    }
    return false;
}

/* An old file is closed before any of its functions ran: what it would load would be in the way of a
 * newer one. */
static bool search_refuse(search *s, const char *path)
{
    if (!search_is_old(s, path))
        return false;
    if (!s->fault[0])
        snprintf(s->fault, sizeof s->fault, "%.330s is older than %s", path, s->oldest);
    if (s->out->handle)
        dlclose(s->out->handle);
    s->out->handle = NULL;
    return true;
}

/* exists: the file is there, so a failure is one that the user wants to know. */
static bool search_open(search *s, const char *path, bool exists)
{
    if (exists && search_refuse(s, path))
        return false;
    s->out->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (s->out->handle)
        return true;
    const char *why = dlerror();
    const bool absent = !exists && why && strstr(why, "cannot open shared object file") &&
                        strncmp(why, path, strlen(path)) == 0;
    if (!absent && !s->fault[0])
        snprintf(s->fault, sizeof s->fault, "%s", why ? why : path);
    return false;
}

static bool search_folder(search *s, const char *folder)
{
    char path[PATH_MAX];
    for (size_t i = 0; s->names[i]; i++) {
        if (!search_path(path, sizeof path, "%s/%s", folder, s->names[i]) ||
            access(path, R_OK) != 0)
            continue;
        if (search_open(s, path, true)) {
            search_path(s->out->path, sizeof s->out->path, "%s", path);
            return true;
        }
    }
    return false;
}

static bool search_ld(search *s)
{
    search_note(s, "ld.so's folders");
    for (size_t i = 0; s->names[i]; i++)
        if (search_open(s, s->names[i], false)) {
            struct link_map *map = NULL;
            const bool known = dlinfo(s->out->handle, RTLD_DI_LINKMAP, &map) == 0 && map->l_name[0];
            search_path(s->out->path, sizeof s->out->path, "%s", known ? map->l_name : s->names[i]);
            if (!search_refuse(s, s->out->path))
                return true;
        }
    return false;
}

/* $variable/lib64 */
static bool search_toolkit(search *s, const char *variable)
{
    char folder[PATH_MAX], note[PATH_MAX + 40];
    const char *home = getenv(variable);
    if (!home || !*home)
        return false;
    search_path(folder, sizeof folder, "%s/lib64", home);
    search_path(note, sizeof note, "$%s/lib64 (%s)", variable, folder);
    search_note(s, note);
    return search_folder(s, folder);
}

/* ---- the wheels of Python ---- */

/* pattern: of folders that hold packages */
static bool search_packages(search *s, const char *pattern)
{
    char path[PATH_MAX];
    glob_t found;
    bool ok = false;
    if (glob(pattern, 0, NULL, &found) != 0)
        return false;
    for (size_t i = 0; !ok && i < found.gl_pathc; i++) {
        search_path(path, sizeof path, "%s/nvidia", found.gl_pathv[i]);
        if (access(path, X_OK) != 0)
            continue;
        search_note(s, path);
        search_path(path, sizeof path, "%s/nvidia/cu13/lib", found.gl_pathv[i]);
        ok = search_folder(s, path);
        if (!ok) {
            search_path(path, sizeof path, "%s/nvidia/%s/lib", found.gl_pathv[i], s->wheel);
            ok = search_folder(s, path);
        }
    }
    globfree(&found);
    return ok;
}

/* root/lib/python3.12/site-packages */
static bool search_python(search *s, const char *root)
{
    char pattern[PATH_MAX];
    if (!root || !*root)
        return false;
    return search_path(pattern, sizeof pattern, "%s/lib/python3*/site-packages", root) &&
           search_packages(s, pattern);
}

/* That of the first python3 in PATH, and of the python that it is a link to. */
static bool search_path_python(search *s)
{
    char path[PATH_MAX], real[PATH_MAX];
    for (const char *at = getenv("PATH"); at && *at;) {
        const size_t n = strcspn(at, ":");
        const int len = snprintf(path, sizeof path, "%.*s/python3", (int)n, at);
        at += n + (at[n] == ':');
        if (len < 0 || (size_t)len >= sizeof path || access(path, X_OK) != 0)
            continue;
        if (!realpath(path, real))
            real[0] = '\0';
        for (int up = 0; up < 2; up++) { /* bin/python3 → the folder above bin */
            char *slash = strrchr(path, '/'), *slash_real = strrchr(real, '/');
            if (slash)
                *slash = '\0';
            if (slash_real)
                *slash_real = '\0';
        }
        return search_python(s, path) || search_python(s, real);
    }
    return false;
}

static bool search_wheels(search *s)
{
    char local[PATH_MAX];
    const char *home = getenv("HOME");
    if (search_python(s, getenv("VIRTUAL_ENV")) || search_python(s, getenv("CONDA_PREFIX")) ||
        search_path_python(s))
        return true;
    search_path(local, sizeof local, "%s/.local", home ? home : "");
    return (home && search_python(s, local)) ||
           search_packages(s, "/usr/local/lib/python3*/*-packages") ||
           search_packages(s, "/usr/lib/python3/dist-packages");
}

/* ---- the order ---- */

static bool search_driver(search *s)
{
    static const char *const folders[] = {"/usr/local/nvidia/lib64", "/usr/lib64-nvidia",
                                          "/usr/lib/wsl/lib"};
    bool ok = search_ld(s);
    for (size_t i = 0; !ok && i < sizeof folders / sizeof *folders; i++) {
        search_note(s, folders[i]);
        ok = search_folder(s, folders[i]);
    }
    return ok;
}

static bool search_all(search *s, const char *folder)
{
    char other[PATH_MAX];
    if (folder) {
        char note[PATH_MAX + 24];
        search_path(note, sizeof note, "backend.libraries (%s)", folder);
        search_note(s, note);
        if (search_folder(s, folder))
            return true;
        search_path(other, sizeof other, "%s/libcuda.so.1", folder);
        if (access(other, F_OK) == 0)
            return false;
    }
    if (!s->wheel)
        return search_driver(s);
    if (search_toolkit(s, "CUDA_HOME") || search_toolkit(s, "CUDA_PATH"))
        return true;
    search_note(s, "/usr/local/cuda/lib64");
    return search_folder(s, "/usr/local/cuda/lib64") || search_ld(s) || search_wheels(s);
}

tt_status cuda_lib_open_new(const char *folder, const char *wheel, const char *const *names,
                            const char *oldest, cuda_lib *out, tt_error *err)
{
    cuda_lib lib = {0};
    search s = {.wheel = wheel, .names = names, .oldest = oldest, .out = &lib};
    char list[160] = "";
    if (search_all(&s, folder && *folder ? folder : NULL)) {
        *out = lib;
        return TT_OK;
    }
    for (size_t i = 0, n = 0; names[i] && n + 1 < sizeof list; i++, n = strlen(list))
        snprintf(list + n, sizeof list - n, "%s%s", i ? " or " : "", names[i]);
    if (s.fault[0])
        return TT_FAIL(err, TT_ENOTFOUND, "%s is there, but cannot be taken: %s", list, s.fault);
    return TT_FAIL(err, TT_ENOTFOUND, "%s was not found (searched %s)", list, s.searched);
}

tt_status cuda_lib_open(const char *folder, const char *wheel, const char *const *names,
                        cuda_lib *out, tt_error *err)
{
    return cuda_lib_open_new(folder, wheel, names, NULL, out, err);
}

tt_status cuda_lib_symbol(const cuda_lib *lib, const char *name, void *out, tt_error *err)
{
    void *symbol = dlsym(lib->handle, name);
    if (!symbol)
        return TT_FAIL(err, TT_EUNSUPPORTED, "%s has no function %s: another version is needed",
                       lib->path, name);
    memcpy(out, &symbol, sizeof symbol);
    return TT_OK;
}
