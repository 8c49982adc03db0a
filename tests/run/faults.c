/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "../preload.h"
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Preloaded: of the calls that change files or open them below the folder $FAULT_IN, the one with the number
 * $FAULT_AT fails with the error number $FAULT_ERRNO; 0: it is the last one of the process. The number of the calls
 * so far is in the file $FAULT_COUNT at the end. */

static atomic_long calls;

static bool fails(const char *path)
{
    const char *in = getenv("FAULT_IN"), *at = getenv("FAULT_AT"), *number = getenv("FAULT_ERRNO");
    if (!in || !path || strncmp(path, in, strlen(in)) != 0)
        return false;
    const long call = atomic_fetch_add(&calls, 1);
    if (!at || call != atol(at))
        return false;
    if (!number || !atoi(number))
        _exit(77);
    errno = atoi(number);
    return true;
}

static bool fails_at(int fd)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t k = fd > 2 ? readlink(link, path, sizeof path - 1) : -1;
    path[k > 0 ? k : 0] = 0;
    return k > 0 && fails(path);
}

__attribute__((destructor)) static void write_count(void)
{
    const char *path = getenv("FAULT_COUNT");
    FILE *f = path && atomic_load(&calls) ? fopen(path, "w") : NULL; /* not of `timeout` */
    if (!f)
        return;
    fprintf(f, "%ld\n", (long)atomic_load(&calls));
    fclose(f);
}

ssize_t write(int fd, const void *p, size_t n)
{
    NEXT(ssize_t, "write", int, const void *, size_t);
    if (!fails_at(fd))
        return next(fd, p, n);
    const int e = errno;
    const ssize_t half = next(fd, p, n / 2); /* a torn write */
    (void)half;
    errno = e;
    return -1;
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t at)
{
    NEXT(ssize_t, "pwrite", int, const void *, size_t, off_t);
    return fails_at(fd) ? -1 : next(fd, p, n, at);
}

int fsync(int fd)
{
    NEXT(int, "fsync", int);
    return fails_at(fd) ? -1 : next(fd);
}

int ftruncate(int fd, off_t n)
{
    NEXT(int, "ftruncate", int, off_t);
    return fails_at(fd) ? -1 : next(fd, n);
}

int fallocate(int fd, int mode, off_t at, off_t n)
{
    NEXT(int, "fallocate", int, int, off_t, off_t);
    return fails_at(fd) ? -1 : next(fd, mode, at, n);
}

int open(const char *path, int flags, ...)
{
    NEXT(int, "open", const char *, int, ...);
    MODE_OF_OPEN(flags, mode);
    return fails(path) ? -1 : next(path, flags, mode);
}

int openat(int folder, const char *path, int flags, ...)
{
    NEXT(int, "openat", int, const char *, int, ...);
    MODE_OF_OPEN(flags, mode);
    return fails(path) ? -1 : next(folder, path, flags, mode);
}

int mkdir(const char *path, mode_t mode)
{
    NEXT(int, "mkdir", const char *, mode_t);
    return fails(path) ? -1 : next(path, mode);
}

int rename(const char *from, const char *to)
{
    NEXT(int, "rename", const char *, const char *);
    return fails(from) ? -1 : next(from, to);
}

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
    NEXT(int, "renameat2", int, const char *, int, const char *, unsigned);
    return fails(from) ? -1 : next(from_fd, from, to_fd, to, flags);
}

int unlink(const char *path)
{
    NEXT(int, "unlink", const char *);
    return fails(path) ? -1 : next(path);
}

int symlink(const char *target, const char *path)
{
    NEXT(int, "symlink", const char *, const char *);
    return fails(path) ? -1 : next(target, path);
}

int link(const char *from, const char *to)
{
    NEXT(int, "link", const char *, const char *);
    return fails(to) ? -1 : next(from, to);
}
