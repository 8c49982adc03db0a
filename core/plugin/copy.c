/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "internal.h"
#include <errno.h>
#include <fcntl.h>
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
