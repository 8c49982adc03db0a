/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "internal.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The private copy of a plugin (R19): if `make` overwrote a mapped .so, the run would crash. */

#define TEMPORARY "plugins" /* kind of the folders for copies that cannot be in memory */

/* The copy's name contains the hash of its content, so an existing file with this name and these
 * bytes can be used. */
static bool holds(const char *path, const char *bytes, size_t n)
{
    struct stat st;
    char *old = NULL;
    size_t n_old = 0;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode) || (size_t)st.st_size != n)
        return false;
    bool same = tt_read_file(path, n, &old, &n_old, NULL) == TT_OK && n_old == n &&
                memcmp(old, bytes, n) == 0;
    free(old);
    return same;
}

static bool copy_into(tt_arena *a, const char *dir, const char *file, const char *bytes, size_t n,
                      char **out)
{
    static _Atomic unsigned
        counter; /* ranks that are threads may copy the same plugin concurrently */
    char hash[33];
    char *folder = realpath(dir, NULL); /* libltdl would search for a relative path */
    if (!folder)
        return false;
    const char *slash = strrchr(file, '/');
    tt_hash128_hex(bytes, n, hash);
    char *path = tt_arena_printf(a, "%s/%.16s-%s", folder, hash, slash ? slash + 1 : file);
    free(folder);
    if (!holds(path, bytes, n)) {
        char *tmp =
            tt_arena_printf(a, "%s.%ld.%u", path, (long)getpid(), atomic_fetch_add(&counter, 1));
        int fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        bool written = fd >= 0 && tt_write_all(fd, bytes, n);
        if (fd >= 0 && (close(fd) != 0 || !written || rename(tmp, path) != 0)) {
            unlink(tmp);
            written = false;
        }
        if (!written)
            return false;
    }
    *out = path;
    return true;
}

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U /* Linux 6.3 */
#endif

static int memory_file(const char *name)
{
    const int fd = memfd_create(name, MFD_CLOEXEC | MFD_EXEC);
    return fd < 0 && errno == EINVAL ? memfd_create(name, MFD_CLOEXEC) : fd;
}

/* A path of the descriptor that no other call returns, because dlopen takes equal paths for one
 * object, and the number of a closed descriptor is used again. The bits of a counter tell the
 * paths apart: "/." for 0, "/../fd" for 1. */
static char *descriptor_path(tt_arena *a, int fd)
{
    static _Atomic unsigned counter;
    tt_str path = {0};
    tt_str_add(&path, "/proc/self/fd");
    for (unsigned bits = atomic_fetch_add(&counter, 1); bits; bits >>= 1)
        tt_str_add(&path, bits & 1 ? "/../fd" : "/.");
    tt_str_printf(&path, "/%d", fd);
    char *text = tt_arena_str(a, tt_str_get(&path));
    tt_str_free(&path);
    return text;
}

/* A file in memory costs a tenth of what creating and removing a file on a disk costs. */
static bool copy_to_memory(tt_arena *a, const char *file, const char *bytes, size_t n, tt_copy *out)
{
    const char *slash = strrchr(file, '/');
    const int fd = memory_file(tt_arena_printf(a, "ttrun-%.200s", slash ? slash + 1 : file));
    if (fd < 0)
        return false;
    if (!tt_write_all(fd, bytes, n)) {
        close(fd);
        return false;
    }
    out->path = descriptor_path(a, fd);
    out->fd = fd;
    return true;
}

static bool copy_to_temporary(tt_arena *a, const char *file, const char *bytes, size_t n,
                              tt_copy *out)
{
    tt_temporary_clear(TEMPORARY);
    if (!tt_temporary_new(TEMPORARY, &out->temporary))
        return false;
    if (copy_into(a, out->temporary.path, file, bytes, n, &out->path))
        return true;
    tt_temporary_remove(&out->temporary);
    return false;
}

bool tt_copy_make(tt_arena *a, const char *file, const char *private_dir, bool in_memory,
                  const char *bytes, size_t n, tt_copy *out)
{
    *out = (tt_copy){.fd = -1, .temporary.fd = -1};
    if (private_dir) {
        tt_error why;
        if (tt_mkdirs(private_dir, &why) == TT_OK &&
            copy_into(a, private_dir, file, bytes, n, &out->path))
            return true;
        tt_log(TT_WARN, "plugin",
               "%s: cannot be copied into %s; trying memory and the folder for temporary files",
               file, private_dir);
    }
    if (in_memory && copy_to_memory(a, file, bytes, n, out))
        return true;
    return copy_to_temporary(a, file, bytes, n, out);
}

void tt_copy_drop(tt_copy *c)
{
    if (c->fd >= 0)
        close(c->fd);
    tt_temporary_remove(&c->temporary);
}

/* ---- the names of loaded copies, for the handler of crashes ---- */

/* Entries are added and used again, never freed, so that a handler can read them at any time. */
struct tt_copy_name {
    _Atomic(bool) used;
    char path[256], file[128];
    struct tt_copy_name *next;
};
static _Atomic(tt_copy_name *) copy_names;
static pthread_mutex_t copy_names_lock = PTHREAD_MUTEX_INITIALIZER;

tt_copy_name *tt_copy_remember(const char *path, const char *file)
{
    const char *slash = strrchr(file, '/');
    pthread_mutex_lock(&copy_names_lock);
    tt_copy_name *first = atomic_load(&copy_names), *c = first;
    while (c && atomic_load(&c->used))
        c = c->next;
    tt_copy_name *fresh = c ? NULL : calloc(1, sizeof *fresh);
    c = c ? c : fresh;
    if (c) { /* without memory for it, the copy has no name */
        snprintf(c->path, sizeof c->path, "%s", path);
        snprintf(c->file, sizeof c->file, "%s", slash ? slash + 1 : file);
        atomic_store(&c->used, true);
    }
    if (fresh) {
        fresh->next = first;
        atomic_store(&copy_names, fresh);
    }
    pthread_mutex_unlock(&copy_names_lock);
    return c;
}

void tt_copy_forget(tt_copy_name *name)
{
    if (name)
        atomic_store(&name->used, false);
}

const char *tt_plugin_at(const void *address, const char **function)
{
    Dl_info info;
    if (!dladdr(address, &info) || !info.dli_fname)
        return NULL;
    for (const tt_copy_name *c = atomic_load(&copy_names); c; c = c->next) {
        if (!atomic_load(&c->used) || strcmp(c->path, info.dli_fname) != 0)
            continue;
        *function = info.dli_sname;
        return c->file;
    }
    return NULL;
}
